"""Supervises a run in the batch step of a Slurm job: `python -m …batch_step RUN`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from tfckpt_trainer.cluster.slurm import show_hostnames
from tfckpt_trainer.errors import ExitCode, LaunchError, TfckptError, describe_error
from tfckpt_trainer.launch.lock import take_lock
from tfckpt_trainer.launch.logs import open_log
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.allocation import Allocation
from tfckpt_trainer.launch.slurm.controller import (
    JobFacts,
    delay_job,
    read_job,
    requeue_job,
)
from tfckpt_trainer.launch.slurm.requeue_policy import (
    JobEnding,
    Requeue,
    RequeueDecision,
    decide_requeue,
)
from tfckpt_trainer.launch.slurm.step_starter import StepStarter
from tfckpt_trainer.launch.supervisor import Supervisor
from tfckpt_trainer.rundir.documents import load, load_if_exists, store
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState

LOCK_SECONDS = 600.0
"""How long to wait for the lock of an earlier start, whose node may be cut off but still run."""

ANSWER_SECONDS = 30.0
"""How long to ask Slurm why it ends the workers, if it does not answer."""

END_SECONDS = 120.0
"""How long to wait for Slurm to end a job that is requeued."""

POLL_SECONDS = 0.1


class BatchStep:
    """One start of a job: supervises the run, and requeues the job if it has to go on."""

    def __init__(
        self, run: RunDirectory, options: LaunchOptions, environment: Mapping[str, str]
    ) -> None:
        assert options.slurm is not None
        self._run = run
        self._job = environment["SLURM_JOB_ID"]
        nodes = show_hostnames(environment["SLURM_JOB_NODELIST"])
        self._record = self._start_record(environment, nodes, options.slurm.max_requeues)
        self._allocation = Allocation(run, self._job, nodes, options.slurm.least_nodes)
        starter = StepStarter(run, options, int(self._job), self._allocation)
        self._supervisor = Supervisor(run, options, starter)
        self._allocation.reporter = self._supervisor.report
        self._near_limit = False
        self._told_to_end = False

    def run(self) -> SupervisorState:
        """Supervises until the end; returns how it ended."""
        signal.signal(signal.SIGUSR1, lambda *_: self._on_limit())
        state = self._supervisor.run()
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: self._on_end())
        ending = JobEnding(
            state=state,
            facts=self._why_stopped() if state is SupervisorState.STOPPED else JobFacts(),
            near_limit=self._near_limit,
            lost_nodes=self._allocation.lost_nodes,
            trained=self._supervisor.trained,
        )
        return self._follow(decide_requeue(ending, self._record), ending)

    def _follow(self, decision: RequeueDecision, ending: JobEnding) -> SupervisorState:
        report = self._supervisor.report
        if ending.facts.preempted:
            report.note(JournalKind.PREEMPT, "Slurm preempts the job.")
        if decision.requeue is Requeue.NO:
            return ending.state
        if decision.requeue is Requeue.REFUSED:
            return self._fail(decision.reason)
        words = decision.reason
        if decision.requeue is Requeue.REQUEUE:
            words += f" Job {self._job} is started again"
            words += f" after {decision.pause_seconds:.0f} s." if decision.pause_seconds else "."
        report.note(JournalKind.REQUEUE, words, {"job": self._job})
        report.enter(SupervisorState.STOPPED, words)
        store(
            self._run.job_file,
            msgspec.structs.replace(self._record, fruitless=decision.fruitless),
        )
        if decision.requeue is Requeue.BY_SLURM:
            return ending.state
        try:
            requeue_job(self._job)
        except LaunchError as error:
            return self._leave_it_to_slurm(str(error), ending)
        if decision.pause_seconds:
            try:
                delay_job(self._job, decision.pause_seconds)
            except LaunchError as error:
                report.note(JournalKind.NOTE, f"The job starts again without a pause. {error}")
        self._await_end()
        return ending.state

    def _leave_it_to_slurm(self, why: str, ending: JobEnding) -> SupervisorState:
        """Stays until Slurm ends the job: a job that has ended by itself is not requeued."""
        self._supervisor.report.note(
            JournalKind.NOTE, f"The job could not be requeued from here. {why}"
        )
        if ending.facts.preempted and self._await_end():
            return ending.state
        return self._fail(
            f"The job could not be requeued. Launch it again: `sbatch {self._run.job_script}`."
        )

    def _fail(self, reason: str) -> SupervisorState:
        report = self._supervisor.report
        report.note(JournalKind.FAILED, reason)
        report.enter(SupervisorState.FAILED, reason)
        return SupervisorState.FAILED

    def _await_end(self) -> bool:
        """Waits until Slurm tells this process to end; returns whether it did."""
        deadline = time.monotonic() + END_SECONDS
        while not self._told_to_end and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return self._told_to_end

    def _why_stopped(self) -> JobFacts:
        """Asks Slurm, until it answers."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while not (facts := read_job(self._job)).state and time.monotonic() < deadline:
            time.sleep(1.0)
        return facts

    def _start_record(
        self, environment: Mapping[str, str], nodes: Sequence[str], max_requeues: int
    ) -> BatchJob:
        """Rewrites `job.json` for this start."""
        facts = read_job(self._job)
        known = load_if_exists(self._run.job_file, BatchJob)
        if known is None or known.id != self._job:
            # Somebody submitted the batch script again.
            known = BatchJob(
                scheduler="slurm",
                id=self._job,
                user=psutil.Process().username(),
                submitted_at=time.time(),
                script=str(self._run.job_script.relative_to(self._run.root)),
            )
        record = msgspec.structs.replace(
            known,
            cluster=environment.get("SLURM_CLUSTER_NAME", known.cluster),
            name=environment.get("SLURM_JOB_NAME", known.name),
            requeues=int(environment.get("SLURM_RESTART_COUNT", "0") or 0),
            max_requeues=max_requeues,
            nodes=list(nodes),
            started_at=time.time(),
            ends_at=facts.ends_at,
        )
        store(self._run.job_file, record)
        return record

    def _on_limit(self) -> None:
        self._near_limit = True
        self._supervisor.stop("The time limit of the job is near.")

    def _on_end(self) -> None:
        self._told_to_end = True


def main(arguments: Sequence[str]) -> int:
    """Supervises the run that `launch.json` in the run directory describes."""
    run = RunDirectory(Path(os.path.realpath(arguments[0])))
    try:
        options = load(run.launch_file, LaunchOptions)
        if options.slurm is None or "SLURM_JOB_ID" not in os.environ:
            raise LaunchError(
                f"{run.root} was not launched in a Slurm job. Launch it with "
                "`tfckpt-tui launch RUN --slurm -- python SCRIPT`."
            )
        lock = _await_lock(run)
        with open_log(run.supervisor_log, 0, options.command) as log:
            # Errors of `srun` stay in the log of the job.
            os.dup2(log.fileno(), 1)
        state = BatchStep(run, options, os.environ).run()
        os.close(lock)
    except (TfckptError, OSError) as error:
        sys.stderr.write(f"{describe_error(error)}\n")
        return ExitCode.PROBLEM
    return ExitCode.PROBLEM if state is SupervisorState.FAILED else ExitCode.DONE


def _await_lock(run: RunDirectory) -> int:
    deadline = time.monotonic() + LOCK_SECONDS
    while (lock := take_lock(run)) is None:
        if time.monotonic() > deadline:
            raise LaunchError(f"{run.root} already has a supervisor.")
        time.sleep(POLL_SECONDS)
    return lock


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
