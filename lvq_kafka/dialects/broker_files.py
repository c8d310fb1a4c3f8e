"""The queues and settings that the configuration file of a broker describes.

That is Artemis's ``broker.xml``, or the attributes of queues in JSON, as Broker-J's REST interface has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lvq_kafka.core.queue.option_names import Fixed, option_named, unknown_option
from lvq_kafka.core.queue.settings_by_pattern import (
    ANY_WORDS,
    DELIMITERS,
    DYNAMIC_DURABLES,
    ONE_WORD,
    AddressPattern,
    AddressSetting,
)
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import brief, listed, quoted
from lvq_kafka.dialects.address import Address
from lvq_kafka.dialects.brokerj_attributes import parse_attributes
from lvq_kafka.dialects.xml_elements import Element, XmlError, parse_xml
from lvq_kafka.errors import ConfigError

__all__ = ["BrokerFile", "OmittedPart", "parse_broker_file"]

_LONGEST = 4_000_000  # bytes


@dataclass(frozen=True, slots=True)
class OmittedPart:
    """A part of a file that cannot be had here."""

    where: str
    """Its line and what it belongs to, for example ``line 12, queue orders1``."""
    reason: str
    """The reason, and what to do, in sentences."""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


@dataclass(slots=True)
class BrokerFile:
    """The content of a file, in its order.

    Args:
        settings: options for all queues whose topics match a pattern.
        queues: addresses that declare a queue each.
        left_out: what cannot be had here.
        unread: the names of sections about something else than queues.
    """

    settings: list[AddressSetting] = field(default_factory=list)
    queues: list[Address] = field(default_factory=list)
    left_out: list[OmittedPart] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


def parse_broker_file(content: bytes) -> BrokerFile:
    """Read the content of a broker's file.

    Raises:
        ConfigError: it is neither XML nor JSON of a known form, or has neither queues nor settings.
    """
    file = _read(content)
    if not (file.settings or file.queues or file.left_out):
        about = f"; it is about {listed(file.unread)}" if file.unread else ""
        raise ConfigError(
            f"The file describes no queue, and no setting{about}.",
            options=["from"],
            hint="Give Artemis's broker.xml, or the attributes of queues in JSON.",
        )
    return file


def _read(content: bytes) -> BrokerFile:
    if len(content) > _LONGEST:
        raise ConfigError(
            f"The file has {len(content):,} bytes; {_LONGEST:,} are allowed.",
            options=["from"],
            hint="Give a file that describes only queues.",
        )
    if content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return _read_attributes(content)
    try:
        return _XmlReader(parse_xml(content)).file
    except XmlError as error:
        raise ConfigError(
            f"Line {error.line:,} of the file: {error}.",
            options=["from"],
            hint="Give Artemis's broker.xml, or the attributes of queues in JSON.",
        ) from None


def _read_attributes(content: bytes) -> BrokerFile:
    """Read the attributes of a queue, or a list of them."""
    file = BrokerFile()
    try:
        text = content.decode("utf-8-sig")
        found = read_json(text, once=text.lstrip().startswith("["))  # one queue is read with places, below
    except ValueError as error:
        raise ConfigError(f"The file is not JSON: {error}.", options=["from"]) from None
    if isinstance(found, dict):  # as it was written, so that errors show their places in it
        file.queues.append(parse_attributes(text))
        return file
    for number, attributes in enumerate(found, 1):
        name = attributes.get("name") if isinstance(attributes, dict) else None
        where = f"queue {brief(name)}" if isinstance(name, str) else f"queue number {number:,}"
        try:
            if not isinstance(attributes, dict):
                raise ConfigError(f"{quoted(attributes)} is not the attributes of a queue.")
            file.queues.append(parse_attributes(json.dumps(attributes)))
        except ConfigError as error:
            file.left_out.append(OmittedPart(where, str(error)))
    return file


class _XmlReader:
    """Reads a ``broker.xml``."""

    def __init__(self, outermost: Element) -> None:
        self.file = BrokerFile()
        self._words = {"delimiter": ".", "any-words": ANY_WORDS, "single-word": ONE_WORD}
        # Its core is in <configuration>, and often also in files that it includes.
        core = next(iter(outermost.all("core")), outermost)
        sections = core.children if core.name in ("core", "configuration") else [core]
        for section in sections:
            if section.name == "wildcard-addresses":
                self._words |= {part.name: part.text.strip() for part in section.children if part.name in self._words}
        for section in sections:
            if section.name == "address-settings":
                for setting in section.all("address-setting"):
                    self._read_setting(setting)
            elif section.name == "addresses":
                for address in section.all("address"):
                    self._read_address(address)
            elif section.name == "diverts":
                for divert in section.children:
                    self._leave_out(divert, f"divert {brief(divert.attributes.get('name', ''))}", _NO_DIVERTS)
            elif section.name != "wildcard-addresses" and section.children:
                self.file.unread.append(section.name)

    def _leave_out(self, element: Element, what: str, reason: str) -> None:
        self.file.left_out.append(OmittedPart(f"line {element.line:,}, {what}", reason))

    # ---------------------------------------------------------------- settings

    def _read_setting(self, element: Element) -> None:
        match = element.attributes.get("match", "")
        what = f"address-setting {brief(match)}"
        options = {}
        for part in element.children:
            value = part.text.strip()
            if (wrong := _refusal(part.name, value)) is not None:
                self._leave_out(part, what, str(wrong))
            elif _sets(part.name):
                options[part.name] = value
        if not options:
            return
        try:
            self.file.settings.append(AddressSetting.of(self._pattern(match), options))
        except ConfigError as error:
            self._leave_out(element, what, str(error))

    def _pattern(self, match: str) -> AddressPattern:
        delimiter = self._words["delimiter"]
        if delimiter not in DELIMITERS:
            raise ConfigError(
                f"The file parts the words of addresses by {quoted(delimiter)}, which no topic's name has.",
                hint=f"Rename the queues, with one of {' '.join(DELIMITERS)} between the words.",
            )
        wild = {self._words["any-words"]: ANY_WORDS, self._words["single-word"]: ONE_WORD}
        words = [wild.get(word, word) for word in match.split(delimiter)]
        return AddressPattern(delimiter.join(words), delimiter)

    # ---------------------------------------------------------------- queues

    def _read_address(self, address: Element) -> None:
        topic = address.attributes.get("name", "")
        routed = [address, *address.all("anycast", "multicast")]
        queues = [queue for part in routed for queue in part.all("queue")]
        for queue in queues:
            name = queue.attributes.get("name", topic)
            try:
                self.file.queues.append(self._queue(name, topic, dict(_parts(queue))))
            except ConfigError as error:
                self._leave_out(queue, f"queue {brief(name)}", str(error))

    def _queue(self, name: str, topic: str, options: Mapping[str, str]) -> Address:
        for option, value in options.items():
            if (wrong := _refusal(option, value)) is not None:
                raise wrong
        given = {option: value for option, value in options.items() if _sets(option)}
        address = Address(queue=name, topic=None if topic == name else topic, options=given, create="always")
        address.definition(complete=False)
        return address


_NO_DIVERTS = (
    "Diverts copy messages from one address to another. Several queues may share a topic instead, each with a selector."
)


def _parts(queue: Element) -> Iterator[tuple[str, str]]:
    """Yield the options of a queue: its attributes but the name, and the elements in it."""
    for name, value in queue.attributes.items():
        if name != "name":
            yield name, value
    for part in queue.children:
        if part.name == "filter":
            yield "selector", part.attributes.get("string", part.text.strip())
        else:
            yield part.name, part.text.strip()


def _refusal(option: str, value: str) -> ConfigError | None:
    """Return the error for an option that cannot be had here, whatever the others are."""
    if option == DYNAMIC_DURABLES:
        return None
    row = option_named(option)
    if row is None:
        return unknown_option(option)
    if isinstance(row.meaning, Fixed):
        try:
            row.meaning.check(option, value)
        except ConfigError as error:
            return error
    return None


def _sets(option: str) -> bool:
    """Return whether an option sets something here, and is not what is always so."""
    row = option_named(option)
    return row is None or not isinstance(row.meaning, Fixed)
