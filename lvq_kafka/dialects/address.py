"""An address: a queue, what to declare if it is missing, and how to read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from lvq_kafka.core.queue.default_filters import check_selector
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.option_names import Fixed, option_named
from lvq_kafka.core.queue.option_values import REPLAY_PERIOD, boolean
from lvq_kafka.core.queue.queue_options import GivenOptions
from lvq_kafka.core.queue.queue_request import QueueRequest
from lvq_kafka.core.text.excerpts import excerpt, place_in
from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import abridged, brief, quoted
from lvq_kafka.dialects.map_syntax import MapSyntaxError, write_value, write_word
from lvq_kafka.errors import ConfigError

__all__ = [
    "COME_AND_GO",
    "Address",
    "AddressDraft",
    "AddressMode",
    "LinkPolicy",
    "LinkRole",
    "check_text",
    "subject_condition",
]

LinkRole = Literal["sender", "receiver"]
LinkPolicy = Literal["always", "sender", "receiver", "never"]
AddressMode = Literal["browse", "consume"]

COME_AND_GO = "queues do not come and go with a client"
"""The reason against all that ties a queue to a client."""

_SECRET = re.compile(
    r"""^\s*[a-z][a-z0-9+.:-]*://[^?\s]*@ | ://[^/?\s]*@  # what is before a host
    | ^[^;/?{}:]*:[^;/?{}]*@  # a name with a user's
    | (?:passw(?:or)?d|passphrase)['"]?\s*[:=]""",
    re.IGNORECASE | re.VERBOSE,
)
"""Each way to match takes steps in proportion to the text, however it begins."""

