"""Recipes and registry entries by name: what comes along with cachekit, found from anywhere.

In a checkout they are the top-level folders `recipes/` and `registry/`; an installed package has them beside the code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from cachekit.decode import from_builtins
from cachekit.disk import named
from cachekit.errors import RecipeError, UnknownNameError
from cachekit.recipe import yaml_text
from cachekit.recipe.schema import TaskName
from cachekit.text import a, cut
from cachekit.values import by_value

NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
Said = Annotated[str, Meta(min_length=3)]  # a source, or terms: no mere dash
DAY = r"^20\d{2}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$"  # or a month, or only a year


class CompileTime(Struct, frozen=True, forbid_unknown_fields=True):
    """How long compiling a recipe took somebody else, who says so, and since when.

    Attributes:
        recipe: A recipe of the zoo.
        set: What was different in it, as `--set` takes it.
        instance: The machine that compiled.
        seconds: The least and the most that the source says; twice the same for one measurement.
        toolchain: Versions that the source names, or their beginnings, by package.
        note: What the source leaves out, or counts with it.
    """

    recipe: str
    instance: str
    seconds: tuple[Annotated[float, Meta(gt=0)], Annotated[float, Meta(gt=0)]]
    source: Said
    date: Annotated[str, Meta(pattern=DAY)]
    set: tuple[str, ...] = ()
    toolchain: dict[str, str] = {}
    compiler: Literal["neuron", "neuron-native"] = "neuron"
    note: str = ""

    __hash__ = by_value

    @property
    def where(self) -> str:
        """The source, its date and the machine, for people."""
        return f"{self.source}, {self.date}, on {a(self.instance)}"


class ModelEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A model that is known by name, so that its key needs no network.

    Attributes:
        id: Hub id.
        licence: SPDX id, or what the Hub calls it.
        parameters: Their number, without what a task puts on top; of a model that writes texts with its own last layer.
        tasks: What people fine-tune it for, by the names of a recipe's tasks.
        config: Its `config.json`, but for fields that affect no graph.
        source: Where the config was read.
        aliases: Other ids of the same weights or architecture.
        compilers: Which of our compilers are known to compile it, and where that is said.
    """

    id: str
    licence: str
    parameters: Annotated[int, Meta(ge=1)]
    tasks: Annotated[tuple[TaskName, ...], Meta(min_length=1)]
    config: dict[str, Any]
    source: Said
    aliases: tuple[str, ...] = ()
    compilers: dict[str, str] = {}


class QuotedPrice(Struct, frozen=True, forbid_unknown_fields=True):
    """What an hour costs, where, on which day, and who says so; data, for a user to override.

    All of it must be there: a price that nobody can look up again is useless.
    """

    per_hour: Annotated[float, Meta(gt=0)]
    currency: Annotated[str, Meta(pattern=r"^[A-Z]{3}$")]
    region: Annotated[str, Meta(pattern=r"^[a-z]{2,}(-[a-z]+)+-\d$")]
    terms: Said
    source: Said
    date: Annotated[str, Meta(pattern=r"^20\d{2}-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?$")]


class Instance(Struct, frozen=True, forbid_unknown_fields=True):
    """An instance type that can be rented.

    Attributes:
        accelerator: `trainium1`, `inferentia2`, `trainium2`, or a GPU's name; `none` where there is none.
        target: The compiler's name for it (`trn1`, `trn2`, `inf2`); empty where no Neuron compiler applies.
        chips: Accelerators on the instance; `cores` are what a worker process drives.
        device_memory_gib: Over all chips.
        price: None where no dated source quotes one.
    """

    accelerator: str
    chips: Count
    cores: Count
    device_memory_gib: NotNegative
    source: Said
    target: str = ""
    vcpus: Count | None = None
    host_memory_gib: NotNegative | None = None
    network_gbps: NotNegative | None = None
    price: QuotedPrice | None = None


class Install(Struct, frozen=True, forbid_unknown_fields=True):
    """How a release's packages are installed, for whom, and who says so.

    Attributes:
        packages: As `pip install` takes them, pinned.
        indexes: Package indexes beside PyPI.
        python: The versions that there are wheels for, oldest first.
        targets: The chips that this is the line for.
        glibc: The oldest that the wheels load with; empty where nobody says.
        systems: What the wheels are for, as `/etc/os-release` has ID and VERSION_ID; empty where nobody says.
    """

    packages: Annotated[tuple[str, ...], Meta(min_length=1)]
    indexes: Annotated[tuple[str, ...], Meta(min_length=1)]
    python: Annotated[tuple[str, ...], Meta(min_length=1)]
    targets: Annotated[tuple[str, ...], Meta(min_length=1)]
    source: Said
    date: Annotated[str, Meta(pattern=DAY)]
    glibc: str = ""
    systems: tuple[str, ...] = ()


