"""Fails while the module is imported."""

raise RuntimeError("the model file is missing")
