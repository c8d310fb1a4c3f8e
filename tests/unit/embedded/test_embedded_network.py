from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest
import trustme

from lvq_kafka.embedded import find_java
from lvq_kafka.embedded.network import _proxy_options, java_network_options, write_trust_store


@pytest.fixture
def authorities(tmp_path: Path) -> Path:
    """Return a PEM file of two authorities, one of them twice."""
    first, second = trustme.CA(organization_name="First"), trustme.CA(organization_name="Second")
    path = tmp_path / "ca.pem"
    path.write_bytes(b"".join(ca.cert_pem.bytes() for ca in (first, second, first)))
    return path


def test_java_is_told_to_trust_what_ssl_cert_file_names(
    authorities: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    options = java_network_options(tmp_path)
    assert f"-Djavax.net.ssl.trustStore={tmp_path / 'trust.jks'}" in options


def test_a_trust_store_that_the_user_chose_is_left_alone(
    authorities: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authorities))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djavax.net.ssl.trustStore=/their/own")
    assert not any("trustStore" in option for option in java_network_options(tmp_path))


def test_java_reads_the_trust_store(authorities: Path, tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    assert write_trust_store(authorities, store) == 2
    program = tmp_path / "Read.java"
    program.write_text(
        "class Read { public static void main(String[] a) throws Exception {"
        ' var s = java.security.KeyStore.getInstance(new java.io.File(a[0]), "changeit".toCharArray());'
        " for (var n : java.util.Collections.list(s.aliases()))"
        " System.out.println(((java.security.cert.X509Certificate) s.getCertificate(n)).getSubjectX500Principal());"
        "} }"
    )
    answer = subprocess.run([find_java().executable, program, store], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "O=First" in answer.stdout
    assert "O=Second" in answer.stdout


def test_a_file_without_certificates_makes_no_trust_store_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing here\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(empty))
    assert not any("trustStore" in option for option in java_network_options(tmp_path))


def test_the_proxy_of_the_environment_is_told_to_java() -> None:
    proxies = {"https": "http://user:secret@proxy.example:3128", "no": "localhost, .internal"}
    options = _proxy_options(proxies)
    assert options == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.internal",
    ]
    assert _proxy_options({}) == []


def test_this_machine_s_authorities_can_be_written(tmp_path: Path) -> None:
    named = ssl.get_default_verify_paths().cafile
    if named is None:
        named = str(tmp_path / "one.pem")
        trustme.CA().cert_pem.write_to_path(named)
    assert write_trust_store(Path(named), tmp_path / "trust.jks") > 0
