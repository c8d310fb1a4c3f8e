"""A fold that holds selected keys only, against the filter of the full fold over any history."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.conditions import UNSELECTED
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.latest.selected_values import SelectedValues, StrayKeys
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.log.records import Headers, Record, RecordBatch
from lvq_kafka.core.queue.message_groups import Groups, Placement
from lvq_kafka.core.queue.rules import PLAIN
from tests.property.test_fold import Step, logs, placements
from tests.rules import rules

KEYS = [b"", b"a", b"b", b"c", b"dd"]
HEADERS: list[Headers] = [(), (("k", b"a"),), (("x", b"1"),)]
IN, OUT = b"in", b"out"

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.integers(0, 9),
        st.sampled_from(KEYS),
        st.sampled_from([IN, OUT, OUT, None]),
        st.sampled_from(HEADERS),
    ),
    max_size=20,
)
policies: st.SearchStrategy[KeyMismatchPolicy] = st.sampled_from(["record", "header"])


def compacted(draw: st.DataObject, log: Sequence[Record]) -> list[Record]:
    """Drop any records that have a newer one of their key, as compaction may."""
    newest = {record.key: record.offset for record in log}
    return [record for record in log if newest[record.key] == record.offset or draw.draw(st.booleans())]


def marked(records: Sequence[Record]) -> RecordBatch:
    batch = RecordBatch.of(records)
    batch.values = [UNSELECTED if value == OUT else value for value in batch.values]
    return batch


def content(values: LatestValues | SelectedValues) -> dict[bytes | None, tuple[int, int]]:
    return {record.key: (record.partition, record.offset) for record in values.table.records()}


class Selecting:
    """A reader of the selected keys, which starts over when its fold is in doubt."""

    def __init__(self, partitions: int, policy: KeyMismatchPolicy, placement: Placement = "key") -> None:
        self._partitions = partitions
        self._groups = Groups(placement=placement)
        self._policy: KeyMismatchPolicy = policy
        self._strays = StrayKeys()
        self.readings = 0

    def read(self, history: Sequence[Sequence[Record]]) -> SelectedValues:
        """Read a history, given in batches, until there is no doubt."""
        while True:
            self.readings += 1
            queue = rules(key_header="k", key_mismatch=self._policy, groups=self._groups)
            values = LatestValues(self._partitions, queue)
            selected = SelectedValues(values, queue, self._strays, several=self._partitions > 1)
            shown: set[bytes] = set()
            for records in history:
                changed = selected.apply(marked(records))
                assert not set(changed) & set(selected.deselected)
                for key in selected.deselected:
                    assert key not in selected.table
                shown = (shown | {key for key in changed if key in selected.table}) - set(selected.deselected)
                shown -= {key for key in changed if key not in selected.table}
                assert shown == set(content(selected))  # the changes alone say what is selected
                self._holds_no_more_than_it_must(values)
            if not selected.needs_reread:
                return selected

    def _holds_no_more_than_it_must(self, values: LatestValues) -> None:
        if self._strays.keys is not None:
            split = set(values.split_keys)
            assert set(values.contested) <= split | self._strays.keys


@given(data=st.data(), partitions=st.sampled_from([1, 3]), policy=policies, placement=placements)
def test_the_selected_keys_are_the_filter_of_the_full_fold(
    data: st.DataObject, partitions: int, policy: KeyMismatchPolicy, placement: Placement
) -> None:
    history = [compacted(data, log) for log in data.draw(logs(partitions, steps))]
    full = LatestValues(partitions, rules(key_header="k", key_mismatch=policy, groups=Groups(placement=placement)))
    at = [0] * partitions
    batches: list[list[Record]] = []
    while any(position < len(log) for position, log in zip(at, history)):
        batch: list[Record] = []
        for partition, count in data.draw(
            st.lists(st.tuples(st.integers(0, partitions - 1), st.integers(1, 8)), min_size=1, max_size=4)
        ):
            batch += history[partition][at[partition] : at[partition] + count]
            at[partition] += count
        batches.append(batch)
        full.apply(RecordBatch.of(batch))
    reader = Selecting(partitions, policy, placement)
    selected = reader.read(batches)
    expected = {key: at for key, at in content(full).items() if full.table.value(key or b"") == IN}
    assert content(selected) == expected
    if partitions == 1 or placement == "group":
        assert reader.readings == 1
    else:
        assert reader.readings <= 2, "one reading finds all the strays, the next one has no doubt"


@given(log=logs(3, steps))
def test_records_in_their_home_partitions_are_read_once_and_nothing_is_remembered_of_unselected_keys(
    log: list[list[Record]],
) -> None:
    history = [
        [record._replace(headers=()) for record in part if home_partition(record.key or b"", 3) == record.partition]
        for part in log
    ]
    reader = Selecting(3, "record")
    selected = reader.read(history)
    assert reader.readings == 1
    assert not selected._values.contested


def test_a_topic_whose_keys_keep_turning_up_elsewhere_is_not_read_again_for_each() -> None:
    strays = StrayKeys()
    names = [b"%d" % number for number in range(200)]
    foreign = [Record(1 - home_partition(name, 2), at, at, name, IN) for at, name in enumerate(names)]
    doubts = 0
    for end in range(len(foreign)):
        selected = SelectedValues(LatestValues(2), PLAIN, strays, several=True)
        selected.apply(RecordBatch.of(foreign[: end + 1]))
        doubts += selected.needs_reread
    assert doubts < 10
    assert len(selected.table) == len(names)
