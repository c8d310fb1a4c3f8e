"""The effort of tests that search: ``LVQ_EFFORT`` multiplies the examples of properties and the simulator's worlds.

With 1, as in ``make test``, a run is a sample: each run draws others, and leaves out tests marked as
``thorough``, which prove in another form, and for longer, what others prove. ``make prove`` and its like leave nothing
out.
"""

from __future__ import annotations

import os

__all__ = ["TIMES", "examples"]

TIMES = int(os.environ.get("LVQ_EFFORT", "1"))

_LEAST = 10


def examples(count: int) -> int:
    """Return the number of examples of a property for which ``count`` are a thorough search."""
    return max(_LEAST, count * TIMES // 3)
