"""Commands that send messages, put values and delete keys."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from lvq_kafka.cli.bulk_send import Sent, lines_of, sent_in_order
from lvq_kafka.cli.common_options import Seconds, WholeNumber, command, format_option, pair, queue_argument
from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.cli.offset_spec import seconds_since_the_epoch
from lvq_kafka.cli.output import Output, count
from lvq_kafka.codecs import form_of
from lvq_kafka.core.facts import Format
from lvq_kafka.core.log.keys import encode_key, key_text
from lvq_kafka.core.log.records import header_value
from lvq_kafka.core.queue.message_groups import GROUP_HEADER
from lvq_kafka.core.queue.ranking import HIGHEST_PRIORITY, PRIORITY_HEADER, SORT_HEADER
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.text.quoting import listed, printable
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import ConfigError, LVQError, QueueFull
from lvq_kafka.json_lines import Line, parse_value, shown
from lvq_kafka.producing.producer import Message, Producer

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation, QueueChoice
    from lvq_kafka.cluster import Receipt
    from lvq_kafka.codecs import HeaderPairs
    from lvq_kafka.queue import LastValueQueue

__all__ = ["delete", "put", "send"]

F = TypeVar("F", bound=Callable[..., Any])
_LOOK = 5.0  # seconds in which delete may learn which keys have a value


@dataclass(frozen=True, slots=True)
class DueTime:
    """The time from which on messages are to count, if the options say one.

    It is in seconds since the epoch, or in seconds after the message is sent.
    """

    not_before: float | None
    delay: float | None

    def due(self, now: float) -> float | None:
        """Return the time for a message that is sent now."""
        return self.not_before if self.delay is None else now + self.delay


@dataclass(frozen=True, slots=True)
class CommonTerms:
    """The options that hold for all messages which do not say otherwise in their own headers."""

    schedule: DueTime = DueTime(None, None)
    group: str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    ttl: float | None = None
    priority: int | None = None
    sort: str | None = None
    sort_header: str = SORT_HEADER
    """The header by which the queue is sorted."""
    no_group: bool = False
    group_header: str = GROUP_HEADER
    """The header of the queue's groups."""
    stand_for: Mapping[str, str] = field(default_factory=dict)
    """By header of another system, the one that it stands for in the queue."""

    def check_sole(self, name: str, option: str) -> None:
        """Check that no header given for all messages says what an option says, too.

        Raises:
            click.UsageError: one does. One of them would be ignored.
        """
        for other, _ in self.headers:
            if self.stand_for.get(other, other) == name:
                raise click.UsageError(f"{option} and the header {printable(other)} are mutually exclusive.")


_NOTHING = CommonTerms()

header_option = click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pair,
    help="A header of the message. Repeatable.",
)
ttl_option = click.option("--ttl", type=Seconds(), metavar="SECONDS", help="The seconds after which it expires.")

group_option = click.option("--group", metavar="GROUP", help="The group that it belongs to.")


def schedule_options(function: F) -> F:
    """Add the options that schedule messages, passed on as a `DueTime`."""

    @wraps(function)
    def with_schedule(*arguments: Any, not_before: float | None, delay: float | None, **options: Any) -> Any:
        if not_before is not None and delay is not None:
            raise click.UsageError("--not-before and --delay are mutually exclusive.")
        return function(*arguments, schedule=DueTime(not_before, delay), **options)

    time_option = click.option(
        "--not-before",
        metavar="TIME",
        callback=seconds_since_the_epoch,
        help="The time from which it counts: 2026-08-01T12:30 (local time), …T12:30Z, or seconds since the epoch.",
    )
    delay_option = click.option(
        "--delay", type=Seconds(min=0), metavar="SECONDS", help="The seconds after which it counts."
    )
    return time_option(delay_option(cast(F, with_schedule)))


