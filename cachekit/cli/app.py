"""All verbs together, in groups, in the order of `cachekit --help`; and what becomes of their errors.

Each verb is loaded when it is used: loading all of them, and making a parser of each one's options, would take half of
the time that `cachekit plan` takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup

from cachekit import __version__
from cachekit.cli import out, stop
from cachekit.errors import EXIT_CODES, CachekitError, InterruptedRunError, UsageError


class Verb(NamedTuple):
    """A verb.

    Attributes:
        module: Of `cachekit.cli`.
        says: The first sentence of what it says about itself.
        function: Of the module; of a verb with verbs of its own, the module's `Typer`.
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
        "pull": Verb("sharing", "Fetch what recipes need, so that they run without the network.", "pull"),
        "push": Verb("sharing", "Send new records of the store to the remotes.", "push"),
        "fleet": Verb("fleet", "Follow commands that run on the machines of an engine.", "app"),
        "hub": Verb("hub", "Set up and look at a team's cache on the Hugging Face Hub.", "app"),
        "trust": Verb("trust", "Choose whose records are used, and sign your own.", "app"),
    },
    "Look after the store": {
        "store": Verb("app", "List, show, check, pin, remove, export and import records.", "store"),
    },
    "Set up": {
        "zoo": Verb("zoo", "List, show and check recipes, models and instances.", "app"),
        "doctor": Verb("doctor", "Show this machine, what is wrong with its set-up, and how to repair it."),
        "config": Verb("doctor", "Print every setting with its value and its origin.", "config"),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}

STORE = {
    "ls": Verb("records", "List the records of the store, newest first.", "ls"),
    "show": Verb("records", "Show a record: its ingredients, its modules, and who made it.", "show"),
    "verify": Verb("upkeep", "Check every record and every file of the store.", "verify"),
    "gc": Verb("upkeep", "Remove what is no longer needed from the store.", "gc"),
    "pin": Verb("records", "Keep a recipe's record, whatever the limits of `cachekit store gc`.", "pin"),
    "unpin": Verb("records", "Let `cachekit store gc` remove a pinned record again.", "unpin"),
    "rm": Verb("records", "Remove records from the store, with the files that only they name.", "rm"),
    "export": Verb(
        "export_import", "Write records as one file for a machine without a network, or as a Neuron cache.", "export"
    ),
    "import": Verb("export_import", "Import a bundle, or the finished modules of a Neuron cache.", "take"),
    "lock": Verb("sharing", "Write the exact artifacts of recipes into cachekit.lock.", "lock"),
    "neff": Verb("neff", "Describe NEFFs: what they are, whether they are intact, and what they leak."),
}


@cache
def _parser(name: str, verb: Verb) -> Any:
    module = import_module(f"cachekit.cli.{verb.module}")
    function = getattr(module, verb.function)
    if isinstance(function, typer.Typer):
        return typer.main.get_command(function)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, context_settings=getattr(module, "CONTEXT", None))(function)
    return typer.main.get_command(alone)


class Commands(Mapping[str, Any]):
    """The parser of each verb, made when it is asked for."""

    def __init__(self, verbs: Mapping[str, Verb] = VERBS) -> None:
        self._verbs = verbs

    def __getitem__(self, name: str) -> Any:
        return _parser(name, self._verbs[name])

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


EPILOG = "Start with `cachekit zoo`, then `cachekit plan bert`.\n\nExit codes: {}.".format(
    "; ".join(f"{number} {meaning}" for number, meaning in EXIT_CODES.items())
)
PRINTED_BY_THE_PARSER = {"--help", "-h", "--show-completion"}

app = typer.Typer(
    name="cachekit",
    cls=Verbs,
    help="Compile once: warm a recipe's graphs, then train with every compile skipped.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,  # plain help: importing rich would double the time to show it
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        out.text(__version__)
        raise typer.Exit


store = typer.Typer(
    cls=StoreVerbs,
    add_completion=False,
    help="List, show, check, pin, remove, export and import the records of the store.\n\nExample:  cachekit store ls",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@store.callback()
def _store() -> None:
    """The verbs of the store have all options."""


@app.callback()
def _top(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Compile once: warm a recipe's graphs, then train with every compile skipped."""


@cache
def _all() -> Any:
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    try:
        outcome = _all()(args=list(arguments), prog_name="cachekit", standalone_mode=False)
    except CachekitError as error:
        return out.error(error)
    except Exception as error:  # noqa: BLE001 - a person gets three lines, and the traceback under -vv
        # The argument parser's own errors; typer brings its classes along or takes click's, by version.
        if not hasattr(error, "format_message") and type(error).__name__ != "Abort":
            if isinstance(error, FileNotFoundError) and not _has_working_directory():
                return out.error(
                    UsageError("the working directory no longer exists", hint="cd to a folder that exists")
                )
            if isinstance(error, OSError) and PRINTED_BY_THE_PARSER & set(arguments):
                return out.error(out.unwritable(error))
            return out.unexpected(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            out.text(error.ctx.get_help())  # type: ignore[attr-defined]
            return 0
        if type(error).__name__ == "Abort":
            return _interrupted(arguments)
        hint = f"{_verb(arguments)} --help"
        context = getattr(error, "ctx", None)  # none where an option lacks its value
        if context is not None:
            hint = f"{context.command_path} --help"
            if context.parent is None:
                hint = _moved(arguments) or hint
        if hasattr(error, "possibilities") and hasattr(error, "option_name"):  # `--verbose` is nothing like `--bogus`
            error.possibilities = get_close_matches(error.option_name, error.possibilities or (), cutoff=0.75)
        words: str = getattr(error, "format_message", error.__str__)()
        words = re.sub(r"valid int(eger)?( range)?\b", "whole number", words)
        words = re.sub(r"valid float( range)?\b", "number", words)
        out.setup_early(arguments)
        return out.error(UsageError(words.rstrip("."), hint=hint))
    if isinstance(outcome, stop.CommandExit):
        return int(outcome)
    if outcome == InterruptedRunError.exit_code:  # what the argument parser makes of Ctrl-C, without a word
        return _interrupted(arguments)
    return outcome if isinstance(outcome, int) else 0


def _verb(arguments: Sequence[str]) -> str:
    """The verb of a command line, as far as the line names one."""
    path: list[str] = ["cachekit"]
    known: Mapping[str, Any] = Commands()
    for word in arguments:
        if word not in known:
            break
        path.append(word)
        known = getattr(known[word], "commands", {})
    return " ".join(path)


def _moved(arguments: Sequence[str]) -> str:
    """What to type for a verb that stands elsewhere; empty for others."""
    verb = next((word for word in arguments if not word.startswith("-")), "")
    if verb in STORE:
        return f"cachekit store {verb}"
    return "cachekit doctor" if verb == "env" else ""


def _interrupted(arguments: Sequence[str]) -> int:
    if arguments[:1] != ["run"]:  # whose words are mostly another program's
        out.setup_early(arguments)  # the verb may not have come to it
    return out.error(stop.interrupted())


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True
