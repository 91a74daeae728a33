"""Checks on how cachekit has graphs compiled: extraction, neuron_parallel_compile, the compiler itself."""

from __future__ import annotations

from cachekit.compilers.neuron import facts, fit, modules, neff
from cachekit.compilers.neuron.contract.cached import read_neff
from cachekit.compilers.neuron.contract.check import Seen, UnknownError, check
from cachekit.compilers.neuron.contract.lab import Lab

_EXTRACT = "the script in extraction mode, in an empty root"
_NPC = "neuron_parallel_compile on the script, with an empty root"
_DIRECT = "neuronx-cc on the extracted graph, as cachekit calls it"


@check(
    "extraction-files",
    "with {EXTRACT_ONLY}=1 a run leaves {HLO_FILES[0]} and {FLAGS_FILE}, and compiles nothing",
    where=("EXTRACT_ONLY", "HLO_FILES", "FLAGS_FILE"),
    how=_EXTRACT,
)
def extraction_files(lab: Lab) -> Seen:
    """What a trial run leaves to be compiled."""
    run = lab.extracted
    if run.code and not any(lab.root("extracted").glob("*/*")):
        raise UnknownError(f"the script failed: {run.end}")
    found = lab.entries(lab.root("extracted"))
    wanted = {facts.HLO_FILES[0], facts.FLAGS_FILE}
    odd = [entry for entry in found if set(entry.names) != wanted]
    return Seen(not odd, ", ".join((odd or found)[0].names))


@check(
    "extraction-line",
    "it says `Extracting graphs (<path>) for ahead-of-time parallel compilation`",
    where=("LOG_WORDS",),
    how=_EXTRACT,
)
def extraction_line(lab: Lab) -> Seen:
    """Every extracted graph is told: warm takes its list from these lines."""
    run = lab.extracted
    made = {entry.name for entry in lab.entries(lab.root("extracted"))}
    told, where = set(run.log.extracted), run.stream("extracted")
    return Seen(told == made, f"{len(told & made)} of {len(made)} graphs told{f', on {where}' if where else ''}")


@check(
    "extraction-name",
    "an extracted graph has the name that a compile in the run itself gives it",
    where=("EXTRACT_ONLY",),
    how="compares the names after extraction with those after a compile",
)
def extraction_name(lab: Lab) -> Seen:
    """What is compiled after a trial is what the real run looks for."""
    made = {entry.name for entry in lab.compiled}
    found = {entry.name for entry in lab.entries(lab.root("extracted"))}
    return Seen(found == made, f"{len(found & made)} of {len(made)} names are the same")


@check(
    "direct-compile",
    "{COMPILE_COMMAND}, then GRAPH {OUTPUT_OPTION} NEFF FLAGS {COMPILE_VERBOSITY}, ends with 0",
    where=("COMPILE_COMMAND", "COMPILE_VERBOSITY", "OUTPUT_OPTION"),
    how=_DIRECT,
)
def direct_compile(lab: Lab) -> Seen:
    """A graph can be compiled without the wrapper."""
    run, output, _ = lab.direct
    return Seen(run.code == 0 and output.is_file(), run.end if run.code or not output.is_file() else "exit code 0")


@check(
    "direct-neff",
    "its NEFF is whole, and has the compiler and chip of one that the wrapper had made",
    where=("NEFF_TARGETS", "COMPILE_COMMAND"),
    how=_DIRECT,
)
def direct_neff(lab: Lab) -> Seen:
    """Both ways give the same."""
    run, output, _ = lab.direct
    if run.code or not output.is_file():
        raise UnknownError(f"there is none: {run.end}")
    try:
        own = neff.read(output, leaks=False)
    except neff.NeffError as error:
        return Seen(fits=False, words=error.reason)
    other = read_neff(lab.compiled[0])
    words = f"{own.digest}, {own.compiler}, {own.target}, LNC {own.header.lnc}"
    return Seen((own.compiler, own.target, own.header.lnc) == (other.compiler, other.target, other.header.lnc), words)


@check(
    "own-module-hit",
    "a module that cachekit completed, {NEFF} first and {DONE} last, is a hit",
    where=("NEFF", "DONE", "modules.restore"),
    how="puts the NEFF of neuronx-cc into the extracted module, and runs the script",
)
def own_module_hit(lab: Lab) -> Seen:
    """Neuron takes what was not made by its own wrapper."""
    run, entry = lab.ours
    fits = run.code == 0 and entry.name in run.log.hits and entry.name not in run.log.compiled
    return Seen(fits, "a hit" if fits else f"hits {len(run.log.hits)}, {run.end}")


@check(
    "npc-files",
    "{PARALLEL_COMPILE} compiles what a trial of the script extracts, and ends with 0",
    where=("PARALLEL_COMPILE", "NPC_WORK_OPTION"),
    how=_NPC,
)
def npc_files(lab: Lab) -> Seen:
    """After it every graph is a finished module whose NEFF is whole."""
    run = lab.parallel
    if run.code and not any(lab.root("npc").glob("*/*")):
        return Seen(fits=False, words=run.end)
    found = lab.entries(lab.root("npc"))
    done = [entry for entry in found if entry.finished and not modules.damage(entry, lambda path, _: fit.check(path))]
    return Seen(run.code == 0 and len(done) == len(found), f"{len(done)} of {len(found)} finished, {run.end}")


@check(
    "npc-lines",
    "it tells the graphs that it extracts and compiles, what remains, and a summary",
    where=("LOG_WORDS", "NPC_REPORT_TOKEN"),
    how=_NPC,
)
def npc_lines(lab: Lab) -> Seen:
    """All that warm reads of its output is understood."""
    log = lab.parallel.log
    made = {entry.name for entry in lab.entries(lab.root("npc"))}
    total = log.summary.get("total")
    lacking = [
        what
        for what, there in (
            ("trial run", any(event.kind == "trial-run" for event in lab.parallel.events)),
            ("extracted graphs", set(log.extracted) == made),
            ("compiled graphs", set(log.compiled) == made),
            ("workers", any(event.kind == "worker-started" for event in lab.parallel.events)),
            ("what remains", bool(log.remaining)),
            ("summary", total == len(made)),
        )
        if not there
    ]
    return Seen(not lacking, f"not told: {', '.join(lacking)}" if lacking else f"{len(made)} graphs, all told")


CHECKS = (
    extraction_files, extraction_line, extraction_name, direct_compile, direct_neff, own_module_hit, npc_files,
    npc_lines,
)  # fmt: skip
