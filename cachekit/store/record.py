"""What a warm made for a key: modules, their files with sizes and digests, seconds, provenance.

On disk and on every remote a record is one JSON document, `{"record": {...}, "sha256": "..."}`, whose digest is over
the canonical JSON of the inner part: a record that changed on its way is never believed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, structs

from cachekit import redact
from cachekit.decode import from_builtins
from cachekit.errors import SecretError
from cachekit.files import DIGEST
from cachekit.key.canonical import canonical_json, is_older, key_of
from cachekit.store.layout import Placed
from cachekit.text import cut
from cachekit.values import by_value

SCHEMA = 1
LARGEST = 64 << 20  # bytes; a record of 10,000 modules is a few MB
_SAID = 300  # characters of what is wrong with a document
MOST_VALUES = 1_000_000  # as `values_of` counts them: each file has four
_LARGEST_FILE = 1 << 42  # bytes; those of all files are a whole number that SQLite has
_MOST_GRAPHS = 1 << 42

_DIGEST = rf"^{DIGEST}\Z"
_PATH = r"^(?!\.{1,2}(/|$))[^/\x00\\]+(/(?!\.{1,2}(/|$))[^/\x00\\]+)*\Z"
Digest = Annotated[str, Meta(pattern=_DIGEST)]
# Names become paths in stores and remotes: no step may be empty or go up, and nothing may be absolute.
RelativePath = Annotated[str, Meta(min_length=1, max_length=1024, pattern=_PATH)]
# A step of such a path. Where a record lies is found by its parts, so that `a/b` would be put there and never listed.
_STEP = re.compile(r"(?!\.{1,2}\Z)[^/\\\x00-\x1f\x7f-\x9f]{1,1024}")


def names_folder(name: str) -> bool:
    """Whether a directory or a model type can name one folder of records."""
    return bool(_STEP.fullmatch(name))


class DamagedRecordError(ValueError):
    """A document that is not a record, or not the one that was written."""


class File(Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a module: its path inside the module, its bytes and their SHA-256."""

    path: RelativePath
    size: Annotated[int, Meta(ge=0, le=_LARGEST_FILE)]
    sha256: Digest


class Module(Struct, frozen=True, forbid_unknown_fields=True):
    """One compiled artifact under the compiler's own name.

    Attributes:
        name: Inductor: `inductor-<version>/<target>/<digest>.tar`, one archive a warm.
        files: An Inductor module has one file; a Neuron one has a directory of them.
        seconds: Time its compile took, where it is known alone.
    """

    name: RelativePath
    files: Annotated[tuple[File, ...], Meta(min_length=1)]
    seconds: float | None = None


class Provenance(Struct, frozen=True, forbid_unknown_fields=True):
    """Who made it, when, with what, where.

    Attributes:
        created: UTC, ISO 8601, to the millisecond.
        toolchain: Versions by package, soft ones too.
        instance: Machine type, where it can be known.
    """

    created: str
    cachekit: str
    user: str
    host: str
    platform: str
    toolchain: dict[str, str] = {}
    instance: str = ""


class Reuse(Struct, frozen=True, forbid_unknown_fields=True):
    """What a warm reused of the record of another key.

    Attributes:
        key: Of that record.
        graphs: How many of the graphs came from there.
        cold_seconds: What compiling took of all graphs of this record: of those that were compiled for it, and of those
            that were found, as each carries it from where it was compiled.
    """

    key: Digest
    graphs: Annotated[int, Meta(ge=0, le=_MOST_GRAPHS)]
    cold_seconds: Annotated[float, Meta(ge=0)]


