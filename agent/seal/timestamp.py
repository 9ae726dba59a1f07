"""Timestamps of a named authority (RFC 3161): the request, the exchange over HTTP, and checking an answer offline.

The request is 60 bytes of DER and written here; the answer is a signed CMS message with certificates, which
``rfc3161-client`` checks.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Optional

from agent.seal.keys import needs_library
from agent.text import Text, msg

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

TIMEOUT_S = 30.0
MOST_ANSWER = 1 << 20
_SHA256 = bytes.fromhex("0609608648016503040201")  # OBJECT IDENTIFIER 2.16.840.1.101.3.4.2.1
_NULL, _TRUE, _VERSION = b"\x05\x00", b"\x01\x01\xff", b"\x02\x01\x01"


class NoTimestamp(Exception):
    """The authority gave none, or the one it gave does not hold; in one sentence."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass(frozen=True)
class Stamp:
    """What an authority attests: ``at`` in UTC (ISO 8601). ``anchored``: its root is one that the reader named."""

    at: str
    authority: str
    anchored: bool


def query(digest: bytes, nonce: Optional[int] = None) -> bytes:
    """A TimeStampReq for a sha256 (RFC 3161 section 2.4.1), with a nonce and a wish for the certificates."""
    imprint = _sequence(_sequence(_SHA256 + _NULL) + _tagged(0x04, digest))
    number = secrets.randbits(63) if nonce is None else nonce
    return _sequence(_VERSION + imprint + _integer(number) + _TRUE)


def _integer(value: int) -> bytes:
    # One bit more than the value has: a leading zero byte keeps it positive.
    return _tagged(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _sequence(content: bytes) -> bytes:
    return _tagged(0x30, content)


def _tagged(tag: int, content: bytes) -> bytes:
    if len(content) > 127:
        raise ValueError("longer than the short form of DER")
    return bytes([tag, len(content)]) + content


def fetch(url: str, digest: bytes) -> bytes:
    """The authority's answer for a sha256, checked to be for it. Raises NoTimestamp, UnusableKey."""
    import urllib.request
    from http.client import HTTPException

    if not url.startswith(("http://", "https://")):
        raise NoTimestamp(msg("{url} is no http or https address", url=url))
    headers = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}
    request = urllib.request.Request(url, query(digest), headers)  # noqa: S310 - checked above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:  # noqa: S310 - checked above
            answer: bytes = reply.read(MOST_ANSWER + 1)
    except (OSError, HTTPException, ValueError) as error:
        raise NoTimestamp(msg("{url} gave no timestamp: {error}", url=url, error=str(error))) from error
    if len(answer) > MOST_ANSWER:
        raise NoTimestamp(msg("{url} gave no timestamp: {error}", url=url, error="> 1 MiB"))
    check(answer, digest, ())
    return answer


def load_roots(path: Path) -> tuple[Certificate, ...]:
    """The certificates of a PEM file. Raises NoTimestamp, UnusableKey (no library)."""
    with needs_library():
        from cryptography import x509
    try:
        return tuple(x509.load_pem_x509_certificates(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise NoTimestamp(msg("{file} holds no certificates: {error}", file=str(path), error=str(error))) from error


def check(answer: bytes, digest: bytes, roots: tuple[Certificate, ...]) -> Stamp:
    """What the answer attests about a sha256. Raises NoTimestamp where it does not hold, UnusableKey (no library).

    Without ``roots`` only what it says is checked, not who says it: anybody could have made it.
    """
    with needs_library():
        import rfc3161_client as tsp
        from cryptography import x509
    try:
        response = tsp.decode_timestamp_response(answer)
        carried = [x509.load_der_x509_certificate(c) for c in response.signed_data.certificates]
        info = response.tst_info
        if roots:
            # The carried certificates are not named here: the library trusts whatever it is given.
            tsp.VerifierBuilder(roots=list(roots)).build().verify(response, digest)
        elif response.status != 0 or info.message_imprint.message != digest:
            raise ValueError("not granted, or for other data")
    except (tsp.VerificationError, ValueError) as error:
        raise NoTimestamp(msg("the timestamp does not hold: {error}", error=str(error))) from error
    named = [c.subject.rfc4514_string() for c in carried if _stamps(c)]
    at = info.gen_time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return Stamp(at, named[0] if named else "?", bool(roots))


def _stamps(certificate: Certificate) -> bool:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return False
    return ExtendedKeyUsageOID.TIME_STAMPING in usage
