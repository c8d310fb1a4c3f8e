"""Protobuf message types, and those of the schemas in a registry."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lvq_kafka.core.text.quoting import brief
from lvq_kafka.core.text.validation import text
from lvq_kafka.errors import ConfigError
from lvq_kafka.runtime.extras import needing

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

__all__ = ["BUILT_IN", "ProtobufFiles", "ProtobufMessage"]

BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""The folders of the files that every client has, and no registry."""

_ROOT = "default"
"""The name of a schema's own file, as Confluent's clients call it."""


@dataclass(frozen=True, slots=True)
class ProtobufMessage:
    """A Protobuf message type.

    Args:
        name: its full name, with the package, such as ``prices.Price``.
        descriptors: the descriptors of its file and of all its imports, as ``protoc --include_imports
            --descriptor_set_out`` writes them.

    Raises:
        ConfigError: the descriptors are empty or not bytes.
    """

    name: str
    descriptors: bytes = field(repr=False)

    def __post_init__(self) -> None:
        text("name", self.name)
        given: object = self.descriptors
        if not (isinstance(given, bytes) and given):  # without them Spark looks for a Java class of that name
            raise ConfigError(
                f"The descriptors of {self.name} are not bytes, or are empty.",
                options=["descriptors"],
                hint="Give the output of protoc: Path(...).read_bytes().",
            )


class ProtobufFiles:
    """The file of a schema with all that it imports.

    Args:
        schema: the file as a registry serializes it: its descriptor, in base64.
        referred: the files that it refers to, likewise, by the names under which they are imported.

    Raises:
        ValueError: a file is malformed or missing, or imports itself.
        MissingExtra: the packages for Protobuf are not installed.
    """

    def __init__(self, schema: str, referred: Mapping[str, str]) -> None:
        with needing("registry", "Protobuf of a registry"):
            # Confluent's module loads the files that no registry has.
            import confluent_kafka.schema_registry.protobuf  # noqa: F401
            from google.protobuf.descriptor_pool import DescriptorPool

        self._texts = {**referred, _ROOT: schema}
        self._files: dict[str, FileDescriptorProto] = {}
        self._add(_ROOT, ())
        self._pool = DescriptorPool()
        for file in self._files.values():
            try:
                self._pool.AddSerializedFile(file.SerializeToString())
            except (TypeError, ValueError):
                raise ValueError(f"has a file that is not Protobuf, or lacks a type: {brief(file.name)}") from None

    def _add(self, name: str, above: tuple[str, ...]) -> None:
        """Add a file after its imports; ``above`` has the files that import it."""
        if name in above:
            raise ValueError(f"has a file that imports itself: {brief(name)}")
        if name in self._files:
            return
        file = _parsed(name, self._texts[name]) if name in self._texts else _built_in(name)
        for imported in file.dependency:
            self._add(imported, (*above, name))
        self._files[name] = file

    def first(self) -> str:
        """Return the name of the first message.

        Raises:
            ValueError: there is no message.
        """
        for message in self._pool.FindFileByName(_ROOT).message_types_by_name.values():
            return str(message.full_name)
        raise ValueError("has no message")

    def path(self, name: str) -> tuple[int, ...]:
        """Return the place of a message: the index of its outermost one, and so on to its own.

        Raises:
            ValueError: the file has no such message.
        """
        return _path(self._message(name))

    def message(self, name: str) -> ProtobufMessage:
        """Return a message with its descriptors.

        Raises:
            ValueError: the file has no such message.
        """
        from google.protobuf.descriptor_pb2 import FileDescriptorSet

        self._message(name)
        return ProtobufMessage(name, FileDescriptorSet(file=self._files.values()).SerializeToString())

    def count_fields(self, name: str) -> int:
        """Return the number of fields of a message, and of each message in it."""
        return _count_fields(self._message(name), {})

    def _message(self, name: str) -> Descriptor:
        try:
            found = self._pool.FindMessageTypeByName(name)
        except KeyError:
            found = None
        if found is None or found.file.name != _ROOT:
            raise ValueError(f"has no message {brief(name)}")
        return found


def _parsed(name: str, schema: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        file = FileDescriptorProto.FromString(base64.b64decode(schema, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        raise ValueError(f"has a file that is not in serialized form: {brief(name)}") from None
    file.name = name
    return file


def _built_in(name: str) -> FileDescriptorProto:
    from google.protobuf import descriptor_pool
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto()
    try:
        if not name.startswith(BUILT_IN):
            raise KeyError(name)
        descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
    except KeyError:
        raise ValueError(f"imports a file that it does not refer to: {brief(name)}") from None
    return file


def _path(message: Descriptor) -> tuple[int, ...]:
    outer = message.containing_type
    beside = message.file.message_types_by_name.values() if outer is None else outer.nested_types
    index = [one.full_name for one in beside].index(message.full_name)
    return (index,) if outer is None else (*_path(outer), index)


def _count_fields(message: Descriptor, known: dict[str, int]) -> int:
    if message.full_name not in known:
        known[message.full_name] = 1  # while it is counted: a message may contain itself
        inner = (field.message_type for field in message.fields)
        known[message.full_name] = sum(1 if one is None else 1 + _count_fields(one, known) for one in inner)
    return known[message.full_name]
