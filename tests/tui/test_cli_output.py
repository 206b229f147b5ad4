"""Tables that commands print, measured in terminal cells, and progress."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Sequence

import msgspec
import pytest
from rich.cells import cell_len

from tfckpt_tui.cli.output import ReadProgress, print_json, print_table
from tfckpt_tui.reports.base import LazyRecords, Report

NAMES = ["plain", "損失", "한글", "e\u0301te\u0301", "🔥", "👩‍🔬", "☁️", "ｗｉｄｅ"]


@pytest.mark.parametrize("aligned", [set(), {0}], ids=["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_columns_line_up_whatever_a_name_is_written_in(
    capsys: pytest.CaptureFixture[str], name: str, aligned: set[int]
) -> None:
    print_table(("NAME", "STATE"), [(name, "verified"), ("ckpt-100", "verified")], right=aligned)
    rows = capsys.readouterr().out.splitlines()[1:]
    starts = {cell_len(row.partition("verified")[0]) for row in rows}
    assert starts == {len("ckpt-100") + 2}


class Item(msgspec.Struct, frozen=True):
    name: str
    values: dict[str, float]
    more: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class ItemsReport(Report, frozen=True, kw_only=True):
    items: Sequence[Item]
    first: Item | None
    left_out: int | msgspec.UnsetType = msgspec.UNSET


ITEMS = (
    Item("a\udcff\n\u202e", {}),
    Item("損失", {"x": 1e-05, "nan": math.nan, "big": 1e300}, ("a", "b")),
    Item("c", {"y": 3}, ()),
)


@pytest.mark.parametrize("items", [ITEMS, ITEMS[:1], ()])
@pytest.mark.parametrize("first", [None, *ITEMS])
def test_json_is_printed_item_by_item_as_if_at_once(capsys, items, first) -> None:
    report = ItemsReport(items=items, first=first)
    print_json(msgspec.structs.replace(report, items=LazyRecords(items, lambda item: item)))
    plain = {"schema": 1, **msgspec.to_builtins(report)}
    assert capsys.readouterr().out == json.dumps(plain, indent=2) + "\n"


def test_sizes_add_up_to_the_progress_that_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    seconds = itertools.count()
    meter = ReadProgress("reading", clock=lambda: next(seconds))
    add = meter.sum_to(3_000)
    for _ in range(3):
        add(1_000)
    meter.close()
    shown = capsys.readouterr().err.split("\r\x1b[K")
    assert shown == [
        "",
        "reading: 1.00 KB of 3.00 KB, 1.00 KB/s, 2.0 s left",
        "reading: 2.00 KB of 3.00 KB, 1.00 KB/s, 1.0 s left",
        "reading: 3.00 KB of 3.00 KB, 1.00 KB/s, 0 ms left",
        "",
    ]
