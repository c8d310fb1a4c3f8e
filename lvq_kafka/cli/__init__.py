"""The command ``lvq``: last value queues from the shell. Needs the extra ``cli``.

Every command writes JSON lines for programs (documented in `lvq_kafka.json_lines`), and tables and boards for
people. Anything that is not data goes to stderr. `lvq_kafka.cli.exit_codes` holds the exit codes.
"""

from __future__ import annotations

import importlib
import signal
import sys

from lvq_kafka.cli.signals import heed_signals
from lvq_kafka.errors import MissingExtra
from lvq_kafka.runtime.extras import needing

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit."""
    try:
        with needing("cli", "The command line"):
            for package in ("click", "rich"):
                importlib.import_module(package)
        heed_signals()
        from lvq_kafka.cli.app import lvq

        lvq(prog_name="lvq")
    except MissingExtra as missing:
        sys.stderr.write(f"lvq: {missing}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # No cleanup is left: from here on Ctrl-C ends the process silently.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
