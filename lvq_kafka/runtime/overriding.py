"""`typing.override` (PEP 698) for the Pythons before 3.12.

A marked method does what the base class documents; the type checker ensures that the base class has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["override"]

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):
        """Return the method as it is."""
        return method
