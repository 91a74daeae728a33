"""`cachekit doctor`: what is wrong with this host's set-up, and whether Neuron is what cachekit takes it for."""

from __future__ import annotations

import shutil
from typing import Annotated, Any

import typer

from cachekit.cli import options, out

NAME = "doctor"
SHOWN = 12  # findings of one check, for people

Contract = Annotated[
    bool, typer.Option("--neuron-contract", help="Compare what cachekit assumes of Neuron with this host's.")
]
Quick = Annotated[bool, typer.Option("--quick", help="With --neuron-contract: compile nothing.")]


def command(
    contract: Contract = False,
    quick: Quick = False,
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
) -> int:
    """Find what is wrong with this host's set-up, and what mends it.

    Changes nothing. Exits 1 if something is wrong. --neuron-contract is for a new Neuron instance: ten minutes, in
    temporary folders; it exits 1 if something is not as cachekit assumes, and names the line to correct.

    Example:  cachekit doctor --neuron-contract
    """
    from cachekit.errors import UsageError

    out.setup(format, quiet=quiet, verbose=verbose)
    if contract:
        return _contract(quick=quick, whole=verbose > 0)
    if quick:
        raise UsageError("--quick goes with --neuron-contract", hint="cachekit doctor --neuron-contract --quick")
    from cachekit.verbs.doctor import examine
    from cachekit.verbs.doctor_checks import CHECKS

    found = examine(lambda: options.load_config(home), CHECKS)
    out.data(found.as_dict(), human, _quiet)
    return int(not found.good)


def _contract(*, quick: bool, whole: bool) -> int:
    from cachekit.verbs.neuron_contract import neuron_contract

    found = neuron_contract(quick=quick, tell=lambda what: out.note(f"  {what} ..."))
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
    """One line a check; one that differs is followed by what was assumed, what was seen and where to correct it.

    Args:
        document: What `neuron_contract` found.
        whole: Show that of every check.
    """
    checks = document["checks"]
    width = max(len(one["name"]) for one in checks) + 2
    columns = max(shutil.get_terminal_size().columns, 60)
    lines: list[str] = []
    for one in checks:
        words = one["seen"] if document["neuron"] else one["assumed"]  # the reason would be the same for all
        line = f"{one['state'].ljust(9)}{one['name'].ljust(width)}{words}"
        lines.append(line if len(line) <= columns else f"{line[: columns - 3]}...")
        if one["state"] == "differs" or whole:
            for label, words in (("assumed", "assumed"), ("seen", "seen"), ("how", "how"), ("edit", "edit")):
                lines += out.labelled(f"{label}: ".ljust(9), one[words], 9)
    counts = document["counts"]
    spent = out.duration(document["seconds"])
    subject = " about TorchNeuron" if document["native"] else ""
    lines.append(
        f"{out.count(len(checks), 'assumption')}{subject} in {spent}: {counts['ok']} ok, {counts['differs']} differ, "
        f"{counts['unknown']} unknown"
    )
    if not document["neuron"]:
        lines += out.labelled("There is no Neuron here: ", document["problem"])
        lines += out.labelled("hint: ", document["hint"], 2)
    return lines


def _quiet_contract(document: dict[str, Any]) -> str:
    return "\n".join(one["name"] for one in document["checks"] if one["state"] == "differs")
