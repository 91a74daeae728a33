"""Files with labelled rows, and how they are read or refused."""

import pytest

from cachekit.data import rows
from cachekit.errors import DataError

COLUMNS = ["text", "label"]


@pytest.fixture
def put(tmp_path):
    """Write a file, give its path."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        return path

    return write


def named(columns):
    """Each with the field of a recipe that names it."""
    return {column: f"{column}_column" for column in columns}


def read(path, columns=COLUMNS, **options):
    return list(rows.read(path, named(columns), **options))


def refused(path, columns=COLUMNS, **options):
    with pytest.raises(DataError) as caught:
        read(path, columns, **options)
    assert caught.value.exit_code == 2
    return caught.value
