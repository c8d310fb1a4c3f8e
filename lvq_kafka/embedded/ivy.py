"""Run Ivy, the dependency client that ships inside PySpark, to fetch jars.

No repository is named here: Ivy knows the public one. To use a mirror, name a settings file in Ivy's own format in
``LVQ_IVY_SETTINGS``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

from lvq_kafka.embedded.java import find_java
from lvq_kafka.embedded.network import java_network_options
from lvq_kafka.errors import DiskFull, EmbeddedBrokerError, MissingExtra

__all__ = ["Module", "retrieve"]

ATTEMPTS = 3
PAUSE = 2.0  # before the second attempt; twice that before the third

# Every module is locked by name, version and digest, so neither its POM nor a checksum file is needed: a fifth of the
# requests, and no special case for a `bundle`. With no root given, Ivy uses its own default repository.
_PINNED_SETTINGS = """<ivysettings>
  <property name="ivy.checksums" value=""/>
  <settings defaultResolver="jars"/>
  <resolvers><ibiblio name="jars" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


class Module(NamedTuple):
    """A module to fetch. Its dependencies come along only if ``transitive``."""

    organisation: str
    name: str
    version: str
    transitive: bool = False


def retrieve(
    modules: Iterable[Module],
    pattern: str,
    work: Path,
    *,
    pinned: bool,
    what: str = "the jars",
    on_line: Callable[[str], None] = lambda _: None,
) -> None:
    """Fetch ``modules`` into files named by Ivy's ``pattern``, below the directory ``work``.

    ``pinned`` means that the modules are all there is to fetch; ``what`` names them in errors. Failures are retried,
    keeping what has arrived.

    Raises:
        EmbeddedBrokerError: all attempts failed; the message contains the end of Ivy's output.
        DiskFull: ``work`` has no space left.
        JavaNotFound: Ivy runs on Java, and none was found.
    """
    (work / "ivy.xml").write_text(_description(modules), encoding="utf-8")
    command = [
        *(str(find_java().executable), *java_network_options(work), "-jar", str(_ivy_jar())),
        *_settings_options(work, pinned=pinned),
        *("-ivy", str(work / "ivy.xml"), "-cache", str(work / "ivy-cache"), "-types", "jar", "bundle"),
        *("-retrieve", f"{work}/{pattern}"),
    ]
    output: list[str] = []
    for attempt in range(ATTEMPTS):
        time.sleep(PAUSE * attempt)
        code, output = _run(command, on_line)
        if code == 0:
            return
        if any("No space left on device" in line for line in output):
            raise DiskFull(
                f"No space is left in {work.parent} for {what}.",
                path=work.parent,
                hint="Free some space, or choose another directory in LVQ_CACHE_DIR.",
            )
    tail = "\n".join(output[-15:])
    if any("PKIX path building failed" in line for line in output):
        hint = "Java does not trust the server's certificate: name your machine's authorities (PEM) in SSL_CERT_FILE."
    else:
        hint = "Check the network; if only a mirror can be reached, name an Ivy settings file in LVQ_IVY_SETTINGS."
    raise EmbeddedBrokerError(
        f"Downloading {what} failed in {ATTEMPTS} attempts. The end of Ivy's output:\n{tail}\n",
        hint=hint,
    )


def _run(command: Sequence[str], on_line: Callable[[str], None]) -> tuple[int, list[str]]:
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                text = line.rstrip()
                if text.strip(". ") and not text.startswith("."):  # progress dots
                    lines.append(text)
                    on_line(text)
        except BaseException:
            process.kill()
            raise
    return process.returncode, lines


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # locates the package without importing it
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(root, "jars").glob("ivy-*.jar")):
            return jar
    raise MissingExtra(
        "Fetching jars needs Ivy, which comes with PySpark, and PySpark is not installed.",
        extra="embedded",
        hint="Run: pip install 'lvq-kafka[embedded]'",
    )


def _settings_options(work: Path, *, pinned: bool) -> list[str]:
    own = os.environ.get("LVQ_IVY_SETTINGS")
    if own:
        if not Path(own).is_file():
            raise EmbeddedBrokerError(f"LVQ_IVY_SETTINGS names {own}, which does not exist.")
        return ["-settings", own]
    if not pinned:
        return []
    settings = work / "ivysettings.xml"
    settings.write_text(_PINNED_SETTINGS, encoding="utf-8")
    return ["-settings", str(settings)]


def _description(modules: Iterable[Module]) -> str:
    lines = [
        f"<dependency org={quoteattr(m.organisation)} name={quoteattr(m.name)} rev={quoteattr(m.version)} "
        f'conf="jars->default" transitive="{str(m.transitive).lower()}"/>'
        for m in modules
    ]
    return (
        '<ivy-module version="2.0"><info organisation="lvq" module="broker"/>'
        '<configurations><conf name="jars"/></configurations>'
        f"<dependencies>{''.join(lines)}</dependencies></ivy-module>"
    )
