"""Run the tour."""

from __future__ import annotations

import logging
import signal
import sys
import time
from contextlib import ExitStack

from rich.console import Console
from rich.table import Table

from lvq_kafka import TEXT, Deleted, Entry, LastValueQueue, LVQError, Message, connect
from lvq_kafka.cli.signals import ended_by, heed_signals
from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.topic_settings import TopicSpec, reason_for, topic_settings
from lvq_kafka.demo.price_board import LateBrowser, play
from lvq_kafka.demo.sharing import share
from lvq_kafka.demo.spark_process import SparkProcess
from lvq_kafka.demo.stage import Stage
from lvq_kafka.demo.ticks import Tick, load_ticks, monthly_closes
from lvq_kafka.errors import QueueError
from lvq_kafka.kafka.connecting import connect_within
from lvq_kafka.reading.view import View
from lvq_kafka.testing.brokers import ProvidedBroker, provide_broker

BOARD_SECONDS = 8.0
INTERRUPTED = 130
SESSION_TIMEOUT = 60.0  # seconds; more than any group member's default session timeout


def main() -> int:
    """Run the tour; return the exit status."""
    logging.getLogger("lvq_kafka").addHandler(logging.NullHandler())  # the tour itself reports what happens
    # A terminal has its own width; a log gets one that does not cut the tables.
    console = Console(width=None if sys.stdout.isatty() else 110)
    stage = Stage(console)
    begun = time.monotonic()
    broker: ProvidedBroker | None = None
    try:
        with SparkProcess() as spark, ExitStack() as stack:  # starts during the other scenes; it takes six seconds
            with console.status("starting a Kafka broker"):
                broker = stack.enter_context(provide_broker())
            console.print(f"[bold]lvq-kafka[/bold] on a real Kafka ({broker.kind}) at {broker.bootstrap_servers}")
            console.file.flush()
            _tour(stage, broker, spark)
        with stage.scene("Cleaned up"):
            if broker.kind == "given":
                stage.say("the cluster is yours and stays up; the tour has deleted its queues and topics")
            else:
                stage.check(not _answers(broker), "the broker and its data are gone")
    except LVQError as error:
        console.print(f"[red bold]{type(error).__name__}: {error}[/red bold]")
        return 1
    except (Exception, KeyboardInterrupt) as error:  # the client may mask an interruption
        if not isinstance(error, KeyboardInterrupt) and ended_by() != signal.SIGINT:
            raise
        given = broker is not None and broker.kind == "given"
        console.print(f"stopped; {'its queues and topics' if given else 'broker and data'} are gone")
        return INTERRUPTED
    console.print(f"\n[dim]{time.monotonic() - begun:.0f} s in total[/dim]")
    return stage.finish()


def _tour(stage: Stage, broker: ProvidedBroker, spark: SparkProcess) -> None:
    ticks = load_ticks()
    prefix = f"demo-{time.time_ns():x}-" if broker.kind == "given" else ""  # leave a cluster's own queues alone
    with ExitStack() as opened:  # on any failure, nothing of the tour stays on the cluster
        cluster = connect_within(opened, broker.bootstrap_servers)
        queue = _declare(stage, f"{prefix}prices", cluster)
        _drop_at_the_end(opened, broker, queue)
        view, late = _tick(stage, opened, queue, ticks)
        _share(stage, opened, broker, f"{prefix}closes", cluster, ticks)
        _delete(stage, queue, view, late)
        _snapshot(stage, broker, queue, view, spark)


def _drop_at_the_end(opened: ExitStack, broker: ProvidedBroker, queue: LastValueQueue[str]) -> None:
    if broker.kind == "given":  # any other broker is removed with all its data
        opened.callback(_drop, queue)


def _drop(queue: LastValueQueue[str]) -> None:
    """Delete the queue and its topic.

    A killed worker counts as a consumer until its session times out.
    """
    patience = time.monotonic() + SESSION_TIMEOUT
    while True:
        try:
            return queue.drop(delete_topic=True)
        except QueueError:
            if time.monotonic() > patience:
                raise
            time.sleep(0.5)


