"""Is a NEFF whole, and is it the one that its place says it is, for the machine that is to run it?

What is not told on one of two sides is not compared, but for the chip: a NEFF whose chip nobody here knows is used
on no machine that is known, because a wrong one is only found out by the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from cachekit.compilers.graphs import Graph
from cachekit.compilers.neuron import facts, flags, neff
from cachekit.text import cause_of


class Claimed(Struct, frozen=True):
    """What a module's folder and flags say of its NEFF; empty and 0 for what they do not say."""

    compiler: str = ""  # the version in `neuronxcc-<version>`
    module: str = ""  # `MODULE_<graph>[+<flags>]`
    target: str = ""  # of its flags: `trn1`
    lnc: int = 0  # of its flags


NOTHING = Claimed()
Check = Callable[[Path, Claimed], "str | None"]
"""Why a NEFF is not to be used as what it is said to be; None where it is fit."""


def claim(compiler: str, module: str, words: Sequence[str] | None) -> Claimed:
    """What a module's place says: the names of its compiler's folder and its own, and its flags where it has any."""
    version = compiler.removeprefix(facts.COMPILER_DIRECTORY_PREFIX)
    target = flags.option(words or (), facts.TARGET_OPTION)
    lnc = flags.option(words or (), facts.LNC_OPTION)
    return Claimed(version, module, target, int(lnc) if lnc.isascii() and lnc.isdigit() and len(lnc) < 4 else 0)  # noqa: PLR2004


def check(path: Path, said: Claimed = NOTHING, *, target: str = "", lnc: int = 0) -> str | None:
    """Why a NEFF is not to be used; never raises for what a file may be.

    Args:
        path: The file.
        said: What its place says of it.
        target: The compiler's name for the chip that is to run it; empty where that is nobody's yet.
        lnc: Physical cores in a core of that machine; 0 where it is not known.
    """
    try:
        found = neff.read(path, leaks=False)
    except neff.NeffError as error:
        return error.reason
    except OSError as error:
        return f"cannot be read: {cause_of(error)}"
    return misfit(found, said, target=target, lnc=lnc)


def misfit(found: Graph, said: Claimed = NOTHING, *, target: str = "", lnc: int = 0) -> str | None:
    """Why a NEFF that is whole is not to be used; see `check`."""
    return (
        _of_another_compiler(found, said)
        or _of_another_module(found, said)
        or (_for_another_chip(found, target, f"this machine has {target}") if target else "")
        or (
            _for_another_chip(found, said.target, f"its flags say {said.target}")
            if said.target in facts.TARGETS
            else ""
        )
        or _of_another_lnc(found, said, lnc)
        or None
    )


def _of_another_compiler(found: Graph, said: Claimed) -> str:
    theirs, ours = found.compiler.partition("+")[0], said.compiler.partition("+")[0]
    return f"it was compiled by {found.compiler}, not by {said.compiler}" if theirs and ours and theirs != ours else ""


def _of_another_module(found: Graph, said: Claimed) -> str:
    named = facts.NEFF_MODULE.findall(found.name)
    # The last one may have been cut off with the end of the name.
    if named and found.name_is_cut and found.name.endswith(named[-1]):
        named.pop()
    if not (said.module and named) or any(_same(one, said.module) for one in named):
        return ""
    return f"it was compiled as {named[0]}"


def _same(one: str, other: str) -> bool:
    (graph, _, hashed), (wanted, _, expected) = one.partition("+"), other.partition("+")
    return graph == wanted and (hashed == expected or not (hashed and expected))


def _for_another_chip(found: Graph, target: str, why: str) -> str:
    if found.chip in {facts.ANY_CHIP, facts.TARGET_CHIPS.get(target, target)}:
        return ""
    if not found.chip:
        return f"nothing in it says which chip it is for, and {why}"
    if found.target in facts.NEFF_TARGETS:
        return f"it was compiled for {found.chip}, and {why}"
    return f"it was compiled for {found.target!r}, which is not a known chip, and {why}"


def _of_another_lnc(found: Graph, said: Claimed, lnc: int) -> str:
    # The flags may ask for another one than the host's; whoever sets them sets the runtime's variable too.
    theirs, ours = found.lnc, said.lnc or lnc
    if not (facts.NEFF_LNC_IS_REQUIRED and theirs and ours) or theirs == ours:
        return ""
    return (
        f"it joins {theirs} physical cores into one, and its flags ask for {ours}"
        if said.lnc
        else (f"it joins {theirs} physical cores into one, and this machine joins {ours} ({facts.LNC})")
    )
