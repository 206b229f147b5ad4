"""The restore dialog: which checkpoint, and whether it matches the model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from app_driving import opened, shown, top, until, until_shown
from rundir_factory import HYPERPARAMETERS, RunFactory, loss_at
from textual.pilot import Pilot
from textual.widgets import Input

from bundle_writing import write_floats
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.rundir.command_queue import CommandQueue
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, Derivation, SourceFacts
from tfckpt_trainer.rundir.records.command import Command, CommandKind
from tfckpt_trainer.rundir.records.worker import Activity, Ending
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.app.widgets.charts.chart import Chart
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.services.checkpoints.compatibility import check_compatibility
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import choose_start


@asynccontextmanager
async def asking(made: RunFactory, name: str) -> AsyncIterator[Pilot[int]]:
    async with opened(made.run) as pilot:
        pilot.app.screen.query_one(History).select(name)
        await pilot.press("r")
        await until_shown(pilot, "which checkpoint?")
        yield pilot


async def asked(pilot: Pilot[int], made: RunFactory) -> Command:
    box = CommandQueue(made.run)
    return await until(pilot, lambda: box.claim(time.time()), "a command")


@pytest.fixture
def changed(live: RunFactory) -> RunFactory:
    """A run whose checkpoint of step 200 is of a smaller model."""
    write_floats(live.run.root / "ckpt-200", (1.0, 2.0, 3.0))
    return live


async def test_what_fits_says_so(live: RunFactory) -> None:
    async with asking(live, "ckpt-200") as pilot:
        await until_shown(pilot, "Its variables match those of ckpt-b1-400.")
        await pilot.press("y")
        assert (await asked(pilot, live)).arguments == {
            "name": "ckpt-200",
            "partial": False,
            "values": {},
        }


@pytest.mark.parametrize("typed", ["100", "ckpt-100"])
async def test_what_is_in_the_trash_is_answered_with_the_key_that_brings_it_back(
    live: RunFactory, typed: str
) -> None:
    move_to_trash(live.run, ["ckpt-100"], by="test", now=time.time(), update_state_file=True)
    async with asking(live, "ckpt-200") as pilot:
        pilot.app.screen.query_one("#target", Input).value = typed
        await until_shown(pilot, "ckpt-100 is in the trash. To bring it back, cancel and press T.")
        await pilot.press("escape", "T", "u", "y")
        assert (await asked(pilot, live)).kind is CommandKind.UNDO


async def test_what_does_not_fit_can_be_restored_in_part(changed: RunFactory) -> None:
    record = changed.run.record("ckpt-200")
    record.unlink()
    async with asking(changed, "ckpt-200") as pilot:
        await until_shown(pilot, "1 variable does not match ckpt-b1-400.")
        assert "v is 3 in the checkpoint and 2 in the model" in top(pilot.app)
        await pilot.press("y")
        await pilot.pause()
        assert "which checkpoint?" in top(pilot.app)
        await pilot.press("p")
        assert (await asked(pilot, changed)).arguments == {
            "name": "ckpt-200",
            "partial": True,
            "values": {},
        }


async def test_a_checkpoint_made_from_others_is_no_model_though_a_start_was_chosen_from_it(
    ended: RunFactory,
) -> None:
    ended.checkpoint(400, 1, name="small", seconds_ago=300)
    write_floats(ended.run.root / "small", (1.0, 2.0, 3.0))
    made = Derivation(operation="edit", sources=[SourceFacts(name="ckpt-b1-400")])
    record = load(ended.run.record("small"), CheckpointRecord)
    store(ended.run.record("small"), msgspec.structs.replace(record, derived=made))
    choose_start(ended.run, "small", through=FrontEnd.APP)
    async with asking(ended, "small") as pilot:
        await until_shown(pilot, "1 variable does not match ckpt-b1-400.")


async def test_what_fits_cannot_be_restored_in_part(live: RunFactory) -> None:
    async with asking(live, "ckpt-200") as pilot:
        await until_shown(pilot, "Its variables match")
        await pilot.press("p")
        await pilot.pause()
        assert "which checkpoint?" in top(pilot.app)


async def test_the_arrows_choose_among_those_that_can_be_restored(live: RunFactory) -> None:
    (live.run.root / "ckpt-300.data-00000-of-00001").unlink()
    async with asking(live, "ckpt-400") as pilot:
        await pilot.press("down")
        await until_shown(pilot, "Training goes back 238 steps")
        assert "ckpt-200" in top(pilot.app)
        await pilot.press("up", "up", "y")
        command = await asked(pilot, live)
        assert command.arguments == {"name": "ckpt-500", "partial": False, "values": {}}


async def test_brackets_move_along_the_checkpoints(live: RunFactory) -> None:
    async with asking(live, "ckpt-400") as pilot:
        await pilot.press("left_square_bracket")
        await until_shown(pilot, "Training goes back 138 steps")
        await pilot.press("right_square_bracket", "right_square_bracket")
        await until_shown(pilot, "step 500")


async def test_the_curve_is_cut_at_the_checkpoint(live: RunFactory) -> None:
    async with asking(live, "ckpt-300") as pilot:
        # What is left behind of both branches has a label; the value there has none.
        await until_shown(pilot, "2.661  branch 0 2.661  branch 1 2.561")
        await pilot.press("right_square_bracket", "right_square_bracket")
        await until_shown(pilot, "step 500")
        await until_shown(pilot, "─ 2.218 ─╮")


async def test_without_measurements_there_is_no_curve(live: RunFactory) -> None:
    live.run.series.unlink()
    async with asking(live, "ckpt-300") as pilot:
        await until_shown(pilot, "Training goes back 138 steps")
        assert not pilot.app.screen.query_one(Chart).display


async def test_it_says_what_else_changes(live: RunFactory) -> None:
    rate = msgspec.structs.replace(HYPERPARAMETERS[0], planned=None)
    live.tells(rate)
    live.records("ckpt-300", msgspec.structs.replace(rate, value=0.003))
    live.guarded()
    async with asking(live, "ckpt-300") as pilot:
        await until_shown(pilot, "loss is 2.661 there and 2.144 now.")
        assert "learning_rate goes from 0.0003 back to 0.003." in top(pilot.app)
        assert "Guards fired 1 time after it:" in top(pilot.app)
        assert "step 420: spike loss: loss is 91.2" in top(pilot.app)


async def test_a_metric_chooses_the_best(live: RunFactory) -> None:
    live.checkpoint(450, 1, "ckpt-b1-400", metrics={"loss": loss_at(50), "accuracy": 0.5})
    async with asking(live, "ckpt-400") as pilot:
        field = pilot.app.screen.query_one("#target")
        field.focus()
        await pilot.press("ctrl+u", *"max loss")
        await until_shown(pilot, "step 450")
        await pilot.press("ctrl+u", *"min loss")
        await until_shown(pilot, "step 500")
        await pilot.press("ctrl+u", *"min bleu")
        await until_shown(
            pilot, "No checkpoint has the metric bleu; the metrics are: accuracy, loss."
        )


def test_sentences_name_what_differs(changed: RunFactory) -> None:
    known = {checkpoint.name: checkpoint for checkpoint in list_checkpoints(changed.run)}
    same = check_compatibility(changed.run, known["ckpt-500"], known["ckpt-100"])
    assert same.mismatches == ()
    other = check_compatibility(changed.run, known["ckpt-500"], known["ckpt-200"])
    assert other.mismatches == ("v is 3 in the checkpoint and 2 in the model",)


async def test_a_damaged_checkpoint_under_the_cursor_is_told_and_another_one_suggested(
    live: RunFactory,
) -> None:
    (live.run.root / "ckpt-b1-400.data-00000-of-00001").unlink()
    async with asking(live, "ckpt-b1-400") as pilot:
        assert pilot.app.screen.query_one("#target", Input).value == "ckpt-500"
        await until_shown(pilot, "ckpt-b1-400 is incomplete. This is the newest")
        await pilot.press("down")
        await until(pilot, lambda: "ckpt-500  step" not in top(pilot.app), "another checkpoint")
        assert "This is the newest" not in shown(pilot.app)


@pytest.mark.parametrize("has_ended", [False, True])
async def test_the_key_of_a_restore_has_one_name(live: RunFactory, has_ended: bool) -> None:
    if has_ended:
        for index in range(2):
            live.worker(index, activity=Activity.EXITED, ending=Ending.STOPPED)
    async with opened(live.run) as pilot:
        await until_shown(pilot, "r restore")
        await pilot.press("r")
        await until_shown(pilot, "─  restore")
        await pilot.press("escape", "colon")
        await pilot.press(*"restore")
        await until_shown(pilot, "restore: Restore a checkpoint")
