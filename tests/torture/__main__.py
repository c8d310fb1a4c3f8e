"""``make torture``: all kinds of runs in turn, each with a summary of events and findings."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from random import SystemRandom
from typing import get_args

from tests.torture.ordeal import Ordeal, Protocol, undergo
from tests.torture.report import summary

_KINDS: dict[str, dict[str, bool]] = {
    "plain": {},
    "transactional": {"transactional": True},
    "expiring": {"expiring": True},
    "scheduled": {"scheduled": True},
    "grouped": {"grouped": True},
    "ranked": {"ranked": True},
    "paged": {"paged": True},
    "standard": {"standard": True},
    "ring": {"ring": True},
    "block": {"block": True},
    "standard-grouped-ranked": {"standard": True, "grouped": True, "ranked": True},
    "grouped-ranked": {"grouped": True, "ranked": True},
    "ranked-transactional": {"ranked": True, "transactional": True},
    "paged-expiring": {"paged": True, "expiring": True},
    "paged-grouped-ranked": {"paged": True, "grouped": True, "ranked": True},
    "expiring-transactional": {"expiring": True, "transactional": True},
    "scheduled-transactional": {"scheduled": True, "transactional": True},
}
_USUAL = ("plain", "transactional", "expiring", "scheduled", "grouped", "ranked", "paged", "standard", "ring", "block")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="of chaos, over all runs (default 300)")
    parser.add_argument("--seed", type=int, default=None, help="deals the same cards again")
    parser.add_argument(
        "--kind",
        choices=_KINDS,
        help=f"only these runs (default {', '.join(_USUAL)} in turn)",
    )
    parser.add_argument("--protocol", choices=get_args(Protocol), help="only this group protocol")
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="of the cluster (default 1)")
    parser.add_argument("--rate", type=float, default=200.0, help="messages a second (default 200)")
    parser.add_argument("--keep", type=Path, help="a new directory for the journals and the broker's logs")
    parser.add_argument("--quiet", action="store_true", help="only the summaries")
    options = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    runs = [
        (kind, protocol)
        for protocol in get_args(Protocol)
        for kind in (_USUAL if options.kind is None else [options.kind])
        if options.protocol in (None, protocol)
    ]
    again = f"SECONDS={options.seconds:g} SEED={seed}{'' if options.kind is None else f' KIND={options.kind}'}"
    print(f"seed {seed}; the same again: make torture {again}", flush=True)
    wrong = 0
    for kind, protocol in runs:
        ordeal = Ordeal(
            seconds=options.seconds / len(runs),
            seed=seed,
            **_KINDS[kind],
            protocol=protocol,
            rate=options.rate,
            nodes=options.nodes,
        )
        keep = None if options.keep is None else options.keep / f"{kind}-{protocol}"
        report = undergo(ordeal, say=(lambda _: None) if options.quiet else _say, keep=keep)
        print(f"\n{summary(report)}\n", flush=True)
        wrong += bool(report.verdict.findings)
    return 1 if wrong else 0


def _say(what: str) -> None:
    print(f"  {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
