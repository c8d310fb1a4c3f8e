"""Commands that declare, list and drop queues."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
from click.core import ParameterSource

from lvq_kafka.cli.common_options import WholeNumber, command, settings, timeout_option, typed
from lvq_kafka.cli.completing import complete_queues
from lvq_kafka.cli.confirm import confirm, yes_option
from lvq_kafka.cli.definition_options import definition_options
from lvq_kafka.cli.exit_codes import describe, print_problem
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.output import age, count
from lvq_kafka.cli.queue_words import key_in_words, options_in_words
from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.queue_request import QueueRequest
from lvq_kafka.core.queue.topic_settings import Finding, TopicSpec
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.declared.addressed import check_managing
from lvq_kafka.declared.group_checks import Start
from lvq_kafka.declared.queue_topic import OnMismatch
from lvq_kafka.dialects.address_forms import parse_address
from lvq_kafka.errors import LVQError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lvq_kafka.cluster import Cluster
    from lvq_kafka.core.timing.ttl import Ttl
    from lvq_kafka.queue import Declaration, LastValueQueue

__all__ = [
    "declare",
    "drop",
    "finding_row",
    "grouped_by",
    "in_words",
    "order_in_words",
    "print_unchecked",
    "queues",
]


@command(
    "declare",
    examples=[
        "lvq declare prices --key-header ticker",
        "lvq declare prices --key-header ticker --partitions 6 --start latest",
        "lvq declare prices -o qpid.last_value_queue_key=ticker -o ensureNondestructiveConsumers=true",
        "lvq declare users --record-key --topic app.users --on-mismatch warn",
        "lvq declare sessions --key-header id --default-ttl 1800 --max-ttl 86400",
        "lvq declare rates --key-header currency --max-delay 86400",
        "lvq declare jobs --standard",
        "lvq declare jobs --standard --order priority --priorities 3",
        "lvq declare orders --key-header id --order sorted --sort-header due",
        "lvq declare orders --key-header id --groups sticky --group-header customer",
        "lvq declare alarms --key-header id --max-messages 10000 --overflow reject",
        "lvq declare --from broker.xml --dry-run",
        "lvq declare nyse --topic prices --key-header ticker --selector \"exchange = 'NYSE'\"",
    ],
)
@click.argument("name", required=False)
@click.option(
    "--from",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Declare the queues, and set the settings, of Artemis's broker.xml, or of Broker-J's attributes in JSON.",
)
@click.option("--dry-run", is_flag=True, help="With --from, only show what would be done.")
@click.option("--apply", is_flag=True, help="With --from, change settings and alter queues that are otherwise.")
@click.option("-k", "--key-header", metavar="HEADER", help="The message header that names the key.")
@click.option("--record-key", is_flag=True, help="Use the record key as the key, instead of --key-header.")
@click.option("--standard", is_flag=True, help="A queue in which no message replaces another; a key is optional.")
@click.option("--topic", metavar="TOPIC", help="Its topic.  [default: NAME]")
@definition_options(new=True)
@click.option(
    "--start",
    type=click.Choice(get_args(Start)),
    default="earliest",
    show_default=True,
    help="Whether a new queue includes the messages already in its topic.",
)
@click.option(
    "--on-mismatch",
    type=click.Choice(get_args(OnMismatch)),
    default="raise",
    show_default=True,
    help="What to do if an existing topic's settings would break a queue.",
)
@click.option("--partitions", type=WholeNumber(min=1), help="Partitions of a new topic.  [default: 1]")
@click.option(
    "--replication-factor", type=WholeNumber(min=1), help="Replicas of a new topic.  [default: the cluster's]"
)
@click.option(
    "--topic-config",
    metavar="NAME=VALUE",
    multiple=True,
    callback=settings,
    help="A setting of a new topic. Repeatable.",
)
@click.option(
    "-o",
    "--option",
    "options",
    metavar="NAME=VALUE",
    multiple=True,
    callback=settings,
    help="A queue option by its name here or elsewhere: see lvq options. Repeatable.",
)
def declare(
    invocation: Invocation,
    name: str | None,
    *,
    file: Path | None,
    dry_run: bool,
    apply: bool,
    key_header: str | None,
    record_key: bool,
    standard: bool,
    topic: str | None,
    said: dict[str, object],
    start: Start,
    on_mismatch: OnMismatch,
    partitions: int | None,
    replication_factor: int | None,
    topic_config: list[tuple[str, str]],
    options: list[tuple[str, str]],
) -> None:
    """Create a queue, or check that it matches.

    NAME may be an address of Qpid, Artemis or Broker-J that says what to declare. Address settings give what is left
    open; see 'lvq settings'.

    Nothing that exists is changed silently: a missing topic is created with settings that suit the queue; an existing
    topic is checked, and unsuitable settings are reported.
    """
    if file is not None:
        _check_alone({"file", "dry_run", "apply"}, "--from describes all queues")
        from lvq_kafka.cli.broker_import import import_file

        import_file(invocation, file, dry_run=dry_run, apply=apply)
        return
    if name is None:
        raise click.UsageError("Name the queue, or give --from FILE.")
    if dry_run or apply:
        raise click.UsageError("--dry-run and --apply belong to --from.")
    keys = {"key-header": key_header, "conflate": False if standard else None}
    given = {**{option: value for option, value in keys.items() if value is not None}, **said}
    request = _request(name, topic, record_key, given, options)
    request.alone()  # raises what is wrong without a cluster, before it is asked
    spec = TopicSpec(partitions=partitions, replication_factor=replication_factor, config=dict(topic_config))
    from lvq_kafka.queue import LastValueQueue

    queue = LastValueQueue.declare(
        request.name,
        topic=request.topic,
        options=request.options,
        **request.arguments,
        start=start,
        spec=spec,
        on_mismatch=on_mismatch,
        cluster=invocation.connect(),
    )
    print_unchecked(queue)
    assert queue.declaration is not None
    if invocation.out.person:
        invocation.out.say(_declared(queue.definition, queue.declaration, spec))
    else:
        invocation.out.row(_declaration_row(queue.definition, queue.declaration))


def _check_alone(allowed: set[str], why: str) -> None:
    """Check that no option of the running command is given but these."""
    ctx = click.get_current_context()
    for param in ctx.command.params:
        given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if given and param.expose_value and param.name not in allowed:
            raise click.UsageError(f"{why}: leave {max(param.opts, key=len)} out.")


def print_unchecked(queue: LastValueQueue[Any]) -> None:
    """Warn of all that a declaration could not check.

    Its findings need no message: the library logs a warning for each.
    """
    for unchecked in queue.declaration.unchecked if queue.declaration is not None else ():
        print_problem(f"not checked: {unchecked}", warning=True)


def _request(
    name: str, topic: str | None, record_key: bool, given: dict[str, object], options: list[tuple[str, str]]
) -> QueueRequest:
    address = parse_address(name)
    check_managing(address)
    if address.options or address.topic:
        if given or options or record_key or topic:
            raise click.UsageError("The address says what to declare. Leave out the options, or name the queue alone.")
        return address.request()
    twice = sorted(given.keys() & dict(options).keys())
    if twice:
        raise click.UsageError(f"--{twice[0]} and -o {twice[0]} are both given.")
    if record_key and "key-header" in given:
        raise click.UsageError("--record-key and --key-header are mutually exclusive.")
    if record_key and options:
        raise click.UsageError("--record-key and -o are mutually exclusive; use the long options.")
    arguments = {"key_header": None} if record_key else {}
    return QueueRequest(address.queue, topic or address.queue, arguments, {**given, **dict(options)})


def _declaration_row(definition: QueueDefinition, declaration: Declaration) -> dict[str, Any]:
    return {
        **definition.as_row(),
        "created_queue": declaration.created_queue,
        "created_topic": declaration.created_topic,
        "findings": [finding_row(finding) for finding in declaration.findings],
        "reconciled": [finding_row(finding) for finding in declaration.reconciled],
        "unchecked": list(declaration.unchecked),
    }


def finding_row(finding: Finding) -> dict[str, str]:
    """Return a finding as a row for programs."""
    remedy = finding.remedy(typed(click.get_current_context()))
    return {**asdict(finding), "reason": finding.reason, "remedy": remedy}


def _declared(definition: QueueDefinition, declaration: Declaration, spec: TopicSpec) -> RenderableType:
    from rich.text import Text

    lines = Text()
    if declaration.created_queue:
        how = "declared"
    else:
        how = "is there" if declaration.findings or declaration.reconciled else "exists and matches"
    lines.append("✓ ", "bold green").append(definition.name, "bold cyan").append(f" {how}: {key_in_words(definition)}")
    if definition.non_destructive:
        lines.append(", never consumed")
    if declaration.created_topic:
        lines.append("\n✓ ", "bold green").append(
            f"topic {definition.topic} created with {count(spec.new_partitions, 'partition')}"
        )
    for pattern, options in (definition.from_settings or {}).items():
        lines.append("\n✓ ", "bold green").append(f"from the setting {brief(pattern)}: {options_in_words(options)}")
    for finding in declaration.reconciled:
        lines.append("\n✓ ", "bold green").append(
            f"{finding.setting} set to {finding.expected}; it was {finding.actual}"
        )
    return lines


@dataclass(frozen=True, slots=True)
class Waiting:
    """The messages that wait in a queue."""

    depth: int | None = None
    """Messages that no consumer is done with; None for a queue that is not consumed, and if it is unknown."""
    oldest: float | None = None
    """The time at which the oldest of them arrived."""
    problem: str | None = None
    """Why it is unknown."""

    @property
    def cells(self) -> dict[str, str]:
        """The cells of a table."""
        if self.problem is not None:
            return {"WAITING": "?", "OLDEST": "?"}
        return {
            "WAITING": "" if self.depth is None else f"{self.depth:,}",
            "OLDEST": "" if self.oldest is None else age(time.time() - self.oldest),
        }


@command("queues", examples=["lvq queues", "lvq queues | jq -r .name", "lvq queues | jq 'select(.waiting > 1000)'"])
@click.option("--definitions", is_flag=True, help="Read no queue: leave out how much waits, and since when.")
@timeout_option(30.0, "Time limit for reading all queues.")
def queues(invocation: Invocation, *, definitions: bool, timeout: float) -> None:
    """List the declared queues, with how much waits in each, and how old the oldest is.

    A message waits until a consumer is done with it; a newer value of its key takes its place. What waits in a queue
    that cannot be read, or not in time, is unknown: it is warned of, and its number is "?", for programs null.
    """
    from lvq_kafka.declared.registry import Registry

    found = Registry(invocation.connect()).all()
    if not found:
        if invocation.out.person:
            invocation.out.note("No queue is declared. Try: lvq declare prices --key-header ticker")
        return
    measured: list[Waiting | None] = [None] * len(found)
    if not definitions:
        with invocation.out.waiting(lambda: f"reading {count(len(found), 'queue')}"):
            measured = list(_measured(invocation.connect(), found, timeout))
    rows = list(zip(found, measured))
    for definition, waiting in rows:
        if waiting is not None and waiting.problem is not None:
            print_problem(f"what waits in {definition.name} is unknown: {waiting.problem}", warning=True)
    if not invocation.out.person:
        for definition, waiting in rows:
            counted = {} if waiting is None else {"waiting": waiting.depth, "oldest": waiting.oldest}
            invocation.out.row({**definition.as_row(), **counted})
        return
    from lvq_kafka.cli.table import fitted_table

    cells = [_shown(definition, waiting) for definition, waiting in rows]
    used = [column for column in cells[0] if any(row[column] for row in cells)]
    table, left_out = fitted_table(
        invocation.out.console.width,
        [{column: row[column] for column in used} for row in cells],
        gives_way=[column for column in _GIVES_WAY if column in used],
    )
    invocation.out.say(table)
    invocation.out.note_left_out(left_out)


def _measured(cluster: Cluster, definitions: list[QueueDefinition], timeout: float) -> Iterator[Waiting]:
    """Yield what waits in each queue, all within this time."""
    from lvq_kafka.queue import LastValueQueue

    deadline = time.monotonic() + timeout
    for definition in definitions:
        if definition.non_destructive:
            yield Waiting()
            continue
        try:
            left = max(0.0, deadline - time.monotonic())
            stats = LastValueQueue.open(definition.name, cluster=cluster).stats(timeout=left)
        except LVQError as error:
            yield Waiting(problem=describe(error, typed(click.get_current_context())))
        else:
            yield Waiting(stats.depth, stats.oldest)


_GIVES_WAY = ("ORDER", "WITHOUT KEY", "CONSUMED", "SELECTOR", "LIMITS", "SCHEDULED", "TTL", "GROUPS", "TOPIC", "KEY")


def _shown(definition: QueueDefinition, waiting: Waiting | None) -> dict[str, str]:
    """Return a queue as a row of the list."""
    return {
        "QUEUE": definition.name,
        **({} if waiting is None else waiting.cells),
        "KEY": _key_shown(definition),
        "TOPIC": definition.topic,
        "ORDER": _order_shown(definition),
        "WITHOUT KEY": definition.keyless,
        "CONSUMED": "never" if definition.non_destructive else "yes",
        "SELECTOR": brief(definition.selector or ""),
        "TTL": "" if definition.ttl is None else in_words(definition.ttl),
        "SCHEDULED": "" if definition.max_delay is None else f"up to {definition.max_delay:,g} s ahead",
        "GROUPS": "" if definition.groups is None else grouped_by(definition.groups),
        "LIMITS": "" if definition.limits is None else _limits_shown(definition.limits),
    }


def order_in_words(definition: QueueDefinition) -> str:
    """Describe the order in which a queue's messages come."""
    if definition.order == "priority":
        return f"priority, {definition.priorities} levels"
    return f"sorted by {brief(definition.sort_header or '')}" if definition.order == "sorted" else definition.order