_SUBJECT_HEADER = "qpid.subject"
_PARTS = {"headers": "subject"}  # by option of a reader, the part of an address that sets it
_LONGEST = 65_536  # characters
_LONGEST_PERIOD = 1e9  # seconds


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Address:
    """A queue, what to declare if it is missing, and how to read it.

    Its text, ``str(address)``, is in Qpid's syntax, whatever the system it came from.

    Args:
        queue: the queue's name.
        topic: its topic; None if the address names none, and a new queue gets one of its own name.
        options: the options of a queue by name, as `QueueDefinition.from_options` takes them.
        subject: the value of the header ``qpid.subject`` of the messages that receivers select.
        create: the links for which a missing queue is declared.
        check: the links for which a queue must be as the address says (``assert``).
        mode: how receivers read; None if the address does not say.
        selector: the condition by which receivers select.
        replay_period: the replay period of receivers that browse, in seconds.
        reliability: the reliability of its links, as Qpid names it.
        text: the address as it was written.
        places: by option, its place in the text.
    """

    queue: str
    topic: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    subject: str | None = None
    create: LinkPolicy = "never"
    check: LinkPolicy = "never"
    mode: AddressMode | None = None
    selector: str | None = None
    replay_period: float | None = None
    reliability: str | None = None
    text: str = field(default="", compare=False)
    places: Mapping[str, int] = field(default_factory=dict, compare=False)

    __repr__ = abridged

    def __str__(self) -> str:
        arguments = {REPLAY_PERIOD: self.replay_period}
        link = {
            "reliability": self.reliability,
            "selector": self.selector,
            "x-subscribe": {"arguments": {name: said for name, said in arguments.items() if said is not None}},
        }
        parts: Mapping[str, object] = {
            "create": None if self.create == "never" else self.create,
            "assert": None if self.check == "never" else self.check,
            "mode": self.mode,
            "node": {"x-declare": {"arguments": self.options}} if self.options else None,
            "link": {name: said for name, said in link.items() if said not in (None, {"arguments": {}})} or None,
        }
        said = {name: part for name, part in parts.items() if part is not None}
        named = self.queue if self.topic is None else f"{self.topic}::{self.queue}"
        subject = "" if self.subject is None else f"/{write_word(self.subject)}"
        # Without braces, topic::queue is an address of Artemis, which creates.
        return f"{named}{subject}{f'; {write_value(said)}' if said or self.topic is not None else ''}"

    def creates(self, role: LinkRole) -> bool:
        """Return whether a missing queue is declared for a link."""
        return self.create in ("always", role)

    def checks(self, role: LinkRole) -> bool:
        """Return whether a link requires the queue to be as the address says."""
        return self.check in ("always", role)

    def definition(self, *, complete: bool = True) -> QueueDefinition:
        """Return the definition of the queue that this address declares.

        Args:
            complete: False if no option has to name the key header.

        Raises:
            ConfigError: an option is unknown or malformed, or options clash; says where the option stands.
        """
        try:
            return QueueDefinition.from_options(self.queue, self.options, topic=self.topic, record_key=not complete)
        except ConfigError as error:
            raise self.placed(error) from None

    def request(self) -> QueueRequest:
        """Return the queue that this address asks for, which settings may complete."""
        return QueueRequest(self.queue, self.topic or self.queue, {}, self.options)

    @property
    def selection(self) -> dict[str, Any]:
        """The selection of receivers, as options of a browser."""
        headers = None if self.subject is None else {_SUBJECT_HEADER: self.subject}
        found = {"replay_period": self.replay_period, "selector": self.selector, "headers": headers}
        return {name: said for name, said in found.items() if said is not None}

    def placed(self, error: ConfigError, *, in_definition: bool = False) -> ConfigError:
        """Return an error about options with their place in this address.

        It is the same error if it is about something else.

        Args:
            in_definition: whether it is about fields of the definition, and not about a link.
        """
        if in_definition:
            error = error.of_options(GivenOptions(self.options).setters)
        parts = (_PARTS.get(option, option) for option in error.options)
        at = next((self.places[part] for part in parts if part in self.places), None)
        return error if at is None else _placed(error, self.text, at)

    def differences(self, declared: QueueDefinition) -> dict[str, tuple[object, object]]:
        """Return where a queue differs from what this address says of it.

        These are fields of a definition, as pairs of the declared value and that of the address.
        """
        usual = QueueDefinition(name=self.queue, topic=self.queue, key_header=None).as_row()
        asked = self.definition(complete=False).as_row()
        said = {name for name, value in asked.items() if value != usual[name]}
        said |= GivenOptions(self.options).mentioned
        if self.topic is not None:
            said.add("topic")
        found = declared.as_row()
        return {name: (found[name], asked[name]) for name in found if name in said and found[name] != asked[name]}


def subject_condition(subject: str) -> str:
    """Return the selector of messages that have a subject."""
    quoted_subject = subject.replace("'", "''")
    return f"\"{_SUBJECT_HEADER}\" = '{quoted_subject}'"


def _where(text: str, at: int) -> str:
    place = place_in(text, at)
    return f"{place[0].upper()}{place[1:]} of the address"


def _placed(error: ConfigError, text: str, at: int) -> ConfigError:
    return error.in_text(_where(text, at), excerpt(text, at))


def check_text(text: str) -> None:
    """Check the text of an address before an error shows a part of it.

    Raises:
        ConfigError: it is too long, or holds a secret.
    """
    if len(text) > _LONGEST:
        raise ConfigError(f"The address has {len(text):,} characters; {_LONGEST:,} are allowed.", options=["address"])
    if _SECRET.search(text):
        raise ConfigError(
            "The address holds a user or a password.",
            options=["address"],
            hint="An address names a queue. The brokers and how to log in there belong to the configuration of the "
            "client: config={...}, or a file for --config.",
        )


