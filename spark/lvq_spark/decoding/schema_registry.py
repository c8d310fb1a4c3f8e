"""The schemas of a subject, read from a schema registry by confluent-kafka's own client."""

from __future__ import annotations

import logging
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any, Literal, NamedTuple, Protocol

from pyspark.sql.types import DataType

from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import brief, listed
from lvq_kafka.core.text.validation import delays, text
from lvq_kafka.errors import AuthenticationFailed, ConfigError, LVQError, TransportError
from lvq_kafka.kafka.threads import in_thread
from lvq_kafka.runtime.extras import needing
from lvq_spark.decoding.avro_names import count_fields, whole
from lvq_spark.decoding.json_types import spark_type
from lvq_spark.decoding.protobuf_message import BUILT_IN, ProtobufFiles, ProtobufMessage

__all__ = ["Form", "SubjectSchemas", "WriterSchema", "read_subject"]

Form = Literal["bytes", "text", "json", "avro", "protobuf"]
"""The encoding of values."""

_FORMS: Mapping[str, Form] = {"JSON": "json", "AVRO": "avro", "PROTOBUF": "protobuf"}

_LONGEST = 4 << 20
"""The most characters of a schema, with those that it refers to. A registry's topic usually holds 1 MB of each."""

_MOST_FIELDS = 10_000
"""The most fields of a schema, after each use of a type is one more copy of it, as in Spark's types."""

_MOST_REFERENCES = 1_000

_MOST_VERSIONS = 200
"""The most versions of a subject that are read. Each of Avro's is an expression in Spark's plan."""

_BUSY = (408, 429)
"""Statuses below 500 that pass: request timeout, and too many requests."""

logger = logging.getLogger("lvq_spark")


class RegistryClient(Protocol):
    """The part of confluent-kafka's ``SchemaRegistryClient`` that is needed here."""

    def config(self) -> Any:
        """Return the configuration, a dict."""

    def get_versions(self, subject_name: str, deleted: bool = ...) -> list[int]:
        """Return the versions of a subject."""

    def get_version(self, subject_name: str, version: int, deleted: bool = ..., fmt: str | None = ...) -> Any:
        """Return a version, a ``RegisteredSchema``."""


class WriterSchema(NamedTuple):
    """A schema, as far as reading its values needs it.

    Args:
        guid: the schema's other name, which a value may have in place of the id; None if the registry gives none.
        schema: Avro's text, with the types of other subjects inlined.
        frames: what Protobuf's serializers write before a value, without the id: where its message is in the file.
        damage: why such values cannot be read; empty if they can be.
    """

    guid: str | None
    schema: str = ""
    frames: tuple[bytes, ...] = ()
    damage: str = ""


@dataclass(frozen=True, slots=True)
class SubjectSchemas:
    """The schemas that the values of a subject have been written with.

    `read_subject` returns them. They know neither the registry nor its secrets.

    Args:
        subject: its name, usually ``<topic>-value``.
        form: the encoding of its values.
        reader: what values become, as `decode` takes it without a registry: an Avro schema, a Spark type, or a
            Protobuf message.
        writers: each of its schemas, by the registry's id.
    """

    subject: str
    form: Form
    reader: str | DataType | ProtobufMessage = field(repr=False)
    writers: Mapping[int, WriterSchema] = field(repr=False)


def read_subject(
    client: RegistryClient, subject: str, *, reader: str | DataType | None = None, timeout: float = 30.0
) -> SubjectSchemas:
    """Read all schemas of a subject, including those of deleted versions.

    Only this call asks the registry, in the process that makes it; tasks do not::

        client = SchemaRegistryClient({"url": "https://registry:8081", "basic.auth.user.info": "me:s3cret"})
        prices = decode(snapshot(spark, queue), "avro", read_subject(client, "prices-value"))

    Versions registered later are not included: call this again. In a stream, the function for ``foreachBatch`` can do
    that for each batch; the client remembers the versions that it has.

    A schema that cannot be used makes bad rows of the values that name it, and of no others: it is malformed, of
    another encoding than the newest, refers to one that is gone, or has more than 10,000 fields or 4 MB of text.

    Args:
        client: confluent-kafka's ``SchemaRegistryClient``, of the extra ``registry``. It has the addresses, logins,
            certificates and retries.
        subject: its name, usually ``<topic>-value``, with its context if it is in one: ``:.eu:prices-value``.
        reader: what values become, in place of what the newest version says: for Avro a schema, as text; for JSON
            Schema a Spark type, such as ``"price double, at timestamp"``; for Protobuf a message's full name (by
            default, the first in the file).
        timeout: the most seconds that all this may take, with the client's retries.

    Raises:
        ConfigError: the client is none of confluent-kafka's, or its address has a password; there is no such subject;
            or its newest schema cannot be used, and ``reader`` does not replace it.
        AuthenticationFailed: the registry refuses the login.
        TransportError: the registry cannot be reached, refuses, or does not answer in time.
        MissingExtra: a package of the extra ``registry`` is not installed.
    """
    text("subject", subject)
    delays(timeout=timeout)
    if not isinstance(reader, str | DataType | None):
        raise ConfigError(
            f"The reader is a {type(reader).__name__}.",
            options=["reader"],
            hint="Give an Avro schema as text, a Spark type, or a message's name.",
        )
    hosts = _checked(client)
    reading = in_thread(lambda: _asked(hosts, subject, lambda: _read(client, subject, reader)), "lvq-registry")
    try:
        return reading.result(timeout)
    except TimeoutError:
        raise TransportError(
            f"The schema registry {hosts} has not answered within {timeout:g} s.", code="_TIMED_OUT", retriable=True
        ) from None


