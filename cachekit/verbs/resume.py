"""Find the checkpoint that a training goes on from, before anything starts."""

from __future__ import annotations

from pathlib import Path

from cachekit.errors import UsageError
from cachekit.events import Journal
from cachekit.training.checkpoints import STATE, checkpoints, flaw


def checkpoint(resume: str, output_dir: Path, journal: Journal) -> str:
    """The checkpoint to go on from; empty where none is wanted.

    Args:
        resume: `auto` for the newest whole one in `output_dir`, or a checkpoint's path.
        output_dir: Where the training writes.
        journal: Told of a newer one that was passed over (`resume.passed`).

    Raises:
        UsageError: There is none to resume from.
    """
    if not resume:
        return ""
    if resume != "auto":
        return _named(Path(resume))
    passed: list[tuple[Path, str]] = []
    try:
        for found in checkpoints(output_dir):
            reason = flaw(found)
            if not reason:
                for path, why in passed:
                    journal.emit("resume.passed", checkpoint=str(path), reason=why)
                return str(found)
            passed.append((found, reason))
    except OSError as error:
        raise UsageError(f"{output_dir} cannot be read", cause=error.strerror or str(error)) from error
    if passed:
        raise UsageError(
            f"no checkpoint in {output_dir} is whole",
            cause="; ".join(f"{path.name}: {why}" for path, why in passed[:3]),
            hint="leave --resume out to start anew",
        )
    raise UsageError(
        f"there is no checkpoint in {output_dir}",
        hint="leave --resume out, or name the folder with --output-dir",
    )


def _named(path: Path) -> str:
    hint = "name a checkpoint-N folder, or say --resume auto"
    try:
        if not (path / STATE).is_file():
            raise UsageError(f"{path} is no checkpoint", cause=f"it has no {STATE}", hint=hint)
        reason = flaw(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{str(path)[:200]} is no checkpoint", cause=str(error)[:200], hint=hint) from error
    if reason:
        raise UsageError(f"the checkpoint {path} is not whole", cause=reason, hint="say --resume auto, or another one")
    return str(path.absolute())
