"""One request to many runs: a plan that says what follows for each, and an answer of each."""

from __future__ import annotations

import os
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

from tfckpt_trainer.catalog.retention.own_rules import recorded_verdicts
from tfckpt_trainer.catalog.retention.plan import plan
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.scan.order import find_order_doubt
from tfckpt_trainer.errors import (
    NothingRunsError,
    NoTrainerError,
    RefusedError,
    TfckptError,
    describe_error,
)
from tfckpt_trainer.rundir.heartbeats.health import RunState
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import (
    CommandArguments,
    CommandKind,
    PauseArguments,
    ResumeArguments,
    SaveArguments,
    StopArguments,
)
from tfckpt_trainer.rundir.records.hyperparameter import number
from tfckpt_trainer.words.counts import few_of
from tfckpt_tui.formats import units
from tfckpt_tui.formats.text import clean_message
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.control.force_stop import (
    FORCE_SECONDS,
    ForceStopPlan,
    force_stop,
    plan_force_stop,
)
from tfckpt_tui.services.control.job_control import cancel_waiting_job, find_waiting_job
from tfckpt_tui.services.control.prune import ForeignTrainerError, prune, pruned_words
from tfckpt_tui.services.control.request import FrontEnd, ask, require_trainer
from tfckpt_tui.services.control.trainer_presence import detect_trainer
from tfckpt_tui.services.runs.account import RunAccount
from tfckpt_tui.services.runs.brief_reading import brief_account, read_info
from tfckpt_tui.services.runs.hyperparameters import read_hyperparameters
from tfckpt_tui.services.runs.timed_reads import TimedReads
from tfckpt_tui.settings.config import Config, default_policy

PLAN_SECONDS = 5.0
"""How long a plan waits for directories that do not answer."""

AT_ONCE = 16
"""How many runs carry out a request at once."""

_READ_ONLY, _NO_ANSWER, _NO_TRAINER, _REFUSED = "read-only", "no answer", "no trainer", "refused"

Act = Callable[[], str]
"""Carries out a request on one run; returns what was done, as sentences."""


class RunOutcome(StrEnum):
    """How a run answered a request."""

    WAITING = "waiting"
    DONE = "done"
    LEFT_OUT = "left out"
    FAILED = "failed"


@dataclass(frozen=True)
class RunPlan:
    """What a request does to one run.

    Attributes:
        root: The run directory.
        words: What follows, or why nothing does; safe to show.
        act: Carries it out; None if the run cannot.
        reason: In one or two words, why it cannot.
    """

    root: Path
    words: str
    act: Act | None = None
    reason: str = ""


@dataclass(frozen=True)
class RunAnswer:
    """What became of a request to one run.

    Attributes:
        root: The run directory.
        outcome: How it answered.
        words: What was done, or why not; safe to show.
    """

    root: Path
    outcome: RunOutcome
    words: str


@dataclass(frozen=True)
class ManyPlan:
    """What a request does to many runs.

    Attributes:
        verb: What it does, such as `Save`.
        runs: The plan of each.
    """

    verb: str
    runs: tuple[RunPlan, ...]

    @property
    def possible(self) -> tuple[RunPlan, ...]:
        """The runs that can carry it out."""
        return tuple(run for run in self.runs if run.act is not None)

    @property
    def words(self) -> str:
        """How many runs can carry it out, and why others cannot."""
        can, count = len(self.possible), len(self.runs)
        if can == count:
            return f"{self.verb} on {units.count(count, 'run')}."
        reasons = Counter(run.reason for run in self.runs if run.act is None)
        why = ", ".join(f"{number:,} {reason}" for reason, number in reasons.most_common())
        return (
            f"{self.verb} on {can:,} of {units.count(count, 'run')}; {count - can:,} cannot: {why}."
        )


Planner = Callable[[RunDirectory], RunPlan]
"""Plans a request to one run; raises what keeps the run from it."""


