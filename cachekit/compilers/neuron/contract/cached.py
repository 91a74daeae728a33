"""Checks on what one compile leaves in the cache, what it says, and what a second run takes for a hit."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cachekit.compilers.neuron import device_output, devices, facts, flags, host, neff
from cachekit.compilers.neuron.contract import installed
from cachekit.compilers.neuron.contract.bench import Run
from cachekit.compilers.neuron.contract.check import Seen, UnknownError, check
from cachekit.compilers.neuron.contract.lab import FLAGS, Lab
from cachekit.compilers.neuron.entries import Entry
from cachekit.errors import UsageError
from cachekit.recipe import zoo

_COMPILE = "a script of three lines, in an empty root"
_AGAIN = "the same script once more"
_NEFF = "reads the NEFF that the compile left"


@check(
    "cache-dir-flag",
    "{CACHE_DIR_FLAG} in {CC_FLAGS} wins over {CACHE_URL}",
    where=("CACHE_DIR_FLAG", "root.resolve"),
    how=f"{_COMPILE}; the flag and the variable name different ones",
)
def cache_dir_flag(lab: Lab) -> Seen:
    """Which of the two roots is used."""
    lab.first_root  # noqa: B018 - the run itself
    used = [name for name in ("flag", "variable") if any(lab.root(name).glob("*/*"))]
    return Seen(used == ["flag"], f"the folder of the {' and the '.join(used)} was used")


@check(
    "compiler-directory",
    "modules lie in {COMPILER_DIRECTORY_PREFIX}<{COMPILER_MODULE}.__version__>",
    where=("COMPILER_DIRECTORY_PREFIX", "COMPILER_DIRECTORY"),
    how="lists the root after the script ran",
)
def compiler_directory(lab: Lab) -> Seen:
    """The folder is named after the compiler, commit included."""
    found = {entry.compiler for entry in lab.named}
    own = lab.packages.modules.get(facts.COMPILER_MODULE, "")
    return Seen(found == {f"{facts.COMPILER_DIRECTORY_PREFIX}{own}"}, _list(found))


@check(
    "module-name",
    "modules are called MODULE_<unsigned decimal of 64 bits>+<{FLAGS_HASH_DIGITS} hex digits>",
    where=("MODULE_DIRECTORY", "FLAGS_HASH_DIGITS"),
    how="lists the root after the script ran",
)
def module_name(lab: Lab) -> Seen:
    """The form of a graph's key."""
    matches = [facts.MODULE_DIRECTORY.fullmatch(entry.name) for entry in lab.named]
    fits = all(
        match and match["graph"].isdecimal() and int(match["graph"]) < 1 << 64 and match["flags"] for match in matches
    )
    return Seen(fits, _list(entry.name for entry in lab.named))


@check(
    "entry-files",
    "a finished module holds {NEFF}, {DONE}, {FLAGS_FILE} and {HLO_FILES[0]}, and nothing else",
    where=("NEFF", "DONE", "FLAGS_FILE", "HLO_FILES"),
    how=_COMPILE,
)
def entry_files(lab: Lab) -> Seen:
    """The files of an entry."""
    wanted = {facts.NEFF, facts.DONE, facts.FLAGS_FILE, facts.HLO_FILES[0]}
    odd = [entry for entry in lab.compiled if {*entry.names, *entry.odd} != wanted]
    entry = (odd or lab.compiled)[0]
    return Seen(not odd, _list((*entry.names, *entry.odd)))


@check("done-mark", "{DONE} is empty", where=("DONE",), how=_COMPILE)
def done_mark(lab: Lab) -> Seen:
    """The mark has nothing to say but that it is there."""
    sizes = {file.size for entry in lab.compiled for file in entry.files() if file.name == facts.DONE}
    if not sizes:
        raise UnknownError(f"no module has a {facts.DONE}")
    return Seen(sizes == {0}, f"{_list(map(str, sizes))} bytes")


@check(
    "flags-file",
    "{FLAGS_FILE} is a JSON list: {TARGET_OPTION}=<target>, then the flags as given without the wrapper's own",
    where=("FLAGS_FILE", "TARGET_OPTION", "WRAPPER_OPTIONS"),
    how=f"the script with `{' '.join(FLAGS)}` and {facts.CACHE_DIR_FLAG}",
)
def flags_file(lab: Lab) -> Seen:
    """What of NEURON_CC_FLAGS is kept."""
    entry = lab.named[0]
    raw = (entry.path / facts.FLAGS_FILE).read_bytes()[:4096] if facts.FLAGS_FILE in entry.names else b""
    words = flags.read_flags(entry.path / facts.FLAGS_FILE) or []
    fits = raw.lstrip().startswith(b"[") and words[1:] == [*FLAGS] and bool(_target(words))
    return Seen(fits, raw.decode("utf-8", "replace") or "no such file")


