"""`cachekit env`: this machine as it goes into keys, and where things lie."""

from __future__ import annotations

from typing import Any

from cachekit.cli import options, out

NAME = "env"


def command(
    format: options.Format = "human",  # noqa: A002
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
    home: options.Home = None,
    compiler: options.CompilerName = None,
) -> int:
    """Print this machine as cachekit sees it: toolchain, target, paths.

    Exits 1 if nothing can compile here.

    Example:  cachekit env --format json
    """
    from cachekit.verbs.environment import env

    out.setup(format, quiet=quiet, verbose=verbose)
    config = options.load_config(home, compiler)
    with options.session(config, None, NAME) as session:
        document = env(session.config, session.compiler)
    out.data(document, _human)
    return 0 if document["available"] else 1


def _human(document: dict[str, Any]) -> list[str]:
    lines = [f"{name.ljust(12)} {document[name]}" for name in ("cachekit", "python", "platform", "home", "live_dir")]
    lines += _neuron("neuron cache", document["neuron_cache"])
    lines += _neuron("torchneuron", document["native_cache"])
    if not document["available"]:
        return [*lines, f"{'compiler'.ljust(12)} {document['compiler']} is not available: {document['problem']}"]
    lines.append(f"{'compiler'.ljust(12)} {document['directory']}")
    for group in ("toolchain", "target"):
        for name, value in document[group].items():
            shown = " ".join(value) if isinstance(value, list) else str(value)
            lines += out.labelled(f"{group}.{name}".ljust(25), shown, 2)
    lines.append(f"  {'bf16'.ljust(24)} {'yes' if document['bf16'] else 'no'}")
    return lines


def _neuron(name: str, root: dict[str, Any]) -> list[str]:
    """A cache of Neuron's, where there is one or somebody said where it is to be."""
    if root["origin"] == "default" and not root["exists"]:
        return []
    kind = f", {root['file_system']}" if root["file_system"] else ""
    line = f"{name.ljust(12)} {root['path'] or root['url']} ({root['origin']}{kind})"
    return [line, *(f"  warning: {warning}" for warning in root["warnings"])]
