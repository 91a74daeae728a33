"""The Inductor adapter: fingerprint, worker environment, harvest and restore of its cache tree.

Its unit is the whole tree, one archive a warm. `torch.compiler.save_cache_artifacts` would carry the graphs but not the
compiled C++ kernels, which it builds again on load (measured: 20 s instead of 3 s for a two-layer BERT).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cachekit import host, process
from cachekit.compilers.inductor import facts, options
from cachekit.compilers.inductor.facts import BF16_FLAGS, CXX
from cachekit.compilers.port import ComparedBuilds, Node, Run, Watch
from cachekit.compilers.tree import TreeCompiler
from cachekit.errors import CompilerUnavailableError, RecipeError
from cachekit.host import cpu_features
from cachekit.key.canonical import canonical_json
from cachekit.key.cost import Growth
from cachekit.recipe import Recipe
from cachekit.recipe.ingredients import Fingerprint, watched_variables, worker_variables
from cachekit.recipe.schema import Parallel

if TYPE_CHECKING:
    from cachekit.config import Config
    from cachekit.health import Finding


_ELF_HEADER = 64  # bytes, of 64 bits
_SECTIONS = struct.Struct("<40xQ10xHH2x")  # offset, entry size and number of the table of sections


class Inductor(TreeCompiler):
    """PyTorch's own compiler, on this machine."""

    name = "inductor"
    runtime = "cachekit.compilers.inductor.runtime"
    foreign: tuple[str, ...] = facts.FOREIGN
    # It writes C++ for each layer anew, whatever its width and batch: sizes are numbers in the code. What is the same
    # for all (tracing's start, optimizer, loss, the first kernels) takes as long as some layers.
    growth = Growth(layers=3.0, tokens=0.0, width=0.0, source="measured: see benchmarks/bench_estimate.py")
    guest = "cachekit.compilers.inductor.guest"
    splits_paths = True  # [torch/_inductor/cpp_builder.py, torch 2.13.0: measured]

    def __init__(self, node: Node | None = None) -> None:
        self.node = node or Node()

    def fingerprint(self, recipe: Recipe | None = None, *, bare: bool = False) -> Fingerprint:
        """From package metadata, /proc/cpuinfo and `c++ --version`: about 10 ms."""
        torch = host.package_version("torch")
        variables = _variables(recipe)
        device = host.gpu(torch, variables)
        toolchain = {
            "torch": torch,
            "transformers": (host.optional_version if bare else host.package_version)("transformers"),
            "python": f"{sys.implementation.name} {sys.version_info.major}.{sys.version_info.minor}",
            "cxx": cxx_version(*cxx(variables)),
        }
        if device:
            toolchain["triton"] = host.optional_version("triton")
        return Fingerprint(
            compiler=self.name,
            directory=f"inductor-{torch.partition('+')[0]}",
            toolchain=toolchain,
            target={**host.processor(), **device},
            soft={name: host.optional_version(name) for name in ("accelerate", "datasets", "numpy", "tokenizers")},
            bf16=bool(device) or has_bf16(),
            soft_training=facts.NOT_COMPILED,
            known_variables=facts.WATCHED | facts.UNWATCHED,
        )

    def ingredients(self, recipe: Recipe) -> dict[str, Any]:
        """The options, the number of threads, and the watched variables of this process."""
        layout, defaults = structs.asdict(recipe.parallel), structs.asdict(Parallel())
        del layout["nodes"]
        # True is 1, too
        split = {name: value for name, value in layout.items() if value is True or value not in {"auto", 1, False}}
        if split:
            said = " and ".join(f"parallel.{name} is {str(value).lower()}" for name, value in split.items())
            raise RecipeError(
                f"{said}, but Inductor trains with one worker on each machine",
                hint=" ".join(f"--set parallel.{name}={str(defaults[name]).lower()}" for name in split)
                + ", or plan it for Neuron: --toolchain NAME of `cachekit zoo ls toolchains`",
            )
        for name in recipe.environment:
            if name in facts.FORCED or (name in facts.SET and name != facts.THREADS):
                raise RecipeError(
                    f"environment.{name}: cachekit sets it for the worker",
                    hint=f"remove environment.{name}"
                    + (", and set compiler.options.threads" if name == facts.MKL_THREADS else ""),
                )
        settings = {*self.settings(recipe)} - {*options.TORCH_COMPILE, *facts.IRRELEVANT_OPTIONS}
        options.check_names(sorted(settings))
        watched = watched_variables(recipe, facts.watched)
        variables = {*os.environ, *recipe.environment, *facts.FORCED, *facts.SET}
        chosen = options.canonical(recipe.compiler, variables)
        return {"options": chosen, "threads": self._threads(recipe), "environment": watched}

    def _threads(self, recipe: Recipe) -> int:
        said = options.all_options(recipe.compiler).get("threads") or _variables(recipe).get(facts.THREADS, "")
        return int(said) if str(said).isdecimal() and int(said) > 0 else host.available_threads()

    def watch(self, run: Run) -> Watch:
        from cachekit.compilers.inductor.watch import CommandWatch, InductorWatch

        if run.kind == "command":
            return CommandWatch(run)
        if run.kind == "train":
            self.node.check(run.recipe)
        # A trial on another key's files: what the trial uses of them belongs into its own record.
        another = run.kind == "trial" and run.restored
        restored = self.contents(run.cache_dir) if another else frozenset[str]()
        return InductorWatch(run, self._threads(run.recipe), restored, self.node)

    def settings(self, recipe: Recipe) -> dict[str, Any]:
        """All options but `threads`, which is a variable."""
        return {name: value for name, value in options.all_options(recipe.compiler).items() if name != "threads"}

    def unit(self, path: str) -> str:
        """Each file is a unit; locks and unfinished files are none."""
        *folders, name = path.split("/")
        ephemeral = name.startswith(".") or name.endswith(facts.EPHEMERAL_SUFFIXES)
        return "" if ephemeral or not facts.EPHEMERAL_PARTS.isdisjoint(folders) else path

    def torn(self, path: Path) -> bool:
        # Machine code whose linker was killed with the run would be found, and fail to load.
        return torn(path)

    def folder(self, fingerprint: Fingerprint) -> str:
        """The version's folder, and in it one for each kind of machine."""
        return f"{fingerprint.directory}/{target_name(fingerprint)}"

    def compare(self, old: Path, new: Path) -> ComparedBuilds:
        from cachekit.compilers.inductor import compare

        return compare.compare(old, new, self.contents(old), self.contents(new))

    def binaries(self, names: Iterable[str]) -> int:
        return sum(name.endswith(facts.BINARY_SUFFIXES) for name in names)


