"""The account of a run: its state, workers, step, branch, batch job and alerts at one moment.

`give_account` alone puts it together, from what was read. The app, `status`, the lists of runs and
each question whether an action is possible take it from here, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.catalog.directory.history import ResumePoint
from tfckpt_trainer.catalog.scan.alerts import Alert, find_alerts, find_unusable_latest
from tfckpt_trainer.catalog.scan.lineage import BranchStep, BranchTips
from tfckpt_trainer.launch.batch.submissions import find_unsuccessful_submission
from tfckpt_trainer.rundir.heartbeats.health import (
    HAS_ENDED,
    RunState,
    WorkerState,
    has_reported_end,
    heartbeat_age,
    knows_step,
    serves_commands,
)
from tfckpt_trainer.rundir.heartbeats.stragglers import (
    find_straggler,
    is_process_gone,
    shares_by_index,
    why_silent,
)
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorStatus
from tfckpt_trainer.words.advice import Advice
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.formats import units
from tfckpt_tui.formats.process_columns import HostProcess
from tfckpt_tui.formats.text import clean
from tfckpt_tui.formats.worker_columns import NO_SHARE, WorkerView
from tfckpt_tui.reports.run_facts import EventFileFacts, FailureFacts
from tfckpt_tui.services.batch.job_alerts import find_job_alerts
from tfckpt_tui.services.batch.job_view import JobView, state_with_job, with_events
from tfckpt_tui.services.runs.failure import find_failure, state_reason
from tfckpt_tui.services.runs.failure_card import Trouble, explain_failure, newest_loss
from tfckpt_tui.services.runs.heartbeats import Heartbeats

_WITHIN_TRAINING = frozenset({WorkerState.SAVING, WorkerState.RESTORING})
"""States of the chief that say more than that the run trains."""

_AT_WORK = _WITHIN_TRAINING | {WorkerState.TRAINING, WorkerState.WAITING}
"""States of the chief in which the present step time tells when training ends."""

CLOCK_SECONDS = 60.0
"""How far the clocks of this machine and of the file system may differ without an alert."""


class NextStart(msgspec.Struct, frozen=True):
    """What a start continues from.

    Attributes:
        checkpoint: The name of the checkpoint.
        step: Its step; None if unknown.
        branch: The branch of later saves.
        values: Hyperparameters that the start changes after the restore, by name.
    """

    checkpoint: str
    step: int | None
    branch: int
    values: Mapping[str, float] = {}


def find_stop(commands: Iterable[Command], now: float) -> Command | None:
    """Returns the first request to stop among commands that were accepted or asked for.

    Args:
        commands: Commands in the queue.
        now: Seconds since the epoch. A request that nobody accepts in time is not carried out.
    """
    stops = (
        command
        for command in commands
        if command.kind is CommandKind.STOP and not command.state.is_final
    )
    return next((s for s in stops if s.state.is_accepted or now < s.expires_at), None)


def find_next_start(
    checkpoints: Sequence[Checkpoint], resumed: ResumePoint | None, tips: BranchTips
) -> NextStart | None:
    """Returns what a start continues from; None if nothing can be restored.

    Args:
        checkpoints: All checkpoints of the run.
        resumed: The recorded end of the run.
        tips: The tips of its branches.
    """
    head = next((checkpoint for checkpoint in checkpoints if checkpoint.is_head), None)
    if head is None:
        return None
    is_recorded = resumed is not None and resumed.checkpoint == head.name
    values = resumed.values if resumed is not None and is_recorded else {}
    return NextStart(head.name, head.step, tips.at_start(head, resumed), values)


class Glance(msgspec.Struct, frozen=True):
    """What lists show of a run beside its account.

    Attributes:
        losses: The newest values of the main metric, oldest first; None is NaN.
        disk_used: Bytes of all checkpoints; None if they cannot be read.
    """

    losses: tuple[float | None, ...] = ()
    disk_used: int | None = None


class RunReading(msgspec.Struct, frozen=True):
    """What was read of a run at one moment.

    Attributes:
        run: The run directory.
        heartbeats: What its processes last said, and the moment.
        info: The description of the run.
        record: The record of its batch job.
        event_log: The newest entries of the event log, oldest first.
        start: What a start continues from. May be left out if the chief knows the step.
        latest: The newest checkpoint according to TensorFlow's state file.
        start_is_chosen: Whether that was chosen after the run had ended.
        pending: Commands that no trainer has received, oldest first.
        working: Commands that one has received, oldest first.
        saved_at: Time of the newest save, in seconds since the epoch; 0 if there is none.
        checkpoints: All checkpoints, newest first, for advice in alerts.
        tips: The tips of all branches; checkpoints in the trash count.
        newer_records: Which release is needed for each record of a newer one.
        clock_ahead: Seconds by which the clock of the file system is ahead of this machine's.
        problems: Files that cannot be read, and why; safe to show.
        glance: What lists show beside the account; None elsewhere.
        measured: The newest metrics of event files, if this library did not train the run.
        processes: Processes of this host that train here without this library.
    """

    run: RunDirectory
    heartbeats: Heartbeats
    info: RunInfo | None = None
    record: BatchJob | None = None
    event_log: tuple[EventEntry, ...] = ()
    start: NextStart | None = None
    latest: Checkpoint | None = None
    start_is_chosen: bool = False
    pending: tuple[Command, ...] = ()
    working: tuple[Command, ...] = ()
    saved_at: float = 0.0
    checkpoints: Sequence[Checkpoint] = ()
    tips: BranchTips = BranchTips()
    newer_records: tuple[str, ...] = ()
    clock_ahead: float = 0.0
    problems: tuple[str, ...] = ()
    glance: Glance | None = None
    measured: EventFileFacts | None = None
    processes: tuple[HostProcess, ...] = ()

    @property
    def may_have_others(self) -> bool:
        """Whether processes without this library are looked for.

        Beside a trainer of this library, its own processes and their children write there.
        """
        return self.run.process is not None or self.heartbeats.state in HAS_ENDED

    @property
    def active_at(self) -> float:
        """Time of the last activity, in seconds since the epoch; 0 if there was none."""
        heard = [status.updated_at for status in self.heartbeats.statuses]
        logged = [entry.at for entry in self.event_log[-1:]]
        measured = [self.measured.at] if self.measured is not None else []
        return max([self.saved_at, *heard, *logged, *measured])


class RunAccount(msgspec.Struct, frozen=True):
    """A run at the time `at` (seconds since the epoch).

    Attributes:
        root: The run directory.
        info: Description of the run; None if it has none.
        state: What it does.
        reason: Why, as sentences; empty if there is nothing to say.
        job: Its batch job, as the scheduler knows it, and what the event log says of it, if any.
        trainer_answers: Whether a live chief executes commands.
        workers: All workers, by index.
        supervisor: The heartbeat of the supervisor, if there is one.
        step: The step that training has reached, or from which the next start continues.
        lost_steps: How many steps after it were trained, and ended with their processes before
            a checkpoint had them.
        stop: The request to stop that is under way; None if there is none.
        branch: The branch of `step`.
        alerts: Problems of the run, the most urgent first.
        active_at: Time of the last activity; 0 if there was none.
        failure: What happened, if it failed, restarts or is degraded.
        reported: Whether its processes reported their end, instead of falling silent.
        problems: Files that cannot be read, and why; safe to show.
        glance: What lists show beside the account; None elsewhere.
        measured: The newest metrics of event files, if this library did not train the run.
        processes: Processes of this host that train here without this library.
        remembered_for: For how many seconds it has been remembered from an earlier list, without
            a look since; None if it was read.
    """

    at: float
    root: Path
    info: RunInfo | None = None
    state: RunState = RunState.UNATTENDED
    reason: str = ""
    job: JobView | None = None
    trainer_answers: bool = False
    workers: tuple[WorkerView, ...] = ()
    supervisor: SupervisorStatus | None = None
    step: int | None = None
    branch: int = 0
    lost_steps: int = 0
    stop: Command | None = None
    alerts: tuple[Alert, ...] = ()
    active_at: float = 0.0
    failure: FailureFacts | None = None
    reported: bool = True
    problems: tuple[str, ...] = ()
    glance: Glance | None = None
    measured: EventFileFacts | None = None
    processes: tuple[HostProcess, ...] = ()
    remembered_for: float | None = None

    @property
    def path(self) -> str:
        """The run directory, safe to show."""
        return clean(str(self.root))

    @property
    def words(self) -> str:
        """The state in words; while it trains, what it is in the middle of, and that it stops.

        If it is only remembered, with its age.
        """
        does = self.interlude or self.state
        if self.remembered_for is not None:
            return f"{does.value} {units.ago(self.remembered_for)}"
        if self.has_other_trainer:
            several = few_of([one.name for one in self.processes], 1)
            run = "run" if len(self.processes) > 1 else "runs"
            return f"{several} {run} here without tfckpt_trainer"
        if self.stop is None:
            return does.value
        return f"{does}, {'stopping' if self.stop.state.is_accepted else 'stop requested'}"

    @property
    def has_other_trainer(self) -> bool:
        """Whether a process without this library is all that runs here."""
        return bool(self.processes) and self.state in HAS_ENDED and not self.trainer_answers

    @property
    def interlude(self) -> WorkerState | None:
        """What the run does between two steps while it trains: a save or a restore."""
        chief = self.chief
        trains = chief is not None and self.state is RunState.TRAINING
        return chief.state if chief and trains and chief.state in _WITHIN_TRAINING else None

    @property
    def loss_in_words(self) -> str:
        """How many steps were lost, as far as it is known; empty if none were."""
        # Without its last heartbeat, it may have trained on.
        has_told_all = self.chief is not None and self.chief.state is WorkerState.EXITED
        known = "" if has_told_all else "at least "
        return f"{known}{units.count(self.lost_steps, 'step')} lost" if self.lost_steps else ""

    @property
    def silent(self) -> WorkerView | None:
        """The first worker that does not react, so that no worker can act; None if all do."""
        return next((worker for worker in self.workers if worker.silence), None)

    @property
    def hang(self) -> str:
        """Which worker keeps all from acting, and why, as a sentence; empty if none does.

        Commands act between steps: a worker that makes none, such as one whose script hangs, keeps
        them waiting while its heartbeat goes on.
        """
        if self.silent is not None:
            return f"Worker {self.silent.status.index} {self.silent.silence}."
        stalled = [w.status for w in self.workers if w.state is WorkerState.STALLED]
        if not stalled:
            return ""
        last = max(status.last_step_at or 0.0 for status in stalled)
        all_do = len(stalled) == len(self.workers)
        who = "No worker made a" if all_do else f"Worker {stalled[0].index} made no"
        return f"{who} step in {units.duration(self.at - last)}."

    @property
    def chief(self) -> WorkerView | None:
        """Worker 0, if it has started."""
        return next((w for w in self.workers if w.status.index == 0), None)

    @property
    def position(self) -> BranchStep | None:
        """Where training is, by the chief; None before it has restored or begun to train.

        Where its last steps were lost, what a start continues from.
        """
        chief = self.chief
        if self.lost_steps:
            return BranchStep(self.branch, self.step or 0)
        if chief is None or not chief.status.has_position:
            return None
        return BranchStep(chief.status.branch, chief.status.step)

    @property
    def total_steps(self) -> int | None:
        """The last step of the run; None if it is unknown, or if more steps are done."""
        total = self.info.total_steps if self.info is not None else None
        if self.chief is not None and self.chief.status.total_steps is not None:
            total = self.chief.status.total_steps
        # A start with fewer steps than are done trains none.
        return None if total is not None and (self.step or 0) > total else total

    @property
    def epoch_steps(self) -> int | None:
        """Steps of an epoch; None if the run does not tell."""
        return self.info.epoch_steps if self.info is not None else None

    @property
    def gpus(self) -> str:
        """Which GPUs are idle, shared or not counted, as sentences; empty if none are."""
        if self.state in HAS_ENDED:
            return ""
        sources = (self.supervisor, self.info)
        return " ".join(source.gpus for source in sources if source is not None and source.gpus)

    @property
    def loss(self) -> float | None:
        """The newest loss; None if it is unknown."""
        if self.chief is not None:
            return self.chief.status.loss
        return self.measured.loss if self.measured is not None else None

    @property
    def is_at_work(self) -> bool:
        """Whether its present rates tell how it goes on."""
        return self.chief is not None and self.chief.state in _AT_WORK

    @property
    def rate(self) -> float | None:
        """Examples per second; None if unknown, or while no steps are done."""
        chief = self.chief
        return chief.status.examples_per_second if chief and self.is_at_work else None

    @property
    def seconds_left(self) -> float | None:
        """Until training reaches its last step, at the present pace; None if unknown."""
        total = self.total_steps
        if self.chief is None or not self.is_at_work or total is None:
            return None
        status = self.chief.status
        # A trainer of an earlier release writes no mean.
        seconds = status.step_seconds_mean or status.step_seconds
        return None if seconds is None else max(0, total - status.step) * seconds

    @property
    def job_in_short(self) -> str:
        """The batch job: its ID, and why it waits or how it ended; empty without one."""
        job = self.job
        if job is None:
            return ""
        told = ", ".join(word for word in (job.word, job.reason) if word)
        if told:
            return f"{job.record.id} {told}"
        return job.record.id if self.state not in HAS_ENDED else ""


def give_account(reading: RunReading, job: JobView | None) -> RunAccount:
    """Returns the account of a run.

    Args:
        reading: What was read of it.
        job: Its batch job, as the scheduler knows it; None if there is none.
    """
    run, heartbeats, event_log = reading.run, reading.heartbeats, reading.event_log
    start = reading.start
    job = with_events(job, reversed(event_log))
    reported = has_reported_end(heartbeats.workers, heartbeats.supervisor)
    state = state_with_job(heartbeats.state, job, heartbeats.last_at, reported=reported)
    has_ended = state in HAS_ENDED - {RunState.QUEUED}
    submission = find_unsuccessful_submission(event_log) if has_ended else None
    if submission is not None:
        state = RunState(submission.details["submit"])
        reason = submission.message
    else:
        reason = state_reason(run, state, heartbeats, job)
    commands = [*reading.working, *reading.pending]
    stop = find_stop(commands, heartbeats.now) if state not in HAS_ENDED else None
    if stop is not None:
        reason = f"{reason} {_stop_in_words(stop)}".strip()
    step, branch, lost_steps = _position(reading, state)
    trainer_answers = any(serves_commands(status, seen) for status, seen in heartbeats.workers)
    return RunAccount(
        at=heartbeats.now,
        root=run.root,
        info=reading.info,
        state=state,
        reason=reason,
        job=job,
        trainer_answers=trainer_answers,
        workers=_views(heartbeats),
        supervisor=heartbeats.supervisor,
        step=step,
        branch=branch,
        lost_steps=lost_steps,
        stop=stop,
        alerts=(
            *find_job_alerts(run.root, state, job, heartbeats.last_at, heartbeats.now),
            *find_failure(run, state, reason),
            *find_unusable_latest(
                run.root,
                reading.latest,
                start.checkpoint if start is not None else None,
                trainer_answers=trainer_answers,
            ),
            *_clock_alerts(reading.clock_ahead),
            *find_alerts(
                run.root,
                heartbeats.workers,
                reading.checkpoints,
                heartbeats.supervisor,
                supervisor_lives=heartbeats.living_supervisor is not None,
            ),
        ),
        active_at=max(reading.active_at, job.record.submitted_at if job is not None else 0.0),
        failure=explain_failure(
            Trouble(run, state, reason, heartbeats, event_log),
            start.checkpoint if start is not None else None,
            start.step if start is not None else None,
            lost_steps,
        ),
        reported=reported,
        problems=reading.problems,
        glance=reading.glance,
        measured=reading.measured,
        processes=reading.processes,
    )


def _clock_alerts(ahead: float) -> Iterator[Alert]:
    if abs(ahead) >= CLOCK_SECONDS:
        off = f"{units.duration(abs(ahead))} {'behind' if ahead > 0 else 'ahead of'}"
        yield Alert(
            "clock-differs",
            "the clock of this machine is wrong",
            f"The clock of this machine is {off} that of the file system. Times and ages that are "
            "shown here may be wrong by as much. Training is not affected.",
            Advice.of("Set the clock, or look at the run from another machine."),
        )


def _stop_in_words(stop: Command) -> str:
    if not stop.state.is_accepted:
        return "A stop was requested; no process has accepted it yet."
    return f"A stop is under way. {stop.message}".strip()


def _position(reading: RunReading, state: RunState) -> tuple[int | None, int, int]:
    """Returns the step and branch of the run, and how many steps were lost.

    They are those of the chief or, if it does not know them or has lost steps, of the next start.
    """
    chief, start = reading.heartbeats.chief, reading.start
    if chief is not None and knows_step(
        chief, has_checkpoint=start is not None, start_is_chosen=reading.start_is_chosen
    ):
        if not has_lost_steps(reading.heartbeats, state):
            return chief.step, chief.branch, 0
        step = (start.step or 0) if start is not None else 0
        branch = start.branch if start is not None else chief.branch
        return step, branch, max(0, chief.step - step)
    if start is None:
        return None, 0, 0
    # A worker may be lost, and no trainer have begun since.
    lost = newest_loss(reading.event_log, since=EventKind.START)
    if lost is None or state not in HAS_ENDED or reading.start_is_chosen:
        return start.step, start.branch, 0
    _, loss = lost
    return start.step, start.branch, max(0, (loss.step or 0) - (start.step or 0))


def has_lost_steps(heartbeats: Heartbeats, state: RunState) -> bool:
    """Whether steps ended with their processes before a checkpoint had them.

    Args:
        heartbeats: The newest heartbeats.
        state: The state of the run.
    """
    chief = heartbeats.chief
    if chief is None or chief.saves is None or not chief.saves.unsaved_steps:
        return False
    return state in HAS_ENDED or is_process_gone(chief, heartbeats.lives)


def _views(heartbeats: Heartbeats) -> tuple[WorkerView, ...]:
    now = heartbeats.now
    index, why = find_straggler(heartbeats.statuses, now, heartbeats.lives) or (None, "")
    shares = shares_by_index(heartbeats.statuses)
    return tuple(
        WorkerView(
            status,
            state,
            heartbeat_age(status.updated_at, now),
            silence or (why if status.index == index else ""),
            silence,
            shares.get(status.index, NO_SHARE),
        )
        for status, state in heartbeats.workers
        for silence in [why_silent(status, now, heartbeats.lives)]
    )
