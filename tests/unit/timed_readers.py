"""All that a view shows, for tests of readers by a clock."""

from __future__ import annotations

import pytest

from lvq_kafka import View

__all__ = ["shown"]


def shown(view: View[str]) -> dict[str, str]:
    """Return what a view shows, asked in every way."""
    values = {key: view[key] for key in ("BMW", "IBM", "MSFT", "SAP") if key in view}
    assert dict(view) == values
    assert len(view) == len(values)
    assert set(view) == values.keys()
    assert {entry.key: entry.value for entry in view.entries()} == values
    assert {entry.key: entry.value for entry in view.scan()} == values
    assert dict(view.snapshot()) == values
    for key in {"IBM", "MSFT", "SAP"} - values.keys():
        with pytest.raises(KeyError):
            view.entry(key)
    return values