def _order_shown(definition: QueueDefinition) -> str:
    if definition.conflate:
        return order_in_words(definition)
    return "all messages" if definition.order == "tail" else f"all messages, {order_in_words(definition)}"


def _limits_shown(limits: Limits) -> str:
    """Describe limits and the policy for the rest."""
    pairs = ((limits.messages, "messages"), (limits.bytes, "bytes"))
    most = " or ".join(f"{number:,} {what}" for number, what in pairs if number is not None)
    return f"{most}, {limits.policy}"


def _key_shown(definition: QueueDefinition) -> str:
    if definition.key_header is not None:
        return f"header {brief(definition.key_header)}"
    return "the record key" if definition.conflate else "none"


def in_words(ttl: Ttl) -> str:
    """Describe the TTL of a queue's messages."""
    if ttl.never:
        return "nothing expires"
    limits = ((ttl.default, "by default"), (ttl.minimum, "at least"), (ttl.maximum, "at most"))
    said = [f"{seconds:,g} s {what}" for seconds, what in limits if seconds is not None]
    return ", ".join(said) if said else "as messages say"


def grouped_by(groups: Groups) -> str:
    """Describe the groups of a queue's messages."""
    placed = ", placed by group" if groups.placement == "group" else ""
    return f"{groups.mode}, by header {brief(groups.header)}{placed}"


