"""Keys: their wire form, the key header, and the home partition of a key."""

from __future__ import annotations

from collections.abc import Iterable

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError, UnencodableKey

__all__ = ["HeaderValue", "Key", "chosen_keys", "encode_header", "encode_key", "home_partition", "key_text", "murmur2"]

Key = str | bytes | int
"""The types that callers may use as a key (``bool`` is an ``int``)."""

HeaderValue = Key | float
"""The types that callers may use as the value of a header other than the key."""


def encode_key(key: object) -> bytes:
    """Encode a key for the wire (R2).

    Text is UTF-8, ``1`` and ``"1"`` are one key, and ``True`` is ``true``. The empty string is a real key.

    Raises:
        UnencodableKey: the key has any other type, is text that UTF-8 cannot encode, or is an integer with more digits
            than Python writes (4,300 by default).
    """
    if isinstance(key, str):
        try:
            return key.encode()  # faster than with an error handler, which is rarely needed
        except UnicodeEncodeError:
            return _escaped(key)
    if isinstance(key, bytes):
        return key
    if isinstance(key, bool):
        return b"true" if key else b"false"
    if isinstance(key, int):
        try:
            return b"%d" % key
        except ValueError:
            raise UnencodableKey(
                f"{quoted(key)} has too many digits for a key.", hint="Give it as text or as bytes."
            ) from None
    raise UnencodableKey(
        f"{quoted(key)} of type {type(key).__name__} cannot be a key.", hint="Use text, bytes, an integer or a boolean."
    )


def encode_header(value: object) -> bytes:
    """Encode the value of a header that is not the key.

    Keys are encoded as by `encode_key`, a float as the shortest digits that reproduce it. A float cannot be a key,
    since two that print alike may differ.

    Raises:
        UnencodableKey: as for `encode_key`.
    """
    return float.__repr__(value).encode() if isinstance(value, float) else encode_key(value)


def _escaped(key: str) -> bytes:
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise UnencodableKey(
            f"The key {quoted(key)} has a character that UTF-8 cannot encode.", hint="Give its bytes instead."
        ) from None


def key_text(key: bytes) -> str:
    """Return the key as text.

    `encode_key` restores bytes that are not UTF-8 (surrogateescape).
    """
    return key.decode("utf-8", "surrogateescape")


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit murmur2 hash of the Java client.

    It is the one of ``org.apache.kafka.common.utils.Utils.murmur2``.
    """
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = 0x9747B28C ^ length
    body = length & ~3
    for at in range(0, body, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        h = (h * m & mask) ^ ((k ^ k >> 24) * m & mask)
    if length > body:
        h = (h ^ int.from_bytes(data[body:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def home_partition(key: bytes, partitions: int) -> int:
    """Return a key's partition as Java's default partitioner and all of our writers do (G15)."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def chosen_keys(keys: Iterable[Key] | None) -> frozenset[bytes] | None:
    """Encode keys for the wire; None stands for all keys.

    Raises:
        ConfigError: the value is a single key, or no iterable.
        UnencodableKey: one of them cannot be a key. None cannot, since it would name all messages without one.
    """
    if keys is None:
        return None
    if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
        raise ConfigError(f"keys={quoted(keys)} is one key, not several.", options=["keys"], hint="Put it in a list.")
    named = list(keys)
    if None in named:
        raise UnencodableKey(
            "keys has None, but a message without a key cannot be chosen by its key.",
            hint="Leave keys out to choose all messages.",
        )
    return frozenset(map(encode_key, named))
