"""All verbs together, and what becomes of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import typer

from cachekit import __version__
from cachekit.cli import out, stop
from cachekit.cli.verbs import STORE, Verbs
from cachekit.errors import EXIT_CODES, CachekitError, InterruptedRunError, UsageError

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
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        out.text(__version__)
        raise typer.Exit


@app.callback()
def _top(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Compile once: warm a recipe's graphs, then train with every compile skipped."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    try:
        outcome = app(args=list(arguments), prog_name="cachekit", standalone_mode=False)
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
        hint = "cachekit --help"
        context = getattr(error, "ctx", None)
        if context is not None:
            hint = f"{context.command_path} --help"
            if context.parent is None:
                hint = _moved(arguments) or hint
        if hasattr(error, "possibilities") and hasattr(error, "option_name"):  # `--verbose` is nothing like `--bogus`
            error.possibilities = get_close_matches(error.option_name, error.possibilities or (), cutoff=0.75)
        words: str = getattr(error, "format_message", error.__str__)()
        words = words.replace("valid float range", "number").replace("valid integer range", "whole number")
        out.setup_early(arguments)
        return out.error(UsageError(words.rstrip("."), hint=hint))
    if isinstance(outcome, stop.CommandExit):
        return int(outcome)
    if outcome == InterruptedRunError.exit_code:  # what the argument parser makes of Ctrl-C, without a word
        return _interrupted(arguments)
    return outcome if isinstance(outcome, int) else 0


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
