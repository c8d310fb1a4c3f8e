"""The command ``lvq``: last value queues from the shell. Needs the extra ``cli``.

For programs every command writes JSON lines (`lvq_kafka.cli.json_lines` documents them), for people tables and boards;
what is not data goes to stderr. `lvq_kafka.cli.exit_codes` holds the exit codes.
"""

from __future__ import annotations

import importlib.util
import signal
import sys

from lvq_kafka.cli.signals import heed_signals

__all__ = ["main"]


def main() -> None:
    """Run the command line, and exit."""
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
        # Nothing is left to be tidied up: from here on Ctrl-C ends the process without a word.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
