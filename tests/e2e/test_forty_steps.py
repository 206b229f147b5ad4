"""The tour of docs/get-started/tour.md, step by step as it is written there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from terminal import Terminal
from test_tour import TOOL_WITH_SMALL_DEMO, processes_of, small_demo_environment

from documentation import undocumented

pytestmark = [pytest.mark.tensorflow, pytest.mark.e2e]

TOUR = Path(__file__).parents[2] / "docs" / "get-started" / "tour.md"
SPECIAL = {"space": " ", "right": "\x1b[C"}
LIMIT_SECONDS = 60


@dataclass(frozen=True)
class Step:
    number: int
    keys: tuple[str, ...]
    words: str
    is_gone: bool


def steps() -> list[Step]:
    row = re.compile(r"^\| (\d+) \|(.*)\|.*\| (~~)?`([^`]+)`(?:~~)? \|$", re.MULTILINE)
    return [
        Step(int(number), tuple(re.findall(r"`([^`]+)`", keys)), words, bool(is_gone))
        for number, keys, is_gone, words in row.findall(TOUR.read_text())
    ]


def test_no_step_is_left_out():
    numbers = [step.number for step in steps()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 40


@pytest.mark.timeout(900)
def test_each_step_does_what_the_tour_says(tmp_path):
    directory = tmp_path / "run"
    command = [*TOOL_WITH_SMALL_DEMO, "demo", "--dir", str(directory)]
    environment = small_demo_environment(directory)
    try:
        with Terminal(command, columns=130, rows=44, environment=environment) as app:
            app.wait_for(r"ckpt-200 ", 120)
            for step in steps():
                app.press(*(SPECIAL.get(key, key) for key in step.keys))
                wait = app.wait_until_gone if step.is_gone else app.wait_for
                try:
                    wait(re.escape(step.words), LIMIT_SECONDS)
                except AssertionError as error:
                    raise AssertionError(f"step {step.number}: {error}") from None
            app.press("q")
            assert app.process.wait(60) == 0
        assert undocumented(directory) == []
    finally:
        for process in processes_of(directory):
            process.kill()