def make_plan(verb: str, roots: Iterable[Path], planner: Planner) -> ManyPlan:
    """Plans a request to many runs at once.

    Args:
        verb: What it does, such as `Save`.
        roots: The run directories.
        planner: Plans it for one run.
    """
    answers = TimedReads(partial(_planned, planner)).collect(roots, PLAN_SECONDS)
    return ManyPlan(
        verb,
        tuple(
            answer.result or RunPlan(root, "The directory does not answer.", reason=_NO_ANSWER)
            for root, answer in answers.items()
        ),
    )


def _planned(planner: Planner, root: Path) -> RunPlan:
    run = RunDirectory(root)
    try:
        run.require_changeable()
        if not os.access(run.control if run.control.exists() else root, os.W_OK):
            return RunPlan(root, "The directory cannot be written to.", reason=_READ_ONLY)
        return planner(run)
    except (TfckptError, OSError) as error:
        return RunPlan(root, _described(error, root), reason=_reason(error, root))


def _reason(error: Exception, root: Path) -> str:
    if isinstance(error, NothingRunsError):
        state = brief_account(root).state
        return _NO_TRAINER if state is RunState.UNATTENDED else state.value
    return _NO_ANSWER if isinstance(error, NoTrainerError) else _REFUSED


def plan_save(run: RunDirectory) -> RunPlan:
    """Plans a save."""
    return _command(run, SaveArguments(), "Saves a checkpoint")


def plan_pause(run: RunDirectory) -> RunPlan:
    """Plans a pause."""
    if brief_account(run.root).state is RunState.PAUSED:
        return RunPlan(run.root, "Training is paused already.", reason="paused")
    return _command(run, PauseArguments(), "Pauses")


def plan_resume(run: RunDirectory) -> RunPlan:
    """Plans the end of a pause."""
    require_trainer(run, CommandKind.RESUME)
    account = brief_account(run.root)
    if account.state is not RunState.PAUSED:
        return RunPlan(run.root, "Training is not paused.", reason="not paused")
    return _command(run, ResumeArguments(), "Resumes")


def plan_stop(run: RunDirectory) -> RunPlan:
    """Plans a save and a stop; a batch job that waits is cancelled."""
    job = find_waiting_job(run)
    if job is not None:
        words = clean_message(f"Cancels batch job {job.id}, which waits in the queue.")
        return RunPlan(run.root, words, partial(cancel_waiting_job, run, through=FrontEnd.APP))
    return _command(run, StopArguments(save=True), "Saves, then stops")


def plan_end(run: RunDirectory) -> RunPlan:
    """Plans the end of the processes of a run, or of its batch job, whether it answers or not."""
    try:
        ended = plan_force_stop(run)
    except NoTrainerError as error:
        raise NothingRunsError(str(error)) from None
    if ended.job is not None:
        words = f"Cancels batch job {ended.job.record.id}; its processes may save first."
    else:
        limit = units.duration(FORCE_SECONDS)
        words = f"Asks to save and exit, and kills after {limit}: {few_of(ended.processes)}."
    return RunPlan(run.root, clean_message(words), partial(_end, run, ended))


def _end(run: RunDirectory, ended: ForceStopPlan) -> str:
    message, warnings = force_stop(run, ended, through=FrontEnd.APP)
    return " ".join((message, *warnings))


def plan_set(run: RunDirectory, values: dict[str, float]) -> RunPlan:
    """Plans a change of hyperparameters.

    Args:
        run: The run directory.
        values: The new values, by name.
    """
    require_trainer(run, CommandKind.SET)
    known = read_hyperparameters(run)
    change = known.change(values)
    steps = ", ".join(
        f"{name} {number(known.values[name].value)} → {number(value)}"
        for name, value in values.items()
    )
    return _command(run, change, steps)


