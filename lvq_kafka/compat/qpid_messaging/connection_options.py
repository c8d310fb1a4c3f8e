"""The URL and options of a connection, as a configuration of Kafka's client.

The environment (`ClientConfig.from_env`) overrides both, so that a program can be sent elsewhere without a change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from lvq_kafka.compat.qpid_messaging.constants import AMQP_PORT, AMQPS_PORT
from lvq_kafka.compat.qpid_messaging.exceptions import ConnectionError, VersionError
from lvq_kafka.core.text.quoting import brief, listed
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.client import PropertyValue

__all__ = ["OPTIONS", "amqp_ports", "client_config"]

_URL = re.compile(
    r"(?:(?P<scheme>[^:/@]+)://)?(?:(?P<user>[^:/@]+)(?:/(?P<password>[^:/@]+))?@)?"
    r"(?P<host>[^@:/\[\]\s]+|\[[0-9a-fA-F:.]+\])(?::(?P<port>[0-9]+))?"
)
_PORT = 9092
_PROTOCOL = "amqp0-10"
_TRANSPORTS = {"tcp": "plaintext", "ssl": "ssl", "tcp+tls": "ssl"}
_LOGINS = ("GSSAPI", "OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_NO_LOGIN = ("ANONYMOUS", "EXTERNAL")  # EXTERNAL: the client's certificate says who it is
_SERVERS = ("LVQ_CONFIG", "LVQ_BOOTSTRAP_SERVERS", "LVQ_BOOTSTRAP_SERVERS_FILE")

_PROPERTIES = {
    "sasl_service": "sasl.kerberos.service.name",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_trustfile": "ssl.ca.location",
    "tcp_nodelay": "socket.nagle.disable",
}
OPTIONS = frozenset(
    {
        *("host", "password", "port", "protocol", "reconnect", "reconnect_timeout", "reconnect_urls"),
        *("sasl_mechanisms", "sasl_min_ssf", "ssl_skip_hostname_check", "transport", "username"),
        *_PROPERTIES,
        # Kafka's client looks after its connections by itself, so these have no effect.
        *("address_ttl", "client_properties", "heartbeat", "reconnect_interval", "reconnect_interval_max"),
        *("reconnect_interval_min", "reconnect_limit", "reconnect_log", "sasl_max_ssf"),
    }
)
"""The options of a connection."""


def client_config(url: str, options: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> ClientConfig:
    """Return the configuration that a URL and options ask for.

    Args:
        environ: the environment; that of the process by default.

    Raises:
        ConnectionError: the URL or an option is malformed or unknown, or asks for what Kafka does not have.
        VersionError: the option ``protocol`` asks for another one than ``qpid.messaging`` has.
    """
    environ = os.environ if environ is None else environ
    _check(options)
    parts = _parts(options.get("host") or url)
    servers = [_server(parts, options.get("port"))]
    servers += [_server(_parts(other), None) for other in options.get("reconnect_urls") or ()]
    given = _properties(parts, options)
    try:
        config = ClientConfig.from_env({**environ, **_named(environ, ",".join(servers))})
        found = config.properties
        if "sasl.mechanisms" in found:
            given.pop("sasl.mechanism", None)  # the same property
        return ClientConfig(config.bootstrap_servers, {**given, **found})
    except ConfigError as error:
        raise ConnectionError(text=str(error)) from error


def amqp_ports(config: ClientConfig) -> str:
    """Return those of the brokers that are named with a port of AMQP, separated by commas."""
    servers = config.bootstrap_servers.split(",")
    return ", ".join(server for server in servers if server.endswith((f":{AMQP_PORT}", f":{AMQPS_PORT}")))


def _check(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in OPTIONS:
            raise ConnectionError(
                text=f"{brief(name)} is not an option of a connection.", hint=f"Known are {', '.join(sorted(OPTIONS))}."
            )
    protocol, transport = options.get("protocol"), options.get("transport")
    if protocol not in (None, _PROTOCOL):
        raise VersionError(
            text=f"protocol={protocol!r} is not the one of this API, {_PROTOCOL}.",
            hint="Leave it out: Kafka has a protocol of its own.",
        )
    if transport not in (None, *_TRANSPORTS):
        raise ConnectionError(
            text=f"transport={transport!r} is not one that Kafka has.", hint=f"Choose one of {', '.join(_TRANSPORTS)}."
        )


def _parts(url: object) -> dict[str, Any]:
    found = _URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:  # the text may hold a password
        raise ConnectionError(
            text="The URL of the broker is not of the form [amqp://][user[/password]@]host[:port].",
            hint='For example "localhost", or "amqps://kafka1:9093". An IPv6 address stands in brackets.',
        )
    return found.groupdict()


def _server(parts: Mapping[str, Any], port: object) -> str:
    return f"{parts['host']}:{parts['port'] or port or _PORT}"


def _named(environ: Mapping[str, str], servers: str) -> dict[str, str]:
    """Return the variable that names the brokers, unless the environment does."""
    return {} if any(environ.get(name) for name in _SERVERS) else {"LVQ_BOOTSTRAP_SERVERS": servers}


def _properties(parts: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, PropertyValue]:
    """Return the properties of the client that the URL and the options set."""
    transport = options.get("transport") or ("ssl" if parts["scheme"] == "amqps" else "tcp")
    protocol = _TRANSPORTS[transport]
    if options.get("sasl_min_ssf") and protocol != "ssl":
        raise ConnectionError(
            text="sasl_min_ssf asks SASL to encrypt the connection, which it does not do in Kafka.",
            hint='Encrypt it by TLS: transport="ssl".',
        )
    found = {name: options[option] for option, name in _PROPERTIES.items() if options.get(option) is not None}
    if options.get("ssl_skip_hostname_check"):
        found["ssl.endpoint.identification.algorithm"] = "none"
    user = parts["user"] or options.get("username")
    mechanism = _mechanism(options.get("sasl_mechanisms"), login=user is not None)
    if mechanism is not None:
        protocol = f"sasl_{protocol}"
        login = {
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": parts["password"] or options.get("password"),
        }
        found.update((name, value) for name, value in login.items() if value is not None)
    return {"security.protocol": protocol, **found} if protocol != "plaintext" else found


def _mechanism(asked: object, *, login: bool) -> str | None:
    """Return the SASL mechanism: the first of those that the program allows, and Kafka has.

    Raises:
        ConnectionError: Kafka has none of them.
    """
    if not asked:
        return "PLAIN" if login else None
    names = str(asked).upper().split()
    for name in names:
        if name in _LOGINS:
            return name
        if name in _NO_LOGIN:
            return None
    raise ConnectionError(
        text=f"Kafka has none of the mechanisms in sasl_mechanisms: {listed(names)}.",
        hint=f"It has {', '.join(_LOGINS)}.",
    )
