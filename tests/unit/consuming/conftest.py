from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.unit.consuming.world")

from tests.unit.consuming.world import Day, World, make_world  # noqa: E402  # must not be imported before this


@pytest.fixture
def world() -> World:
    """Return a world with a queue on one partition."""
    return make_world()


@pytest.fixture
def day() -> Day:
    """Return a clock of the cluster, for worlds that are made with it."""
    return Day()