class Record(Struct, Placed, frozen=True, forbid_unknown_fields=True, dict=True, tag_field="schema", tag=SCHEMA):
    """What exists for a key. Its document says the version of its fields as `schema`.

    Attributes:
        directory: The compiler's directory (`inductor-2.13.0`); with `model_type` it says where the record lies.
        recipe: The name of the recipe that it was made from; information only.
        hard: The ingredients; re-hashing them gives `key`.
        graphs: How many graphs the compiler built.
        compile_seconds: What the first training step and the first evaluation step of the cold trial run took beyond
            the later ones: what a hit saves.
        reused: The trial run was not cold: another record's graphs lay there. Records of cold ones do not have the
            field.
    """

    key: Digest
    compiler: str
    directory: str
    model_type: str
    recipe: str
    hard: dict[str, Any]
    soft: dict[str, Any]
    modules: tuple[Module, ...]
    graphs: Annotated[int, Meta(ge=0, le=_MOST_GRAPHS)]
    compile_seconds: Annotated[float, Meta(ge=0)]
    provenance: Provenance
    reused: Reuse | UnsetType = UNSET

    __hash__ = by_value

    def __post_init__(self) -> None:
        """Refuse a place outside of the records, for a record that is made here or read.

        Raises:
            ValueError: The directory or model type cannot name one folder.
        """
        for name in (self.directory, self.model_type):
            if not names_folder(name):
                raise ValueError(f"{cut(name, 80)!r} cannot name a folder of records")

    @cached_property
    def digest(self) -> str:
        """The digest of its document, by which it is told from every other record, of the same key too.

        Made once: of 10,000 modules it takes 0.1 s.
        """
        return _digest(msgspec.to_builtins(self))

    @property
    def cold_seconds(self) -> float:
        """What compiling takes where nothing is reused."""
        return self.compile_seconds if self.reused is UNSET else self.reused.cold_seconds

    @property
    def files(self) -> tuple[File, ...]:
        """Every file of every module."""
        return tuple(file for module in self.modules for file in module.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def is_archive(module: Module) -> bool:
    """Whether the module is one file under its own name, and not a folder of files."""
    return len(module.files) == 1 and module.name.rpartition("/")[2] == module.files[0].path


def file_path(module: Module, file: File) -> str:
    """The path of a module's file among the modules."""
    return module.name if is_archive(module) else f"{module.name}/{file.path}"


def paths_of(modules: Iterable[Module]) -> Iterator[tuple[str, File]]:
    """The files of modules, each with its path among the modules: `file_path` of many files."""
    for module in modules:
        if is_archive(module):
            yield module.name, module.files[0]
        else:
            for file in module.files:
                yield f"{module.name}/{file.path}", file


def covers(record: Record, wanted: Record) -> bool:
    """Whether a record has every module of another one, with the same bytes."""
    held = {module.name: module.files for module in record.modules}
    return all(held.get(module.name) == module.files for module in wanted.modules)


HEAD = 64  # bytes of a document that tell whether it is noted
_NOTED = "noted"  # beside the record in its document; sorts before "record"
TELLS = "files.tell"  # beside the key: the variables whose secret values stand in the record or in its files, and where


def check_shareable(record: Record) -> None:
    """See that a record may be shown to others. An older cachekit, or another tool, may have made it.

    Raises:
        SecretError: A field of the record, or a file, holds a secret. The field is named, and the variable or option
            that the secret belongs to, where one tells it; the secret is not.
    """
    said = {name: getattr(record, name) for name in ("recipe", "model_type", "directory", "hard", "soft")}
    names = "\n".join(file_path(module, file) for module in record.modules for file in module.files)
    said |= {"provenance": msgspec.to_builtins(record.provenance), "modules": names}
    if found := redact.places(said):
        # Its name may be the end of the field's: `hard.environment.PROXY`.
        fields = [one if not by or one.endswith(by) else f"{one} ({by})" for one, by in found.items()]
        field, by = next(iter(found.items()))
        without = f"with {by or 'the secret'} in an environment variable alone, and not in {field}"
        if "environment." in field:  # it is in one already
            without = f"without {field.rpartition('.')[2]}"
        raise SecretError(
            f"{record.recipe} ({record.key[:12]}) is not shared",
            cause=f"its record holds a secret in {', '.join(fields[:3])}",
            hint=f"cachekit store rm {record.key[:12]}, then run it again {without}",
        )
    # The variable need not be set here, and what stands in a file cannot be taken out of it.
    if named := str(record.soft.get(TELLS, "")):
        raise SecretError(
            f"{record.recipe} ({record.key[:12]}) is not shared",
            cause=f"it holds the value of {named}",
            hint=f"unset {named.partition(' in ')[0]} where it is compiled, then warm or run it again with --recache",
        )


def marked(record: Record, *others: Record, told: Iterable[str] = ()) -> Record:
    """A record with the mark that `check_shareable` heeds, where it or its files tell a secret.

    Args:
        record: The record.
        others: Records whose files it has as well.
        told: Variables whose values stand in it, or in files that are new, and where: `leaks.told`.
    """
    names = {*told, *(name for one in (record, *others) for name in str(one.soft.get(TELLS, "")).split(", ") if name)}
    said = ", ".join(sorted(names))
    return structs.replace(record, soft={**record.soft, TELLS: said}) if said != record.soft.get(TELLS, "") else record


# The model type of records that no recipe made: modules imported from a cache. No plan hits them.
IMPORTED = "imported"
# And of those of a user's own command; also their `task`.
COMMAND = "command"


def is_closed(record: Record) -> bool:
    """Whether no archive of another record of the key can be added to a record's: they are of the same graphs.

    What a command compiles depends on what it reads, which is in no key: two runs of it may have different graphs.
    """
    return record.model_type != COMMAND and any(map(is_archive, record.modules))


def to_document(record: Record) -> dict[str, Any]:
    """The document of a record, as JSON values."""
    return {"record": msgspec.to_builtins(record), "sha256": record.digest}


def sealed(name: str, body: dict[str, Any]) -> dict[str, Any]:
    """A document of one body under a name, with the digest of that body."""
    return {name: body, "sha256": _digest(body)}


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(body)).hexdigest()


