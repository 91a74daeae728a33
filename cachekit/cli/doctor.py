"""`cachekit doctor`: this machine, what is wrong with its set-up, and whether Neuron is what cachekit takes it for."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cachekit.cli import out
from cachekit.cli.verb import Shown, verb

if TYPE_CHECKING:
    from cachekit.api import Cache

SHOWN = 12  # findings of one check, for people
LABEL = len("compiler_cache_dir ")  # the longest name of what a machine has

Contract = Annotated[
    bool, typer.Option("--neuron-contract", help="Check whether this host's Neuron does what cachekit promises.")
]


@verb("home", "compiler", answers="Diagnosis, Contract")
def command(cache: Cache, contract: Contract = False) -> Shown:
    """Show this machine, what is wrong with its set-up, and how to fix it.

    Shows toolchain, target and paths, as they go into keys, and then what each check found. Changes nothing. Exits 1 if
    something is wrong. --neuron-contract is for a new Neuron instance: it warms and trains a tiny BERT in temporary
    folders, in about ten minutes. It exits 1 if a promise is broken or something is not as cachekit assumes, and names
    the line to correct.

    Example:  cachekit doctor --neuron-contract
    """
    if contract:
        proof, whole = cache.neuron_contract(), out.wants_more()
        return Shown(proof, lambda said: contract_human(said, whole=whole), _quiet_contract, code=int(not proof.good))
    found = cache.doctor()
    return Shown(found, human, _quiet, code=int(not found.good))


def human(document: dict[str, Any]) -> list[str]:
    """This machine, and the findings, for people: what is wrong is followed by what mends it."""
    return [*machine(document["machine"]), "", *listed(document)]


def machine(found: dict[str, Any]) -> list[str]:
    """This machine for people."""
    lines = [
        f"{name.ljust(LABEL)}{found[name]}" for name in ("cachekit", "python", "platform", "home", "compiler_cache_dir")
    ]
    for name, place in found["places"].items():
        lines += _place(name.replace("_", " "), place)
    if found["problem"]:
        return [*lines, *out.labelled("compiler".ljust(LABEL), f"{found['compiler'] or 'none'}: {found['problem']}")]
    lines.append(f"{'compiler'.ljust(LABEL)}{found['directory']}")
    for group in ("toolchain", "target"):
        for name, value in found[group].items():
            shown = " ".join(value) if isinstance(value, list) else str(value)
            lines += out.labelled(f"{group}.{name}".ljust(25), shown, 2)
    return [*lines, f"  {'bf16'.ljust(24)} {'yes' if found['bf16'] else 'no'}"]


def _place(name: str, place: dict[str, Any]) -> list[str]:
    """A compiler's own cache, where there is one or somebody said where it is to be."""
    if place["origin"] == "default" and not place["exists"]:
        return []
    kind = f", {place['file_system']}" if place["file_system"] else ""
    line = f"{name.ljust(LABEL)}{place['path'] or place['url']} ({place['origin']}{kind})"
    return [line, *(f"  warning: {warning}" for warning in place["warnings"])]


def listed(document: dict[str, Any]) -> list[str]:
    """The findings for people."""
    findings = document["findings"]
    width = max(len(finding["check"]) for finding in findings) + 2
    lines: list[str] = []
    shown: dict[str, int] = {}
    for finding in findings:
        name = finding["check"]
        shown[name] = shown.get(name, 0) + 1
        if shown[name] > SHOWN:
            continue
        lines += out.labelled(f"{finding['state'].ljust(9)}{name.ljust(width)}", finding["said"])
        if finding["mend"]:
            lines += out.labelled("mend: ", finding["mend"], 9)
        if finding["run"]:
            lines.append(f"         run:  {finding['run']}")  # never folded: it is there to be copied
    lines += [
        f"  ... and {count - SHOWN} more of {name} (--format json)" for name, count in shown.items() if count > SHOWN
    ]
    counts = document["counts"]
    return [*lines, f"{out.count(counts['problem'], 'problem')}, {counts['ok']} ok, {counts['unknown']} unknown"]


def _quiet(document: dict[str, Any]) -> str:
    return "\n".join(dict.fromkeys(one["check"] for one in document["findings"] if one["state"] == "problem"))


def contract_human(document: dict[str, Any], *, whole: bool = False) -> list[str]:
    """One line a promise and an assumption; one that differs is followed by what was seen and where to correct it.

    Args:
        document: What `neuron_contract` found.
        whole: Show that of every one.
    """
    lines = listed({"findings": document["findings"], "counts": _counts(document["findings"])})
    if document["problem"]:
        lines += out.labelled("There is no Neuron to prove: ", document["problem"])
        return [*lines, *out.labelled("hint: ", document["hint"], 2)]
    outcomes = [*document["promises"], *document["assumptions"]]
    width = max(len(one["name"]) for one in outcomes) + 2
    columns = max(shutil.get_terminal_size().columns, 60)
    for title, part in (("Promises", document["promises"]), ("Assumptions", document["assumptions"])):
        lines += ["", f"{title} ({document['compiler']})"]
        for one in part:
            line = f"{one['state'].ljust(9)}{one['name'].ljust(width)}{one['seen']}"
            lines.append(line if len(line) <= columns else f"{line[: columns - 3]}...")
            if one["state"] == "differs" or whole:
                for label, words in (("wanted", "assumed"), ("seen", "seen"), ("edit", "edit")):
                    lines += out.labelled(f"{label}: ".ljust(9), one[words], 9) if one[words] else []
    counts = document["counts"]
    said = f"{counts['ok']} ok, {counts['differs']} differ, {counts['unknown']} unknown"
    return [*lines, "", f"{out.count(len(outcomes), 'line')} in {out.duration(document['seconds'])}: {said}"]


def _counts(findings: list[dict[str, Any]]) -> dict[str, int]:
    return {state: sum(one["state"] == state for one in findings) for state in ("ok", "problem", "unknown")}


def _quiet_contract(document: dict[str, Any]) -> str:
    outcomes = [*document["promises"], *document["assumptions"]]
    return "\n".join(one["name"] for one in outcomes if one["state"] == "differs")
