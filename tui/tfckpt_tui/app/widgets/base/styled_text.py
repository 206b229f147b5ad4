"""Lines of styled text, measured in cells: fitting and drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.strip import Strip

ELLIPSIS = "…"

Span = tuple[str, str]
"""A cleaned text, and the name of its style."""


class StyledLine(msgspec.Struct, frozen=True):
    """One line of the screen.

    Attributes:
        spans: Its texts, from left to right.
        base: Name of the style under all of them, which also fills the rest of the line.
    """

    spans: tuple[Span, ...] = ()
    base: str = ""

    @property
    def width(self) -> int:
        """Width of its texts in cells."""
        return sum(cell_len(text) for text, _ in self.spans)

    @property
    def text(self) -> str:
        """Its text without styles."""
        return "".join(text for text, _ in self.spans)

    def fitted(self, width: int) -> StyledLine:
        """Returns the line in exactly `width` cells; cut text ends in an ellipsis."""
        return StyledLine(fit(self.spans, width), self.base)


def line(*spans: Span, base: str = "") -> StyledLine:
    """Returns a line of `spans`."""
    return StyledLine(spans, base)


def shorten(text: str, width: int) -> str:
    """Returns `text` in at most `width` cells; cut text ends in an ellipsis."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    return set_cell_size(text, width - 1) + ELLIPSIS


def shorten_middle(text: str, width: int) -> str:
    """Returns `text` in at most `width` cells, cut in the middle: paths differ at the end."""
    if cell_len(text) <= width:
        return text
    if width <= 2:
        return shorten(text, width)
    tail = width // 2
    return set_cell_size(text, width - tail - 1).rstrip() + ELLIPSIS + text[-tail:]


def padded(text: str, width: int, align: str = "<") -> str:
    """Returns `text` in exactly `width` cells, aligned `<` left or `>` right."""
    text = shorten(text, width)
    gap = " " * (width - cell_len(text))
    return gap + text if align == ">" else text + gap


def fit(spans: Sequence[Span], width: int) -> tuple[Span, ...]:
    """Returns `spans` in exactly `width` cells; cut text ends in an ellipsis."""
    if width <= 0:
        return ()
    whole = "".join(text for text, _ in spans).rstrip(" ")
    end = ELLIPSIS if cell_len(whole) > width else ""
    fitted: list[Span] = []
    left = width - len(end)
    for text, style in spans:
        size = cell_len(text)
        if size > left:
            return (*fitted, (set_cell_size(text, left) + end, style))
        fitted.append((text, style))
        left -= size
    if left > 0:
        fitted.append((" " * left, ""))
    return tuple(fitted)


def spread(left: Sequence[Span], right: Sequence[Span], width: int) -> tuple[Span, ...]:
    """Returns `left` and `right` at the ends of `width` cells; `left` is cut first."""
    right_width = sum(cell_len(text) for text, _ in right)
    if right_width >= width:
        return fit(right, width)
    return (*fit(left, width - right_width), *right)


def flow(groups: Sequence[Sequence[Span]], width: int, gap: str = "  ") -> tuple[Span, ...]:
    """Returns the first of `groups` that fit side by side; groups that do not fit are left out."""
    spans: list[Span] = []
    used = 0
    for group in groups:
        size = sum(cell_len(text) for text, _ in group)
        between = cell_len(gap) if spans else 0
        if size and used + between + size <= width:
            if between:
                spans.append((gap, ""))
            spans.extend(group)
            used += between + size
    return tuple(spans)


def strip(shown: StyledLine, style_of: Callable[[str], Style]) -> Strip:
    """Converts a line to a Textual strip.

    Args:
        shown: The line.
        style_of: Returns the style with a name.
    """
    ground = style_of("")
    base = ground + style_of(shown.base) if shown.base else ground
    segments: list[Segment] = []
    for text, name in shown.spans:
        style = base + style_of(name) if name else base
        last = segments[-1] if segments else None
        # Each segment takes time, so a gap joins the segment before it.
        if last is not None and (last.style == style or _is_gap(text, style, last.style)):
            segments[-1] = Segment(last.text + text, last.style)
        elif text:
            segments.append(Segment(text, style))
    return Strip(segments, shown.width)


def _is_gap(text: str, style: Style, before: Style | None) -> bool:
    """Whether `text` is blank and looks the same in the style of the segment before it."""
    return (
        before is not None
        and not text.strip(" ")
        and style.bgcolor == before.bgcolor
        and not (before.underline or before.reverse or style.underline or style.reverse)
    )


BRANCH_COLOURS = 6
"""Number of branch colours. They repeat after that; branch numbers are always shown."""

_BRANCHES = [f"branch-{n}{end}" for n in range(BRANCH_COLOURS) for end in ("", "-past")]

_THEME_STYLES = {
    "": "",
    "muted": "$shade",
    "label": "$shade",
    "faint": "$faint",
    "value": "$foreground",
    "strong": "$foreground bold",
    "title": "$foreground bold",
    "key": "$primary bold",
    "good": "$success",
    "calm": "$primary",
    "busy": "$accent",
    "accent": "$accent",
    "warn": "$warning",
    "pin": "$warning",
    "bad": "$error",
    "bar": "$primary",
    "track": "$track",
    "border": "$edge",
    "border-focus": "$edge-focus",
    "cursor": "$foreground bold on $row-focus",
    "selected": "$foreground on $row",
    **{name: f"${name}" for name in _BRANCHES},
}
"""The styles that lines can use, with the colours of the theme."""


def to_content(*spans: Span) -> Content:
    """Returns spans as Textual content; the texts are not parsed as markup."""
    return Content.assemble(*((text, theme_style(name)) for text, name in spans if text))


def lines_to_content(lines: Iterable[Iterable[Span]]) -> Content:
    """Returns lines of spans as Textual content."""
    return Content("\n").join([to_content(*spans) for spans in lines])


def theme_style(name: str) -> str:
    """Returns a style in the syntax of Textual, with the colours of the theme."""
    return _THEME_STYLES[name]


def branch_style(branch: int, *, past: bool = False) -> str:
    """Returns the name of the style of a branch.

    Args:
        branch: Its number.
        past: Whether training left this part of the branch by restoring an older checkpoint.
    """
    return f"branch-{branch % BRANCH_COLOURS}" + ("-past" if past else "")
