"""Tables that commands print, measured in terminal cells."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from tfckpt_tui.cli.output import print_table

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
