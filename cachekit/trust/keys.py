"""Public keys as OpenSSH writes them: `ssh-ed25519 AAAA… comment`.

Only kinds that `ssh-keygen -Y` signs with today [PROTOCOL.sshsig; RFC 4253 6.6; RFC 5656 3.1; PROTOCOL.u2f]: no DSA, no
certificates, no short RSA. A key is its bytes: two lines with other comments are the same key. So each
has one spelling here: OpenSSH takes others of the same number, and a key that is revoked would come back by them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence

from msgspec import Struct

ED25519 = "ssh-ed25519"
# What follows the kind in a key's bytes: how many strings, and for fixed lengths how long they are; 0 is any length.
_FIELDS: Mapping[str, tuple[int, ...]] = {
    ED25519: (32,),
    "sk-ssh-ed25519@openssh.com": (32, 0),  # the key, and the application that it is bound to
    "ecdsa-sha2-nistp256": (8, 65),  # the curve's name, and a point, which is not compressed
    "ecdsa-sha2-nistp384": (8, 97),
    "ecdsa-sha2-nistp521": (8, 133),
    "sk-ecdsa-sha2-nistp256@openssh.com": (8, 65, 0),
    "ssh-rsa": (0, 0),  # the exponent, and the modulus
}
KINDS = tuple(_FIELDS)
_ED25519_PRIME = 2**255 - 19  # [RFC 8032 5.1]
_RSA_BITS = 2048  # shorter ones are broken by those who can pay for it
LARGEST_FILE = 64 << 10  # bytes of a file with one key
_LARGEST = 4096  # bytes of a key; RSA of 16384 bits has 2069


class PublicKey(Struct, frozen=True):
    """A public key.

    Attributes:
        kind: `ssh-ed25519`, say.
        blob: The bytes that `AAAA…` stands for.
    """

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """`SHA256:` and 43 characters, as `ssh-keygen -l` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii").rstrip("=")

    @property
    def line(self) -> str:
        """The key as a `.pub` file has it, without a comment."""
        return f"{self.kind} {base64.b64encode(self.blob).decode('ascii')}"

    @property
    def device(self) -> bool:
        """Whether the private half lies in a hardware key, which can be touched."""
        return self.kind.startswith("sk-")


def public_key(line: str) -> PublicKey:
    """The key in a line of a `.pub` file: its kind, its bytes in base64, perhaps a comment.

    Raises:
        ValueError: It is not such a line, of a kind that is not taken, or its bytes are not a key of that kind.
    """
    words = line.split()
    if "\n" in line.strip() or len(words) < 2:  # noqa: PLR2004
        raise ValueError('expected one line "ssh-ed25519 AAAA…", as a .pub file has it')
    try:
        blob = base64.b64decode(words[1], validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"what follows {words[0][:40]} is not base64") from None
    return key_of_blob(blob, words[0])


def key_of_blob(blob: bytes, kind: str = "") -> PublicKey:
    """The key that some bytes are.

    Args:
        blob: The bytes: strings with their lengths before them, the kind first.
        kind: What the kind must be; any that is taken, where nothing is said.

    Raises:
        ValueError: They are none, or of another kind.
    """
    if len(blob) > _LARGEST:
        raise ValueError(f"{len(blob):,} bytes are too many for a key")
    inside, *fields = _strings(blob)
    found = inside.decode("ascii", "replace")
    if kind and found != kind:
        raise ValueError(f"the line says {kind[:40]}, and its bytes {found[:40]!r}")
    if found not in _FIELDS:
        raise ValueError(f"keys of the kind {found[:40]!r} are not accepted; those that are: {', '.join(KINDS)}")
    lengths = _FIELDS[found]
    if len(fields) != len(lengths) or any(
        wanted not in {0, len(field)} for field, wanted in zip(fields, lengths, strict=True)
    ):
        raise ValueError(f"its bytes are not a key of the kind {found}")
    if not _plainly_spelt(found, fields):
        raise ValueError("the key is not canonically encoded")
    if found == "ssh-rsa" and int.from_bytes(fields[1], "big").bit_length() < _RSA_BITS:
        raise ValueError(f"RSA keys of less than {_RSA_BITS} bits are not accepted")
    return PublicKey(found, blob)


def _plainly_spelt(kind: str, fields: Sequence[bytes]) -> bool:
    """Whether bytes spell the key in the one way that `ssh-keygen` writes."""
    if kind == "ssh-rsa":
        return all(field == _number(int.from_bytes(field, "big")) for field in fields)
    if "ecdsa" in kind:
        curve = kind.partition("@")[0].rpartition("-")[2]
        return fields[0] == curve.encode() and fields[1][0] == 4  # noqa: PLR2004 - a point that is not compressed
    return int.from_bytes(fields[0], "little") % 2**255 < _ED25519_PRIME


def _number(number: int) -> bytes:
    """A positive number as SSH writes it: no zeros before it but one that says that it is not negative [RFC 4251 5]."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big") if number else b""


def _strings(blob: bytes) -> list[bytes]:
    """The strings that bytes are made of, and nothing after them."""
    found, at = [], 0
    while at < len(blob):
        end = at + 4 + int.from_bytes(blob[at : at + 4], "big")
        if len(blob) < at + 4 or end > len(blob):
            raise ValueError("its bytes are not a key")
        found.append(blob[at + 4 : end])
        at = end
    if not found:
        raise ValueError("its bytes are not a key")
    return found
