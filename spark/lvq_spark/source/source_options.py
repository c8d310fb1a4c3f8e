"""The options of the format ``lvq`` as one checked, typed object."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.queue.default_filters import check_selector
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.validation import text
from lvq_kafka.core.timing.delay import check_max_delay
from lvq_kafka.core.timing.ttl import Ttl, check_ttl
from lvq_kafka.declared.group_checks import OnForeignCommits
from lvq_kafka.dialects.address import Address, subject_condition
from lvq_kafka.dialects.address_forms import parse_address
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig
from lvq_spark.cut.offset_options import EARLIEST, Offsets, OffsetsOrTimes, Times
from lvq_spark.cut.pinning import AsOfPolicy, seconds
from lvq_spark.scan.arrow_columns import BYTES, ROWS
from lvq_spark.scan.home_partition import JAVA, Partitioner
from lvq_spark.scan.log_range import PATIENCE, Consistency
from lvq_spark.scan.scanning import Keyless, Strays
from lvq_spark.schema import EXPIRES, GROUP, PRIORITY, SORT_KEY
from lvq_spark.source.option_map import OptionMap

__all__ = ["END", "EXTRA", "OPTIONS", "QUEUE", "REFUSED", "SLICES", "SPLITS", "START", "TTL", "SourceOptions"]

_MEMORY = 256 << 20

_ADDRESS = "lvq.address"
QUEUE = ("queue", "lvq.queue", _ADDRESS)
"""Two names for the same option, a short one and one that matches our other options; and the queue by its address."""

START = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
END = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""Options that set the end, of which at most one is given; likewise for the start."""

TTL = {"lvq.defaultTtl": "default", "lvq.minTtl": "minimum", "lvq.maxTtl": "maximum"}
"""Options of a topic whose messages may expire, with the fields of `Ttl`; ``lvq.ttl`` alone sets no limit."""

SPLITS = ("minPartitions", "maxRecordsPerPartition")
"""Options that split the records of partitions among tasks."""

SLICES = "lvq.slices"
"""The option that splits the keys of partitions among tasks, each of which reads all of their records."""

EXTRA = ("deleted", EXPIRES, PRIORITY, SORT_KEY, GROUP)
"""Columns that exist only if they are requested by name."""

OPTIONS = (
    *("subscribe", "assign", *QUEUE, *START, *END, "startingOffsetsByTimestampStrategy"),
    *("includeHeaders", "failOnDataLoss", "kafkaConsumer.pollTimeoutMs", *SPLITS, "maxOffsetsPerTrigger"),
    *("lvq.dedupe", "lvq.key", "lvq.keyMismatch", "lvq.tombstones", "lvq.nullKeys", "lvq.strays"),
    *("lvq.keys", "lvq.selector", "lvq.partitioner", SLICES),
    *(
        "lvq.group",
        "lvq.hideConsumed",
        "lvq.onForeignCommits",
        "lvq.consistency",
        "lvq.asOfPolicy",
        "lvq.asOf",
        "lvq.expired",
    ),
    *("lvq.asOf", "lvq.expired", "lvq.ttl", *TTL, "lvq.maxDelay", "lvq.groupHeader"),
    *("lvq.batchRows", "lvq.batchBytes", "lvq.memoryBytes", "lvq.extraColumns"),
)
"""Every option name, except ``kafka.`` plus a client property."""

