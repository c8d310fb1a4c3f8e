"""Benchmarks against a bare client loop, other tables of latest values, and other brokers' queues, in one run.

Contestants take turns, each in a fresh process, and must end up with the right value for every key. Absolute times
depend on the machine and its load, so compare ratios within a round. Nothing asserts times.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.kafka import KafkaCluster
from tests.benchmarks import (
    acks,
    bootstrap,
    consume,
    dump,
    dump_report,
    groups,
    latency,
    limits,
    prefetch,
    produce,
    rebalance,
    report,
    scale,
    serve,
    shared_store,
    shell,
    spark,
    spark_report,
    starting,
    store,
)
from tests.benchmarks.peers import contest
from tests.benchmarks.topics import Topic, load
from tests.benchmarks.workload import Workload

PARTS = (
    "shell",
    "broker",
    "bootstrap",
    "dump",
    "produce",
    "latency",
    "consume",
    "prefetch",
    "groups",
    "limits",
    "acks",
    "rebalance",
    "store",
    "serve",
    "scale",
    "spark",
)
BY_DEFAULT = PARTS[:-2]  # Spark and millions of keys each take longer than all other parts together


@dataclass(frozen=True)
class Sizes:
    """The amount of work."""

    records: int = 1_000_000
    messages: int = 200_000
    keys: int = 20_000
    puts: int = 2_000
    acks: int = 1_000
    session: float = 6.0  # seconds until a group notices a dead member, in both protocols
    heartbeat: float = 5.0  # seconds between heartbeats in the new protocol; a broker's default, not ours
    spark_records: int = 4_000_000
    dump_keys: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    serving: serve.Serving = field(default_factory=serve.Serving)
    scale: scale.Scale = field(default_factory=scale.Scale)


QUICK = Sizes(
    records=20_000,
    messages=2_000,
    keys=200,
    puts=50,
    acks=25,
    session=2.0,
    heartbeat=0.5,
    spark_records=10_000,
    dump_keys=(1_000, 4_000),
    serving=serve.Serving(
        keys=1_000, rate=200, seconds=1.0, few=5, broad=10, many=20, many_changes=20, many_seconds=3.0
    ),
    scale=scale.Scale(keys=1_000, view_keys=1_000, partitions=20, queues=2, large=2, rest=0.1),
)


def run(
    servers: str, sizes: Sizes, *, rounds: int, parts: Collection[str], peer_rounds: int, peer_work: Workload
) -> dict[str, Any]:
    """Measure the requested parts, and print each result as it comes."""
    found: dict[str, Any] = {"before": report.machine()}
    load = found["before"]["load_average"][0]
    print(f"{sizes.records:,} records of 256 bytes to read, {rounds} rounds, load average {load}\n")
    targets: list[report.Target] = []
    if "shell" in parts:
        found["shell"] = list(shell.run(5 * rounds))
        print(report.shell_table(found["shell"]), "\n", flush=True)
    if "broker" in parts:
        found["broker"] = list(starting.run(rounds))
        print(report.broker_table(found["broker"]), "\n", flush=True)
    if "bootstrap" in parts:
        contestants = [one for one in bootstrap.CONTESTANTS if peer_rounds or one != bootstrap.JVM]
        with loaded(servers, sizes.records) as (to_read, empty):
            found["bootstrap"] = list(bootstrap.run(servers, to_read, empty, rounds, contestants))
        print(report.reading_table(found["bootstrap"]), "\n", flush=True)
    if "dump" in parts:
        found["dump"] = list(dump.run(servers, rounds, sizes.dump_keys))
        print(dump_report.dump_table(found["dump"]), "\n", flush=True)
    if "produce" in parts:
        found["produce"] = produce.run(servers, 4 * rounds, sizes.messages // 4)
        print(report.produce_table(found["produce"]), "\n", flush=True)
    if "latency" in parts:
        found["latency"] = list(latency.run(servers, rounds, sizes.puts))
        print(report.latency_table(found["latency"]), "\n", flush=True)
    targets += report.shell_targets(found.get("shell", ()))
    targets += report.broker_targets(found.get("broker", ()))
    targets += dump_report.dump_targets(found.get("dump", ()))
    targets += report.targets(found.get("bootstrap", ()), found.get("produce", ()), found.get("latency", ()))
    if "consume" in parts:
        with peers_if_possible(peer_rounds) as peers:
            measuring = consume.run(
                servers,
                rounds=rounds,
                work=Workload(sizes.messages, sizes.keys),
                peers=peers,
                peer_rounds=peer_rounds,
                peer_work=peer_work,
            )
            for measured in measuring:
                if peers:  # slow, so show progress
                    print(report.progress(measured), file=sys.stderr, flush=True)
                found.setdefault("consume", []).append(measured)
        print(report.consume_table(found["consume"]), "\n", flush=True)
        targets += report.consume_targets(found["consume"])
    if "prefetch" in parts:
        found["prefetch"] = list(prefetch.run(servers, rounds, sizes.messages // 4))
        print(report.prefetch_table(found["prefetch"]), "\n", flush=True)
    if "groups" in parts:
        found["groups"] = list(groups.run(servers, rounds, sizes.messages // 4))
        print(report.groups_table(found["groups"]), "\n", flush=True)
        targets += report.groups_targets(found["groups"])
    if "limits" in parts:
        found["limits"] = list(limits.run(servers, rounds, sizes.messages // 4))
        print(report.limits_table(found["limits"]), "\n", flush=True)
    if "acks" in parts:
        found["acks"] = list(acks.run(servers, rounds=rounds, acks=sizes.acks, messages=sizes.messages))
        print(report.acks_table(found["acks"]), "\n")
        print(report.text_table(found["acks"]), "\n", flush=True)
    if "rebalance" in parts:
        found["rebalance"] = list(rebalance.run(servers, rounds, session=sizes.session))
        print(report.rebalance_table(found["rebalance"]), "\n", flush=True)
    if "store" in parts:
        found["store"] = list(store.run(servers, rounds, sizes.records, peers=peer_rounds > 0))
        print(store.store_table(found["store"]), "\n", flush=True)
        targets += store.store_targets(found["store"])
        found["shared store"] = shared_store.run(servers, sizes.records)
        print(shared_store.shared_table(found["shared store"]), "\n", flush=True)
    if "serve" in parts:
        found["serve"] = list(serve.run(servers, rounds, sizes.serving, peers=peer_rounds > 0))
        print(serve.serve_table(found["serve"]), "\n", flush=True)
        targets += serve.serve_targets(found["serve"])
    if "scale" in parts:
        for measured in scale.run(servers, sizes.scale):
            print(scale.progress(measured), file=sys.stderr, flush=True)
            found.setdefault("scale", []).append(measured)
        print(scale.scale_table(found["scale"]), "\n", flush=True)
        targets += scale.scale_targets(found["scale"])
    if "spark" in parts:
        with spark.loaded(servers, sizes.spark_records) as topics:
            for measured in spark.run(servers, topics, rounds):
                print(spark_report.progress(measured), file=sys.stderr, flush=True)
                found.setdefault("spark", []).append(measured)
        print(spark_report.spark_table(found["spark"]), "\n")
        print(spark_report.growth_table(found["spark"]), "\n", flush=True)
        targets += spark_report.spark_targets(found["spark"])
    if targets:
        print(report.target_table(targets))
    found["targets"] = [asdict(target) for target in targets]
    found["after"] = report.machine()
    print(f"\nload average {found['after']['load_average'][0]}")
    return found


@contextlib.contextmanager
def loaded(servers: str, records: int) -> Iterator[tuple[list[Topic], Topic]]:
    """Yield the topics to read, and an empty one."""
    with contextlib.closing(KafkaCluster(servers)) as cluster, contextlib.ExitStack() as at_the_end:
        topics = [
            load(cluster, "unique", records, records),
            load(cluster, "overwrites", records, records // 10),
            load(cluster, "key-header", records, records, key_header="ticker"),
        ]
        empty = load(cluster, "empty", 0, 1)
        for topic in (*topics, empty):
            at_the_end.callback(cluster.topics.delete, topic.name)
        yield topics, empty


@contextlib.contextmanager
def peers_if_possible(rounds: int) -> Iterator[dict[str, contest.Peer]]:
    """Yield the other brokers, running, if they are wanted and their client can be built here."""
    if not rounds:
        yield {}
        return
    try:
        contest.install_client()
    except subprocess.CalledProcessError as error:
        print(f"The other brokers are left out, because their client cannot be installed: {error}\n")
        yield {}
        return
    with contest.peers() as peers:
        yield peers


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"what to measure: {', '.join(PARTS)}; default all but scale and spark"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--peer-rounds",
        type=int,
        help="rounds with other brokers; 0 for none, and no GlobalKTable; default as the others",
    )
    parser.add_argument("--peer-messages", type=int, help="how many messages they get; default as many as the rest")
    parser.add_argument("--quick", action="store_true", help="small: shows that everything runs, and little else")
    parser.add_argument("--spark-records", type=int, help="how many records Spark reads")
    parser.add_argument("--output", type=Path, help="write all results to this file, as JSON")
    parser.add_argument("--bootstrap-servers", help="a broker to use; without it an embedded one is started")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"there is no part {unknown.pop()}")
    # These topics' settings prevent compaction on purpose, and `declare` warns about them.
    logging.getLogger("lvq_kafka.topics").setLevel(logging.ERROR)
    sizes = QUICK if options.quick else Sizes()
    if options.spark_records:
        sizes = replace(sizes, spark_records=options.spark_records)
    peer_messages = options.peer_messages or sizes.messages
    peer_rounds = (0 if options.quick else options.rounds) if options.peer_rounds is None else options.peer_rounds
    with contextlib.ExitStack() as stack:
        servers = options.bootstrap_servers
        if servers is None:
            timing = {
                "group.consumer.session.timeout.ms": str(round(sizes.session * 1000)),
                "group.consumer.heartbeat.interval.ms": str(round(sizes.heartbeat * 1000)),
            }
            servers = stack.enter_context(EmbeddedBroker(heap="1g", properties=timing)).bootstrap_servers
        found = run(
            servers,
            sizes,
            rounds=options.rounds,
            parts=options.parts or BY_DEFAULT,
            peer_rounds=peer_rounds,
            peer_work=Workload(peer_messages, peer_messages * sizes.keys // sizes.messages),
        )
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