Trains = Literal["seen", "said", "no"]


class Shipped(Struct, frozen=True, forbid_unknown_fields=True):
    """What a release has for a chip.

    Attributes:
        packages: PyTorch, and what runs it there; the compiler is the release's.
        python: The versions that there are wheels for; empty where nobody says.
        trains: As a `Toolchain` has it; so for `evidence`.
    """

    packages: Annotated[dict[str, str], Meta(min_length=1)]
    python: tuple[str, ...]
    trains: Trains
    evidence: Said
    source: Said
    date: Annotated[str, Meta(pattern=DAY)]

    __hash__ = by_value


class Toolchain(Struct, frozen=True, forbid_unknown_fields=True):
    """A release of a compiler's SDK.

    Attributes:
        released: Year and month.
        trains: Whether training works with it: `seen` on a device, by whoever `evidence` names; `said` by its maker;
            `no`, and then no key is made for it.
        evidence: Who says that, or why not.
        install: How its packages are installed; None where another release's line is the one to use.
        images: Environments in AWS's images that have the packages, as patterns of names below /opt.
        splitter: How optimum-neuron is installed beside them, which splits models over cores; likewise.
        packages: Versions, with their `+<commit>` where it is known.
        open: Packages that are in a host's key too, and whose versions no source tells whole: what is known, in words.
            A key that is made from such a toolchain is not a host's.
        targets: What it compiles for.
        chips: What ships for each chip; for several with a comma between them.
    """

    compiler: Literal["neuron", "neuron-native"]
    released: Annotated[str, Meta(pattern=r"^\d{4}-\d{2}$")]
    packages: Annotated[dict[str, str], Meta(min_length=1)]
    targets: Annotated[tuple[str, ...], Meta(min_length=1)]
    source: Said
    trains: Trains
    evidence: Said
    open: dict[str, str] = {}
    install: Install | None = None
    splitter: Install | None = None
    images: tuple[str, ...] = ()
    chips: dict[str, Shipped] = {}

    def shipped(self, target: str) -> Shipped | None:
        """What it has for a chip; None where nothing is known of it."""
        return next((one for chips, one in self.chips.items() if target in chips.split(", ")), None)


T = TypeVar("T")
COMPILE_TIMES = "compile_times.yaml"


@cache
def _root() -> Path:
    package = Path(__file__).resolve().parent.parent
    installed = package / "_zoo"
    return installed if installed.is_dir() else package.parent


def recipes() -> dict[str, Path]:
    """The recipes that come along: name to file."""
    return {path.stem: path for path in sorted((_root() / "recipes").glob("*.yaml"), key=lambda path: path.stem)}


def comes_along(path: Path) -> bool:
    """Whether a file is part of the package, as its code is."""
    return path.parent == _root() / "recipes"


def beside_recipes(path: str) -> bool:
    """Whether a path is one that a recipe of the zoo gives, starting at its own file."""
    return path.startswith(f"{_root() / 'recipes'}/")


def tiny() -> Path:
    """The folder of the rows and the tokenizer that `--tiny` takes, a folder for each task."""
    return _root() / "recipes" / "tiny"


def recipe_path(name: str) -> Path:
    """The file of a recipe given as a path or as a name of the zoo.

    A name of the zoo means that recipe, whatever lies in the working directory: somebody else may have put it there.
    `./NAME` is a file there.

    Raises:
        UnknownNameError: It is neither.
    """
    known = recipes()
    if name in known:
        return known[name]
    try:
        path = named(name)
        is_there = bool(name) and path.exists()
    except (OSError, ValueError) as error:
        raise UnknownNameError(
            f"{cut(name, 80)!r} is not a path", cause=cut(str(error), 200), hint="give a path, or see `cachekit zoo`"
        ) from error
    explicit = path.suffix in {".yaml", ".yml"} or len(path.parts) > 1 or name.startswith(".")
    # `recipes/bert.yaml` should work after a pip install as well, where there is no such folder.
    if not is_there and path.parts[:1] == ("recipes",) and path.stem in known:
        return known[path.stem]
    if explicit or is_there:
        return path
    near = get_close_matches(name, known, n=1) or [other for other in known if name and other.startswith(name)][:1]
    raise UnknownNameError(
        f"there is no recipe named {name!r}",
        cause=f"it is neither a file nor one of the {len(known)} recipes of the zoo",
        hint=f"did you mean {near[0]}?" if near else "give a path, or see `cachekit zoo`",
    )