def _declare(stage: Stage, name: str, cluster: Cluster) -> LastValueQueue[str]:
    with stage.scene("Declare a queue: keyed by the message header [italic]ticker[/italic]"):
        spec = TopicSpec()
        queue = LastValueQueue.declare(name, key_header="ticker", spec=spec, cluster=cluster, value=TEXT)
        table = Table(header_style="bold")
        for column in ("topic setting", "value", "because"):
            table.add_column(column)
        for setting, value in topic_settings(spec).items():
            table.add_row(setting, value, reason_for(setting))
        stage.show(table)
        declared = queue.declaration
        stage.check(declared is not None and declared.created_queue, "the queue is declared")
    return queue


def _tick(
    stage: Stage, opened: ExitStack, queue: LastValueQueue[str], ticks: list[Tick]
) -> tuple[View[str], LateBrowser]:
    half = len(ticks) // 2
    producer = opened.enter_context(queue.producer())
    with stage.scene("Produce: ticks at speed"):
        begun = time.monotonic()
        for tick in ticks[:half]:
            producer.send(Message(tick.close, headers={"ticker": tick.ticker, "date": tick.date}))
        producer.flush()
        took = time.monotonic() - begun
        stage.say(f"{half} ticks acknowledged in {took:.2f} s ({half / took:,.0f} a second)")
        with queue.browser(follow=False) as browser:
            held = {event.key: event.value for event in browser if isinstance(event, Entry)}
        newest = {tick.ticker: tick.close for tick in ticks[:half]}
        stage.check(held == newest, f"the queue holds {len(held)} messages: the newest of each ticker so far")
    with stage.scene("A board of current prices, and a browser that joins late"):
        view, late = play(stage, opened, queue, producer, ticks[half:], BOARD_SECONDS)
        last = {tick.ticker: tick.close for tick in ticks}
        stage.check(dict(view.items()) == last, "the view holds the last close of every stock")
        known = late.has_seen(last, timeout=30.0)
        stage.check(
            late.saw_end_of_dump and late.dump.keys() >= held.keys(),
            f"the late browser got a dump of {len(late.dump)} values, and the end of the dump",
        )
        stage.check(known, f"then {late.updates} conflated updates, and with the last one it is up to date")
    return view, late


def _share(
    stage: Stage, opened: ExitStack, broker: ProvidedBroker, name: str, cluster: Cluster, ticks: list[Tick]
) -> None:
    with stage.scene("Consume: two processes share a queue, one is killed"):
        queue = LastValueQueue.declare(
            name, key_header="month", spec=TopicSpec(partitions=4), cluster=cluster, value=TEXT
        )
        _drop_at_the_end(opened, broker, queue)
        share(stage, queue, broker.bootstrap_servers, monthly_closes(ticks))


def _delete(stage: Stage, queue: LastValueQueue[str], view: View[str], late: LateBrowser) -> None:
    with stage.scene("Delete a key"):
        watch = view.watch()
        with queue.producer() as producer:
            gone = producer.delete("FB").result(10.0)
        view.wait_for(gone)
        stage.check("FB" not in view and watch.poll(5.0) == Deleted("FB"), f"FB is gone from the view, as of {gone}")
        stage.check(late.has_seen(dict(view.items()), timeout=10.0), "and from the browser")
        watch.close()


def _snapshot(
    stage: Stage, broker: ProvidedBroker, queue: LastValueQueue[str], view: View[str], spark: SparkProcess
) -> None:
    with stage.scene("The same queue in Spark"):
        cut = view.snapshot()
        rows = spark.rows(broker.bootstrap_servers, queue.name, cut.offsets)
        table = Table(header_style="bold")
        for column in ("key", "value", "partition", "offset", "timestamp"):
            table.add_column(column)
        for row in rows:
            table.add_row(*map(str, row.values()))
        stage.show(table)
        mine = {(entry.key, entry.value, entry.position.offset) for entry in cut.entries()}
        theirs = {(row["key"], row["value"], row["offset"]) for row in rows}
        same = mine == theirs and len(rows) == len(cut)
        stage.check(same, f"row for row the same as the view at offsets {cut.offsets}")


def _answers(broker: ProvidedBroker) -> bool:
    cluster = connect(broker.bootstrap_servers)
    try:
        cluster.broker_count(timeout=1.0)
    except LVQError:
        return False
    finally:
        cluster.close()
    return True


if __name__ == "__main__":
    heed_signals()
    sys.exit(main())
