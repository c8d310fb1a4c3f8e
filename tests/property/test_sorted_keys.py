"""The kept order of a table's keys, against ``sorted``, as keys come and go between scans."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest import columns, sorted_keys
from lvq_kafka.core.latest.columns import ColumnTable
from lvq_kafka.core.latest.sorted_keys import sorted_parts

KEYS = st.sampled_from([b"", b"a", b"a\0", b"aa", b"ab", b"b", b"c", b"ca", b"d", b"\xff", b"\xff\xff"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(KEYS, max_size=9, unique=True)),
        st.tuples(st.just("remove"), st.lists(KEYS, max_size=9)),
        st.tuples(st.just("scan"), st.tuples(KEYS, st.none() | KEYS, st.none() | st.integers(0, 5))),
        st.tuples(st.just("copy"), st.none()),
    ),
    max_size=30,
)


@given(steps=STEPS, few=st.sampled_from([0, 3, 10_000]))
def test_the_keys_of_a_range_are_those_of_the_table_in_order(steps: list[tuple[str, object]], few: int) -> None:
    table = ColumnTable(partitions=1, key_header=None)
    model: dict[bytes, bytes] = {}
    with (
        patch.object(sorted_keys, "_PART", 4),
        patch.object(sorted_keys, "_SAMPLE", 4),
        patch.object(columns, "_FEW", few),
    ):
        for number, (step, given_) in enumerate(steps):
            if step == "put":
                keys: list[bytes] = given_  # type: ignore[assignment]
                value, count = b"%d" % number, len(keys)
                rows = ([number] * count, [0] * count, keys, [value] * count, [None] * count)
                table.put(0, rows, table.slots(keys))
                model.update(dict.fromkeys(keys, value))
            elif step == "remove":
                table.remove(given_)  # type: ignore[arg-type]
                for key in given_:  # type: ignore[attr-defined]
                    model.pop(key, None)
            elif step == "copy":
                table = table.copy()
            else:
                start, stop, most = given_  # type: ignore[misc]
                expected = sorted(key for key in model if start <= key and (stop is None or key < stop))[:most]
                assert table.key_range(start, stop, most) == expected
                found = table.scan(start, stop, most)
                assert [(record.key, record.value) for record in found.records()] == [(k, model[k]) for k in expected]
                assert len(found) == len(expected)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers())), st.integers(1, 5))
def test_parts_are_sorted_as_a_whole_would_be(items: list[tuple[int, int]], part: int) -> None:
    with patch.object(sorted_keys, "_PART", part), patch.object(sorted_keys, "_SAMPLE", 4):
        parts = sorted_parts(items, lambda item: item[0])
    assert [item for part in parts for item in part] == sorted(items, key=lambda item: item[0])


def test_the_order_is_kept_only_while_scans_use_it() -> None:
    table = ColumnTable(partitions=1, key_header=None)

    def put(*keys: bytes) -> None:
        count = len(keys)
        table.put(0, ([0] * count, [0] * count, list(keys), [b""] * count, [None] * count), [None] * count)

    put(b"b", b"a")
    assert table._sorted is None
    assert table.key_range() == [b"a", b"b"]
    put(b"c")
    assert table._moved == [b"c"]
    put(*(b"%d" % number for number in range(6000)))
    assert (table._sorted, table._moved) == (None, []), "too many have come without a scan"
    assert len(table.key_range()) == 6003
