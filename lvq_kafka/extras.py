"""The extras of this library, and the error for a missing one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lvq_kafka.errors import MissingExtra

__all__ = ["needing"]


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Guard an import that needs an extra's packages.

    Raises:
        MissingExtra: one of the packages is not installed; names the package and the extra.
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
