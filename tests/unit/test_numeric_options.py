"""Every numeric option at its bounds, twice: the table is complete, since it is compared with the public signatures."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

import lvq_kafka
from lvq_kafka import (
    TEXT,
    Consumer,
    Groups,
    LastValueQueue,
    Limits,
    Message,
    Producer,
    TopicSpec,
    Ttl,
    attach,
)
from lvq_kafka.consuming.workers import Workers
from lvq_kafka.core.queue.default_filters import DefaultFilters
from lvq_kafka.core.timing.delay import LONGEST_DELAY
from lvq_kafka.core.timing.ttl import LONGEST_TTL
from lvq_kafka.errors import CatchUpTimeout, ConfigError
from lvq_kafka.testing import MemoryCluster
from tests.unit.test_bad_arguments import WAITING

NOW = 1_800_000_000.0
SMALLEST = math.ulp(0.0)
MOST_WORKERS = 10_000
LARGEST = 1.7976931348623157e308
HUGE = (10**400, -(10**400), 10**5000)


class Row(NamedTuple):
    """A numeric option: its bounds, and a use of it that returns what came of that."""

    lowest: float
    highest: float
    use: Callable[[MemoryCluster, Any], object]
    negative_is_none: bool = False


def cluster_of() -> MemoryCluster:
    return MemoryCluster(clock=lambda: NOW)


def declared(cluster: MemoryCluster, **options: Any) -> object:
    queue = LastValueQueue.declare("q", key_header="k", cluster=cluster, **options)
    assert queue.declaration is not None
    assert not queue.declaration.reconciled
    assert LastValueQueue.open("q", cluster=cluster).definition == queue.definition
    return queue.definition


def filled(cluster: MemoryCluster, **options: Any) -> LastValueQueue[str]:
    queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=cluster, **options)
    with queue.producer() as producer:
        producer.put("a", "1")
    return queue


def viewed(cluster: MemoryCluster, **options: Any) -> object:
    with filled(cluster).view(**options) as view:
        view.barrier(10)
        return dict(view)


def attached(cluster: MemoryCluster, **options: Any) -> object:
    with TemporaryDirectory() as folder, filled(cluster).view(store=Path(folder) / "store") as view:
        view.barrier(10)
        with attach(Path(folder) / "store", value=TEXT, **options) as reader:
            return dict(reader)


def watched(cluster: MemoryCluster, **options: Any) -> object:
    with filled(cluster).view() as view, view.watch(dump=True, **options) as watch:
        return watch.poll(10) is not None


def paged(cluster: MemoryCluster, **options: Any) -> object:
    with filled(cluster).view() as view:
        return len(view.page(**options).entries) == len(asyncio.run(view.page_async(**options)).entries) == 1


def sorted_by_value(cluster: MemoryCluster, **options: Any) -> object:
    view = filled(cluster).view()
    view.index("value", by=lambda entry: entry.value)
    with view:
        return len(view.top(by="value", **options)) == len(asyncio.run(view.top_async(by="value", **options))) == 1


def told(cluster: MemoryCluster, **options: Any) -> object:
    with filled(cluster).view() as view:
        view.on_change(print, **options)()
        return dict(view)


def in_time(act: Callable[[], object]) -> object:
    """Return nothing: a reader may have caught up before a time that is over at once."""
    with suppress(CatchUpTimeout):
        act()


def browsed(cluster: MemoryCluster, **options: Any) -> object:
    with filled(cluster).browser(**options) as browser:
        return len(browser.drain(10)) > 0


def consumed(cluster: MemoryCluster, **options: Any) -> object:
    with filled(cluster).consumer(**options) as consumer:
        delivery = consumer.acquire(10)
        assert delivery is not None
        return delivery.value


def held(cluster: MemoryCluster, act: Callable[[Any], object]) -> object:
    with filled(cluster).consumer() as consumer:
        delivery = consumer.acquire(10)
        assert delivery is not None
        act(delivery)
        return delivery.value


def ran(cluster: MemoryCluster, **options: Any) -> object:
    if options.get("workers") == MOST_WORKERS:  # checked, but so many threads are not started in a test
        return Workers("q", lambda stop: iter(()), print, **{"retry_delay": 1.0, "attempts": None} | options) is None
    handled = []

    def handle(delivery: Any) -> None:
        handled.append(delivery.value)
        consumer.close()

    with filled(cluster).consumer() as consumer:
        consumer.run(handle, **options)
        return handled


def acquired(cluster: MemoryCluster, call: Callable[[Consumer[str]], Any]) -> object:
    with filled(cluster).consumer() as consumer:
        return len(call(consumer))


def put(cluster: MemoryCluster, message: Message[str], **options: Any) -> object:
    queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=cluster, **options)
    with queue.producer() as producer:
        producer.send(message)
        own = {name: getattr(message, name) for name in ("ttl", "not_before", "priority")}
        producer.put("a", "1", **own)
        asyncio.run(sent_async(producer, own))
    with queue.browser(dump=True) as browser:
        browser.drain(10)
    return [record.headers for record in cluster.records("q")][-1]


async def sent_async(producer: Producer[str], own: dict[str, Any]) -> None:
    await producer.put_async("a", "1", **own)


def produced(cluster: MemoryCluster, **options: Any) -> object:
    queue = LastValueQueue.declare(
        "q", key_header="k", limits=Limits(messages=5, policy="block"), value=TEXT, cluster=cluster
    )
    with queue.producer(**options) as producer:
        return producer.put("a", "1").result(10).partition


def constructed(cluster: MemoryCluster, **options: Any) -> object:
    filled(cluster)
    return LastValueQueue("q", key_header="k", cluster=cluster, **options).definition


def limits(cluster: MemoryCluster, **options: Any) -> object:
    return declared(cluster, limits=Limits(**{"messages": 5, "policy": "block"} | options))


TABLE: dict[str, Row] = {
    "Ttl.default": Row(0.001, LONGEST_TTL, lambda c, x: declared(c, ttl=Ttl(default=x))),
    "Ttl.minimum": Row(0.001, LONGEST_TTL, lambda c, x: declared(c, ttl=Ttl(minimum=x))),
    "Ttl.maximum": Row(0.001, LONGEST_TTL, lambda c, x: declared(c, ttl=Ttl(maximum=x))),
    "Limits.messages": Row(1, 2**63 - 1, lambda c, x: limits(c, messages=x), negative_is_none=True),
    "Limits.bytes": Row(1, 2**63 - 1, lambda c, x: limits(c, bytes=x), negative_is_none=True),
    "Limits.resume": Row(SMALLEST, 1.0, lambda c, x: limits(c, resume=x)),
    "DefaultFilters.replay_period": Row(
        0.0, LARGEST / 1000, lambda c, x: declared(c, default_filters=DefaultFilters(replay_period=x))
    ),
    "TopicSpec.partitions": Row(1, 2**31 - 1, lambda c, x: TopicSpec(partitions=x)),
    "TopicSpec.replication_factor": Row(1, 2**15 - 1, lambda c, x: TopicSpec(replication_factor=x)),
    "TopicSpec.delete_retention": Row(
        0.0, 9_223_372_036_854_774.0, lambda c, x: declared(c, spec=TopicSpec(delete_retention=x))
    ),
    "BareOptions.max_delay": Row(0.001, LONGEST_DELAY, lambda c, x: constructed(c, max_delay=x)),
    "BareOptions.priorities": Row(2, 10, lambda c, x: constructed(c, order="priority", priorities=x)),
    "QueueOptions.max_delay": Row(0.001, LONGEST_DELAY, lambda c, x: declared(c, max_delay=x)),
    "QueueOptions.priorities": Row(2, 10, lambda c, x: declared(c, order="priority", priorities=x)),
    "QueueOptions.max_deliveries": Row(1, 2**63 - 1, lambda c, x: declared(c, max_deliveries=x)),
    "LastValueQueue.expire.older_than": Row(0.0, LARGEST, lambda c, x: filled(c).expire(x).without_room),
    "LastValueQueue.view.metadata_interval": Row(SMALLEST, math.inf, lambda c, x: viewed(c, metadata_interval=x)),
    "LastValueQueue.view.catch_up_timeout": Row(
        -math.inf, math.inf, lambda c, x: in_time(lambda: viewed(c, catch_up_timeout=x))
    ),
    "LastValueQueue.browser.catch_up_timeout": Row(
        -math.inf, math.inf, lambda c, x: in_time(lambda: browsed(c, catch_up_timeout=x))
    ),
    "LastValueQueue.browser.metadata_interval": Row(SMALLEST, math.inf, lambda c, x: browsed(c, metadata_interval=x)),
    "LastValueQueue.browser.replay_period": Row(0.0, LARGEST, lambda c, x: browsed(c, replay_period=x)),
    "LastValueQueue.browser.refresh": Row(0.0, LARGEST, lambda c, x: browsed(c, refresh=x)),
    "LastValueQueue.browser.every": Row(SMALLEST, math.inf, lambda c, x: browsed(c, every=x)),
    "attach.catch_up_timeout": Row(-math.inf, math.inf, lambda c, x: in_time(lambda: attached(c, catch_up_timeout=x))),
    "View.page.limit": Row(1, 1_000_000, lambda c, x: paged(c, limit=x)),
    "View.page_async.limit": Row(1, 1_000_000, lambda c, x: paged(c, limit=x)),
    "View.top.n": Row(1, 1_000_000, lambda c, x: sorted_by_value(c, n=x)),
    "View.top_async.n": Row(1, 1_000_000, lambda c, x: sorted_by_value(c, n=x)),
    "View.watch.every": Row(SMALLEST, math.inf, lambda c, x: watched(c, every=x)),
    "View.on_change.every": Row(SMALLEST, math.inf, lambda c, x: told(c, every=x)),
    "ConsumerOptions.max_in_work": Row(1, 2**63 - 1, lambda c, x: consumed(c, max_in_work=x)),
    "ConsumerOptions.prefetch": Row(1, 2**63 - 1, lambda c, x: consumed(c, prefetch=x)),
    "ConsumerOptions.max_deliveries": Row(1, 2**63 - 1, lambda c, x: consumed(c, max_deliveries=x)),
    "ConsumerOptions.lock_timeout": Row(SMALLEST, math.inf, lambda c, x: consumed(c, lock_timeout=x)),
    "ConsumerOptions.commit_interval": Row(0.0, 60.0, lambda c, x: consumed(c, commit_interval=x)),
    "ConsumerOptions.revoke_grace": Row(0.0, 60.0, lambda c, x: consumed(c, revoke_grace=x)),
    "ConsumerOptions.auto_reclaim": Row(SMALLEST, math.inf, lambda c, x: reclaiming(c, auto_reclaim=x)),
    "Consumer.run.workers": Row(1, MOST_WORKERS, lambda c, x: ran(c, workers=x)),
    "Consumer.run.retry_delay": Row(0.0, LARGEST, lambda c, x: ran(c, retry_delay=x)),
    "Delivery.release.delay": Row(0.0, LARGEST, lambda c, x: held(c, lambda d: d.release(delay=x))),
    "Delivery.extend.seconds": Row(SMALLEST, math.inf, lambda c, x: held(c, lambda d: d.extend(x))),
    "Consumer.acquire_many.most": Row(1, 2**63 - 1, lambda c, x: acquired(c, lambda o: o.acquire_many(x, 10))),
    "Consumer.acquire_many_async.most": Row(
        1, 2**63 - 1, lambda c, x: acquired(c, lambda o: asyncio.run(o.acquire_many_async(x, 10)))
    ),
    "Session.acquire_many.most": Row(1, 2**63 - 1, lambda c, x: in_session(c, lambda s: s.acquire_many(x, 10))),
    "Session.acquire_many_async.most": Row(
        1, 2**63 - 1, lambda c, x: in_session(c, lambda s: asyncio.run(s.acquire_many_async(x, 10)))
    ),
    "Transaction.acquire_many.most": Row(1, 2**63 - 1, lambda c, x: in_transaction(c, x)),
    "Message.ttl": Row(0.001, LONGEST_TTL, lambda c, x: put(c, Message("1", key="a", ttl=x), ttl=Ttl())),
    "Message.not_before": Row(
        0.0, NOW + LONGEST_DELAY, lambda c, x: put(c, Message("1", key="a", not_before=x), max_delay=LONGEST_DELAY)
    ),
    "Message.priority": Row(0, 9, lambda c, x: put(c, Message("1", key="a", priority=x), order="priority")),
    "ProducerOptions.max_block": Row(-math.inf, math.inf, lambda c, x: produced(c, max_block=x)),
}
"""By option, what may be given. Whole numbers are given as ints."""


def reclaiming(cluster: MemoryCluster, **options: Any) -> object:
    with filled(cluster, spec=TopicSpec(reclaim=True)).consumer(**options) as consumer:
        delivery = consumer.acquire(10)
        assert delivery is not None
        return delivery.value


def in_session(cluster: MemoryCluster, call: Callable[[Any], Any]) -> object:
    with filled(cluster, groups=Groups()).consumer() as consumer, consumer.session() as session:
        return len(call(session))


def in_transaction(cluster: MemoryCluster, most: Any) -> object:
    queue = filled(cluster)
    with (
        queue.consumer() as consumer,
        queue.producer(transactional_id="t") as producer,
        consumer.transaction(producer) as transaction,
    ):
        return len(transaction.acquire_many(most, 10))


SAME = {
    "MessageTerms": "Message",  # each of these also sends with `put` and `put_async`
    "Producer.max_block": "ProducerOptions.max_block",
    "QueueDefinition": "QueueOptions",
    "Browser": "LastValueQueue.browser",
    "View.catch_up_timeout": "LastValueQueue.view.catch_up_timeout",
    "View.metadata_interval": "LastValueQueue.view.metadata_interval",
    "AttachedView.catch_up_timeout": "attach.catch_up_timeout",
    "AttachedView.page.limit": "View.page.limit",
    "AttachedView.page_async.limit": "View.page_async.limit",
    "AttachedView.top.n": "View.top.n",
    "AttachedView.top_async.n": "View.top_async.n",
    "AttachedView.watch.every": "View.watch.every",
    "AttachedView.on_change.every": "View.on_change.every",
    "Watch.every": "View.watch.every",
    "Consumer": "ConsumerOptions",
}
"""Classes that get their arguments from a method of the queue, and calls that take the same ones."""

RESULTS = re.compile(
    r"Stats$|Status$|^(Alteration|Change|Depth|EarlierTerms|EndOfDump|Entry|KeyPage|Shortfall|Snapshot|Tally|CommitMap|Cluster|Share)$"
)
"""Classes that the library makes, and ports that it calls; no user gives them options."""


def numeric_options() -> Iterator[str]:
    """Yield the numeric parameters of all public calls and option classes."""
    for name in lvq_kafka.__all__:
        public = getattr(lvq_kafka, name)
        if not inspect.isclass(public):
            if callable(public):
                yield from numbers_of(name, public)
        elif not issubclass(public, BaseException) and not RESULTS.search(name):
            if "__init__" in vars(public):
                yield from numbers_of(name, public.__init__)
            for method, function in inspect.getmembers(public, inspect.isroutine):
                if not method.startswith("_") and hasattr(function, "__annotations__"):
                    yield from numbers_of(f"{name}.{method}", function)


def numbers_of(name: str, function: Callable[..., Any]) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        said = str(parameter.annotation)
        if said.startswith("Unpack["):
            options = said.removeprefix("Unpack[").partition("[")[0].rstrip("]")
            own = inspect.unwrap(getattr(function, "__func__", function)).__globals__[options]
            yield from (f"{options}.{key}" for key, kind in own.__annotations__.items() if is_numeric(kind))
        elif is_numeric(said):
            yield f"{name}.{parameter.name}"


def is_numeric(annotation: object) -> bool:
    said = getattr(annotation, "__forward_arg__", annotation)
    return any(part in ("int", "float") for part in str(said).split(" | "))


def canonical(option: str) -> str:
    """Return the option in the table that this one is."""
    owner, _, name = option.rpartition(".")
    return SAME.get(option) or (f"{SAME[owner]}.{name}" if owner in SAME else option)


def test_the_table_has_every_numeric_option() -> None:
    found = {canonical(option) for option in numeric_options() if not option.endswith(".timeout")}
    assert found - {f"{owner}.partitions" for owner in ("Limits.share", "Limits.check_partitions")} == TABLE.keys()


def test_every_time_to_wait_is_tested_where_the_others_are() -> None:
    waits = {option.removesuffix(".timeout") for option in numeric_options() if option.endswith(".timeout")}
    known = {name.removesuffix("_async") for name in WAITING} | {"Transaction", "Session.transaction"}
    asked = {wait.removesuffix("_async").replace(".aclose", ".close") for wait in waits}
    asked = {re.sub(r"^(Session|Transaction)\.(acquire(_many)?)$", r"Consumer.\2", wait) for wait in asked}
    assert asked - {"Producer.flush_transaction"} == known


def is_whole(row: Row) -> bool:
    return isinstance(row.lowest, int)


def allowed(row: Row) -> list[float]:
    none = [-1, -(2**63), -(10**400)] if row.negative_is_none else []
    return [row.lowest, row.highest, *none, *([-0.0] if row.lowest <= 0 and not is_whole(row) else [])]


def refused(row: Row) -> list[Any]:
    bad: list[Any] = [math.nan, True, False, "5", b"5"]
    if is_whole(row):
        bad += [row.lowest - 1, row.highest + 1, float(row.lowest), math.inf, -0.0, *HUGE]
        return [one for one in bad if not (row.negative_is_none and isinstance(one, int) and one < 0)]
    if row.lowest > -math.inf:
        bad += [math.nextafter(row.lowest, -math.inf), -math.inf, HUGE[1]]
    if row.highest < math.inf:
        bad += [math.inf, HUGE[0], HUGE[2]]
    if row.highest < LARGEST:
        bad += [math.nextafter(row.highest, math.inf)]
    return bad


CASES = [(option, value) for option, row in TABLE.items() for value in allowed(row)]


@pytest.mark.parametrize(("option", "value"), CASES, ids=[f"{option}={str(value)[:20]}" for option, value in CASES])
def test_an_option_works_at_its_bounds_and_twice_changes_nothing(
    option: str, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = cluster_of()
    use = TABLE[option].use
    assert use(cluster, value) == use(cluster, value)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("option", TABLE)
def test_a_value_out_of_range_or_not_a_number_is_refused_by_name(option: str) -> None:
    row, name = TABLE[option], option.rpartition(".")[2]
    for bad in refused(row):
        with pytest.raises(ConfigError) as caught:
            row.use(cluster_of(), bad)
        assert name in caught.value.options, bad
