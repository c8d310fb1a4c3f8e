from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.cli.leaders import Leaders

KEYS = st.integers(0, 99).map(str)
STEPS = st.lists(st.tuples(KEYS, st.integers(0, 9) | st.none()), max_size=30)


@given(st.lists(st.tuples(KEYS, st.integers(0, 9)), max_size=60), st.lists(st.tuples(STEPS, st.integers(1, 10))))
def test_the_first_keys_are_known_whatever_comes_goes_and_moves(
    beginning: list[tuple[str, int]], pictures: list[tuple[list[tuple[str, int | None]], int]]
) -> None:
    places: dict[str, int] = {}
    leaders = Leaders(places, lambda key: (places[key], key), spare=3)
    for key, place in beginning:
        places[key] = place
        leaders.changed(key)
    for steps, number in pictures:
        for key, moved in steps:
            if moved is None:
                places.pop(key, None)
            else:
                places[key] = moved
            leaders.changed(key)
        assert leaders.first(number) == sorted(places, key=lambda key: (places[key], key))[:number]


def test_a_key_that_has_not_changed_is_not_looked_at() -> None:
    looked: list[str] = []
    keys = dict.fromkeys(f"{number:06d}" for number in range(10_000))
    leaders = Leaders(keys, lambda key: looked.append(key) or key)  # type: ignore[func-returns-value]
    for key in keys:
        leaders.changed(key)
    leaders.first(10)
    looked.clear()
    keys["000003x"] = None
    leaders.changed("000003x")
    assert "000003x" in leaders.first(10)
    del keys["000000"]
    leaders.changed("000000")
    assert leaders.first(10)[0] == "000001"
    assert len(looked) < 10
