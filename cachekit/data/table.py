"""Tables of delimited text: csv and tsv, with errors that name the line.

A quote inside an unquoted field is text (tweets are full of them); a field that starts with one is quoted.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

from cachekit.data import text_file
from cachekit.errors import DataError

LONGEST_FIELD = 1 << 28  # characters; csv's own limit is 131,072, and texts are longer
_END = ("",)  # a last line, which csv gives as an empty row, unless a quoted field is open
_LONGEST_ROW = 1 << 22  # characters that are looked through for the end of a row


class Table:
    """A table, of which the header has been read.

    Args:
        path: The file.
        wanted: Columns that are looked for, by which the delimiter is found.
        delimiter: Where it is known.
        encoding: Of the text.

    Attributes:
        header: The names of the columns.

    Raises:
        DataError: It cannot be read, or is empty or no delimited text.
    """

    def __init__(self, path: Path, wanted: Sequence[str], delimiter: str | None, encoding: str) -> None:
        self._path, self._encoding = path, encoding
        text = text_file.lines(path, encoding)
        first = next(text, "")
        if not first:
            raise DataError(f"{path} is empty", hint="the first line must name the columns")
        csv.field_size_limit(LONGEST_FIELD)
        try:
            self._delimiter = delimiter or _sniff(first, wanted, path.suffix.lower())
            self._reader = csv.reader(chain([first], text, _END), delimiter=self._delimiter)
            self.header = [name.strip() for name in next(self._reader, [])]
        except (csv.Error, TypeError, ValueError) as error:
            raise DataError(f"{path}, line 1: not delimited text", cause=str(error)) from error

    def rows(self) -> Iterator[list[str]]:
        """The values of each row below the header.

        Raises:
            DataError: A row has more or fewer than the header; or as for the table.
        """
        return self._rows(self._reader, 0)

    def column(self, name: str) -> Iterator[str]:
        """The values of one column, as the rows have them.

        Raises:
            DataError: As for `rows`.
        """
        place = self.header.index(name)
        if len(self.header) == 1 or self._delimiter in '\r\n"' or self._reader.line_num > 1:
            return map(itemgetter(place), self.rows())
        return chain.from_iterable(self._column(place))

    def _rows(self, reader: Any, before: int) -> Iterator[list[str]]:
        """The rows of a reader of csv that began below so many lines."""
        width, first, last = len(self.header), 0, reader.line_num
        values: list[str] = []
        try:
            for values in reader:  # a million times: what is not needed for each row is done for none
                first, last = last, reader.line_num
                if len(values) == width:
                    yield values
                elif values:
                    unclosed = last > first + 1 and next(reader, None) is None
                    raise self._ragged(values, before + first + 1, before + last, unclosed=unclosed)
        except csv.Error as error:
            raise DataError(
                f"{self._path}, line {before + reader.line_num}: not delimited text", cause=str(error)
            ) from error
        if values:  # a closed row has the end behind it, which is an empty line
            raise self._ragged(values, before + first + 1, before + last, unclosed=True)

    def _ragged(self, values: Sequence[str], first: int, end: int, *, unclosed: bool) -> DataError:
        """What to raise where a row has other fields than the header, or ends within one."""
        cause = f"the delimiter is {self._delimiter!r}, the columns are {', '.join(self.header)}"
        if end == first:
            hint = "quote texts that hold the delimiter, or set data.delimiter"
        else:
            where = "is never closed" if unclosed else f"ends on line {end}"
            cause = f"a field of this row begins with a quote, which {where}; {cause}"
            hint = "close the quote, or write it twice in a quoted text; for another delimiter, set data.delimiter"
        said = "a quoted field without an end" if unclosed else f"{len(values)} instead of {len(self.header)} columns"
        return DataError(f"{self._path}, line {first}: {said}", cause=cause, hint=hint)

    def _column(self, place: int) -> Iterator[Iterable[str]]:
        """The values of one column, those of some thousands of rows at once, in half of the time that csv takes.

        From where the table is written in another way than most are, csv reads it.
        """
        blocks = text_file.blocks(self._path, self._encoding)
        first = io.StringIO(next(blocks), newline="")
        first.readline()
        line, rest, width = 1, "", len(self.header)
        for block in chain([first.read()], blocks):
            whole, rest = _whole_rows(rest + block)
            if not whole and len(rest) <= _LONGEST_ROW:
                continue
            values = _values(whole, width, place, self._delimiter) if len(rest) <= _LONGEST_ROW else None
            if values is None:
                rest = whole + rest
                break
            yield values
            line += whole.count("\n")
        lines = chain.from_iterable(io.StringIO(text, newline="") for text in chain([rest], blocks))
        reader = csv.reader(chain(lines, _END), delimiter=self._delimiter)
        yield map(itemgetter(place), self._rows(reader, line))


def _whole_rows(text: str) -> tuple[str, str]:
    """Lines up to the last one at whose end no quoted field is open, and those behind it."""
    end, is_open = len(text), text.count('"') % 2
    while is_open and end:
        start = text.rfind("\n", 0, end - 1) + 1
        is_open ^= text.count('"', start, end) % 2
        end = start
    return text[:end], text[end:]


def _values(text: str, width: int, place: int, delimiter: str) -> list[str] | None:
    """The values of one column of rows; None where csv must read these.

    That is so where a row has more or fewer fields; where a quote stands elsewhere than around a field or, doubled, in
    it; where a return alone ends a line; and where a value has several lines.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\0" in text or "\r" in text or len(text) > LONGEST_FIELD:
        return None
    text = text.removesuffix("\n")
    lines = text.count("\n") + 1
    if width == 2 and (of_two := _of_two(text, lines, place, delimiter)):  # noqa: PLR2004
        return of_two
    if '"' not in text:
        rows = text.split("\n")
        if set(map(str.count, rows, repeat(delimiter))) == {width - 1}:
            return [one.split(delimiter, place + 1)[place] for one in rows]
    row = _row(width, place, delimiter)
    found: list[str] = row.findall(text)
    # Where each line is a row, nothing was passed over; else there must be no more than line ends beside the rows.
    if len(found) != lines and row.sub("", text).strip("\n"):
        return None
    if '"' in text:
        plain = {value: value[1:-1].replace('""', '"') if value[:1] == '"' else value for value in set(found)}
        return list(map(plain.__getitem__, found))
    return found


