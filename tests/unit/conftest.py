"""Fixtures for tests of stores: a cluster, a place for a store, and the clock of attached views."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from lvq_kafka.reading import attached_view
from tests.unit.prices import Prices


@pytest.fixture
def cluster() -> Prices:
    return Prices()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def clock_of_readers(cluster: Prices, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give attached views the clock of the cluster."""
    monkeypatch.setattr(attached_view, "time", SimpleNamespace(time=cluster.clock))
