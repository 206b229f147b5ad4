"""The base of screens over another one, which shows through, dimmed."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.color import Color
from textual.css.styles import RulesMap
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import ModalScreen, ScreenResultType
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual, VisualType


class Modal(ModalScreen[ScreenResultType]):
    """A screen over another one."""

    def render(self) -> VisualType:  # type: ignore[override]
        """Returns the screen below, as Textual draws it, in less than half of the time."""
        below = super().render()
        return _Backdrop(below) if isinstance(below, BackgroundScreen) else below


class _Backdrop(Visual):
    """The screen below; each of its styles is dimmed once."""

    def __init__(self, below: BackgroundScreen) -> None:
        self._below = below

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        """Returns the whole width."""
        del rules
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """Returns the height of the screen below."""
        del rules, width
        return self._below.screen.size.height

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        """Returns the lines of the screen below."""
        del options
        ground, tint = style.rich_style, self._below.color
        return [
            Strip(
                [Segment(text, _dimmed(shown, tint, ground)) for text, shown, _ in line],
                line.cell_length,
            ).crop(0, width)
            for line in self._below.screen._compositor.render_strips()[:height]
        ]


@lru_cache(maxsize=1024)
def _dimmed(style: RichStyle | None, tint: Color, ground: RichStyle) -> RichStyle | None:
    (dimmed,) = BackgroundScreen.process_segments([Segment("", style)], tint)
    return ground + dimmed.style
