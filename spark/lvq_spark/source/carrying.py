"""Carrying the parts of a data source to other Pythons, so that one that cannot unpack them says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lvq_kafka import __version__

__all__ = ["carried"]


def carried(make: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What ``__reduce__`` returns for something that ``make(*arguments)`` makes again where it arrives.

    Spark pickles the function that unpacks it by value, since it is local. A class of this package would be looked up
    on arrival, and an executor without the package would fail before it could say why.
    """
    import pickle

    def lvq_arrives(packed: bytes, version: str) -> Any:
        import pickle
        import sys

        try:
            import lvq_kafka

            there = lvq_kafka.__version__
            if there != version:
                raise RuntimeError(
                    f"The driver has lvq-kafka {version}, this executor {there}. Install the same version on both."
                )
            make, arguments = pickle.loads(packed)
        except ImportError as missing:
            raise ImportError(
                f"The Python of this executor, {sys.executable}, lacks a package: {missing}. "
                f"Install lvq-kafka[spark]=={version} there, or set PYSPARK_PYTHON to a Python that has it."
            ) from missing
        return make(*arguments)

    return lvq_arrives, (pickle.dumps((make, arguments)), __version__)
