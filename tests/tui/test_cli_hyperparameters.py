"""`get` and `set`: the hyperparameters of a run."""

from __future__ import annotations

import math
import os
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from answering_trainer import AnsweringTrainer, done
from checkpoint_directory import latest_name, listed_names
from hypothesis import given
from hypothesis import strategies as st
from json_reference import check
from rundir_factory import HYPERPARAMETERS, RunFactory, two_branches, without_heartbeats

from command_running import Tool
from tfckpt_trainer.catalog.directory.history import load_head, resume_point
from tfckpt_trainer.rundir.records.hyperparameter import Bounds, PlannedChange
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.files import RECORD_LIMIT
from tfckpt_tui.formats.hyperparameters import history_words
from tfckpt_tui.reports.control import CommandReport, NextStartReport
from tfckpt_tui.reports.hyperparameters import HyperparametersReport
from tfckpt_tui.reports.tensors import CompareReport


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    """A run whose chief tells these values."""
    return two_branches(tmp_path / "run", live=True).tells(*HYPERPARAMETERS)


def test_get_shows_value_bounds_and_who_changed_it(tool: Tool, live: RunFactory) -> None:
    said = tool("get", live.run.root)
    assert said.code == 0
    rate, beta = said.data.splitlines()[1:]
    assert rate.split(None, 2)[:2] == ["learning_rate", "0.0003"]
    assert "after step 390 by ann@desk, command line; to be 0.0001 after step 600" in rate
    assert beta.endswith("a number, at least 0 and below 1")
    only = tool("get", live.run.root, "generator/beta_1").data.splitlines()
    assert [line.split() for line in only[1:]] == [beta.split()]


def test_get_prints_json(tool: Tool, live: RunFactory) -> None:
    printed = tool("get", live.run.root, "--json").json
    check(HyperparametersReport, printed)
    assert printed["checkpoint"] is None
    first, second = printed["hyperparameters"]
    assert (first["planned_value"], first["planned_step"]) == (0.0001, 600)
    assert (second["changed_at"], second["planned_value"]) == (None, None)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_shown(tool: Tool, live: RunFactory, value: float) -> None:
    live.tells(msgspec.structs.replace(HYPERPARAMETERS[0], value=value))
    assert tool("get", live.run.root).data.splitlines()[1].split()[1] == "nan"
    (first,) = tool("get", live.run.root, "--json").json["hyperparameters"]
    assert (first["value"], first["script_value"]) == (None, 0.003)
    assert (
        "No trainer took" in tool("set", live.run.root, "learning_rate=1", "--timeout", "0.1").words
    )


