"""`cachekit store neff`: what compiled files are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cachekit import api
from cachekit.cli import out
from cachekit.cli.verb import Shown, verb
from cachekit.errors import CachekitError, IntegrityError, UsageError
from cachekit.text import cut_inside, first_of

if TYPE_CHECKING:
    from cachekit.api.answers import CompiledFile, Graph, Leaks, Tensor

WIDTH = 80
LABEL = 11
TENSORS = 8  # inputs or outputs that are shown without -v
PATHS = 4
NAME = "name a compiled graph: a model.neff of a Neuron cache"

Files = Annotated[
    list[Path], typer.Argument(metavar="FILE...", help="NEFFs: model.neff files of a cache.", show_default=False)
]


@verb(answers="list[CompiledFile]")
def command(files: Files) -> Shown:
    """Describe NEFFs: what they are, whether they are intact, and what they leak.

    Reads compiler, chip, cores, inputs and outputs, without Neuron. Exits 5 if one is damaged.

    Example:  cachekit store neff /var/tmp/neuron-compile-cache/*/*/model.neff
    """
    found = api.neffs(files)
    return Shown(
        found,
        partial(human, whole=out.wants_more()),
        lambda every: "\n".join(f"{one.state} {one.file}" for one in every),
        error=_problem(found),
    )


def _problem(found: Sequence[CompiledFile]) -> CachekitError | None:
    """What to raise for the files: of the worst state that one is in, with the first file in it."""
    for state, kind, said in (
        ("damaged", IntegrityError, "is damaged"),
        ("unknown", IntegrityError, "is not a known kind of NEFF"),
        ("absent", UsageError, "cannot be read"),
    ):
        if these := [one for one in found if one.state == state]:
            more = f", and {len(these) - 1} more likewise" if these[1:] else ""
            return kind(f"{these[0].file} {said}{more}", cause=these[0].reason, hint=_hint(these[0]))
    return None


def _hint(one: CompiledFile) -> str:
    """What mends it. Only a module's own folder is advised to be deleted: the file may be anybody's."""
    folder = Path(one.file).absolute().parent
    if one.state == "damaged" and one.module and folder.name == one.module:
        return f"delete {Path(one.file).parent}; the next run compiles it again"
    return NAME


def human(found: list[CompiledFile], *, whole: bool = False) -> list[str]:
    """A block of lines for each file, at most 80 columns wide but for the file's own name.

    Args:
        found: The files.
        whole: Show every input, output and path.
    """
    lines: list[str] = []
    for one in found:
        lines += [""] if lines else []
        lines += [f"{'file'.ljust(LABEL)}{one.file}"]
        lines += _verified(one.graph, whole=whole) if one.graph else _refused(one)
    return lines


def _refused(one: CompiledFile) -> list[str]:
    word = {"damaged": "DAMAGED: ", "unknown": "NOT A KNOWN KIND OF NEFF: "}.get(one.state, "")
    lines = _field("state", word + one.reason)
    if one.module:
        lines += _field("module", one.module)
    if (hint := _hint(one)) != NAME:
        lines += _field("hint", hint)
    return lines


def _verified(one: Graph, *, whole: bool) -> list[str]:
    packed = "" if one.compressed else ", not compressed"
    lines = _field("state", f"verified by its {one.digest}; {out.size(one.bytes)}{packed}")
    lines += _field("compiler", f"neuronx-cc {one.compiler}" if one.compiler else "not stated")
    lines += _field("target", _target(one))
    names = f" ({', '.join(one.features)})" if one.features else ""
    lines += _field("NEFF", f"{one.neff_version}, feature bits {one.feature_bits}{names}")
    lines += _field("built", one.built[:19].replace("T", " ") + " UTC" if one.built else "not stated")
    if one.module:
        lines += _field("module", one.module)
    lines += _tensors("inputs", one.inputs, whole=whole) + _tensors("outputs", one.outputs, whole=whole)
    for note in one.notes:
        lines += _field("note", note)
    return lines + _leaks(one.leaks, whole=whole)


def _target(one: Graph) -> str:
    chip = one.chip or "unknown"
    inner = f" ({one.target})" if one.target not in {"", chip} else ""
    words = [f"{chip}{inner}", out.count(one.cores, "core"), f"LNC {one.lnc}"]
    if one.subgraphs:
        words.append(out.count(len(one.subgraphs), "subgraph"))
    if one.ranks:
        words.append(f"collectives over {out.count(one.ranks, 'rank')}")
    return ", ".join(words)


def _tensors(label: str, tensors: Sequence[Tensor], *, whole: bool) -> list[str]:
    total = sum(tensor.bytes or 0 for tensor in tensors)
    lines = _field(label, f"{len(tensors)}{f', {out.size(total)}' if total else ''}")
    shown = tensors if whole else tensors[:TENSORS]
    width = min(max((len(tensor.name) for tensor in shown), default=0), WIDTH // 2)
    for tensor in shown:
        shape = "" if tensor.shape is None else "[" + ",".join(map(str, tensor.shape)) + "]"
        kind = f"{tensor.dtype}{shape}" or (out.size(tensor.bytes) if tensor.bytes is not None else "?")
        lines.append(cut_inside(f"  {cut_inside(tensor.name, width).ljust(width)}  {kind}", WIDTH))
    return lines + _more(len(tensors) - len(shown))


def _leaks(leaks: Leaks, *, whole: bool) -> list[str]:
    words = [out.count(leaks.count, "path of the host", "paths of the host")] if leaks.count else []
    for label, names in (("name", leaks.users), ("host", leaks.hosts)):
        if names:
            words.append(f"the {label}{'s' if len(names) > 1 else ''} {first_of(names, PATHS)}")
    lines = _field("leaks", " and ".join(words) + ": check before you publish it") if words else []
    shown = leaks.paths if whole else leaks.paths[:PATHS]
    lines += [cut_inside(f"  {leak.path}", WIDTH) for leak in shown]
    lines += _more(leaks.count - len(shown))
    if not leaks.complete:
        lines += _field("note", "too large to search completely: there may be more paths")
    return lines


def _more(count: int) -> list[str]:
    return [f"  and {count} more"] if count > 0 else []


def _field(label: str, words: str) -> list[str]:
    return out.labelled(label.ljust(LABEL), words)