_NO_GROUP = "no consumer group is joined. Omit it; to read what a group has not consumed, use lvq.group."
_RETRIED = "transient failures are retried until the request times out. Omit it."
REFUSED = {
    "subscribePattern": "a read covers one topic, and queues of several topics have nothing in common to conflate. "
    "Load them one by one.",
    "groupIdPrefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "fetchOffset.numRetries": _RETRIED,
    "fetchOffset.retryIntervalMs": _RETRIED,
    "minOffsetsPerTrigger": "Spark never has a Python data source wait for more. Use a trigger with an interval.",
    "maxTriggerDelay": "it belongs to minOffsetsPerTrigger.",
    "path": "a topic is not a path. Use subscribe, or queue for a declared queue.",
    "topic": "it is for writing, which lvq_spark.publish does. Use subscribe, or queue for a declared queue.",
    "lvq.spill": "anything beyond lvq.memoryBytes goes to a temporary file by itself. Omit it.",
    "lvq_key": "the column key already holds it. lvq.key says what that is.",
}
"""Options known from elsewhere, above all from Spark's Kafka connector, that are refused.

Each has the reason, and what to use instead.
"""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read. The repr hides secrets, as that of `ClientConfig` does.

    Args:
        config: the client configuration.
        topic: the topic; None if a declared ``queue`` names it.
        queue: a declared queue, whose topic, key header and policies come from the registry.
        address: the address by which it is named, if it is; a missing queue is read as that says.
        partitions: the partitions to read; None for all.
        start, end: the start and the end of the read; None if not given.
        or_latest: start at the end instead of failing if no record is as new as ``start``.
        include_headers, extra_columns: additions to the seven columns of the schema.
        fail_on_data_loss: whether lost offsets are an error, or are skipped.
        patience: seconds without any progress until reading fails.
        conflate: whether there is a row for each key, or for each record.
        key_header, key_mismatch: the source of a record's key; see `lvq_kafka.QueueDefinition`.
        deletes: whether deletes have rows; None if not given.
        keyless, strays, keys: see `lvq_spark.scan.scanning.Scan`.
        selector: the condition that messages must meet, in addition to that of a declared ``queue``; None if not given.
        partitioner: the partitioner that every writer of the topic uses; None if not given. It decides which keys are
            ``strays``, and lets a read of ``keys`` skip all but their home partitions.
        ttl: how long messages live; None if a declared ``queue`` says that, or if they do not expire.
        max_delay: the longest time, in seconds, by which a message may be scheduled ahead; None if a declared ``queue``
            says that, or if none may.
        group_header: the header that names the group of a message; None if a declared ``queue`` says that, or if there
            are no groups.
        as_of: the time at which they have expired or not, and are due or not, in seconds since the epoch; None if not
            given.
        keep_expired: whether a value that has expired has a row like any other.
        group: show only what this group has not consumed; ``hide_consumed`` does the same with the queue's own group.
        min_partitions, max_records_per_partition: how many tasks to split the records among, if every record is read.
        slices: how many tasks read each partition, each for a part of its keys.
        max_offsets: the most offsets in a batch of a stream.
    """

    config: ClientConfig
    topic: str | None = None
    queue: str | None = None
    address: Address | None = None
    partitions: tuple[int, ...] | None = None
    start: OffsetsOrTimes | None = None
    end: OffsetsOrTimes | None = None
    or_latest: bool = False
    include_headers: bool = False
    extra_columns: tuple[str, ...] = ()
    fail_on_data_loss: bool = True
    patience: float = PATIENCE
    conflate: bool = True
    key_header: str | None = None
    key_mismatch: KeyMismatchPolicy = "record"
    deletes: bool | None = None
    keyless: Keyless = "pass"
    strays: Strays = "fail"
    keys: frozenset[bytes] | None = field(default=None, repr=False)
    selector: str | None = None
    partitioner: Partitioner | None = None
    ttl: Ttl | None = None
    max_delay: float | None = None
    group_header: str | None = None
    as_of: float | None = None
    keep_expired: bool = False
    group: str | None = None
    hide_consumed: bool = False
    on_foreign_commits: OnForeignCommits = "refuse"
    consistency: Consistency = "pinned"
    as_of_policy: AsOfPolicy = "fail"
    rows: int = ROWS
    bytes: int = BYTES
    memory: int = _MEMORY
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    max_offsets: int | None = None
    slices: int = 1
    given: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse and check Spark's option map.

        Raises:
            ConfigError: an option is unknown (the error names the nearest), malformed or refused, or options clash.
        """
        given = OptionMap(options, OPTIONS, REFUSED)
        address = _address(given)
        topic, queue, partitions = _subject(given) if address is None else (None, address.queue, None)
        key_header = _key_header(given)
        _check_clashes(given, key_header)
        conflate = given.choice("lvq.dedupe", ("partition", "none"), "partition") == "partition"
        timeout = given.number("kafkaConsumer.pollTimeoutMs")
        return cls(
            config=_client(given),
            topic=topic,
            queue=queue,
            address=address,
            partitions=partitions,
            start=_point(given, START),
            end=_point(given, END),
            or_latest=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error") == "latest",
            include_headers=given.boolean("includeHeaders", False),
            extra_columns=_extra_columns(given),
            fail_on_data_loss=given.boolean("failOnDataLoss", True),
            patience=PATIENCE if timeout is None else timeout / 1000,
            conflate=conflate,
            key_header=key_header,
            key_mismatch=given.choice(
                "lvq.keyMismatch", get_args(KeyMismatchPolicy), "record" if key_header is None else "header"
            ),
            deletes=_deletes(given),
            keyless=given.choice("lvq.nullKeys", get_args(Keyless), "pass"),
            strays=given.choice("lvq.strays", get_args(Strays), "fail"),
            keys=_keys(given),
            selector=_selector(given, address),
            partitioner=_partitioner(given),
            ttl=_ttl(given),
            max_delay=_max_delay(given),
            group_header=_group_header(given),
            as_of=round(seconds("lvq.asOf", given.text("lvq.asOf")), 3) if given.has("lvq.asOf") else None,
            keep_expired=given.choice("lvq.expired", ("delete", "keep"), "delete") == "keep",
            group=given.text("lvq.group") or None,
            hide_consumed=given.boolean("lvq.hideConsumed", False),
            on_foreign_commits=given.choice("lvq.onForeignCommits", get_args(OnForeignCommits), "refuse"),
            consistency=given.choice("lvq.consistency", get_args(Consistency), "pinned"),
            as_of_policy=given.choice("lvq.asOfPolicy", get_args(AsOfPolicy), "fail"),
            rows=given.number("lvq.batchRows") or ROWS,
            bytes=given.size("lvq.batchBytes", BYTES),
            memory=given.size("lvq.memoryBytes", _MEMORY),
            min_partitions=given.number("minPartitions"),
            max_records_per_partition=given.number("maxRecordsPerPartition"),
            max_offsets=given.number("maxOffsetsPerTrigger"),
            slices=given.number(SLICES) or 1,
            given=frozenset(name for name in OPTIONS if given.has(name)),
        )

    def refuse(self, why: Mapping[str, str]) -> None:
        """Refuse given options, each for its reason.

        Raises:
            ConfigError: one of them was given.
        """
        for name, reason in why.items():
            if name in self.given:
                raise ConfigError(f"{name} cannot be set: {reason}", options=[name])


