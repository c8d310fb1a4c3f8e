"""The options of a declaration: what those that were given ask for together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lvq_kafka.core.queue.default_filters import DefaultFilters
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import GROUP_HEADER, Groups
from lvq_kafka.core.queue.option_names import (
    CHOICES,
    OPTION_NAMES,
    Fixed,
    Mapped,
    OptionName,
    option_named,
    unknown_option,
)
from lvq_kafka.core.text.nearest import folded
from lvq_kafka.core.text.quoting import brief, quoted
from lvq_kafka.core.text.validation import mapping
from lvq_kafka.core.timing.delay import check_max_delay
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError

__all__ = ["GivenOptions"]

_PLAIN = ("selector", "non_destructive", "max_deliveries", "dead_letters")
"""Fields that one option sets as it is."""

_RANKED = ("priority", "sorted")  # types of Broker-J that are orders in this library
_PARTS = ("ttl", "default_filters", "groups", "limits")
"""Arguments of `declare` that are objects, each with several options that set a part of it."""

_DECIDE: Mapping[str, tuple[str, ...]] = {
    "key_header": ("conflate",),
    "type": ("conflate", "order"),
    "priorities": ("order",),
    "sort_header": ("order",),
    "expiry_policy": ("expiry_topic",),
    "hold": ("max_delay",),
    "limits.resume_messages": ("limits.resume",),
    "limits.resume_bytes": ("limits.resume",),
}
"""By field or other word of the table, the fields that are decided with it."""

_DECIDED_BY = ("type", "priorities", "sort_header")
"""Words that `conflate` and `order` may follow from."""


class Said(NamedTuple):
    """An option that is given, its value, and what it asks for."""

    option: str
    value: object
    asks: Any


class GivenOptions:
    """Options by name, and the fields of a definition that they set together.

    Args:
        options: the options, in any system's words; those with None say nothing.
        arguments: the arguments of `declare` that hold together with them, by field. ``key_header`` None stands for
            the record key.

    Raises:
        ConfigError: an option is unknown, malformed or refused, each named as it was given.
    """

    def __init__(self, options: object, arguments: Mapping[str, Any] | None = None) -> None:
        self._options = dict(mapping("options", options, 'For example {"key-header": "ticker"}.'))
        self._arguments = dict(arguments or {})
        self._said: dict[str, list[Said]] = {}
        self._implied: dict[str, list[Said]] = {}
        plain = {field: value for field, value in self._arguments.items() if field not in _PARTS}
        for field, value in plain.items():
            if field in self._options and str(self._options[field]) != str(value):
                raise _disagree(field, value, field, self._options[field])
        self._record_key = plain.get("key_header", "") is None
        self._read({**plain, **self._options})
        key_header = self._said.get("key_header")
        if self._record_key and key_header:
            raise _disagree("key_header", None, key_header[0].option, key_header[0].value)

    def _read(self, given: Mapping[str, object]) -> None:
        """Read each option by its row of the table, and in the order of the table."""
        by_row: dict[str, list[tuple[str, object]]] = {}
        for option, value in given.items():
            row = option_named(option)
            if row is None:
                raise unknown_option(option)
            by_row.setdefault(row.name, []).append((option, value))
        for row in OPTION_NAMES:
            for option, value in by_row.get(row.name, ()):
                if value is not None:
                    self._read_option(row, option, value)

    def _read_option(self, row: OptionName, option: str, value: object) -> None:
        meaning = row.meaning
        if isinstance(meaning, Fixed):
            meaning.check(option, value)
            return
        asks = meaning.read(option, value)
        if meaning.sets == "default_filters":
            for field, part in asks.items():
                self._say(self._said, f"{meaning.sets}.{field}", Said(option, value, part))
            return
        self._say(self._said, meaning.sets, Said(option, value, asks))
        if asks is None or asks is False:
            return
        for heard, others in ((self._said, meaning.brings), (self._implied, meaning.implies)):
            for field, part in others.items():
                self._say(heard, field, Said(option, value, part))

    @staticmethod
    def _say(heard: dict[str, list[Said]], field: str, said: Said) -> None:
        heard.setdefault(field, []).append(said)

    def _one(self, field: str) -> Said | None:
        """Return the first option that sets a field; all must ask for the same."""
        said = self._said.get(field, [])
        for other in said[1:]:
            if other.asks != said[0].asks:
                raise disagreement(said[0], other)
        return said[0] if said else None

    def _asked(self, field: str) -> Any:
        """Return what the options ask of a field; None if they do not mention it."""
        said = self._one(field)
        return None if said is None else said.asks

    def _default(self, field: str, own: str, what: str) -> Said | None:
        """Return what options imply for a field that none of them sets.

        Args:
            own: our option for the field.
            what: what it names, for errors.
        """
        implied = self._implied.get(field, [])
        for other in implied[1:]:
            if other.asks != implied[0].asks:
                first = implied[0]
                raise ConfigError(
                    f"`{first.option}` stands for the {what} {quoted(first.asks)}, and `{other.option}` for "
                    f"{quoted(other.asks)}.",
                    options=[first.option, other.option],
                    hint=f"Name the {what}: `{own}`.",
                )
        return implied[0] if implied else None

    @property
    def setters(self) -> dict[str, tuple[str, object]]:
        """The option that sets each field of a definition or of its parts, and its value."""
        found = {field.rpartition(".")[2]: said[0] for field, said in reversed(self._said.items())}
        for field in ("conflate", "order"):
            said = next((self._said[word] for word in (field, *_DECIDED_BY) if word in self._said), None)
            if said is not None:
                found[field] = said[0]
        return {field: (said.option, said.value) for field, said in found.items()}

    @property
    def decided(self) -> set[str]:
        """The fields of a definition, and of its parts, that are not left open."""
        found = {field for field, said in self._said.items() if not (field == "ttl" and said[0].asks)}
        found |= self._arguments.keys()
        for field in tuple(found):
            found.update(_DECIDE.get(field, ()))
        if any(not said.asks for said in self._said.get("conflate", [])):
            found.add("key_header")  # it needs none
        return found

    def asked(self, field: str) -> Any:
        """Return what is asked of a plain field; None if nothing is."""
        return self._arguments.get(field, self._asked(field))

    @property
    def expires(self) -> bool:
        """True if the options let messages expire."""
        said = [said.asks for field, all_ in self._said.items() if field.partition(".")[0] == "ttl" for said in all_]
        return any(asks is not None and asks is not False for asks in (*said, self._arguments.get("ttl")))

    @property
    def mentioned(self) -> set[str]:
        """The fields that the options mention, also where they ask for what is usual."""
        return {field.partition(".")[0] for field in self._said}

    def fields(self, name: str, *, record_key: bool = False) -> dict[str, Any]:
        """Return the fields of the definition of a queue of this name.

        Args:
            name: the queue's name, for errors.
            record_key: True if no option has to name the key header.

        Raises:
            ConfigError: two options disagree, or one needs another; each is named as it was given.
        """
        chosen = self._key_and_order(name, record_key)
        chosen |= {field: self._asked(field) for field in (*_PLAIN, *_words())}
        chosen = {field: value for field, value in chosen.items() if value is not None or field == "key_header"}
        chosen["ttl"] = self._ttl()
        chosen["expiry_topic"] = self._expiry_topic()
        chosen["default_filters"] = self._default_filters()
        chosen["max_delay"] = self._max_delay()
        chosen["groups"] = self._groups()
        chosen["limits"] = self._limits()
        for field, value in self._arguments.items():
            if field in _PARTS and chosen[field] != value and (said := self._first_of(field)) is not None:
                raise _disagree(field, value, said.option, said.value)
            chosen[field] = value
        return chosen

    def _first_of(self, part: str) -> Said | None:
        """Return the first option that sets some of a part."""
        return next((said[0] for field, said in self._said.items() if field.partition(".")[0] == part), None)

    # ------------------------------------------------------------ key and order

    def _key_and_order(self, name: str, record_key: bool) -> dict[str, Any]:
        """Return the key header, the order, and whether the queue conflates."""
        key_header, kind = self._one("key_header"), self._one("type")
        switches = self._switches(kind, key_header)
        asking = [said.option for said in (key_header, *switches) if said is not None]
        chosen = self._order(kind, asking[0] if asking and all(said.asks for said in switches) else None)
        chosen["conflate"] = all(said.asks for said in switches) and chosen.get("conflate", True)
        if key_header is None and chosen["conflate"] and not self._record_key:
            key_header = self._default("key_header", "key-header", "key header")
            if key_header is None and not record_key:
                raise ConfigError(
                    f"The queue {name} needs the name of its key header.",
                    options=["key-header"],
                    hint="Give `key-header` (or last-value-key, qpid.last_value_queue_key, lvqKey); or "
                    "`record-key=True|key_header=None` if it is the record key; or `conflate=False|conflate=false` for "
                    "a standard queue, which needs none.",
                )
            order = self._implied.get("order")
            if order and "order" not in chosen:
                chosen["order"] = order[0].asks
        return {"key_header": None if key_header is None else key_header.asks, **chosen}

    def _switches(self, kind: Said | None, key_header: Said | None) -> list[Said]:
        """Return the options that ask for conflation or for none.

        Options of other systems ask for conflation by the key header, so an option that is off contradicts one.
        """
        switches = [*self._said.get("conflate", [])]
        if kind is not None and kind.asks is not None:
            switches.append(Said(kind.option, kind.value, kind.asks == "lvq"))
        off = [said for said in switches if not said.asks]
        clashing = next((said for said in switches if said.asks), None) if off else None
        if clashing is not None:
            raise ConfigError(
                f"`{off[0].option}` asks for a standard queue, and `{clashing.option}` for a last value queue.",
                options=[off[0].option, clashing.option],
                hint="Give one of them.",
            )
        legacy = next((said for said in off if folded(said.option) != "conflate"), None)
        if legacy is not None and key_header is not None:
            ranked = kind is not None and legacy.option == kind.option and kind.asks in _RANKED
            way_out = f"Say {_order(kind.asks)} instead" if kind and ranked else f"Leave `{legacy.option}` out"
            raise ConfigError(
                f"`{legacy.option}` asks for a queue that is not a last value queue, but `{key_header.option}` names "
                "a key header.",
                options={legacy.option: legacy.value, key_header.option: key_header.value},
                hint=f"{way_out}; or say `conflate=False|conflate=false` for a standard queue whose messages may have "
                "a key.",
            )
        return switches

    def _order(self, kind: Said | None, lasting: str | None) -> dict[str, Any]:
        """Return the fields of the order.

        Queues of other systems that have an order by rank do not conflate, and neither do queues declared by the
        options of those systems.

        Args:
            kind: the type of queue that is asked for, if one is.
            lasting: an option that asks for a last value queue, if one does.
        """
        ranked = [kind] if kind is not None and kind.asks in _RANKED else []
        said = self._said.get("order", [])
        own = [each for each in said if folded(each.option) == "order"]
        asking = [*own, *ranked, *(each for each in said if each not in own)]
        if not asking:
            return {}
        option, _, order = asking[0]
        other = next((each for each in asking if each.asks != order), None)
        if other is not None:
            raise ConfigError(
                f"{_asking(asking[0])} and {_asking(other)} exclude each other.",
                options=[option, other.option],
                hint="Leave one of them out.",
            )
        chosen: dict[str, Any] = {"order": order}
        if not own:
            is_standard = kind is not None and kind.asks == "standard"
            if is_standard and kind is not None:
                lasting = kind.option
            if lasting is not None:
                what = "a standard queue in order of arrival" if is_standard else "a last value queue"
                raise ConfigError(
                    f"`{option}` asks for a {order} queue, and `{lasting}` for {what}; elsewhere, a queue is one or "
                    "the other.",
                    options=[option, lasting],
                    hint=f"Say {_order(order)} to have both here, or leave out `{option}`.",
                )
            chosen["conflate"] = False
        for field in ("priorities", "sort_header"):
            if (value := self._asked(field)) is not None:
                chosen[field] = value
        return chosen

    # ------------------------------------------------------------ times and filters

    def _ttl(self) -> Ttl | None:
        limits = {field: self._one(f"ttl.{field}") for field in ("default", "minimum", "maximum", "never")}
        set_by = {field: said for field, said in limits.items() if said is not None and said.asks is not None}
        wanted = self._one("ttl")
        if wanted is not None and not wanted.asks and set_by:
            other = next(iter(set_by.values())).option
            raise ConfigError(
                f"`ttl=False|ttl=false` says that messages carry no TTL, but `{other}` limits it.",
                options=["ttl", other],
                hint="Leave one of them out.",
            )
        if not set_by and (wanted is None or not wanted.asks):
            return None
        return Ttl(**{field: said.asks for field, said in set_by.items()})

    def _expiry_topic(self) -> str | None:
        named, policy = self._one("expiry_topic"), self._one("expiry_policy")
        topic = None if named is None else named.asks
        if policy is not None and policy.asks != (topic is not None):
            raise ConfigError(
                f"`{policy.option}` needs the name of a topic in `expiry-topic`."
                if named is None
                else f"`{policy.option}` and `{named.option}` contradict each other.",
                options={policy.option: policy.value, "expiry-topic" if named is None else named.option: topic},
                hint="DELETE needs none.",
            )
        return topic

    def _default_filters(self) -> DefaultFilters | None:
        parts = {field: self._asked(f"default_filters.{field}") for field in ("replay_period", "selector")}
        return DefaultFilters.of({field: value for field, value in parts.items() if value is not None})

    def _max_delay(self) -> float | None:
        longest, hold = self._one("max_delay"), self._one("hold")
        name = "max-delay" if longest is None else longest.option
        if longest is not None:
            check_max_delay("max_delay", longest.asks)
        if hold is not None and hold.asks != (longest is not None):
            raise ConfigError(
                f"`{hold.option}='true'|{hold.option}=true` needs `{name}`: the topic is not compacted for as long."
                if hold.asks
                else f"`{hold.option}='false'|{hold.option}=false` and `{name}` contradict each other.",
                options=[hold.option, name],
                hint=f"For messages that may be scheduled, give both, `{name}` in seconds; otherwise, neither.",
            )
        return None if longest is None else longest.asks

    # ------------------------------------------------------------ groups and limits

    def _groups(self) -> Groups | None:
        modes = self._said.get("groups.mode", [])
        header, default = self._one("groups.header"), self._one("groups.default")
        placement = self._one("groups.placement")
        for said in modes[1:]:
            first = modes[0]
            if said.asks != first.asks:
                what = f"asks for {first.asks or 'no'} groups, and"
                raise _clash(first.option, said.option, what, f"for {said.asks or 'no'} groups")
        mode = modes[0].asks if modes else None
        parts = [part for part in (header, default, placement) if part is not None]
        if mode is None and (modes or not parts):
            if parts:
                raise _clash(modes[0].option, parts[0].option, "asks for no groups, and", "says what they are like")
            return None
        if default is not None and mode != "shared":
            sharing = modes[0].option if modes else "groups"
            why = "is for shared groups: a message without one is for anyone in sticky ones"
            raise _clash(default.option, sharing, why)
        usual = self._default("groups.header", "group-header", "header of groups")
        named = header or usual
        return Groups(
            mode=mode or "sticky",
            header=GROUP_HEADER if named is None else named.asks,
            default=None if default is None else default.asks,
            placement="key" if placement is None else placement.asks,
        )

    def _limits(self) -> Limits | None:
        messages, size = self._one("limits.messages"), self._one("limits.bytes")
        policy, resume = self._one("limits.policy"), self._resume(messages, size)
        if all(said is None or said.asks is None for said in (messages, size)):
            # A policy beyond no limit is none, where a limit was switched off, or where a system has none by itself.
            other = policy if policy is not None and policy.asks != "none" else resume
            if other is None or messages or size or "limits.messages" in self._implied:
                return None
            raise ConfigError(
                f"`{other.option}` needs a limit.",
                options={other.option: other.value, "max-messages": None, "max-bytes": None},
                hint="Give `max-messages`, `max-bytes`, or both.",
            )
        policy = policy or self._default("limits.policy", "overflow", "policy")
        assert policy is not None, "every option of a limit implies one"
        if resume is not None and policy.asks != "block":
            raise ConfigError(
                f"`{resume.option}` is for producers that are blocked, and `{policy.option}` blocks none.",
                options={resume.option: resume.value, policy.option: policy.value},
                hint=f"Leave `{resume.option}` out, or give `overflow='block'|overflow=block`.",
            )
        return Limits(
            policy=policy.asks,
            messages=None if messages is None else messages.asks,
            bytes=None if size is None else size.asks,
            resume=None if resume is None else resume.asks,
        )

    def _resume(self, messages: Said | None, size: Said | None) -> Said | None:
        """Return the option for the part of the limits at which producers go on, with that part."""
        parts = [*self._said.get("limits.resume", [])]
        for field, most in (("limits.resume_messages", messages), ("limits.resume_bytes", size)):
            at = self._one(field)
            if at is None or at.asks is None:
                continue
            if most is None or most.asks is None:
                needs = _needed_by(at.option)
                raise ConfigError(
                    f"`{at.option}` needs `{needs}`, at which producers stop.",
                    options={at.option: at.value, needs: None},
                )
            if at.asks > most.asks:
                raise ConfigError(
                    f"`{at.option}` exceeds `{most.option}`, at which producers stop.",
                    options={at.option: at.value, most.option: most.value},
                    hint="Give less.",
                )
            parts.append(Said(at.option, at.value, at.asks / most.asks))
        for other in parts[1:]:
            if other.asks != parts[0].asks:
                raise disagreement(parts[0], other)
        return parts[0] if parts else None


def _needed_by(option: str) -> str:
    """Return the name of the option without which another has no meaning."""
    row = option_named(option)
    assert row is not None
    assert isinstance(row.meaning, Mapped)
    return row.meaning.needs


def _words() -> tuple[str, ...]:
    return tuple(field for field, _ in CHOICES.values() if field != "order")


def disagreement(one: Said, other: Said) -> ConfigError:
    """Return the error for two options that ask for different things."""
    return ConfigError(
        f"`{one.option}` and `{other.option}` disagree.",
        options={one.option: one.value, other.option: other.value},
        hint="Give one.",
    )


def _disagree(field: str, value: object, option: str, said: object) -> ConfigError:
    return ConfigError(
        f"{field}={quoted(value)} and {option}={quoted(said)} in options disagree.",
        options=[field, option],
        hint="Give one.",
    )


def _clash(one: str, other: str, what: str, more: str = "") -> ConfigError:
    said = f"`{one}` {what} `{other}` {more}" if more else f"`{one}` {what} (`{other}`)"
    return ConfigError(f"{said}.", options=[one, other], hint="Leave one of them out.")


def _order(order: object) -> str:
    """Return the mention of an order."""
    return f"`order={str(order)!r}|order={order}`"


def _asking(said: Said) -> str:
    """Return the mention of an option that asks for an order."""
    order = brief(str(said.asks))
    return _order(order) if folded(said.option) == "order" else f"`{said.option}` (for {_order(order)})"
