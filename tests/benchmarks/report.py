"""The report: medians, ratios within the same round, and targets."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from tests.benchmarks.consume import COMPACTED
from tests.benchmarks.peers.brokers import PEERS
from tests.benchmarks.rebalance import CHANGES

__all__ = [
    "Target",
    "acks_table",
    "broker_table",
    "broker_targets",
    "consume_table",
    "consume_targets",
    "groups_table",
    "groups_targets",
    "latency_table",
    "machine",
    "produce_table",
    "progress",
    "reading_table",
    "rebalance_table",
    "table",
    "target_table",
    "targets",
    "text_table",
]

Result = dict[str, Any]
Measure = Callable[[Result], float]


@dataclass(frozen=True)
class Target:
    """A target, and the measured figure."""

    what: str
    bar: str
    measured: float | None
    met: bool

    @classmethod
    def at_least(cls, what: str, bar: float, measured: float) -> Target:
        return cls(what, f"at least {bar:g}", round(measured, 3), measured >= bar)

    @classmethod
    def at_most(cls, what: str, bar: float, measured: float) -> Target:
        return cls(what, f"at most {bar:g}", round(measured, 3), measured <= bar)


def machine() -> Result:
    """Return the machine and time: figures do not compare across machines, and hardly across loads."""
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpus": os.cpu_count(),
        "load_average": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
        **{package: version(package) for package in ("confluent-kafka", "ktables")},
    }


def shell_targets(results: Sequence[Result]) -> list[Target]:
    """Return the targets for the start of ``lvq``; the least time is that of an idle machine."""
    least = {what: min(map(_seconds, rows)) for what, rows in _by_what(results).items() if what.startswith("lvq")}
    return [Target.at_most(f"{what}: seconds of processor time", 0.25, seconds) for what, seconds in least.items()]


def _by_what(results: Sequence[Result]) -> dict[str, list[Result]]:
    named = dict.fromkeys(one["what"] for one in results)
    return {what: [one for one in results if one["what"] == what] for what in named}


def broker_targets(results: Sequence[Result]) -> list[Target]:
    """Return the target for the start of a broker."""
    if not results:
        return []
    return [Target.at_most("lvq broker start, warm: seconds", 6.0, _median(results, _seconds))]


def targets(reading: Sequence[Result], producing: Iterable[Result], latency: Sequence[Result]) -> list[Target]:
    """Return each target with its figure; a ratio is the median of the ratios within each round."""
    found = []
    for topic in _distinct(reading, "topic"):
        of_topic = [result for result in reading if result["topic"] == topic]
        for other, bar in (("bare loop", 1.0), ("ktables", 3.0), ("ktables, read_committed", 3.0)):
            if not _of(of_topic, other):
                continue
            speed = _ratio(of_topic, other, "view", _wall)
            found.append(Target.at_least(f"bootstrap, {topic}: speed in times {other}", bar, speed))
        memory = _ratio(of_topic, "view", "bare loop", lambda result: result["bytes_per_key"])
        found.append(Target.at_most(f"memory per key, {topic}: in times bare loop", 1.3, memory))
    found += [
        Target.at_least(f"{what}: bare loop's processor time in times this", bar, float(row["share_of_bare_by_cpu"]))
        for row in producing
        for what, bar in (("Producer.put", 0.85), ("Producer.send", 0.75))
        if row["what"] == what
    ]
    for what, contestant, bar in (
        ("propagation", "view", 1.5),
        ("propagation", "view.watch", 1.5),
        ("idle barrier", "view", 5.0),
    ):
        rows = [result for result in latency if (result["what"], result["contestant"]) == (what, contestant)]
        if rows:
            p50 = _median(rows, lambda row: row["p50_ms"])
            found.append(Target.at_most(f"{what}, {contestant}: p50 in ms", bar, p50))
    return found


def consume_targets(results: Sequence[Result]) -> list[Target]:
    """Return the targets of consuming.

    They compare messages per second with the bare loop, and deliveries per second with brokers that conflate a backlog.
    A compacted backlog compares with the backlog that those brokers have conflated.
    """
    found = []
    for mode in _distinct(results, "mode"):
        of_mode = [result for result in results if result["mode"] == mode]
        theirs = "backlog" if mode == COMPACTED else mode
        others = [result for result in results if result["mode"] == theirs and result["contestant"] in PEERS]
        for contestant in sorted(name for name in _distinct(of_mode, "contestant") if name.startswith("consumer")):
            what = f"{contestant}, {mode}"
            speed = _ratio(of_mode, contestant, "bare loop", _messages)
            found.append(Target.at_least(f"{what}: speed in times bare loop", 0.5, speed))
            if others:
                rate = _messages if mode == "live" else _deliveries
                fastest = max(_distinct(others, "contestant"), key=lambda name: _median(_of(others, name), rate))
                speed = _ratio([*_of(of_mode, contestant), *others], contestant, fastest, rate)
                rival = fastest if theirs == mode else f"{fastest}, {theirs}"
                found.append(Target.at_least(f"{what}: speed in times {rival}", 5.0, speed))
    return found


def shell_table(results: Sequence[Result]) -> str:
    """Return a table of the processor time that ``lvq`` takes to start, beside that of others."""
    rows = []
    for what, measured in _by_what(results).items():
        rows.append([what, *(f"{pick(map(_seconds, measured)):.3f}" for pick in (min, statistics.median))])
    return table(["seconds of processor time until", "least", "median"], rows)


def broker_table(results: Sequence[Result]) -> str:
    """Return a table of the times from the command to a broker that serves clients."""
    seconds = [f"{measure(map(_seconds, results)):.2f}" for measure in (statistics.median, min, max)]
    return table(["lvq broker start, warm", "seconds", "least", "most"], [["", *seconds]])


def rebalance_table(results: Sequence[Result]) -> str:
    """Return a table of joins, leaves and kills: medians, and the worst."""
    head = ["a member", "group protocol", "seconds until all have moved", "most", "others stood still for", "most"]
    rows = []
    for change in CHANGES:
        for protocol in _distinct(results, "protocol")[::-1]:
            mine = [row for row in results if (row["change"], row["protocol"]) == (change, protocol)]
            figures = []
            for name in ("seconds", "stood_still"):
                values = [float(row[name]) for row in mine]
                figures += [f"{statistics.median(values):.2f}", f"{max(values):.2f}"]
            rows.append([change, protocol, *figures])
    return table(head, rows)


def reading_table(results: Sequence[Result]) -> str:
    """Return a table of bootstraps: medians, and time and CPU time relative to the view's in the same round."""
    head = ["topic", "contestant", "seconds", "CPU s", "reader s", "peak MB", "bytes/key", "s / view's", "CPU / view's"]
    rows = []
    for topic in _distinct(results, "topic"):
        of_topic = [result for result in results if result["topic"] == topic]
        for contestant in _distinct(of_topic, "contestant"):
            mine = [result for result in of_topic if result["contestant"] == contestant]
            rows.append(
                [
                    topic,
                    contestant,
                    f"{_median(mine, _wall):.2f}",
                    f"{_median(mine, _cpu):.2f}",
                    f"{_median(mine, lambda result: result['reading_thread']):.2f}",
                    f"{_median(mine, lambda result: result['peak']) / 1e6:.0f}",
                    f"{_median(mine, lambda result: result['bytes_per_key']):.0f}",
                    f"{_ratio(of_topic, contestant, 'view', _wall):.2f}",
                    f"{_ratio(of_topic, contestant, 'view', _cpu):.2f}",
                ]
            )
    return table(head, rows)


