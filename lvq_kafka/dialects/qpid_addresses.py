"""Addresses of Qpid's messaging API: ``name/subject; {create: always, node: {...}}``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from lvq_kafka.core.queue.option_values import REPLAY_PERIOD, SELECTORS
from lvq_kafka.dialects.address import COME_AND_GO, Address, AddressDraft, AddressMode, LinkPolicy
from lvq_kafka.dialects.map_syntax import MapSyntaxError, Part, parse_map, plain, read_quoted

__all__ = ["parse_qpid_address"]

_HEAD = re.compile(
    r"""\s*(?:(?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*') | (?P<name>[^;/{}\s]*?))
    \s*(?:/\s*(?P<subject>"[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*' | [^;]*?)\s*)?
    (?P<rest>$|;|:(?=\s*\{))""",
    re.DOTALL | re.VERBOSE,
)
_SELECTOR_DESCRIPTORS = ("apache.org:selector-filter:string", 0x0000468C00000004)
_NO_EXCHANGE = "there are no exchanges"
_BIND = "All queues on one topic get its messages. TOPIC::QUEUE; {create: always, ...} makes another queue on a topic."

Reader = Callable[[Part, str], None]


def parse_qpid_address(text: str) -> Address:
    """Parse an address of Qpid.

    A queue's name may be ``topic::queue``, as in Artemis. A colon may stand in the place of the semicolon.

    Raises:
        ConfigError: it is malformed, or asks for something that no queue of this library has; says where.
    """
    draft = AddressDraft(text)
    try:
        return _QpidAddress(draft).parse()
    except MapSyntaxError as error:
        raise draft.malformed(error) from None


class _QpidAddress:
    def __init__(self, draft: AddressDraft) -> None:
        self._draft = draft

    def parse(self) -> Address:
        draft, text = self._draft, self._draft.text
        start = len("ADDR:") if text.startswith("ADDR:") else 0
        head = _HEAD.match(text, start)
        if head is None:
            at = next((at for at in range(start, len(text)) if text[at] in "{} '\""), start)
            raise draft.wrong("expected the name of a queue, and then ; or the end", at, "PRICES; {create: always}")
        at = head.start("quoted" if head["quoted"] else "name")
        self._name(read_quoted(head["quoted"], at) if head["quoted"] else head["name"], at)
        if head["subject"] is not None:
            at, subject = head.start("subject"), head["subject"]
            if not subject:
                raise draft.wrong("expected a subject after /", at)
            draft.note("subject", read_quoted(subject, at) if subject[0] in "'\"" else subject, at)
        if head["rest"]:
            self._entries(
                parse_map(text, head.end()),
                "in an address",
                {
                    "create": self._policy("create"),
                    "assert": self._policy("check"),
                    "delete": self._delete,
                    "mode": self._mode,
                    "node": self._node,
                    "link": self._link,
                },
            )
        return draft.finish()

    def _name(self, name: str, at: int) -> None:
        if name.startswith("#"):
            raise self._draft.refused(name, at, COME_AND_GO, "Name the queue.")
        self._draft.name(name, at)

    def _entries(self, part: Part, where: str, readers: Mapping[str, Reader]) -> None:
        """Read the entries of a map, each by its name."""
        if not isinstance(part.value, dict):
            raise self._draft.wrong("expected {", part.at, f"Known are {', '.join(readers)}.")
        for name, inner in part.value.items():
            reader = readers.get(name)
            if reader is None:
                raise self._draft.unknown(name, inner.named_at, where, readers)
            reader(inner, name)

    # ---------------------------------------------------------------- the address

    def _policy(self, field: str) -> Reader:
        def read(part: Part, name: str) -> None:
            self._draft.note(field, self._draft.chosen(name, part.value, part.at, LinkPolicy), part.at, name)

        return read

    def _delete(self, part: Part, name: str) -> None:
        if self._draft.chosen(name, part.value, part.at, LinkPolicy) != "never":
            raise self._draft.refused(
                name, part.named_at, COME_AND_GO, "Drop it yourself: lvq drop, or LastValueQueue.drop."
            )

    def _mode(self, part: Part, name: str) -> None:
        self._draft.note(name, self._draft.chosen(name, part.value, part.at, AddressMode), part.at, name)

    # ---------------------------------------------------------------- the node

    def _node(self, part: Part, name: str) -> None:
        self._entries(
            part,
            "in node",
            {
                "type": self._type,
                "durable": self._option,
                "x-declare": self._declare,
                "x-bindings": self._refuse(_NO_EXCHANGE, _BIND),
            },
        )

    def _type(self, part: Part, name: str) -> None:
        if self._draft.chosen(f"{name} of node", part.value, part.at, Literal["queue", "topic"]) == "topic":
            raise self._draft.refused(
                "type: topic", part.named_at, _NO_EXCHANGE, "Name a queue; with mode: browse, each receiver gets all."
            )

    def _declare(self, part: Part, name: str) -> None:
        self._entries(
            part,
            "in x-declare",
            {
                "arguments": self._arguments,
                "durable": self._option,
                "exclusive": self._option,
                "auto-delete": self._option,
                "alternate-exchange": self._option,
            },
        )

    def _arguments(self, part: Part, name: str) -> None:
        if not isinstance(part.value, dict):
            raise self._draft.wrong("expected {", part.at, "For example arguments: {'qpid.last_value_queue_key': id}.")
        for option, inner in part.value.items():
            self._option(inner, option)

    # ---------------------------------------------------------------- the link

    def _link(self, part: Part, name: str) -> None:
        own = self._refuse("a receiver has no queue of its own", "Put it into node: {x-declare: {...}}.")
        self._entries(
            part,
            "in link",
            {
                "name": self._text,
                "durable": self._option,
                "reliability": self._reliability,
                "selector": self._selector,
                "filter": self._filter,
                "x-subscribe": self._subscribe,
                "x-declare": own,
                "x-bindings": self._refuse(_NO_EXCHANGE, _BIND),
            },
        )

    def _reliability(self, part: Part, name: str) -> None:
        kinds = Literal["unreliable", "at-most-once", "at-least-once", "exactly-once"]
        said = self._draft.chosen(name, part.value, part.at, kinds)
        if said == "at-most-once":
            hint = "Ask for at-least-once, and ack each message before you handle it."
            raise self._draft.refused(said, part.at, "messages are delivered again after a fault", hint)
        if said == "exactly-once":
            hint = "Ask for at-least-once, and use transactions: consumer.transaction()."
            raise self._draft.refused(said, part.at, "an ack says nothing of what your program wrote", hint)
        self._draft.note(name, said, part.at, name)

    def _selector(self, part: Part, name: str) -> None:
        self._draft.select(name, part.value, part.at)

    def _filter(self, part: Part, name: str) -> None:
        for inner in part.value if isinstance(part.value, list) else [part]:
            if not isinstance(inner.value, dict):
                hint = "Write selector: \"price > 100\", or filter: {descriptor: '...', value: '...'}."
                raise self._draft.wrong("a filter is a map", inner.at, hint)
            readers = {"name": self._text, "descriptor": self._descriptor, "value": self._selector}
            if missing := [name for name in ("descriptor", "value") if name not in inner.value]:
                raise self._draft.wrong(f"a filter needs a {missing[0]}", inner.at)
            self._entries(inner, "in filter", readers)

    def _descriptor(self, part: Part, name: str) -> None:
        if part.value not in _SELECTOR_DESCRIPTORS:
            hint = f"Known is {_SELECTOR_DESCRIPTORS[0]}."
            raise self._draft.wrong("this is not a filter that a queue has", part.at, hint)

    def _subscribe(self, part: Part, name: str) -> None:
        readers: dict[str, Reader] = {
            "arguments": lambda inner, _: self._entries(inner, "in arguments of x-subscribe", arguments),
            "exclusive": self._option,
        }
        arguments: dict[str, Reader] = {REPLAY_PERIOD: self._replay, **dict.fromkeys(SELECTORS, self._selector)}
        self._entries(part, "in x-subscribe", readers)

    def _replay(self, part: Part, name: str) -> None:
        self._draft.replay(name, part.value, part.at)

    # ---------------------------------------------------------------- entries of any map

    def _refuse(self, reason: str, hint: str) -> Reader:
        def read(part: Part, name: str) -> None:
            raise self._draft.refused(name, part.named_at, reason, hint)

        return read

    def _option(self, part: Part, name: str) -> None:
        self._draft.option(name, plain(part), part.named_at)

    def _text(self, part: Part, name: str) -> None:
        if not isinstance(part.value, str):
            raise self._draft.wrong(f"{name} takes a text", part.at, option=name)