@command("drop", examples=["lvq drop prices", "lvq drop prices --with-topic --yes"])
@click.argument("queue", shell_complete=complete_queues)
@click.option("--with-topic", is_flag=True, help="Delete its topic too, with everything in it.")
@yes_option
def drop(invocation: Invocation, queue: str, *, with_topic: bool, yes: bool) -> None:
    """Delete a queue.

    This deletes its definition and its record of what was consumed. Its topic and the values in it stay, unless
    --with-topic is given. So what was consumed comes again if the queue is declared again, unless that is done with
    --start latest.
    """
    opened = invocation.open(QueueChoice(queue))
    name = opened.name
    if with_topic:
        question = f"Delete the queue {name} and its topic {opened.topic} with everything in it?"
    else:
        consumed = not opened.definition.non_destructive
        again = ", and what was consumed comes again if the queue is declared again" if consumed else ""
        question = f"Its topic {opened.topic} stays{again}. Delete the queue {name}?"
    confirm(question, yes=yes, if_not="Nothing was deleted.")
    opened.drop(delete_topic=with_topic)
    if invocation.out.person:
        invocation.out.note(
            f"{name} was deleted{' with its topic' if with_topic else f'; its topic {opened.topic} stays'}."
        )
    else:
        invocation.out.row({"dropped": name, "topic": opened.topic, "topic_deleted": with_topic})
