"""The extras of this library, and what to say where what they bring is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lvq_kafka.errors import MissingExtra

__all__ = ["needing"]


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Import what takes the packages of an extra.

    Raises:
        MissingExtra: one of them is not installed; names it, and the extra.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package in ("", "lvq_kafka", "lvq_spark"):
            raise
        raise MissingExtra(
            f"{what} needs the package {package}, which is not installed.",
            extra=extra,
            hint=f"Run: pip install 'lvq-kafka[{extra}]'",
        ) from missing
