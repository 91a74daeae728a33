"""`cachekit doctor` and `config`: this machine, what is wrong with its set-up and its Neuron; and every setting."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer
from msgspec import structs

from cachekit.cli import options, out, stop
from cachekit.cli.verb import Shown, verb
from cachekit.errors import UsageError
from cachekit.text import cut

if TYPE_CHECKING:
    from cachekit.api import Cache
    from cachekit.api.answers import CachePlace, Contract, Diagnosis, Finding, Machine, Setting


SHOWN = 12  # findings of one check, for people
TWICE = re.compile(r"^\((.*\b(\d[\d.]*)\b.*)\) \2$")  # `(Debian 12.2.0-14) 12.2.0`, as g++ says it
REPORT = "neuron-contract.json"
LABEL = len("compiler_cache_dir ")  # the longest name of what a machine has

ContractOnly = Annotated[
    bool,
    typer.Option(
        "--neuron-contract", help="Check on this host what cachekit assumes about Neuron, and what cachekit promises."
    ),
]
Report = Annotated[
    Optional[Path],
    typer.Option(
        "--report",
        metavar="FILE",
        parser=options.file_to_write,
        help=f"Where --neuron-contract writes its report. [default: {REPORT}]",
    ),
]


@verb("home", "compiler", answers="Diagnosis, Contract")
def command(cache: Cache, contract: ContractOnly = False, report: Report = None) -> Shown:
    """Show this machine, what is wrong with its set-up, and how to repair it.

    Shows the toolchain and target that go into keys, the paths in use, and what each check found. Changes nothing.
    Exits 1 if something is wrong.

    --neuron-contract is for a new Neuron instance: it warms and trains a tiny BERT in temporary folders, in about ten
    minutes, and writes a report for you to send to us. The report goes into the working directory, and never replaces a
    file. The command exits 1 if 15 minutes were not enough, if a promise is broken, or if something is not as cachekit
    assumes; the report says what that means. Ctrl-C ends the command, which then shows what is known so far.

    Example:  cachekit doctor --neuron-contract
    """
    if contract:
        found = cache.neuron_contract(report or _free(Path(REPORT)))
        stopped = stop.interrupted() if found.interrupted else None
        shown = partial(contract_human, whole=out.wants_more())
        return Shown(found, shown, _quiet_contract, error=stopped, code=int(not found.good))
    if report:
        raise UsageError("--report is for --neuron-contract", hint="--format json prints what doctor finds")
    diagnosis = cache.doctor()
    return Shown(diagnosis, human, _quiet, code=int(not diagnosis.good))


def _free(path: Path) -> Path:
    """This path, or the first one with a number that nothing has: an earlier report, or somebody's own file, stays."""
    others = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(one for one in chain([path], others) if not os.path.lexists(one))


def human(answer: Diagnosis) -> list[str]:
    """This machine, and the findings, for people: what is wrong is followed by how to repair it."""
    return [*(machine(answer.machine) if answer.machine else ()), "", *listed(answer.findings)]


def machine(found: Machine) -> list[str]:
    """This machine for people."""
    heads = {
        "cachekit": found.cachekit,
        "python": found.python,
        "platform": found.platform,
        "home": found.home,
        "compiler_cache_dir": found.compiler_cache_dir,
    }
    lines = [f"{name.ljust(LABEL)}{value}" for name, value in heads.items()]
    for name, place in found.places.items():
        lines += _place(name.replace("_", " "), place)
    if found.problem:
        return [*lines, *out.labelled("compiler".ljust(LABEL), f"{found.compiler or 'none'}: {found.problem}")]
    lines.append(f"{'compiler'.ljust(LABEL)}{found.directory}")
    for group, values in (("toolchain", found.toolchain), ("target", found.target)):
        for name, value in values.items():
            shown = " ".join(value) if isinstance(value, list | tuple) else str(value)
            shown = TWICE.sub(r"\1", shown)
            lines += out.labelled(f"{group}.{name}".ljust(25), shown, 2)
    return [*lines, f"  {'bf16'.ljust(24)} {'yes' if found.bf16 else 'no'}"]


