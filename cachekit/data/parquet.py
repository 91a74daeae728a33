"""Rows from Parquet files. pyarrow, which comes with `datasets`, is imported where such a file is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

from cachekit.data import rows
from cachekit.errors import DataError

_AT_ONCE = 1_000  # rows


def read(path: Path, columns: Mapping[str, str]) -> list[rows.Row]:
    """All rows of a file, with these columns alone; `columns` are as in `rows.read`.

    Raises:
        DataError: The file is missing, no Parquet file, has no rows, or lacks a column.
    """
    with _opened(path, columns) as file:
        found: list[rows.Row] = file.read(columns=list(columns)).to_pylist()
    return found


def head(path: Path, columns: Mapping[str, str], most: int) -> tuple[list[rows.Row], list[str], int]:
    """The first rows of a file with these columns, the names of all its columns, and how many rows it has.

    Raises:
        DataError: As `read`.
        ImportError: pyarrow is not installed.
    """
    with _opened(path, columns) as file:
        batches = file.iter_batches(batch_size=min(most, _AT_ONCE), columns=list(columns))
        first = list(islice(chain.from_iterable(batch.to_pylist() for batch in batches), most))
        return first, list(file.schema_arrow.names), file.metadata.num_rows


@contextmanager
def _opened(path: Path, columns: Mapping[str, str]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"{path} does not exist", hint="check data.path, or data.train_file and its like")
    try:
        with pq.ParquetFile(path) as file:
            rows.require(path, list(file.schema_arrow.names), columns)
            if not file.metadata.num_rows:
                raise DataError(f"{path} has no rows", hint="check data.path, or data.train_file and its like")
            yield file
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{path} is not a Parquet file",
            cause=f"pyarrow says: {str(error).partition('. ')[0].splitlines()[0]}",
            hint="write the file again, or name it for what it is: .csv, .jsonl, ...",
        ) from error
