"""A process that consumes, transforms and produces in transactions, and aborts some of them."""

from __future__ import annotations

import json
import time
from contextlib import suppress

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.transaction import Transaction
from lvq_kafka.errors import DeliveryFailed, LockLost, LVQError, OutcomeUnknown, TransportError
from lvq_kafka.producing.producer import Producer
from tests.rules import rules
from tests.torture.journal import Kind
from tests.torture.settling import is_poison, is_sick, reason
from tests.torture.worker import Worker, run

__all__ = ["Transforming"]

_COMMIT = 60.0  # seconds


class _ChangedMindError(Exception):
    """A random failure of the work."""


class Transforming:
    """A consumer and a transactional producer at work."""

    def __init__(self, worker: Worker, consumer: Consumer[str], producer: Producer[str]) -> None:
        self._worker = worker
        self._consumer = consumer
        self._producer = producer

    def go_on(self) -> None:
        """Run transactions until SIGTERM arrives, or a new consumer or producer is needed."""
        while not self._worker.leaving.is_set():
            self._transact()

    def _transact(self) -> None:
        write, numbers, acked, rejected = self._worker.journal.write, list[int](), list[int](), list[int]()
        try:
            with self._consumer.transaction(self._producer, timeout=_COMMIT) as transaction:
                asked = time.monotonic()
                deliveries = transaction.acquire_many(self._worker.random.choice((1, 10, 40)), timeout=0.1)
                numbers = self._worker.note_taken(deliveries, asked)
                try:
                    acked, rejected = self._work(transaction, numbers, deliveries)
                except BaseException:
                    write(Kind.RELEASING, n=numbers)
                    raise
                write(Kind.RELEASING, n=sorted(set(numbers).difference(acked, rejected)))
                write(Kind.REJECTING, n=rejected)
                write(Kind.ACKING, n=acked)
        except _ChangedMindError:
            write(Kind.ABORTED, n=numbers)
        except OutcomeUnknown:
            write(Kind.UNKNOWN, n=numbers)
            raise
        except (LockLost, DeliveryFailed, TransportError) as error:
            write(Kind.ABORTED, n=numbers)
            write(Kind.SAID, text=f"transaction aborted: {error!r}")
            if not isinstance(error, LockLost | DeliveryFailed):
                raise
        else:
            write(Kind.DURABLE, n=acked + rejected)

    def _work(
        self, transaction: Transaction[str], numbers: list[int], deliveries: list[Delivery[str]]
    ) -> tuple[list[int], list[int]]:
        """Return the numbers of the acked and the rejected messages."""
        worker, random = self._worker, self._worker.random
        acked, rejected = list[int](), list[int]()
        done: list[Delivery[str]] | None = [] if random.random() < 0.5 else None  # for one call of ack_many
        for number, delivery in zip(numbers, deliveries):
            chance = random.random()
            if chance < 0.03 or is_sick(delivery) or (is_poison(delivery) and worker.gives_up):
                if chance < 0.5:
                    delivery.release(delay=random.choice((0.0, 0.5, 3.0)))
                continue  # otherwise it is neither acked nor released, and comes again
            if worker.buries and (chance < 0.05 or is_poison(delivery)):
                delivery.reject(reason(worker, worker.signature(number)))
                rejected.append(number)
                continue
            made = [self._worker.orders.name, number, delivery.position.partition, delivery.position.offset]
            self._producer.put(delivery.key, json.dumps([*made, delivery.value]))
            if done is None:
                delivery.ack()
            else:
                done.append(delivery)
            acked.append(number)
        if done is not None:
            transaction.ack_many(done)
        worker.leaving.wait(random.choice((0.0, 0.02, 0.3)))
        if deliveries and random.random() < 0.05:
            raise _ChangedMindError
        return acked, rejected


def transform(worker: Worker) -> None:
    orders = worker.orders
    producer = Producer(
        worker.cluster,
        rules(topic=orders.output, key_header=None),
        value=TEXT,
        transactional_id=orders.transactional_id,
    )
    try:
        with worker.consumer() as consumer:
            Transforming(worker, consumer, producer).go_on()
    finally:
        worker.journal.write(Kind.CLOSED)
        with suppress(LVQError):  # its errors were already raised by the transactions
            producer.close(10)


if __name__ == "__main__":
    run(transform)
