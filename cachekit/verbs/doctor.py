"""Look for what is wrong with this host's set-up, and say which command mends it: `cachekit doctor`.

`doctor_checks.checks` has the list: a new check is one entry there, or in the compiler's adapter that it is about.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from cachekit.config import Config, defaults
from cachekit.errors import CachekitError, UsageError
from cachekit.health import STATES, Check, Finding

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found on this host.

    Attributes:
        findings: Each with the name of its check, in the order in which people should see them.
    """

    findings: tuple[tuple[str, Finding], ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """What is wrong."""
        return tuple(finding for _, finding in self.findings if finding.state == "problem")

    @property
    def good(self) -> bool:
        """Nothing is wrong, as far as it could be looked at."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        counts = Counter(finding.state for _, finding in self.findings)
        return {
            "counts": {state: counts[state] for state in STATES},
            "findings": [{"check": name, **structs.asdict(finding)} for name, finding in self.findings],
        }


def examine(load: Callable[[], Config], checks: Sequence[Check]) -> Diagnosis:
    """Run checks with settings that perhaps cannot be read, which is one more thing to be told.

    Args:
        load: Reads them.
        checks: The checks.
    """
    try:
        return doctor(load(), checks)
    except CachekitError as error:
        broken = error
    except OSError as error:
        broken = UsageError("settings cannot be read", cause=str(error))
    return doctor(defaults(), checks, broken)


def doctor(config: Config, checks: Sequence[Check], broken: CachekitError | None = None) -> Diagnosis:
    """Run checks; one that fails itself stops no other.

    Args:
        config: Settings.
        checks: The checks.
        broken: Why the user's own settings could not be read, where these are others.
    """
    said = ", ".join(dict.fromkeys(one.origin for one in config.settings if one.origin != "default"))
    found = [("settings", _said(broken) if broken else Finding("ok", said or "all are the defaults"))]
    for check in checks:
        found += [(check.name, finding) for finding in _findings(check, config)]
    return Diagnosis(tuple(found))


def _findings(check: Check, config: Config) -> list[Finding]:
    try:
        return list(check.look(config))
    except CachekitError as error:
        return [_said(error)]
    except OSError as error:
        return [Finding("unknown", f"it cannot be looked at: {error}")]
    except Exception as error:  # noqa: BLE001 - what nobody foresaw must not end the other checks
        _log.exception("the check %s failed", check.name)
        return [Finding("unknown", f"this check failed itself: {type(error).__name__}: {error}")]


def _said(error: CachekitError) -> Finding:
    return Finding("problem", "; ".join(filter(None, (error.message, error.cause))), error.hint)
