"""The repository that jars come from: its address, mirrors, proxies, authorities, and what a POM needs."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from jgo.constants import MAVEN_CENTRAL_URL

from lvq_kafka.embedded import ensure_jars, jars
from lvq_kafka.embedded.coordinates import Module
from lvq_kafka.embedded.maven_settings import read_mirror
from lvq_kafka.embedded.repository import Repository
from lvq_kafka.errors import EmbeddedBrokerError
from tests.unit.embedded.serving import FakeRepository, serve

Settings = Callable[..., None]

AUTHORITY = trustme.CA()


@pytest.fixture
def encrypted(repository: FakeRepository, settings: Settings) -> Iterator[FakeRepository]:
    """Return the repository with TLS, and a certificate that only `AUTHORITY` vouches for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    with serve(repository, context):
        settings(repository.url)
        yield repository


# -- where the jars come from ------------------------------------------------------------------------------------------


def test_without_settings_it_is_the_public_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LVQ_MAVEN_SETTINGS", raising=False)
    with Repository("jars") as repository:
        assert repository.root == MAVEN_CENTRAL_URL


def test_the_mirror_in_the_user_s_settings_is_used(
    repository: FakeRepository, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / "settings.xml").rename(tmp_path / ".m2" / "settings.xml")
    monkeypatch.delenv("LVQ_MAVEN_SETTINGS")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(ensure_jars()) == 2
    assert len(repository.requests) == 2


@pytest.mark.parametrize("pattern", ["central", "*", "external:*", "others, central", "*,!others"])
def test_a_mirror_of_the_public_repository_has_one_of_these_patterns(pattern: str, settings: Settings) -> None:
    settings("http://repository.invalid/maven2/", pattern=pattern)
    mirror = read_mirror()
    assert mirror is not None
    assert (mirror.name, mirror.url, mirror.user) == ("ours", "http://repository.invalid/maven2", None)


@pytest.mark.parametrize("pattern", ["others", "*,!central", "external:http:*", ""])
def test_other_mirrors_are_passed_over(pattern: str, settings: Settings) -> None:
    settings("http://repository.invalid/maven2", pattern=pattern)
    assert read_mirror() is None


def test_the_mirror_is_asked_as_the_user_of_its_server(
    repository: FakeRepository, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRROR_PASSWORD", "secret")
    server = "<id>ours</id><username>ann</username><password>${env.MIRROR_PASSWORD}</password>"
    settings(repository.url, f"<servers><server>{server}</server></servers>")
    ensure_jars()
    assert repository.requests[0][1]["authorization"] == "Basic " + base64.b64encode(b"ann:secret").decode()
    assert "secret" not in repr(read_mirror())


@pytest.mark.parametrize("status", [401, 403])
def test_a_mirror_that_refuses_the_user_is_asked_once(repository: FakeRepository, status: int) -> None:
    repository.statuses = [status]
    with pytest.raises(EmbeddedBrokerError, match=rf"{status}.*the password of the server ours in your Maven settings"):
        ensure_jars()
    assert len(repository.requests) == 1


def test_settings_that_cannot_be_read_are_named(settings: Settings, two_jars: None, cache: Path) -> None:
    settings("<")
    with pytest.raises(EmbeddedBrokerError, match=r"settings\.xml cannot be read"):
        ensure_jars()


def test_settings_that_a_variable_names_must_exist(settings: Settings, two_jars: None, cache: Path) -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"LVQ_MAVEN_SETTINGS names .*settings\.xml, which is not a file"):
        ensure_jars()


