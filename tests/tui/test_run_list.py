"""The list of runs: its columns, sort orders and marks, and what reading it again costs."""

from __future__ import annotations

import math
import os
import re
import threading
import time
from pathlib import Path

import pytest
from app_driving import top, until, until_shown
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rundir_factory import RunFactory, two_branches

from tfckpt_trainer.errors import TfckptError
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_tui.app.runs_app import RunsApp, RunsRead
from tfckpt_tui.app.widgets.run.run_list import BARS, sparkline
from tfckpt_tui.services.runs import job_list
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.file_changes import KEPT_SECONDS, KEPT_SHARE, Kept
from tfckpt_tui.services.runs.job_list import JobList
from tfckpt_tui.services.runs.reading import ProcessReader
from tfckpt_tui.services.runs.timed_reads import TimedReads
from tfckpt_tui.settings.config import AppSection, Config
from waiting import MOST_SECONDS


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """Three live runs with other losses and steps, and one that has ended."""
    root = tmp_path / "fleet"
    for number, (loss, step) in enumerate([(2.0, 300), (1.0, 100), (3.0, 200)]):
        made = RunFactory(root / f"live-{number}").create(worker_count=1, total_steps=1000)
        made.series(0, step, 0)
        made.checkpoint(step)
        made.live_worker(0, loss=loss, step=step, total_steps=1000, step_seconds=0.5)
    ended = RunFactory(root / "ended").create(worker_count=1, total_steps=1000)
    ended.checkpoint(50)
    ended.worker(
        0, activity=Activity.EXITED, step=50, total_steps=1000, updated_at=ended.now - 7200
    )
    return root


def rows(app: RunsApp) -> list[str]:
    return [run.root.name for run in app.runs.rows]


async def test_a_run_shows_its_loss_rate_time_left_disk_and_host(fleet: Path) -> None:
    app = RunsApp(fleet, Config())
    async with app.run_test(size=(200, 20)) as pilot:
        await until_shown(pilot, "3 training")
        (line,) = (line for line in top(app).splitlines() if "live-0" in line)
    host = os.uname().nodename
    for part in ("training", "300", "30%", "2.000", "412/s", "5m", host[:8]):
        assert part in line
    assert any(bar in line for bar in BARS[1:])
    assert " B" in line


async def test_the_narrowest_screen_has_state_loss_curve_and_name(fleet: Path) -> None:
    app = RunsApp(fleet, Config())
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "3 training")
        (line,) = (line for line in top(app).splitlines() if "live-1" in line)
    assert all(part in line for part in ("training", "10%", "1.000", BARS[0]))


@pytest.mark.parametrize("width", [80, 120])
async def test_a_name_gets_the_room_of_columns_without_values(tmp_path: Path, width: int) -> None:
    name = "resnet50-imagenet-0017"
    made = RunFactory(tmp_path / name).create(worker_count=1)
    made.checkpoint(50)
    app = RunsApp(tmp_path, Config())
    async with app.run_test(size=(width, 24)) as pilot:
        await until_shown(pilot, "1 run")
        assert name in top(app)


async def test_runs_are_sorted_by_a_column_and_back(fleet: Path) -> None:
    app = RunsApp(fleet, Config())
    async with app.run_test(size=(160, 20), notifications=True) as pilot:
        await until_shown(pilot, "3 training")
        await pilot.press("equals_sign")
        await until_shown(pilot, "Not now: reverse")
        await pilot.press("greater_than_sign", "greater_than_sign")
        await until_shown(pilot, "step ▼")
        assert rows(app)[:3] == ["live-0", "live-2", "live-1"]
        await pilot.press("equals_sign")
        await until_shown(pilot, "step ▲")
        assert rows(app)[0] == "ended"
        line = top(app).splitlines()[1]
        for sign, first in (("loss ▲", "live-1"), ("loss ▼", "live-2")):
            await pilot.click("#runs", offset=(line.index("loss") + 2, 1))
            await until_shown(pilot, sign)
            assert rows(app)[0] == first
        await pilot.press(*4 * ["less_than_sign"])
        await pilot.pause()
        assert rows(app)[-1] == "ended"


async def test_the_cursor_is_on_the_first_run_until_a_key_moves_it(fleet: Path) -> None:
    app = RunsApp(fleet, Config())
    async with app.run_test(size=(100, 20)) as pilot:
        await until_shown(pilot, "4 runs")
        newest = app._newest
        assert newest is not None
        app.runs.show_runs(newest.runs[-1:], newest.at)
        app.runs.show_runs(newest.runs, newest.at)
        assert app.runs.cursor == 0
        await pilot.press("down", "up")
        app.runs.show_runs((*newest.runs[1:], newest.runs[0]), newest.at)
        assert app.runs.selected == newest.runs[0]