def produce_table(rows: Iterable[Result]) -> str:
    """Return a table of costs per message, relative to a bare loop's, and of the time to a receipt."""
    head = ["producing", "per second", "CPU us", "share of bare loop", "by CPU", "p50 ms", "p99 ms"]
    columns = ["what", "per_second", "cpu_us", "share_of_bare_by_speed", "share_of_bare_by_cpu", "p50_ms", "p99_ms"]
    return table(head, [[str(row.get(column, "")) for column in columns] for row in rows])


def latency_table(results: Sequence[Result]) -> str:
    """Return a table of propagation and idle barrier: medians over the rounds of their quantiles."""
    rows = []
    for what in _distinct(results, "what"):
        of_kind = [result for result in results if result["what"] == what]
        for contestant in _distinct(of_kind, "contestant"):
            mine = [result for result in of_kind if result["contestant"] == contestant]
            figures = [f"{_median(mine, lambda row, name=name: row[name]):.2f}" for name in ("p50_ms", "p99_ms")]  # type: ignore[misc]
            rows.append([what, contestant, *figures])
    return table(["latency", "contestant", "p50 ms", "p99 ms"], rows)


def progress(result: Result) -> str:
    """Return a line about one result, while others are still to come."""
    what = f"{result['mode']}, {result['contestant']}"
    return f"  round {result['round'] + 1}, {what}: {result['deliveries']} deliveries in {result['wall']:.2f} s"


