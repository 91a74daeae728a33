"""What signs, and what checks signatures: `ssh-keygen`, or the `cryptography` package where that is of no use.

It is of none where it is not installed, where it is too old, and to a user whom the system has no name for, as in most
containers that do not run as root: then it ends before it looks at anything.

`ssh-keygen` signs with whatever OpenSSH signs with: a key file, an agent, a hardware key. It is shown files that live
in memory only (memfd_create(2)): a key that came in a variable never reaches a disk. For checking it gets one key and
no list of revoked ones: names, validity and revocation are `policy`'s, so that what ssh-keygen passes over in such
files (a line that it cannot read, an empty list) decides nothing.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from cachekit import files
from cachekit.config_trust import hide, is_inline
from cachekit.disk import in_settings
from cachekit.errors import UsageError
from cachekit.text import cause_of
from cachekit.trust import sshsig
from cachekit.trust.envelope import MalformedError
from cachekit.trust.sshsig import ED25519, LARGEST_FILE, PublicKey, key_inside, public_key
from cachekit.whose import open_judged

if TYPE_CHECKING:
    import subprocess

_PROGRAM = "ssh-keygen"
_SECONDS = 120.0  # for somebody to touch a hardware key, or to type a passphrase
_NO_SUCH_OPTION = b"unknown option"  # what ssh-keygen before 8.1 says of -Y
_NO_USER = b"No user exists for uid"  # what it says before anything else to a user without a name [ssh-keygen.c, main]
_DOES_NOT_HOLD = b"Could not verify signature"  # its verdict, on its output; other failures have the same exit code
_INSTALL, _NAME = "install OpenSSH 8.1 or later", "give this user a line in /etc/passwd"
_HELD: set[bytes] = set()  # signatures that held; one that did not is asked again


class Signer(Protocol):
    """What signs."""

    @property
    def key(self) -> PublicKey:
        """The public half."""

    def sign(self, message: bytes) -> bytes:
        """The blob of a signature over a message; see `sshsig`.

        Raises:
            UsageError: The key cannot be used: it is locked, its agent or its device is not there.
        """


def signer_of(setting: str) -> Signer:
    """The signer that `trust.key` names.

    Args:
        setting: The path of a private key; of its public half, where an agent has the private one; or the private key.

    Raises:
        UsageError: There is no such key, it is of a kind that is not taken, or others may read it.
    """
    key, path = key_of(setting), _path(setting)
    try:
        if path is not None:
            _read(path, closed=True)
    except OSError as error:
        raise _refused(setting, cause_of(error), f"chmod 600 {path}") from error
    return _Keyed(key, setting)


def key_of(setting: str) -> PublicKey:
    """The public half of the key that `trust.key` names. The private one is not unlocked for it.

    Raises:
        UsageError: There is no such key, or it is of a kind that is not taken.
    """
    try:
        path = _path(setting)
        text = sshsig.mended(setting) if path is None else _read(path).decode("ascii", "replace")
        if "PRIVATE KEY-----" not in text:
            return public_key(text)
        found = key_inside(text)
        if found is None and path is not None:  # an old format, which hides it
            found = public_key(_read(Path(f"{path}.pub")).decode("ascii"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the signing key {hide(setting)} cannot be used",
            cause=cause_of(error) if isinstance(error, OSError) else str(error),
            hint="name another key file, in trust.key or with --key; `cachekit trust init` makes a key",
        ) from error
    if found is None:
        raise _refused(setting, "it is not in OpenSSH's own format", "convert it with `ssh-keygen -p -f FILE`")
    return found


def make_key(path: Path, comment: str) -> None:
    """Make an ed25519 key without a passphrase, for this user alone, with its public half beside it in `.pub`.

    Args:
        path: Where; nothing may be there yet.
        comment: Whose it is, in the public half.

    Raises:
        UsageError: It cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            done = _run(["-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], ())
        except _UselessError as useless:
            _make_by_cryptography(path, comment, useless)
            return
        if done is None or done.returncode:
            raise _unmade(path, _last_words(done))
    except OSError as error:
        raise _unmade(path, cause_of(error)) from error


def holds(key: PublicKey, blob: bytes, message: bytes) -> bool:
    """Whether a signature was made with a key over a message. One that held is not checked twice by this process.

    Args:
        key: Whose it must be.
        blob: The signature; see `sshsig`.
        message: What it must be over.

    Raises:
        UsageError: Nothing here can check it.
    """
    digest = hashlib.sha256(b"".join(sshsig.string(part) for part in (key.blob, blob, message))).digest()
    if digest in _HELD:
        return True
    try:
        parsed = sshsig.parse(blob)
    except MalformedError:
        return False
    if parsed.key != key:
        return False
    try:
        held = _ask_ssh_keygen(key, blob, message)
    except _UselessError as useless:
        held = _ask_cryptography(parsed, message, useless)
    if held:
        _HELD.add(digest)
    return held


class _UselessError(Exception):
    """ssh-keygen cannot be asked: why, and what to do about it; for ed25519 a package helps, too."""

    def __init__(self, why: str, mend: str) -> None:
        super().__init__(why)
        self.mend, self.hint = mend, f'{mend}, or: pip install "cachekit-neuron[sign]"'


class _Keyed(Struct, frozen=True):
    """A key, and what `trust.key` says of it."""

    key: PublicKey
    setting: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key.fingerprint}, {hide(self.setting)!r})"

    def sign(self, message: bytes) -> bytes:
        try:
            return _sign_by_ssh_keygen(self.key, self.setting, message)
        except _UselessError as useless:
            return _sign_by_cryptography(self.key, self.setting, message, useless)


