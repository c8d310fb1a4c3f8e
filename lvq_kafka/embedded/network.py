"""Give Java the proxy and the certificate authorities of the rest of the machine.

Java ignores ``HTTPS_PROXY`` and brings its own list of certificate authorities. Where TLS is inspected on the way, the
inspecting authority is in the file that ``SSL_CERT_FILE`` names, but not in that list. Either way a download by Java
would fail while every other tool works.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

__all__ = ["java_network_options", "write_trust_store"]

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2
# The format's own, public salt. A trust store holds no secret; its password only guards against bit rot.
_SALT = "changeit".encode("utf-16-be") + b"Mighty Aphrodite"


def java_network_options(directory: Path) -> list[str]:
    """Return the java options for this machine's proxy and certificate authorities.

    A trust store is written into ``directory``.
    """
    return [*_proxy_options(getproxies()), *_trust_options(directory)]


def _proxy_options(proxies: Mapping[str, str]) -> list[str]:
    options = []
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options and (direct := proxies.get("no")):
        hosts = (host.strip() for host in direct.split(","))
        # A leading dot means "and below" to most tools; Java uses a star for that.
        options.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{h}" if h.startswith(".") else h for h in hosts if h))
    return options


def _trust_options(directory: Path) -> list[str]:
    named = os.environ.get("SSL_CERT_FILE")
    if not named or not Path(named).is_file() or "javax.net.ssl.trustStore" in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        return []
    store = directory / "trust.jks"
    if not write_trust_store(Path(named), store):
        return []
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]


def write_trust_store(pem: Path, store: Path) -> int:
    """Write the certificates of the file ``pem`` into a Java key store (JKS).

    Return their number.
    """
    text = pem.read_text(encoding="ascii", errors="ignore")
    certificates = list(dict.fromkeys(ssl.PEM_cert_to_DER_cert(found) for found in _CERTIFICATE.findall(text)))
    content = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for index, der in enumerate(certificates):
        content += struct.pack(">I", _TRUSTED) + _utf(f"ca{index}") + struct.pack(">Q", 0)
        content += _utf("X.509") + struct.pack(">I", len(der)) + der
    digest = hashlib.sha1(_SALT + content, usedforsecurity=False).digest()
    store.write_bytes(content + digest)
    return len(certificates)


def _utf(text: str) -> bytes:
    data = text.encode("ascii")
    return struct.pack(">H", len(data)) + data
