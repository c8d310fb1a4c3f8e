"""A typical user program with the types that a checker must infer. `make lint` runs two type checkers on it."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_type

from lvq_kafka import (
    JSON,
    TEXT,
    AsyncDeliveries,
    AttachedView,
    Browser,
    Codec,
    Consumer,
    Deleted,
    Delivery,
    EndOfDump,
    Entry,
    LastValueQueue,
    Message,
    Producer,
    Receipt,
    Settlement,
    Snapshot,
    View,
    attach,
    connect,
)
from lvq_kafka.testing import MemoryCluster


@dataclass(frozen=True)
class Price:
    """A value type of the program."""

    ticker: str
    amount: float


def price_codec() -> Codec[Price]:
    """Return a codec of the program."""
    return Codec(
        lambda price: f"{price.ticker}={price.amount}".encode(),
        lambda raw: Price(raw.decode().split("=")[0], float(raw.decode().split("=")[1])),
        name="price",
    )


def queues_hold_what_their_codec_decodes() -> None:
    """Create and open queues. Without a codec, values are bytes."""
    cluster = MemoryCluster()
    assert_type(LastValueQueue("prices", key_header=None, cluster=cluster), LastValueQueue[bytes])
    assert_type(LastValueQueue("prices", key_header=None, value=TEXT), LastValueQueue[str])
    assert_type(LastValueQueue.declare("prices", key_header="ticker"), LastValueQueue[bytes])
    assert_type(LastValueQueue.declare("prices", key_header="ticker", value=TEXT), LastValueQueue[str])
    assert_type(LastValueQueue.declare("prices", key_header="ticker", value=price_codec()), LastValueQueue[Price])
    assert_type(LastValueQueue.declare("prices", key_header="ticker", value=Price), LastValueQueue[Price])
    assert_type(LastValueQueue.open("prices", value=Price), LastValueQueue[Price])
    assert_type(LastValueQueue("prices", key_header=None, value=Price).view(), View[Price])
    assert_type(attach("/var/lib/prices", value=Price), AttachedView[Price])
    assert_type(LastValueQueue.open("prices"), LastValueQueue[bytes])
    assert_type(LastValueQueue.open("prices", value=TEXT, cluster=connect("localhost:9092")), LastValueQueue[str])
    with LastValueQueue.open("prices", value=JSON, config={"client.id": "board"}) as queue:
        assert_type(queue, LastValueQueue[Any])


def produce(queue: LastValueQueue[Price]) -> None:
    """Send values of the queue's type."""
    with queue.producer() as producer:
        assert_type(producer, Producer[Price])
        assert_type(producer.put("IBM", Price("IBM", 119.0)), Receipt)
        producer.send(Message(Price("IBM", 119.5), headers={"ticker": "IBM"}))
        producer.put("IBM", Price("IBM", 120.0), not_before=datetime.now(UTC))
        producer.put("IBM", Price("IBM", 120.0), not_before="tomorrow")  # type: ignore[arg-type]
        producer.put("IBM", Price("IBM", 120.0), group="NYSE")
        producer.put("IBM", Price("IBM", 120.0), group=5)  # type: ignore[arg-type]
        producer.delete("IBM", group=b"NYSE")
        producer.put("IBM", Price("IBM", 120.0), priority=9)
        producer.put("IBM", Price("IBM", 120.0), priority="high")  # type: ignore[arg-type]
        producer.send(Message(Price("IBM", 120.0), key="IBM", sort="a"))
        producer.delete("IBM").result(10)
        producer.put("IBM", b"119")  # type: ignore[arg-type]


def read(queue: LastValueQueue[Price]) -> Iterator[str]:
    """Read values from a view, which is a mapping, and from a browser, which has three kinds of events."""
    with queue.view() as view:
        assert_type(view, View[Price])
        assert_type(view["IBM"], Price)
        assert_type(view.get("IBM"), Price | None)
        assert_type(view.snapshot(), Snapshot[Price])
    with queue.browser() as browser:
        assert_type(browser, Browser[Price])
        for event in browser:
            match event:
                case Entry():
                    assert_type(event.value, Price)
                    yield f"{event.key} {event.value.amount}"
                case Deleted():
                    yield f"{event.key} is gone"
                case EndOfDump():
                    return


def consume(queue: LastValueQueue[Price]) -> None:
    """Consume values of the queue's type in a loop and in a handler."""

    def handle(delivery: Delivery[Price]) -> None:
        delivery.reject("no such ticker")

    with queue.consumer(max_deliveries=5) as consumer:
        assert_type(consumer, Consumer[Price])
        for delivery in consumer:
            assert_type(delivery.value, Price)
            assert_type(delivery.ack(), Settlement)
        consumer.run(handle, workers=2)


async def serve(cluster: MemoryCluster) -> AsyncIterator[Price]:
    """Check the same types in asyncio."""
    queue = await LastValueQueue.open_async("prices", value=price_codec(), cluster=cluster)
    assert_type(queue, LastValueQueue[Price])
    async with queue.view() as view:
        yield view["IBM"]
    declared = await LastValueQueue.declare_async("names", key_header=None, value=TEXT, cluster=cluster)
    assert_type(declared, LastValueQueue[str])
    async with declared.consumer() as consumer:
        async for delivery in consumer:
            assert_type(delivery.value, str)
            await delivery.ack()
        async with aclosing(aiter(consumer)) as deliveries, consumer.session() as session:
            assert_type(deliveries, AsyncDeliveries[str])
            assert_type(await anext(deliveries), Delivery[str])
            in_session: AsyncIterator[Delivery[str]] = aiter(session)
            assert_type(await anext(in_session), Delivery[str])