def _sign_by_ssh_keygen(key: PublicKey, setting: str, message: bytes) -> bytes:
    """A signature by ssh-keygen, and so by agents and hardware keys."""
    path = _path(setting)
    with _shown(message, *([sshsig.mended(setting).encode()] if path is None else [])) as (shown, handles):
        place = str(path) if path is not None else shown[1]
        done = _run(["-Y", "sign", "-f", place, "-n", sshsig.NAMESPACE], handles)
    if done is None:
        raise _refused(setting, _last_words(done), "unlock it")
    try:
        blob = sshsig.dearmor(done.stdout.decode("ascii", "replace"))
        parsed = sshsig.parse(blob)
    except MalformedError as error:
        raise _refused(
            setting,
            _last_words(done) if done.returncode else str(error),
            "load it into the agent with `ssh-add`, and try `ssh-keygen -Y sign` by hand",
        ) from error
    if parsed.key != key:
        raise _refused(setting, "its .pub file belongs to another key", "remove or correct that file")
    return blob


def _sign_by_cryptography(key: PublicKey, setting: str, message: bytes, useless: _UselessError) -> bytes:
    """A signature with an ed25519 key in a file or a variable."""
    if key.kind != ED25519:
        raise _refused(setting, f"{useless}, and without it only {ED25519} keys sign", useless.mend)
    try:
        from cryptography.hazmat.primitives.serialization import load_ssh_private_key
    except ImportError:
        raise _refused(setting, _neither(useless), useless.hint) from None
    path = _path(setting)
    try:
        text = sshsig.mended(setting).encode("ascii") if path is None else _private(path)
        private: Any = load_ssh_private_key(text.strip() + b"\n", password=None)
    except (OSError, ValueError, TypeError) as error:  # TypeError: it has a passphrase
        cause = f"{useless}, and without it: {error}"
        raise _refused(setting, cause, "name the file of a private key without passphrase") from error
    return sshsig.build(key, private.sign(sshsig.signed(message)))


def _make_by_cryptography(path: Path, comment: str, useless: _UselessError) -> None:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise _unmade(path, _neither(useless), useless.hint) from None
    made = Ed25519PrivateKey.generate()
    inside = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = made.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as target:
        target.write(inside)
    Path(f"{path}.pub").write_bytes(public + f" {comment}\n".encode())


def _ask_ssh_keygen(key: PublicKey, blob: bytes, message: bytes) -> bool:
    """Whether ssh-keygen takes a signature.

    Raises:
        _UselessError: It said neither that the signature holds nor that it does not.
    """
    allowed = f'signer namespaces="{sshsig.NAMESPACE}" {key.line}\n'.encode()
    with _shown(message, allowed, sshsig.armor(blob).encode()) as ((_, known, signature), handles):
        command = ["-Y", "verify", "-f", known, "-I", "signer", "-n", sshsig.NAMESPACE, "-s", signature]
        done = _run(command, handles)
    if done is None:
        raise _UselessError(_last_words(done), _INSTALL)
    if done.returncode and _DOES_NOT_HOLD not in done.stdout:
        raise _UselessError(_last_words(done), _INSTALL)
    return done.returncode == 0


