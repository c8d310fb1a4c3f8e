"""Fetch files from Maven's public repository, or from the user's mirror of it.

No repository is named here: jgo, a client of such repositories, knows the public one. Of jgo, this takes that address,
the places of files in a repository, and the resolution of dependencies. It downloads by itself, since jgo neither
resumes a file nor checks it, and reads no mirror of Maven's.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from jgo.maven import Artifact, MavenContext, Model, ProfileConstraints, PythonResolver
from jgo.parse import Coordinate
from requests import RequestException, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidSchema, InvalidURL, MissingSchema, ProxyError
from requests.utils import get_environ_proxies, select_proxy

from lvq_kafka.embedded.coordinates import Module
from lvq_kafka.embedded.maven_settings import read_mirror, settings_file
from lvq_kafka.errors import EmbeddedBrokerError

__all__ = ["Repository"]

Coordinates = tuple[str, str, str]
"""Organisation, name and version."""

ATTEMPTS = 4
PAUSE = 1.0  # before the second attempt; twice that before the third, and so on
CHUNK = 1 << 16  # bytes; of an answer that breaks off, those of the last chunk are lost
_PATIENCE = 30.0
_REFUSED = set(range(400, 500)) - {408, 425, 429}  # these mean a busy server
_UNAUTHORIZED = (401, 403)
_UNAUTHORIZED_BY_PROXY = 407
_NO_SUCH_RANGE = 416


class Repository:
    """A Maven repository.

    Args:
        what: the name of the jars in errors, after "the".

    Raises:
        EmbeddedBrokerError: the user's Maven settings cannot be read.
    """

    def __init__(self, what: str) -> None:
        mirror = read_mirror()
        self._what = what
        self._mirrored = mirror is not None
        self._context = MavenContext(remote_repos={mirror.name: mirror.url} if mirror else None)
        ((self._name, self.root),) = self._context.remote_repos.items()
        self._session = Session()
        self._session.mount("https://", _SystemTrust())
        self._session.headers["Accept-Encoding"] = "identity"  # a range of a compressed answer is useless
        if mirror is not None and mirror.user is not None:
            self._session.auth = mirror.user

    def __enter__(self) -> Repository:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def fetch(self, organisation: str, name: str, version: str, path: Path) -> None:
        """Fetch a module's jar into ``path``, which may hold the beginning of it.

        Failures are retried, keeping what has arrived.

        Raises:
            EmbeddedBrokerError: the repository lacks or refuses it, or all attempts failed.
            OSError: it cannot be written.
        """
        self.download(self._context.project(organisation, name).at_version(version).artifact(), path)

    def download(self, artifact: Artifact, path: Path) -> None:
        """Fetch a file into ``path``, as `fetch` does."""
        url = f"{self.root}/{artifact.component.path_prefix.as_posix()}/{artifact.filename}"
        trouble = ""
        for attempt in range(ATTEMPTS):
            time.sleep(PAUSE * (2**attempt - 1))
            try:
                trouble = self._append(url, path)
            except RequestException as error:
                cause = _innermost(error)
                trouble = str(cause) or type(cause).__name__
                if isinstance(cause, ssl.SSLCertVerificationError):
                    hint = "To trust it, name your machine's certificate authorities (a PEM file) in SSL_CERT_FILE."
                    raise self._failure(artifact.filename, trouble, hint) from error
                if isinstance(error, ProxyError):
                    raise self._failure(artifact.filename, trouble, _proxy_hint(url)) from error
                if isinstance(error, (InvalidSchema, InvalidURL, MissingSchema)):
                    raise self._failure(artifact.filename, trouble, self._hint) from error
            if not trouble:
                return
        raise self._failure(artifact.filename, f"{trouble} ({ATTEMPTS} attempts)", self._hint)

    def resolve(self, roots: Iterable[Module]) -> set[Coordinates]:
        """Return organisation, name and version of the roots and of what they need to run.

        Raises:
            EmbeddedBrokerError: as `fetch` does, or a POM has no meaning for jgo.
        """
        roots = tuple(roots)
        found = {module[:3] for module in roots}
        wanted = [module[:3] for module in roots if module.transitive]
        if wanted:
            with TemporaryDirectory() as poms:
                found.update(self._dependencies(wanted, Path(poms)))
        return found

    def _dependencies(self, modules: Iterable[Coordinates], poms: Path) -> Iterator[Coordinates]:
        # A POM may mention its own directory, whose name has no meaning here.
        constraints = ProfileConstraints(properties={"project.basedir": "."})
        resolver = _Poms(self, constraints)
        context = MavenContext(resolver, poms, remote_repos={self._name: self.root})
        # Raw: the versions that one module manages must not be forced on the others.
        wanted = [context.create_dependency(Coordinate(*each, scope="compile", raw=True)) for each in modules]
        inputs, others = resolver.resolve(wanted)
        for needed in (*inputs, *others):
            if needed.scope in ("compile", "runtime") and needed.type == "jar" and not needed.classifier:
                try:
                    Model(needed.artifact.component.pom(), context)
                except (ValueError, KeyError) as error:  # jgo would leave out what it needs, and not say so
                    raise EmbeddedBrokerError(f"The POM of {needed.artifact} cannot be read: {error}.") from error
                yield needed.groupId, needed.artifactId, needed.version
        if resolver.failure is not None:
            raise resolver.failure

    def _append(self, url: str, path: Path) -> str:
        """Fetch what ``path`` lacks of a file.

        Return why it is not complete, if it can be in a later attempt.
        """
        size = path.stat().st_size if path.exists() else 0
        headers = {"Range": f"bytes={size}-"} if size else {}
        with self._ask(url, headers) as response:
            code = response.status_code
            if code == _NO_SUCH_RANGE and size:
                path.unlink()
                return self._append(url, path)
            if code in _REFUSED:
                raise self._refusal(url, response)
            if code not in (200, 206):
                return f"the answer was {code} {response.reason}"
            with path.open("ab" if code == 206 else "wb") as file:
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
        return ""

    def _ask(self, url: str, headers: dict[str, str]) -> Response:
        try:
            return self._session.get(url, headers=headers, stream=True, timeout=_PATIENCE)
        except RequestException:  # it is an OSError, too
            raise
        except OSError as error:
            hint = "Correct REQUESTS_CA_BUNDLE or CURL_CA_BUNDLE."
            raise self._failure(url.rpartition("/")[2], str(error), hint) from error

    def _refusal(self, url: str, response: Response) -> EmbeddedBrokerError:
        hint = self._hint
        if response.status_code == _UNAUTHORIZED_BY_PROXY:
            hint = _proxy_hint(url)
        elif response.status_code in _UNAUTHORIZED and self._mirrored:
            hint = (
                f"Check the user and the password of the server {self._name} in your Maven settings; encrypted ones "
                "cannot be read."
            )
        return self._failure(url.rpartition("/")[2], f"the answer was {response.status_code} {response.reason}", hint)

    def _failure(self, file: str, reason: str, hint: str) -> EmbeddedBrokerError:
        place = f"the mirror {self._name}" if self._mirrored else "Maven's public repository"
        return EmbeddedBrokerError(f"Downloading the {self._what} failed at {file} from {place}: {reason}.", hint=hint)

    @property
    def _hint(self) -> str:
        if self._mirrored:
            return f"Check the network, and the mirror {self._name} in your Maven settings ({settings_file()})."
        return (
            f"Check the network; name a proxy in HTTPS_PROXY, or a mirror in your Maven settings ({settings_file()})."
        )


class _Poms(PythonResolver):
    """Lets jgo read POMs from a `Repository`."""

    def __init__(self, repository: Repository, constraints: ProfileConstraints) -> None:
        super().__init__(constraints)
        self._repository = repository
        self.failure: EmbeddedBrokerError | None = None
        """The first failure. The resolver goes on, without the dependencies in that POM."""

    def download(self, artifact: Artifact) -> Path:
        path = artifact.cached_path
        assert path is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._repository.download(artifact, path)
        except EmbeddedBrokerError as error:
            self.failure = self.failure or error
            raise
        return path


class _SystemTrust(HTTPAdapter):
    """Trusts this machine's authorities and those in ``SSL_CERT_FILE``, too.

    By itself, `requests` trusts those of its own list, or in ``REQUESTS_CA_BUNDLE``.
    """

    def __init__(self) -> None:
        self._context = ssl.create_default_context()
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options, ssl_context=self._context)

    def proxy_manager_for(self, *args: Any, **options: Any) -> Any:
        return super().proxy_manager_for(*args, **options, ssl_context=self._context)


def _innermost(error: BaseException) -> BaseException:
    """Return the reason in an error; those around it repeat the address and each other."""
    for inner in (getattr(error, "reason", None), *error.args):
        if isinstance(inner, BaseException):
            return _innermost(inner)
    return error


def _proxy_hint(url: str) -> str:
    proxy = select_proxy(url, get_environ_proxies(url)) or ""
    return f"Check the proxy {urlsplit(proxy).hostname} in HTTPS_PROXY or HTTP_PROXY, and its user and password."