def _checked(client: object) -> str:
    """Return the hosts of a client."""
    with needing("registry", "A schema registry"):
        from confluent_kafka.schema_registry import SchemaRegistryClient

    if not isinstance(client, SchemaRegistryClient):
        raise ConfigError(
            f"The client is a {type(client).__name__}, not a SchemaRegistryClient of confluent_kafka.schema_registry.",
            options=["client"],
            hint='Give SchemaRegistryClient({"url": "http://..."}), the one without asyncio.',
        )
    config: Mapping[str, Any] = client.config()  # type: ignore[no-untyped-call]
    addresses = [urllib.parse.urlsplit(one.strip()) for one in str(config["url"]).split(",")]
    if any(address.password is not None for address in addresses):
        raise ConfigError(
            "The client's url holds a password, which its HTTP library logs.",
            options=["client"],
            hint='Give it as "basic.auth.user.info": "user:password".',
        )
    return listed([address.hostname or "" for address in addresses])


def _asked(hosts: str, subject: str, ask: Callable[[], SubjectSchemas]) -> SubjectSchemas:
    """Ask, and make an error of this library of whatever goes wrong.

    No text of the client's errors is passed on, except an operating system's: some quote what was sent.
    """
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    try:
        return ask()
    except LVQError:
        raise
    except SchemaRegistryError as error:
        status = error.http_status_code
        if status == 404:
            raise ConfigError(f"The schema registry {hosts} has no {subject}.", options=["subject"]) from None
        kind = AuthenticationFailed if status in (401, 403) else TransportError
        raise kind(
            f"The schema registry {hosts} refused with {status}.",
            code=f"HTTP_{status}",
            retriable=status >= 500 or status in _BUSY,
        ) from None
    except OAuthTokenError:
        raise AuthenticationFailed(
            f"There is no token for the schema registry {hosts}: its issuer gave none.", code="_AUTHENTICATION"
        ) from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # no JSON, or JSON of another shape
        raise TransportError(f"The server at {hosts} is not a schema registry.", code="_BAD_MSG") from None
    except Exception as error:  # noqa: BLE001  # those of the client's HTTP library
        raise TransportError(
            f"The schema registry {hosts} cannot be reached: {_reason(error)}.", code="_TRANSPORT", retriable=True
        ) from None


def _reason(error: BaseException) -> str:
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError):
            return str(below)
        below = below.__cause__ or below.__context__
    return type(error).__name__


def _read(client: RegistryClient, subject: str, reader: str | DataType | None) -> SubjectSchemas:
    found, newest = _versions(client, subject)
    kind = _kind(newest)
    if kind not in _FORMS:
        raise ConfigError(f"The newest schema of {subject} is {brief(kind)}, which is unknown.", options=["subject"])
    form = _FORMS[kind]
    try:
        target = _target(client, newest, form, reader)
    except _Unusable as why:
        raise ConfigError(
            f"The newest schema of {subject}, {newest.schema_id}, {why}.",
            options=["subject"],
            hint="Give another one as reader.",
        ) from None
    writers = {index(one.schema_id): _writer(client, one, form, target) for one in found}
    return SubjectSchemas(subject, form, target, writers)


