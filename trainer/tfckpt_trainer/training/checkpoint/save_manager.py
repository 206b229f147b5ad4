"""The saves of a run: when one is begun, what became of it, and all that has to be noted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tfckpt_trainer.catalog.commit import point_state_file_at
from tfckpt_trainer.rundir.documents import append
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import SaveOverhead
from tfckpt_trainer.rundir.records.command import Command
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.training.checkpoint.automatic_prune import AutomaticPruner
from tfckpt_trainer.training.checkpoint.background_save import BackgroundSave
from tfckpt_trainer.training.checkpoint.save_options import SaveOptions
from tfckpt_trainer.training.checkpoint.save_protocol import SaveOutcome, SaveRequest
from tfckpt_trainer.training.checkpoint.saver import Saver
from tfckpt_trainer.training.checkpoint.user_state import UserState
from tfckpt_trainer.training.loop.position import Position
from tfckpt_trainer.training.telemetry.heartbeat import Heartbeat
from tfckpt_trainer.training.telemetry.journal_writer import JournalWriter
from tfckpt_trainer.training.telemetry.step_metrics import StepMetrics, finite, median
from tfckpt_trainer.training.telemetry.summaries import Curves

SLOWING_STEPS = 10
"""Over how many steps after a save its after-effect is taken."""

LAST_WAIT_SECONDS = 30.0
"""How long a process that leaves waits for a save under way."""

OnOutcome = Callable[[SaveOutcome], None]


@dataclass(frozen=True)
class PendingSave:
    """A save that somebody wants.

    Attributes:
        trigger: Why.
        command: Which command asked for it, if one did.
        tell: Told what became of it.
    """

    trigger: str
    command: Command | None
    tell: OnOutcome


@dataclass
class Slowing:
    """By how much the steps beside and after a save take longer than those before it.

    Attributes:
        usual: Median seconds of a step before it.
        left: Steps still to be counted; None while it is being written.
    """

    name: str
    sequence: int
    usual: float
    left: int | None = None
    steps: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> bool:
        """Counts a step; returns whether it was the last."""
        self.steps += 1
        self.seconds += seconds - self.usual
        if self.left is not None:
            self.left -= 1
        return self.left == 0


class SaveManager:
    """Saves as the options say; every public method is called by all workers together.

    Attributes:
        full: The last save was refused because the disk has no room.
    """

    def __init__(
        self,
        run: RunDirectory,
        saver: Saver,
        position: Position,
        options: SaveOptions,
        journal: JournalWriter,
        metrics: StepMetrics,
        heartbeat: Heartbeat,
        curves: Curves,
        janitor: AutomaticPruner,
        user_state: UserState,
    ) -> None:
        self._run = run
        self._saver = saver
        self._position = position
        self._options = options
        self._journal = journal
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._curves = curves
        self._janitor = janitor
        self._user_state = user_state
        self._under_way: BackgroundSave | None = None
        self._pending: PendingSave | None = None
        self._queue: deque[PendingSave] = deque()
        self._slowing: Slowing | None = None
        self.full = False

    @property
    def wants_attention(self) -> bool:
        """Whether all workers should come together and `settle`."""
        return self._under_way is not None and self._under_way.wants_attention

    @property
    def has_room(self) -> bool:
        """Whether one more save would fit on the disk."""
        return self._saver.lacking_bytes() <= 0

    def ask(
        self, trigger: str, command: Command | None = None, tell: OnOutcome = lambda _: None
    ) -> None:
        """Saves the present step, in the foreground or beside training, as the options say.

        Args:
            trigger: Why.
            command: Which command asks for it.
            tell: Told what became of it: before this returns, or at a later meeting.
        """
        pending = PendingSave(trigger, command, tell)
        if not self._options.background:
            tell(self.now(trigger, command))
        elif self._under_way is None:
            self._start(pending)
        elif command is None and self._options.when_busy == "skip":
            busy = self._under_way.request.name
            message = f"Save ({trigger}): left out, {busy} is being written."
            self._note(JournalKind.REFUSED, message, self._position.step, None)
        elif command is not None or not any(queued.command is None for queued in self._queue):
            # One scheduled save in the queue is enough: all would have the step of then.
            self._queue.append(pending)

    def now(self, trigger: str, command: Command | None = None) -> SaveOutcome:
        """Saves the present step in the foreground; one that is saved already is not again."""
        self.finish_open()
        state, facts = self._user_state.give(self._heartbeat.facts())
        request = self._request(trigger, command, state)
        self._begin_slowing(request)
        with self._heartbeat.doing(Activity.SAVING, request.name):
            outcome = self._saver.save(request, facts)
        self._close(request, command, outcome)
        return outcome

    def settle(self) -> None:
        """Brings a save in the background to its end, and begins the next that waits for it."""
        save, pending = self._under_way, self._pending
        if save is None or pending is None:
            return
        if save.wants_attention:
            outcome = save.settle()
        else:
            with self._heartbeat.doing(Activity.SAVING, save.request.name):
                outcome = save.settle()
        self._under_way = self._pending = None
        self._metrics.background = ""
        self._close(save.request, pending.command, outcome)
        pending.tell(outcome)
        if self._queue:
            self._start(self._queue.popleft())

    def finish_open(self) -> None:
        """Waits for all saves under way and in the queue."""
        while self._under_way is not None:
            self.settle()

    def leave(self) -> None:
        """Waits a while for what this process still writes, where no meeting is possible."""
        if self._under_way is not None:
            self._under_way.wait(LAST_WAIT_SECONDS)

    def step_done(self, seconds: float) -> None:
        """Counts a step towards the after-effect of the last save; each worker for itself."""
        if self._slowing is not None and self._slowing.add(seconds):
            self._write_slowing()

    def _start(self, pending: PendingSave) -> None:
        state, facts = self._user_state.give(self._heartbeat.facts())
        request = self._request(pending.trigger, pending.command, state)
        self._begin_slowing(request)
        started = self._saver.start(request, facts)
        if isinstance(started, SaveOutcome):
            self._close(request, pending.command, started)
            pending.tell(started)
            return
        self._under_way, self._pending = started, pending
        self._metrics.background = f"Writing {request.name} beside training."

    def _request(
        self, trigger: str, command: Command | None, state: Mapping[str, Any]
    ) -> SaveRequest:
        position = self._position
        # Each try takes a number of its own: one that was told to have failed may have been
        # written all the same, and must never share its place with another.
        position.sequence += 1
        return SaveRequest(
            step=position.step,
            branch=position.branch,
            parent=position.parent,
            sequence=position.sequence,
            trigger=trigger,
            command=command.id if command else None,
            metrics=finite(self._metrics.metrics),
            best=dict(position.best),
            state=state,
        )

    def _close(self, request: SaveRequest, command: Command | None, outcome: SaveOutcome) -> None:
        """Takes up what became of a save."""
        self.full = outcome.full
        if outcome.name is None:
            kind = JournalKind.REFUSED if outcome.refused else JournalKind.FAILED
            message = f"Save ({request.trigger}): {outcome.problem}"
            self._note(kind, message, request.step, command)
        if outcome.name is None or outcome.already:
            self._slowing = None
            return
        if self._slowing is not None:
            self._slowing.left = SLOWING_STEPS
        saved = outcome.name
        self._position.parent = saved
        self._journal.later(lambda: point_state_file_at(self._run, saved))
        self._note_save(request, outcome, command)
        self._janitor.after_save(saved)

    def _note_save(
        self, request: SaveRequest, outcome: SaveOutcome, command: Command | None
    ) -> None:
        self._note(
            JournalKind.SAVE,
            f"Saved {request.name} ({request.trigger}): {outcome.size:,} bytes in "
            f"{outcome.seconds:.2f} s, training stood still for {outcome.stall_seconds:.2f} s, "
            f"{outcome.durability}",
            request.step,
            command,
            checkpoint=request.name,
        )
        self._curves.mark(
            request.step,
            f"Saved {request.name} ({request.trigger}).",
            [
                ("checkpoint/seconds", outcome.seconds),
                ("checkpoint/stall_seconds", outcome.stall_seconds),
                ("checkpoint/bytes", float(outcome.size)),
            ],
        )

    def _begin_slowing(self, request: SaveRequest) -> None:
        if self._slowing is not None:
            self._write_slowing()
        usual = median(self._metrics.step_seconds)
        self._slowing = (
            Slowing(request.name, request.sequence, usual) if usual is not None else None
        )

    def _write_slowing(self) -> None:
        measured, self._slowing = self._slowing, None
        if measured is not None and measured.steps:
            overhead = SaveOverhead(
                checkpoint=measured.name,
                sequence=measured.sequence,
                slowing_seconds=max(0.0, measured.seconds),
                slowing_steps=measured.steps,
            )
            # Not flushed: a power loss may take a measurement, and nothing else with it.
            self._journal.later(lambda: append(self._run.overheads, overhead, durable=False))

    def _note(
        self, kind: JournalKind, message: str, step: int, command: Command | None, **fields: str
    ) -> None:
        self._journal.note(
            kind,
            message,
            step=step,
            branch=self._position.branch,
            by=command.requested_by if command else "",
            **fields,
        )
