"""The failure card: what it says of what was recorded, and its keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from app_driving import top, until
from hypothesis import given
from hypothesis import strategies as st
from rundir_factory import FAULT, LOSS, RunFactory, fail, stall, two_branches

from tfckpt_trainer.rundir.heartbeats.process_ids import process_namespace
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.failure import OutOfMemory, ScriptFault, WorkerLoss
from tfckpt_trainer.rundir.records.run import SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.app.app import TfckptApp
from tfckpt_tui.app.widgets.run.failure_card import FailureCard
from tfckpt_tui.reports.run_facts import FailureFacts
from tfckpt_tui.services.runs.failure_card import failure_rows, failure_text
from tfckpt_tui.services.runs.reading import read_account


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    return fail(two_branches(tmp_path / "run"))


def card(made: RunFactory) -> FailureFacts | None:
    return read_account(made.run, made.now)[1].failure


def told(made: RunFactory) -> list[tuple[str, str]]:
    failure = card(made)
    assert failure is not None
    return list(failure_rows(replace_at(failure), made.now))


def replace_at(failure: FailureFacts) -> FailureFacts:
    return msgspec.structs.replace(failure, at=None)


def test_the_card_says_what_happened_and_what_is_lost(made: RunFactory) -> None:
    assert told(made) == [
        ("failure", "Worker 1 ended with status 1, at step 438."),
        ("error", "KeyError: 'x'"),
        ("line", "train.py:41 in load"),
        ("", "  with open(path) as f:"),
        ("resume", "ckpt-b1-400, step 400; 38 steps are lost (4.5 s)."),
        ("next", "All 3 restarts are used. Nothing starts it again."),
        ("worker 0", "ended because it lost a worker."),
        ("memory", "912 MB of 16.0 GB at its last heartbeat. 41.0 GB free on the disk."),
        ("log", "epoch 3"),
        ("log", "KeyError: 'x'"),
    ]


@pytest.mark.parametrize(
    ("hangs", "step", "words"),
    [
        (False, 438, "; at least 38 steps are lost (4.5 s)."),
        (False, 400, "; steps after the last heartbeat may be lost."),
        (True, 438, "; at least 38 steps are not saved (4.5 s)."),
        (True, 400, "; steps after the last heartbeat may not be saved."),
    ],
)
def test_what_a_process_did_after_its_last_heartbeat_is_unknown(
    made: RunFactory, hangs: bool, step: int, words: str
) -> None:
    """A signal has killed or stopped it."""
    failure = card(made)
    assert failure is not None
    ended = msgspec.structs.replace(
        failure, hangs=hangs, exit_code=None if hangs else -9, lost_steps=step - 400
    )
    assert words in dict(failure_rows(ended, made.now))["resume"]


def test_a_run_that_trains_has_no_card(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", live=True)
    made.event_log(EventKind.WORKER_LOST, "Worker 1 ended.", 60, details=msgspec.to_builtins(LOSS))
    made.event_log(EventKind.RESTART, "Started 2 workers again.", 50)
    assert card(made) is None


def test_a_loss_that_the_supervisor_has_noted_is_no_hang(made: RunFactory) -> None:
    made.live_worker(0)
    made.worker(1, updated_at=made.now - 60)
    failure = card(made)
    assert failure is not None
    assert (failure.hangs, failure.error) == (False, "KeyError: 'x'")


def test_a_failure_before_the_newest_start_is_not_shown(made: RunFactory) -> None:
    made.event_log(EventKind.START, "Started 2 workers.", 10)
    made.worker(1, activity=Activity.EXITED, ending=Ending.FAILED, detail="x.py:1: ValueError: no")
    failure = card(made)
    assert failure is not None
    assert failure.error == "x.py:1: ValueError: no"
    assert failure.log == ()


def test_without_a_supervisor_the_first_worker_that_failed_tells(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run")
    made.worker(0, activity=Activity.EXITED, ending=Ending.FAILED, updated_at=made.now - 5)
    made.worker(
        1,
        activity=Activity.EXITED,
        ending=Ending.FAILED,
        updated_at=made.now - 9,
        fault=FAULT,
        detail=f"{FAULT.place}: {FAULT.error}",
    )
    failure = card(made)
    assert failure is not None
    assert (failure.worker, failure.source) == (1, "with open(path) as f:")
    assert failure.others[0].words == "failed."


def test_workers_that_failed_alike_are_told_together(made: RunFactory) -> None:
    made.create(worker_count=6)
    for index in (2, 3, 5):
        made.worker(index, activity=Activity.EXITED, ending=Ending.FAILED, fault=FAULT)
    made.worker(4, activity=Activity.EXITED, ending=Ending.PEER_LOST)
    labels = dict(told(made))
    assert labels["workers 2-3, 5"] == "failed in the same way."
    assert labels["workers 0, 4"] == "ended because it lost a worker."


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (OutOfMemory.COUNTED, "The kernel killed it because memory ran out."),
        (OutOfMemory.LOGGED, "Slurm reports that memory ran out."),
        (OutOfMemory.ON_HOST, "perhaps this one."),
    ],
)
def test_lack_of_memory_is_said_as_surely_as_it_is_known(
    tmp_path: Path, evidence: OutOfMemory, words: str
) -> None:
    loss = WorkerLoss(worker=1, exit_code=-9, signal="SIGKILL", out_of_memory=evidence)
    made = fail(two_branches(tmp_path / "run"), loss)
    assert words in dict(told(made))["cause"]
    assert told(made)[0] == ("failure", "Worker 1 was killed by SIGKILL.")


def test_a_run_that_hangs_says_where_each_worker_stands(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run")
    stall(made)
    labels = dict(told(made))
    assert labels["worker 0"] == "train.py:9: step()"
    assert labels["worker 1"] == "data.py:3: time.sleep(9)"
    assert labels["next"] == "No supervisor watches this run. Nothing starts it again."


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (1, "The others train on. The supervisor starts it again, or else all workers."),
        (2, "The supervisor ends the other workers, and then starts all again or gives up."),
    ],
)
def test_who_trains_on_without_a_worker_is_said(tmp_path: Path, lost: int, words: str) -> None:
    made = two_branches(tmp_path / "run").create(worker_count=3)
    for index, job in enumerate(("chief", "worker", "ps")):
        alive = made.live_worker(index, job=job)
    fields = {"pid": alive.pid, "host": alive.host, "updated_at": made.now - 0.4}
    fields["namespace"] = process_namespace()
    gone = alive.process_started_at - 99
    made.worker(lost, job="ps" if lost == 2 else "worker", process_started_at=gone, **fields)
    supervisor = SupervisorStatus(
        process_started_at=alive.process_started_at,
        interval_seconds=3600.0,
        state=SupervisorState.RUNNING,
        **fields,
    )
    store(made.run.supervisor_status, supervisor)
    assert dict(told(made))["next"] == words


async def test_a_run_that_hangs_names_what_ends_it(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run")
    stall(made)
    failure = card(made)
    assert failure is not None
    command = f"`tfckpt-tui stop --force {made.run.root}`"
    assert any(command in text for text in failure_text(failure, made.now, made.run.root))
    app = running(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "processes with the key X." in joined(app), "the key")


def joined(app: TfckptApp) -> str:
    return " ".join(top(app).split())


def test_hundreds_of_workers_that_wait_alike_take_one_line(tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run").create(worker_count=256)
    stacks = {str(index): "train.py:9: step()" for index in range(256)} | {"7": "data.py:3: lock()"}
    made.event_log(EventKind.STALLED, "No worker made a step.", 5, details={"stacks": stacks})
    for index in range(256):
        made.worker(index, step_seconds=0.1, last_step_at=made.now - 66)
    labels = dict(told(made))
    assert labels["workers 0-6, 8-255"] == "train.py:9: step()"
    assert labels["worker 7"] == "data.py:3: lock()"


HOSTILE = "\x1b[2J\x9b31m\u202e" + "x" * 100_000 + "\nTraceback (most recent call last):"


def test_hostile_texts_reach_no_terminal(tmp_path: Path) -> None:
    fault = ScriptFault(place=HOSTILE, function=HOSTILE, source=HOSTILE, error=HOSTILE)
    loss = replace_loss(LOSS, fault=fault, log=[HOSTILE] * 500, verdict=HOSTILE, signal=HOSTILE)
    made = fail(two_branches(tmp_path / "run"), loss)
    rows = told(made)
    assert len(rows) < 40
    for _, text in rows:
        assert text.isprintable()
        assert len(text) < 2000


def replace_loss(loss: WorkerLoss, **changes: Any) -> WorkerLoss:
    return msgspec.structs.replace(loss, **changes)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@given(value=json_values, field=st.sampled_from([*WorkerLoss.__struct_fields__, "stacks"]))
def test_no_details_of_an_event_end_the_account(
    tmp_path_factory: pytest.TempPathFactory, value: Any, field: str
) -> None:
    made = two_branches(tmp_path_factory.mktemp("hostile") / "run")
    for kind in (EventKind.DEGRADED, EventKind.WORKER_LOST):
        made.event_log(kind, "?", 1, details={"worker": 1, field: value})
    failure = card(made)
    if failure is not None:
        list(failure_rows(failure, made.now))


def running(made: RunFactory) -> TfckptApp:
    return TfckptApp(made.run)


async def test_the_card_opens_the_log_of_the_worker_that_failed(made: RunFactory) -> None:
    for index in range(2):
        made.run.worker_log(index).write_text(f"printed by {index}\n")
    app = running(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "KeyError: 'x'" in top(app), "the card")
        await pilot.press("f")
        await until(pilot, lambda: "printed by 1" in top(app), "the log")
        assert "printed by 0" not in top(app)


async def test_a_long_error_is_shown_to_its_end(tmp_path: Path) -> None:
    fault = replace_fault("ValueError: The start failed: " + "word " * 50 + "the end")
    made = fail(two_branches(tmp_path / "run"), replace_loss(LOSS, fault=fault))
    app = running(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "the end" in top(app), "the end of the error")


def replace_fault(error: str) -> ScriptFault:
    return msgspec.structs.replace(FAULT, error=error)


async def test_with_the_focus_the_card_has_keys_of_its_own(made: RunFactory) -> None:
    for index in range(2):
        made.run.worker_log(index).write_text(f"printed by {index}\n")
    app = running(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "KeyError: 'x'" in top(app), "the card")
        await pilot.click("#failure")
        await pilot.press("y")
        copied = app.clipboard.splitlines()
        assert copied[0] == str(made.run.root)
        assert "line      train.py:41 in load" in copied
        await pilot.press("n", "enter")
        await until(pilot, lambda: "printed by 0" in top(app), "the log")


async def test_the_card_goes_when_the_run_trains_again(made: RunFactory) -> None:
    app = running(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.screen.query_one(FailureCard).region.area, "the card")
        await pilot.click("#failure")
        made.event_log(EventKind.RESTART, "Started 2 workers again.")
        for index in range(2):
            made.live_worker(index)
        await until(pilot, lambda: not app.screen.query_one(FailureCard).region.area, "no card")
        assert "throughput" in top(app)
        made.run.worker_log(1).write_text("printed by 1\n")
        await pilot.press("f")
        await until(pilot, lambda: "printed by 1" in top(app), "the log of the earlier failure")
        await pilot.press("escape")
        assert app.screen.focused is app.screen.query_one("#history")


async def test_without_a_failure_the_key_says_so(tmp_path: Path) -> None:
    app = running(two_branches(tmp_path / "run", live=True))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until(pilot, lambda: app.snapshot, "the snapshot")
        await pilot.press("f")
        await until(pilot, lambda: "No worker failed or hangs." in top(app), "the reason")


async def test_panes_that_are_not_shown_get_no_focus(made: RunFactory) -> None:
    app = running(made)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "KeyError: 'x'" in top(app), "the card")
        seen = []
        for _ in range(4):
            await pilot.press("tab")
            assert app.screen.focused is not None
            seen.append(app.screen.focused.id)
        assert set(seen) == {"workers", "failure", "history"}
        await pilot.press("slash")
        assert app.screen.focused.id == "filter"


async def test_the_event_keeps_the_facts_line_by_line(made: RunFactory) -> None:
    app = running(made)
    async with app.run_test(size=(80, 40)) as pilot:
        await until(pilot, lambda: "KeyError: 'x'" in top(app), "the card")
        await pilot.press("J")
        await until(pilot, lambda: "fault place: train.py:41" in top(app), "the event")
        assert "source: with open(path) as f:" in top(app)
