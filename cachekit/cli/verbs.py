"""The verbs, in groups, in the order of `cachekit --help`; each is loaded when it is used.

Loading all of them, and making a parser of each one's options, would take half of the time that `cachekit plan` takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup


class Verb(NamedTuple):
    """A verb.

    Attributes:
        module: Of `cachekit.cli`.
        says: The first sentence of what it says about itself.
        function: Of the module.
    """

    module: str
    says: str
    function: str = "command"


# A module that is not called as its verb is keeps its name apart from a word of Python.
GROUPS = {
    "Compile once, then train": {
        "plan": Verb("plan", "Show what will be found and what must compile; run nothing."),
        "warm": Verb("warm", "Compile what a recipe's fine-tune needs, once, and keep it."),
        "train": Verb("train", "Run a recipe's fine-tune; nothing that was warmed compiles."),
        "run": Verb("run", "Run your own command; what it compiled before is restored."),
    },
    "Ask what happened, and why": {
        "why": Verb("why", "Show what differs from the nearest record, here or on a remote."),
        "coverage": Verb("coverage", "Show which modules of a recipe are cached, failed or missing."),
        "stats": Verb("stats", "Show what the cache did and saved, in all runs and in the last one."),
    },
    "Share with a team": {
        "pull": Verb("pull", "Fetch what recipes need, so that they run without the network."),
        "push": Verb("push", "Send new records of the store to the remotes."),
        "fleet": Verb("fleet", "Follow commands that run on the machines of an engine."),
        "hub": Verb("hub", "Set up and look at a team's cache on the Hugging Face Hub."),
        "trust": Verb("trust", "Say whose records are used, and sign your own."),
    },
    "Look after the store": {
        "store": Verb("store", "List, show, check, pin, remove, export and import records."),
    },
    "Set up": {
        "zoo": Verb("zoo", "List, show and check recipes, models and instances."),
        "doctor": Verb("doctor", "Show this machine, what is wrong with its set-up, and how to repair it."),
        "config": Verb("config", "Print every setting with its value and its origin."),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}

STORE = {
    "ls": Verb("records", "List the records of the store, newest first.", "ls"),
    "show": Verb("records", "Show a record: its ingredients, its modules, and who made it.", "show"),
    "verify": Verb("verify", "Check every record and every file of the store."),
    "gc": Verb("gc", "Remove what is no longer needed from the store."),
    "pin": Verb("records", "Keep a recipe's record, whatever limits `cachekit store gc` has.", "pin"),
    "unpin": Verb("records", "Let `cachekit store gc` remove a pinned record again.", "unpin"),
    "rm": Verb("records", "Remove records from the store, with the files that only they name.", "rm"),
    "export": Verb(
        "export_import", "Write records as one file for a machine without a network, or as a Neuron cache.", "export"
    ),
    "import": Verb("export_import", "Take a bundle, or the finished modules of a Neuron cache.", "take"),
    "lock": Verb("lock", "Write the exact artifacts of recipes into cachekit.lock."),
    "neff": Verb("neff", "Describe NEFFs: what they are, whether they are intact, and what they leak."),
}


class Commands(Mapping[str, Any]):
    """The parser of each verb, made when it is asked for."""

    def __init__(self, verbs: Mapping[str, Verb] = VERBS) -> None:
        self._verbs = verbs
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._verbs:
            raise KeyError(name)
        if name not in self._made:
            module = import_module(f"cachekit.cli.{self._verbs[name].module}")
            verb = getattr(module, "app", None)  # a verb with verbs of its own
            if verb is None:
                verb = typer.Typer(add_completion=False, rich_markup_mode=None)
                function = getattr(module, self._verbs[name].function)
                verb.command(name, context_settings=getattr(module, "CONTEXT", None))(function)
            self._made[name] = typer.main.get_command(verb)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._verbs)

    def __len__(self) -> int:
        return len(self._verbs)


class Verbs(TyperGroup):
    """All verbs, none of them loaded."""

    groups: ClassVar[Mapping[str, Mapping[str, Verb]]] = GROUPS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        verbs = {name: verb for group in self.groups.values() for name, verb in group.items()}
        self.commands = Commands(verbs)  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the parser's
        """List the verbs, group by group, all in one column."""
        width = max(map(len, self.commands))
        for title, verbs in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), verb.says) for name, verb in verbs.items()])


class StoreVerbs(Verbs):
    """The verbs of `cachekit store`, none of them loaded."""

    groups: ClassVar[Mapping[str, Mapping[str, Verb]]] = {"Commands": STORE}
