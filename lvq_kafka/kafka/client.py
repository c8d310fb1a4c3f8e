"""Client configuration: bootstrap servers and checked librdkafka properties.

Secrets are never shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lvq_kafka.core.text.validation import function, mapping, text
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka.properties import CONSUMER_ONLY, JAVA_NAMES, OWNED, PRODUCER_ONLY, is_secret

__all__ = ["ClientConfig", "PropertyValue", "port_of", "properties_text", "secrets_in"]

PropertyValue = str | int | float | bool | Callable[..., Any]
"""A property value as librdkafka takes it.

Callables are for its callbacks (``oauth_cb``, ``stats_cb``, ``throttle_cb``).
"""

_CALLBACKS = {"oauth_cb": "config", "stats_cb": "statistics", "throttle_cb": "event"}
"""The properties that are functions, and what each is called with."""

_ENVIRONMENT = {
    "LVQ_BOOTSTRAP_SERVERS": "bootstrap.servers",
    "LVQ_SECURITY_PROTOCOL": "security.protocol",
    "LVQ_SASL_MECHANISM": "sasl.mechanism",
    "LVQ_SASL_USERNAME": "sasl.username",
    "LVQ_SASL_PASSWORD": "sasl.password",
    "LVQ_SSL_CA_LOCATION": "ssl.ca.location",
    "LVQ_SSL_KEY_PASSWORD": "ssl.key.password",
}

_OF_OTHER_MEMBERS = frozenset({"group.protocol", "group.remote.assignor", "group.instance.id"})


class ClientConfig:
    """Bootstrap servers and client properties. Immutable.

    All clients of a cluster use the same configuration. Properties are librdkafka's (``security.protocol``,
    ``sasl.username``, ``fetch.message.max.bytes`` …); each client gets those that concern it. The few that the
    library's guarantees rest on are rejected, and so are names that only the Java client knows. Secrets never appear in
    the repr or in an error.

    Raises:
        ConfigError: there are no bootstrap servers, or a property is rejected; the error says why, or what to use
            instead.
    """

    __slots__ = ("_properties",)

    def __init__(self, bootstrap_servers: str, properties: Mapping[str, PropertyValue] | None = None) -> None:
        given = dict(mapping("properties", properties, 'For example {"security.protocol": "SSL"}.'))
        if not isinstance(bootstrap_servers, str):
            raise ConfigError(
                f"bootstrap_servers is {bootstrap_servers!r}, not text.",
                options=["bootstrap_servers"],
                hint='Write several separated by commas: "one:9092,two:9092".',
            )
        _check_writable("bootstrap_servers", bootstrap_servers)
        servers = ",".join(part.strip() for part in bootstrap_servers.split(",") if part.strip())
        if not servers:
            raise ConfigError(
                "No bootstrap servers are given.",
                options=["bootstrap.servers"],
                hint="Name at least one broker, for example localhost:9092.",
            )
        for server in servers.split(","):
            _check_server(server)
        also = given.pop("bootstrap.servers", None) or given.pop("metadata.broker.list", None)
        if also is not None and also != servers:
            raise ConfigError(
                f"Bootstrap servers are given twice: {servers} and, as a property, {also}.",
                options=["bootstrap_servers", "bootstrap.servers"],
                hint="Omit one of them.",
            )
        for name, value in given.items():
            _check(text("properties", name))
            _check_writable(name, value)
            if name in _CALLBACKS:
                function(name, value, _CALLBACKS[name], hint="The client calls it on a thread of its own.")
        self._properties: dict[str, PropertyValue] = {"bootstrap.servers": servers, **given}

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> ClientConfig:
        """Read a properties file in the format of Kafka's own tools.

        That is ``name=value`` lines and ``#`` comments.

        Raises:
            ConfigError: the file cannot be read, or a line is not a property; the error names the line.
        """
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"path={path!r} is not a path.", options=["path"], hint="Name a properties file.")
        missing = f"{os.fspath(path)} does not set bootstrap.servers."
        return cls._of(_read(Path(path), "path"), missing, hint="For example bootstrap.servers=localhost:9092.")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> ClientConfig:
        """Read the configuration from environment variables.

        ``LVQ_CONFIG`` names a properties file. ``LVQ_BOOTSTRAP_SERVERS``, ``LVQ_SECURITY_PROTOCOL``,
        ``LVQ_SASL_MECHANISM``, ``LVQ_SASL_USERNAME``, ``LVQ_SASL_PASSWORD``, ``LVQ_SSL_CA_LOCATION`` and
        ``LVQ_SSL_KEY_PASSWORD`` override it. Any of these with the suffix ``_FILE`` names a file that holds the value.

        Raises:
            ConfigError: no bootstrap servers are named, a file cannot be read, or both forms of a variable are set.
        """
        environ = os.environ if environ is None else environ
        properties = _read(Path(environ["LVQ_CONFIG"]), "LVQ_CONFIG") if environ.get("LVQ_CONFIG") else {}
        for variable, name in _ENVIRONMENT.items():
            in_file = f"{variable}_FILE"
            if environ.get(variable) and environ.get(in_file):
                raise ConfigError(f"{variable} and {in_file} are both set.", options=[variable, in_file])
            if environ.get(in_file):
                properties[name] = _text(Path(environ[in_file]), in_file).rstrip("\r\n")
            elif environ.get(variable):
                properties[name] = environ[variable]
        return cls._of(
            properties,
            "Neither LVQ_BOOTSTRAP_SERVERS nor a file in LVQ_CONFIG names bootstrap servers.",
            hint='Pass bootstrap_servers="localhost:9092", or set LVQ_BOOTSTRAP_SERVERS.',
        )

    @classmethod
    def _of(cls, properties: dict[str, str], missing: str, *, hint: str) -> ClientConfig:
        servers = properties.pop("bootstrap.servers", "")
        if not servers:
            raise ConfigError(missing, options=["bootstrap.servers"], hint=hint)
        return cls(servers, properties)

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers, separated by commas."""
        return str(self._properties["bootstrap.servers"])

    @property
    def properties(self) -> dict[str, PropertyValue]:
        """A copy of all properties, secrets included."""
        return dict(self._properties)

    def for_consumer(self) -> dict[str, PropertyValue]:
        """Return the properties that concern a consumer."""
        return self._without(PRODUCER_ONLY)

    def of_classic_member(self) -> ClientConfig:
        """Return the configuration of a classic member that leaves when it is closed.

        In the new protocol (KIP-848), brokers keep a commit for a time that begins with it, not with the end of the
        last member. A static member (``group.instance.id``) does not leave.
        """
        others = {name: value for name, value in self._properties.items() if name not in _OF_OTHER_MEMBERS}
        return ClientConfig(self.bootstrap_servers, others)

    def for_producer(self) -> dict[str, PropertyValue]:
        """Return the properties that concern a producer."""
        return self._without(CONSUMER_ONLY)

    def for_admin(self) -> dict[str, PropertyValue]:
        """Return the properties that concern an admin client."""
        return self._without(CONSUMER_ONLY | PRODUCER_ONLY)

    def _without(self, names: frozenset[str]) -> dict[str, PropertyValue]:
        return {name: value for name, value in self._properties.items() if name not in names}

    def __eq__(self, other: object) -> bool:
        return self._properties == other._properties if isinstance(other, ClientConfig) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self._properties))  # names only: not every value is hashable

    def __repr__(self) -> str:
        shown = {name: "***" if is_secret(name) else value for name, value in self._properties.items()}
        return f"ClientConfig({shown!r})"


