"""JAX's persistent compilation cache under `cachekit run`, on the real JAX, on a CPU."""

from __future__ import annotations

import json

import pytest

import cachekit
from cachekit.compilers import registry
from cachekit.errors import UsageError
from cachekit.store import leaks
from tests.compilers.folders.jax_user import JaxUser

pytestmark = pytest.mark.jax


@pytest.fixture
def user(tmp_path):
    return JaxUser(tmp_path / "one")


@pytest.mark.feature("K3", "F12")
@pytest.mark.parametrize("packing", [(), ("--zlib",)])
def test_nothing_compiles_in_a_second_home_at_another_path(user, tmp_path, packing):
    (tmp_path / "team").mkdir()
    team = ("--cache", f"local:rw,{tmp_path / 'team'}:rw")
    first, kept = user.train(*packing, options=team)
    assert first["found"] == 0
    assert (kept["status"], kept["compiled"], kept["kept"]) == ("miss", first["compiled"], True)
    other = JaxUser(tmp_path / "elsewhere" / "two")
    again, found = other.train(*packing, options=(*team, "--require-warm"))
    assert again == {"found": first["compiled"], "compiled": 0}
    assert (found["status"], found["compiled"], found["found"], found["built"]) == ("hit", 0, first["compiled"], 0)
    assert found["key"] == kept["key"]
    assert not list((other.home / "v1").glob("cache_dirs/*/*")), "no compiler cache dir stays behind"


def test_another_shape_compiles_only_what_it_shares_with_nobody(user):
    first, _ = user.train("8")
    user("run", "--require-warm", "--", "python", "train_jax.py", "12", code=3)
    second, seen = user.train("12")
    assert 0 < second["compiled"] < first["compiled"]
    assert (seen["compiled"], seen["found"]) == (second["compiled"], second["found"])
    assert user.train("12")[0]["compiled"] == 0


def test_of_a_run_that_is_killed_all_entries_are_kept_but_the_one_that_is_torn(user):
    first, killed = user.train("--tear", "--killed", code=137)
    assert (killed["exit_code"], killed["compiled"], killed["kept"]) == (137, first["compiled"], True)
    user("run", "--require-warm", "--", "python", "train_jax.py", "--tear", "--killed", code=3)  # it did not end
    again, _ = user.train("--tear", "--killed", code=137)
    assert again == {"found": first["compiled"] - 1, "compiled": 1}


@pytest.mark.feature("S5")
def test_a_damaged_entry_of_the_store_is_set_aside_and_compiled_again(user):
    first, _ = user.train()
    (blob,) = user.blobs()
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.chmod(0o600)
    blob.write_bytes(data)
    again, seen = user.train()
    assert again == {"found": 0, "compiled": first["compiled"]}
    assert seen["kept"]
    user("store", "verify")


def test_a_script_that_limits_the_cache_finds_and_keeps_as_well(user):
    user.train("--limited", "8")
    seen = user.train("--limited", "12")[1]  # begins with the other's, and deletes by how long ago they were used
    assert seen["compiled"]
    assert seen["found"]
    assert user.train("--limited", "12")[0]["compiled"] == 0


def test_a_script_with_a_folder_of_its_own_is_told_that_nothing_is_kept(user):
    _, seen = user.train("--own")
    assert (seen["compiled"], seen["kept"]) == (0, False)
    assert "jax_compilation_cache_dir" in seen["notes"][0]


def test_recipes_and_running_processes_are_declined(user):
    assert "hint: cachekit run" in user("plan", "bert", "--tiny", "--compiler", "jax", code=2).stderr
    with pytest.raises(UsageError, match="already running"):
        cachekit.Cache(home=user.home, compiler="jax").attach("a-loop")


def test_the_screens_know_it(user):
    planned = json.loads(user("run", "--dry-run", "-f", "json", "--", "python", "train_jax.py").stdout)
    assert planned["directory"].startswith("jax-")
    user.train()
    key = json.loads(user("store", "ls", "-f", "json").stdout)[0]["key"]
    hard = json.loads(user("store", "show", key, "-f", "json").stdout)["hard"]
    assert {"toolchain.jax", "toolchain.jaxlib", "target.isa"} <= hard.keys()
    user("store", "verify")
    store = cachekit.Cache(home=user.home).open_store()
    ((module,),) = [record.modules for record in store.records()]
    with store.reading(module.files[0]) as blob:
        leaks = registry.adapter("jax").leaks(module.files[0], blob.path, archive=True)
    assert leaks.complete
    assert any(str(user.work) in leak.path for leak in leaks.paths), "where a script lies stands in packed entries"
    # There is no PyTorch here, which doctor has to say.
    checks = {found["check"]: found for found in json.loads(user("doctor", "-f", "json", code=1).stdout)["findings"]}
    assert checks["jax"]["state"] == "ok"
    user("store", "export", "cache", key, code=2)  # a folder of entries that other tools read is not what this writes


def test_a_secret_in_an_entry_is_seen_whatever_packed_it(tmp_path):
    import zstandard

    path = tmp_path / "archive.tar"
    path.write_bytes(bytes(700) + zstandard.compress(b"a" * 3000 + b"hf_0123456789abcdef" + b"b" * 3000))
    assert leaks.holds(path, {"HF_TOKEN": b"hf_0123456789abcdef"}) == {"HF_TOKEN"}
