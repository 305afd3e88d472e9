"""Certificates made for one test: an authority, and pairs of key and certificate that it has signed."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

AS_PEM = serialization.Encoding.PEM


class Authority:
    """Signs for the length of a day; `path` is its own certificate, for those who are to trust it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        own = x509.BasicConstraints(ca=True, path_length=None)
        self.path = folder / f"{name}.pem"
        made = _builder(self._name, self._name, self._key.public_key()).add_extension(own, critical=True)
        self.path.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(AS_PEM))

    def signed(self, name: str) -> tuple[Path, Path]:
        """Files with a key (PKCS #8) and its certificate, for a client, or for a server at 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        at = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = _builder(_named(name), self._name, key.public_key()).add_extension(at, critical=False)
        key_file, certificate = self._folder / f"{name}.key.pem", self._folder / f"{name}.pem"
        plain = serialization.NoEncryption()
        key_file.write_bytes(key.private_bytes(AS_PEM, serialization.PrivateFormat.PKCS8, plain))
        certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(AS_PEM))
        return key_file, certificate


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    made = made.serial_number(x509.random_serial_number())
    return made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
