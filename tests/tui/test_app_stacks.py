"""The page that shows at which line each worker is."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

from app_driving import top, until
from rundir_factory import two_branches, without_heartbeats
from test_cli_stacks import answer

from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.screens.stacks import _lines_of
from tfckpt_tui.reports.stacks import ThreadFacts, WorkerStacksFacts


async def test_the_page_asks_all_workers_and_shows_who_answers(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", live=True)
    threading.Thread(target=partial(answer, made), daemon=True).start()
    app = TfckptApp(made.run)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        await pilot.press("S")
        await until(pilot, lambda: "asking the workers" in top(app), "the question")
        await until(pilot, lambda: "1 of 2 workers answered" in top(app), "the answer")
        assert "train.py:7: step(batch)" in top(app)
        assert "… 3 more" in top(app)
        assert "It did not answer" in top(app)
        await pilot.press("a")
        await until(pilot, lambda: "/lib/read.py:1 in read" in top(app), "all threads")
        assert "/lib/frame.py:0" in top(app)


def test_the_number_of_the_line_is_shown_however_long_the_path_is() -> None:
    thread = ThreadFacts(
        name="MainThread",
        is_main=True,
        script_line=f"/home/{'a' * 90}/train.py:417: loss = step(next(batches))",
        frames=(),
    )
    host = "node-17.cluster"
    worker = WorkerStacksFacts(worker=0, host=host, problem="", threads=(thread,))
    (first,) = _lines_of(worker, 76, shows_all=False)
    assert first.width <= 76
    assert "train.py:417" in "".join(text for text, _ in first.spans)
    silent = WorkerStacksFacts(worker=0, host=host, problem="It did not answer. " * 5, threads=())
    lines = [*_lines_of(silent, 76, shows_all=False)]
    assert len(lines) > 1
    assert all(one.width <= 76 for one in lines)


async def test_without_workers_the_key_says_so(tmp_path: Path) -> None:
    app = TfckptApp(without_heartbeats(two_branches(tmp_path / "run")).run)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        await pilot.press("S")
        await until(pilot, lambda: "No worker runs." in top(app), "the reason")


async def test_workers_that_ended_meanwhile_are_a_problem_on_the_page(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", live=True)
    app = TfckptApp(made.run)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        without_heartbeats(made)
        await pilot.press("S")
        await until(pilot, lambda: "No worker of" in top(app), "the problem")