@cache
def _read(path: Path, kind: Any, *, by_name: bool = False) -> Any:
    """A file of the registry, read once: one value of a kind, or one for each name; an error says whose."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"{path} of the registry cannot be read", cause=str(error), hint="install cachekit again"
        ) from error
    document = yaml_text.parse(text, str(path))[0]
    where = str(path)
    try:
        if not by_name:
            return from_builtins(document, kind)
        entries = from_builtins(document, dict[str, Any])
        found = {}
        for name, entry in entries.items():
            where = f"{path}: {name}"
            found[name] = from_builtins(entry, kind)
    except msgspec.ValidationError as error:
        raise RecipeError(f"{where} does not fit the registry's schema", cause=str(error)) from error
    return found


def registered(name: str, kind: type[T]) -> T:
    """A file of the registry.

    Raises:
        RecipeError: It does not fit the schema.
    """
    wanted: Any = kind
    found: T = _read(_root() / "registry" / name, wanted)
    return found


def model_files() -> Iterator[Path]:
    """The files of the registry's models."""
    yield from sorted((_root() / "registry" / "models").glob("*.yaml"))


def read_model(path: Path) -> ModelEntry:
    """The model in one of these files.

    Raises:
        RecipeError: It does not fit the schema.
    """
    return registered(f"models/{path.name}", ModelEntry)


def models() -> dict[str, ModelEntry]:
    """All models of the registry by id."""
    entries = map(read_model, model_files())
    return {entry.id: entry for entry in entries}


def model(name: str) -> ModelEntry | None:
    """The entry of a Hub id or alias; None where the registry has none."""
    wanted = f"{name.replace('/', '--')}.yaml"
    # An alias is mostly an id without its owner.
    for path in sorted(model_files(), key=lambda path: (path.name != wanted, not path.name.endswith(f"-{wanted}"))):
        # Parsing every file would cost more than plan may take; most of them don't even hold the name.
        if path.name == wanted or name in path.read_text(encoding="utf-8"):
            entry = read_model(path)
            if path.name == wanted or name in entry.aliases:
                return entry
    return None


def compile_times() -> tuple[CompileTime, ...]:
    """How long compiles took others, as far as somebody published it."""
    wanted: Any = tuple[CompileTime, ...]
    found: tuple[CompileTime, ...] = _read(_root() / "registry" / COMPILE_TIMES, wanted)
    return found


def architecture_defaults(model_type: str) -> dict[str, Any]:
    """What a config of this model type means where it says nothing; empty for an unknown type.

    From the configuration classes of Transformers; see `registry/architectures/`. Null is a default like another: it
    names a field that exists.
    """
    name = f"architectures/{model_type}.yaml"
    known = (_root() / "registry" / name).is_file()
    return dict(registered(name, dict[str, Any])) if known else {}


def instances() -> dict[str, Instance]:
    """All instance types of the registry by name."""
    found: dict[str, Instance] = _read(_root() / "registry" / "instances.yaml", Instance, by_name=True)
    return found


def instance(name: str) -> Instance:
    """An instance type by name.

    Raises:
        UnknownNameError: The registry has none of that name.
    """
    known = {one.target for one in instances().values()}
    for target in {target for one in toolchains().values() for target in one.targets} - known:
        if name.startswith(target):
            raise UnknownNameError(
                f"the registry has no machine of {target}",
                cause="no source was found that says what its types are called and how many cores they have",
                hint="on such a machine, leave the option out: cachekit asks the machine itself",
            )
    return _named(name, instances(), "instance", "cachekit zoo ls instances")


def toolchains() -> dict[str, Toolchain]:
    """All toolchains of the registry by name, oldest first."""
    found: dict[str, Toolchain] = _read(_root() / "registry" / "toolchains.yaml", Toolchain, by_name=True)
    return found


def toolchains_for(target: str, compiler: str = "") -> list[str]:
    """The names of those that train on a target, oldest first; of one compiler, or of any."""
    return [
        name
        for name, one in toolchains().items()
        if target in one.targets and compiler in {"", one.compiler} and one.trains != "no"
    ]


def toolchain(name: str) -> Toolchain:
    """A toolchain by name.

    Raises:
        UnknownNameError: The registry has none of that name.
    """
    return _named(name, toolchains(), "toolchain", "cachekit zoo ls toolchains")


def nearest(name: str, known: Collection[str]) -> list[str]:
    """The known name that is most like one that nobody knows; a patch release is its minor release (`neuron-2.29.1`).

    Empty where none is like it.
    """
    return [one for one in known if name.startswith(f"{one}.")] or get_close_matches(name, known, 1, 0.5)


def _named(name: str, known: dict[str, T], what: str, where: str) -> T:
    if name in known:
        return known[name]
    meant = f"did you mean {near[0]}? " if (near := nearest(name, known)) else ""
    raise UnknownNameError(f"there is no {what} named {name!r}", hint=f"{meant}`{where}` lists them")
