"""The file that names the one with the values of a store, and its reasons for trust."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from lvq_kafka.storing.places import boot_id
from lvq_kafka.storing.record_format import FORMAT

__all__ = ["BELL", "MANIFEST", "SUFFIX", "distrust", "parsed", "read_manifest", "undamaged"]

MANIFEST = "store.json"
BELL = "changes.bell"
"""The file that is written to after each commit, so that readers in other processes wake (R41)."""
SUFFIX = ".lmdb"


def read_manifest(directory: Path) -> Mapping[str, object]:
    """Return the manifest of a store; an empty one if there is none. Raises `OSError`."""
    try:
        text = (directory / MANIFEST).read_text()
    except FileNotFoundError:
        return {}
    return parsed(text) or {"file": ""}


def distrust(said: Mapping[str, object]) -> str | None:
    """Return why the file of a manifest cannot be trusted; None if it can."""
    if said.get("format") != FORMAT:
        return f"its format is {said.get('format')}, and this version of the library has {FORMAT}"
    here = boot_id()
    if said.get("clean") is not True and (not here or said.get("boot") != here):
        return "the system has started since it was written, and it was not closed"
    return None


def undamaged(directory: Path, said: Mapping[str, object]) -> tuple[Path, str | None]:
    """Return the file of a manifest, and why it must not be opened; None if it may."""
    path, size = directory / str(said.get("file", "")), said.get("size")
    if path.suffix != SUFFIX or path.parent != directory or not path.is_file():
        return path, "its file is missing"
    if path.stat().st_size < (size if isinstance(size, int) else 0):  # to read on would kill the process
        return path, "its file was cut off"
    return path, None


def parsed(text: str) -> dict[str, object]:
    """Return a JSON object; an empty one for anything else."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