@check(
    "flags-hash",
    "the flags' half of the name is the MD5 of their JSON with the target in front, its first digits",
    where=("FLAGS_HASH_DIGITS", "flags.flags_hash"),
    how="hashes compile_flags.json by each known formula",
)
def flags_hash(lab: Lab) -> Seen:
    """Which of the three formulas explains the name."""
    detected = flags.detect_era(lab.named)
    if not detected.counts:
        raise UnknownError("no module has flags that can be read")
    return Seen(detected.era == "json+target", f"formula: {_list(detected.counts)} ({lab.named[0].name})")


@check(
    "target",
    "the target is one of {TARGETS}, and the one of this instance",
    where=("TARGETS", "TARGET_FAMILIES", "host.target_of"),
    how="compares compile_flags.json with what cachekit would compile for",
)
def target(lab: Lab) -> Seen:
    """What the wrapper compiles for is what keys say."""
    said, wanted = _target_of(lab.named[0]), machine_target(lab)
    return Seen(said in facts.TARGETS and said == wanted, f"{said}; cachekit says {wanted}")


@check(
    "neff-digest",
    "a NEFF has its header of {NEFF_HEADER_SIZE} bytes, and the MD5 of all that follows",
    where=("NEFF_HEADER", "NEFF_HEADER_SIZE", "NEFF_DIGESTS", "NEFF_DIGEST_WORD"),
    how=_NEFF,
)
def neff_digest(lab: Lab) -> Seen:
    """Whether our reader takes every NEFF for whole, in which byte order of the digest."""
    forms = set()
    for entry in lab.compiled:
        try:
            forms.add(neff.read(entry.path / facts.NEFF, leaks=False).digest)
        except neff.NeffError as error:
            return Seen(fits=False, words=f"{entry.name}: {error.reason}")
        except OSError as error:
            raise UnknownError(f"{entry.name} has no NEFF: {error.strerror}") from error
    return Seen(fits=True, words=_list(forms))


@check(
    "neff-contents",
    "a NEFF tells its compiler, with commit, and its chip by the names of NEFF_TARGETS",
    where=("NEFF_INFO", "NEFF_KELF", "NEFF_TARGETS"),
    how=_NEFF,
)
def neff_contents(lab: Lab) -> Seen:
    """What is read out of a NEFF is what compiled it."""
    entry = lab.compiled[0]
    found = read_neff(entry)
    own = lab.packages.modules.get(facts.COMPILER_MODULE, "")
    said = _target_of(entry)
    family = facts.TARGET_FAMILIES.get(re.sub(r"(?<=\d)[a-z]+$", "", said), said)
    # Inf2 and Trn1 have one instruction set, and one name inside.
    fits = found.compiler == own and found.chip in {family, "trn1" if family == "inf2" else family}
    return Seen(fits, f"compiler {found.compiler or 'none'}, chip {found.chip or 'none'} ({found.target or 'none'})")


@check(
    "neff-name",
    "a NEFF's name is the path that the compiler was given as {OUTPUT_OPTION}, with the module's name in it",
    where=("NEFF_MODULE",),
    how=_NEFF,
)
def neff_name(lab: Lab) -> Seen:
    """Whether a lone NEFF can be told its module."""
    wrong = [(entry, found) for entry in lab.compiled if (found := read_neff(entry)).module != entry.name]
    return Seen(not wrong, (wrong[0][1] if wrong else read_neff(lab.compiled[0])).name or "no name")


@check(
    "log-compiled",
    "a compile says `Compilation Successfully Completed for …<module>…`",
    where=("LOG_WORDS",),
    how="reads what the script with an empty root printed",
)
def log_compiled(lab: Lab) -> Seen:
    """Every module that was compiled is told."""
    told, made = lab.first.log.compiled, {entry.name for entry in lab.compiled}
    where = lab.first.stream("compiled")
    words = f"{len(told)} of {len(made)} modules told{f', on {where}' if where else ''}"
    return Seen(set(told) == made, words if told else f"{words}; {_sample(lab.first)}")


