"""The simulator as a hypothesis state machine, which finds the shortest script that breaks an invariant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.simulator.scene import Step
from tests.simulator.walk import any_setting
from tests.simulator.world import ACTIONS, World

__all__ = ["ConsumeProtocol"]

T = TypeVar("T")

_STEPS = st.builds(
    Step,
    st.sampled_from([action for action, weight in ACTIONS.items() for _ in range(weight)]),
    st.integers(0, 7),
    st.integers(0, 63),
)


class ConsumeProtocol(RuleBasedStateMachine):
    """A new world for every example. ``counts`` sums up the events in all of them."""

    counts: ClassVar[Counter[str]] = Counter()

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        def choose(options: Sequence[T]) -> T:
            return data.draw(st.sampled_from(options))

        self.world = World(any_setting(choose))
        self.sound = True

    @rule(step=_STEPS)
    def happens(self, step: Step) -> None:
        self.sound = False  # a broken world cannot finish
        self.world.act(*step)
        self.sound = True

    def teardown(self) -> None:
        if hasattr(self, "world") and self.sound:
            turn = len(self.world.script)
            self.world.finish(turn, turn)
            self.counts.update(self.world.counts)
