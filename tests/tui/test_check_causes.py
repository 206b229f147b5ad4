"""What a check says about repeated steps that differ, without TensorFlow."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from json_reference import check as check_json

from command_running import Tool
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.exactness.likely_causes import likely_cause
from tfckpt_trainer.exactness.step_differences import (
    StepDifference,
    Trace,
    What,
    describe_difference,
    first_difference,
    steps_compared,
)
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.check import (
    CheckedStep,
    CheckFacts,
    Pass,
    StateDigest,
    StateKind,
)
from tfckpt_trainer.rundir.records.exactness import (
    NO_STEP,
    InputPosition,
    PipelineFacts,
    exactness_of,
)
from tfckpt_trainer.rundir.records.run import ScriptCommand
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.cli.check import print_result
from tfckpt_tui.reports.checking import CheckReport
from tfckpt_tui.services.exactness.check import (
    CheckOptions,
    CheckResult,
    Repetition,
    result_of,
)
from tfckpt_tui.services.exactness.check_report import check_report
from tfckpt_tui.services.exactness.stored_checks import store_check, stored_check


def step(phase: Pass, number: int, **changes: object) -> tuple[tuple[Pass, int], CheckedStep]:
    fields: dict[str, object] = {
        "metrics": {"loss": (1.0 / number).hex()},
        "batch": f"{number:08x}",
        "state": {"model/kernel": variable(f"{number}"), "noise": omitted(f"{number}")},
        **changes,
    }
    return (phase, number), CheckedStep(phase=phase, step=number, **fields)  # type: ignore[arg-type]


def variable(digest: str) -> StateDigest:
    return StateDigest(kind=StateKind.VARIABLE, digest=digest, title="dense/kernel")


def omitted(digest: str) -> StateDigest:
    return StateDigest(kind=StateKind.GENERATOR, digest=digest, passed=False)


def trace(**changed: dict[str, object]) -> Trace:
    """A save at step 3 and two steps, repeated; `changed` is by the step in place, as `s4`."""
    lines = [step(Pass.FIRST, number) for number in (3, 4, 5)]
    lines += [step(Pass.IN_PLACE, n, **changed.get(f"s{n}", {})) for n in (3, 4, 5)]
    return dict(lines)


def difference(**changed: dict[str, object]) -> StepDifference:
    found = first_difference({0: trace(), 1: trace(**changed)}, Pass.IN_PLACE)
    assert found is not None
    return found


def test_equal_passes_have_no_difference() -> None:
    assert first_difference({0: trace()}, Pass.IN_PLACE) is None
    assert steps_compared({0: trace()}, Pass.IN_PLACE) == 2


def test_the_first_step_counts_and_state_that_was_not_passed_is_named_first() -> None:
    state = {"model/kernel": variable("x"), "noise": omitted("x")}
    found = difference(s3={"state": state}, s4={"metrics": {"loss": "0x0p+0"}})
    assert (found.worker, found.step, found.name) == (1, 3, "noise")
    assert found.others == ("dense/kernel",)
    assert describe_difference(found) == (
        "The tf.random.Generator noise differs on worker 1, right after the restore of step 3; "
        "so do dense/kernel."
    )


def test_an_input_explains_the_metrics_and_variables_of_its_step() -> None:
    state = {"model/kernel": variable("x"), "noise": omitted("4")}
    found = difference(s4={"batch": "x", "metrics": {"loss": "0x0p+0"}, "state": state})
    assert found.what is What.INPUT
    assert found.others == ("dense/kernel", "loss")
    assert likely_cause(found).id == "input"


def test_a_pass_that_ends_earlier_differs() -> None:
    short = trace()
    short = {key: line for key, line in short.items() if key != (Pass.IN_PLACE, 5)}
    found = first_difference({0: short}, Pass.IN_PLACE)
    assert found is not None and found.what is What.END
    assert likely_cause(found).advice.startswith("Check at most 1 step")


def test_a_variable_that_the_checkpoint_does_not_hold_is_told_apart_from_nondeterminism() -> None:
    at_once = difference(s3={"state": {"model/kernel": variable("x"), "noise": omitted("3")}})
    later = difference(s4={"state": {"model/kernel": variable("x"), "noise": omitted("4")}})
    assert likely_cause(at_once).id == "not-restored"
    assert likely_cause(later).id == "threads"


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (CheckFacts(has_dataset=True, threads=1), "unknown"),
        (CheckFacts(has_dataset=True, threads=0), "threads"),
        (CheckFacts(has_dataset=True, threads=1, gpus=1), "gpu-atomics"),
        (CheckFacts(has_dataset=True, gpus=1, deterministic=True), "unknown"),
        (CheckFacts(has_dataset=False, threads=1), "input"),
        (CheckFacts(has_dataset=False, datasets=["rows"]), "input"),
        (CheckFacts(has_dataset=False, iterators=["batches"]), "unsaved-iterator"),
        (CheckFacts(has_dataset=True, step_operations=["tf.random.normal"]), "stateful-operation"),
        (CheckFacts(has_dataset=True, step_operations=["tf.py_function"]), "python-operation"),
        (
            CheckFacts(has_dataset=True, strategy="ParameterServerStrategy", replicas=2),
            "parameter-servers",
        ),
    ],
)
def test_equal_state_and_input_leave_these_causes(facts: CheckFacts, cause: str) -> None:
    found = StepDifference(Pass.IN_PLACE, What.METRIC, "loss", 0, 4, 1, facts=facts)
    assert likely_cause(found).id == cause


def test_a_number_that_each_step_sets_anew_is_no_cause() -> None:
    """`calls` counts on after the restore; `position` is the step, looked at at another moment."""
    lines = trace(
        s3={"values": {"calls": "5", "position": "4"}},
        s4={"values": {"calls": "6", "position": "3"}, "metrics": {"loss": "0x0p+0"}},
    )
    for number, values in (
        (3, {"calls": "3", "position": "2"}),
        (4, {"calls": "4", "position": "3"}),
    ):
        lines |= dict([step(Pass.FIRST, number, values=values)])
    found = first_difference({0: lines}, Pass.IN_PLACE)
    assert found is not None
    assert found.values == (("calls", "3", "5"),)


def test_a_stateful_map_is_the_cause_of_another_input() -> None:
    facts = CheckFacts(has_dataset=True, input_operations=["tf.random.uniform (train.py, line 7)"])
    found = StepDifference(Pass.IN_PLACE, What.INPUT, "", 0, 4, 1, facts=facts)
    cause = likely_cause(found)
    assert cause.id == "stateful-map"
    assert "train.py, line 7" in cause.why


def test_what_the_trainer_found_in_the_dataset_is_a_cause() -> None:
    facts = CheckFacts(
        has_dataset=True,
        input_causes=["a tf.random.Generator in map (train.py line 7)"],
        input_remedies=["Use tf.random.stateless_*."],
    )
    for what, name in ((What.INPUT, ""), (What.STATE, "StateVar")):
        found = StepDifference(Pass.IN_PLACE, what, name, 0, 4, 1, facts=facts)
        cause = likely_cause(found)
        assert cause.id == "stateful-map"
        assert "train.py line 7" in cause.why and cause.advice == "Use tf.random.stateless_*."
    metric = StepDifference(Pass.IN_PLACE, What.METRIC, "loss", 0, 4, 1, facts=facts)
    assert likely_cause(metric).id != "stateful-map"


def test_only_a_name_of_the_script_is_shown_as_code() -> None:
    found = StepDifference(
        Pass.IN_PLACE, What.STATE, "kernel", 0, 3, 0, kind=StateKind.VARIABLE, passed=False
    )
    unnamed = likely_cause(found)
    assert "kernel}" not in unnamed.advice and "extra={…}" in unnamed.advice
    named = likely_cause(replace(found, expression="encoder.kernel"))
    assert "extra={'kernel': encoder.kernel}" in named.advice


def test_a_difference_in_a_new_process_only_has_to_do_with_its_start() -> None:
    found = StepDifference(Pass.COLD, What.METRIC, "loss", 0, 4, 1)
    assert likely_cause(found, in_place_exact=True).id == "new-process"


def result(*, exact: bool) -> CheckResult:
    found = None if exact else difference(s4={"batch": "x"})
    return CheckResult(
        options=CheckOptions(("python", "train.py"), "/work", workers=2),
        repetitions=(Repetition(Pass.IN_PLACE, 2, found), Repetition(Pass.COLD, 2, None)),
        workers=2,
        metrics=("loss",),
        objects=3,
        has_input=True,
        seconds=1.5,
    )


def test_an_omission_is_told_with_what_to_do_and_makes_the_command_fail(
    tool: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"model/kernel": variable("3"), "noise": omitted("x")}
    found = (Repetition(Pass.IN_PLACE, 2, difference(s3={"state": state})),)
    inexact = replace(result(exact=False), repetitions=found)
    monkeypatch.setattr("tfckpt_tui.cli.check.run_check", lambda options, progress: inexact)
    said = tool("check", "--", "train.py")
    assert said.code == ExitCode.PROBLEM
    assert "The tf.random.Generator noise was not passed to TrainingRun" in said.data
    assert "extra={" in said.data


@pytest.mark.parametrize("exact", [True, False])
def test_the_json_of_a_check(exact: bool) -> None:
    report = check_report(result(exact=exact), "/somewhere")
    check_json(CheckReport, msgspec.json.decode(msgspec.json.encode(report)))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (CheckFacts(has_dataset=True, gpus=1), True),
        (CheckFacts(has_dataset=True, gpus=1, deterministic=True), False),
        (CheckFacts(has_dataset=True), False),
    ],
)
def test_an_exact_check_on_a_gpu_may_be_luck(capsys, facts: CheckFacts, said: bool) -> None:
    options = CheckOptions(("python", "train.py"), "/work")
    repeated = [step(Pass.COLD, number) for number in (3, 4, 5)]
    found = result_of(options, {0: {**trace(s4={"facts": facts}), **dict(repeated)}}, 1.0)
    assert found.exact
    assert found.gpu_order_varies is said
    print_result(found)
    assert ("enable_op_determinism()" in capsys.readouterr().out) is said


def test_an_exact_check_repeats_what_is_known_to_be_missing(capsys) -> None:
    shuffled = PipelineFacts(
        name="dataset",
        position=InputPosition.POSITION,
        causes=["a repeated shuffle without a seed"],
        remedies=["Pass a seed to `shuffle`."],
    )
    lines = [
        trace(s4={"facts": CheckFacts(has_dataset=True, exactness=exactness_of(inputs, NO_STEP))})
        | dict([step(Pass.COLD, number) for number in (3, 4, 5)])
        for inputs in ([], [shuffled])
    ]
    found = result_of(CheckOptions(("python", "train.py"), "/work"), dict(enumerate(lines)), 1.0)
    assert found.exact
    print_result(found)
    said = capsys.readouterr().out
    assert "exact only over 2 steps: compared 1 metric" in said
    assert said.splitlines()[-2:] == [
        "Resuming is known not to be exact, because the input pipeline 'dataset' uses a repeated "
        "shuffle without a seed.",
        "    what to do: Pass a seed to `shuffle`.",
    ]
    report = check_report(found, None)
    check_json(CheckReport, msgspec.json.decode(msgspec.json.encode(report)))
    assert (list(report.obstacles), list(report.remedies)) == (
        [shuffled.reason],
        shuffled.remedies,
    )


def test_a_check_says_why_no_input_was_compared(capsys) -> None:
    print_result(replace(result(exact=True), has_input=False))
    said = capsys.readouterr().out
    assert "compared 1 metric of each step and the state of 3 objects" in said
    assert "The input was not compared: no dataset was passed to TrainingRun." in said


def launched_run(root: Path, command: str, working_directory: Path) -> RunDirectory:
    run = RunDirectory(root)
    run.create()
    words, place = tuple(command.split()), str(working_directory)
    options = LaunchOptions(run_directory=str(root), command=words, working_directory=place)
    store(run.launch_file, options)
    return run


def test_a_stored_result_counts_for_a_run_without_a_launcher(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "train.py").write_text("train()")
    options = CheckOptions(("python", "train.py", "runs/try"), str(tmp_path))
    directory = str(tmp_path / "runs" / "try")
    store_check(replace(result(exact=True), options=options, run_directory=directory), 1, "")
    run = RunDirectory(tmp_path / "runs" / "b")
    run.create()
    assert stored_check(run, 1) is None
    command = (sys.executable, "train.py", "runs/b")
    store(run.command_file, ScriptCommand(command=command, working_directory=str(tmp_path)))
    found = stored_check(run, 1)
    assert found is not None and found.script == "train.py"


def test_a_stored_result_counts_until_the_script_changes(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    script = tmp_path / "train.py"
    script.write_text("train()")
    options = CheckOptions(("python", "train.py"), str(tmp_path), workers=2)
    checked = CheckResult(options, result(exact=True).repetitions, 2, (), 3, True, 1.0)
    store_check(checked, 2, "")
    run = launched_run(tmp_path / "run", "python train.py", tmp_path)
    found = stored_check(run, 2)
    assert found is not None and not found.difference and found.steps == 2
    assert not found.is_outdated
    assert stored_check(run, 1) is None
    script.write_text("train(more)")
    changed = stored_check(run, 2)
    assert changed is not None and changed.is_outdated


@pytest.mark.parametrize(
    ("checked", "passed", "launched", "counts"),
    [
        ("python train.py runs/try", "runs/try", "python train.py runs/b", True),
        ("python train.py runs/try", "runs/try", "python train.py {work}/runs/b/", True),
        ("python train.py --dir=runs/try", "runs/try", "python train.py --dir=runs/b", True),
        (
            "python train.py --dir runs/try -n 3",
            "runs/try",
            "python train.py --dir runs/b -n 3",
            True,
        ),
        ("python train.py", "runs/default", "python train.py runs/b", True),
        ("python train.py runs/b", "", "python train.py runs/b", True),
        ("/env/bin/python3.12 ./train.py", "", "python {work}/train.py", True),
        ("./train.py", "", "python train.py", True),
        ("python -m train", "", "python train.py", True),
        ("python -u train.py", "", "python train.py", True),
        ("python train.py --rate 1 runs/try", "runs/try", "python train.py --rate 2 runs/b", False),
        ("python train.py runs/try --fast", "runs/try", "python train.py runs/b", False),
        ("python train.py data/a", "", "python train.py runs/b", False),
        ("python other.py runs/try", "runs/try", "python train.py runs/b", False),
        ("env A=1 python train.py", "", "python train.py", False),
    ],
)
def test_a_result_counts_for_the_same_script_with_the_same_options(
    tmp_path, monkeypatch, checked, passed, launched, counts
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("train.py", "other.py"):
        (tmp_path / name).write_text(name)
    options = CheckOptions(tuple(checked.split()), str(tmp_path))
    directory = str(tmp_path / passed) if passed else ""
    store_check(replace(result(exact=True), options=options, run_directory=directory), 1, "")
    run = launched_run(tmp_path / "runs" / "b", launched.format(work=tmp_path), tmp_path)
    assert (stored_check(run, 1) is not None) == counts