def _of_two(text: str, lines: int, place: int, delimiter: str) -> list[str] | None:
    """The first or the last of two values in each line, where either all values are quoted or none is; else None.

    Where each line has one, and all lines have no more delimiters, or quotes, than that takes, none has another form:
    what is looked for takes the quotes at the line's ends, one of them with the line before or after.
    """
    quote, each = ('"', 4) if text[:1] == '"' else (delimiter, 1)
    if text.count(quote) != each * lines or (quote != '"' and '"' in text) or (quote == '"' != text[-1:]):
        return None
    mark, end = (f'"{delimiter}"', '"\n"') if quote == '"' else (delimiter, "\n")
    inner = text[1:-1] if quote == '"' else text
    first = place == 0
    found: list[str] = _edge(mark, end, first=first).findall(f"{end}{inner}" if first else f"{inner}{end}")
    return found if len(found) == lines else None


@cache
def _edge(mark: str, end: str, *, first: bool) -> re.Pattern[str]:
    """The first or the last value of a line; fast, as it begins with characters that are looked for."""
    value = f"([^{re.escape(mark[0])}\n]*)"
    return re.compile(f"{end}{value}{re.escape(mark)}" if first else f"{re.escape(mark)}{value}{end}")


@cache
def _row(width: int, place: int, delimiter: str) -> re.Pattern[str]:
    """A row, of which the group is the value of one column, which has one line."""
    mark = re.escape(delimiter)
    value, field = (rf'(?:"[^"{end}]*(?:""[^"{end}]*)*"|[^"{mark}\n]*)' for end in ("\\n", ""))
    return re.compile(rf"^(?:{field}{mark}){{{place}}}({value})(?:{mark}{field}){{{width - 1 - place}}}$", re.MULTILINE)


def _sniff(header: str, wanted: Sequence[str], suffix: str) -> str:
    candidates = [",", "\t", ";", "|"] if suffix != ".tsv" else ["\t", ",", ";", "|"]
    scores = {}
    for candidate in candidates:
        names = {name.strip() for name in next(csv.reader([header], delimiter=candidate), [])}
        scores[candidate] = (len(names & set(wanted)), len(names))
    return max(candidates, key=lambda candidate: scores[candidate])
