"""A report as one HTML file, which loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from tfckpt_tui.formats.markup import Markup, element, safe
from tfckpt_tui.reports.reporting import CurveFacts, CurvesFacts, MarkFacts, RunReport
from tfckpt_tui.services.reporting.figure import HUES, MARKS, figure, step_range
from tfckpt_tui.services.reporting.sections import (
    Block,
    Figures,
    Log,
    Table,
    quantity_words,
    sections_of,
)

_LIGHT = ("#0b62c4", "#b3420a", "#1a7f37", "#8b3fb0", "#8a6100", "#c1245f")
_DARK = ("#6cb2ff", "#ff9d5c", "#5fd37a", "#d79bf7", "#e3b341", "#ff86b3")

_STYLE = """
:root { --ink: #1c1f23; --paper: #fff; --faint: #656d76; --rule: #d5d9de; --band: #f5f7f9; LIGHT }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e7eb; --paper: #14171b; --faint: #98a1ab; --rule: #363c44; --band: #1c2026;
    DARK }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--rule); }
nav a { color: inherit; margin-right: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .875rem; }
th, td { text-align: left; vertical-align: top; padding: .2rem .9rem .2rem 0; }
td { overflow-wrap: anywhere; min-width: 3rem; }
thead th { color: var(--faint); font-weight: 500; white-space: nowrap; }
tbody tr { border-top: 1px solid var(--rule); }
tbody th { font-weight: 500; color: var(--faint); white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(34rem, 100%), 1fr));
  gap: 1rem; }
figure { margin: 0; padding: .5rem; background: var(--band); break-inside: avoid; }
figcaption { overflow-wrap: anywhere; } figcaption span, .legend { color: var(--faint); }
svg { width: 100%; height: auto; display: block; }
svg text { font-size: 12px; fill: var(--faint); text-anchor: middle; }
svg text.y, svg text.label { text-anchor: end; }
svg text.sign { fill: var(--ink); font-size: 13px; } svg text.bad { fill: var(--c1); }
.grid { stroke: var(--rule); } .axis { stroke: var(--faint); }
.mark { stroke: var(--faint); stroke-dasharray: 2 3; }
polyline { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
.past { stroke-dasharray: 4 3; opacity: .6; }
HUES
@media print {
  :root { --ink: #000; --paper: #fff; --faint: #444; --rule: #bbb; --band: #fff; LIGHT }
  body { margin: 0; max-width: none; font-size: 11px; } nav { display: none; }
  .scroll { overflow: visible; } tr { break-inside: avoid; } h2 { break-after: avoid; }
  .figures { grid-template-columns: 1fr 1fr; }
}
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser loads and runs nothing, whatever the file contains."""


def as_html(report: RunReport) -> str:
    """Returns a report as an HTML document with its figures."""
    name = PurePath(report.run.directory).name
    sections = [*sections_of(report)]
    links = (
        element("a", section.title, href=f"#s{number}") for number, section in enumerate(sections)
    )
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        element("title", f"{name}: {report.run.words}"),
        element("style", _style()),
    )
    body = element(
        "body",
        element("h1", name),
        element("nav", *links),
        *(
            element(
                "section",
                element("h2", section.title, id=f"s{number}"),
                *map(_block, section.blocks),
            )
            for number, section in enumerate(sections)
        ),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _style() -> Markup:
    """Returns the style sheet, with the colours of the branches."""
    light, dark = (
        " ".join(f"--c{hue}: {colour};" for hue, colour in enumerate(colours))
        for colours in (_LIGHT, _DARK)
    )
    hues = "\n".join(
        f"polyline.b{hue} {{ stroke: var(--c{hue}); }} "
        f"circle.b{hue}, svg text.l{hue} {{ fill: var(--c{hue}); }}"
        for hue in range(HUES)
    )
    return Markup(_STYLE.replace("LIGHT", light).replace("DARK", dark).replace("HUES", hues))


def _block(block: Block) -> Markup:
    if isinstance(block, Figures):
        return _figures(block.facts)
    if isinstance(block, Table):
        return element("div", _table(block), class_="scroll")
    if isinstance(block, Log):
        return element(
            "div", element("pre", Markup("\n".join(map(safe, block.lines)))), class_="scroll"
        )
    return element("p", block)


def _table(block: Table) -> Markup:
    if not block.header:
        pairs = (element("tr", element("th", a), element("td", b)) for a, b in block.rows)
        return element("table", element("tbody", *pairs))
    titles = (_cell("th", title, place, block) for place, title in enumerate(block.header))
    rows = (
        element("tr", *(_cell("td", cell, place, block) for place, cell in enumerate(row)))
        for row in block.rows
    )
    return element("table", element("thead", element("tr", *titles)), element("tbody", *rows))


def _cell(name: str, text: str, place: int, block: Table) -> Markup:
    return element(name, text, class_="n") if place in block.right else element(name, text)


def _figures(facts: CurvesFacts) -> Markup:
    steps = step_range(facts.curves)
    figures = (_figure(curve, facts.marks, steps) for curve in facts.curves)
    kinds = {mark.kind for mark in facts.marks}
    signs = [f"{sign} {kind.value}" for kind, sign in MARKS.items() if kind in kinds]
    if any(curve.not_finite for curve in facts.curves):
        signs.append("✗ NaN or infinite")
    signs.append("dashed: steps that the present model was not trained on")
    return element(
        "div",
        element("p", " · ".join(signs), class_="legend"),
        element("div", *filter(None, figures), class_="figures"),
    )


def _figure(curve: CurveFacts, marks: Sequence[MarkFacts], steps: tuple[int, int]) -> Markup | None:
    drawn = figure(curve, marks, steps)
    if drawn is None:
        return None
    last = f" {quantity_words(curve)(curve.last)}"
    return element("figure", element("figcaption", curve.name, element("span", last)), drawn)
