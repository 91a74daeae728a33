"""Whether two compiles of the same graphs gave the same result, apart from what two compiles never share.

Measured with torch 2.13.0 and GNU tools: of two cold compiles of one recipe all sources are the same bytes; machine
code differs in debug sections, the build id and the cache dir's path (`__FILE__`); graphs, which are pickles and named
after their bytes, differ in times, in addresses of functions in comments, and in that path. The text that a graph keeps
for people who want to run it alone (`runnable_graph_str`; nothing runs it) begins with the variables of the process
and the settings that were touched in it: which ones depends on what else compiled there, a graph beside neighbours or
alone, and their order on the hash seed. What of them reaches code is in the graph's key. No pickle is ever loaded for
this: its opcodes are read (`pickletools.genops`), which runs nothing.
"""

from __future__ import annotations

import hashlib
import pickletools
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cachekit.compilers.port import ComparedBuilds

_PICKLED = ("fxgraph/", "aotautograd/")  # `<kind>/…/<key>/<digest of the bytes>`
# A compiler cache dir of ours, whoever's home it lies in: `<key>-<process>-<random>/root` (see `store.scratch`).
_ROOT = re.compile(rb"(?:/[^\s'\"\0:]*)?/[0-9a-f]{1,16}-\d+-[0-9a-f]{12}/root")
_ADDRESS = re.compile(rb"\b0x[0-9a-f]{6,16}\b")
# A digest of text that has such an address in it, in the comments that say what a key was made of.
_POINTER = re.compile(rb"(?<=_TENSOR_DATA_PTR'\] = ')\d+(?=')")
_HASHED = re.compile(rb"\[[a-z2-7]{51,52}\](?= fx_kwargs\[get_decomp_fn\])")
_RUNNABLE = "runnable_graph_str"
_SETTING = re.compile(r"^(?:torch\.[\w.]*config\.[\w.]+|os\.environ\['\w+'\]) = .*\n", re.MULTILINE)
_TIME = "_ns"  # how names of measured times end
_ELF = b"\x7fELF"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NOBITS = 8
_LEFT = (".debug", ".note.gnu.build-id", ".gnu_debuglink", ".comment", ".symtab", ".strtab", ".shstrtab")


def compare(old: Path, new: Path, names: Iterable[str], others: Iterable[str]) -> ComparedBuilds:
    """Compare the finished files of two compiler cache dirs: `names` of the old one, `others` of the new one."""
    before, after = _form(old, names), _form(new, others)
    return ComparedBuilds.of(before, after, lambda name: _alike(before[name], after[name]))


def _form(root: Path, names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Digests of the normal form of each part: a file by its name, a graph by its key."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        part = name.rpartition("/")[0] if name.startswith(_PICKLED) else name
        found[part].append(_digest(name, (root / name).read_bytes()))
    return {part: tuple(sorted(digests)) for part, digests in found.items()}


def _alike(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    if one == other:
        return True
    if len(one) != 1 or len(other) != 1:
        return False
    # Machine code with its own path inside: a path of another length moves what stands behind it, and every distance
    # to that. Then only what does not move can be compared.
    (_, path, rest), (_, other_path, other_rest) = one[0].split(" "), other[0].split(" ")
    return path != other_path and rest == other_rest != ""


def _digest(name: str, raw: bytes) -> str:
    """A digest; of machine code with a path in it also that path's length, and a digest without what it moves."""
    rest, length = b"", 0
    if name.startswith(_PICKLED):
        normal = _pickle(raw)
    elif raw.startswith(_ELF):
        normal, rest, length = _code(raw)
    else:
        normal = _text(raw)
    return f"{hashlib.sha256(normal).hexdigest()} {length} {rest.hex()}"


def _text(raw: bytes) -> bytes:
    return _HASHED.sub(b"[]", _POINTER.sub(b"", _ADDRESS.sub(b"0x", _ROOT.sub(b"<root>", raw))))


def _code(raw: bytes) -> tuple[bytes, bytes, int]:
    """What counts in machine code: its sections, without those that say where and when it was made.

    Returns:
        A digest of them; one of their names and of the constants alone; and how long the paths in those are.
    """
    try:
        (offset,) = struct.unpack_from("<Q", raw, 40)
        count, names_at = struct.unpack_from("<HH", raw, 60)
        sections = [_SECTION.unpack_from(raw, offset + _SECTION.size * number) for number in range(count)]
        names = raw[sections[names_at][4] : sections[names_at][4] + sections[names_at][5]]
        parts, fixed, length = [], [], 0
        for section in sections:
            name = names[section[0] : names.index(b"\0", section[0])].decode("ascii")
            if not name.startswith(_LEFT):
                body = b"" if section[1] == _NOBITS else raw[section[4] : section[4] + section[5]]
                if name == ".rodata" and _ROOT.search(body):
                    length = sum(len(path) for path in _ROOT.findall(body))
                    body = re.sub(rb"\0+", b"\0", body)  # strings are padded to where the next one begins
                    fixed.append(_text(body))
                parts += [name.encode(), _text(body)]
                fixed.append(name.encode())
    except (struct.error, IndexError, ValueError, OverflowError):
        return raw, b"", 0  # no such file as linkers make: then its bytes are what it is
    return _joined(parts), _joined(fixed) if length else b"", length


def _joined(parts: list[bytes]) -> bytes:
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _pickle(raw: bytes) -> bytes:
    """A pickle's opcodes with their arguments, in a normal form; the bytes themselves if they are not a pickle."""
    digest = hashlib.sha256()
    memo: list[Any] = []
    end = 0
    last: Any = None  # the string before, if it was one
    try:
        for opcode, argument, at in pickletools.genops(raw):
            name = opcode.name
            end = (at or 0) + 1
            if name in {"FRAME", "PROTO"}:
                continue
            if name == "MEMOIZE":
                memo.append(last)
                continue
            if name in {"BINGET", "LONG_BINGET"} and isinstance(argument, int):
                digest.update(f"get {argument}\n".encode())
                last = memo[argument] if argument < len(memo) else None
                continue
            if isinstance(argument, int) and isinstance(last, str) and last.endswith(_TIME):
                digest.update(b"time\n")
            else:
                if isinstance(argument, str) and last == _RUNNABLE:
                    argument = _SETTING.sub("", argument)  # noqa: PLW2901
                digest.update(name.encode() + b" " + _argument(argument) + b"\n")
            last = argument if isinstance(argument, str) else None
    except (ValueError, IndexError, UnicodeDecodeError):
        return raw
    digest.update(_text(raw[end:]))
    return digest.digest()


def _argument(value: Any) -> bytes:
    if isinstance(value, str):
        return hashlib.sha256(_text(value.encode("utf-8", "surrogatepass"))).digest()
    if isinstance(value, bytes | bytearray):
        return hashlib.sha256(_pickle_or_text(bytes(value))).digest()
    return repr(value).encode()


def _pickle_or_text(raw: bytes) -> bytes:
    """Graphs have further pickles inside of them, as bytes."""
    return _pickle(raw) if raw.startswith(b"\x80") and raw.endswith(b".") else _text(raw)