def _client(given: OptionMap) -> ClientConfig:
    properties = given.client_properties()
    servers = properties.pop("bootstrap.servers", "")
    if not servers.strip():
        raise ConfigError(
            "No kafka.bootstrap.servers is given.",
            options=["kafka.bootstrap.servers"],
            hint='For example option("kafka.bootstrap.servers", "localhost:9092").',
        )
    try:
        return ClientConfig(servers, properties)
    except ConfigError as error:
        named = [f"kafka.{name}" for name in error.options]
        raise ConfigError(f"Among the options that begin with kafka.: {error}", options=named) from None


def _address(given: OptionMap) -> Address | None:
    """Return the address of a queue, if an option gives one.

    Raises:
        ConfigError: it is malformed, or has a replay period; says where.
    """
    if given.one_of("subscribe", "assign", *QUEUE) != _ADDRESS:
        return None
    address = parse_address(given.text(_ADDRESS))
    if address.replay_period is not None:
        error = ConfigError(
            f"{_ADDRESS} has a replay period, which is for browsers.",
            options=["replay_period"],
            hint="Leave it out. startingTimestamp starts at a time.",
        )
        raise address.placed(error)
    return address


def _selector(given: OptionMap, address: Address | None) -> str | None:
    """Return the condition of an option, or else of the address; with its subject."""
    conditions = [] if address is None or address.subject is None else [subject_condition(address.subject)]
    if given.has("lvq.selector"):
        conditions.append(check_selector(given.text("lvq.selector"), "lvq.selector"))
    elif address is not None and address.selector is not None:
        conditions.append(address.selector)
    return conditions[0] if len(conditions) == 1 else " AND ".join(f"({one})" for one in conditions) or None


