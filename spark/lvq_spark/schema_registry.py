"""Schemas from a schema registry, over plain HTTP: what is needed to read the values of one subject."""

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

from lvq_kafka.core.json_text import read_json
from lvq_kafka.errors import AuthenticationFailed, ConfigError, LVQError, TransportError
from lvq_kafka.kafka.threads import in_thread
from lvq_spark.avro_names import whole

__all__ = ["SchemaRegistry", "SubjectSchemas"]

_LONGEST = 64 << 20
"""Bytes that are read of an answer. No schema is nearly as large."""

_BUSY = (408, 429)
"""Statuses below 500 that pass: it took too long, or was asked too often."""


@dataclass(frozen=True, slots=True)
class SubjectSchemas:
    """The Avro schemas that the values of a subject have been written with.

    Args:
        subject: its name, usually ``<topic>-value``.
        writers: each of its schemas, by the registry's id, which every value starts with; with all types in it that
            lie in other subjects.
        reader: the schema that values are decoded to; each of the others is resolved to it by Avro's rules.
    """

    subject: str
    writers: Mapping[int, str]
    reader: str


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """A schema registry that speaks Confluent's protocol. It is asked on the driver only.

    Args:
        url: where it is; ``http://`` or ``https://``.
        username, password: for basic authentication.
        token: for bearer authentication, in their stead.
        ca_location: a PEM file of the authorities to trust, if not the system's.
        timeout: seconds for each question.

    Raises:
        ConfigError: the address is none of HTTP, or both ways of authentication are given.
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
            raise ConfigError("The schema registry's url is no http:// or https:// address.", options=["url"])
        if address.password is not None:
            raise ConfigError(
                "The schema registry's url holds a password, which would show in logs.",
                options=["url"],
                hint="Give username and password instead.",
            )
        if self.token is not None and self.username is not None:
            raise ConfigError("username and token are both given.", options=["username", "token"])

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> SchemaRegistry:
        """The registry of ``LVQ_REGISTRY_URL``, with ``_USERNAME``, ``_PASSWORD``, ``_TOKEN`` and ``_CA_LOCATION``.

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
        """All Avro schemas of a subject, those of versions that were deleted since included.

        A version that is registered later is not among them: ask again. Of a stream, the function for ``foreachBatch``
        can do that for each batch.

        Args:
            subject: its name, usually ``<topic>-value``.
            reader: the Avro schema to decode to; by default that of the subject's newest version.

        Raises:
            ConfigError: there is no such subject, or none that its schemas refer to, or they are not Avro.
            TransportError: the registry cannot be reached or refuses.
        """
        try:
            return self._schemas(subject, reader)
        except LVQError:
            raise
        except (KeyError, TypeError, ValueError, RecursionError):  # JSON, but of another kind
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
                    hint="Values of JSON Schema and Protobuf need none of the registry's: decode(..., framed=True).",
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
        """A schema with the types of other subjects in it that it refers to."""
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
            # In a thread, since the time-out of a socket begins again with each byte that comes.
            answer = in_thread(lambda: self._ask(request), "lvq-registry").result(self.timeout)
            return read_json(answer.decode("utf-8"))
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                raise ConfigError(f"The schema registry {host} has no {subject}.", options=["subject"]) from None
            kind = AuthenticationFailed if error.code in (401, 403) else TransportError
            raise kind(
                f"The schema registry {host} refuses with {error.code} {error.reason}.",
                code=f"HTTP_{error.code}",
                retriable=error.code >= 500 or error.code in _BUSY,
            ) from None
        except (OSError, http.client.IncompleteRead) as error:  # URLError among them
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
        return TransportError(f"What answers at {host} is no schema registry.", code="_BAD_MSG")

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        elif self.username is not None:
            pair = f"{self.username}:{self.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return headers


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Where we are sent to, our password would be sent, too."""

    def redirect_request(self, *_: Any) -> None:
        return None