def consume_table(results: Sequence[Result]) -> str:
    """Return a table of consuming with an ack for each message: medians.

    Other brokers conflate a backlog as it is sent, so it has no rate in messages.
    """
    head = ["consuming", "contestant", "messages", "deliveries", "seconds", "messages/s", "deliveries/s", "CPU us"]
    head += ["times bare loop"]
    rows = []
    for mode in _distinct(results, "mode"):
        of_mode = [result for result in results if result["mode"] == mode]
        for contestant in _distinct(of_mode, "contestant"):
            mine = _of(of_mode, contestant)
            comparable = contestant not in PEERS or mode == "live"
            rows.append(
                [
                    mode,
                    contestant,
                    f"{mine[0]['messages']}",
                    f"{_median(mine, lambda result: result['deliveries']):.0f}",
                    f"{_median(mine, _wall):.2f}",
                    f"{_median(mine, _messages):.0f}" if comparable else "",
                    f"{_median(mine, _deliveries):.0f}",
                    f"{_median(mine, lambda result: result['cpu'] / result['messages'] * 1e6):.1f}",
                    f"{_ratio(of_mode, contestant, 'bare loop', _messages):.2f}" if comparable else "",
                ]
            )
    return table(head, rows)


def prefetch_table(results: Sequence[Result]) -> str:
    """Return the cost of each message by how many are taken at once, and its ratio to one at a time: medians."""
    costs: dict[tuple[str, int], tuple[float, float]] = {}
    for what, at_once in dict.fromkeys((result["what"], result["at_once"]) for result in results):
        mine = [result for result in results if (result["what"], result["at_once"]) == (what, at_once)]
        wall = _median(mine, lambda one: one["wall"] / one["messages"] * 1e6)
        costs[what, at_once] = wall, _median(mine, lambda one: one["cpu"] / one["messages"] * 1e6)
    rows = []
    for (what, at_once), (wall, cpu) in costs.items():
        alone = costs[what, 1]
        rows.append(
            [what, f"{at_once}", f"{wall:.1f}", f"{wall / alone[0]:.2f}", f"{cpu:.1f}", f"{cpu / alone[1]:.2f}"]
        )
    return table(["consuming", "at once", "us a message", "times 1", "CPU us", "times 1"], rows)


def groups_table(results: Sequence[Result]) -> str:
    """Return the cost of each message without groups, and the speed with them in times that: medians."""
    head = ["groups", "sessions", "at once", "CPU us", "sticky", "shared", "reading us", "sticky", "shared"]
    rows = []
    for groups, sessions, at_once, mine in _ways(results):
        row = [f"{groups:,}", f"{sessions}", f"{at_once}"]
        for measure in (_cpu, _reading):
            row.append(f"{statistics.median(measure(one) / one['messages'] * 1e6 for one in _of(mine, 'none')):.1f}")
            row += [f"{_ratio(mine, 'none', mode, measure):.2f}" for mode in ("sticky", "shared")]
        rows.append(row)
    return table(head, rows)


def groups_targets(results: Sequence[Result]) -> list[Target]:
    """Return how fast the slowest way of consuming is with groups."""
    return [
        Target.at_least(
            f"{mode} groups, slowest way: speed in times a queue without",
            0.7,
            min(_ratio(mine, "none", mode, _cpu) for *_, mine in _ways(results)),
        )
        for mode in ("sticky", "shared")
        if results
    ]


def _ways(results: Sequence[Result]) -> Iterator[tuple[int, int, int, list[Result]]]:
    """Yield each number of groups and way of consuming, with its results."""
    fields = ("groups", "sessions", "at_once")
    for groups, sessions, at_once in dict.fromkeys(tuple(result[field] for field in fields) for result in results):
        way = (groups, sessions, at_once)
        yield groups, sessions, at_once, [one for one in results if tuple(one[field] for field in fields) == way]