def _ask_cryptography(parsed: sshsig.Parsed, message: bytes, useless: _UselessError) -> bool:
    """Whether the cryptography package takes a signature.

    Raises:
        UsageError: The package is missing, or this is not ed25519.
    """
    if parsed.key.kind != ED25519:
        raise UsageError(
            f"the signature of a {parsed.key.kind} key cannot be checked on this machine",
            cause=f"{useless}, and without it only signatures of {ED25519} keys can be checked",
            hint=useless.mend,
        )
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise UsageError(
            "signatures cannot be checked on this machine", cause=_neither(useless), hint=useless.hint
        ) from None
    try:
        Ed25519PublicKey.from_public_bytes(parsed.key.blob[-32:]).verify(
            parsed.signature, sshsig.signed(message, parsed.hash)
        )
    except (InvalidSignature, ValueError):
        return False
    return True


def _neither(useless: _UselessError) -> str:
    return f"{useless}, and the cryptography package is not installed"


def _run(command: list[str], handles: tuple[int, ...]) -> subprocess.CompletedProcess[bytes] | None:
    """What became of ssh-keygen; None where it did not end in time.

    Args:
        command: Its arguments.
        handles: Of the files that it may read. The first is its standard input: through a pipe, the megabytes of a
            statement about 10,000 files would take longer than all else.

    Raises:
        _UselessError: There is none, it is too old, or it does not work for this user.
    """
    import subprocess

    if not which(_PROGRAM):
        raise _UselessError("there is no ssh-keygen", _INSTALL)
    try:
        done = subprocess.run(
            [_PROGRAM, *command],
            stdin=handles[0] if handles else subprocess.DEVNULL,
            capture_output=True,
            check=False,
            pass_fds=handles,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode and _NO_SUCH_OPTION in done.stderr:
        raise _UselessError("ssh-keygen is older than OpenSSH 8.1", _INSTALL)
    if done.returncode and _NO_USER in done.stderr:
        raise _UselessError(_last_words(done), _NAME)
    return done


def _last_words(done: subprocess.CompletedProcess[bytes] | None) -> str:
    """How ssh-keygen failed: the last line that it printed, which says why."""
    if done is None:
        return f"ssh-keygen did not answer in {_SECONDS:.0f} s"
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"ssh-keygen: {said[-1] if said else f'exit code {done.returncode}'}"


@contextmanager
def _shown(*contents: bytes) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """Files that only this user may open, for ssh-keygen: their paths, and the handles that it must inherit.

    They lie on no disk where the system has files without a name (Linux), else in a private folder for the moment.
    """
    paths: list[str] = []
    handles: list[int] = []
    with ExitStack() as stack:
        for number, data in enumerate(contents):
            if hasattr(os, "memfd_create"):
                handle = os.memfd_create("cachekit")
                stack.callback(os.close, handle)
                os.fchmod(handle, 0o600)  # ssh-keygen takes no private key that others may read
                paths.append(f"/proc/self/fd/{handle}")
            else:
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cachekit-"))
                paths.append(str(Path(folder) / str(number)))
                handle = os.open(paths[-1], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                stack.callback(os.close, handle)
            handles.append(handle)
            with os.fdopen(handle, "wb", closefd=False) as target:
                target.write(data)
            os.lseek(handle, 0, os.SEEK_SET)
        yield paths, tuple(handles)


def _path(setting: str) -> Path | None:
    """Where the key lies; None where the setting is the key."""
    return None if is_inline(setting) else in_settings(setting)


def _private(path: Path) -> bytes:
    text = _read(path, closed=True)
    if b"PRIVATE KEY-----" not in text:
        raise ValueError("this is a public key; an agent has its private key")
    return text


def _read(path: Path, *, closed: bool = False) -> bytes:
    """What the file of a key says. What that key signs is believed as this user's: nobody else may put one there.

    Args:
        path: The file.
        closed: Others may not read a private key in it, either: ssh-keygen asks the same.
    """

    def judged(name: Path | str, flags: int) -> int:
        handle, found = open_judged(Path(name), flags)
        if found.whose != "own":
            os.close(handle)
            raise PermissionError(f"somebody else can put another key there: {found.why}")
        return handle

    with files.opened(path, opener=judged) as source:
        text, mode = source.read(LARGEST_FILE), os.fstat(source.fileno()).st_mode
    if closed and b"PRIVATE KEY-----" in text and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise PermissionError(f"others can read it (mode {stat.S_IMODE(mode):o})")
    return text


def _unmade(
    path: Path, cause: str, hint: str = "name a folder of yours, or a key that is there, with --key"
) -> UsageError:
    return UsageError(f"no signing key can be made at {path}", cause=cause, hint=hint)


def _refused(setting: str, cause: str, hint: str) -> UsageError:
    return UsageError(f"the signing key {hide(setting)} cannot sign", cause=cause, hint=hint)
