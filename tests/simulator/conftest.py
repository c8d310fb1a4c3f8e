"""A fixture that silences disturbed consumers: logging costs more time than the disturbance itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulator import quietly


@pytest.fixture(scope="package", autouse=True)
def _quietly() -> Iterator[None]:
    with quietly():
        yield
