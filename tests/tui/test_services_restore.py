"""Which checkpoint a step or a name refers to, and the plan of its restore."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from rundir_factory import HYPERPARAMETERS, RunFactory, two_branches

from tfckpt_trainer.bundle.state_file import read_state_file
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.catalog.retention.prune import move_to_trash
from tfckpt_trainer.catalog.scan.lineage import BranchStep, lineage_at
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.reading.run_reader import open_run
from tfckpt_tui.services.checkpoints.choose import find_by_name, find_by_step
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.control.request import FrontEnd
from tfckpt_tui.services.control.restore import (
    choose_start,
    describe_plan,
    plan_restore_of,
    preview_restore,
)


def found(run: RunDirectory, step: int) -> str:
    return plan_restore_of(run, step=step).target.name


def go_back(made: RunFactory, name: str, step: int, branch: int) -> None:
    """What a restore leaves behind: it is newer than every save so far."""
    made._sequence += 1
    head = Head(checkpoint=name, step=step, branch=branch, sequence=made._sequence)
    store(made.run.head_file, head)


def test_a_step_of_one_branch_is_that_checkpoint(tmp_path: Path) -> None:
    run = two_branches(tmp_path).run
    assert found(run, 500) == "ckpt-500"
    assert found(run, 100) == "ckpt-100"


def test_a_step_of_several_branches_is_the_one_that_training_passed(tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    assert found(made.run, 400) == "ckpt-b1-400"
    go_back(made, "ckpt-500", 500, branch=0)
    made.worker(0, branch=0, step=505)
    assert found(made.run, 400) == "ckpt-400"


def test_where_no_worker_tells_the_place_it_is_that_of_a_cold_start(tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    made.run.worker_status(0).unlink()
    assert found(made.run, 400) == "ckpt-b1-400"
    go_back(made, "ckpt-500", 500, branch=0)
    assert found(made.run, 400) == "ckpt-400"


def test_a_branch_that_has_saved_nothing_began_where_the_restore_went(tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    go_back(made, "ckpt-b1-400", 400, branch=2)
    made.worker(0, branch=2, step=405)
    lineage = lineage_at(list_checkpoints(made.run), BranchStep(2, 405))
    assert lineage.last_steps == {2: 405, 1: 400, 0: 300}
    assert found(made.run, 400) == "ckpt-b1-400"


def test_the_way_leads_through_branches_whose_checkpoints_were_pruned(tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    made.checkpoint(500, 1, "ckpt-b1-400")
    made.checkpoint(600, 2, "ckpt-b1-500")
    move_to_trash(made.run, ["ckpt-b1-500"], by="a test", now=made.now, update_state_file=True)
    lineage = lineage_at(list_checkpoints(made.run), None)
    assert lineage.last_steps == {2: 600, 1: 500, 0: 300}


def test_a_step_that_training_did_not_pass_needs_a_name(tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    made.checkpoint(150, 2, "ckpt-100")
    made.worker(0, branch=2, step=160)
    with pytest.raises(RefusedError, match=r"ckpt-b1-400, ckpt-400\. Give one of these names"):
        found(made.run, 400)


def test_two_names_of_one_step_and_branch_need_a_name(tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    for name in ("model-5", "ckpt-5"):
        made.checkpoint(5, name=name, recorded=False)
    with pytest.raises(RefusedError, match="model-5"):
        found(made.run, 5)


def test_a_damaged_one_on_the_way_is_not_replaced_by_another_branch(tmp_path: Path) -> None:
    run = two_branches(tmp_path).run
    (run.root / "ckpt-b1-400.data-00000-of-00001").unlink()
    with pytest.raises(RefusedError, match=r"ckpt-b1-400 is incomplete.*data-00000-of-00001"):
        found(run, 400)
    assert plan_restore_of(run, name="ckpt-400").target.name == "ckpt-400"


def test_a_step_that_is_not_there_tells_which_are_near(tmp_path: Path) -> None:
    run = two_branches(tmp_path).run
    with pytest.raises(UsageError, match="step 320; near are: 200, 300, 400, 500"):
        found(run, 320)
    with pytest.raises(UsageError, match="near are: none"):
        find_by_step([], 1, None)


def test_a_name_that_is_not_there_tells_the_newest(tmp_path: Path) -> None:
    checkpoints = list_checkpoints(two_branches(tmp_path).run)
    with pytest.raises(UsageError, match="the newest are: ckpt-b1-400, ckpt-500"):
        find_by_name(checkpoints, "ckpt-4")
    with pytest.raises(UsageError, match="There is no checkpoint"):
        find_by_name(checkpoints, "../ckpt-100")


def test_the_plan_tells_the_steps_back_and_the_new_branch(tmp_path: Path) -> None:
    back = plan_restore_of(two_branches(tmp_path).run, step=300)
    assert (back.target.name, back.position) == ("ckpt-300", (1, 438))
    assert (back.steps_back, back.branch, back.is_new_branch) == (138, 2, True)
    assert (back.unsaved_steps, back.left_behind) == (38, ("ckpt-b1-400",))


def test_the_plan_says_how_many_steps_are_lost(tmp_path: Path) -> None:
    plan = plan_restore_of(two_branches(tmp_path).run, step=300)
    said = "The last 38 steps so far are in no checkpoint and are lost."
    assert describe_plan(plan).endswith(said)
    one = replace(plan, unsaved_steps=1)
    assert describe_plan(one).endswith("The last step so far is in no checkpoint and is lost.")


def test_a_restore_of_the_tip_continues_its_branch(tmp_path: Path) -> None:
    ahead = plan_restore_of(two_branches(tmp_path).run, name="ckpt-500")
    assert (ahead.steps_back, ahead.branch, ahead.is_new_branch) == (0, 0, False)


def test_a_plan_says_that_metrics_of_the_checkpoint_were_not_finite(tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    name = made.checkpoint(450, 1, metrics={"loss": None, "score": 1.0})
    said = describe_plan(plan_restore_of(made.run, name=name))
    assert "At its step, these metrics were not finite: loss." in said
    said = describe_plan(plan_restore_of(made.run, name="ckpt-300"))
    assert "not finite" not in said


def steered(tmp_path: Path, guard_step: int = 420) -> RunFactory:
    """A run at step 438 of branch 1, whose learning rate was lowered after step 400."""
    made = two_branches(tmp_path)
    rate, beta = (msgspec.structs.replace(one, planned=None) for one in HYPERPARAMETERS)
    made.worker(0, metrics={"val_loss": 3.2, "loss": 2.144, "accuracy": 0.4})
    made.tells(rate, beta)
    name = made.checkpoint(
        410, 1, "ckpt-b1-400", metrics={"accuracy": 0.5, "val_loss": 2.0, "loss": 2.5}
    )
    made.records(name, msgspec.structs.replace(rate, value=0.003), beta)
    made.event_log(EventKind.GUARD, "spike loss: 91.2.", 80, step=guard_step, branch=1)
    return made


def test_a_preview_tells_metrics_hyperparameters_and_guards_since_the_checkpoint(
    tmp_path: Path,
) -> None:
    _, effects = preview_restore(steered(tmp_path).run, name="ckpt-b1-410")
    assert effects.sentences == [
        "loss is 2.500 there and 2.144 now; val_loss is 2.000 there and 3.200 now.",
        "learning_rate goes from 0.0003 back to 0.003.",
        "Guards fired 1 time after it:",
        "step 420: spike loss: 91.2.",
    ]


def test_a_guard_that_fired_on_what_the_restore_keeps_is_not_told(tmp_path: Path) -> None:
    _, effects = preview_restore(steered(tmp_path, guard_step=405).run, name="ckpt-b1-410")
    assert effects.guards == ()


def test_a_guard_on_another_branch_than_the_present_one_is_not_told(tmp_path: Path) -> None:
    made = steered(tmp_path)
    made.event_log(EventKind.GUARD, "of a branch that was left", 700, step=480, branch=0)
    _, effects = preview_restore(made.run, name="ckpt-300")
    assert [entry.step for entry in effects.guards] == [420]


def test_of_many_guards_the_last_are_told(tmp_path: Path) -> None:
    made = steered(tmp_path)
    for step in range(421, 431):
        made.event_log(EventKind.GUARD, f"at {step}", 1, step=step, branch=1)
    _, effects = preview_restore(made.run, name="ckpt-b1-410")
    assert effects.sentences[-4:] == [
        "Guards fired 11 times after it; the last ones:",
        *(f"step {step}: at {step}" for step in (428, 429, 430)),
    ]


def test_without_a_trainer_there_is_nothing_to_compare_with(ended: RunFactory) -> None:
    for index in range(2):
        ended.run.worker_status(index).unlink()
    _, effects = preview_restore(ended.run, name="ckpt-200")
    assert effects.sentences == []


def test_a_stopped_run_starts_from_the_checkpoint_that_was_chosen(ended: RunFactory) -> None:
    message = choose_start(ended.run, "ckpt-200", through=FrontEnd.APP).message
    assert message == "The next start restores ckpt-200 if it matches the model, on branch 2."
    resumed = resume_point(ended.run)
    assert resumed is not None
    assert (resumed.checkpoint, resumed.branch) == ("ckpt-200", 2)
    state = read_state_file(ended.run.state_file)
    assert state is not None
    assert state.latest_name == "ckpt-200"
    assert next(c.name for c in list_checkpoints(ended.run) if c.is_head) == "ckpt-200"
    account = open_run(ended.run.root)
    assert (account.step, account.branch) == (200, 2)
    assert read_entries(ended.run)[-1].message == message


def test_a_start_can_be_chosen_though_the_description_of_the_run_is_damaged(
    ended: RunFactory,
) -> None:
    for path in (ended.run.run_file, *ended.run.control.glob("run.json*")):
        path.write_bytes(b"{")
    choose_start(ended.run, "ckpt-200", through=FrontEnd.APP)
    assert next(c.name for c in list_checkpoints(ended.run) if c.is_head) == "ckpt-200"


def test_the_same_start_can_be_chosen_twice(ended: RunFactory) -> None:
    for _ in range(2):
        choose_start(ended.run, "ckpt-200", through=FrontEnd.APP)
    resumed = resume_point(ended.run)
    assert resumed is not None
    assert resumed.branch == 2
    choose_start(ended.run, "ckpt-b1-400", through=FrontEnd.APP)
    assert resume_point(ended.run).branch == 1  # type: ignore[union-attr]


def test_only_a_branch_that_training_began_takes_a_number(ended: RunFactory) -> None:
    for name in ("ckpt-200", "ckpt-300", "ckpt-100"):
        choose_start(ended.run, name, through=FrontEnd.APP)
    resumed = resume_point(ended.run)
    assert resumed is not None
    assert (resumed.checkpoint, resumed.branch) == ("ckpt-100", 2)


def test_a_branch_that_training_began_without_a_save_keeps_its_number(ended: RunFactory) -> None:
    go_back(ended, "ckpt-200", 200, branch=2)
    for name in ("ckpt-300", "ckpt-100"):
        choose_start(ended.run, name, through=FrontEnd.APP)
        resumed = resume_point(ended.run)
        assert resumed is not None
        assert (resumed.checkpoint, resumed.branch) == (name, 3)
    # As the trainer records it when it starts from there.
    go_back(ended, "ckpt-100", 100, branch=3)
    choose_start(ended.run, "ckpt-300", through=FrontEnd.APP)
    assert resume_point(ended.run).branch == 4  # type: ignore[union-attr]


def test_new_files_are_no_program_that_could_be_stopped(tmp_path: Path) -> None:
    made = RunFactory(tmp_path)
    made.checkpoint(10, recorded=False)
    with pytest.raises(
        RefusedError, match=r"If none does, wait \d.*, then run this again\."
    ) as told:
        choose_start(made.run, "ckpt-10", through=FrontEnd.COMMAND_LINE)
    assert "Stop" not in str(told.value)


def test_a_running_trainer_keeps_its_position(live: RunFactory) -> None:
    before = resume_point(live.run)
    with pytest.raises(RefusedError, match="restore the checkpoint in place"):
        choose_start(live.run, "ckpt-200", through=FrontEnd.APP)
    assert resume_point(live.run) == before
