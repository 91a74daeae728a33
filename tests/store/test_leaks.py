"""Known secrets in a file that a compiler wrote: as they are, and packed."""

import gzip
import io
import pickle
import tarfile
import zipfile
import zlib

import pytest

from cachekit.store import leaks

WANTED = {"HF_TOKEN": b"hf_0123456789abcdef", "OTHER": b"not there"}
TEXT = b"a" * 3000 + WANTED["HF_TOKEN"] + b"b" * 3000


def zipped(kind, text=TEXT):
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", kind) as made:
        made.writestr("first.txt", b"nothing")
        made.writestr("folder/second.json", text)
    return target.getvalue()


def tarred(data):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as made:
        for name in ("one", "two"):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made.addfile(info, io.BytesIO(data if name == "two" else bytes(len(data))))
    return target.getvalue()


FILES = {
    "plain": TEXT,
    "gzip": gzip.compress(TEXT),
    "behind a header, as in a NEFF": bytes(1024) + gzip.compress(tarred(TEXT)),
    "in a tar, as Inductor's archive": tarred(gzip.compress(TEXT)),
    "the second of two streams": gzip.compress(b"nothing") + gzip.compress(TEXT),
    "after what only looks packed": leaks.GZIP * 3
    + leaks.ZIP * 3
    + b"\x78\x9c" * 3
    + leaks.ZSTANDARD
    + gzip.compress(TEXT),
    "over the edge of a piece": gzip.compress(b"x" * (leaks.PIECE - 5) + TEXT[3000:]),
    "zlib, as JAX's entries": tarred(zlib.compress(TEXT)),
    "zip": zipped(zipfile.ZIP_DEFLATED),
    "zip that stores": zipped(zipfile.ZIP_STORED),
    "zlib in a pickle": pickle.dumps({"name": zlib.compress(TEXT)}),
    "zlib after what only looks so": b"\x78\x9c" * 5000 + zlib.compress(TEXT),
    "gzip in gzip": gzip.compress(gzip.compress(TEXT)),
    "gzip in a tar in gzip": gzip.compress(tarred(gzip.compress(TEXT))),
    "zip in zip": zipped(zipfile.ZIP_DEFLATED, zipped(zipfile.ZIP_DEFLATED)),
    "cut off": gzip.compress(TEXT, 0)[:-8],
}


@pytest.mark.parametrize("kind", FILES)
def test_a_secret_is_seen_however_it_is_packed(tmp_path, kind):
    path = tmp_path / "file"
    path.write_bytes(FILES[kind])
    assert leaks.holds(path, WANTED) == {"HF_TOKEN"}


@pytest.mark.parametrize(
    "data", [b"", b"nothing", gzip.compress(b"nothing", mtime=0), leaks.GZIP, leaks.ZIP, leaks.ZIP * 99]
)
def test_a_file_without_one_has_none(tmp_path, data):
    path = tmp_path / "file"
    path.write_bytes(data)
    assert leaks.holds(path, WANTED) == set()


def test_what_unpacks_to_more_than_any_file_of_a_compiler_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(leaks, "INFLATED", 4 * leaks.PIECE)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(bytes(64 * leaks.PIECE) + TEXT))
    assert leaks.holds(path, WANTED) == set()


@pytest.mark.feature("T7")
def test_where_a_secret_stands_is_told_and_it_is_not(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(TEXT)
    value = WANTED["HF_TOKEN"].decode()
    said = {"hard.command": ["python", f"--token={value}"], "soft.note": "nothing", f"soft.{value}": 1}
    assert leaks.told([path], said, {"HF_TOKEN": value, "OTHER_TOKEN": "not-there-at-all"}) == {
        "HF_TOKEN in hard.command",
        "HF_TOKEN in soft",
        "HF_TOKEN in a compiled file",
    }