async def test_the_bell_rings_when_a_run_of_the_list_fails(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    app = RunsApp(fleet, Config(app=AppSection(bell=[EventKind.FAILED])))
    monkeypatch.setattr(app, "notify_terminal", told.append)
    monkeypatch.setattr(app, "bell", lambda: told.append("bell"))
    async with app.run_test(size=(100, 20)) as pilot:
        await until_shown(pilot, "4 runs")
        newest = app._newest
        assert newest is not None
        app._stopped.set()
        app._reads = 2
        live, *others = newest.runs
        for state in (RunState.PAUSED, RunState.UNKNOWN, RunState.FAILED, RunState.FAILED):
            app.on_runs_read(RunsRead([replace(live, state=state), *others], newest.at))
        assert told == []
        app.on_runs_read(RunsRead(newest.runs, newest.at))
        app.on_runs_read(RunsRead([replace(live, state=RunState.FAILED), *others], newest.at))
        assert told == ["bell", f"{live.root.name}: failed"]


async def test_marks_stay_on_their_runs_and_esc_removes_them(fleet: Path) -> None:
    app = RunsApp(fleet, Config())
    async with app.run_test(size=(100, 20)) as pilot:
        await until_shown(pilot, "3 training")
        marked = rows(app)[:2]
        await pilot.press("space", "space")
        await until_shown(pilot, "2 marked")
        assert [run.root.name for run in app.runs.marked] == marked
        await pilot.press("slash", *"ended", "enter", "M")
        await until_shown(pilot, "3 marked")
        await pilot.press("escape")
        await until_shown(pilot, "4 runs")
        assert len(app.runs.chosen) == 3
        await pilot.press("escape")
        await until(pilot, lambda: "marked" not in top(app), "no marks")
        assert len(app.runs.chosen) == 1


def listed(jobs: JobList, *roots: Path) -> dict[str, RunAccount]:
    found = jobs.read(roots, with_others=False, ask=False, seconds=5.0)
    return {account.root.name: account for account in found}


def test_a_run_that_has_ended_is_read_again_only_once_a_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = two_branches(tmp_path / "run", time.time() - 7200)
    for place, _, names in os.walk(made.run.root):
        for name in (*names, "."):
            os.utime(Path(place, name), (made.now, made.now))
    clock, reads = [0.0], []
    monkeypatch.setattr(
        ProcessReader,
        "read",
        lambda *args, **more: reads.append(args) or READ(*args, **more),
    )
    jobs = JobList(clock=lambda: clock[0])
    first = listed(jobs, made.run.root)["run"]
    for _ in range(3):
        clock[0] += job_list.ENDED_SECONDS
        assert listed(jobs, made.run.root)["run"] is first
    assert len(reads) == 1
    made.worker(0, step=450)
    clock[0] += job_list.ENDED_SECONDS / 2
    assert listed(jobs, made.run.root)["run"].step == first.step
    clock[0] += job_list.ENDED_SECONDS
    assert listed(jobs, made.run.root)["run"].chief.status.step == 450


READ = ProcessReader.read


def test_a_run_that_ended_days_ago_is_looked_at_less_often(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", time.time() - 3 * 86_400)
    clock = [0.0]
    jobs = JobList(clock=lambda: clock[0])
    assert listed(jobs, made.run.root)["run"].state is RunState.FAILED
    made.live_worker(0, step=450)
    clock[0] += 2 * job_list.ENDED_SECONDS
    assert listed(jobs, made.run.root)["run"].state is RunState.FAILED
    clock[0] += job_list.LONG_ENDED_SECONDS
    assert listed(jobs, made.run.root)["run"].chief.status.step == 450


@pytest.mark.parametrize(
    ("unchanged_for", "kept_for"), [(60.0, KEPT_SECONDS), (86_400.0, 86_400 * KEPT_SHARE)]
)
def test_what_was_read_is_kept_the_longer_no_file_had_changed(
    unchanged_for: float, kept_for: float
) -> None:
    now, reads = 2e9, []
    signature = ((int((now - unchanged_for) * 1e9), 1), (0, 0))
    kept = Kept[None]()
    for at in (now, now + 0.9 * kept_for, now + 1.1 * kept_for):
        kept.get(signature, at, lambda at=at: reads.append(at))
    assert reads == [now, now + 1.1 * kept_for]


def test_what_was_read_of_files_that_just_changed_is_not_kept() -> None:
    now, reads = 2e9, []
    kept = Kept[None]()
    for at in (now, now + 0.1):
        kept.get(((int((now - 1.0) * 1e9), 1),), at, lambda at=at: reads.append(at))
    assert len(reads) == 2


def test_a_live_run_shows_each_heartbeat_and_point(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create(worker_count=1)
    jobs = JobList()
    for step in (10, 20):
        made.live_worker(0, step=step)
        made.series(step, step, 0)
        found = listed(jobs, made.run.root)["run"]
        assert found.step == step
        assert found.glance is not None
        assert len(found.glance.losses) == step // 10


def test_a_link_counts_once_and_a_strange_file_not_at_all(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create(worker_count=1)
    made.checkpoint(10)
    jobs = JobList()
    used = listed(jobs, made.run.root)["run"].glance.disk_used
    index = made.run.root / "ckpt-10.index"
    os.link(index, made.run.root / "kept-10.index")
    (made.run.root / "notes.bin").write_bytes(bytes(1000))
    assert listed(JobList(), made.run.root)["run"].glance.disk_used == used
    assert used == sum(path.stat().st_size for path in made.run.root.glob("ckpt-10.*"))


def test_the_state_of_workers_is_a_part_of_a_checkpoint(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create(worker_count=1)
    made.checkpoint(10)
    used = listed(JobList(), made.run.root)["run"].glance.disk_used
    state = made.run.worker_state_directory("ckpt-10")
    state.mkdir(parents=True, exist_ok=True)
    (state / "worker-7.data-00000-of-00001").write_bytes(bytes(1000))
    (state.parent / "no directory").write_bytes(bytes(1000))
    assert listed(JobList(), made.run.root)["run"].glance.disk_used == used + 1000


def test_a_series_of_garbage_has_no_sparkline(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create(worker_count=1)
    made.run.series.write_bytes(b"\xff" * 100_000 + b'\n{"at": 1}\n{"at": 2, "step"')
    assert listed(JobList(), made.run.root)["run"].glance.losses == ()


def test_a_directory_that_hangs_keeps_no_other_waiting(tmp_path: Path) -> None:
    goes_on = threading.Event()
    hung = [tmp_path / f"hung-{number}" for number in range(3)]
    others = [tmp_path / f"run-{number}" for number in range(100)]

    def read(path: Path) -> str:
        if path in hung:
            goes_on.wait(MOST_SECONDS)
        return path.name

    reads = TimedReads(read)
    try:
        answers = reads.collect([*hung, *others], 0.2)
        assert [answers[path].result for path in others] == [path.name for path in others]
        assert all(answers[path].result is None for path in hung)
        assert all(answers[path].silent_seconds > 0 for path in hung)
    finally:
        goes_on.set()


def test_a_limit_of_threads_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        # As Python does at the limit of a user's memory or processes.
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(TfckptError, match=r"limits of memory \(`ulimit -v`\)"):
        TimedReads(str).collect([Path("run")], 60.0)


FLOATS = st.one_of(st.none(), st.floats(width=64))


@given(st.lists(FLOATS, max_size=60), st.integers(0, 20))
def test_a_sparkline_fits_and_marks_what_is_not_finite(
    values: list[float | None], width: int
) -> None:
    line = sparkline(values, width)
    assert len(line) == min(width, len(values))
    assert set(line) <= {*BARS, "✗"}
    broken = any(value is None or not math.isfinite(value) for value in values)
    assert ("✗" in line) == (broken and width > 0)


def test_a_sparkline_shows_the_course() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 8) == BARS
    assert sparkline([8, 1], 8) == "█▁"
    assert sparkline([5.0] * 4, 4) == "▁▁▁▁"


async def test_the_footer_and_the_help_have_the_keys_that_the_user_chose(tmp_path: Path) -> None:
    RunFactory(tmp_path / "run").create()
    app = RunsApp(tmp_path, Config(keys={"save": "f9,s"}))
    async with app.run_test(size=(120, 60)) as pilot:
        await until_shown(pilot, "f9 save")
        await pilot.press("question_mark")
        await until_shown(pilot, "Keys of the list of runs")
        assert re.search(r"f9 +save +Saves a checkpoint", top(app))
