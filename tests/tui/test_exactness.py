"""Whether resuming is exact, wherever it is shown: status, inspect, header, restore dialog."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
from app_driving import opened, top, until_shown
from rundir_factory import RunFactory

from bundle_writing import write_floats
from command_running import Tool
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.records.check import Pass
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.records.exactness import (
    NO_STEP,
    CheckSummary,
    Exactness,
    InputPosition,
    PipelineFacts,
    StepFacts,
    exactness_of,
    merge_exactness,
    with_check,
)
from tfckpt_trainer.rundir.records.run import RunInfo
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.app.widgets.checkpoints.history import History
from tfckpt_tui.services.exactness.check import CheckOptions, CheckResult, Repetition
from tfckpt_tui.services.exactness.stored_checks import store_check

RANDOM = PipelineFacts(
    name="dataset",
    position=InputPosition.POSITION,
    causes=["a random operation in map (RandomUniform, train.py line 12)"],
    remedies=["Use tf.random.stateless_*."],
)
COUNTED = PipelineFacts(name="words", position=InputPosition.COUNT, causes=["from_generator"])
WHOLE = PipelineFacts(name="images", position=InputPosition.EXACT)

NOT_POSSIBLE = exactness_of([RANDOM], StepFacts())
EXPECTED = exactness_of([WHOLE], StepFacts())
DRAWS = StepFacts(
    draws=["tf.random.normal at train.py:12"],
    changes=["variable average at train.py:30"],
    remedies=["Draw from a tf.random.Generator."],
)
PYTHON = StepFacts(python=["tf.py_function at train.py:12"])
IN_STEP, DOUBTED = exactness_of([WHOLE], DRAWS), exactness_of([WHOLE], PYTHON)
BEFORE = exactness_of([WHOLE], NO_STEP)
EQUAL = CheckSummary(at=1.7e9, steps=20, script="train.py")
OUTDATED = msgspec.structs.replace(EQUAL, is_outdated=True)
DIFFERENT = msgspec.structs.replace(EQUAL, difference="dense/kernel differs at step 7")
DAY = time.strftime("%Y-%m-%d %H:%M", time.gmtime(EQUAL.at))
QUICK_DIFFERENT = CheckSummary(
    at=1.7e9, steps=3, difference="The metric loss differs at step 7", workers=2
)


def describe(made: RunFactory, exactness: Exactness | None, check: CheckSummary | None = None):
    """Writes what is known into the description of the run and into every record."""
    info = load(made.run.run_file, RunInfo)
    store(made.run.run_file, msgspec.structs.replace(info, exactness=exactness, check=check))
    for path in made.run.records_directory.glob("*.json"):
        record = msgspec.structs.replace(load(path, CheckpointRecord), exactness=exactness)
        store(path, record)


def test_the_words_name_level_pipeline_and_cause() -> None:
    assert EXPECTED.words == "expected"
    assert NOT_POSSIBLE.words == (
        "not possible because the input pipeline 'dataset' uses a random operation in map "
        "(RandomUniform, train.py line 12)"
    )


def test_workers_that_differ_have_the_worst_position_of_each_pipeline() -> None:
    better = msgspec.structs.replace(COUNTED, position=InputPosition.EXACT, causes=[])
    merged = merge_exactness(
        [exactness_of([better, WHOLE], DRAWS), exactness_of([COUNTED, WHOLE], NO_STEP)]
    )
    assert [one.position for one in merged.inputs] == [InputPosition.COUNT, InputPosition.EXACT]
    assert merged.reasons == [COUNTED.reason, *DRAWS.missing]


def test_the_words_name_what_a_step_draws_changes_and_calls() -> None:
    assert IN_STEP.words == (
        "not possible because the step draws random numbers with tf.random.normal at train.py:12; "
        "no checkpoint holds what the step changes: variable average at train.py:30"
    )
    assert DOUBTED.words == (
        "unknown because the step calls Python with tf.py_function at train.py:12"
    )
    assert BEFORE.words == "unknown because no step has run yet"


def test_the_remedy_follows_the_cause() -> None:
    seeded = msgspec.structs.replace(DRAWS, remedies=["Pass `random_seed` to TrainingRun."])
    found = exactness_of([], seeded)
    assert found.explained == f"{found.words}. Pass `random_seed` to TrainingRun"
    assert BEFORE.explained == BEFORE.words


def test_python_in_a_pipeline_is_told_as_in_a_step() -> None:
    calls = PipelineFacts(
        name="dataset",
        position=InputPosition.POSITION,
        python=["tf.py_function in map (train.py line 12)"],
    )
    assert exactness_of([calls], StepFacts()).words == (
        "unknown because the input pipeline 'dataset' calls Python with tf.py_function in map "
        "(train.py line 12)"
    )
    draws = msgspec.structs.replace(calls, causes=RANDOM.causes)
    assert exactness_of([draws], StepFacts()).reasons == [RANDOM.reason]
    merged = merge_exactness([exactness_of([one], StepFacts()) for one in (calls, draws)])
    assert merged.reasons == [RANDOM.reason]


def test_many_operations_are_counted_and_not_listed() -> None:
    draws = StepFacts(draws=[f"tf.random.normal at train.py:{line}" for line in range(6)])
    (reason,) = draws.missing
    assert reason.endswith(
        "train.py:0, tf.random.normal at train.py:1, tf.random.normal at train.py:2 and 3 more"
    )


@pytest.mark.parametrize(
    ("found", "check", "words"),
    [
        (EXPECTED, EQUAL, "exact over 20 steps, by a check of train.py ("),
        (None, EQUAL, "exact over 20 steps, by a check of"),
        (EXPECTED, None, "expected"),
        (EXPECTED, DIFFERENT, f"not exact, by a check of train.py ({DAY}): dense/kernel differs"),
        # What is known to be missing outweighs a check that did not see a difference.
        (NOT_POSSIBLE, EQUAL, "not possible because the input pipeline 'dataset'"),
        (IN_STEP, EQUAL, "not possible because the step draws"),
        # A check knows more than one who could not look.
        (DOUBTED, EQUAL, "exact over 20 steps, by a check of"),
        (DOUBTED, DIFFERENT, f"not exact, by a check of train.py ({DAY}): dense/kernel differs"),
        # That check may have had another environment: what this run lacks comes first.
        (
            NOT_POSSIBLE,
            DIFFERENT,
            f"{NOT_POSSIBLE.words}; a check of train.py ({DAY}) found that dense/kernel differs",
        ),
        (BEFORE, EQUAL, "exact over 20 steps, by a check of"),
        # A quick check saw it in this run; it is told first, with all else that is known.
        (
            IN_STEP,
            QUICK_DIFFERENT,
            "not exact: The metric loss differs at step 7; the step draws random numbers with",
        ),
        (EXPECTED, OUTDATED, "expected; the check of train.py ("),
    ],
)
def test_a_check_counts_unless_state_is_missing(found, check, words) -> None:
    known = with_check(found, check)
    assert known is not None and known.words.startswith(words)


def test_status_says_it_and_says_nothing_where_it_is_unknown(tool: Tool, live: RunFactory) -> None:
    assert "exact " not in tool("status", live.run.root).data
    assert tool("status", live.run.root, "--json").json["run"]["exactness"] is None
    describe(live, NOT_POSSIBLE)
    assert f"exact     {NOT_POSSIBLE.explained}" in tool("status", live.run.root).data
    report = tool("status", live.run.root, "--json").json["run"]["exactness"]
    assert report["level"] == "not possible"
    assert report["words"] == NOT_POSSIBLE.explained
    assert report["inputs"][0]["remedies"] == ["Use tf.random.stateless_*."]


@pytest.mark.parametrize(
    ("exactness", "check", "rows"),
    [
        (NOT_POSSIBLE, None, ["exact resume             no   not possible because the input"]),
        (
            EXPECTED,
            None,
            ["exact resume             ?    expected: nothing is known to be missing"],
        ),
        (EXPECTED, EQUAL, ["exact resume             yes  exact over 20 steps, by a check"]),
        (IN_STEP, None, ["exact resume             no   not possible because the step draws"]),
        (DOUBTED, None, ["exact resume             ?    unknown because the step calls Python"]),
        (
            exactness_of([WHOLE, COUNTED], StepFacts()),
            None,
            ["position in the input    no   'words' starts over"],
        ),
    ],
)
def test_inspect_says_what_comes_back(
    tool: Tool, live: RunFactory, exactness, check, rows: list[str]
) -> None:
    describe(live, exactness, check)
    said = tool("inspect", live.run.root, "ckpt-200").data
    for row in rows:
        assert " ".join(row.split()) in " ".join(said.split()), said


async def test_the_header_always_says_that_a_resume_is_not_exact(live: RunFactory) -> None:
    describe(live, NOT_POSSIBLE)
    async with opened(live.run, size=(160, 40)) as pilot:
        await until_shown(
            pilot, "exact resume not possible: a random operation in map (RandomUniform"
        )
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_shown(pilot, "resume not exact")


async def test_the_header_says_what_a_step_draws_and_what_nobody_knows(live: RunFactory) -> None:
    describe(live, IN_STEP)
    async with opened(live.run, size=(200, 40)) as pilot:
        await until_shown(pilot, "exact resume not possible: the step draws random numbers with")
    describe(live, DOUBTED)
    async with opened(live.run, size=(200, 40)) as pilot:
        await until_shown(pilot, "exact resume unknown: the step calls Python with tf.py_function")
    async with opened(live.run, size=(80, 24)) as pilot:
        await until_shown(pilot, "ckpt-200")
        assert "exact" not in top(pilot.app)


async def test_the_header_says_what_was_checked(live: RunFactory) -> None:
    describe(live, EXPECTED)
    async with opened(live.run, size=(160, 40)) as pilot:
        await until_shown(pilot, "exact resume expected")
    describe(live, EXPECTED, EQUAL)
    async with opened(live.run, size=(160, 40)) as pilot:
        await until_shown(pilot, "resume exact over 20 steps")


async def test_the_restore_dialog_says_what_is_missing(live: RunFactory) -> None:
    describe(live, NOT_POSSIBLE)
    async with opened(live.run) as pilot:
        pilot.app.screen.query_one(History).select("ckpt-200")
        await pilot.press("r")
        await until_shown(pilot, "Exact resume is not possible because")
        assert "'dataset' continues at its position" in " ".join(top(pilot.app).split())


def test_a_hostile_description_shows_no_control_characters(tool: Tool, tmp_path: Path) -> None:
    made = RunFactory(tmp_path).create()
    write_floats(tmp_path / "ckpt-1", (1.0,))
    hostile = msgspec.structs.replace(RANDOM, name="\x1b[2J", causes=["\x1b]52;c;QUFB\x07"])
    describe(made, exactness_of([hostile], StepFacts()))
    assert "\x1b" not in tool("status", tmp_path).data


def test_a_check_of_the_script_counts_until_the_script_changes(
    tool: Tool, live: RunFactory, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "train.py"
    script.write_text("first")
    info = load(live.run.run_file, RunInfo)
    described = msgspec.structs.replace(info, exactness=EXPECTED)
    store(live.run.run_file, described)
    command, place = ("python", "train.py"), str(tmp_path)
    launch = LaunchOptions(run_directory=place, command=command, working_directory=place)
    store(live.run.launch_file, launch)
    options = CheckOptions(command, place)
    result = CheckResult(
        options,
        (Repetition(Pass.IN_PLACE, 20, None),),
        workers=1,
        metrics=("loss",),
        objects=3,
        has_input=True,
        seconds=1.0,
    )
    store_check(result, described.worker_count, "")
    root = live.run.root

    def level() -> str:
        return str(tool("status", root, "--json").json["run"]["exactness"]["level"])

    assert level() == "checked"
    assert "exact     exact over 20 steps, by a check of train.py (20" in tool("status", root).data
    script.write_text("second")
    assert level() == "expected"
    said = tool("status", root).data
    assert "exact     expected; the check of train.py (20" in said
    assert ") no longer counts, because the script changed" in said
