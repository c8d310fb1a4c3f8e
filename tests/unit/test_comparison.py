"""This library's side of ``python -m tests.comparison``: the same sends, the same order."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.testing import MemoryCluster
from tests.comparison.cases import CASES, Case
from tests.comparison.own_worker import OwnWorker
from tests.comparison.steps import play


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_sends_come_out_in_the_expected_order(case: Case) -> None:
    with ExitStack() as opened:
        queue = opened.enter_context(LastValueQueue.declare("q", value=TEXT, cluster=MemoryCluster(), **case.options))
        assert play(case.script, OwnWorker(queue, opened)) == case.results
