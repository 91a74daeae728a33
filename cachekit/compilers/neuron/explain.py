"""Say in words why two lists of flags give two keys, and why a module was not among the recorded ones.

Neuron looks for a module by exactly its name, `neuronxcc-<version>/MODULE_<graph>+<flags>`. Which of its parts is not
the recorded one says where to look: at the compiler's version, at the flags, or at the program.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from cachekit.compilers.adapter import Explained
from cachekit.compilers.neuron import facts, flags
from cachekit.compilers.neuron.flags import Option


def module_name(name: str, recorded: Iterable[str], words: Mapping[str, Sequence[str]] | None = None) -> Explained:
    """Compare a module's name with a record's modules, without those that this run added.

    Gives what of the name is new: `compiler`, `flags`, `graph` or `new`; `recorded` is nothing at all, `first` means
    that nothing was recorded, and `unknown` that the name is of no known form. `words` are flags by module, where
    known.
    """
    known = sorted(set(recorded))
    folder, _, module = name.partition("/")
    match = facts.MODULE_DIRECTORY.fullmatch(module)
    if match is None:
        return Explained("unknown", ("Neuron is not known to give a module such a name",))
    if not known:
        return Explained("first", ("nothing was recorded before it",))
    if name in known:
        return Explained("recorded", ("the record has it: it was not where Neuron looked, or not taken",))
    if same := tuple(other for other in known if other.partition("/")[2] == module):
        there = ", ".join(dict.fromkeys(other.partition("/")[0] for other in same))
        return Explained("compiler", (f"recorded for {there}, and this is {folder}",))
    parts = {other: facts.MODULE_DIRECTORY.fullmatch(other.partition("/")[2]) for other in known}
    graph = tuple(other for other, part in parts.items() if part and part["graph"] == match["graph"])
    alike = tuple(other for other, part in parts.items() if part and part["flags"] == match["flags"])
    if graph:
        hashes = ", ".join(dict.fromkeys((part["flags"] or "none") for o in graph if (part := parts[o])))
        said = [f"the graph is recorded; the flags differ: {hashes} in the record, {match['flags'] or 'none'} now"]
        before, now = (words or {}).get(graph[0]), (words or {}).get(name)
        if before is not None and now is not None:
            said += flag_lists(before, now, ("the record", "this run"))
        return Explained("flags", tuple(said))
    if alike:
        said = ["the flags are the recorded ones; the graph is new: a shape, a constant, or what traces it"]
        return Explained("graph", tuple(said))
    return Explained("new", ("neither its graph nor its flags are recorded",))


def flag_lists(a: Sequence[str], b: Sequence[str], names: tuple[str, str] = ("the first", "the second")) -> list[str]:
    """Say in words why two lists of flags give different keys: a sentence a difference, the most telling first."""
    if list(a) == list(b):
        return []
    one, two = names
    left, right = flags.options(a), flags.options(b)
    said: list[str] = []
    options = list(dict.fromkeys(option.name for option in (*left, *right)))
    options.sort(key=lambda name: (name != facts.TARGET_OPTION, name in facts.LEAKING_OPTIONS))
    for name in options:
        said += _one_option(name, [o for o in left if o.name == name], [o for o in right if o.name == name], one, two)
    if [(o.name, o.value) for o in left] != [(o.name, o.value) for o in right] and sorted(
        (o.name, o.value) for o in left
    ) == sorted((o.name, o.value) for o in right):
        here = next(
            n for n, (x, y) in enumerate(zip(left, right, strict=True)) if (x.name, x.value) != (y.name, y.value)
        )
        said.append(
            f"the order differs: number {here + 1} is `{left[here].words}` in {one} and `{right[here].words}` in {two}"
        )
    return said or [f"{one} is {shlex.join(a)!r} and {two} is {shlex.join(b)!r}"]


def _one_option(name: str, left: list[Option], right: list[Option], one: str, two: str) -> list[str]:
    values, others = [o.value for o in left], [o.value for o in right]
    spelled, respelled = [o.words for o in left], [o.words for o in right]
    if spelled == respelled:
        return []
    leak = ""
    if name in facts.LEAKING_OPTIONS:
        leak = "; it changes no code, but it is hashed anyway: leave it out"
    if sorted(values) == sorted(others):
        if sorted(spelled) == sorted(respelled):
            return []  # only the order
        x, y = next((x, y) for x, y in zip(left, right, strict=True) if x.words != y.words)
        same = "" if x.value != y.value else ": the same option, but spelling is in the key"
        return [f"`{x.words}` in {one} is written `{y.words}` in {two}{same}{leak}"]
    shown = ", ".join(f"`{words}`" for words in spelled), ", ".join(f"`{words}`" for words in respelled)
    if not left:
        return [f"only {two} has {shown[1]}{leak}"]
    if not right:
        return [f"only {one} has {shown[0]}{leak}"]
    if set(values) == set(others):
        counts = f"{_times(len(left))} in {one} and {_times(len(right))} in {two}"
        return [f"`{name or values[0]}` appears {counts}: repeats are in the key{leak}"]
    if name == facts.TARGET_OPTION:
        return [f"the target is {', '.join(values)} in {one} and {', '.join(others)} in {two}"]
    return [f"{one} has {shown[0]}, {two} has {shown[1]}{leak}"]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