def test_settings_of_ivy_name_their_successor(repository: FakeRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LVQ_IVY_SETTINGS", "ivy.xml")
    with pytest.raises(EmbeddedBrokerError, match=r"LVQ_IVY_SETTINGS is no longer read.*LVQ_MAVEN_SETTINGS"):
        ensure_jars()
    assert repository.requests == []


def test_an_address_that_makes_no_sense_is_reported_at_once(settings: Settings, two_jars: None, cache: Path) -> None:
    settings("repository.invalid/maven2")
    with pytest.raises(EmbeddedBrokerError, match="the mirror ours: Invalid URL"):
        ensure_jars()


# -- proxies and authorities -------------------------------------------------------------------------------------------


def test_the_proxy_of_the_environment_is_used(
    repository: FakeRepository, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings("http://repository.invalid/maven2")
    monkeypatch.setenv("HTTP_PROXY", repository.url)
    assert len(ensure_jars()) == 2
    assert repository.requests[0][0].startswith("http://repository.invalid/maven2/org/example/alpha/")


def test_behind_a_proxy_the_authorities_are_the_same(
    encrypted: FakeRepository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    proxy = FakeRepository({})
    with serve(proxy):
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert len(ensure_jars()) == 2
    assert proxy.requests == [(urlsplit(encrypted.url).netloc, {})], "one connection is kept for all jars"


def test_a_host_in_no_proxy_is_asked_directly(repository: FakeRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert len(ensure_jars()) == 2


def test_a_proxy_that_cannot_be_reached_is_named_without_its_password(
    repository: FakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://ann:secret@proxy.invalid:3128")
    with pytest.raises(EmbeddedBrokerError, match=r"Check the proxy proxy\.invalid") as caught:
        ensure_jars()
    assert "secret" not in str(caught.value)


def test_a_proxy_that_refuses_the_user_is_named(repository: FakeRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", repository.url)
    repository.statuses = [407]
    with pytest.raises(EmbeddedBrokerError, match=r"407.*Check the proxy 127\.0\.0\.1"):
        ensure_jars()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_an_authority_of_the_user_is_trusted(
    encrypted: FakeRepository, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv(variable, str(tmp_path / "ca.pem"))
    assert len(ensure_jars()) == 2


def test_a_missing_file_of_authorities_is_named(encrypted: FakeRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file.pem")
    with pytest.raises(EmbeddedBrokerError, match=r"/no/such/file\.pem\. Correct REQUESTS_CA_BUNDLE"):
        ensure_jars()


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(encrypted: FakeRepository) -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"(?s)CERTIFICATE_VERIFY_FAILED.*SSL_CERT_FILE"):
        ensure_jars()
    assert encrypted.requests == []


# -- what a lock is resolved from --------------------------------------------------------------------------------------


def pom(name: str, *needed: str, version: str = "1.0") -> bytes:
    lines = "".join(
        f"<dependency><groupId>org.example</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<scope>{scope or 'compile'}</scope></dependency>"
        for artifact, _, scope in (line.partition(":") for line in needed)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>org.example</groupId><artifactId>{name}</artifactId><version>1.0</version>"
        "<properties><own>${project.basedir}/x</own></properties>"
        f"<dependencies>{lines}</dependencies></project>"
    ).encode()


@pytest.fixture
def others(repository: FakeRepository, tmp_path: Path) -> jars.JarSet:
    """Return a set of jars whose lock is resolved from two roots, one without what it needs."""
    poms = {
        "alpha": pom("alpha", "beta:runtime", "junit:test", "servlet:provided"),
        "beta": pom("beta", "gamma"),
        "gamma": pom("gamma"),
        "delta": pom("delta", "never"),
    }
    for name, text in poms.items():
        repository.files[f"org/example/{name}/1.0/{name}-1.0.pom"] = text
        repository.files[f"org/example/{name}/1.0/{name}-1.0.jar"] = name.encode()
    return jars.JarSet(
        what="other jars",
        directory="others",
        lock_file=tmp_path / "others.lock",
        roots=(Module("org.example", "alpha", "1.0", transitive=True), Module("org.example", "delta", "1.0")),
        relocked_by="this test",
    )


def test_a_lock_is_resolved_from_its_roots(others: jars.JarSet) -> None:
    assert others.relock() == 4
    assert [jar.name for jar in others.read_lock()] == ["alpha", "beta", "delta", "gamma"]
    assert len(others.ensure()) == 4


def test_a_lock_is_not_resolved_without_a_pom(others: jars.JarSet, repository: FakeRepository) -> None:
    del repository.files["org/example/gamma/1.0/gamma-1.0.pom"]
    with pytest.raises(EmbeddedBrokerError, match=r"gamma-1\.0\.pom from the mirror ours: the answer was 404"):
        others.relock()
    assert not others.lock_file.exists()


def test_a_lock_is_not_resolved_with_a_pom_that_has_no_meaning(others: jars.JarSet, repository: FakeRepository) -> None:
    repository.files["org/example/beta/1.0/beta-1.0.pom"] = pom("beta", "gamma", version="")
    with pytest.raises(EmbeddedBrokerError, match=r"The POM of org\.example:beta.* cannot be read"):
        others.relock()
    assert not others.lock_file.exists()
