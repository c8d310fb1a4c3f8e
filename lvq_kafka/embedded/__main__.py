"""``python -m lvq_kafka.embedded``: manage the broker's jars.

It fetches them, copies them for a container image, or rewrites their lock.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from lvq_kafka.embedded.jars import BROKER
from lvq_kafka.errors import EmbeddedBrokerError, MissingExtra

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit with a message if the jars are not available."""
    parser = argparse.ArgumentParser(
        prog="python -m lvq_kafka.embedded",
        description="Fetch the broker's jars into the cache and print their paths.",
    )
    parser.add_argument("--copy-to", type=Path, metavar="DIR", help="copy them into DIR, for a container image")
    parser.add_argument("--relock", action="store_true", help="resolve the dependencies again and rewrite the lock")
    options = parser.parse_args(arguments)
    try:
        if options.relock:
            sys.stdout.write(f"{BROKER.relock()} jars locked in {BROKER.lock_file}\n")
            return
        jars = BROKER.ensure(_show)
    except (EmbeddedBrokerError, MissingExtra) as error:
        sys.exit(str(error))
    directory = jars[0].parent
    if options.copy_to is not None:
        directory = options.copy_to
        directory.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            shutil.copy2(jar, directory)
    sys.stdout.write(f"{len(jars)} jars in {directory}\n")


def _show(what: str, done: int, total: int) -> None:
    sys.stderr.write(f"{what}: {done}/{total}\n")


if __name__ == "__main__":
    main()