def limits_table(results: Sequence[Result]) -> str:
    """Return the cost of following a queue with limits: medians, and ratios to a view and to a queue without limits."""
    opened = {what: [result for result in results if result["what"] == what] for what in ("view", "producer")}
    rows = []
    for what, mine in opened.items():
        cpu = _median(mine, lambda one: one["cpu"] / one["keys"])
        ratio = statistics.median(one["cpu"] / view["cpu"] for one, view in zip(mine, opened["view"], strict=True))
        rows.append([what, f"{cpu * 1e6:.2f}", f"{ratio:.2f}"])
    costs = table(["opening", "CPU us a key", "times a view"], rows)
    rows = []
    for what in ("update", "new key"):
        for limited in (False, True):
            mine = [result for result in results if result["what"] == what and result["limited"] is limited]
            cpu = _median(mine, lambda one: one["cpu"] / one["messages"])
            own = _median(mine, lambda one: one["thread"] / one["messages"])
            rows.append([what, "reject" if limited else "none", f"{cpu * 1e6:.1f}", f"{own * 1e6:.1f}"])
    return f"{costs}\n\n{table(['sending', 'limits', 'CPU us', 'in its thread'], rows)}"


def acks_table(results: Sequence[Result]) -> str:
    """Return how long an ack takes to become durable, and the memory of each waiting or held message."""
    latency = [result for result in results if result["what"] == "ack until durable"]
    memory = [result for result in results if result["what"] == "memory"]
    rows = [[row["state"], f"{row['messages']:,}", f"{row['bytes_per_message']:.0f}"] for row in memory]
    costs = table(["messages of 256 bytes in a consumer", "how many", "bytes each"], rows)
    return f"{latency_table(latency)}\n\n{costs}"


def text_table(results: Sequence[Result]) -> str:
    """Return the length of the group's commits over time: the longest in each fifth of the messages."""
    head = ["commit text, characters", "1st fifth", "2nd", "3rd", "4th", "5th", "longest"]
    rows = []
    for result in results:
        if result["what"] == "commit text":
            fifths = [0] * 5
            for share, length in result["lengths"]:
                fifth = min(4, int(share * 5))
                fifths[fifth] = max(fifths[fifth], length)
            rows.append([result["order"], *map(str, [*fifths, max(fifths)])])
    return table(head, rows)


def target_table(found: Iterable[Target]) -> str:
    """Return a table of the targets, and whether they are met."""
    rows = [[target.what, target.bar, f"{target.measured:.2f}", "yes" if target.met else "NO"] for target in found]
    return table(["target", "bar", "measured", "met"], rows)


def _of(results: Iterable[Result], contestant: str) -> list[Result]:
    return [result for result in results if result["contestant"] == contestant]


def _messages(result: Result) -> float:
    return float(result["messages_per_second"])


def _deliveries(result: Result) -> float:
    return float(result["deliveries_per_second"])


def _seconds(result: Result) -> float:
    return float(result["seconds"])


def _wall(result: Result) -> float:
    return float(result["wall"])


def _cpu(result: Result) -> float:
    return float(result["cpu"])


def _reading(result: Result) -> float:
    return float(result["reading"])


def _median(results: Iterable[Result], measure: Measure) -> float:
    return statistics.median(map(measure, results))


def _ratio(results: Iterable[Result], above: str, below: str, measure: Measure) -> float:
    """Return the median over the rounds of one contestant's figure divided by another's in the same round."""
    by_round: dict[int, dict[str, float]] = {}
    for result in results:
        by_round.setdefault(result["round"], {})[result["contestant"]] = measure(result)
    pairs = [figures for figures in by_round.values() if above in figures and below in figures]
    return statistics.median(figures[above] / figures[below] for figures in pairs)


def _distinct(results: Iterable[Result], field: str) -> list[str]:
    return sorted({str(result[field]) for result in results}, reverse=True)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return columns under their heads."""
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = []
    for row in (head, *rows):
        # words are left-aligned, figures right-aligned
        cells = [cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width) for cell, width in zip(row, widths)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
