"""The report as one page."""

from __future__ import annotations

from importlib.resources import files
from string import Template

from cachekit import __version__, wording
from cachekit.page import charts
from cachekit.page.draw import section, word
from cachekit.page.timeline import timeline
from cachekit.verbs.report import Report
from cachekit.verbs.zoo_coverage import COLD, NEVER, OTHER, WARM, Coverage

MARKS = {
    WARM: ("●", "warm"),
    OTHER: ("◐", "only with other settings"),
    COLD: ("○", "cold"),
    NEVER: ("\N{MULTIPLICATION SIGN}", "not possible"),
}


def page(report: Report) -> str:
    """The whole page, as HTML 5."""
    counted = report.stats
    days = charts.bins(counted.days)
    sections = [
        tiles(report),
        timeline(report.timeline),
        f'<div class="pair">\n{charts.hits(days)}\n{charts.savings(days, counted.total)}\n</div>',
        charts.sizes(report.sizes),
        coverage(report.coverage),
    ]
    made = report.made.strftime("%Y-%m-%d %H:%M UTC")
    about = f"The store at {word(counted.home)} on {word(report.host)}, {made}"
    return Template(_file("page.html")).substitute(
        title=f"cachekit report, {word(report.host)}, {made}",
        style=_file("style.css"),
        heading=word(_headline(report)),
        about=about,
        sections="\n".join(sections),
        foot=f"Made by cachekit {word(__version__)} from journals and records. Days are those of UTC. Time saved is "
        "what compiling took when the entries were made, less what getting them took.",
    )


def _file(name: str) -> str:
    return (files("cachekit.page") / name).read_text(encoding="utf-8")


def _headline(report: Report) -> str:
    total = report.stats.total
    if not total.runs:
        return "No runs yet"
    if total.saved_seconds > 0:
        return f"{wording.duration(total.saved_seconds)} of compiling saved"
    return f"{wording.count(total.graphs_compiled, 'graph')} compiled, nothing saved yet"


def tiles(report: Report) -> str:
    """The four figures to see first."""
    total, price = report.stats.total, report.stats.price
    asked = total.hits + total.misses
    saved = "gain" if total.saved_seconds > 0 else "loss" if total.saved_seconds < 0 else ""
    found = [
        (saved, wording.duration(total.saved_seconds), f"saved in {wording.count(total.runs, 'run')}"),
        ("", f"{total.hits * 100 // asked} %" if asked else "-", f"of {asked:,} keys were there"),
        ("", f"{total.graphs_found:,}", f"graphs found, {total.graphs_compiled:,} compiled"),
    ]
    if price is not None:
        rate = f"at {price.per_hour:.2f} {price.currency} an hour{f' of {price.instance}' if price.instance else ''}"
        found.insert(1, (saved, wording.dollars(total.saved_dollars), rate))
    else:
        found.append(("", wording.size(total.bytes_fetched), f"fetched, {wording.size(total.bytes_pushed)} pushed"))
    boxes = "\n".join(
        f'<div class="tile{f" {kind}" if kind else ""}"><b>{word(figure)}</b><span>{word(said)}</span></div>'
        for kind, figure, said in found
    )
    return f'<section class="tiles" aria-label="The figures to see first">\n{boxes}\n</section>'


def coverage(found: Coverage) -> str:
    """The zoo's recipes by compilers."""
    warm = sum(WARM in states for states in found.rows.values())
    lead = f"{warm} of {len(found.rows)} recipes are warm, as the zoo has them, for some compiler and machine."
    head = "".join(f'<th scope="col">{word(name)}<small>{word(target)}</small></th>' for name, target in found.columns)
    body = "\n".join(
        f'<tr><th scope="row">{word(name)}</th>{"".join(map(_mark, states))}</tr>'
        for name, states in found.rows.items()
    )
    counts = "".join(
        f"<td>{sum(states[number] == WARM for states in found.rows.values())}</td>"
        for number in range(len(found.columns))
    )
    used = {state for states in found.rows.values() for state in states}
    meaning = "".join(
        f'<li><b class="{state}" aria-hidden="true">{mark}</b>{word(said)}</li>'
        for state, (mark, said) in MARKS.items()
        if state in used
    )
    return section(
        "coverage",
        "The zoo",
        lead,
        f'<ul class="legend">{meaning}</ul>',
        '<div class="scroll" tabindex="0" role="region" aria-label="Recipes by compiler and machine"><table>\n'
        f'<thead><tr><th scope="col">recipe</th>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n'
        f'<tfoot><tr><th scope="row">warm</th>{counts}</tr></tfoot></table></div>',
        kind="matrix",
    )


def _mark(state: str) -> str:
    mark, said = MARKS[state]
    return f'<td class="{state}"><span aria-hidden="true">{mark}</span><span class="sr">{word(said)}</span></td>'
