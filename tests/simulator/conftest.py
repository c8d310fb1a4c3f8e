"""Silence for the logs of disturbed consumers, which are no news here and cost more than the disturbance."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulator import quietly


@pytest.fixture(scope="package", autouse=True)
def _quietly() -> Iterator[None]:
    with quietly():
        yield