@check(
    "log-hit",
    "a hit says `Using a cached neff at <path>`",
    where=("LOG_WORDS",),
    how=_AGAIN,
)
def log_hit(lab: Lab) -> Seen:
    """Every module that is there is told as found, and nothing as compiled."""
    hits, made = set(lab.second.log.hits), {entry.name for entry in lab.compiled}
    where = lab.second.stream("hit")
    words = f"{len(hits & made)} of {len(made)} modules found{f', on {where}' if where else ''}"
    fits = hits == made and not lab.second.log.compiled
    return Seen(fits, words if hits else f"{words}; {_sample(lab.second)}")


@check(
    "log-header",
    "lines of the log begin with their time and process",
    where=("LOG_HEADER", "LOG_FRACTION_IS_MILLISECONDS"),
    how=_AGAIN,
)
def log_header(lab: Lab) -> Seen:
    """A hit's line tells when, and who."""
    hits = [event for event in lab.second.events if event.kind == "hit"]
    if not hits:
        raise UnknownError("no hit was told")
    return Seen(all(event.at and event.pid for event in hits), f"time {hits[0].at or 'none'}, process {hits[0].pid}")


@check(
    "no-done-no-hit",
    "a module without {DONE} is no hit: it is compiled again",
    where=("DONE", "entries.classify"),
    how="removes the file in a copy of the root, and runs the script",
)
def no_done_no_hit(lab: Lab) -> Seen:
    """Half a module is never used."""
    run = lab.without(facts.DONE)
    return Seen(bool(run.log.compiled) and not run.log.hits, _told(run))


@check(
    "no-graph-still-hit",
    "a module without {HLO_FILES[0]} is a hit all the same",
    where=("HLO_FILES", "entries.classify"),
    how="removes the file in a copy of the root, and runs the script",
)
def no_graph_still_hit(lab: Lab) -> Seen:
    """Two files make a finished module."""
    run = lab.without(facts.HLO_FILES[0])
    return Seen(bool(run.log.hits) and not run.log.compiled and run.code == 0, _told(run))


def machine_target(lab: Lab) -> str:
    """What cachekit would compile for on this machine.

    Raises:
        UnknownError: Nothing tells.
    """
    try:
        listed = installed.asked_devices(lab)
    except device_output.DeviceListError:
        listed = None
    name = (listed.instance_type if listed else "") or devices.host_instance_type()
    override = lab.bench.environ.get(facts.TARGET_OVERRIDE, "")
    try:
        wanted = host.target_of(override, name, zoo.instances().get(name))
    except UsageError as error:
        raise UnknownError(error.message) from error
    if not wanted:
        raise UnknownError("nothing names the instance")
    return wanted


def read_neff(entry: Entry) -> neff.Neff:
    """The NEFF of a module.

    Raises:
        UnknownError: It has none that can be read.
    """
    try:
        return neff.read(entry.path / facts.NEFF, leaks=False)
    except (neff.NeffError, OSError) as error:
        raise UnknownError(f"the NEFF of {entry.name} cannot be read: {error}") from error


def _target(words: list[str]) -> str:
    front = f"{facts.TARGET_OPTION}="
    return words[0].removeprefix(front) if words and words[0].startswith(front) else ""


def _target_of(entry: Entry) -> str:
    said = _target(flags.read_flags(entry.path / facts.FLAGS_FILE) or [])
    if not said:
        raise UnknownError("its flags name no target")
    return said


def _told(run: Run) -> str:
    words = [f"{len(run.log.hits)} hits", f"{len(run.log.compiled)} compiled"]
    return f"{', '.join(words)}{'' if run.code == 0 else f'; {run.end}'}"


def _sample(run: Run) -> str:
    """A line that may be the one that was expected, in other words."""
    lines = [line for line in f"{run.out}\n{run.err}".splitlines() if "MODULE_" in line or "neff" in line]
    return f"its lines: {lines[0][:300]}" if lines else f"no line names a module; {run.end}"


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


CHECKS = (
    cache_dir_flag, compiler_directory, module_name, entry_files, done_mark, flags_file, flags_hash, target,
    neff_digest, neff_contents, neff_name, log_compiled, log_hit, log_header, no_done_no_hit, no_graph_still_hit,
)  # fmt: skip
