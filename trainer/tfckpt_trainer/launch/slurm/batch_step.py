"""Supervises a run in the batch step of a Slurm job: `python -m …batch_step RUN`.

`batch_watch` starts it, with `--again` if an earlier supervisor of this start was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psutil

from tfckpt_trainer.alerts.sender import sending_alerts
from tfckpt_trainer.cluster.slurm import show_hostnames
from tfckpt_trainer.errors import ExitCode, LaunchError, TfckptError, describe_error
from tfckpt_trainer.launch.batch.job_record import load_job_record
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.processes.logs import open_run_log
from tfckpt_trainer.launch.slurm.batch_watch import AGAIN
from tfckpt_trainer.launch.slurm.commands import UnansweredError
from tfckpt_trainer.launch.slurm.controller import (
    SlurmJob,
    delay_job,
    describe_dead_nodes,
    read_job,
    requeue_job,
    waits_again,
)
from tfckpt_trainer.launch.slurm.earlier_start import (
    RECORD_SECONDS,
    JobStart,
    await_earlier_start,
    describe_lost_start,
    end_left_steps,
    launch_in_app,
    read_later_start,
    require_job_of_run,
    start_of_job,
)
from tfckpt_trainer.launch.slurm.job_queries import cancel_job
from tfckpt_trainer.launch.slurm.nodes.allocation import Allocation
from tfckpt_trainer.launch.slurm.requeue_policy import (
    QUEUE_SECONDS,
    JobEnding,
    Requeue,
    RequeueDecision,
    decide_requeue,
)
from tfckpt_trainer.launch.slurm.step_starter import StepStarter
from tfckpt_trainer.launch.supervision.reporter import Reporter
from tfckpt_trainer.launch.supervision.stop import StopCommands, accepted_stop
from tfckpt_trainer.launch.supervision.supervisor import Supervisor
from tfckpt_trainer.rundir.event_log import note_event
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SUPERVISOR, EventEntry, EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import SupervisorState
from tfckpt_trainer.rundir.run_info import staying_in
from tfckpt_trainer.rundir.storage.documents import (
    load,
    replace_newer_documents,
    store,
)

ANSWER_SECONDS = 30.0
"""How long to ask Slurm why it ends the workers, if it does not answer."""

REQUEUE_SECONDS = 300.0
"""How long to go on asking for a requeue if Slurm does not answer."""

REQUEUE_PAUSE_SECONDS = 5.0

LAST_SECONDS = 10.0
"""How long to go on if Slurm ends the job meanwhile: it kills this process soon."""

LATER_SECONDS = 2.0
"""Interval at which `job.json` is read, to see whether Slurm has started the job again."""

STEP_SECONDS = 15.0
"""How long job steps without a supervisor may run beyond the grace period before a cancel."""

END_SECONDS = 120.0
"""How long to wait for Slurm to end a job that is requeued."""

POLL_SECONDS = 0.1


class BatchStep:
    """One start of a job: supervises the run, and requeues the job if it has to go on."""

    def __init__(
        self,
        run: RunDirectory,
        options: LaunchOptions,
        environment: Mapping[str, str],
        on_event: Callable[[EventEntry], None] = lambda entry: None,
    ) -> None:
        """Prepares a start.

        Args:
            run: The run directory.
            options: The options of the launch.
            environment: The variables that Slurm sets for the job.
            on_event: Called with each event of the supervisor.
        """
        assert options.slurm is not None
        self._run = run
        self._own = start_of_job(environment)
        self._job = self._own.job
        nodes = show_hostnames(environment["SLURM_JOB_NODELIST"])
        self._record = self._start_record(environment, nodes, options.slurm.max_requeues)
        self._store()
        self._allocation = Allocation(run, self._job, nodes, options.slurm.least_nodes)
        self._starter = StepStarter(run, options, int(self._job), self._allocation)
        self._supervisor = Supervisor(run, options, self._starter, on_event, may_move=True)
        self._allocation.supervisor = self._supervisor
        self._allocation.on_nodes = self._record_nodes
        self._near_limit = False
        self._told_to_end = False
        self._replaced = False

    def run(self) -> SupervisorState:
        """Supervises until the end; returns how it ended."""
        signal.signal(signal.SIGUSR1, lambda *_: self._on_limit())
        threading.Thread(target=self._watch_for_later_start, daemon=True).start()
        state = self._supervisor.run()
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda *_: self._on_end())
        if self._replaced:
            return state
        ending = JobEnding(
            state=state,
            facts=self._why_stopped() if state is SupervisorState.STOPPED else SlurmJob(),
            near_limit=self._near_limit,
            obstacle=self._supervisor.died or self._allocation.obstacle,
            trained=self._supervisor.trained,
            stopped_by=self._supervisor.stopped_by,
            dead_nodes=(
                describe_dead_nodes(self._record.nodes) if state is SupervisorState.STOPPED else ""
            ),
        )
        return self._follow(decide_requeue(ending, self._record), ending)

    def _follow(self, decision: RequeueDecision, ending: JobEnding) -> SupervisorState:
        report = self._supervisor.report
        if ending.facts.preempted:
            report.note(EventKind.PREEMPT, "Slurm preempts the job.")
        if decision.requeue is Requeue.NO:
            if decision.reason:
                report.note(EventKind.STOP, decision.reason)
                report.enter(ending.state, decision.reason)
            return ending.state
        if decision.requeue is Requeue.REFUSED:
            return self._fail(decision.reason)
        if decision.requeue is Requeue.CANCEL:
            report.note(EventKind.STOP, decision.reason)
            report.enter(ending.state, decision.reason)
            try:
                cancel_job(self._job)
            except LaunchError as error:
                report.note(EventKind.NOTE, f"The job starts again, and does not train. {error}")
            return ending.state
        words = decision.reason
        wait = max(decision.pause_seconds, QUEUE_SECONDS)
        if decision.requeue is Requeue.REQUEUE:
            problem = self._requeue()
            if problem is not None:
                return self._leave_it_to_slurm(words, problem, ending)
            words += f" {waits_again(self._job, wait)}"
        report.note(EventKind.REQUEUE, words, {"job": self._job})
        report.enter(SupervisorState.STOPPED, words)
        self._store(fruitless=decision.fruitless)
        if decision.requeue is Requeue.BY_SLURM:
            return ending.state
        delay_job(self._job, wait, partial(report.note, EventKind.NOTE))
        self._await_end()
        return ending.state

    def _requeue(self) -> LaunchError | None:
        """Requeues the job; returns why Slurm did not, or may not have."""
        deadline = time.monotonic() + REQUEUE_SECONDS
        while True:
            try:
                requeue_job(self._job)
            except LaunchError as error:
                facts = read_job(self._job, self._supervisor.report.beat_if_due)
                if facts.restarts > self._own.requeues:
                    # Slurm did: it had not answered, or a node of the job died.
                    return None
                # An answer about the job may be older than a request that is unanswered.
                is_refused = facts.state and (
                    self._told_to_end or not isinstance(error, UnansweredError)
                )
                if self._told_to_end:
                    deadline = min(deadline, time.monotonic() + LAST_SECONDS)
                if is_refused or time.monotonic() > deadline or self._replaced:
                    return error
            else:
                return None
            self._supervisor.report.beat()
            time.sleep(REQUEUE_PAUSE_SECONDS)

    def _leave_it_to_slurm(
        self, why: str, problem: LaunchError, ending: JobEnding
    ) -> SupervisorState:
        """Stays until Slurm ends the job: a job that has ended by itself is not requeued."""
        seen = (
            "Slurm did not say whether it requeues the job."
            if isinstance(problem, UnansweredError)
            else "The job could not be requeued."
        )
        self._supervisor.report.note(EventKind.NOTE, f"{why} {seen} {problem}")
        if self._replaced or (ending.facts.preempted and self._await_end()):
            return ending.state
        return self._fail(f"{seen} If `squeue` does not show it, launch the run again.")

    def _fail(self, reason: str) -> SupervisorState:
        report = self._supervisor.report
        report.note(EventKind.FAILED, reason)
        report.enter(SupervisorState.FAILED, reason)
        return SupervisorState.FAILED

    def _await_end(self) -> bool:
        """Waits until Slurm tells this process to end; returns whether it did."""
        deadline = time.monotonic() + END_SECONDS
        while not self._told_to_end and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return self._told_to_end

    def _why_stopped(self) -> SlurmJob:
        """Asks Slurm, until it answers."""
        deadline = time.monotonic() + ANSWER_SECONDS
        beat = self._supervisor.report.beat_if_due
        while not (facts := read_job(self._job, beat)).state and time.monotonic() < deadline:
            time.sleep(1.0)
        return facts

    def _watch_for_later_start(self) -> None:
        """Ends this start if another one takes its place: this node may be cut off."""
        while (later := read_later_start(self._run, self._own)) is None:
            time.sleep(LATER_SECONDS)
        self._replaced = True
        if later.started_at not in {None, self._record.started_at}:
            # It trains already. A save of this one would be a second one.
            self._starter.end(0, lambda: None)
            os._exit(ExitCode.PROBLEM)
        other = f"Job {later.id} is the job of this run now."
        again = "Slurm has started the job again."
        self._supervisor.stop(again if later.id == self._job else other)

    def _start_record(
        self, environment: Mapping[str, str], nodes: Sequence[str], max_requeues: int
    ) -> BatchJob:
        """Returns what `job.json` says of this start."""
        facts = read_job(self._job)
        job = load_job_record(self._run)
        if job is None:
            # The launch ended before it could record the job.
            job = BatchJob(
                scheduler="slurm",
                id=self._job,
                user=psutil.Process().username(),
                submitted_at=time.time(),
                script=str(self._run.job_script.relative_to(self._run.root)),
            )
        lost = describe_lost_start(self._run, job, self._own)
        if lost:
            note_event(self._run, EventKind.REQUEUE, lost, by=SUPERVISOR)
        return msgspec.structs.replace(
            job,
            cluster=environment.get("SLURM_CLUSTER_NAME", job.cluster),
            name=environment.get("SLURM_JOB_NAME", job.name),
            requeues=self._own.requeues,
            max_requeues=max_requeues,
            nodes=list(nodes),
            started_at=time.time(),
            ends_at=facts.ends_at,
        )

    def _record_nodes(self, nodes: Sequence[str]) -> None:
        """Rewrites `job.json` if workers start on other nodes than before."""
        if self._replaced or list(nodes) == self._record.nodes:
            return
        self._store(nodes=list(nodes))

    def _store(self, **changes: Any) -> None:
        """Rewrites `job.json`. A full disk ends neither training nor the job."""
        self._record = msgspec.structs.replace(self._record, **changes)
        with suppress(OSError):
            store(self._run.job_file, self._record)

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
        replace_newer_documents()
        if "SLURM_JOB_ID" not in os.environ:
            raise LaunchError(
                f"{run.root} was not launched in a Slurm job. Launch it with "
                "`tfckpt-tui launch RUN --slurm -- python SCRIPT`."
            )
        lock = _take_over(run, options, again=AGAIN in arguments[1:])
        with open_run_log(run, run.supervisor_log, 0, options.command) as log:
            # Errors of `srun` stay in the log of the job.
            os.dup2(log.fileno(), 1)
        with staying_in(run), sending_alerts(run, lock) as on_event:
            state = _end_stopped_run(run, options)
            state = state or BatchStep(run, options, os.environ, on_event).run()
    except (TfckptError, OSError) as error:
        sys.stderr.write(f"{describe_error(error)}\n")
        return ExitCode.PROBLEM
    return ExitCode.PROBLEM if state is SupervisorState.FAILED else ExitCode.DONE


def _end_stopped_run(run: RunDirectory, options: LaunchOptions) -> SupervisorState | None:
    """Ends this start if the run was stopped in an earlier start of the job; None if it was not.

    Slurm starts a job again also if its node died before the stop was carried out.
    """
    job = load_job_record(run)
    is_first = job is None or job.started_at is None
    stopped_by = "" if is_first else accepted_stop(run)
    if not stopped_by:
        return None
    reason = (
        f"The run was stopped by {stopped_by} before this start of the job, which does not train."
    )
    report = Reporter(run, options.max_restarts)
    report.note(EventKind.STOP, reason, by=stopped_by)
    report.enter(SupervisorState.STOPPED, reason)
    StopCommands(run).finish(f"The run has ended. {reason}")
    return report.state


def _take_over(run: RunDirectory, options: LaunchOptions, *, again: bool) -> int:
    """Takes the lock; waits for an earlier start, whose node may be cut off but still run.

    Waits also for the job steps of an earlier supervisor of this start, if there was one.
    """
    own = start_of_job(os.environ)

    def tell(words: str, kind: EventKind = EventKind.NOTE) -> None:
        sys.stderr.write(f"{words}\n")
        note_event(run, kind, words, by=SUPERVISOR)

    _require_job(run, options, own, RECORD_SECONDS)
    try:
        if again:
            assert options.slurm is not None
            end_left_steps(
                own.job,
                options.grace_seconds + STEP_SECONDS,
                tell,
                may_requeue=own.requeues < options.slurm.max_requeues,
            )
        lock = await_earlier_start(run, own, tell)
    except LaunchError as error:
        tell(f"{error} End that process, and launch again.", EventKind.FAILED)
        sys.stderr.write(f"{launch_in_app(run)}\n")
        raise
    # A launch that submits a job holds the lock until it has recorded the job.
    _require_job(run, options, own, 0.0)
    return lock


def _require_job(run: RunDirectory, options: LaunchOptions, own: JobStart, limit: float) -> None:
    """Makes sure that this job may train, or says in the event log why it does not."""
    try:
        if options.slurm is None:
            raise LaunchError(
                f"Job {own.job} ends without training: the run was launched without Slurm after "
                "the job was submitted."
            )
        require_job_of_run(run, own, limit)
    except LaunchError as error:
        # The app shows the event log, and launches the run with a key.
        note_event(run, EventKind.NOTE, error.found, by=SUPERVISOR)
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
