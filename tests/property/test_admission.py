"""Admission against a model: several producers with delayed followers, over one log and one group."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.facts import Depth
from lvq_kafka.core.producer.admission import Admission, Send
from lvq_kafka.core.queue.limits import Limits
from tests.effort import examples

KEYS = [b"a", b"b", b"c", b"d", b"e"]
PARTITIONS = 2
SIZES = st.sampled_from([1, 3, 4])


def partition_of(key: bytes) -> int:
    return KEYS.index(key) % PARTITIONS


@dataclass
class World:
    """The log, by partition, and what its consumers have done."""

    logs: list[list[tuple[bytes, int | None]]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    done: set[tuple[int, int]] = field(default_factory=set)

    def newest(self) -> dict[bytes, tuple[int, int, int | None]]:
        return {key: (p, at, size) for p, log in enumerate(self.logs) for at, (key, size) in enumerate(log)}

    def held(self) -> set[bytes]:
        """Return the keys of the messages that are in the queue."""
        return {key for key, (p, at, size) in self.newest().items() if size is not None and (p, at) not in self.done}


def admits(admission: Admission, key: bytes, size: int | None) -> bool:
    return size is None or admission.counts(key) or admission.has_room(size)


class Producer:
    """One producer: its admission, what is under way, and how far its follower and its knowledge of the group are."""

    def __init__(self, world: World, limits: Limits) -> None:
        self.world = world
        self.known: set[tuple[int, int]] = set()
        self.admission = Admission(limits)
        self.positions = [0] * PARTITIONS
        self.places: dict[bytes, tuple[int, int]] = {}
        self.under_way: deque[Send] = deque()
        self.unanswered: deque[tuple[Send, int, int]] = deque()
        self.own_places: set[tuple[int, int]] = set()
        self.lost: list[Send] = []  # of unknown outcome: they may yet be stored

    def send(self, key: bytes, size: int | None) -> bool:
        if not admits(self.admission, key, size):
            return False
        self.under_way.append(self.admission.send(key, size))
        return True

    def store(self, *, answered: bool = True) -> None:
        """Store the oldest message under way. Its answer arrives later, or never."""
        if self.under_way:
            send = self.under_way.popleft()
            partition = partition_of(send.key)
            self.world.logs[partition].append((send.key, send.size))
            if answered:
                offset = len(self.world.logs[partition]) - 1
                self.unanswered.append((send, partition, offset))
                self.own_places.add((partition, offset))
            else:
                self.admission.failed(send)

    def answer(self) -> None:
        if self.unanswered:
            self.admission.stored(*self.unanswered.popleft())

    def fail(self, *, unknown: bool) -> None:
        if self.under_way:
            send = self.under_way.popleft()
            self.admission.failed(send)
            if unknown:
                self.lost.append(send)

    def find(self) -> None:
        """Store a message of unknown outcome after all."""
        if self.lost:
            send = self.lost.pop(0)
            self.world.logs[partition_of(send.key)].append((send.key, send.size))

    def follow(self, partition: int, records: int) -> None:
        log = self.world.logs[partition]
        end = min(len(log), self.positions[partition] + records)
        changed = {key for key, _ in log[self.positions[partition] : end]}
        newest = {key: (at, size) for at, (key, size) in enumerate(log[:end])}
        for key in changed:
            at, size = newest[key]
            self.places[key] = partition, at
            if size is None or (partition, at) in self.known:
                self.admission.remove([key])
            else:
                self.admission.show([key], [size])
        self.positions[partition] = end
        self.admission.read(dict(enumerate(self.positions)))

    def learn(self) -> None:
        self.known = set(self.world.done)
        for key in self.admission.shown:
            if self.places[key] in self.known:
                self.admission.remove([key])

    def refresh(self) -> None:
        for partition in range(PARTITIONS):
            self.follow(partition, len(self.world.logs[partition]))
        self.learn()

    def own(self) -> Iterator[Send]:
        """Yield its sends that have no answer yet, in order."""
        yield from (send for send, _, _ in self.unanswered)
        yield from self.under_way

    def unread(self) -> set[bytes]:
        """Return the keys of stored messages that its follower has not read, and that are not its own."""
        return {
            key
            for partition, log in enumerate(self.world.logs)
            for offset, (key, size) in enumerate(log)
            if size is not None and offset >= self.positions[partition] and (partition, offset) not in self.own_places
        }


def unseen(one: Producer, producers: list[Producer]) -> set[bytes]:
    """Return the keys that a producer cannot know of: what others have under way, and what it has not read."""
    others = {send.key for other in producers if other is not one for send in other.own() if send.size is not None}
    lost = {send.key for other in producers for send in other.lost}
    return others | lost | one.unread()


def own_deletes(one: Producer) -> set[bytes]:
    return {send.key for send in one.own() if send.size is None}


def check(producers: list[Producer], world: World) -> None:
    to_come = {send.key for one in producers for send in (*one.own(), *one.lost) if send.size is not None}
    for one in producers:
        counted = {key for key in KEYS if one.admission.counts(key)}
        assert len(counted) == one.admission.depth.messages
        # So it exceeds a limit by what is under way at most, and by nothing if it is alone and deletes nothing.
        assert (world.held() | to_come) <= counted | unseen(one, producers) | own_deletes(one)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.sampled_from(KEYS), st.one_of(st.none(), SIZES)),
        st.tuples(
            st.sampled_from(
                ["store", "store", "answer", "store unanswered", "fail", "lose", "find", "learn", "refresh"]
            ),
            st.integers(0, 2),
        ),
        st.tuples(st.just("follow"), st.integers(0, 2), st.integers(0, PARTITIONS - 1), st.integers(1, 3)),
        st.tuples(st.just("consume"), st.sampled_from(KEYS)),
    ),
    min_size=30,
    max_size=80,
)

LIMITS = st.one_of(
    st.builds(Limits, policy=st.just("reject"), messages=st.integers(1, 4)),
    st.builds(Limits, policy=st.just("reject"), bytes=st.integers(4, 12)),
    st.builds(Limits, policy=st.just("reject"), messages=st.integers(1, 4), bytes=st.integers(4, 12)),
    st.builds(Limits, policy=st.just("block"), messages=st.integers(1, 4), resume=st.sampled_from([0.3, 0.8, 1.0])),
    st.builds(Limits, policy=st.just("block"), bytes=st.integers(4, 12), resume=st.sampled_from([0.3, 0.8, 1.0])),
)


@settings(max_examples=examples(300))
@given(limits=LIMITS, steps=STEPS)
def test_each_producer_knows_the_depth_but_for_messages_that_others_have_under_way(
    limits: Limits, steps: list[tuple]
) -> None:  # type: ignore[type-arg]
    world = World()
    producers = [Producer(world, limits) for _ in range(3)]
    for step, *arguments in steps:
        run(producers, world, limits, step, arguments)
        check(producers, world)
    for one in producers:  # in the end, all know the same, and nothing that was counted is left over
        while one.under_way:
            one.store()
        while one.unanswered:
            one.answer()
    for one in producers:
        one.refresh()
        sizes = {key: size for key, (_, _, size) in world.newest().items()}
        assert one.admission.depth == Depth(len(world.held()), sum(sizes[key] or 0 for key in world.held()))
        assert not one.admission._sends
        assert not one.admission._stored


def run(producers: list[Producer], world: World, limits: Limits, step: str, arguments: list[object]) -> None:
    if step == "consume":
        (key,) = arguments
        partition, offset, size = world.newest().get(key, (0, 0, None))  # type: ignore[call-overload]
        if size is not None:
            world.done.add((partition, offset))
        return
    number, *rest = arguments
    one = producers[number]  # type: ignore[call-overload]
    match step:
        case "send":
            send_one(one, world, limits, *rest)  # type: ignore[arg-type]
        case "store":
            one.store()
        case "store unanswered":
            one.store(answered=False)
        case "answer":
            one.answer()
        case "fail" | "lose":
            one.fail(unknown=step == "lose")
        case "find":
            one.find()
        case "learn":
            one.learn()
        case "refresh":
            one.refresh()
        case "follow":
            one.follow(*rest)  # type: ignore[arg-type]


def send_one(one: Producer, world: World, limits: Limits, key: bytes, size: int | None) -> None:
    update = one.admission.counts(key)
    before = one.admission.depth
    admitted = one.send(key, size)
    if not admitted:  # as its gate does before it refuses
        one.refresh()
        deleting = [send.size is None for send in one.own() if send.key == key][-1:] == [True]
        update = one.admission.counts(key)
        before = one.admission.depth
        admitted = one.send(key, size)
        assert admitted or key not in world.held() or deleting, "an update was refused"
    if admitted and not update and size is not None:
        if limits.policy == "reject":
            assert not limits.exceeded_by(one.admission.depth)
        else:  # the last message may cross the limit of bytes
            assert limits.messages is None or one.admission.depth.messages <= limits.messages
            assert limits.bytes is None or before.bytes < limits.bytes


def test_a_limit_of_messages_admits_as_many_and_updates_of_them() -> None:
    admission = Admission(Limits(policy="reject", messages=3))
    for key in (b"a", b"b", b"c", b"c"):  # S122
        assert admits(admission, key, 1)
        admission.send(key, 1)
    assert not admits(admission, b"d", 1)
    assert admits(admission, b"a", 100), "an update is never refused, however large"
    assert admits(admission, b"d", None), "a delete needs no room"


def test_an_own_delete_makes_room_at_once() -> None:
    admission = Admission(Limits(policy="reject", messages=1))
    admission.send(b"a", 1)
    delete = admission.send(b"a", None)
    assert admits(admission, b"b", 1)
    admission.failed(delete)
    assert not admits(admission, b"b", 1)


@pytest.mark.parametrize(("limits", "most"), [({"messages": 4}, 4), ({"bytes": 7}, 4)])
def test_a_queue_that_blocks_is_full_until_it_has_shrunk_to_the_part_to_resume_at(
    limits: dict[str, int], most: int
) -> None:
    """S129: with room for 3.5 messages, the one that crosses the limit is the last."""
    part = 0.5 if "messages" in limits else 4 / 7
    admission = Admission(Limits(policy="block", resume=part, **limits))
    for key in KEYS[:most]:
        assert admits(admission, key, 2)
        admission.show([key], [2])
    for key in KEYS[:2]:
        assert not admits(admission, b"e", 2)
        admission.remove([key])
    assert admits(admission, b"e", 2)


@pytest.mark.parametrize(("limits", "most"), [({"messages": 2}, 2), ({"bytes": 4}, 2), ({"bytes": 3}, 2)])
def test_a_queue_that_resumes_at_its_limits_admits_nothing_while_they_are_reached(
    limits: dict[str, int], most: int
) -> None:
    admission = Admission(Limits(policy="block", resume=1.0, **limits))
    for key in KEYS[:most]:
        assert admits(admission, key, 2)
        admission.show([key], [2])
    for _ in range(3):
        assert not admits(admission, b"e", 2)
    admission.remove(KEYS[:1])
    assert admits(admission, b"e", 2)


def test_a_topic_that_is_another_one_has_nothing_in_it_but_what_is_under_way() -> None:
    admission = Admission(Limits(policy="reject", messages=2))
    stored = admission.send(b"a", 1)
    admission.stored(stored, 0, 5)
    admission.show([b"b"], [1])
    under_way = admission.send(b"c", 1)
    admission.forget()
    assert admission.depth == Depth(1, 1)
    admission.stored(under_way, 0, 1_000_000)
    assert admission.depth == Depth(), "it is stored in the topic that is gone"


def test_a_message_stored_where_the_follower_has_read_no_longer_counts_as_sent() -> None:
    admission = Admission(Limits(policy="reject", messages=2))
    send = admission.send(b"a", 1)
    admission.read({0: 8})
    admission.stored(send, 0, 7)
    assert admission.depth == Depth()
    admission.stored(admission.send(b"a", 1), 0, -1)  # stored at an unknown place: the follower shows it
    assert admission.depth == Depth()
