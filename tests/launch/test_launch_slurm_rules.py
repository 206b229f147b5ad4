"""What a launch asks of Slurm, and what it makes of Slurm's answers; pure rules."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.preflight import check_options
from tfckpt_trainer.launch.slurm.batch_script import batch_script
from tfckpt_trainer.launch.slurm.commands import CommandOutput
from tfckpt_trainer.launch.slurm.controller import SlurmJob, dead_nodes_in_words, parse_job
from tfckpt_trainer.launch.slurm.nodes.node_check import NodeReport
from tfckpt_trainer.launch.slurm.nodes.node_survey import NodeAnswer, judge
from tfckpt_trainer.launch.slurm.requeue_policy import (
    LONGEST_PAUSE_SECONDS,
    JobEnding,
    Requeue,
    decide_requeue,
    pause_after,
)
from tfckpt_trainer.launch.slurm.step_starter import (
    decode_placement,
    encode_placement,
    place_tasks,
)
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.launch.supervision.restart_policy import (
    Attempt,
    EarlierAttempts,
    Exit,
    Limits,
    Next,
    decide,
)
from tfckpt_trainer.launch.supervision.starters import CannotStartError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState

UNKNOWN_OPTION = """\
sbatch: unrecognized option '--memm=3G'
Try "sbatch --help" for more information
"""

JOB = BatchJob(scheduler="slurm", id="7", submitted_at=0.0, script="s", max_requeues=5)

# One line of `scontrol --oneliner show job`, shortened.
SHOWN = (
    "JobId=14 JobName=a State=RUNNING JobState=RUNNING Reason=None Requeue=1 Restarts=2 "
    "StartTime=2026-11-22T09:59:26 EndTime=2026-11-22T10:04:26 "
    "PreemptEligibleTime=2026-11-22T09:59:25 PreemptTime={} NodeList=tn[0-1] NumNodes=2"
)


def options(tmp_path, **changes) -> LaunchOptions:
    return LaunchOptions(
        run_directory=str(tmp_path),
        command=("python", "train.py"),
        working_directory=str(tmp_path),
        slurm=SlurmOptions(**changes),
    )


def stopped(**changes) -> JobEnding:
    facts = changes.pop("facts", SlurmJob(state="RUNNING"))
    return JobEnding(SupervisorState.STOPPED, facts, **{"trained": True, **changes})


def test_facts_come_from_one_line_of_scontrol():
    facts = parse_job(SHOWN.format("None"))
    assert (facts.state, facts.restarts, facts.preempted) == ("RUNNING", 2, False)
    assert facts.nodes == ("tn0", "tn1")
    assert facts.ends_at is not None
    assert parse_job(SHOWN.format("2026-11-22T09:59:32")).preempted
    assert parse_job("") == SlurmJob()


# What Slurm 22.05 shows of a job whose first process was killed, and of one that was cancelled.
@pytest.mark.parametrize(
    ("shown", "killed"),
    [
        ("JobState=COMPLETING Reason=JobLaunchFailure ExitCode=0:9", True),
        ("JobState=COMPLETING Reason=None ExitCode=0:9", False),
        ("JobState=COMPLETING Reason=NonZeroExitCode ExitCode=1:0", False),
        ("JobState=RUNNING Reason=None ExitCode=0:0", False),
    ],
)
def test_a_kill_is_told_from_a_cancel(shown, killed):
    assert parse_job(shown).killed is killed


@given(st.text())
def test_any_answer_of_scontrol_is_read(text):
    assert parse_job(f"JobId=1 NodeList={text}").restarts == 0


@pytest.mark.parametrize(
    ("ending", "requeue"),
    [
        (stopped(), Requeue.NO),
        (stopped(near_limit=True), Requeue.REQUEUE),
        (stopped(obstacle="tc1 is gone."), Requeue.REQUEUE),
        (stopped(facts=SlurmJob("RUNNING", preempted=True)), Requeue.REQUEUE),
        # Sites may give no grace time; then the job is ending already.
        (stopped(facts=SlurmJob("COMPLETING", preempted=True)), Requeue.REQUEUE),
        (stopped(facts=SlurmJob("COMPLETING", restarts=1)), Requeue.BY_SLURM),
        # Slurm did not announce its limit.
        (stopped(facts=SlurmJob("COMPLETING", timed_out=True)), Requeue.REQUEUE),
        (stopped(facts=SlurmJob("COMPLETING", killed=True)), Requeue.REQUEUE),
        # A person cancelled it, also near its limit.
        (stopped(facts=SlurmJob("COMPLETING")), Requeue.NO),
        (stopped(facts=SlurmJob("CANCELLED"), near_limit=True), Requeue.NO),
        # A person stopped the run before Slurm preempted the job, or a node was lost.
        (stopped(facts=SlurmJob("RUNNING", preempted=True), stopped_by="ada"), Requeue.NO),
        (stopped(obstacle="Node tn1 is lost.", stopped_by="ada"), Requeue.NO),
        (stopped(facts=SlurmJob("COMPLETING", restarts=1), stopped_by="ada"), Requeue.CANCEL),
        (JobEnding(SupervisorState.FINISHED, SlurmJob("RUNNING"), near_limit=True), Requeue.NO),
        (JobEnding(SupervisorState.FAILED, SlurmJob("RUNNING", preempted=True)), Requeue.NO),
    ],
)
def test_a_job_is_started_again_unless_a_person_ended_it_or_it_is_over(ending, requeue):
    assert decide_requeue(ending, JOB).requeue is requeue


@pytest.mark.parametrize(
    ("ending", "words"),
    [
        (stopped(), ""),
        (stopped(facts=SlurmJob("CANCELLED")), "Batch job 7 was cancelled."),
        (stopped(facts=SlurmJob("COMPLETING"), near_limit=True), "Batch job 7 was cancelled."),
        (stopped(facts=SlurmJob("TIMEOUT")), "Slurm ended batch job 7 (TIMEOUT)."),
        (stopped(facts=SlurmJob("COMPLETING", restarts=1)), "Slurm requeues the job."),
        (
            stopped(facts=SlurmJob("COMPLETING", restarts=1), dead_nodes="Node tn1 is down: x."),
            "Node tn1 is down: x. Slurm requeues the job.",
        ),
        (
            stopped(facts=SlurmJob("RUNNING", restarts=1), near_limit=True),
            "The time limit of the job is near. Slurm requeues the job.",
        ),
    ],
)
def test_each_end_by_slurm_has_a_cause(ending, words):
    assert decide_requeue(ending, JOB).reason == words


def test_nodes_that_are_down_are_named_with_their_reason():
    shown = "tn0|mixed|none\ntn1|down*|Not responding\ntn1|down*|Not responding\ntn2|alloc*|none\n"
    assert dead_nodes_in_words(shown) == (
        "Node tn1 is down: Not responding. Node tn2 does not respond."
    )
    assert dead_nodes_in_words("") == ""


@given(st.text())
def test_any_answer_of_sinfo_is_read(text):
    assert dead_nodes_in_words(text) is not None


def test_requeues_end_at_their_maximum():
    used = msgspec.structs.replace(JOB, requeues=5)
    ending = stopped(near_limit=True, facts=SlurmJob("RUNNING", restarts=5))
    assert decide_requeue(ending, used).reason.endswith("All 5 requeues are used.")


def test_starts_without_a_step_are_delayed_and_then_refused():
    job, pauses = JOB, []
    for _ in range(2):
        decision = decide_requeue(stopped(near_limit=True, trained=False), job)
        pauses.append(decision.pause_seconds)
        job = msgspec.structs.replace(job, fruitless=decision.fruitless)
    assert pauses == [240, 480]
    decision = decide_requeue(stopped(near_limit=True, trained=False), job)
    assert decision.requeue is Requeue.REFUSED
    assert "longer time limit" in decision.reason
    # Preemptions are not the fault of the limit.
    ending = stopped(facts=SlurmJob("RUNNING", preempted=True), trained=False)
    assert decide_requeue(ending, job).requeue is Requeue.REQUEUE
    assert decide_requeue(stopped(near_limit=True), job).fruitless == 0


@given(st.integers(0, 10**6))
def test_pauses_are_bounded(fruitless):
    assert 0 <= pause_after(fruitless) <= LONGEST_PAUSE_SECONDS


def test_the_batch_script_says_all_that_was_asked(tmp_path):
    root = tmp_path / 'a "run" 50%'
    asked = {"nodes": "2", "tasks_per_node": 4, "gpus_per_node": 4, "time": "8:00:00"}
    launch = options(tmp_path, **asked, partition="p", account="a", arguments=("--mem=16G",))
    lines = batch_script(RunDirectory(root), launch, "/usr/bin/python3").splitlines()
    assert lines[0] == "#!/bin/bash"
    for directive in ("--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=4", "--time=8:00:00",
                      "--partition=p", "--account=a", "--signal=B:USR1@45", "--requeue",
                      "--mem=16G"):  # fmt: skip
        assert f"#SBATCH {directive}" in lines
    output = str(root / ".tfckpt/logs/job.log").replace("%", "%%").replace('"', '\\"')
    assert f'#SBATCH --output="{output}"' in lines
    assert "#SBATCH --no-kill" not in lines
    module = "tfckpt_trainer.launch.slurm.batch_watch"
    assert lines[-1].startswith(f"exec /usr/bin/python3 -P -m {module} ")


def test_a_range_of_nodes_may_lose_some(tmp_path):
    text = batch_script(RunDirectory(tmp_path), options(tmp_path, nodes="1-4", tasks_per_node=2))
    assert "#SBATCH --no-kill" in text
    # With a number of tasks, Slurm gives the smallest number of nodes.
    assert "--ntasks" not in text
    assert "#SBATCH --mincpus=2" in text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"nodes": "0"}, "--nodes is '0'"),
        ({"nodes": "4-2"}, "--nodes is '4-2'"),
        ({"nodes": "many"}, "--nodes is 'many'"),
        ({"time": "1\n#SBATCH --uid=0"}, "control character"),
        ({"arguments": ("mem=1",)}, "expected an option"),
        ({"arguments": ("--array=0-3",)}, "in a directory of its own"),
        ({"max_requeues": -1}, "cannot be negative"),
    ],
)
def test_invalid_options_are_refused(changes, why):
    with pytest.raises(UsageError, match=why):
        SlurmOptions(**changes).check()


def test_tasks_are_placed_on_the_nodes_that_work(tmp_path):
    launch = options(tmp_path, nodes="1-3", tasks_per_node=2)
    placement = place_tasks(launch, 7, 0, ["n1", "n3"])
    assert len(placement.cluster["worker"]) == 4
    assert {place.partition(":")[0] for place in placement.addresses} == {"n1", "n3"}
    assert decode_placement(encode_placement(placement)) == placement
    assert set(place_tasks(launch, 7, 1, ["n1", "n3"]).addresses).isdisjoint(placement.addresses)
    with_servers = msgspec.structs.replace(launch, parameter_servers=1)
    assert [task.job for task in place_tasks(with_servers, 7, 0, ["n1", "n3"]).tasks] == [
        "chief", "worker", "worker", "ps",
    ]  # fmt: skip
    with pytest.raises(CannotStartError, match="2 tasks are too few"):
        place_tasks(with_servers, 7, 0, ["n1"])


def report(node: str, **changes) -> NodeAnswer:
    known = {"Python": "3.11.7", "TensorFlow": "2.21.0"}
    return NodeAnswer(NodeReport(node=node, **{"at": 100.0, "versions": known, **changes}), 100.0)


def test_equal_nodes_pass_the_check():
    survey = judge(["a", "b"], {"b": report("b"), "a": report("a")})
    assert survey.nodes == ("a", "b")
    assert (survey.refusals, survey.warnings, survey.silent) == ((), (), ())
    assert survey.summary == "Checked a, b: same run directory, Python 3.11.7, TensorFlow 2.21.0."


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"problem": "/run is not the directory that the first node sees"}, "b: /run is not"),
        ({"versions": {"Python": "3.11.7", "TensorFlow": "2.20.0"}}, "b has TensorFlow 2.20.0, a"),
        ({"versions": {"Python": "3.11.7"}}, "b has TensorFlow none, a has 2.21.0"),
    ],
)
def test_nodes_that_cannot_train_together_are_refused(changes, refusal):
    survey = judge(["a", "b"], {"a": report("a"), "b": report("b", **changes)})
    assert survey.refusals[0].startswith(refusal)


@pytest.mark.parametrize(
    ("changes", "unseen", "warning"),
    [
        ({"at": 160.0}, (), "The clock of b differs by +60 s."),
        ({"locked": False}, (), "Locks (flock) are not shared with b."),
        ({"taken_ports": (12001,)}, (), "Another program uses port 12001 on b"),
        ({}, ("b",), "Files that b renamed were not seen"),
    ],
)
def test_what_training_can_live_with_is_a_warning(changes, unseen, warning):
    survey = judge(["a", "b"], {"a": report("a"), "b": report("b", **changes)}, unseen)
    assert survey.refusals == ()
    assert survey.warnings[0].startswith(warning)
    assert survey.ports_taken == bool(changes.get("taken_ports"))


def test_a_node_that_does_not_answer_is_left_out():
    survey = judge(["a", "b"], {"a": report("a")})
    assert (survey.nodes, survey.silent) == (("a",), ("b",))
    assert judge(["a"], {}).summary == ""


def test_all_workers_start_again_when_one_is_silent():
    gone = Exit(1, -9, silent=True)
    attempt = Attempt(workers=2, seconds=90, exits=(gone,), heard=frozenset({0, 1}), stepped=True)
    decision = decide(attempt, EarlierAttempts(), Limits())
    assert decision.next is Next.RESTART
    assert decision.reason == "Worker 1 is gone, or its node is."


def test_an_unknown_option_of_sbatch_is_named():
    assert CommandOutput(1, "", UNKNOWN_OPTION).last_line == (
        "sbatch: unrecognized option '--memm=3G'"
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1", 60), ("2:30", 150), ("8:00:00", 28_800), ("1-12", 129_600), ("1-0:30", 88_200),
        ("0-0:01:05", 65), ("", None), ("0", None), ("UNLIMITED", None), ("soon", None),
    ],
)  # fmt: skip
def test_a_time_limit_is_read_as_sbatch_reads_it(text, seconds):
    assert SlurmOptions(time=text).limit_seconds == seconds
    assert SlurmOptions(time="5", arguments=("-N1", f"--time={text}")).limit_seconds == (
        seconds if text else 300
    )


@pytest.mark.parametrize(("limit", "fits"), [("2", False), ("3", True), ("1-0", True), ("", True)])
def test_a_time_limit_leaves_time_to_train(tmp_path, limit, fits):
    asked = options(tmp_path, time=limit)
    asked = msgspec.structs.replace(asked, command=("/bin/true",))
    if fits:
        check_options(asked)
        return
    with pytest.raises(UsageError, match=r"is 120 s; expected at least 165 s\..*--time 3`"):
        check_options(asked)
