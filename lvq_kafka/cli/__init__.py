"""The command ``lvq``: last value queues from the shell. Needs the extra ``cli``.

Every command writes JSON lines for programs (documented in `lvq_kafka.cli.json_lines`), and tables and boards for
people. Anything that is not data goes to stderr. `lvq_kafka.cli.exit_codes` holds the exit codes.
"""

from __future__ import annotations

import importlib.util
import signal
import sys

from lvq_kafka.cli.signals import heed_signals

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit."""
    try:
        missing = [name for name in ("click", "rich") if importlib.util.find_spec(name) is None]
        if missing:
            sys.stderr.write(f"lvq: {' and '.join(missing)} not installed. Run: pip install 'lvq-kafka[cli]'\n")
            sys.exit(2)
        heed_signals()
        from lvq_kafka.cli.app import lvq

        lvq(prog_name="lvq")
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # No cleanup is left: from here on Ctrl-C ends the process silently.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
