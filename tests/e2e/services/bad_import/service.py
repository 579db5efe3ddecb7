"""Fails while the module is imported."""

raise RuntimeError("module-level failure")
