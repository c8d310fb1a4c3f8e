"""Java names for the properties of a queue's client."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import ClientConfig

__all__ = ["java_properties"]

_SAME = {
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "connections.max.idle.ms",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.kerberos.service.name",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "ssl.key.password",
    "ssl.keystore.location",
    "ssl.keystore.password",
}
_RENAMED = {
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
}
# Properties that decide identity, trust and confidentiality. All others that Java lacks only tune librdkafka.
_SECURITY = ("sasl.", "ssl.", "security.", "https.", "enable.ssl.", "enable.sasl.", "oauth_cb", "plugin.")
# Of these, the ones handled together with others, or that ask for what Java does anyway.
_TOGETHER = {
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.endpoint.identification.algorithm",
    "enable.ssl.certificate.verification",
}
_LOGIN = "org.apache.kafka.common.security."
_MODULES = {"PLAIN": f"{_LOGIN}plain.PlainLoginModule", "SCRAM": f"{_LOGIN}scram.ScramLoginModule"}
_HINT = "Give the Java client's own properties: connector_options={{'kafka.{}...': ...}}."


def java_properties(config: ClientConfig, own: Mapping[str, str]) -> dict[str, str]:
    """Return a client's properties under their Java names, without ``bootstrap.servers``.

    Args:
        config: the client configuration, with librdkafka's names.
        own: the Java client's properties from the user. If there is one of ``sasl.``, or of ``ssl.``, none of that
            family is translated: a family is either all ours or all theirs.

    Raises:
        ConfigError: a property that matters for security has no translation; the error names it.
    """
    given = {name: _text(value) for name, value in config.for_consumer().items() if name != "bootstrap.servers"}
    families = {family for family in ("sasl.", "ssl.") if any(name.startswith(family) for name in own)}
    given = {name: value for name, value in given.items() if not _belongs(name, families)}
    found: dict[str, str] = {}
    for name, value in given.items():
        if name in _SAME:
            found[name] = value
        elif name in _RENAMED:
            found[_RENAMED[name]] = value
        elif name.startswith(_SECURITY) and name not in _TOGETHER:
            raise _untranslated(name, "Java's client has no property like it")
    if "sasl." not in families:
        _sasl(given, found)
    if "ssl." not in families:
        _ssl(given, found)
    return {**found, **own}


def _belongs(name: str, families: set[str]) -> bool:
    if "sasl." in families and (name.startswith(("sasl.", "enable.sasl.")) or name == "oauth_cb"):
        return True
    return "ssl." in families and name.startswith(("ssl.", "enable.ssl.", "https."))


def _sasl(given: Mapping[str, str], found: dict[str, str]) -> None:
    if "SASL" not in given.get("security.protocol", "").upper():
        return
    mechanism = found.setdefault("sasl.mechanism", "GSSAPI").upper()  # the default of librdkafka, and of Java
    found["sasl.mechanism"] = mechanism
    if module := _MODULES.get(mechanism.split("-")[0]):
        arguments = {"username": given.get("sasl.username", ""), "password": given.get("sasl.password", "")}
    elif mechanism == "GSSAPI" and "sasl.kerberos.keytab" in given and "sasl.kerberos.principal" in given:
        module = "com.sun.security.auth.module.Krb5LoginModule"
        arguments = {
            "useKeyTab": "true",
            "storeKey": "true",
            "keyTab": given["sasl.kerberos.keytab"],
            "principal": given["sasl.kerberos.principal"],
        }
        found.setdefault("sasl.kerberos.service.name", "kafka")
    else:
        raise _untranslated("sasl.mechanism", f"{mechanism} is configured differently in Java")
    quoted = (f'{name}="{_escaped(value)}"' for name, value in arguments.items())
    found["sasl.jaas.config"] = f"{module} required {' '.join(quoted)};"


def _ssl(given: Mapping[str, str], found: dict[str, str]) -> None:
    if given.get("enable.ssl.certificate.verification", "true").lower() != "true":
        raise _untranslated("enable.ssl.certificate.verification", "Java always verifies certificates")
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None:
        found["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else algorithm
    if "ssl.truststore.location" in found or "ssl.truststore.certificates" in found:
        found["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.location" in found:
        found["ssl.keystore.type"] = "PKCS12"
    key, chain = _pem(given, "ssl.key"), _pem(given, "ssl.certificate")
    if key is not None and chain is not None:
        if not re.search("-----BEGIN (ENCRYPTED )?PRIVATE KEY-----", key):
            name = "ssl.key.pem" if "ssl.key.pem" in given else "ssl.key.location"
            raise _untranslated(name, "Java reads private keys in PKCS#8 only (openssl pkcs8 -topk8)")
        found.update({"ssl.keystore.type": "PEM", "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain})


def _pem(given: Mapping[str, str], name: str) -> str | None:
    """Return the text of a key or certificate, given directly or as a file.

    Java wants both in one file, or neither in a file.
    """
    if f"{name}.pem" in given:
        return given[f"{name}.pem"]
    location = given.get(f"{name}.location")
    if location is None:
        return None
    try:
        return Path(location).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a PEM file"
        raise ConfigError(f"Cannot read {location}: {reason}.", options=[f"{name}.location"]) from None


def _untranslated(name: str, reason: str) -> ConfigError:
    family = "ssl." if "ssl" in name else "sasl."
    return ConfigError(
        f"{name} cannot be passed to Spark's Kafka connector: {reason}.",
        options=[name],
        hint=_HINT.format(family) + " Or read with engine='python'.",
    )


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _text(value: str | int | float | bool | Callable[..., object]) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
