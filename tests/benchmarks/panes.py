"""What the list of this app costs beside those of Textual: first frame, keys, bytes.

    python tests/benchmarks/panes.py [--rows N ...] [--rounds N]

Each draws the same six columns at 140 by 40, with a border, a scroll bar and a cursor, in the same
app without a terminal. Costs are processor time until the frame, and the escape sequences of the
cells that it changes. The second of two pages down scrolls.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

for part in ("", "tui"):
    sys.path.insert(0, str(Path(__file__).parents[1] / part))
from rich.console import Console
from rich.text import Text
from scripts.figures import report, report_ratio
from scripts.machine import on_quiet_machine
from textual._compositor import CompositorUpdate
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import DataTable, OptionList

from tfckpt_tui.app import base_app
from tfckpt_tui.app.base_app import BaseApp
from tfckpt_tui.app.terminal.cells import TerminalCells
from tfckpt_tui.app.widgets.base.list_pane import ListPane
from tfckpt_tui.formats.list_columns import ListCell, ListColumn
from tfckpt_tui.settings.config import Config

SIZE = (140, 40)
OURS = "our list"
KEYS = ("down", "pagedown", "pagedown", "end")
OF_DATA_TABLE = {"end": "ctrl+end"}
WIDTHS = (24, 12, 12, 10, 20, 30)

Row = Sequence[str]


def text_at(place: int) -> ListColumn[Row]:
    """The column that shows one text of a row."""
    cell = ListCell(f"column {place}", WIDTHS[place], align="<")
    return ListColumn(f"column {place}", lambda row, _: row[place], cell)


class OurList(ListPane[Row]):
    """The list of this app."""

    title = "rows"
    declared = tuple(map(text_at, range(len(WIDTHS))))

    def __init__(self, rows: Sequence[Row]) -> None:
        super().__init__()
        self._shown = rows

    def on_mount(self) -> None:
        """Shows the rows."""
        self.show_rows(self._shown)


def data_table(rows: Sequence[Row]) -> Widget:
    """Textual's table, its texts as `Text`, since it takes others for markup."""
    table: DataTable[Text] = DataTable(cursor_type="row")
    for place, width in enumerate(WIDTHS):
        table.add_column(f"column {place}", width=width)
    table.add_rows([map(Text, row) for row in rows])
    return table


def option_list(rows: Sequence[Row]) -> Widget:
    """Textual's list of options, one line of text each."""
    lines = ("  ".join(f"{t:<{w}}" for t, w in zip(row, WIDTHS, strict=True)) for row in rows)
    return OptionList(*lines, markup=False)


LISTS: dict[str, Callable[[Sequence[Row]], Widget]] = {
    OURS: OurList,
    "DataTable": data_table,
    "OptionList": option_list,
}


class Cost(NamedTuple):
    """What a frame costs.

    Attributes:
        processor: Seconds of processor time.
        bytes: Bytes of the cells that change.
        bytes_of_textual: Bytes that Textual would write.
    """

    processor: float
    bytes: float
    bytes_of_textual: float


class ListApp(BaseApp[None]):
    """Shows one list, and counts the bytes of its frames."""

    CSS_PATH = Path(base_app.__file__).with_name("app.tcss")
    CSS = "DataTable, OptionList { border: round $primary; height: 1fr; width: 1fr; }"

    def __init__(self, make: Callable[[Sequence[Row]], Widget], rows: Sequence[Row]) -> None:
        super().__init__(Config())
        self.written = self.by_textual = 0
        self._make, self._rows = make, rows
        self._cells = TerminalCells()
        self._terminal = Console(color_system="truecolor", force_terminal=True)

    def compose(self) -> Iterator[Widget]:
        yield self._make(self._rows)

    def _display(self, screen: Screen[Any], renderable: Any) -> None:
        if isinstance(renderable, CompositorUpdate):
            self.by_textual += len(renderable.render_segments(self._terminal).encode())
            self.written += len(self._cells.changes(renderable, self._terminal).encode())
        super()._display(screen, renderable)


@on_quiet_machine
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="*", default=(100, 10_000))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for count in options.rows:
        chance = random.Random(1)
        rows = [[f"{chance.random():.{w // 2}f}" for w in WIDTHS] for _ in range(count)]
        rounds = [
            {name: asyncio.run(measure(make, rows)) for name, make in LISTS.items()}
            for _ in range(options.rounds)
        ]
        for what in dict.fromkeys(("first frame", *KEYS)):
            tell(what, [{name: one[name][what] for name in LISTS} for one in rounds], count)


def tell(what: str, rounds: Sequence[dict[str, Cost]], rows: int) -> None:
    """Reports what our list costs, and in relation to the others."""
    size: Any = {"along": "rows", "at": rows}
    for told, unit, factor in (("processor", "ms", 1e3), ("bytes", "KB", 1e-3)):
        costs = {name: [getattr(one[name], told) for one in rounds] for name in LISTS}
        report(f"{what}, {told}", [factor * one for one in costs[OURS]], unit, **size)
        for name in [name for name in LISTS if name != OURS]:
            report_ratio(f"{what}, {told} beside {name}", costs[OURS], costs[name], name, **size)
    ours, textual = ([getattr(one[OURS], field) for one in rounds] for field in Cost._fields[1:])
    report_ratio(f"{what}, bytes beside all cells", ours, textual, "Textual's", **size)


async def measure(make: Callable[[Sequence[Row]], Widget], rows: Sequence[Row]) -> dict[str, Cost]:
    """Opens a list and presses keys; what each frame cost."""
    costs = {}
    began = time.process_time()
    app = ListApp(make, rows)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        costs["first frame"] = Cost(time.process_time() - began, app.written, app.by_textual)
        app.screen.focus_next()
        await pilot.pause()
        for key in KEYS:
            app.written = app.by_textual = 0
            began = time.process_time()
            await pilot.press(OF_DATA_TABLE.get(key, key) if make is data_table else key)
            await pilot.wait_for_scheduled_animations()
            costs[key] = Cost(time.process_time() - began, app.written, app.by_textual)
    return costs


if __name__ == "__main__":
    main()
