"""`cachekit doctor`: what is wrong with this host's set-up, and whether Neuron is what cachekit takes it for."""

from __future__ import annotations

import shutil
from typing import Annotated, Any

import typer

from cachekit.cli import options, out

NAME = "doctor"
SHOWN = 12  # findings of one check, for people

Contract = Annotated[
    bool, typer.Option("--neuron-contract", help="See whether this host's Neuron does what cachekit promises.")
]


def command(
    contract: Contract = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Find what is wrong with this host's set-up, and what mends it.

    Changes nothing. Exits 1 if something is wrong. --neuron-contract is for a new Neuron instance: it warms and trains
    a tiny BERT in temporary folders, in some ten minutes. It exits 1 if a promise is broken or something is not as
    cachekit assumes, and names the line to correct.

    Example:  cachekit doctor --neuron-contract
    """
    from cachekit.verbs.doctor import examine
    from cachekit.verbs.doctor_checks import checks

    out.setup(format, quiet=quiet, verbose=verbose)
    if contract:
        return _contract(whole=verbose > 0)
    found = examine(lambda: options.load_config(home), checks())
    out.data(found.as_dict(), human, _quiet)
    return int(not found.good)


def _contract(*, whole: bool) -> int:
    from cachekit.verbs.prove import neuron_contract

    found = neuron_contract(tell=lambda what: out.note(f"  {what} ..."))
    out.data(found.as_dict(), lambda document: contract_human(document, whole=whole), _quiet_contract)
    return int(not found.good)


def human(document: dict[str, Any]) -> list[str]:
    """The findings for people: what is wrong is followed by what mends it."""
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
    lines = human({"findings": document["findings"], "counts": _counts(document["findings"])})
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
