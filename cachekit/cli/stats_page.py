"""`cachekit stats --html`: the figures and small charts as one page, which loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from cachekit.cli import out, stats

if TYPE_CHECKING:
    from cachekit.api.answers import Part, Stats

# A file that is there is replaced only where it begins like this: a typing error must not cost somebody's script.
PAGE = '<!doctype html>\n<meta name="generator" content="cachekit">'
TRACE = '{"otherData": {"maker": "cachekit"'

_HEAD = """
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root {color-scheme: light dark; --line: #8884; --soft: #8881; --good: #2da44e; --bad: #cf5b56}
body {margin: 2rem auto; padding: 0 1rem; max-width: 66rem; font: 15px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere}
h1 {font-size: 1.4rem} h2 {font-size: 1.1rem; margin: 2rem 0 .5rem} p {margin: .2rem 0}
dl {display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .8rem}
dl div {background: var(--soft); border-radius: .5rem; padding: .6rem .9rem}
dt, th, small {font-weight: normal; font-size: .85rem; opacity: .75}
dd {margin: 0; font-size: 1.3rem}
table {border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums}
th, td {padding: .3rem .5rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap}
th:first-child, th.bar {text-align: left; white-space: normal}
tbody th {font-size: 1em; opacity: 1}
.parts tbody th {min-width: 12rem}
.figures {max-width: 40rem}
td.bar {width: 18%; min-width: 4rem}
td.bar div {display: flex; height: .8rem; background: var(--soft)}
i {background: var(--good)} .bad {background: var(--bad)}
small i {display: inline-block; width: .7rem; height: .7rem; margin: 0 .3rem}
@media (max-width: 880px) {
  .parts thead {display: none}
  .parts tr {display: flex; flex-wrap: wrap; padding: .5rem 0; border-bottom: 1px solid var(--line)}
  .parts th, .parts td {border: 0; padding: .1rem 0; margin-right: 1.2rem; text-align: left}
  .parts th {width: 100%; min-width: 0; margin: 0} .parts td.bar {flex: 1 0 40%; margin: .2rem 1rem .2rem 0}
  .parts td[title]::before {content: attr(title) " "; font-size: .85rem; opacity: .75}
}
</style>
"""
_LEGEND = "<p><small>keys <i></i>found <i class=bad></i>missed; time <i></i>saved <i class=bad></i>lost</small></p>"


def page(answer: Stats) -> str:
    """The whole page, as HTML 5: what a terminal shows, nothing left out, with bars."""
    title = _text(f"The store at {answer.home}")
    lines = [PAGE, _HEAD, f"<title>cachekit stats: {title}</title>", f"<h1>{title}</h1>"]
    lines += [f"<p>{_text(line)}</p>" for line in [*stats.about(answer), stats.price_words(answer)] if line]
    if answer.total.runs:
        header, rows = stats.figures(answer)
        first = ("keys found", "graphs found", "graphs compiled", "saved", "money saved")
        cards = [(label, cells[-1]) for label, *cells in rows if label in first]
        lines.append("<dl>" + "".join(f"<div><dt>{_text(a)}</dt><dd>{_text(b)}</dd></div>" for a, b in cards) + "</dl>")
        headed = {answer.by: answer.periods, "recipe": answer.recipes, "place": answer.remotes}
        for heading, parts in headed.items():
            if parts and not answer.scope.run:
                lines += [f"<h2>By {heading}</h2>", _LEGEND, _table(*stats.part_rows(heading, parts), _bars(parts))]
        lines += ["<h2>All figures</h2>", _table(header, rows)]
    return "\n".join([*lines, "</html>", ""])


def _bars(parts: Sequence[Part]) -> list[str]:
    """For each row: the keys that were found, beside those that were missed; and the time that was saved, or lost."""
    figures = [part.figures for part in parts]
    keys = max(one.hits + one.misses for one in figures) or 1
    seconds = max(abs(one.saved_seconds) for one in figures) or 1
    made = []
    for one in figures:
        saved, lost = max(one.saved_seconds, 0), max(-one.saved_seconds, 0)
        made.append(
            f"<td class=bar><div>{_bar(one.hits / keys)}{_bar(one.misses / keys, ' class=bad')}</div></td>"
            f"<td class=bar><div>{_bar(saved / seconds)}{_bar(lost / seconds, ' class=bad')}</div></td>"
        )
    return made


def _bar(share: float, kind: str = "") -> str:
    return f'<i{kind} style="width: {share:.1%}"></i>' if share else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], bars: Sequence[str] = ()) -> str:
    """Rows of a name and figures; the bars stand between them."""
    titles = [_text(title) for title in header]
    above = "<th class=bar>keys</th><th class=bar>time</th>" if bars else ""
    lines = [f"<table class={'parts' if bars else 'figures'}><thead><tr><th>{titles[0]}</th>{above}"]
    lines += [f"<th>{title}</th>" for title in titles[1:]] + ["</tr></thead><tbody>"]
    for number, (name, *cells) in enumerate(rows):
        told = "".join(f'<td title="{title}">{_text(cell)}</td>' for title, cell in zip(titles[1:], cells, strict=True))
        lines.append(f"<tr><th>{_text(name)}</th>{bars[number] if bars else ''}{told}</tr>")
    return "\n".join([*lines, "</tbody></table>"])


def _text(words: str) -> str:
    return escape(out.plain(words))