def _versions(client: RegistryClient, subject: str) -> tuple[list[Any], Any]:
    """Return the versions of a subject, and its newest.

    That is a deleted one only if there are no others.
    """
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    def ask(what: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return what(*arguments)
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                raise
            return None

    numbers = sorted(map(index, client.get_versions(subject, deleted=True)))
    if len(numbers) > _MOST_VERSIONS:
        logger.warning(
            "%s has %s versions; the newest %s are read, and values of others are bad rows",
            *(subject, len(numbers), _MOST_VERSIONS),
        )
    live = [index(number) for number in ask(client.get_versions, subject) or ()]
    found = {number: ask(_version, client, subject, number) for number in numbers[-_MOST_VERSIONS:]}
    there = {number: one for number, one in found.items() if one is not None}  # others were deleted for good meanwhile
    if not there:
        raise ConfigError(f"The schema registry has no {subject}.", options=["subject"])
    return list(there.values()), there[max(there.keys() & live or there)]


def _version(client: RegistryClient, subject: str, version: int) -> Any:
    # Serialized is what Protobuf's is called that programs can read; registries ignore it for other schemas.
    return client.get_version(subject, version, deleted=True, fmt="serialized")


def _kind(registered: Any) -> str:
    return str(registered.schema.schema_type or "AVRO")


class _Unusable(Exception):
    """A schema cannot be used; says why, as the end of a sentence about it."""


def _parsed(client: RegistryClient, registered: Any, form: Form) -> Any:
    """Return what is needed of a schema: Avro's text, JSON's Spark type, or Protobuf's files.

    Raises:
        _Unusable: it is not of that encoding, malformed, or too large, or one that it refers to is missing.
    """
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    kind = _kind(registered)
    if _FORMS.get(kind) != form:
        raise _Unusable(f"is {brief(kind)}, not {form}")
    try:
        referred = _referred(client, registered.schema)
    except SchemaRegistryError as error:
        if error.http_status_code != 404:
            raise
        raise _Unusable("refers to one that the registry does not have") from None
    try:
        return _PARSERS[form](str(registered.schema.schema_str), referred)
    except RecursionError:
        raise _Unusable("is nested too deeply") from None
    except (KeyError, TypeError, AttributeError):  # JSON of another shape
        raise _Unusable("is malformed") from None
    except ValueError as why:
        raise _Unusable(str(why)) from None


def _referred(client: RegistryClient, schema: Any) -> dict[str, str]:
    """Return the texts of all schemas that a schema refers to, by the names in its references."""
    found: dict[str, str] = {}
    waiting, length = [schema], len(str(schema.schema_str))
    while waiting:
        for reference in waiting.pop().references or ():
            if reference.name in found or str(reference.name).startswith(BUILT_IN):
                continue
            other = _version(client, reference.subject, index(reference.version)).schema
            found[reference.name] = str(other.schema_str)
            length += len(found[reference.name])
            waiting.append(other)
            if len(found) > _MOST_REFERENCES:
                raise _Unusable(f"refers to more than {_MOST_REFERENCES:,} others")
    if length > _LONGEST:
        raise _Unusable(f"is longer than {_LONGEST >> 20} MB, with those that it refers to")
    return found


def _parse_avro(schema: str, referred: Mapping[str, str]) -> str:
    try:
        inlined = whole(schema, referred.values()) if referred else schema
        fields = count_fields(read_json(inlined))
    except ValueError as why:
        raise ValueError(f"is not JSON: {why}") from None
    _check_size(fields)
    return inlined


def _parse_json(schema: str, referred: Mapping[str, str]) -> DataType:
    return spark_type(schema, referred, _MOST_FIELDS)


_PARSERS: Mapping[Form, Callable[[str, Mapping[str, str]], Any]] = {
    "avro": _parse_avro,
    "json": _parse_json,
    "protobuf": ProtobufFiles,
}


def _check_size(fields: int) -> None:
    if fields > _MOST_FIELDS:
        raise ValueError(f"has more than {_MOST_FIELDS:,} fields")


def _target(
    client: RegistryClient, newest: Any, form: Form, reader: str | DataType | None
) -> str | DataType | ProtobufMessage:
    """Return what values become."""
    if form == "json":
        return _parsed(client, newest, form) if reader is None else reader
    if isinstance(reader, DataType):
        raise ConfigError(f"The values are {form}, which no Spark type describes.", options=["reader"])
    if form == "avro":
        return _parsed(client, newest, form) if reader is None else reader
    files: ProtobufFiles = _parsed(client, newest, form)
    try:
        name = files.first() if reader is None else reader
        _check_size(files.count_fields(name))
        return files.message(name)
    except ValueError as why:
        raise _Unusable(str(why)) from None


def _writer(
    client: RegistryClient, registered: Any, form: Form, target: str | DataType | ProtobufMessage
) -> WriterSchema:
    """Return how to read what a schema's values became."""
    guid = None if registered.guid is None else str(registered.guid)
    try:
        if form == "json":  # values are read by the type alone
            if _FORMS.get(_kind(registered)) != form:
                raise _Unusable(f"is {brief(_kind(registered))}, not {form}")
            return WriterSchema(guid)
        parsed = _parsed(client, registered, form)
        if isinstance(target, ProtobufMessage):
            return WriterSchema(guid, frames=_frames(parsed.path(target.name)))
        return WriterSchema(guid, schema=parsed)
    except (_Unusable, ValueError) as why:
        return WriterSchema(guid, damage=str(why))


def _frames(path: tuple[int, ...]) -> tuple[bytes, ...]:
    from confluent_kafka.schema_registry.serde import SchemaId

    written = SchemaId("PROTOBUF", 0, message_indexes=list(path)).id_to_bytes()[5:]
    return (written, b"\2\0") if path == (0,) else (written,)  # the first message has a short form
