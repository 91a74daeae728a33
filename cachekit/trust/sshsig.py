"""Signatures as `ssh-keygen -Y sign` makes them [openssh-portable, PROTOCOL.sshsig], as bytes.

    signed  = "SSHSIG" string(namespace) string("") string(hash) string(H(message))
    blob    = "SSHSIG" uint32(1) string(key) string(namespace) string("") string(hash) string(signature)

What ssh-keygen prints is the blob in base64 between two lines. ssh-keygen passes over what stands after the last of
them, so that a text is not an identity: only the blob is kept, and it is read whole or refused.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

from msgspec import Struct

from cachekit.trust.envelope import SIGNATURE, MalformedError
from cachekit.trust.keys import ED25519, PublicKey, key_of_blob

NAMESPACE = "cachekit-record@v1"  # what a signature is for: one that was made for another purpose is refused
_MAGIC = b"SSHSIG"
_VERSION = 1
_HASHES = ("sha512", "sha256")
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_WIDTH = 70  # characters of a line, as ssh-keygen writes
_TOUCHED = 0x01  # the flag that a hardware key sets when somebody touched it [PROTOCOL.u2f]
# What a signature calls itself, where that is not what its key is called: RSA never with SHA-1.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


class Parsed(Struct, frozen=True):
    """A blob, taken apart.

    Attributes:
        key: The key that it says it was made with.
        hash: The message's: `sha512` or `sha256`.
        signature: The inner signature's bytes, without what it calls itself.
    """

    key: PublicKey
    hash: str
    signature: bytes


def string(data: bytes) -> bytes:
    """Bytes with their length before them."""
    return len(data).to_bytes(4, "big") + data


def signed(message: bytes, hash_name: str = "sha512") -> bytes:
    """The bytes that the inner signature is over."""
    digest = hashlib.new(hash_name, message).digest()
    return _MAGIC + string(NAMESPACE.encode()) + string(b"") + string(hash_name.encode()) + string(digest)


def build(key: PublicKey, signature: bytes, hash_name: str = "sha512") -> bytes:
    """A blob out of an ed25519 signature over `signed`."""
    inner = string(ED25519.encode()) + string(signature)
    head = _MAGIC + _VERSION.to_bytes(4, "big") + string(key.blob)
    return head + string(NAMESPACE.encode()) + string(b"") + string(hash_name.encode()) + string(inner)


def parse(blob: bytes) -> Parsed:
    """A blob that is for us, taken apart; nothing says yet that the signature in it holds.

    Raises:
        MalformedError: It is not whole, or there is more; another version or namespace; a hash or a key that is not
            taken; or a hardware key that nobody touched. (`ssh-keygen` does not ask for a touch.)
    """
    if len(blob) > SIGNATURE:
        raise MalformedError(f"{len(blob):,} bytes are too many for a signature")
    source = _Reader(blob)
    if source.take(len(_MAGIC)) != _MAGIC or int.from_bytes(source.take(4), "big") != _VERSION:
        raise MalformedError("it is not a version 1 signature of ssh-keygen")
    try:
        key = key_of_blob(source.string())
    except ValueError as error:
        raise MalformedError(f"the key in it cannot be used: {error}") from error
    namespace, reserved, hash_name = source.string(), source.string(), source.string().decode("ascii", "replace")
    inner = _Reader(source.string())
    source.end()
    if namespace != NAMESPACE.encode():
        raise MalformedError(f"it was made for {namespace[:80].decode('ascii', 'replace')!r}, not for {NAMESPACE!r}")
    if reserved or hash_name not in _HASHES:
        raise MalformedError("its message was hashed in a way that is not accepted")
    algorithm = inner.string().decode("ascii", "replace")
    if algorithm not in _ALGORITHMS.get(key.kind, (key.kind,)):
        raise MalformedError(f"{algorithm[:40]!r} is not a signature algorithm of {key.kind} keys")
    signature = inner.string()
    if key.device:
        flags = inner.take(1)[0]
        inner.take(4)  # how often the key has signed
        if not flags & _TOUCHED:
            raise MalformedError("the signature was made without touching the hardware key")
    inner.end()
    return Parsed(key, hash_name, signature)


def armor(blob: bytes) -> str:
    """A blob as the text that `ssh-keygen` reads."""
    text = base64.b64encode(blob).decode("ascii")
    lines = [text[at : at + _WIDTH] for at in range(0, len(text), _WIDTH)]
    return "\n".join([_BEGIN, *lines, _END, ""])


def dearmor(text: str) -> bytes:
    """The blob in a text of `ssh-keygen`.

    Raises:
        MalformedError: There is anything but the two lines and base64 between them.
    """
    found = re.fullmatch(rf"{_BEGIN}\n([A-Za-z0-9+/=\n]+)\n{_END}\n?", text)
    try:
        return base64.b64decode(found[1].replace("\n", "") if found else "!", validate=True)
    except (binascii.Error, ValueError) as error:
        raise MalformedError("it is not a signature of ssh-keygen") from error


class _Reader:
    """Bytes that are read from the front, to their end."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise MalformedError("it is cut short")
        part, self._at = self._data[self._at : end], end
        return part

    def string(self) -> bytes:
        return self.take(int.from_bytes(self.take(4), "big"))

    def end(self) -> None:
        if self._at != len(self._data):
            raise MalformedError("something follows its end")
