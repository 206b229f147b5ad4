"""A report as one HTML file, which loads nothing and runs nothing."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_tui.charting.quantities import quantity_words
from tfckpt_tui.charting.value_axis import apart, value_range
from tfckpt_tui.formats import units
from tfckpt_tui.formats.markup import Markup, element, safe
from tfckpt_tui.tools.reporting.json_report import (
    BranchCurve,
    CurveFacts,
    CurvesFacts,
    MarkFacts,
    RunReport,
)
from tfckpt_tui.tools.reporting.sections import (
    Block,
    Figures,
    Log,
    Table,
    sections_of,
)

MARKS = {
    EventKind.RESTORE: "↶",
    EventKind.RESTART: "⟳",
    EventKind.SET: "Δ",
    EventKind.GUARD: "!",
}
"""The sign of each kind of event above a curve."""

HUES = 6
"""Branches with different colours; further ones begin again."""

_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 700, 20, 212
_TICKS = 5
_LOG_RATIO = 1000.0
"""If the highest value is so many times the lowest, the axis is logarithmic."""

_MOST_LABELS = 8
_LABEL_WIDTH, _LABEL_HEIGHT = 64, 14
_MARK_GAP = 24
"""Events that are closer share one sign."""

_TITLE = 300

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


@dataclass(frozen=True)
class _Scale:
    """Where values are between two ends of an axis; logarithmic on request."""

    low: float
    high: float
    begin: float
    end: float
    is_log: bool = False

    def place(self, value: float) -> float:
        """Returns the place of a value; one beyond an end is there."""
        low, high, here = (self._of(one) for one in (self.low, self.high, value))
        # Halves, because the difference of two values may be too large for a number.
        span = high / 2 - low / 2
        part = min(1.0, max(0.0, (here / 2 - low / 2) / span)) if span else 0.5
        return self.begin + part * (self.end - self.begin)

    def _of(self, value: float) -> float:
        return math.log10(value) if self.is_log else value

    def ticks(self) -> Iterator[float]:
        """Yields round values, about five."""
        if self.is_log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            every = max(1, math.ceil((last - first) / _TICKS))
            yield from (10.0**power for power in range(first, last + 1, every))
            return
        step = units.nice_step((self.high - self.low) / _TICKS)
        if not 0 < step < math.inf:
            return
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        yield from (number * step for number in range(first, min(last, first + 2 * _TICKS) + 1))


def step_range(curves: Iterable[CurveFacts]) -> tuple[int, int]:
    """Returns the first and the last step of all curves."""
    steps: list[int] = []
    for curve in curves:
        steps += curve.not_finite_steps
        for branch in curve.branches:
            # Those of a branch are sorted.
            steps += (*branch.steps[:1], *branch.steps[-1:])
    return min(steps, default=0), max(steps, default=0)


def figure(curve: CurveFacts, marks: Sequence[MarkFacts], steps: tuple[int, int]) -> Markup | None:
    """Returns the figure of a curve; None if it has no finite value.

    Args:
        curve: The curve.
        marks: The events of the run.
        steps: The first and the last step of the axis.
    """
    if curve.lowest is None or curve.highest is None:
        return None
    x = _Scale(*apart(float(steps[0]), float(steps[1])), _LEFT, _RIGHT)
    is_log = curve.lowest > 0 and curve.highest / curve.lowest > _LOG_RATIO
    values = [value for branch in curve.branches for value in branch.values]
    ends = (curve.lowest, curve.highest) if is_log else value_range(values)
    y = _Scale(*apart(*ends), _BOTTOM, _TOP, is_log)
    inside = [
        *_axes(x, y),
        *_cut(y, curve.lowest, curve.highest),
        *_marks(x, marks),
        *(part for branch in curve.branches for part in _lines(branch, x, y)),
        *_labels(curve.branches, x, y),
        *(_text("✗", x.place(step), _BOTTOM, "bad") for step in curve.not_finite_steps),
    ]
    return element(
        "svg",
        *inside,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{curve.name} over {x.low:,.0f} to {x.high:,.0f} steps",
    )


def _axes(x: _Scale, y: _Scale) -> Iterator[Markup]:
    for value in y.ticks():
        place = y.place(value)
        yield _line(_LEFT, place, _RIGHT, place, "grid")
        yield _text(f"{value:.6g}", _LEFT - 6, place + 4, "tick y")
    yield _line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis")
    for step in x.ticks():
        if step == int(step):
            yield _text(f"{step:,.0f}", x.place(step), _BOTTOM + 18, "tick")
    if y.is_log:
        yield _text("log scale", _LEFT - 6, _TOP - 8, "tick y")


def _cut(y: _Scale, lowest: float, highest: float) -> Iterator[Markup]:
    """Yields how far the values beyond the ends of the axis go."""
    if highest > y.high:
        yield _text(f"▲ {highest:.6g}", _LEFT - 6, _TOP - 8, "tick y")
    if lowest < y.low:
        yield _text(f"▼ {lowest:.6g}", _LEFT - 22, _BOTTOM + 18, "tick y")


def _lines(branch: BranchCurve, x: _Scale, y: _Scale) -> Iterator[Markup]:
    """Yields the part of a branch that the present model has passed, and the part after it."""
    places = [
        (x.place(step), y.place(value))
        for step, value in zip(branch.steps, branch.values, strict=True)
    ]
    kept = branch.kept_until
    split = 0 if kept is None else bisect_right(branch.steps, kept)
    hue = f"b{branch.branch % HUES}"
    # The part that was left begins where the other ends.
    for part, name in ((places[max(0, split - 1) :], f"{hue} past"), (places[:split], hue)):
        if len(part) > 1:
            yield element("polyline", points=_points(part), class_=name)
        elif len(part) == 1 and len(places) == 1:
            (place,) = part
            yield element("circle", cx=f"{place[0]:.1f}", cy=f"{place[1]:.1f}", r=3, class_=name)


def _points(places: Iterable[tuple[float, float]]) -> Markup:
    return Markup(" ".join(f"{x:.1f},{y:.1f}" for x, y in places))


def _labels(branches: Sequence[BranchCurve], x: _Scale, y: _Scale) -> Iterator[Markup]:
    """Yields the number of each branch at its end, if there are several."""
    drawn = [branch for branch in branches if branch.steps]
    if not 1 < len(drawn) <= _MOST_LABELS:
        return
    taken: list[tuple[float, float]] = []
    for branch in drawn:
        end_x, end_y = x.place(branch.steps[-1]) - 4, y.place(branch.values[-1]) - 6
        end_y = _free_height(end_x, end_y, taken)
        taken.append((end_x, end_y))
        yield _text(f"branch {branch.branch}", end_x, end_y, f"label l{branch.branch % HUES}")


def _free_height(x: float, y: float, taken: Sequence[tuple[float, float]]) -> float:
    """Returns the height nearest to `y` at which a label covers none that is there."""
    near = [other for at, other in taken if abs(at - x) < _LABEL_WIDTH]
    highest, lowest = _TOP + 8, _BOTTOM - 4
    most = 2 * len(near) + 1
    steps = sorted(range(-most, most + 1), key=abs)
    places = (max(highest, min(y, lowest)) + step * _LABEL_HEIGHT for step in steps)
    free = (
        place
        for place in places
        if highest <= place <= lowest and all(abs(place - other) >= _LABEL_HEIGHT for other in near)
    )
    return next(free, y)


def _marks(x: _Scale, marks: Sequence[MarkFacts]) -> Iterator[Markup]:
    """Yields a line and a sign for each event; events in the same place share one."""
    shown = [mark for mark in marks if x.low <= mark.step <= x.high]
    together: list[list[MarkFacts]] = []
    for mark in sorted(shown, key=lambda mark: mark.step):
        near = together and x.place(mark.step) - x.place(together[-1][0].step) < _MARK_GAP
        if near:
            together[-1].append(mark)
        else:
            together.append([mark])
    for group in together:
        place = x.place(group[0].step)
        signs = "".join(dict.fromkeys(MARKS.get(mark.kind, "·") for mark in group))
        told = "; ".join(f"step {mark.step:,}: {mark.message}"[:_TITLE] for mark in group[:5])
        yield element(
            "g",
            element("title", told),
            _line(place, _TOP, place, _BOTTOM, "mark"),
            _text(signs, place, _TOP - 6, "sign"),
        )


def _line(x0: float, y0: float, x1: float, y1: float, style: str) -> Markup:
    places = {"x1": x0, "y1": y0, "x2": x1, "y2": y1}
    return element("line", class_=style, **{key: f"{at:.1f}" for key, at in places.items()})


def _text(text: str, x: float, y: float, style: str) -> Markup:
    return element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", class_=style)


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
    last = f" {quantity_words(curve.quantity)(curve.last)}"
    return element("figure", element("figcaption", curve.name, element("span", last)), drawn)