def _place(name: str, place: CachePlace) -> list[str]:
    """A compiler's own cache, where there is one or somebody said where it is to be."""
    if place.origin == "default" and not place.exists:
        return []
    kind = f", {place.file_system}" if place.file_system else ""
    line = f"{name.ljust(LABEL)}{place.path or place.url} ({place.origin}{kind})"
    return [line, *(f"  warning: {warning}" for warning in place.warnings)]


def listed(findings: Sequence[Finding]) -> list[str]:
    """The findings for people."""
    width = max(len(finding.check) for finding in findings) + 2
    lines: list[str] = []
    shown: dict[str, int] = {}
    for finding in findings:
        name = finding.check
        shown[name] = shown.get(name, 0) + 1
        if shown[name] > SHOWN:
            continue
        lines += out.labelled(f"{finding.state.ljust(9)}{name.ljust(width)}", finding.said)
        if finding.repair:
            lines += out.labelled("repair: ", finding.repair, 9)
        if finding.run:
            lines.append(f"         run:    {finding.run}")  # never folded: it is there to be copied
    lines += [
        f"  ... and {count - SHOWN} more of {name} (--format json)" for name, count in shown.items() if count > SHOWN
    ]
    counts = Counter(one.state for one in findings)
    return [*lines, f"{out.count(counts['problem'], 'problem')}, {counts['ok']} ok, {counts['unknown']} unknown"]


def _quiet(answer: Diagnosis) -> str:
    return "\n".join(dict.fromkeys(one.check for one in answer.problems))


def contract_human(answer: Contract, *, whole: bool = False) -> list[str]:
    """One line a promise and an assumption; one that differs is followed by what was seen and what it means.

    Args:
        answer: What `neuron_contract` found.
        whole: Show that of every one.
    """
    lines = listed(answer.findings) if answer.findings else []
    if answer.problem:
        lines += [""] if lines else []
        lines += out.labelled("", f"nothing can be proved here: {answer.problem}")
        return [*lines, *out.labelled("hint: ", answer.hint, 2)]
    outcomes = [*answer.promises, *answer.assumptions]
    width = max(len(one.name) for one in outcomes) + 2
    columns = out.width()
    for title, part in (("Promises", answer.promises), ("Assumptions", answer.assumptions)):
        lines += ["", f"{title} ({answer.compiler})"]
        for one in part:
            line = f"{one.state.ljust(9)}{one.name.ljust(width)}{one.seen}"
            lines.append(cut(line, columns))
            if one.state == "differs" or whole:
                for label, words in (("wanted", one.assumed), ("seen", one.seen), ("means", one.means)):
                    lines += out.labelled(f"{label}: ".ljust(9), words, 9)
    lines.append("")
    if answer.stopped:
        lines += out.labelled("", f"incomplete: {answer.stopped}")
    if answer.report:
        lines += out.labelled("", f"report, to send to us: {answer.report}")
    counts = answer.counts
    said = f"{counts['ok']} ok, {counts['differs']} differ, {counts['unknown']} unknown"
    return [*lines, f"{out.count(len(outcomes), 'line')} in {out.duration(answer.seconds)}: {said}"]


def _quiet_contract(answer: Contract) -> str:
    outcomes = [*answer.promises, *answer.assumptions]
    return "\n".join(one.name for one in outcomes if one.state == "differs")


@verb("home", answers="list[Setting]")
def config(cache: Cache) -> Shown:
    """Print every setting with its value and its origin.

    Precedence: flag > CACHEKIT_<NAME> > cachekit.toml (or [tool.cachekit]) > the user's config.toml > default.

    Example:  cachekit config --format quiet
    """
    rows = [structs.replace(one, value=one.shown) for one in cache.settings()]
    return Shown(rows, _settings, lambda found: "\n".join(f"{row.name}={_value(row.value)}" for row in found))


def _settings(rows: list[Setting]) -> list[str]:
    return out.table([[row.name, _value(row.value), row.origin] for row in rows], ["setting", "value", "from"])


def _value(value: Any) -> str:
    """A value as a variable would hold it."""
    if isinstance(value, dict):
        return ",".join(_entry(name, one) for name, one in value.items())
    if value is None:
        return "none"
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def _entry(name: str, value: Any) -> str:
    """What a table says under a name: of a remote its address, of trust the names of signers and what is revoked."""
    if isinstance(value, dict) and "url" in value:
        return f"{name}={value['url']}"
    said = "|".join(value) if isinstance(value, dict) else _value(value)
    return f"{name}={said}"
