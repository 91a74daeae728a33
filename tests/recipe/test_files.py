"""Files of recipes: which are read, and what is said of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cachekit.errors import RecipeError
from cachekit.recipe import load
from cachekit.recipe.load import LARGEST
from tests.recipe.recipe_texts import MINIMAL


def test_a_file_is_read(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\r\nmodel: {id: b}\r\ndescription: caf\xc3\xa9\r\n")
    assert load(path).description == "café"


@pytest.mark.parametrize("spoil, line", [(b"\xff", 1), (b"name: x\n# caf\xe9\n", 2), (b"\n\n\xc3", 3)])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path, spoil, line, bom):
    path = tmp_path / "r.yaml"
    path.write_bytes(bom + spoil)
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert caught.value.message == f"{path}, line {line}: not UTF-8"


def test_utf_16_is_refused(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_bytes(MINIMAL.encode("utf-16"))
    with pytest.raises(RecipeError, match="not UTF-8"):
        load(path)


def test_a_file_that_is_too_large_to_be_a_recipe_is_refused(tmp_path):
    path = tmp_path / "r.yaml"
    text = MINIMAL.encode()
    path.write_bytes(text + b"#" * (LARGEST - len(text)))
    assert load(path).name == "x"
    path.write_bytes(text + b"#" * (LARGEST - len(text) + 1))
    with pytest.raises(RecipeError, match="is not a recipe"):
        load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path, words in ((tmp_path / "no.yaml", "does not exist"), (tmp_path, "is a folder")):
        with pytest.raises(RecipeError) as caught:
            load(path)
        assert str(path) in caught.value.message
        assert words in caught.value.message
        assert caught.value.hint


@pytest.mark.parametrize(("name", "what"), [("a.ipynb", "notebook"), ("train.py", "script"), ("train.sh", "script")])
def test_what_is_no_recipe_by_its_name_is_told_with_what_to_do_instead(tmp_path, name, what):
    (tmp_path / name).write_text('{"cells": []}')
    with pytest.raises(RecipeError, match=f"is a {what}, not a recipe") as caught:
        load(tmp_path / name)
    assert "cachekit run -- COMMAND" in caught.value.hint
    assert "cachekit zoo new -- COMMAND" in caught.value.hint


def test_a_name_that_is_nearly_a_recipe_beside_it_is_told(tmp_path):
    (tmp_path / "mine.yaml").write_text(MINIMAL)
    (tmp_path / "mine").mkdir()
    for name in ("mine.yml", "mien.yaml", "mine"):
        with pytest.raises(RecipeError) as caught:
            load(tmp_path / name)
        assert caught.value.hint == f"did you mean {tmp_path / 'mine.yaml'}?"


@pytest.mark.parametrize("name", ["a" * 5000, "a/b.yaml", "r.yaml/b.yaml", "a\0b"])
def test_a_path_that_cannot_be_is_answered(tmp_path, name):
    (tmp_path / "r.yaml").write_text(MINIMAL)
    with pytest.raises(RecipeError):
        load(tmp_path / name)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL + "trainig: {}\n")
    with pytest.raises(RecipeError) as caught:
        load(path)
    assert caught.value.message == f"{path}, line 4: unknown field trainig"


def test_a_device_or_a_pipe_is_no_recipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (Path("/dev/zero"), tmp_path / "pipe.yaml"):
        with pytest.raises(RecipeError, match="cannot be read") as caught:
            load(path)
        assert "not a regular file" in caught.value.cause