class AddressDraft:
    """An address that is being read: what was found so far, with its places.

    Raises what `check_text` raises.
    """

    def __init__(self, text: str) -> None:
        check_text(text)
        self.text = text
        self._found: dict[str, Any] = {}
        self._options: dict[str, object] = {}
        self._places: dict[str, int] = {}

    def wrong(self, what: str, at: int, hint: str = "", *, option: str = "") -> ConfigError:
        """Return an error about a place in the text."""
        message = f"{_where(self.text, at)}: {what}.\n{excerpt(self.text, at)}\n"
        return ConfigError(message, options=["address", *filter(None, [option])], hint=hint)

    def malformed(self, error: MapSyntaxError) -> ConfigError:
        """Return the error of a user for one of syntax."""
        return self.wrong(str(error), error.at, error.hint)

    def unknown(self, name: str, at: int, where: str, known: Mapping[str, object]) -> ConfigError:
        """Return the error for a name that means nothing in its place."""
        near = nearest(name, known)
        hint = f"Did you mean {near[0]}?" if near else f"Known are {', '.join(known)}."
        return self.wrong(f"{brief(name)} is unknown {where}", at, hint, option=name)

    def refused(self, name: str, at: int, reason: str, hint: str) -> ConfigError:
        """Return the error for a part that no queue of this library can have."""
        return self.wrong(f"{name} has no meaning here, since {reason}", at, hint, option=name)

    def note(self, part: str, value: object, at: int, name: str = "") -> None:
        """Note a part of the address that is not an option of the queue.

        Args:
            name: what the system calls it.

        Raises:
            ConfigError: something else was noted for it.
        """
        if self._found.setdefault(part, value) != value:
            what = f"{name or part} is {quoted(value)}, but the address also says {quoted(self._found[part])}"
            raise self.wrong(what, at, "Give one.", option=name)
        self._places.setdefault({"queue": "name"}.get(part, part), at)

    def name(self, text: str, at: int) -> None:
        """Note the name of the queue, which may be ``topic::queue``."""
        topic, separator, queue = text.rpartition("::")
        self.note("queue", queue, at)
        if separator:
            if not topic:
                raise self.wrong("expected the name of a topic before ::", at)
            self.note("topic", topic, at)

    def option(self, name: str, value: object, at: int) -> None:
        """Note an option of the queue, unless it asks for what always holds.

        Raises:
            ConfigError: no queue of this library can have it, or it was given already.
        """
        if name in self._options:
            raise self.wrong(f"{brief(name)} is given twice", at, "Give it once.", option=name)
        row = option_named(name)
        if row is not None and isinstance(row.meaning, Fixed):
            try:
                row.meaning.check(name, value)
            except ConfigError as error:
                raise _placed(error, self.text, at) from None
            return
        self._options[name] = value
        self._places[name] = at

    def chosen(self, name: str, value: object, at: int, kind: Any) -> Any:
        """Return a value that is one of some words."""
        words = get_args(kind)
        if isinstance(value, str) and value.lower() in words:
            return value.lower()
        raise self.wrong(f"{name} is {_shown(value)}", at, f"Choose one of {', '.join(words)}.", option=name)

    def truth(self, name: str, value: object, at: int) -> bool:
        """Return a value as true or false, whatever its spelling (R3)."""
        try:
            return boolean(name, value)
        except ConfigError:
            raise self.wrong(f"{name} is {_shown(value)}, neither true nor false", at, option=name) from None

    def select(self, name: str, value: object, at: int) -> None:
        """Note the condition by which receivers select."""
        try:
            check_selector(value, name)
        except ConfigError as error:
            raise _placed(error, self.text, at) from None
        self.note("selector", value, at, name)

    def replay(self, name: str, value: object, at: int) -> None:
        """Note the replay period of receivers. Text is read as a number."""
        try:
            period = float(str(value))
        except ValueError:
            period = -1.0
        if not 0 <= period < _LONGEST_PERIOD:
            raise self.wrong(f"{name} is {_shown(value)}", at, "Give a number of seconds, 0 or more.", option=name)
        self.note("replay_period", period, at, name)

    def finish(self) -> Address:
        """Return the address.

        Raises:
            ConfigError: an option is unknown or malformed, or options clash.
        """
        address = Address(**self._found, options=self._options, text=self.text, places=self._places)
        address.definition(complete=False)
        return address


def _shown(value: object) -> str:
    return "a map" if isinstance(value, dict) else "a list" if isinstance(value, list) else quoted(value)
