"""The app shows the alerts of a run in its header, above the events, and with what to do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from app_driving import opened, top, until, until_screen, until_shown
from rundir_factory import RunFactory

from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.heartbeats.process_ids import process_namespace
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import NotFiniteMetric, SaveStatus
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.dashboard import DashboardScreen
from tfckpt_tui.app.dialogs.launch import LaunchDialog
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.app.widgets.run.workers import Workers

FAILING = SaveStatus(
    failed=7,
    problem="worker 0: [Errno 30] Read-only file system\x1b[2J",
    saved_step=400,
    unsaved_steps=38,
)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_failing_saves_are_in_the_header_the_events_and_on_a_page(
    live: RunFactory, size: tuple[int, int]
) -> None:
    live.live_worker(0, saves=FAILING)
    async with opened(live.run, size=size) as pilot:
        await until_shown(pilot, "✗ 7 saves failed")
        assert "7 saves failed" in top(pilot.app).splitlines()[0]
        await until_shown(pilot, "✗ The last 7 saves failed: worker 0: [Errno 30]")
        await until_shown(pilot, "✗ 1 alert  o shows what to do")
        assert "\x1b" not in top(pilot.app)
        await pilot.press("o")
        await until_shown(pilot, "alerts and diagnostics")
        await until(
            pilot,
            lambda: "save with the key s." in " ".join(top(pilot.app).split()),
            "the key that helps",
        )
        live.live_worker(0, saves=SaveStatus(saved_step=438))
        await until_shown(pilot, "There are no alerts and no diagnostics.")


async def test_problems_that_the_events_count_are_read_in_full_on_the_page(
    live: RunFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    live.run.job_file.write_bytes(b'{"schema": 1, 3: 4}')
    problem = "job.json is not a valid BatchJob: JSON is malformed"
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_shown(pilot, "✗ 1 problem  o shows them")
        await pilot.press("o")
        await until(
            pilot,
            lambda: f"{problem}: object keys" in " ".join(top(pilot.app).split()),
            "the whole sentence",
        )
        live.run.job_file.unlink()
        await until_shown(pilot, "There are no alerts and no diagnostics.")


async def test_the_stop_dialog_says_that_saves_fail(live: RunFactory) -> None:
    live.live_worker(0, saves=FAILING)
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_shown(pilot, "✗ 7 saves failed")
        await pilot.press("x")
        await until_shown(
            pilot, "✗ 7 saves failed. If the next one fails too, the run is not stopped."
        )


async def test_a_loss_of_nan_is_in_the_header_the_history_and_the_plan(live: RunFactory) -> None:
    of_nan = {"loss": None, "norm": None}
    for step in (420, 430):
        live.checkpoint(step, 1, metrics=of_nan, not_finite={"loss": "nan", "norm": "inf"})
    lost = [NotFiniteMetric(name="loss", value="nan", step=411)]
    live.live_worker(0, loss=None, metrics={"loss": None}, not_finite=lost)
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_shown(pilot, "✗ loss is NaN")
        await until_shown(pilot, "✗ NaN  ✗ norm")
        await pilot.press("o")
        await until(
            pilot,
            lambda: "go back to it with the key r." in " ".join(top(pilot.app).split()),
            "the key that goes back",
        )
        await pilot.press("escape", "r")
        await until_shown(pilot, "loss ✗ NaN")
        await until_shown(pilot, "norm ✗ inf")
        await pilot.press("escape", "p", "2")
        await until_shown(pilot, "the newest with finite metrics")


async def test_a_run_that_reports_no_loss_does_not_show_one_of_nan(live: RunFactory) -> None:
    live.live_worker(0, loss=None, metrics={"score": 0.5})
    live.live_worker(1, loss=None, metrics={"score": 0.5})
    async with opened(live.run, size=(80, 24)) as pilot:
        await until(pilot, lambda: "loss NaN" not in top(pilot.app), "a header without a loss")
        assert "NaN" not in top(pilot.app)


async def test_hostile_metrics_are_shown_safely_and_with_what_they_are(live: RunFactory) -> None:
    name = "validation_sparse_categorical_accuracy_of_the_second_head\x1b[2J\u202e"
    live.checkpoint(430, 1, metrics={"loss": None}, not_finite={"loss": "1e5, or so"})
    lost = [NotFiniteMetric(name=name, value="nan", step=411)]
    live.live_worker(0, metrics={"loss": 2.144, name: None}, not_finite=lost)
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_shown(pilot, "is NaN")
        first = top(pilot.app).splitlines()[0]
        assert "✗ validation" in first
        assert "is NaN" in first
        assert "loss 2.144" in first
        await until_shown(pilot, "✗ NaN")
        assert not {"\x1b", "\u202e"} & set(top(pilot.app))


async def test_a_failed_run_shows_its_reason_and_the_keys_that_help(ended: RunFactory) -> None:
    for index in (0, 1):
        ended.worker(index, namespace=process_namespace(), pid=2**22 + 1)
    root = str(ended.run.root)
    options = LaunchOptions(run_directory=root, command=("train.sh",), working_directory=root)
    store(ended.run.launch_file, options)
    async with opened(ended.run, size=(100, 30)) as pilot:
        await until_shown(pilot, "✗ Worker 0 is gone (process 4194305).")
        assert "✗ Worker 0 is gone (process 4194305)" in top(pilot.app).splitlines()[0]
        await pilot.press("o")
        await until(
            pilot,
            lambda: "key L." in top(pilot.app),
            "the key that launches",
        )
        await pilot.press("L")
        await until_screen(pilot, LaunchDialog)
        await pilot.press("escape")
        await until_screen(pilot, DashboardScreen)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_dashboard_says_that_a_worker_is_stopped_by_a_signal(
    live: RunFactory, size: tuple[int, int]
) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        try:
            os.kill(process.pid, signal.SIGSTOP)
            began = psutil.Process(process.pid).create_time()
            live.worker(
                1,
                host=socket.gethostname(),
                namespace=process_namespace(),
                pid=process.pid,
                process_started_at=began,
                updated_at=time.time() - 100,
            )
            async with opened(live.run, size=size) as pilot:
                await until_shown(pilot, "is stopped by a signal")
        finally:
            process.kill()


async def test_workers_in_trouble_come_first_where_not_all_fit(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create(worker_count=64)
    made.checkpoint(100)
    for index in range(64):
        interval = 1.0 if index == 40 else 3600.0
        made.worker(index, updated_at=made.now - 100, interval_seconds=interval, last_step_at=None)
    async with opened(made.run, size=(80, 29)) as pilot:
        table = pilot.app.screen.query_one(Workers)
        assert "40" in table.row_line(0, 78).spans[1][0]
        assert table.visible_rows() > 4, "a short history leaves its room to them"
        assert pilot.app.screen.query_one(History).region.height >= 4


async def test_a_run_without_its_supervisor_says_so(live: RunFactory) -> None:
    worker = live.live_worker(0)
    gone = SupervisorStatus(
        pid=2**22 + 1,
        host=worker.host,
        process_started_at=live.now - 100,
        updated_at=live.now,
        interval_seconds=1.0,
        state=SupervisorState.RUNNING,
        namespace=process_namespace(),
    )
    store(live.run.supervisor_status, gone)
    async with opened(live.run, size=(100, 30)) as pilot:
        await until_shown(pilot, "✗ the supervisor is gone")
        await until_shown(pilot, "✗ The supervisor is gone: the workers run on")