def misfit(error: Exception) -> str:
    """What is wrong with a document, in words: where a path or a digest is none, msgspec shows a pattern."""
    said = str(error)
    for pattern, words in (
        (_PATH, "a relative path without `.` and `..`"),
        (_DIGEST, "a SHA-256 in hexadecimal digits"),
    ):
        said = said.replace(f"`str` matching regex {pattern!r}", words)
    return cut(said, _SAID)  # with names of the document's, of any length


def unsealed(name: str, document: Mapping[str, Any]) -> Any:
    """The body of such a document.

    Raises:
        DamagedRecordError: The digest is that of another body.
        KeyError, TypeError, ValueError: It is not such a document.
    """
    body = document[name]
    if document != sealed(name, body):
        raise DamagedRecordError("its digest does not match")
    return body


def encode(record: Record, *, noted: bool = False) -> bytes:
    """The document to store: one line of JSON and a newline.

    Args:
        record: The record.
        noted: A note beside it says where it came from; see `store.origin`.
    """
    return serialise(to_document(record) | ({_NOTED: True} if noted else {}))


def is_noted(raw: bytes) -> bool:
    """Whether a record's document, as `encode` makes it, says that there is a note beside it."""
    return raw.startswith(f'{{"{_NOTED}": true'.encode())  # the names are sorted


def is_document_of(raw: bytes, record: Record) -> bool:
    """Whether a document that was read before, as `encode` makes it, is still that of a record."""
    return raw.endswith(f'"sha256": "{record.digest}"}}\n'.encode())


def serialise(document: Mapping[str, Any]) -> bytes:
    """A document as one line of JSON and a newline; equal documents give equal bytes."""
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"


def no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a document, as `json` takes it: no name may stand in it twice.

    Raises:
        ValueError: One does.
    """
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a name appears twice")
    return mapping


def decode(raw: bytes) -> Record | None:
    """Read a document back.

    Returns:
        The record; None where it, or its key, has another schema number, which is a miss and no damage.

    Raises:
        DamagedRecordError: It is not JSON, does not have its digest, does not fit the schema, or its ingredients do
            not give its key.
    """
    return from_document(parse(raw))


def values_of(raw: bytes) -> int:
    """How many values stand in a JSON text, at most. To be asked before anything is made of it: `{}` takes 64 bytes."""
    return sum(map(raw.count, (b",", b"[", b"{")))


def parse(raw: bytes, most: int = MOST_VALUES) -> dict[str, Any]:
    """A JSON object out of bytes that nobody vouches for.

    Args:
        raw: The bytes.
        most: Values that may stand there; see `values_of`.

    Raises:
        DamagedRecordError: It is too large, no JSON, too deep, no object, or a name stands twice in it.
    """
    if len(raw) > LARGEST:
        raise DamagedRecordError(f"{len(raw):,} bytes are too many for a record")
    if (values := values_of(raw)) > most:
        raise DamagedRecordError(f"{values:,} values are too many for a record")
    try:
        document = json.loads(raw.decode("utf-8"), object_pairs_hook=no_duplicates)
    except (ValueError, RecursionError) as error:
        raise DamagedRecordError(f"not a record: {error}") from error
    if not isinstance(document, dict):
        raise DamagedRecordError("not a record: it is not a JSON object")
    return document


def from_document(document: dict[str, Any]) -> Record | None:
    """The record in a parsed document; see `decode`."""
    document = {name: value for name, value in document.items() if name != _NOTED}
    try:
        body = document["record"]
        if body.get("schema") != SCHEMA:
            unsealed("record", document)
            return None
        record = from_builtins(body, Record)
        if document != {"record": body, "sha256": record.digest}:
            unsealed("record", document)  # a field may be left out of it where it says what is taken for granted
    except DamagedRecordError:
        raise
    except (msgspec.ValidationError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedRecordError(f"not a record: {misfit(error)}") from error
    if len({module.name for module in record.modules}) < len(record.modules) or any(
        len({file.path for file in module.files}) < len(module.files) for module in record.modules
    ):
        raise DamagedRecordError("two modules, or two files of a module, have the same name")
    if key_of(record.hard) != record.key:
        if is_older(record.key, record.hard):
            return None
        raise DamagedRecordError("its ingredients do not hash to its key")
    return record