def _subject(given: OptionMap) -> tuple[str | None, str | None, tuple[int, ...] | None]:
    """Return the topic, or the queue, and the partitions."""
    option = given.one_of("subscribe", "assign", *QUEUE)
    if option is None:
        raise ConfigError(
            "No option says what to read.",
            options=["subscribe", "assign", "queue"],
            hint='Name a topic, option("subscribe", "prices"), or a declared queue, option("queue", "prices").',
        )
    said = given.text(option)
    if option == "assign":
        topic, partitions = _assigned(said)
        return topic, None, partitions
    if "," in said:
        raise ConfigError(
            f"{option} is {said!r}, but a read covers one topic.", options=[option], hint="Load them one by one."
        )
    return (said, None, None) if option == "subscribe" else (None, said, None)


def _assigned(said: str) -> tuple[str, tuple[int, ...]]:
    wrong = ConfigError(f'assign is {said!r}, not JSON like {{"prices": [0, 1]}} of one topic.', options=["assign"])
    try:
        [(topic, numbers)] = read_json(said, once=True).items()
    except (ValueError, AttributeError):
        raise wrong from None
    if not isinstance(numbers, list) or not numbers or any(type(one) is not int or one < 0 for one in numbers):
        raise wrong
    return topic, tuple(sorted(set(numbers)))


def _key_header(given: OptionMap) -> str | None:
    said = given.text("lvq.key", "record")
    if said == "record":
        return None
    kind, separator, name = said.partition(":")
    name = name.strip()
    if kind != "header" or not separator or not name:
        raise ConfigError(
            f"lvq.key is {said!r}, neither record nor header:NAME.",
            options=["lvq.key"],
            hint="header:ticker takes the value of the header ticker for the key.",
        )
    return name


def _check_clashes(given: OptionMap, key_header: str | None) -> None:
    named = given.one_of(*QUEUE)
    if named is not None:
        for name in ("lvq.key", "lvq.keyMismatch", "lvq.ttl", *TTL, "lvq.maxDelay", "lvq.groupHeader"):
            _clash(given, named, name, f"The queue's definition says what {name} is.")
    else:
        if given.boolean("lvq.hideConsumed", False):
            raise ConfigError(
                "lvq.hideConsumed needs a queue.",
                options=["lvq.hideConsumed", "queue"],
                hint="Name the queue with the option queue, or a consumer group with lvq.group.",
            )
        if given.has("lvq.keyMismatch") and key_header is None:
            raise ConfigError(
                "lvq.keyMismatch needs a key header to disagree with.",
                options=["lvq.keyMismatch", "lvq.key"],
                hint="Set lvq.key to header:NAME.",
            )
    hides = given.one_of("lvq.group", "lvq.hideConsumed")
    if hides == "lvq.group" or given.boolean("lvq.hideConsumed", False):
        for name in START:
            _clash(given, str(hides), name, "A read with a group starts at the group's position.")
    if given.choice("lvq.dedupe", ("partition", "none"), "partition") == "partition":
        for name in SPLITS:
            if given.has(name):
                raise ConfigError(
                    f"{name} cannot go with lvq.dedupe=partition: one task must see all records of a key.",
                    options=[name, "lvq.dedupe"],
                    hint=f"{SLICES} has several tasks read a partition, each for a part of its keys. Or read every "
                    "record with lvq.dedupe=none.",
                )
    else:
        if given.has(SLICES):
            raise ConfigError(
                f"{SLICES} cannot go with lvq.dedupe=none: where every record is returned, no task holds keys.",
                options=[SLICES, "lvq.dedupe"],
                hint="minPartitions and maxRecordsPerPartition split the records among tasks, and each is read once.",
            )
        for name in ("lvq.asOf", "lvq.expired"):
            _clash(given, "lvq.dedupe=none", name, "Every record is returned, expired or not, due or not.")
    if given.choice("lvq.expired", ("delete", "keep"), "delete") == "keep":
        _clash(given, "lvq.expired=keep", "lvq.asOf", "Values are returned, expired or not.")


