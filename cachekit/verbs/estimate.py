"""How long a miss will compile, from what near jobs took: one record is scaled by its compiler's law, several fit it.

A regression over logarithms of seconds, by Gaussian processes: the compiler's law (`compilers.laws`) is the mean, and
each way in which two jobs can differ is a term of their covariance. A record of the same job but for its depth says
nearly all; of another version, machine, task or family less, by so much as these differ usually. The variance that is
left is the estimate's own uncertainty, and beyond a limit nothing is said.

Only arithmetic of small matrices: neither numpy nor torch is needed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Protocol

from cachekit.compilers.laws import Law, law
from cachekit.key.canonical import canonical_or_absent
from cachekit.store.record import COMMAND, IMPORTED
from cachekit.verbs.linear import cholesky, solve
from cachekit.verbs.measures import NAMES, READ, Measures, measures

NEAREST = 32  # records that are asked
SPREAD = 1.28  # standard deviations to either side: four of five compiles lie between `low` and `high`
UNKNOWN = math.log(2.6)  # a standard deviation beyond a factor of this is no estimate

# By how much seconds differ, as a standard deviation of their logarithm, between two jobs that differ in just this.
_LEVEL = 20.0  # before anything is measured nobody knows whether a compile takes seconds or hours
_KINDS = {"family": 0.30, "task": 0.12, "directory": 0.15, "target": 0.25, "machine": 0.20}
_REST = 0.12  # what the measures do not tell
_REACH = 1.0  # measures this far apart (a factor of e) share a third of that rest
_OTHER = 0.35  # each other ingredient that differs leaves this much less of it
_NOISES = (0.06, 0.12, 0.25)  # the same compile twice: on a quiet machine, a used one, a crowded one
_TELLING = 4  # records from which it can be told how much compiles scatter
_FEWEST = 0.02  # share of an estimate below which a record is not named


_TARGET = ("target.chip", "target.machine")
_LOOKS = ("task", *_TARGET, *NAMES)


class Known(Protocol):
    """What an estimate asks of a record; see `record.Record`."""

    @property
    def key(self) -> str: ...  # noqa: D102
    @property
    def recipe(self) -> str: ...  # noqa: D102
    @property
    def compiler(self) -> str: ...  # noqa: D102
    @property
    def directory(self) -> str: ...  # noqa: D102
    @property
    def model_type(self) -> str: ...  # noqa: D102
    @property
    def hard(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def cold_seconds(self) -> float: ...  # noqa: D102
    @property
    def instance(self) -> str: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Source:
    """A record that an estimate comes from.

    Attributes:
        share: Its part in it; all shares are 1 together.
    """

    key: str
    recipe: str
    directory: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long compiling will take.

    Attributes:
        seconds: The most likely.
        low: Nine of ten compiles take longer.
        high: And nine of ten less.
        method: `scaled` from one record, or `fitted` to several.
        sources: The records, the weightiest first.
    """

    seconds: float
    low: float
    high: float
    method: str
    sources: tuple[Source, ...]

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "seconds": round(self.seconds, 3),
            "low": round(self.low, 3),
            "high": round(self.high, 3),
            "method": self.method,
            "records": [
                {
                    "key": one.key,
                    "recipe": one.recipe,
                    "directory": one.directory,
                    "seconds": one.seconds,
                    "share": round(one.share, 3),
                }
                for one in self.sources
            ],
        }


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be estimated; see `record.Record` for the fields.

    Attributes:
        instance: The machine's type, empty where that is not known.
    """

    compiler: str
    directory: str
    model_type: str
    hard: Mapping[str, Any]
    instance: str = ""


@dataclass(frozen=True, slots=True)
class _Point:
    kinds: dict[str, Any]
    measures: Measures
    hard: Mapping[str, Any]
    known: Known | None = None
    others: dict[str, bytes] = field(default_factory=dict)


def estimate(job: Job, records: Iterable[Known]) -> Estimate | None:
    """Estimate how long compiling takes; None where nothing near enough is known.

    Args:
        job: What would compile.
        records: Of any compilers; those of others and those without a compile say nothing, and recipes and users' own
            commands say nothing of each other.
    """
    rule = law(job.compiler)
    wanted = _point(job, rule)
    known: dict[tuple[Any, ...], float] = {}  # of thousands of records most look like another from here

    def far(one: Known) -> float:
        looks = (one.directory, one.model_type, one.instance, *map(one.hard.get, _LOOKS))
        try:
            if looks not in known:
                known[looks] = _apart(wanted, _point(one, rule), rule)
            return known[looks]
        except TypeError:  # a list, of convolutions' stages
            return _apart(wanted, _point(one, rule), rule)

    near = (
        one
        for one in records
        if one.compiler == job.compiler
        and one.cold_seconds > 0
        and one.model_type != IMPORTED
        and (one.model_type == COMMAND) == (job.model_type == COMMAND)
    )
    chosen = heapq.nsmallest(NEAREST, ((far(one), one.key, one) for one in near), key=itemgetter(0, 1))
    return _fit(wanted, [_point(one, rule) for _, _, one in chosen], rule) if chosen else None


def _point(job: Job | Known, rule: Law) -> _Point:
    hard = job.hard
    kinds = {
        "family": job.model_type,
        "task": hard.get("task"),
        "directory": job.directory,
        "target": tuple(map(hard.get, _TARGET)),
        "machine": job.instance,
    }
    return _Point(kinds, measures(hard, rule.layers), hard, None if isinstance(job, Job) else job)


def _apart(a: _Point, b: _Point, rule: Law) -> float:
    """How little one tells of the other, roughly; only to choose whom to ask."""
    far = sum(spread**2 for name, spread in _KINDS.items() if a.kinds[name] != b.kinds[name])
    slopes = sum((spread * (a.measures[name] - b.measures[name])) ** 2 for name, (_, spread) in rule.powers.items())
    return far + slopes + _REST**2 * min(1.0, _square(a, b) / _REACH**2)


def _square(a: _Point, b: _Point) -> float:
    return sum((value - b.measures[name]) ** 2 for name, value in a.measures.items())


def _others(point: _Point) -> dict[str, bytes]:
    """The ingredients that neither a measure nor a kind tells, in the one form in which they compare."""
    if not point.others:
        point.others.update(
            (name, canonical_or_absent(value))
            for name, value in point.hard.items()
            if name not in READ and name not in _LOOKS and not name.startswith("toolchain.")
        )
    return point.others


def _covariance(a: _Point, b: _Point, rule: Law) -> float:
    shared = sum(spread**2 for name, spread in _KINDS.items() if a.kinds[name] == b.kinds[name])
    slopes = sum(spread**2 * a.measures[name] * b.measures[name] for name, (_, spread) in rule.powers.items())
    mine, yours = _others(a), _others(b)
    differing = len({name for name, _ in mine.items() ^ yours.items()})
    rest = _REST**2 * math.exp(-_square(a, b) / (2 * _REACH**2) - _OTHER * differing)
    return _LEVEL**2 + shared + slopes + rest


def _mean(point: _Point, rule: Law) -> float:
    return sum(power * point.measures[name] for name, (power, _) in rule.powers.items())


def _fit(wanted: _Point, points: Sequence[_Point], rule: Law) -> Estimate | None:
    size = len(points)
    table = [[_covariance(points[row], points[column], rule) for column in range(row + 1)] for row in range(size)]
    seconds = [point.known.cold_seconds for point in points if point.known]
    beyond = [math.log(value) - _mean(point, rule) for value, point in zip(seconds, points, strict=True)]
    level = sum(beyond) / size  # so that nothing is drawn towards a level that nobody measured
    noise, lower = _quietest(table, [value - level for value in beyond])
    toward = [_covariance(wanted, point, rule) for point in points]
    weights = solve(lower, toward)
    centre = _mean(wanted, rule) + level
    centre += sum(weight * (value - level) for weight, value in zip(weights, beyond, strict=True))
    told = sum(weight * value for weight, value in zip(weights, toward, strict=True))
    variance = _covariance(wanted, wanted, rule) + noise**2 - told
    spread = math.sqrt(max(variance, noise**2))
    if spread > UNKNOWN:
        return None
    total = sum(map(abs, weights)) or 1.0
    sources = tuple(
        Source(one.key, one.recipe, one.directory, one.cold_seconds, abs(weight) / total)
        for weight, one in sorted(
            ((weight, point.known) for weight, point in zip(weights, points, strict=True) if point.known),
            key=lambda pair: (-abs(pair[0]), pair[1].key),
        )
        if abs(weight) / total >= _FEWEST
    )
    return Estimate(
        _plain(math.exp(centre)),
        math.exp(centre - SPREAD * spread),
        math.exp(centre + SPREAD * spread),
        "scaled" if len(sources) == 1 else "fitted",
        sources,
    )


def _quietest(table: Sequence[Sequence[float]], values: Sequence[float]) -> tuple[float, list[list[float]]]:
    """How much compiles scatter on these machines, by which the records are the likeliest; few of them cannot tell."""
    best: tuple[float, float, list[list[float]]] | None = None
    for noise in _NOISES if len(values) >= _TELLING else _NOISES[1:2]:
        lower = cholesky([[*row[:-1], row[-1] + noise**2] for row in table])
        solved = solve(lower, values)
        likely = -sum(a * b for a, b in zip(values, solved, strict=True)) / 2
        likely -= sum(math.log(row[number]) for number, row in enumerate(lower))
        if best is None or likely > best[0]:
            best = likely, noise, lower
    assert best is not None  # there is a first one
    return best[1], best[2]


def _plain(seconds: float) -> float:
    """Without the last digits, which are nothing but rounding."""
    return float(f"{seconds:.9g}")