def _check_writable(name: str, value: object) -> None:
    """Check that a text can be handed to the client, whose own error would not be helpful.

    The text may be a secret, so no error shows it.
    """
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name} has a character that UTF-8 cannot encode.", options=[name]) from None


def _check_server(server: str) -> None:
    """Check that a bootstrap server is a host, with a port from 1 to 65535 if it names one.

    librdkafka would take the rest for a part of the host, or try port 0, until the timeout.
    """
    scheme, slashes, rest = server.rpartition("://")
    if slashes and scheme.upper() not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        host = rest.rpartition("@")[2].partition("/")[0]  # what is before the @ may be a password
        raise ConfigError(
            f"The bootstrap server {host!r} is written as a URL.",
            options=["bootstrap.servers"],
            hint="Give its host and port alone, for example localhost:9092.",
        )
    if re.search(r"[\s;|]", server):
        raise ConfigError(
            f"The bootstrap server {server!r} has a character that no host has.",
            options=["bootstrap.servers"],
            hint="Separate several by commas: one:9092,two:9092.",
        )
    port = port_of(server)
    if port is not None and not (port.isdecimal() and 1 <= int(port) <= 65535):
        raise ConfigError(
            f"The bootstrap server {server!r} names no port from 1 to 65535.",
            options=["bootstrap.servers"],
            hint="For example localhost:9092.",
        )


def port_of(server: str) -> str | None:
    """Return the port that a bootstrap server names, as written; None if it names none."""
    host, colon, port = server.rpartition("://")[2].rpartition(":")
    named = colon and not port.endswith("]") and (":" not in host or host.endswith("]"))
    return port if named else None


def _check(name: str) -> None:
    if name in OWNED:
        raise ConfigError(
            f"{name} cannot be set: {OWNED[name]}.", options=[name], hint="Leave it out of the client's properties."
        )
    if name in JAVA_NAMES:
        raise ConfigError(
            f"{name} belongs to the Java client; this library uses librdkafka.", options=[name], hint=JAVA_NAMES[name]
        )


def secrets_in(path: str | os.PathLike[str]) -> list[str]:
    """Return the names of the secret properties that a properties file holds.

    Raises:
        ConfigError: the file cannot be read, or a line is not a property.
    """
    return [name for name in _read(Path(path), "path") if is_secret(name)]


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"Cannot read {path}: {reason}.", options=[option]) from None


def _read(path: Path, option: str) -> dict[str, str]:
    """Parse a Java properties file.

    Supports the syntax that client files use and rejects the rest. No error shows a line's text: it may hold a secret.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(_text(path, option)):
        name, separator, value = line.partition("=")
        name = name.strip()
        if not separator or not name or any(character.isspace() or character in ":\\" for character in name):
            raise ConfigError(
                f"{path}, line {number} is not of the form name=value.", hint="A comment starts with # or !."
            )
        if name in properties:
            raise ConfigError(f"{path}, line {number} sets {name} twice.", options=[name])
        try:
            properties[name] = _ESCAPE.sub(_unescaped, value.lstrip())
        except KeyError:
            raise ConfigError(
                f"{path}, line {number} has a backslash before a character that it does not escape.",
                options=[name],
                hint="Write a backslash as \\\\.",
            ) from None
    return properties


def properties_text(properties: Mapping[str, PropertyValue]) -> str:
    """Return the text of a properties file that `ClientConfig.from_file` reads."""
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    text = "".join("\\\\" if c == "\\" else c if c.isprintable() or c > "\uffff" else f"\\u{ord(c):04x}" for c in value)
    return f"\\{text}" if text[:1] == " " else text


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, without comments and blank lines.

    A backslash at the end of a line joins the next one to it.
    """
    start, joined = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.lstrip()
        if not joined:
            if not line or line[0] in "#!":
                continue
            start = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined = ""
    if joined:
        yield start, joined


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"} | {character: character for character in "\\=:#! \"'"}


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPED[code]
