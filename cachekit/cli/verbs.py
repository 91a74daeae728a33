"""The verbs, in the order of `cachekit --help`; each is loaded when it is used.

Loading all of them, and making a parser of each one's options, would take half of the time that `cachekit plan` takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup


class Verb(NamedTuple):
    """A verb: the module of `cachekit.cli` that has it, and the first sentence of what it says about itself."""

    module: str
    says: str


# The main job first. A module that is not called as its verb is keeps its name apart from a word of Python.
VERBS = {
    "warm": Verb("warm", "Compile what a recipe's fine-tune needs, once, and keep it."),
    "train": Verb("train", "Run a recipe's fine-tune; nothing that was warmed compiles."),
    "run": Verb("run", "Run your own command; what it compiled before is there again."),
    "plan": Verb("plan", "Say what will be found and what must compile; run nothing."),
    "why": Verb("why", "Say what differs from the nearest record, here or on a shared cache."),
    "coverage": Verb("coverage", "Say what of a recipe is cached, what failed, what is missing."),
    "pull": Verb("pull", "Fetch what recipes need, so that they run without the network."),
    "push": Verb("push", "Put what is new in the store on the shared caches."),
    "lock": Verb("lock", "Pin the exact artifacts of recipes in cachekit.lock."),
    "ls": Verb("ls", "List the records of the store, youngest first."),
    "show": Verb("show", "Show a record: its ingredients, its modules, who made it."),
    "stats": Verb("stats", "Say what the cache did and what it saved: all runs, beside the last one."),
    "verify": Verb("verify", "Check every record and every file of the store."),
    "gc": Verb("gc", "Remove what nobody needs from the store."),
    "pin": Verb("pin", "Keep a recipe's record, whatever limits `cachekit gc` has."),
    "unpin": Verb("unpin", "Let `cachekit gc` remove a pinned record again."),
    "rm": Verb("rm", "Remove records from the store, with what only they name."),
    "neff": Verb("neff", "Say what NEFFs are, whether they are whole, and what they leak."),
    "import": Verb("import_cache", "Take a bundle of `cachekit export`, or the finished modules of a Neuron cache."),
    "export": Verb("export", "Write records as one file for a machine without a network, or as a Neuron cache."),
    "zoo": Verb("zoo", "List, show and check recipes, models and instances."),
    "doctor": Verb("doctor", "Find what is wrong with this host's set-up, and what mends it."),
    "config": Verb("config", "Print every setting with its value and its origin."),
    "env": Verb("env", "Print this machine as cachekit sees it: toolchain, target, paths."),
    "help": Verb("help_topics", "Explain a topic: exit-codes."),
    "hub": Verb("hub", "Set up and look at a team's cache on the Hugging Face Hub."),
}


def _module(name: str) -> Any:
    return import_module(f"cachekit.cli.{VERBS[name].module}")


class Commands(Mapping[str, Any]):
    """The parser of each verb, made when it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in VERBS:
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
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


class Verbs(TyperGroup):
    """All verbs, none of them loaded."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.commands = Commands()  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the parser's
        """List the verbs."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.says) for name, verb in VERBS.items()])