def _clash(given: OptionMap, one: str, other: str, why: str) -> None:
    if given.has(other):
        raise ConfigError(f"{one} and {other} are both given. {why}", options=[one, other])


def _point(given: OptionMap, names: tuple[str, str, str]) -> OffsetsOrTimes | None:
    name = given.one_of(*names)
    if name is None:
        return None
    if name.endswith("Offsets"):
        refused = EARLIEST if name == "endingOffsets" else None
        return Offsets.parse(name, given.text(name), refused=refused)
    return Times.parse(name, given.text(name))


def _ttl(given: OptionMap) -> Ttl | None:
    """Return how long the messages of a topic live, if the options say so."""
    limits: dict[str, Any] = {}
    for name, limit in TTL.items():
        if given.has(name):
            limits[limit] = _number(given.text(name))
            check_ttl(name, limits[limit])
    if not given.boolean("lvq.ttl", bool(limits)):
        for name in filter(given.has, TTL):
            _clash(given, "lvq.ttl=false", name, "Without a TTL there is no limit to it.")
        return None
    try:
        return Ttl(**limits)
    except ConfigError as error:
        names = [name for name, limit in TTL.items() if limit in error.options]
        raise ConfigError(f"{' and '.join(names)} contradict each other: {error}", options=names) from None


def _max_delay(given: OptionMap) -> float | None:
    """Return how far ahead messages of a topic may be scheduled, if an option says so."""
    if not given.has("lvq.maxDelay"):
        return None
    longest: float = _number(given.text("lvq.maxDelay"))
    check_max_delay("lvq.maxDelay", longest)
    return longest


def _group_header(given: OptionMap) -> str | None:
    """Return the header that names the group of a message of a topic, if an option says so."""
    return text("lvq.groupHeader", given.text("lvq.groupHeader")) if given.has("lvq.groupHeader") else None


def _number(said: str) -> Any:
    """Return a text as a number, or as it is if it is none."""
    try:
        return float(said)
    except ValueError:
        return said


def _extra_columns(given: OptionMap) -> tuple[str, ...]:
    names = tuple(filter(None, (name.strip() for name in given.text("lvq.extraColumns").split(","))))
    for name in names:
        if name not in EXTRA:
            raise ConfigError(
                f"lvq.extraColumns names {name!r}, not one of {', '.join(EXTRA)}.",
                options=["lvq.extraColumns"],
                hint="The column key has what lvq.key says, and headers come with includeHeaders=true.",
            )
    return tuple(dict.fromkeys(names))


def _deletes(given: OptionMap) -> bool | None:
    if not given.has("lvq.tombstones"):
        return None
    return given.choice("lvq.tombstones", ("drop", "keep"), "drop") == "keep"


def _keys(given: OptionMap) -> frozenset[bytes] | None:
    if not given.has("lvq.keys"):
        return None
    said = given.text("lvq.keys")
    texts = [key.strip() for key in said.split(",")]
    try:
        if "" not in texts and not set(said) & set('[]{}"'):
            return frozenset(key.encode() for key in texts)
        return frozenset(base64.b64decode(key, validate=True) for key in _texts(read_json(said)))
    except ValueError:
        raise ConfigError(
            "lvq.keys is neither a comma-separated list of keys as text nor a JSON list of keys in base64.",
            options=["lvq.keys"],
            hint='For the keys IBM and MSFT, give IBM,MSFT or ["SUJN", "TVNGVA=="]. Keys with a comma, a quote or a '
            "bracket need base64.",
        ) from None


def _partitioner(given: OptionMap) -> Partitioner | None:
    if not given.has("lvq.partitioner"):
        return None
    if not given.has("lvq.keys") and given.choice("lvq.strays", get_args(Strays), "fail") == "pass":
        raise ConfigError(
            "lvq.partitioner has no effect if lvq.strays is pass and there are no lvq.keys.",
            options=["lvq.partitioner", "lvq.strays"],
            hint="Omit one of them.",
        )
    return given.choice("lvq.partitioner", get_args(Partitioner), JAVA)


def _texts(keys: object) -> list[str]:
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError("not a list of texts")
    return keys