def plan_prune(run: RunDirectory, given: Policy, config: Config) -> RunPlan:
    """Plans a prune by rules.

    Args:
        run: The run directory.
        given: The rules; empty for those of the run.
        config: Has the rules of the user, for runs without their own.
    """
    presence, info = detect_trainer(run, on_full_disk=True), read_info(run)
    if presence.foreign is not None:
        raise ForeignTrainerError(presence.foreign)
    if given.is_empty:
        default = default_policy(info, config)
        if default.policy.is_empty:
            raise RefusedError(f"No rules: {default.source}.")
        policy = default.policy
    else:
        policy = given.with_own(recorded_verdicts(info.retention) if info is not None else ())
    checkpoints = list_checkpoints(run)
    made = plan(checkpoints, policy, in_use=presence.in_use)
    names = [checkpoint.name for checkpoint in made.deleted]
    if not names:
        count = units.count(len(checkpoints), "checkpoint")
        return RunPlan(run.root, f"The rules keep all {count}.", reason="nothing to prune")
    doubt = made.order_guess or find_order_doubt(checkpoints)
    words = (
        f"{len(names):,} of {units.count(len(checkpoints), 'checkpoint')} "
        f"({units.size(made.freed_bytes)}) go to the trash: {policy}."
        f"{f' {doubt.words}' if doubt is not None else ''}"
    )
    return RunPlan(run.root, clean_message(words), partial(_prune, run, names))


def _prune(run: RunDirectory, names: Sequence[str]) -> str:
    done = prune(run, names, through=FrontEnd.APP)
    told = [f"Moved {pruned_words(done.names)} to the trash ({units.size(done.size)})."]
    return " ".join([*told, *(f"Done, but: {warning}" for warning in done.warnings)])


def _command(run: RunDirectory, arguments: CommandArguments, what: str) -> RunPlan:
    """Plans a command to the trainer of a run."""
    require_trainer(run, arguments.kind)
    words = f"{what} {_where(brief_account(run.root))}"
    return RunPlan(run.root, clean_message(words), partial(_ask, run, arguments))


def _where(account: RunAccount) -> str:
    """Returns on how many workers, and about when, as the end of a sentence."""
    count = units.count(len(account.workers), "worker")
    if account.hang:
        return f"on {count} after the next step, if one comes. {account.hang}"
    return f"on {count} after step {account.step:,}." if account.step else f"on {count}."


def _ask(run: RunDirectory, arguments: CommandArguments) -> str:
    return ask(run, arguments, through=FrontEnd.APP).message


OnAnswer = Callable[[RunAnswer], object]


def first_answers(made: ManyPlan) -> tuple[RunAnswer, ...]:
    """Returns an answer for each run before any has one."""
    return tuple(
        RunAnswer(
            run.root,
            RunOutcome.WAITING if run.act is not None else RunOutcome.LEFT_OUT,
            run.words,
        )
        for run in made.runs
    )


def carry_out(made: ManyPlan, on_answer: OnAnswer) -> None:
    """Carries out a plan in threads, on `AT_ONCE` runs at once.

    Returns at once. A run that does not answer holds up no other for longer than its time limit.

    Args:
        made: The plan.
        on_answer: Called with each answer, in a thread.
    """
    waiting: queue.SimpleQueue[RunPlan] = queue.SimpleQueue()
    for run in made.possible:
        waiting.put(run)

    def work() -> None:
        while True:
            try:
                run = waiting.get_nowait()
            except queue.Empty:
                return
            on_answer(_answer(run))

    for _ in range(min(AT_ONCE, len(made.possible))):
        threading.Thread(target=work, name="job: many runs", daemon=True).start()


def _answer(run: RunPlan) -> RunAnswer:
    assert run.act is not None
    answer = RunAnswer(run.root, RunOutcome.DONE, "")
    try:
        return replace(answer, words=clean_message(run.act()))
    except (TfckptError, OSError) as error:
        return replace(answer, outcome=RunOutcome.FAILED, words=_described(error, run.root))


def _described(error: Exception, root: Path) -> str:
    """Returns the message of an error, without the run directory, beside which it is shown."""
    return clean_message(describe_error(error).replace(f" in {root}", ""))
