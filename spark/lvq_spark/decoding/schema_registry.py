"""Schemas from a schema registry, over plain HTTP: those for the values of one subject."""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import index
from typing import Any

from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.validation import delays, text
from lvq_kafka.errors import AuthenticationFailed, ConfigError, LVQError, TransportError
from lvq_kafka.kafka.threads import in_thread
from lvq_spark.decoding.avro_names import whole

__all__ = ["SchemaRegistry", "SubjectSchemas"]

_LONGEST = 64 << 20
"""The most bytes to read of a response. No schema is nearly as large."""

_BUSY = (408, 429)
"""Statuses below 500 that pass: request timeout, and too many requests."""


@dataclass(frozen=True, slots=True)
class SubjectSchemas:
    """The Avro schemas that the values of a subject have been written with.

    Args:
        subject: its name, usually ``<topic>-value``.
        writers: each of its schemas by the registry's id, which every value starts with. Types from other subjects are
            inlined.
        reader: the schema that values are decoded to; Avro's rules resolve each of the others to it.
    """

    subject: str
    writers: Mapping[int, str]
    reader: str


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A schema registry that speaks Confluent's protocol; only the driver contacts it.

    Args:
        url: its address, ``http://`` or ``https://``.
        username: the user, for basic authentication.
        password: that user's password.
        token: a token for bearer authentication instead.
        ca_location: a PEM file of the authorities to trust instead of the system's.
        timeout: seconds for each request.

    Raises:
        ConfigError: the address is not an HTTP address, or both ways of authentication are given.
    """

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_location: str | None = None
    timeout: float = 10.0

    def __post_init__(self) -> None:
        address = urllib.parse.urlsplit(str(self.url))
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError("The schema registry's url is not an http:// or https:// address.", options=["url"])
        if address.password is not None:
            raise ConfigError(
                "The schema registry's url holds a password, which would show in logs.",
                options=["url"],
                hint="Give username and password instead.",
            )
        delays(timeout=self.timeout)
        if self.token is not None and self.username is not None:
            raise ConfigError("username and token are both given.", options=["username", "token"])

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> SchemaRegistry:
        """Return the registry that the environment names.

        The variables are ``LVQ_REGISTRY_URL``, with ``_USERNAME``, ``_PASSWORD``, ``_TOKEN`` and ``_CA_LOCATION``.

        Raises:
            ConfigError: no address is set.
        """
        environ = os.environ if environ is None else environ
        url, username, password, token, ca_location = (
            environ.get(f"LVQ_REGISTRY_{name}") or None
            for name in ("URL", "USERNAME", "PASSWORD", "TOKEN", "CA_LOCATION")
        )
        if url is None:
            raise ConfigError("LVQ_REGISTRY_URL is not set.", options=["LVQ_REGISTRY_URL"])
        return cls(url, username, password, token, ca_location)

    def subject(self, subject: str, *, reader: str | None = None) -> SubjectSchemas:
        """Return all Avro schemas of a subject, including those of deleted versions.

        Versions registered later are not included: call this again. In a stream, the function for ``foreachBatch`` can
        do that for each batch.

        Args:
            subject: its name, usually ``<topic>-value``.
            reader: the Avro schema to decode to; by default that of the subject's newest version.

        Raises:
            ConfigError: the subject, or a subject that its schemas refer to, does not exist, or a schema is not Avro.
            TransportError: the registry cannot be reached, or refuses.
        """
        text("subject", subject)
        try:
            return self._schemas(subject, reader)
        except LVQError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError):  # JSON, but of another shape
            raise self._no_registry() from None

    def _schemas(self, subject: str, reader: str | None) -> SubjectSchemas:
        name = urllib.parse.quote(subject, safe="")
        versions = self._get(f"/subjects/{name}/versions?deleted=true", subject)
        found = [self._version(subject, version) for version in versions]
        for schema in found:
            kind = schema.get("schemaType") or "AVRO"
            if kind != "AVRO":
                raise ConfigError(
                    f"Version {schema['version']} of {subject} is {kind}, not Avro.",
                    options=["subject"],
                    hint="Decode values of JSON Schema and Protobuf without the registry: decode(..., framed=True).",
                )
        writers = {index(schema["id"]): self._whole(schema) for schema in found}
        if reader is None:
            reader = self._whole(self._schema(f"/subjects/{name}/versions/latest", subject))
        return SubjectSchemas(subject, writers, reader)

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        name = urllib.parse.quote(subject, safe="")
        return self._schema(f"/subjects/{name}/versions/{version}?deleted=true", subject)

    def _schema(self, path: str, subject: str) -> dict[str, Any]:
        answer = self._get(path, subject)
        if not isinstance(answer, dict):
            raise TypeError(answer)
        return answer

    def _whole(self, schema: Mapping[str, Any]) -> str:
        """Return a schema with the types that it refers to in other subjects inlined."""
        referred: dict[tuple[str, int], Any] = {}
        left = [schema]
        while left:
            for reference in left.pop().get("references") or ():
                subject, version = reference["subject"], reference["version"]
                if (subject, version) not in referred:
                    left.append(referred.setdefault((subject, version), self._version(subject, version)))
        text = str(schema["schema"])
        return whole(text, (one["schema"] for one in referred.values())) if referred else text

    def _get(self, path: str, subject: str) -> Any:
        request = urllib.request.Request(self.url.rstrip("/") + path, headers=self._headers())
        host = urllib.parse.urlsplit(self.url).hostname
        try:
            # In a thread, since a socket's timeout starts over with each byte that arrives.
            answer = in_thread(lambda: self._ask(request), "lvq-registry").result(self.timeout)
            return read_json(answer.decode("utf-8"))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise ConfigError(f"The schema registry {host} has no {subject}.", options=["subject"]) from None
            kind = AuthenticationFailed if error.code in (401, 403) else TransportError
            raise kind(
                f"The schema registry {host} refused with {error.code} {error.reason}.",
                code=f"HTTP_{error.code}",
                retriable=error.code >= 500 or error.code in _BUSY,
            ) from None
        except (OSError, http.client.IncompleteRead) as error:  # includes URLError
            reason = str(getattr(error, "reason", error)) or f"no answer within {self.timeout:g} s"
            raise TransportError(
                f"The schema registry {host} cannot be reached: {reason}.", code="_TRANSPORT", retriable=True
            ) from None
        except (ValueError, http.client.HTTPException):
            raise self._no_registry() from None

    def _ask(self, request: urllib.request.Request) -> bytes:
        context = ssl.create_default_context(cafile=self.ca_location)
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect)
        with opener.open(request, timeout=self.timeout) as answer:
            body = bytes(answer.read(_LONGEST))
            if answer.length:
                raise http.client.IncompleteRead(body, answer.length)
            return body

    def _no_registry(self) -> TransportError:
        host = urllib.parse.urlsplit(self.url).hostname
        return TransportError(f"The server at {host} is not a schema registry.", code="_BAD_MSG")

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        elif self.username is not None:
            pair = f"{self.username}:{self.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return headers


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirects, since our password would be sent along."""

    def redirect_request(self, *_: Any) -> None:
        return None
