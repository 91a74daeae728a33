"""Public keys as OpenSSH writes them, `ssh-ed25519 AAAA… comment`, and signatures of `ssh-keygen -Y sign`, as bytes.

    signed  = "SSHSIG" string(namespace) string("") string(hash) string(H(message))
    blob    = "SSHSIG" uint32(1) string(key) string(namespace) string("") string(hash) string(signature)

[openssh-portable: PROTOCOL.sshsig.] What ssh-keygen prints is the blob in base64 between two lines. ssh-keygen passes
over what stands after the last of them, so that a text is not an identity: only the blob is kept, and it is read whole
or refused.

Of keys only kinds are taken that `ssh-keygen -Y` signs with today [RFC 4253 6.6; RFC 5656 3.1; PROTOCOL.u2f]: no DSA,
no certificates, no short RSA. A key is its bytes: two lines with other comments are the same key. So each has one
spelling here: OpenSSH takes others of the same number, and a key that is revoked would come back by them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from cachekit.text import cut
from cachekit.trust.envelope import SIGNATURE, MalformedError

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
_OPENSSH = b"openssh-key-v1\0"  # how the inside of a private key file begins [PROTOCOL.key]
_LARGEST = 4096  # bytes of a key; RSA of 16384 bits has 2069

NAMESPACE = "cachekit-record@v1"  # what a signature is for: one that was made for another purpose is refused
_MAGIC = b"SSHSIG"
_VERSION = 1
_HASHES = ("sha512", "sha256")
_OPENSSH_KEY = re.compile(r"-----BEGIN OPENSSH PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END")
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_WIDTH = 70  # characters of a line, as ssh-keygen writes
_TOUCHED = 0x01  # the flag that a hardware key sets when somebody touched it [PROTOCOL.u2f]
# What a signature calls itself, where that is not what its key is called: RSA never with SHA-1.
_ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


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
        raise ValueError(f"what follows {cut(words[0], 40)} is not base64") from None
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
        raise ValueError(f"the line says {cut(kind, 40)}, and its bytes {cut(found, 40)!r}")
    if found not in _FIELDS:
        raise ValueError(f"keys of the kind {cut(found, 40)!r} are not accepted; those that are: {', '.join(KINDS)}")
    lengths = _FIELDS[found]
    if len(fields) != len(lengths) or any(
        wanted not in {0, len(field)} for field, wanted in zip(fields, lengths, strict=True)
    ):
        raise ValueError(f"its bytes are not a key of the kind {found}")
    if not _plainly_spelt(found, fields):
        raise ValueError("the key is not canonically encoded")
    if found == "ssh-rsa" and int.from_bytes(fields[1], "big").bit_length() < _RSA_BITS:
        raise ValueError(f"RSA keys shorter than {_RSA_BITS} bits are not accepted")
    return PublicKey(found, blob)


def mended(text: str) -> str:
    """A private key as OpenSSH writes it, of one that came in a variable.

    Services that keep secrets lose line ends there, double their backslashes, or make Windows' line ends of them. The
    lines hold nothing: between the first and the last one stands base64 [PROTOCOL.key]. Other formats stay as they are.
    """
    found = _OPENSSH_KEY.search(text.replace("\\r", "\n").replace("\\n", "\n"))
    if found is None:
        return text.strip() + "\n"
    word = "".join(found[1].split())
    lines = [word[at : at + _WIDTH] for at in range(0, len(word), _WIDTH)]
    return "\n".join(["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----", ""])


def key_inside(text: str) -> PublicKey | None:
    """The public half inside of a private key in OpenSSH's own format, where it is not encrypted [PROTOCOL.key].

    Returns:
        The key; None where the format is another.

    Raises:
        ValueError: It is damaged.
    """
    found = _OPENSSH_KEY.search(text)
    raw = base64.b64decode(found[1]) if found else b""
    if not raw.startswith(_OPENSSH):
        return None
    at = len(_OPENSSH)
    for _ in range(3):  # the cipher, the function that makes its key, and its options
        at += 4 + int.from_bytes(raw[at : at + 4], "big")
    at += 4  # how many keys: always one
    return key_of_blob(raw[at + 4 : at + 4 + int.from_bytes(raw[at : at + 4], "big")])


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
        made_for = cut(namespace.decode("ascii", "replace"), 80)
        raise MalformedError(f"it was made for {made_for!r}, not for {NAMESPACE!r}")
    if reserved or hash_name not in _HASHES:
        raise MalformedError("its message was hashed in a way that is not accepted")
    algorithm = inner.string().decode("ascii", "replace")
    if algorithm not in _ALGORITHMS.get(key.kind, (key.kind,)):
        raise MalformedError(f"{cut(algorithm, 40)!r} is not a signature algorithm of {key.kind} keys")
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