def test_without_a_trainer_the_values_are_of_the_next_start(tool: Tool, tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    made.records("ckpt-b1-400", *HYPERPARAMETERS)
    said = tool("get", made.run.root)
    assert "learning_rate" in said.data
    assert said.words.endswith("No trainer answers. The values are those of ckpt-b1-400.\n")
    assert tool("set", made.run.root, "learning_rate=1").code == 3


def test_without_a_trainer_a_damaged_checkpoint_is_passed_over(tool: Tool, tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    made.records("ckpt-500", HYPERPARAMETERS[0])
    made.records("ckpt-b1-400", HYPERPARAMETERS[1])
    (made.run.root / "ckpt-b1-400.data-00000-of-00001").unlink()
    said = tool("get", made.run.root)
    assert said.words.endswith("The values are those of ckpt-500.\n")
    assert said.data.splitlines()[1].startswith("learning_rate ")


def test_a_run_without_any_is_told_how_to_have_some(tool: Tool, tmp_path: Path) -> None:
    live = two_branches(tmp_path / "run", live=True)
    said = tool("get", live.run.root)
    assert said.code == 1
    assert "run.tunable" in said.words
    stopped = tool("get", without_heartbeats(two_branches(tmp_path / "other")).run.root)
    assert stopped.code == 1
    assert "no trainer answers" in stopped.words


@pytest.mark.parametrize("command", [("get",), ("set", "rate=1")])
def test_a_trainer_that_starts_may_not_know_them_yet(
    tool: Tool, tmp_path: Path, command: tuple[str, ...]
) -> None:
    two_branches(tmp_path, live=True).live_worker(0, activity=Activity.STARTING, step=0)
    said = tool(command[0], tmp_path, *command[1:])
    assert "The trainer is starting: its hyperparameters are known once it trains." in said.words
    assert "has no hyperparameters" not in said.words


def test_set_sends_the_values_and_prints_the_answer(tool: Tool, live: RunFactory) -> None:
    message = "learning_rate 0.0003 → 0.001 on 2 workers, after step 438."
    words = ["learning_rate=1e-3", "generator/beta_1=0.9", "--at-step", "900", "--over", "10"]
    looks_again = mock.patch("tfckpt_tui.services.control.request.trainer_answers")
    with AnsweringTrainer(live.run, done(message)), looks_again as looked:
        said = tool("set", live.run.root, *words)
    assert (said.code, said.data) == (0, f"{message}\n")
    assert not looked.called
    with AnsweringTrainer(live.run, done(message)):
        printed = tool("set", live.run.root, *words, "--json").json
    check(CommandReport, printed)
    assert printed["command"]["arguments"] == {
        "values": {"learning_rate": 0.001, "generator/beta_1": 0.9},
        "at_step": 900,
        "over": 10,
        "until_step": None,
    }


def test_a_schedule_is_replaced_until_a_step(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path / "run", live=True)
    rate = msgspec.structs.replace(
        HYPERPARAMETERS[0], planned=None, schedule="CosineDecay", what="by CosineDecay", until=700
    )
    made.tells(rate)
    root = made.run.root
    shown = tool("get", root).data
    assert "learning_rate (by CosineDecay)" in shown
    assert shown.count(", with --until-step N") == 1
    assert "after step 390 by ann@desk, command line; until step 700" in shown
    planned = PlannedChange(value=1.0, begins=430, steps=20, by="ann@desk, app", until=700)
    climbing = msgspec.structs.replace(rate, planned=planned)
    assert history_words(climbing) == (
        "after step 390 by ann@desk, command line; to be 1 after step 450, until step 700"
    )
    facts = tool("get", root, "--json").json["hyperparameters"][0]
    assert (facts["schedule"], facts["until"]) == ("CosineDecay", 700)
    refused = tool("set", root, "learning_rate=1")
    assert refused.code == 4
    assert "learning_rate follows CosineDecay. Replace it until a step, or" in refused.words
    assert "Add `--until-step N`." in refused.words
    with AnsweringTrainer(made.run, done("Done.")):
        printed = tool("set", root, "learning_rate=1", "--until-step", "900", "--json").json
    assert printed["command"]["arguments"]["until_step"] == 900


@pytest.mark.parametrize(
    ("word", "code", "problem"),
    [
        ("learning_rate", 2, "has no =. Write NAME=VALUE"),
        ("learning_rate=fast", 2, "'fast' is no number"),
        ("learning_rate=1_0", 2, "'1_0' is no number"),
        ("learning_rate=1e-400", 2, "'1e-400' is too small: the value would be 0."),
        ("learning_rate=nan", 4, "learning_rate cannot be nan; it must be a number, at least 0."),
        ("learning_rate=-1", 4, "learning_rate cannot be -1"),
        ("generator/beta_1=1", 4, "generator/beta_1 cannot be 1"),
        ("learning_rate=1 --at-step 9", 4, "Step 9 has been trained: the run is at step 438."),
        ("lr=1", 4, "There is no hyperparameter lr. The run has: learning_rate, generator/beta_1."),
    ],
)
def test_set_refuses_before_anything_is_sent(
    tool: Tool, live: RunFactory, word: str, code: int, problem: str
) -> None:
    said = tool("set", live.run.root, *word.split())
    assert said.code == code
    assert problem in said.words
    assert not list(live.run.inbox.iterdir())


def test_a_restore_sends_values_too(tool: Tool, live: RunFactory) -> None:
    words = ["--step", "300", "--set", "learning_rate=1e-4", "--set", "generator/beta_1=0.9"]
    with AnsweringTrainer(live.run, done("At ckpt-300 on branch 2.")):
        printed = tool("restore", live.run.root, *words, "--json").json
    check(CommandReport, printed)
    assert printed["command"]["arguments"] == {
        "name": "ckpt-300",
        "partial": False,
        "values": {"learning_rate": 0.0001, "generator/beta_1": 0.9},
    }
    said = tool("restore", live.run.root, "--step", "300", "--set", "learning_rate=nan")
    assert said.code == 4
    assert "learning_rate cannot be nan; it must be a number, at least 0." in said.words
    assert not list(live.run.inbox.iterdir())


def test_the_next_start_can_begin_with_other_values(tool: Tool, tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    root = made.run.root
    words = ["--step", "300", "--next-start", "--set"]
    assert "ckpt-300 records no hyperp" in tool("restore", root, *words, "learning_rate=1").words
    made.records("ckpt-300", *HYPERPARAMETERS)
    refused = tool("restore", root, *words, "lr=1")
    assert (refused.code, load_head(made.run)[0]) == (4, None)
    assert "There is no hyperparameter lr. The run has: learning_rate" in refused.words
    said = tool("restore", root, *words, "learning_rate=1e-4")
    assert said.data.endswith(" on branch 2, and sets learning_rate 0.0001.\n")
    resumed = resume_point(made.run)
    assert resumed is not None
    assert resumed.values == {"learning_rate": 0.0001}
    printed = tool("restore", root, *words, "learning_rate=1e-3", "--json").json
    check(NextStartReport, printed)
    assert printed["values"] == {"learning_rate": 0.001}
    facts = tool("get", root, "learning_rate", "--json").json["hyperparameters"][0]
    assert (facts["value"], facts["planned_value"], facts["planned_step"]) == (0.0003, 0.001, 400)
    # Without values, those of the checkpoint count again.
    assert tool("restore", root, "--step", "300", "--next-start").code == 0
    resumed = resume_point(made.run)
    assert resumed is not None
    assert resumed.values == {}


@pytest.mark.parametrize("chosen", [False, True])
def test_a_choice_of_the_next_start_that_fails_changes_nothing(
    tool: Tool, tmp_path: Path, chosen: bool
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    root, state_file = made.run.root, made.run.state_file
    if chosen:
        assert tool("restore", root, "--step", "300", "--next-start").code == 0
    before = load_head(made.run)
    state_file.unlink(missing_ok=True)
    state_file.mkdir()
    said = tool("restore", root, "--step", "100", "--next-start")
    assert (said.code, said.data) == (1, "")
    assert str(state_file) in said.words
    assert load_head(made.run) == before


def test_a_file_of_others_in_the_place_of_the_state_file_is_kept(
    tool: Tool, tmp_path: Path
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    made.run.state_file.write_text("my notes")
    said = tool("restore", made.run.root, "--step", "300", "--next-start")
    assert said.code == 0
    assert f"{made.run.state_file} was no state file of TensorFlow. It is " in said.data
    (aside,) = made.run.root.glob("checkpoint.damaged-*")
    assert aside.read_text() == "my notes"
    assert aside.name in said.data
    assert latest_name(made.run.root) == "ckpt-300"


@pytest.mark.parametrize("what", ["large", "link", "pipe"])
def test_nor_is_one_replaced_that_no_state_file_can_be(
    tool: Tool, tmp_path: Path, what: str
) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    place, listed = made.run.state_file, set(listed_names(made.run.root))
    assert len(listed) > 1
    place.rename(made.run.root / "state.txt")
    if what == "large":
        with place.open("wb") as file:
            file.truncate(RECORD_LIMIT + 1)
    elif what == "link":
        place.symlink_to("state.txt")
    else:
        os.mkfifo(place)
    before = place.lstat()
    said = tool("restore", made.run.root, "--step", "300", "--next-start")
    assert said.code == 0
    (aside,) = made.run.root.glob("checkpoint.damaged-*")
    assert (aside.lstat().st_ino, aside.lstat().st_mode) == (before.st_ino, before.st_mode)
    was = "a symbolic link" if what == "link" else "no state file of TensorFlow"
    assert f"{place} was {was}. It is {aside.name} now." in said.data
    assert latest_name(made.run.root) == "ckpt-300"
    # TensorFlow follows a link, so its list stays.
    assert set(listed_names(made.run.root)) == (listed if what == "link" else {"ckpt-300"})


def test_checkpoints_show_their_values(tool: Tool, tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    root = made.run.root
    made.records("ckpt-300", *HYPERPARAMETERS)
    rows = tool("inspect", root, "ckpt-300").data.splitlines()
    (place,) = [place for place, row in enumerate(rows) if row.startswith("HYPERPARAMETER")]
    changed = "after step 390 by ann@desk, command line; to be 0.0001 after step 600"
    assert rows[place + 1].split(None, 2) == ["learning_rate", "0.0003", changed]
    listed = {one["name"]: one for one in tool("ls", root, "--json").json["checkpoints"]}
    assert listed["ckpt-300"]["hyperparameters"] == {
        "learning_rate": 0.0003,
        "generator/beta_1": 0.5,
    }
    assert listed["ckpt-100"]["hyperparameters"] == {}


def test_compare_shows_values_that_differ(tool: Tool, tmp_path: Path) -> None:
    made = without_heartbeats(two_branches(tmp_path / "run"))
    root = made.run.root
    rate, beta = HYPERPARAMETERS
    made.records("ckpt-300", *HYPERPARAMETERS)
    made.records("ckpt-400", msgspec.structs.replace(rate, value=0.003), beta)
    said = tool("compare", root, "ckpt-300", "ckpt-400")
    assert said.data.splitlines()[1] == "learning_rate: 0.0003 → 0.003"
    printed = tool("compare", root, "ckpt-100", "ckpt-300", "--json").json
    check(CompareReport, printed)
    assert printed["hyperparameters"] == {
        "learning_rate": [None, 0.0003],
        "generator/beta_1": [None, 0.5],
    }


def test_names_are_completed(live: RunFactory) -> None:
    from tfckpt_tui.cli.run.hyperparameters import set as command

    context = command.make_context("set", [str(live.run.root), "x=1"])
    (argument,) = [one for one in command.params if one.name == "assignments"]
    offered = [one.value for one in argument.type.shell_complete(context, argument, "gen")]
    assert offered == ["generator/beta_1="]


numbers = st.floats(-10, 10)


@given(low=numbers, high=numbers, value=numbers, above=st.booleans(), below=st.booleans())
def test_bounds_allow_what_lies_between(
    low: float, high: float, value: float, above: bool, below: bool
) -> None:
    bounds = Bounds(low=low, high=high, above=above, below=below)
    is_high = value > low or (value == low and not above)
    is_low = value < high or (value == high and not below)
    assert bounds.allow(value) == (is_high and is_low)
    assert not bounds.allow(float("nan"))
    assert not Bounds().allow(float("inf"))


@given(start=numbers, value=numbers, begins=st.integers(0, 100), steps=st.integers(0, 50))
def test_a_change_over_steps_ends_at_its_value_and_never_leaves_its_ends(
    start: float, value: float, begins: int, steps: int
) -> None:
    change = PlannedChange(value=value, begins=begins, steps=steps)
    assert change.value_at(begins + steps, start) == value
    tolerance = 1e-9
    for step in range(begins, begins + steps):
        between = change.value_at(step, start)
        assert min(start, value) - tolerance <= between <= max(start, value) + tolerance