priority_option = click.option(
    "--priority", type=WholeNumber(0, HIGHEST_PRIORITY), help="Its priority, in a queue with --order priority."
)
sort_option = click.option("--sort", metavar="TEXT", help="Its sort key, in a queue with --order sorted.")
from_option = click.option(
    "--from-jsonl",
    "source",
    metavar="FILE",
    type=click.File("rb"),
    help="Read messages from JSON lines, as written by browse and export; - is stdin.",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Do not report positions.")


@command(
    "send",
    examples=[
        "lvq send prices 118.50 -H ticker=IBM",
        "lvq send photos - -H id=7 < photo.jpg",
        "lvq send jobs 'resize 7' --priority 9",
        "lvq send prices --from-jsonl ticks.jsonl",
    ],
)
@queue_argument
@click.argument("value", required=False)
@header_option
@ttl_option
@group_option
@schedule_options
@priority_option
@sort_option
@from_option
@format_option
@quiet_option
def send(
    invocation: Invocation,
    choice: QueueChoice,
    *,
    value: str | None,
    headers: list[tuple[str, str]],
    ttl: float | None,
    group: str | None,
    schedule: DueTime,
    priority: int | None,
    sort: str | None,
    source: Any,
    form: Format | None,
    quiet: bool,
) -> None:
    """Send messages with headers.

    The queue's key header determines which value a message replaces. VALUE is the value, or - for all of stdin. The
    position of each message is reported once all replicas have it.
    """
    _either(value is not None, source)
    queue = invocation.open(choice, form, create=True)
    named, form = form is not None, form_of(queue.value_codec)
    if source is None:
        assert value is not None
        given: Iterable[Line | None] = [Line(None, _value(value, form), [])]
    else:
        given = lines_of(source, form, named=named)
    common = CommonTerms(schedule, group, _headers_of(headers), ttl, priority, sort)
    _produce(invocation, queue, given, quiet, common)


@command(
    "put",
    examples=[
        "lvq put prices IBM 118.50",
        'lvq put prices IBM \'{"bid": 118.4, "ask": 118.6}\' --format json',
        "lvq put photos 7 - < photo.jpg",
        "lvq put rates EUR 1.09 --not-before 2026-08-01T00:00Z",
        "lvq export prices | lvq put prices-copy --from-jsonl -",
    ],
)
@queue_argument
@click.argument("key", required=False)
@click.argument("value", required=False)
@header_option
@ttl_option
@group_option
@schedule_options
@priority_option
@sort_option
@from_option
@format_option
@quiet_option
def put(
    invocation: Invocation,
    choice: QueueChoice,
    *,
    key: str | None,
    value: str | None,
    headers: list[tuple[str, str]],
    ttl: float | None,
    group: str | None,
    schedule: DueTime,
    priority: int | None,
    sort: str | None,
    source: Any,
    form: Format | None,
    quiet: bool,
) -> None:
    """Set the values of keys.

    The key header is added automatically. VALUE is the value, or - for all of stdin.
    """
    _either(key is not None, source)
    if source is None and value is None:
        raise click.UsageError("Give KEY and VALUE; - as VALUE is stdin. To remove a key: lvq delete.")
    queue = invocation.open(choice, form, create=True)
    named, form = form is not None, form_of(queue.value_codec)
    if key is None or value is None:
        given: Iterable[Line | None] = lines_of(source, form, named=named)
    else:
        given = [Line(encode_key(key), _value(value, form), [])]
    common = CommonTerms(schedule, group, _headers_of(headers), ttl, priority, sort)
    _produce(invocation, queue, given, quiet, common, by_key=True)


@command("delete", examples=["lvq delete prices IBM", "lvq delete prices IBM MSFT"])
@queue_argument
@click.argument("keys", nargs=-1, required=True)
@click.option("--group", metavar="GROUP", help="The group of the values; needed where messages are placed by group.")
@click.option("--no-group", is_flag=True, help="The values have no group.")
@quiet_option
def delete(
    invocation: Invocation,
    choice: QueueChoice,
    *,
    keys: tuple[str, ...],
    group: str | None,
    no_group: bool,
    quiet: bool,
) -> None:
    """Remove keys and their values.

    On a terminal, it says which keys had no value.
    """
    if no_group and group is not None:
        raise click.UsageError("--group and --no-group are mutually exclusive.")
    lines = [Line(encode_key(key), None, [], delete=True) for key in keys]
    queue = invocation.open(choice)
    absent = _without_value(invocation, queue, keys) if invocation.out.person and not quiet else []
    _produce(invocation, queue, lines, quiet, CommonTerms(group=group, no_group=no_group))
    if absent:
        print_problem(f"{queue.name} had no value for {listed(absent)}.", warning=True)


def _without_value(invocation: Invocation, queue: LastValueQueue[Any], keys: Sequence[str]) -> list[str]:
    """Return the keys that have no value; none if that cannot be learned soon.

    Deleting needs no right to read.
    """
    if not queue.definition.conflate:
        return []
    try:
        with invocation.view(queue, _LOOK, keys=keys) as view:
            return [key for key in dict.fromkeys(keys) if key not in view]
    except LVQError:
        return []


def _either(one: bool, source: Any) -> None:
    if one == (source is not None):
        raise click.UsageError("Give one message on the command line, or many with --from-jsonl.")


def _value(text: str, form: Format) -> Any:
    data = sys.stdin.buffer.read() if text == "-" else encode_key(text)
    return parse_value(data, form)


def _headers_of(headers: list[tuple[str, str]]) -> list[tuple[str, bytes | None]]:
    """Return the headers given for all messages; a line's own come after them, and so count."""
    return [(name, encode_key(text)) for name, text in headers]


def _with_headers(lines: Iterable[Line | None], common: HeaderPairs) -> Iterator[Line | None]:
    for line in lines:
        yield line and Line(line.key, line.value, [*common, *line.headers], line.delete)


def _produce(
    invocation: Invocation,
    queue: LastValueQueue[Any],
    lines: Iterable[Line | None],
    quiet: bool,
    common: CommonTerms = _NOTHING,
    *,
    by_key: bool = False,
) -> None:
    if by_key and not queue.definition.conflate:
        raise ConfigError(
            f"{queue.name} is a standard queue (`conflate=False`): no key of it has a value to set.",
            options=["conflate"],
            hint="Send messages: lvq send.",
        )
    common = replace(common, stand_for=QueueRules.of(queue.definition).foreign_headers().stand_for)
    if queue.definition.groups is not None:
        common = replace(common, group_header=queue.definition.groups.header)
    begin = time.monotonic()
    taken = total = 0
    bulk = not isinstance(lines, list)
    headers = [*common.headers]
    if common.group is not None:
        common.check_sole(common.group_header, "--group")
    if common.schedule != DueTime(None, None):
        common.check_sole(NOT_BEFORE_HEADER, "--not-before or --delay")
    if common.ttl is not None:
        common.check_sole(TTL_HEADER, "--ttl")
    if common.priority is not None:
        common.check_sole(PRIORITY_HEADER, "--priority")
    if common.sort is not None:
        common = replace(common, sort_header=queue.definition.sort_header or SORT_HEADER)
        common.check_sole(common.sort_header, "--sort")
    if headers:
        lines = _with_headers(lines, headers)

    def hand_over(line: Line) -> Receipt:
        nonlocal taken
        receipt = _hand_over(producer, line, common, queue.cluster.now())
        taken += 1
        return receipt

    with queue.producer() as producer, invocation.out.waiting(lambda: f"sending to {queue.name}: {total:,}"):
        try:
            for sent in sent_in_order(lines, hand_over):
                if sent is None:
                    invocation.out.flush()
                    continue
                total += 1
                if not quiet and not (bulk and invocation.out.person):
                    _report(invocation.out, sent, queue.key_header)
        except QueueFull as full:
            if bulk:
                full.add_note(f"{count(total, 'message')} before it {'was' if total == 1 else 'were'} sent.")
            raise
        except (BrokenPipeError, KeyboardInterrupt, SystemExit) as ended:
            # The producer still sends what it has taken, and reports what it cannot.
            reported = 0 if quiet or invocation.out.person or isinstance(ended, BrokenPipeError) else total
            if bulk and taken > reported:
                ended.add_note(f"stopped after {count(taken, 'message')} for {queue.name}; the rest was not sent")
            raise
    if bulk:
        invocation.out.note(f"{count(total, 'message')} sent to {queue.name} in {time.monotonic() - begin:.1f} s")


def _hand_over(producer: Producer[Any], line: Line, common: CommonTerms, now: float) -> Receipt:
    own = {common.stand_for.get(name, name) for name, _ in line.headers}  # as with other headers, the line's own count
    not_before = None if NOT_BEFORE_HEADER in own else common.schedule.due(now)
    group = None if common.group_header in own else common.group
    if not line.delete:
        return producer.send(
            Message(
                line.value,
                line.headers,
                line.key,
                ttl=None if TTL_HEADER in own else common.ttl,
                not_before=not_before,
                priority=None if PRIORITY_HEADER in own else common.priority,
                sort=None if common.sort_header in own else common.sort,
                group=group,
            )
        )
    assert line.key is not None
    if not_before is not None:
        raise click.UsageError(
            f"The delete of {printable(key_text(line.key))} cannot be scheduled: leave out --not-before and --delay."
        )
    headers = [(common.group_header, None)] if common.no_group else line.headers
    return producer.delete(line.key, headers, group=group)


def _report(out: Output, sent: Sent, key_header: str | None) -> None:
    key = sent.line.key
    if key is None and key_header is not None:
        key = header_value(sent.line.headers, key_header)
    if out.person:
        from rich.text import Text

        name = "message without a key" if key is None else printable(key.decode("utf-8", "surrogateescape"))
        what = " deleted" if sent.line.delete else ""
        out.say(Text.assemble(("✓ ", "bold green"), (name, "bold cyan"), what, (f" at {sent.position}", "dim")))
    else:
        row: dict[str, Any] = {} if key is None else {"key": shown(key)}
        out.row({**row, "position": str(sent.position)})
