"""The file with the tokens that are accepted. It is read again when it changes."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable
from os import PathLike
from typing import NamedTuple

from lvq_kafka.core.text.quoting import shell_word
from lvq_kafka.errors import ConfigError
from lvq_kafka.serve.bearer_tokens import BearerTokens

__all__ = ["TokenFile"]

logger = logging.getLogger("lvq_kafka.serve")

_EVERY = 1.0  # seconds between two looks at the file, while requests come
_LARGEST = 1 << 24  # bytes


class TokenFile:
    """The tokens that are accepted now.

    A file that cannot be read or parsed leaves those from before in force: otherwise, a slip of the pen would lock all
    readers out. It is logged, once for each reason. A pipe is read once.

    Args:
        path: the file.
        clock: returns seconds.

    Raises:
        ConfigError: it cannot be read, or does not have the form that `BearerTokens` describes.
    """

    def __init__(self, path: str | PathLike[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._path = os.fspath(path)
        self._clock = clock
        self._known = self._read()
        self._tokens = self._parse(self._known.data)
        self._next_look = clock() + _EVERY
        self._complaint = ""
        self._warned = False
        self._warn_of_readers()

    def current(self) -> BearerTokens:
        """Return the tokens. They are another object when the file has changed."""
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + _EVERY
            if stat.S_ISREG(self._known.mode):
                self._read_again()
        return self._tokens

    def _read_again(self) -> None:
        try:
            found = self._read()
            tokens = self._tokens if found.data == self._known.data else self._parse(found.data)
        except ConfigError as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                logger.warning("the tokens from before still count: %s", error)
            return
        if tokens is not self._tokens:
            logger.info("%s has changed, and was read again: %r", self._path, tokens)
        self._known, self._tokens, self._complaint = found, tokens, ""
        self._warn_of_readers()

    def _read(self) -> _Content:
        try:
            with open(self._path, "rb") as file:
                content = _Content(os.fstat(file.fileno()).st_mode, file.read(_LARGEST + 1))
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}.", options=["token_file"]) from error
        if len(content.data) > _LARGEST:
            raise ConfigError(f"{self._path} is larger than {_LARGEST:,} bytes.", options=["token_file"])
        return content

    def _parse(self, data: bytes) -> BearerTokens:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise ConfigError(f"{self._path} is not text in UTF-8.", options=["token_file"]) from None
        return BearerTokens.parse(text, self._path)

    def _warn_of_readers(self) -> None:
        mode = self._known.mode
        if os.name == "posix" and stat.S_ISREG(mode) and mode & stat.S_IROTH and not self._warned:
            self._warned = True
            logger.warning(
                "%s holds tokens, and every user of this machine can read it. Run: chmod 600 %s",
                self._path,
                shell_word(self._path),
            )


class _Content(NamedTuple):
    mode: int
    data: bytes
