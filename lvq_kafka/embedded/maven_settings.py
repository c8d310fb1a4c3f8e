"""The mirror of the public repository in the user's Maven settings.

That is ``~/.m2/settings.xml``, or the file that ``LVQ_MAVEN_SETTINGS`` names.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from lvq_kafka.errors import EmbeddedBrokerError

__all__ = ["Mirror", "read_mirror", "settings_file"]


@dataclass(frozen=True, slots=True)
class Mirror:
    """A repository to use in place of the public one."""

    name: str
    url: str
    user: tuple[str, str] | None = field(default=None, repr=False)


def settings_file() -> Path:
    """Return the file of the user's Maven settings, which may not exist.

    Raises:
        EmbeddedBrokerError: the file that ``LVQ_MAVEN_SETTINGS`` names does not exist, or ``LVQ_IVY_SETTINGS`` is set.
    """
    if os.environ.get("LVQ_IVY_SETTINGS"):
        raise EmbeddedBrokerError(
            "LVQ_IVY_SETTINGS is no longer read: unset it, and name a Maven settings file in LVQ_MAVEN_SETTINGS."
        )
    named = os.environ.get("LVQ_MAVEN_SETTINGS")
    if not named:
        return Path.home() / ".m2" / "settings.xml"
    path = Path(named).expanduser()
    if not path.is_file():
        raise EmbeddedBrokerError(f"LVQ_MAVEN_SETTINGS names {named}, which is not a file.")
    return path


def read_mirror() -> Mirror | None:
    """Return the first mirror of the public repository, with its server's user and password.

    Return None if there is none.

    Raises:
        EmbeddedBrokerError: as `settings_file` does, or the file cannot be read.
    """
    path = settings_file()
    if not path.exists():
        return None
    try:
        settings = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        raise EmbeddedBrokerError(
            f"The Maven settings in {path} cannot be read: {error}.",
            hint="Correct the file, or name another one in LVQ_MAVEN_SETTINGS.",
        ) from None
    servers = {_text(server, "id"): server for server in settings.iterfind("{*}servers/{*}server")}
    for mirror in settings.iterfind("{*}mirrors/{*}mirror"):
        name, url = _text(mirror, "id"), _text(mirror, "url")
        if url and _is_of_the_public_one(_text(mirror, "mirrorOf")) and _text(mirror, "blocked") != "true":
            server = servers.get(name)
            user = None if server is None else (_text(server, "username"), _text(server, "password"))
            return Mirror(name, url.rstrip("/"), user if user and user[0] else None)
    return None


def _is_of_the_public_one(pattern: str) -> bool:
    """Return whether ``mirrorOf`` includes the repository that Maven calls ``central``."""
    names = {name.strip() for name in pattern.split(",")}
    return "!central" not in names and bool(names & {"central", "*", "external:*"})


def _text(element: ElementTree.Element, name: str) -> str:
    text = (element.findtext(f"{{*}}{name}") or "").strip()
    return re.sub(r"\$\{env\.([^}]+)\}", lambda found: os.environ.get(found[1], ""), text)
