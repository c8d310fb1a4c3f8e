"""A queue as somebody asks for it, before settings fill in what he leaves open."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from lvq_kafka.core.facts import Format
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.queue_options import GivenOptions
from lvq_kafka.core.queue.settings_by_pattern import given_by
from lvq_kafka.core.text.nearest import folded
from lvq_kafka.core.text.quoting import brief, listed
from lvq_kafka.core.text.validation import mapping
from lvq_kafka.errors import ConfigError

__all__ = ["QueueRequest"]

_NO_SETTINGS: Mapping[str, Mapping[str, object]] = {}
_DEFAULTS: Mapping[str, object] = {field.name: field.default for field in fields(QueueDefinition)}


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """A queue, as its declaration describes it.

    Args:
        name: the queue's name.
        topic: its topic.
        arguments: fields of its definition; those that are not here are open.
        options: options by name, as `QueueDefinition.from_options` takes them; None without any.
        codec_format: the format of the program's codec; None if it says nothing.
    """

    name: str
    topic: str
    arguments: Mapping[str, Any]
    options: Mapping[str, object] | None = None
    codec_format: Format | None = None

    def __post_init__(self) -> None:
        if self.options is not None:
            mapping("options", self.options, 'For example {"key-header": "ticker"}.')

    def definition(self, settings: Mapping[str, Mapping[str, object]] = _NO_SETTINGS) -> QueueDefinition:
        """Return the definition of the queue.

        Args:
            settings: options by the pattern that its topic matches, the most specific first.

        Raises:
            ConfigError: an option is unknown or malformed, options exclude each other, or nothing names the key.
        """
        unusual = {field: value for field, value in self.arguments.items() if not _is_default(field, value)}
        decided = GivenOptions(self.options or {}, unusual).decided | self.arguments.keys()
        given = given_by(settings, decided)
        options = self._options_with(given)
        if surplus := self._surplus(GivenOptions(options, unusual)):
            given = given_by(settings, decided | surplus)
            options = self._options_with(given)
        try:
            definition = self._defined(options, unusual)
        except ConfigError as error:
            for pattern, more in given.items():
                if named := [option for option in error.options if option in more]:
                    error.add_note(f"The setting {brief(pattern)} gives {listed(named)}.")
            raise
        return replace(definition, from_settings=given) if given else definition

    def _surplus(self, read: GivenOptions) -> set[str]:
        """Return the fields that settings of many queues name, and this one has no use for."""
        found = {field for field in ("expiry_topic", "dead_letters") if read.asked(field) == self.topic}
        found |= set() if read.expires else {"expiry_topic"}
        return found | ({"expiry_topic", "max_deliveries", "dead_letters"} if read.asked("non_destructive") else set())

    def _options_with(self, given: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
        return dict(ChainMap(dict(self.options or {}), *map(dict, given.values())))

    def _defined(self, options: Mapping[str, object], unusual: Mapping[str, Any]) -> QueueDefinition:
        if options or self.options is not None:
            return QueueDefinition.from_options(self.name, options, topic=self.topic, arguments=unusual)
        if "key_header" in self.arguments:
            return QueueDefinition(name=self.name, topic=self.topic, **self.arguments)
        raise ConfigError(
            f"The queue {self.name} needs the name of its key header.",
            options=["key_header"],
            hint='Name it, for example key_header="ticker", or in options; None means the record key itself.',
        )

    def alone(self) -> QueueDefinition | None:
        """Return the definition without any settings; None if it may only lack what settings give.

        Raises:
            ConfigError: as for `definition`; and no setting could mend it.
        """
        try:
            return self.definition()
        except ConfigError as error:
            said = {"name", "topic", *self.arguments, *(self.options or {})}
            if {folded(option) for option in error.options} <= {folded(str(option)) for option in said}:
                raise
            return None


def _is_default(field: str, value: object) -> bool:
    default = _DEFAULTS.get(field, MISSING)
    return (type(value), value) == (type(default), default)
