"""Set up a remote: make it or look at it, and name it in the project's settings; and what remotes hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cachekit import config_files
from cachekit.config_trust import Mode, is_fingerprint
from cachekit.errors import AuthError, CachekitError, MissingRemoteError, RemoteError, UsageError
from cachekit.key.nearest import INTERRUPTED, TOOLS
from cachekit.remotes.address import setup
from cachekit.remotes.budget import each
from cachekit.remotes.index import Known
from cachekit.remotes.nearest_on import LANES, Catalogue
from cachekit.remotes.port import Repo
from cachekit.values import Answer

if TYPE_CHECKING:
    from cachekit.remotes.remote import Remote
    from cachekit.verbs.session import Session

NAME = "hub"  # of the remote in the settings
FILE = "cachekit.toml"
ADDRESS = "hf://"  # of the kind that is set up here


class Used(Answer, frozen=True, tag="cachekit/hub/1"):
    """A cache repo that the project uses from now on.

    Attributes:
        kind: `model` or `dataset`.
        url: For people; empty where the repo is not there yet.
        new: The repo was made now.
        owned: It belongs to the token's user, or to an organisation of this user.
        team: It belongs to an organisation: others can write there as well.
        file: The settings that name it.
        cache: What the settings say: the store and the repo, with what may be done in each.
        dry_run: Nothing was made, and nothing was written.
    """

    repo: str
    kind: str
    url: str
    private: bool
    new: bool
    owned: bool
    file: Path
    cache: str
    team: bool = False
    dry_run: bool = False


class RemoteRecord(Struct, frozen=True):
    """A record on a remote, as the remote's index has it; where the index lacks it, as it says itself.

    Attributes:
        directory: The compiler's folder there.
        toolchain: Versions that are in the key.
        instance: The instance type that it was made on, where that is known.
        bytes: Of all files.
        created: UTC, ISO 8601.
        by: Who made it on which host, as it says.
        said_signers: Whose signatures the index says lie beside it: names that the settings give to the keys, or the
            keys' fingerprints. Anybody who can write there can have said so: a record is judged when it is fetched.
    """

    key: str
    recipe: str
    model_type: str
    compiler: str
    directory: str
    toolchain: Mapping[str, str]
    instance: str
    graphs: int
    bytes: int
    compile_seconds: float
    created: str
    by: str
    said_signers: tuple[str, ...]


class RemoteContents(Answer, frozen=True, tag="cachekit/hub-ls/1"):
    """What a remote holds.

    Attributes:
        mode: What the settings ask of its records: `owner`, `signed` or `all`.
        records: The newest first.
        unread: How many more there are, of which nothing is known without reading each.
        demands: Why a record there needs the signature of somebody whom the settings name; empty where it does not,
            None where the remote could not be asked.
        recipes: Where no record is of the recipe that was asked for: of which recipes there are records, the names
            that are most alike first.
        unanswered: Why the remote could not be asked: nothing is known of what it holds.
    """

    remote: str
    mode: Mode
    records: tuple[RemoteRecord, ...]
    unread: int
    demands: str | None
    recipes: tuple[str, ...] = ()
    unanswered: CachekitError | None = None


def create(repo: str, folder: Path, *, kind: str, public: bool, dry_run: bool = False) -> Used:
    """Make a cache repo, private unless said otherwise, and name it in `cachekit.toml` of a folder.

    One that is there is used as it is. A dry run only looks whether it is there, and whether the file can name it.

    Raises:
        UsageError: No repo can be called that, or it is there and not as private as asked for; or as `check_settings`,
            before there is a repo that nobody uses.
        RemoteError, AuthError: The Hub cannot be asked, or refuses.
    """
    check_settings(folder / FILE, repo, kind=kind, may="rw")
    if dry_run:
        known = setup(ADDRESS).look(repo, kind=kind)
        place = known or Repo(repo, kind, "", private=not public, new=True)
    else:
        place = setup(ADDRESS).create(repo, kind=kind, private=not public)
    if not place.private and not public:
        raise UsageError(
            f"{repo} already exists, and anybody can read it",
            hint=f"make it private at {place.url}, choose another name, or pass --public",
        )
    return _used(place, folder / FILE, "rw" if place.owned else "r", dry_run=dry_run)


def use(repo: str, folder: Path, *, kind: str, may: str, dry_run: bool = False) -> Used:
    """Name a cache repo in `cachekit.toml` of a folder; one of somebody else's is only read.

    A dry run looks at the repo and at the file, and writes nothing.

    Raises:
        UsageError: The file names another one, or cannot be written.
        RemoteError, AuthError: The Hub cannot be asked, or has no such repo for this token.
    """
    place = setup(ADDRESS).look(repo, kind=kind)
    if place is None:
        raise MissingRemoteError(f"there is no repo {repo}", hint=f"make it with `cachekit hub create {repo}`")
    return _used(place, folder / FILE, may if place.owned else "r", dry_run=dry_run)


def _used(place: Repo, file: Path, may: str, *, dry_run: bool) -> Used:
    if dry_run:
        check_settings(file, place.repo, kind=place.kind, may=may)
    else:
        write_settings(file, place, may)
    return Used(
        place.repo,
        place.kind,
        place.url,
        place.private,
        place.new,
        owned=place.owned,
        file=file,
        cache=f"local:rw,{NAME}:{may}",
        team=place.team,
        dry_run=dry_run,
    )


def check_settings(path: Path, repo: str, *, kind: str, may: str) -> str:
    """What a settings file says with this cache named in it: its other lines stay. Nothing is written.

    Raises:
        UsageError: It has a `cache` or a remote of that name already, is not TOML, or would hide a project's settings.
    """
    address = setup(ADDRESS).place_of(repo, kind)
    wanted = f'cache = "local:rw,{NAME}:{may}", and [remotes.{NAME}] with url = "{address}"'
    text, there = config_files.editable(path, wanted)
    remotes = there.get("remotes", {})
    table = remotes.get(NAME) if isinstance(remotes, dict) else None
    if there.get("cache") in (f"local:rw,{NAME}:{may}", ["local:rw", f"{NAME}:{may}"]) and table == {"url": address}:
        return text
    if "cache" in there or table is not None:
        raise UsageError(f"{path} names a remote already", hint=f"edit it: {wanted}")
    made = config_files.edited(text, path, (), {"cache": f"local:rw,{NAME}:{may}"}, wanted)
    return config_files.edited(made, path, ("remotes", NAME), {"url": address}, wanted)


def write_settings(path: Path, place: Repo, may: str) -> None:
    """Add the remote to a settings file, whose other lines stay.

    Raises:
        UsageError: As `check_settings`; or it cannot be written.
    """
    config_files.write(path, check_settings(path, place.repo, kind=place.kind, may=may))


def contents(session: Session, *, recipe: str = "", compiled_with: str = "") -> list[RemoteContents]:
    """What each remote holds that may be read; see `Cache.remote_contents`.

    Raises:
        UsageError: The settings name a signer's key that is none.
        RemoteError, AuthError: None of them can be asked.
    """

    def look(remote: Remote) -> RemoteContents:
        try:
            return held(remote)
        except (RemoteError, AuthError) as error:
            return RemoteContents(remote.name, remote.trust.mode(remote.name), (), 0, None, unanswered=error)

    def held(remote: Remote) -> RemoteContents:
        remote.retry()
        demands = remote.demands()
        catalogue = Catalogue(remote, session.store.layout.remotes)
        for _ in range(3):  # by its index; by a listing; and without the index, which says what cannot be
            index = catalogue.look(anew=True)
            known = list(index.rows())
            rows = [
                _record(one, remote)
                for one in sorted(known, key=lambda one: (one.created, one.key), reverse=True)
                if recipe in {"", one.recipe, _recipe(one)}
                and (compiled_with in {"", one.compiler} or one.directory.startswith(compiled_with))
            ]
            if len(known) < len(index):
                catalogue.doubt()
            elif rows or not catalogue.by_index:
                break
        mode, others = remote.trust.mode(remote.name), _others(recipe, {_recipe(one) for one in known})
        return RemoteContents(remote.name, mode, tuple(rows), index.unread, demands, others)

    found = each([partial(look, remote) for remote in session.remotes.readable], LANES)
    unanswered = [one.unanswered for one in found if one.unanswered]
    if unanswered and len(unanswered) == len(found):
        raise unanswered[0]
    return found


def _recipe(one: Known) -> str:
    """The recipe that a record was made from, also by a run that was stopped."""
    return one.recipe.removesuffix(f", {INTERRUPTED}") if INTERRUPTED in one.hard else one.recipe


def _others(recipe: str, there: Collection[str]) -> tuple[str, ...]:
    """The recipes that there are, where one is asked for that there is not; those with a like name first."""
    if recipe == "" or recipe in there:
        return ()
    near = get_close_matches(recipe, there, n=len(there) or 1)
    return (*near, *sorted(set(there) - set(near)))


def _record(one: Known, remote: Remote) -> RemoteRecord:
    versions = {name.removeprefix(TOOLS): str(value) for name, value in one.hard.items() if name.startswith(TOOLS)}
    keys = [key for key in one.signers if is_fingerprint(key)]  # what else stands there could be anybody's name
    return RemoteRecord(
        key=one.key,
        recipe=one.recipe,
        model_type=one.model_type,
        compiler=one.compiler,
        directory=one.directory,
        toolchain=versions,
        instance=one.instance,
        graphs=one.graphs,
        bytes=one.size,
        compile_seconds=one.compile_seconds,
        created=one.created,
        by=one.by,
        said_signers=remote.trust.policy.names(keys) if keys else (),
    )
