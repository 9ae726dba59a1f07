"""Ed25519 keys (RFC 8032) in PEM files, their fingerprints, signatures.

``cryptography`` is imported inside the functions: only who signs or checks a signature needs it.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.text import Text, msg

FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]{43}")


class UnusableKey(Exception):
    """A key that cannot be made, read or used, in one sentence."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


class NoLibrary(UnusableKey):
    """The extra ``seal`` is not installed."""


@contextmanager
def needs_library() -> Iterator[None]:
    """Around imports of the extra: says in one line what to install."""
    try:
        yield
    except ImportError as error:
        name = (error.name or str(error)).split(".")[0]
        text = msg("this needs the library “{name}”: pip install 'gpu-accept[seal]'", name=name)
        raise NoLibrary(text) from error


@dataclass(frozen=True)
class Signer:
    """A private key, ready to sign; ``public`` is its 32 raw bytes."""

    secret: bytes
    public: bytes

    def sign(self, message: bytes) -> bytes:
        """The 64 bytes of the signature."""
        with needs_library():
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        return Ed25519PrivateKey.from_private_bytes(self.secret).sign(message)


def default_place() -> Path:
    """Where the user's own key lies: ``$XDG_CONFIG_HOME/accept/key.pem``."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "accept" / "key.pem"


def public_place(private: Path) -> Path:
    """The public half beside a private key: ``key.pem`` → ``key.pub``."""
    return private.with_suffix(".pub")


def make(private: Path) -> str:
    """A new key pair; returns its fingerprint. Never overwrites. Raises UnusableKey."""
    with needs_library():
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key()
    public_pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    try:
        private.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _create(public_place(private), public_pem, 0o644)
        try:
            _create(private, pem, 0o600)
        except OSError:
            public_place(private).unlink()
            raise
    except FileExistsError as error:
        raise UnusableKey(msg("{file} exists already and is not overwritten", file=str(error.filename))) from error
    except OSError as error:
        raise UnusableKey(_cannot(private, error)) from error
    return fingerprint(public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw))


def _create(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def load_private(path: Path) -> Signer:
    """The private key of a PEM file. Raises UnusableKey."""
    data = _read(path)
    with needs_library():
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    try:
        key = serialization.load_pem_private_key(data, None)
    except (ValueError, TypeError) as error:
        raise UnusableKey(msg("{file} holds no private key that can be read", file=str(path))) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise UnusableKey(msg("{file} is no Ed25519 key", file=str(path)))
    public = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    secret = key.private_bytes(
        serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    )
    return Signer(secret, public)


def load_fingerprint(named: str) -> str:
    """The fingerprint of a key that is named by its fingerprint or by a PEM file (public, or private)."""
    if FINGERPRINT.fullmatch(named):
        return named
    data = _read(Path(named))
    with needs_library():
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    if b"PRIVATE KEY" in data:
        return fingerprint(load_private(Path(named)).public)
    try:
        key = serialization.load_pem_public_key(data)
    except ValueError as error:
        raise UnusableKey(msg("{file} holds no public key that can be read", file=named)) from error
    if not isinstance(key, Ed25519PublicKey):
        raise UnusableKey(msg("{file} is no Ed25519 key", file=named))
    return fingerprint(key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw))


def fingerprint(public: bytes) -> str:
    """``SHA256:`` and the base64 of the sha256 of the raw public key, as it can be read out on the phone."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public).digest()).decode().rstrip("=")


def verifies(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether the signature is this key's over this message."""
    with needs_library():
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnusableKey(_cannot(path, error)) from error


def _cannot(path: Path, error: OSError) -> Text:
    return msg("{file}: {error}", file=str(path), error=error.strerror or str(error))
