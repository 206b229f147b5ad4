"""Frames that write only the cells that they change, against an emulator of a terminal."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from tfckpt_tui.app.terminal.cells import TerminalCells

WIDTH, HEIGHT = 12, 3
STYLES = [
    Style.parse(words)
    for words in (
        "#ffffff on #101010",
        "bold #ffffff on #101010",
        "#80c0ff on #101010",
        "italic #80c0ff on #303040",
        "underline #ffffff on #101010",
        "reverse #ffffff",
        "default on default",
    )
]


class Emulator:
    """A terminal, and how many bytes it got."""

    def __init__(self) -> None:
        self.screen = pyte.Screen(WIDTH, HEIGHT)
        self.sent = 0
        self._stream = pyte.Stream(self.screen)
        self._console = Console(color_system="truecolor")
        assert self._console._color_system is ColorSystem.TRUECOLOR

    def show(self, cells: TerminalCells, update: LayoutUpdate | ChopsUpdate) -> str:
        """Writes a frame."""
        text = cells.changes(update, self._console)
        self._stream.feed(text)
        return text

    @property
    def cells(self) -> list[list[tuple[object, ...]]]:
        """What it shows; the colour of the text only where there is some."""
        return [
            [seen(self.screen.buffer[y][x]) for x in range(WIDTH)] for y in range(self.screen.lines)
        ]


def seen(cell: pyte.screens.Char) -> tuple[object, ...]:
    is_blank = cell.data == " " and not (cell.underscore or cell.reverse)
    look = () if is_blank else (cell.fg, cell.bold, cell.italics)
    return (cell.data, cell.bg, cell.underscore, cell.reverse, *look)


def whole(lines: list[list[Strip]]) -> LayoutUpdate:
    return LayoutUpdate(list(lines), Region(0, 0, WIDTH, HEIGHT))


def part(lines: list[list[Strip]], spans: list[tuple[int, int, int]]) -> ChopsUpdate:
    chops = []
    for strips in lines:
        x, chop = 0, {}
        for strip in strips:
            chop[x] = strip
            x += strip.cell_length
        chops.append(chop)
    return ChopsUpdate(chops, spans, [])


@st.composite
def lines_of_a_frame(draw: st.DrawFn) -> list[list[Strip]]:
    """Lines of one or two pieces, with characters of no, one and two cells."""
    lines = []
    for _ in range(HEIGHT):
        cut = draw(st.integers(1, WIDTH - 1))
        lines.append([piece(draw, cut), piece(draw, WIDTH - cut)])
    return lines


def piece(draw: st.DrawFn, width: int) -> Strip:
    texts = draw(st.lists(st.sampled_from(["a", "1234", "   ", "⣀⠉", "中文", "é", "x y"])))
    segments = [Segment(text, draw(st.sampled_from(STYLES))) for text in texts]
    return Strip(segments).adjust_cell_length(width, STYLES[0])


@given(st.lists(lines_of_a_frame(), min_size=1, max_size=4))
def test_changes_leave_the_same_screen_as_whole_frames(frames: list[list[list[Strip]]]) -> None:
    shown, cells = Emulator(), TerminalCells()
    for lines in frames:
        shown.show(cells, whole(lines))
        fresh = Emulator()
        fresh.show(TerminalCells(), whole(lines))
        assert shown.cells == fresh.cells


@given(lines_of_a_frame(), lines_of_a_frame(), st.integers(0, HEIGHT - 1))
def test_a_part_changes_its_line_alone(
    before: list[list[Strip]], after: list[list[Strip]], y: int
) -> None:
    shown, cells = Emulator(), TerminalCells()
    shown.show(cells, whole(before))
    shown.show(cells, part(after, [(y, 0, WIDTH)]))
    expected = Emulator()
    expected.show(TerminalCells(), whole([*before[:y], after[y], *before[y + 1 :]]))
    assert shown.cells == expected.cells


def test_equal_cells_are_not_written() -> None:
    shown, cells = Emulator(), TerminalCells()
    lines = [[Strip([Segment(f"step {y + 10}   ok", STYLES[0])])] for y in range(HEIGHT)]
    shown.show(cells, whole(lines))
    assert shown.show(cells, whole(lines)) == ""
    lines[1] = [Strip([Segment("step 17   ok", STYLES[0])])]
    written = shown.show(cells, whole(lines))
    assert "7" in written
    assert "step" not in written
    assert "ok" not in written


def test_a_style_is_written_once_for_what_follows_in_it() -> None:
    lines = [[Strip([Segment("123456", STYLES[0]), Segment("abcdef", STYLES[2])])]] * HEIGHT
    text = Emulator().show(TerminalCells(), whole(lines))
    # The background is the same in both.
    assert text.count("48;2;16;16;16") == 1


def test_everything_is_written_after_the_screen_is_forgotten() -> None:
    shown, cells = Emulator(), TerminalCells()
    lines = [[Strip([Segment("abcdefghijkl", STYLES[0])])]] * HEIGHT
    shown.show(cells, whole(lines))
    shown.screen.reset()
    cells.forget()
    shown.show(cells, whole(lines))
    assert shown.screen.display == ["abcdefghijkl"] * HEIGHT


def test_everything_is_written_in_another_size() -> None:
    shown, cells = Emulator(), TerminalCells()
    lines = [[Strip([Segment("abcdefghijkl", STYLES[0])])]] * HEIGHT
    shown.show(cells, whole(lines))
    shown.screen.reset()
    shown.show(cells, LayoutUpdate(list(lines[:2]), Region(0, 0, WIDTH, 2)))
    assert shown.screen.display[:2] == ["abcdefghijkl"] * 2


def test_colours_are_those_that_the_terminal_has() -> None:
    lines = [[Strip([Segment("abcdefghijkl", STYLES[2])])]] * HEIGHT
    console = Console(color_system="256", force_terminal=True)
    text = TerminalCells().changes(whole(lines), console)
    assert "38;5;" in text
    assert "38;2;" not in text
