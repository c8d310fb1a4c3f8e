"""A broker with authentication and ACLs, and a server that is not a broker."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from lvq_kafka.embedded import EmbeddedBroker, Listener
from lvq_kafka.kafka import ClientConfig

__all__ = ["PASSWORD", "SecureBroker", "secure_broker", "web_server"]

PASSWORD = "s3cret-tiger"


@dataclass(frozen=True)
class SecureBroker:
    """A broker with a plain listener for its superuser, and TLS with passwords for others."""

    plain: str
    secure: str
    ca: str
    wrong_ca: str

    def config(self, user: str = "alice", password: str = PASSWORD, **properties: str) -> ClientConfig:
        """Return a user's configuration. Given properties override others; write underscores for dots."""
        return ClientConfig(
            self.secure,
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": password,
                "ssl.ca.location": self.ca,
            }
            | {name.replace("_", "."): value for name, value in properties.items()},
        )

    def allow(
        self,
        user: str,
        kind: ResourceType,
        name: str,
        *operations: AclOperation,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    ) -> None:
        """Grant a user rights. The broker applies them a moment later."""
        admin = AdminClient({"bootstrap.servers": self.plain, "log_level": 0})
        bindings = [
            AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        for future in admin.create_acls(bindings).values():
            future.result(10)

    def forbid(self, user: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Revoke a granted right. The broker applies this a moment later."""
        admin = AdminClient({"bootstrap.servers": self.plain, "log_level": 0})
        given = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
        )
        for future in admin.delete_acls([given]).values():
            assert future.result(10)


@contextmanager
def secure_broker(folder: Path, users: Sequence[str]) -> Iterator[SecureBroker]:
    """Start a secure broker. Each user has the password `PASSWORD` and no rights."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    chain = "".join(part.bytes().decode() for part in issued.cert_chain_pems)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "wrong.pem"))
    listener = Listener.sasl(dict.fromkeys(users, PASSWORD), certificate=chain, key=pkcs8)
    with EmbeddedBroker(listeners={"SECURE": listener}, acls=True) as broker:
        yield SecureBroker(
            broker.bootstrap_servers, broker.address("SECURE"), str(folder / "ca.pem"), str(folder / "wrong.pem")
        )


class _WebHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        if self.request.recv(1000):
            self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@contextmanager
def web_server() -> Iterator[str]:
    """Start a server that answers every request like a web server, and yield its address."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _WebHandler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
