"""BentoML's own server as one worker, for what its worker entry cannot run: bentoml.legacy, cmd=, old BentoML.

    python -m plimsoll.whole serve IDENT --host 127.0.0.1 --port N

This is `bentoml serve` with a metrics folder of its own (PROMETHEUS_MULTIPROC_DIR): BentoML's lies in BENTOML_HOME, and
a server that starts empties it under the feet of the one that still serves.
"""

import os
import sys

from plimsoll import bento


def keep_metrics_apart(folder):
    """False when this BentoML is not built as we know it: then its servers share a folder, and only that."""
    try:
        from bentoml._internal.configuration.containers import BentoMLContainer

        BentoMLContainer.prometheus_multiproc_dir.set(folder)
    except (ImportError, AttributeError):
        return False
    return True


def main():
    bento.leave_the_path()
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if folder and not keep_metrics_apart(folder):
        said = 'event=worker.degraded feature=metrics reason="one folder for all servers"'
        print(said, file=sys.stderr, flush=True)
    from bentoml_cli.cli import cli

    sys.argv[0] = "bentoml"
    cli()


if __name__ == "__main__":
    main()
