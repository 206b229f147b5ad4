"""What carries out one kind of command, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from tfckpt_trainer.catalog.retention.emptying import trashed_bytes
from tfckpt_trainer.rundir.full_disk import advice_to_free_space
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandArguments, CommandState
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.training.check.quick_check import QuickCheck
from tfckpt_trainer.training.checkpoint.restores.restore_manager import RestoreManager
from tfckpt_trainer.training.checkpoint.saves.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.state import Position
from tfckpt_trainer.training.guards.guards_in_force import GuardsInForce
from tfckpt_trainer.training.hyperparameters.hyperparameters import Hyperparameters
from tfckpt_trainer.training.pipelines.skips import InputSkips
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.advice import Advice


@dataclass(frozen=True)
class CommandAnswer:
    """The final state of a command."""

    state: CommandState
    message: str
    result: dict[str, Any] = field(default_factory=dict)
    advice: Advice | None = None


def advice_on_full_disk(run: RunDirectory) -> Advice:
    """Returns how to free space for a save."""
    return advice_to_free_space(run, has_trash=bool(trashed_bytes(run)))


class CommandVote(msgspec.Struct, frozen=True):
    """Whether a worker can carry out a command.

    Attributes:
        refusal: Why not, as a sentence; empty if it can.
        advice: What to do then.
    """

    refusal: str = ""
    advice: Advice | None = None


AGREED = CommandVote()


@dataclass
class LoopState:
    """What commands decide about the loop; equal on all workers.

    Attributes:
        paused: Whether training waits for a resume.
        pause_reason: Why, if no person paused it.
        paused_before: Who had paused the run before it was restarted; it pauses after its next
            step.
        waiting_stop: A command to stop whose save waits for room on the disk.
        ending: Why a command ended the run; None while none did.
        answered: The ID of the command that was answered last, and its answer.
    """

    paused: bool = False
    pause_reason: str = ""
    paused_before: str = ""
    waiting_stop: Command | None = None
    ending: Ending | None = None
    answered: tuple[str, CommandAnswer] | None = None


@dataclass(frozen=True)
class Trainer:
    """What commands act on; the same for all handlers.

    Attributes:
        run: The run directory.
        group: The workers.
        telemetry: Metrics, heartbeat and event log.
        saves: Saves checkpoints.
        restores: Restores them.
        quick_check: Repeats steps, and compares.
        hyperparameters: Values that can change between steps.
        skips: Input that is dropped before later steps.
        reads_input: Whether the run has a dataset.
        guards: Rules that act without a person.
        total_steps: Returns the step after which training ends; None without an end.
        loop: What commands decide about the loop.
    """

    run: RunDirectory
    group: WorkerGroup
    telemetry: Telemetry
    saves: SaveManager
    restores: RestoreManager
    quick_check: QuickCheck
    hyperparameters: Hyperparameters
    skips: InputSkips
    reads_input: bool
    guards: GuardsInForce
    total_steps: Callable[[], int | None]
    loop: LoopState = field(default_factory=LoopState)

    @property
    def position(self) -> Position:
        """Where training is."""
        return self.restores.position

    def answer(self, command: Command, answer: CommandAnswer) -> None:
        """Answers a command, once heartbeats show what it did."""
        self.loop.answered = command.id, answer
        self.telemetry.heartbeat.show()
        self.telemetry.event_log.advance_command(
            command, answer.state, answer.message, result=answer.result, advice=answer.advice
        )


ArgumentsT = TypeVar("ArgumentsT", bound=CommandArguments)


class Handler(Generic[ArgumentsT]):
    """Carries out one kind of command. All workers call each method together.

    Attributes:
        arguments: The record of its arguments, which names the kind.
        trainer: What it acts on.
        current: The command whose work goes on in later steps; None without one.
    """

    arguments: ClassVar[type[CommandArguments]]

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.current: Command | None = None

    def prepare(self, command: Command, arguments: ArgumentsT) -> CommandVote:
        """Looks whether this worker can act, and changes nothing. If one cannot, none acts."""
        del command, arguments
        return AGREED

    def commit(self, command: Command, arguments: ArgumentsT) -> CommandAnswer | CommandVote | None:
        """Acts, after all workers have agreed.

        Returns:
            The answer; a vote with a refusal, equal on all workers, if it turned out that nothing
            can be done; or None if it calls `Trainer.answer` later.
        """
        raise NotImplementedError

    def is_due(self) -> bool:
        """Looks at the step just done; returns whether `carry_on` is due, equal on all workers."""
        return False

    def carry_on(self) -> None:
        """Carries out what was planned for this step, before a save of it."""

    def ended(self) -> None:
        """Gives up what goes on, because the run has ended."""

    def put_back(self, command: Command | None) -> None:
        """Forgets what has begun here, if it has, after an error on any worker.

        Args:
            command: The one that `commit` carried out; after an error of `carry_on` the current
                one, None without one.
        """
