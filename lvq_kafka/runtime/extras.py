"""The extras of this library, and the error for a missing one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lvq_kafka.errors import MissingExtra

__all__ = ["needing"]


@contextmanager
def needing(extra: str, what: str, *, options: Sequence[str] = ()) -> Iterator[None]:
    """Guard an import that needs an extra's packages.

    Args:
        extra: its name.
        what: what needs them, as the subject of a sentence.
        options: the options that ``what`` mentions.

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
            options=options,
            hint=f"Run: pip install 'lvq-kafka[{extra}]'",
        ) from None
