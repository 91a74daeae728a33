"""The verbs, in the order of `cachekit --help`; each is loaded when it is used.

Loading all of them, and making a parser of each one's options, would take half of the time that `cachekit plan` takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

# The main job first. One that is not called as its module is keeps its name apart from a word of Python.
MODULES = {
    "warm": "warm",
    "train": "train",
    "run": "run",
    "plan": "plan",
    "why": "why",
    "coverage": "coverage",
    "pull": "pull",
    "push": "push",
    "lock": "lock",
    "ls": "ls",
    "show": "show",
    "stats": "stats",
    "report": "report",
    "verify": "verify",
    "gc": "gc",
    "pin": "pin",
    "unpin": "unpin",
    "rm": "rm",
    "neff": "neff",
    "import": "import_cache",
    "export": "export",
    "zoo": "zoo",
    "doctor": "doctor",
    "config": "config",
    "env": "env",
    "help": "help_topics",
    "hub": "hub",
}


def _module(name: str) -> Any:
    return import_module(f"cachekit.cli.{MODULES[name]}")


def _short_help(name: str) -> str:
    """The first sentence of what a verb says about itself."""
    module = _module(name)
    told = module.app.info.help if hasattr(module, "app") else inspect.getdoc(module.command)
    return " ".join(str(told).split()).partition(". ")[0].removesuffix(".") + "."


class Commands(Mapping[str, Any]):
    """The parser of each verb, made when it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in MODULES:
            raise KeyError(name)
        if name not in self._made:
            module = _module(name)
            verb = getattr(module, "app", None)  # a verb with verbs of its own
            if verb is None:
                verb = typer.Typer(add_completion=False, rich_markup_mode=None)
                verb.command(name, context_settings=getattr(module, "CONTEXT", None))(module.command)
            self._made[name] = typer.main.get_command(verb)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(MODULES)

    def __len__(self) -> int:
        return len(MODULES)


class Verbs(TyperGroup):
    """All verbs, none of them loaded."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands = Commands()  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the parser's
        """List the verbs."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _short_help(name)) for name in self.commands])
