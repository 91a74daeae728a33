"""All verbs together, and what becomes of their errors."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from cachekit import __version__
from cachekit.cli import out
from cachekit.cli.verbs import Verbs
from cachekit.errors import CachekitError, InterruptedRunError, UsageError

EPILOG = "Start with `cachekit zoo`, then `cachekit plan bert`.\n\nExit codes: `cachekit help exit-codes`."

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


_asked: list[signal.Signals] = []


def stop_when_asked() -> None:
    """Let SIGTERM and SIGHUP end a run as Ctrl-C does: locks and leases are given back, and workers end.

    Schedulers end runs so. What this process was started deaf to (`nohup`) stays unheard.
    """

    def stop(number: int, _: object) -> NoReturn:
        _asked.append(signal.Signals(number))
        raise KeyboardInterrupt(_asked[0].name)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, stop)


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
                    UsageError("the working directory is not there any more", hint="cd to a folder that exists")
                )
            return out.unexpected(error)
        if type(error).__name__ == "NoArgsIsHelpError":
            out.text(error.ctx.get_help())  # type: ignore[attr-defined]
            return 0
        if type(error).__name__ == "Abort":
            return out.error(_interrupted())
        hint = "cachekit --help"
        context = getattr(error, "ctx", None)
        if context is not None:
            hint = f"{context.command_path} --help"
        words: str = getattr(error, "format_message", error.__str__)()
        if _asks_for_json(arguments):  # the verb itself never came to read its options
            out.setup("json")
        return out.error(UsageError(words.rstrip("."), hint=hint))
    # What the argument parser makes of Ctrl-C, without a word; no plain number is a command's own code (`run`).
    if type(outcome) is int and outcome == InterruptedRunError.exit_code:
        return out.error(_interrupted())
    return outcome if isinstance(outcome, int) else 0


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True


def _asks_for_json(arguments: Sequence[str]) -> bool:
    words = " ".join(arguments)
    return any(f"{option}{joint}json" in words for option in ("--format", "-f") for joint in ("=", " "))


def _interrupted() -> InterruptedRunError:
    return InterruptedRunError("stopped", cause=_asked[0].name if _asked else "Ctrl-C", hint="run it again")