def torn(path: Path) -> bool:
    """Whether this is a `.so` that is not whole; False for every other file.

    Linkers write the header last, or the file's whole length first; the table of sections stands at the end (System V
    ABI, "ELF Header"). Measured with GNU ld 2.40: of a `.so` whose link was killed the header is zeros, or the file is
    empty.
    """
    if path.suffix != ".so" or sys.platform != "linux":
        return False
    try:
        with path.open("rb") as stream:
            header = stream.read(_ELF_HEADER)
        size = path.stat().st_size
    except OSError:
        return True
    if not header.startswith(b"\x7fELF"):
        return not header.strip(b"\0")
    if len(header) < _ELF_HEADER:
        return True
    offset, entry, number = _SECTIONS.unpack(header)
    return bool(offset == 0 or offset + entry * number > size)


def _variables(recipe: Recipe | None) -> dict[str, str]:
    """The worker's environment as far as the user says it: the shell's, the recipe's over it."""
    return {**os.environ, **(worker_variables(recipe) if recipe is not None else {})}


def target_name(fingerprint: Fingerprint) -> str:
    """A short name of the target for paths: machine, GPU or best instruction set, and eight digits of it all."""
    isa = set(fingerprint.target.get("isa", ()))
    best = next((name for name in ("avx512f", "avx2", "sve", "asimd") if name in isa), "base")
    kind = str(fingerprint.target.get("compute_capability") or best).replace(".", "")
    digest = hashlib.sha256(canonical_json([fingerprint.toolchain, fingerprint.target])).hexdigest()
    return f"{fingerprint.target.get('machine', 'any')}-{kind}-{digest[:8]}"


def cxx(environ: Mapping[str, str] = os.environ) -> tuple[str, str | None]:
    """The C++ compiler that Inductor will call, `CXX` or the system's default, and the PATH to look it up on."""
    return environ.get(CXX) or ("clang++" if sys.platform == "darwin" else "g++"), environ.get("PATH")


@cache
def cxx_version(compiler: str, path: str | None = None) -> str:
    """The first line of the C++ compiler's `--version`; `path` is this process's PATH by default.

    Raises:
        CompilerUnavailableError: There is no such compiler, or it does not run.
    """
    hint = "apt-get install g++ (or set CXX to a C++ compiler)"
    found = shutil.which(compiler, path=path)
    if found is None:
        raise CompilerUnavailableError(
            f"there is no C++ compiler: {compiler!r} is not on PATH",
            cause="Inductor builds its CPU kernels with a C++ compiler",
            hint=hint,
        )
    try:
        said = process.answer([found, "--version"])
    except OSError as error:
        raise CompilerUnavailableError(
            f"the C++ compiler {compiler!r} does not run", cause=str(error), hint=hint
        ) from error
    # `g++ (Debian 12.2.0-14) 12.2.0` without the name it was called by: the same compiler has several.
    return said.partition("\n")[0].partition(" ")[2].strip()


def has_bf16() -> bool:
    """Whether the CPU computes in bfloat16."""
    return bool(BF16_FLAGS.intersection(cpu_features()))


def look(_: Config) -> Iterator[Finding]:
    """A check of `cachekit doctor`: Inductor builds its CPU kernels with a C++ compiler."""
    from cachekit.health import Finding

    name, path = cxx()
    yield Finding("ok", f"{name} {cxx_version(name, path)}")
