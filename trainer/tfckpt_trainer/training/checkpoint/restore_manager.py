"""Goes to a checkpoint, at the start and on command, with all that has to be noted of it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tfckpt_trainer.catalog.commit import finish_interrupted_saves, point_state_file_at
from tfckpt_trainer.catalog.damage import damage_at_start
from tfckpt_trainer.catalog.lineage import BranchStep, plan_restore
from tfckpt_trainer.catalog.retention.prune import finish_interrupted_prunes
from tfckpt_trainer.catalog.retention.trash import list_trash
from tfckpt_trainer.catalog.scan.catalog import Catalog, continuation
from tfckpt_trainer.catalog.scan.checkpoints import Checkpoint
from tfckpt_trainer.catalog.scan.history import in_order_of_use, read_head
from tfckpt_trainer.errors import RefusedError
from tfckpt_trainer.rundir.documents import store
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.training.checkpoint.restorer import RestoreOutcome, Restorer
from tfckpt_trainer.training.checkpoint.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.checkpoint.user_state import UserState
from tfckpt_trainer.training.loop.position import Position
from tfckpt_trainer.training.loop.worker_group import Message, WorkerGroup
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.journal_writer import JournalWriter
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics
from tfckpt_trainer.training.telemetry.summaries import Curves

SHOWN_LEFT_OUT = 100
"""How much of what a partial restore left out is written down; a wrong model has thousands."""


@dataclass(frozen=True)
class Target:
    """A checkpoint to go to, as the chief found it: the same on all workers.

    Attributes:
        branch: On which training goes on from there.
        best: The best values of metrics until then.
        problem: Why it is out of the question; the rest is empty then.
    """

    name: str
    step: int = 0
    branch: int = 0
    best: dict[str, float] = field(default_factory=dict)
    problem: str = ""


class RestoreManager:
    """Restores, and all that has to be noted of them; all workers call each method together."""

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        shared: SharedState,
        saves: SaveManager,
        restorer: Restorer,
        position: Position,
        journal: JournalWriter,
        metrics: StepMetrics,
        heartbeat: Heartbeat,
        curves: Curves,
        user_state: UserState,
        *,
        partial: bool,
    ) -> None:
        """Takes what it works with; `partial` is whether the start may leave out what misfits."""
        self._run = run
        self._group = group
        self._shared = shared
        self._saves = saves
        self._restorer = restorer
        self._journal = journal
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._curves = curves
        self._user_state = user_state
        self._partial = partial
        self.position = position

    def begin(self) -> None:
        """Restores the newest good checkpoint, or starts fresh where there is none.

        Raises:
            RefusedError: There are checkpoints, and none of them can be restored.
        """
        plan = self._group.gather(self._plan_start() if self._group.is_chief else {})[0]
        self.position.sequence = plan["sequence"]
        refused: list[str] = []
        for target in (Target(**fields) for fields in plan["targets"]):
            outcome = self._read(target.name, partial=self._partial)
            if not outcome.problems:
                self._arrive(target, outcome, None, JournalKind.START)
                return
            refused += outcome.problems
            self._journal.note(
                JournalKind.REFUSED,
                f"{target.name} was passed over at the start: {outcome.problems[0]}.",
                checkpoint=target.name,
            )
            if not outcome.damaged:
                break
        if refused:
            raise RefusedError(
                f"No checkpoint in {self._run.root} can be restored: {refused[0]}. Train in "
                "another directory, or move the checkpoints away to start from the beginning."
            )
        self._curves.begin(0, 0)
        self._journal.note(JournalKind.START, "Started at step 0.", step=0, branch=0)

    def find(self, name: str) -> Target:
        """Looks up a checkpoint to go to, and on which branch training would go on.

        What is being written beside training is brought to its end before.
        """
        self._saves.finish_open()
        found = asdict(self._find(name)) if self._group.is_chief else {}
        return Target(**self._group.gather(found)[0])

    def go_to(
        self, target: Target, command: Command | None = None, *, partial: bool = False
    ) -> RestoreOutcome:
        """Restores `target` in place on all workers, or changes nothing on any of them.

        Args:
            target: Where to go.
            command: Which command asks for it.
            partial: Whether to restore what fits where something does not.

        Raises:
            TornRestoreError: Some worker could not finish what it had agreed to.
        """
        outcome = self._read(target.name, partial=partial)
        if outcome.problems:
            self._note(
                JournalKind.REFUSED,
                f"Restore of {target.name}: {'; '.join(outcome.problems)}.",
                command,
                checkpoint=target.name,
            )
        else:
            self._arrive(target, outcome, command, JournalKind.RESTORE)
        return outcome

    def _read(self, name: str, *, partial: bool) -> RestoreOutcome:
        with self._heartbeat.doing(Activity.RESTORING, name):
            began = time.monotonic()
            outcome = self._restorer.restore(name, partial=partial)
            return replace(outcome, seconds=time.monotonic() - began)

    def _arrive(
        self,
        target: Target,
        outcome: RestoreOutcome,
        command: Command | None,
        kind: JournalKind,
    ) -> None:
        """Takes up the position of a checkpoint that was just restored."""
        position, left = self.position, self.position.step
        position.step = self._shared.step
        position.branch = target.branch
        position.parent = target.name
        position.best = dict(target.best)
        position.sequence += 1
        self._user_state.take(outcome.record, own=outcome.own)
        self._metrics.arrive(position.step, position.branch)
        self._curves.begin(position.branch, position.step)
        self._curves.mark(position.step, f"Restored {target.name}, left step {left}.")
        head = Head(
            checkpoint=target.name,
            step=position.step,
            branch=position.branch,
            sequence=position.sequence,
        )
        self._journal.later(lambda: store(self._run.head_file, head))
        self._journal.later(lambda: point_state_file_at(self._run, target.name))
        size = self._group.size
        left_out = f" {len(outcome.left_out)} left out;" if outcome.left_out else ""
        self._note(
            kind,
            f"Restored {target.name} on {size} worker{'s' if size > 1 else ''}, "
            f"{outcome.variables} variables proven;{left_out} now on branch {position.branch}.",
            command,
            checkpoint=target.name,
            details={
                "left_step": left,
                "seconds": outcome.seconds,
                "notes": list(outcome.notes),
                "left_out": list(outcome.left_out[:SHOWN_LEFT_OUT]),
            },
        )

    def _plan_start(self) -> Message:
        """What the chief proposes: checkpoints to try, the most promising first."""
        finish_interrupted_prunes(self._run)
        recovered = finish_interrupted_saves(self._run)
        for problem in recovered.problems:
            self._journal.note(JournalKind.NOTE, problem)
        for name in recovered.completed:
            self._journal.note(
                JournalKind.SAVE,
                f"Completed the save of {name}, which was cut off.",
                checkpoint=name,
            )
        for sentence in damage_at_start(self._run):
            self._journal.note(JournalKind.NOTE, sentence)
        catalog = Catalog(self._run)
        found = in_order_of_use(catalog.scan(time.time()), read_head(self._run))
        checkpoints = [c for c in found if c.step is not None]
        resumed = continuation(self._run)
        first = resumed.checkpoint if resumed else None
        checkpoints.sort(key=lambda c: c.name != first)
        tips = catalog.branch_tips(list_trash(self._run))
        targets = [
            Target(
                name=c.name,
                step=c.step or 0,
                branch=tips.at_start(c, resumed),
                best=_best_of(c),
            )
            for c in checkpoints
        ]
        sequence = resumed.sequence if resumed else 0
        return {"targets": [asdict(target) for target in targets], "sequence": sequence}

    def _find(self, name: str) -> Target:
        catalog = Catalog(self._run)
        checkpoints = catalog.scan(time.time())
        found = next((c for c in checkpoints if c.name == name), None)
        if found is None:
            known = ", ".join(c.name for c in checkpoints[:5]) or "none"
            return Target(name, problem=f"There is no checkpoint {name}; the newest are {known}.")
        tips = catalog.branch_tips(list_trash(self._run))
        position = BranchStep(self.position.branch, self.position.step)
        try:
            plan = plan_restore(checkpoints, tips, found, position)
        except RefusedError as refusal:
            return Target(name, problem=str(refusal))
        return Target(name, step=found.step or 0, branch=plan.branch, best=_best_of(found))

    def _note(
        self, kind: JournalKind, message: str, command: Command | None, **fields: Any
    ) -> None:
        self._journal.note(
            kind,
            message,
            step=self.position.step,
            branch=self.position.branch,
            by=command.requested_by if command else "",
            **fields,
        )


def _best_of(checkpoint: Checkpoint) -> dict[str, float]:
    return dict(checkpoint.record.best) if checkpoint.record is not None else {}
