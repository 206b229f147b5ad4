"""What a page says that the commands print is what they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documentation import load_tool
from tensorflow_processes import run_with_tensorflow

VARIES = [
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "WHEN"),
    (r"\d{8}T\d{6}-[0-9a-f]{6}", "ID"),
    (r"(?<= )(now|\d+[smhd])(?= )", "AGE"),
    (r"(?<=  )\S+@\S+.*$", "WHO"),
    (r" +", " "),
]
"""Times, ids, people, and the widths that follow from them."""


def normal(output: str, directory: Path) -> list[str]:
    """The lines of an output without what is another each time."""
    output = output.replace(f"{directory}/", "")
    for pattern, name in VARIES:
        output = re.sub(pattern, name, output, flags=re.MULTILINE)
    return [line.rstrip() for line in output.splitlines()]


def test_lines_that_differ_only_in_a_time_are_not_written_anew() -> None:
    before = "step   400\nsaved  2026-11-22 12:25:08\nsize   4 KB\n"
    now = "step   400\nbranch 0\nsaved  2026-11-23 01:02:03\nsize   5 KB\n"
    assert load_tool("make_session").with_times_of(before, now) == (
        "step   400\nbranch 0\nsaved  2026-11-22 12:25:08\nsize   5 KB\n"
    )


@pytest.mark.tensorflow
def test_the_session_of_the_page_is_what_the_commands_print(tmp_path: Path) -> None:
    module = load_tool("make_session")
    module.prepare(tmp_path, run_with_tensorflow)
    seen = list(module.session(module.PAGE.read_text(), tmp_path))
    assert len(seen) >= 8
    for command, said, printed in seen:
        assert normal(printed, tmp_path) == normal(said, tmp_path), (
            f"{command}: run `python docs/tools/make_session.py`"
        )
