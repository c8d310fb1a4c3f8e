"""Lines that records leave from the front of."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.log.offset_line import OffsetLine

STEPS = st.lists(st.tuples(st.sampled_from(["append", "append", "pop", "remove"]), st.integers(0, 99)), max_size=300)


@given(steps=STEPS)
def test_a_line_has_what_was_added_and_has_not_left(steps: list[tuple[str, int]]) -> None:
    line, model, offset = OffsetLine(0, int), [0], 0
    for step, which in steps:
        if step == "append":
            offset += 1 + which % 3
            line.append(offset)
            model.append(offset)
        elif step == "pop":
            end = which * (offset + 1) // 90
            assert line.pop_below(end) == [one for one in model if one < end]
            model = [one for one in model if one >= end]
        elif model:
            line.remove(model[which % len(model)])
            del model[which % len(model)]
        assert (list(line), len(line), bool(line)) == (model, len(model), bool(model))
        if model:
            assert line.first == model[0]


def test_a_removal_moves_as_little_however_many_records_stay() -> None:
    for number in (10, 1000, 100_000):
        asked = moved = 0

        def offset(record: int) -> int:
            nonlocal asked
            asked += 1
            return record

        line = OffsetLine(0, offset)
        for record in range(1, number):
            line.append(record)
        steps = range(1, number, max(1, number // 5000))
        for record in steps:
            line.pop_below(record)
            moved += len(line) if line._start == 0 else 0
        assert moved <= number
        assert asked <= len(steps) * (math.log2(number) + 2)
