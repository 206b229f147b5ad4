"""Carries out commands, on all workers at the same step, and answers them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import msgspec
import tensorflow as tf

from tfckpt_trainer.advice import Advice, CommandOrKey, command_or_key
from tfckpt_trainer.catalog.retention.emptying import trashed_bytes
from tfckpt_trainer.catalog.retention.prune import OnWarning, move_to_trash, undo
from tfckpt_trainer.counts import all_of, count, noun
from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.command_arguments import (
    CheckArguments,
    CommandArguments,
    PruneArguments,
    RestoreArguments,
    StopArguments,
    UndoArguments,
    parse_arguments,
)
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.rundir.records.trash import TrashManifest
from tfckpt_trainer.rundir.records.worker import Ending
from tfckpt_trainer.rundir.reserve import advice_to_free_space
from tfckpt_trainer.script_errors import describe_script_error
from tfckpt_trainer.sizes import size
from tfckpt_trainer.training.check.quick_check import CheckOutcome, QuickCheck
from tfckpt_trainer.training.checkpoint.restore_manager import SHOWN_LEFT_OUT, RestoreManager
from tfckpt_trainer.training.checkpoint.restorer import TornRestoreError
from tfckpt_trainer.training.checkpoint.save_manager import SaveManager
from tfckpt_trainer.training.checkpoint.save_protocol import SaveOutcome
from tfckpt_trainer.training.telemetry.run_info import update_run_info
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.worker_group import WorkerGaveUpError, WorkerGroup


@dataclass(frozen=True)
class Answer:
    """The final state of a command."""

    state: CommandState
    message: str
    result: dict[str, Any] = field(default_factory=dict)
    advice: Advice | None = None


class CommandHandler:
    """Carries out one command after the other. All workers call `carry_out` together.

    Attributes:
        paused: Whether training waits for a resume.
        waiting_stop: A command to stop whose save waits for room on the disk.
        ending: Why a command ended the run; None while none did.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        telemetry: Telemetry,
        saves: SaveManager,
        restores: RestoreManager,
        quick_check: QuickCheck,
    ) -> None:
        self._run = run
        self._group = group
        self._position = restores.position
        self._telemetry = telemetry
        self._saves = saves
        self._restores = restores
        self._quick_check = quick_check
        self._handlers: dict[CommandKind, Callable[[Command, Any], Answer | None]] = {
            CommandKind.SAVE: self._save,
            CommandKind.RESTORE: self._restore,
            CommandKind.PAUSE: self._pause,
            CommandKind.RESUME: self._resume,
            CommandKind.STOP: self._stop,
            CommandKind.PRUNE: self._prune,
            CommandKind.UNDO: self._undo,
            CommandKind.CHECK: self._check,
        }
        self._checked: Command | None = None
        self.paused = False
        self.waiting_stop: Command | None = None
        self.ending: Ending | None = None

    def carry_out(self, command: Command) -> None:
        """Carries out `command` and answers it. A background save is answered when it is done."""
        journal, step = self._telemetry.journal, self._position.step
        workers = list(range(self._group.size))
        agreed = journal.advance_command(
            command,
            CommandState.AGREED,
            f"{all_of(len(workers), 'worker')} {noun(len(workers), 'acts', 'act')} "
            f"after step {step:,}.",
            seen_by=workers,
            worker_count=len(workers),
            step=step,
        )
        working = journal.advance_command(
            agreed, CommandState.WORKING, f"{command.kind.value} in progress."
        )
        self._carry_out_together(
            working,
            lambda: self._handlers[command.kind](
                working, parse_arguments(command.kind, command.arguments)
            ),
        )

    def _carry_out_together(self, command: Command, act: Callable[[], Answer | None]) -> None:
        """Calls `act` on all workers and answers `command`. An error of ours fails the command.

        A worker on which `act` raises tells the others in place of its next exchange, so all leave
        `act` at the same point, and training goes on. These errors still end training: an error of
        the script, which `act` may call; a restore that failed halfway; a lost worker.
        """
        problem, before = "", (self.paused, self.waiting_stop, self.ending)
        try:
            answer = act()
            # Another worker may have given up after the last exchange of `act`.
            self._group.barrier()
        except WorkerGaveUpError:
            pass
        except TornRestoreError:
            raise
        except Exception as error:
            is_of_peer = isinstance(error, tf.errors.OpError) and self._group.size > 1
            described = describe_script_error(error)
            if is_of_peer or described.line is not None:
                raise
            traceback.print_exc()
            problem = str(described)
            self._group.give_up()
        else:
            if answer is not None:
                self._answer(command, answer)
            return
        if command is self._checked:
            self._checked = None
            self._quick_check.abandon()
        self.paused, self.waiting_stop, self.ending = before
        self._fail(command, self._group.all_gather(problem))

    def advance_check(self, act: Callable[[], None]) -> None:
        """Calls a part of the quick check in progress, if there is one.

        An error of ours ends the check, not training.
        """
        if self._checked is not None:
            self._carry_out_together(self._checked, act)

    def _fail(self, command: Command, problems: Sequence[str]) -> None:
        """Answers a command that failed by an error of ours, given by worker."""
        found = "; ".join(
            f"worker {index}: {problem}" for index, problem in enumerate(problems) if problem
        )
        message = (
            f"An error in tfckpt_trainer, not in the script: {found}. Training goes on. The log of "
            "the worker has the stack for a bug report."
        )
        self._telemetry.note(JournalKind.FAILED, f"{command.kind}: {message}", command)
        self._answer(command, Answer(CommandState.FAILED, message))

    def _save(self, command: Command, _: CommandArguments) -> None:
        self._saves.request_save(
            "command", command, lambda outcome: self._answer(command, self._answer_to_save(outcome))
        )

    def _restore(self, command: Command, arguments: RestoreArguments) -> Answer:
        name, partial = arguments.name, arguments.partial
        began, left = time.monotonic(), self._position.step
        target = self._restores.find(name)
        if target.problem:
            return self._refuse(command, target.problem)
        outcome = self._restores.restore(target, command, partial=partial)
        if outcome.problems:
            return Answer(
                CommandState.REFUSED,
                f"Nothing was changed, training goes on. {'; '.join(outcome.problems)}.",
                {"problems": list(outcome.problems)},
                None if outcome.damaged or partial else self._partial_advice(name),
            )
        self._quick_check.cancel("The run was restored during the check. Training goes on.")
        left_out = outcome.left_out[:SHOWN_LEFT_OUT]
        more = f" {len(outcome.left_out)} left out: {left_out[0]}, …" if left_out else ""
        position, workers = self._position, self._group.size
        return Answer(
            CommandState.DONE,
            f"At {name} on branch {position.branch}, from step {left:,} to {position.step:,}: "
            f"{count(outcome.variables, 'variable')} proven equal on {count(workers, 'worker')}."
            f"{outcome.input_words}{more}",
            {
                "name": name,
                "step": position.step,
                "branch": position.branch,
                "variables": outcome.variables,
                "workers": workers,
                "seconds": time.monotonic() - began,
                "notes": list(outcome.notes),
                "inputs": list(outcome.inputs),
                "left_out": list(left_out),
            },
        )

    def _partial_advice(self, name: str) -> Advice:
        root = self._run.root
        how = command_or_key(
            "restore",
            *("restore", root, "--name", name, "--partial"),
            choice="restore in part",
        )
        return Advice(("To restore only what fits, use ", how, "."))

    def _pause(self, command: Command, _: CommandArguments) -> Answer:
        return self._set_paused(command, paused=True)

    def _resume(self, command: Command, _: CommandArguments) -> Answer:
        return self._set_paused(command, paused=False)

    def _set_paused(self, command: Command, *, paused: bool) -> Answer:
        step = self._position.step
        if self.paused == paused:
            state = "paused" if paused else "running"
            message = f"Training was already {state} at step {step:,}."
        else:
            self.paused = paused
            self._end_wait(CommandState.REFUSED, "Training was resumed before there was room.")
            message = f"{'Paused' if paused else 'Resumed'} after step {step:,}."
            kind = JournalKind.PAUSE if paused else JournalKind.RESUME
            self._telemetry.note(kind, message, command)
        return Answer(CommandState.DONE, message, {"step": step})

    def _stop(self, command: Command, arguments: StopArguments) -> Answer | None:
        step = self._position.step
        message, name = f"Stopped after step {step:,}", None
        if arguments.save:
            outcome = self._saves.save_last("stop", command)
            if outcome.name is None:
                return self._wait_with_stop(command, outcome)
            name = outcome.name
            message += f", saved as {name}"
        without = "" if name else ", without a save"
        self._end_wait(CommandState.DONE, f"{message}{without}.")
        self.ending = Ending.STOPPED
        self._telemetry.note(JournalKind.STOP, f"{message}.", command)
        return Answer(CommandState.DONE, f"{message}.", {"step": step, "name": name})

    def _wait_with_stop(self, command: Command, outcome: SaveOutcome) -> Answer | None:
        """Lets the run wait for room, if that is what the save lacks."""
        if not outcome.disk_full:
            return self._not_stopped(outcome)
        if self.waiting_stop is not None:
            why = f"A stop waits for room already. {outcome.problem}"
            return self._refuse(command, why, self._advice_to_end())
        self.waiting_stop = self._telemetry.journal.advance_command(
            command, command.state, outcome.problem, advice=self._advice_to_end()
        )
        return None

    def retry_stop(self) -> None:
        """Tries the save of a waiting stop again, now that there is room."""
        command, self.waiting_stop = self.waiting_stop, None
        if command is not None:
            self._carry_out_together(command, lambda: self._stop(command, StopArguments()))

    def _end_wait(self, state: CommandState, message: str) -> None:
        command, self.waiting_stop = self.waiting_stop, None
        if command is not None:
            self._telemetry.journal.advance_command(command, state, message, advice=None)

    def _not_stopped(self, outcome: SaveOutcome) -> Answer:
        state = CommandState.REFUSED if outcome.refused else CommandState.FAILED
        problem = outcome.problem if outcome.problem.endswith(".") else f"{outcome.problem}."
        return Answer(
            state,
            f"The run was not stopped, because its last steps could not be saved: {problem}",
            advice=Advice(("To stop without a save, use ", self._stop_without_save(), ".")),
        )

    def _stop_without_save(self) -> CommandOrKey:
        root = self._run.root
        return command_or_key("stop", "stop", root, "--no-save", choice="stop without saving")

    def _advice_to_free_space(self) -> Advice:
        return advice_to_free_space(self._run, has_trash=bool(trashed_bytes(self._run)))

    def _advice_to_end(self) -> Advice:
        """Returns how to free space, or to end the run nevertheless."""
        free = self._advice_to_free_space()
        end = (" To end the run without a save, use ", self._stop_without_save(), ".")
        in_app = (*(free.app_parts or free.parts), *end)
        return Advice((*free.parts, *end), in_app)

    def _prune(self, command: Command, arguments: PruneArguments) -> Answer:
        return self._change_trash(
            command,
            JournalKind.PRUNE,
            "Moved to the trash",
            lambda on_warning: move_to_trash(
                self._run,
                arguments.names,
                by=command.requested_by,
                now=time.time(),
                update_state_file=True,
                on_warning=on_warning,
            ),
        )

    def _undo(self, command: Command, arguments: UndoArguments) -> Answer:
        return self._change_trash(
            command,
            JournalKind.UNDO,
            "Brought back",
            lambda on_warning: undo(
                self._run,
                arguments.trash,
                update_state_file=True,
                on_warning=on_warning,
            ),
        )

    def _check(self, command: Command, arguments: CheckArguments) -> Answer | None:
        if self.paused:
            return self._refuse(command, "Training is paused. Resume it, then check.")
        self._saves.finish_all()
        refusal = self._quick_check.request(
            arguments.steps,
            partial(self._answer_check, command),
            partial(self._telemetry.journal.advance_command, command, CommandState.WORKING),
        )
        if refusal:
            return self._refuse(command, refusal)
        self._checked = command
        return None

    def _answer_check(self, command: Command, outcome: CheckOutcome) -> None:
        """Records what a quick check found, and answers its command."""
        self._checked = None
        summary, cause = outcome.summary, outcome.cause
        # The step that has just ended is not counted in the metrics yet.
        step = self._position.step
        if summary is None:
            message = f"Nothing was compared. {outcome.problem}"
            self._telemetry.note(JournalKind.FAILED, f"check: {message}", command, step=step)
            self._answer(command, Answer(CommandState.FAILED, message))
            return
        covered = f"Not covered: {', '.join(summary.not_covered)}."
        why = f" Likely cause: {cause.why} {cause.advice}" if cause is not None else ""
        message = f"Checked: {summary.words}.{why} {covered}"
        result = {
            "exact": not summary.difference,
            **msgspec.to_builtins(summary),
            "cause": asdict(cause) if cause is not None else None,
        }
        self._telemetry.note(JournalKind.NOTE, message, command, details=result, step=step)
        self._telemetry.journal.later(lambda: update_run_info(self._run, check=summary))
        self._answer(command, Answer(CommandState.DONE, message, result))

    def _change_trash(
        self,
        command: Command,
        kind: JournalKind,
        what: str,
        act: Callable[[OnWarning], TrashManifest],
    ) -> Answer:
        """Moves files on the chief; the other workers do nothing."""
        if not self._group.is_chief:
            return Answer(CommandState.DONE, "")
        warnings: list[str] = []
        try:
            manifest = act(warnings.append)
        except (TfckptError, OSError) as error:
            if isinstance(error, TfckptError):
                return self._refuse(command, error.found, error.advice)
            return self._refuse(command, describe_error(error))
        names = [trashed.name for trashed in manifest.checkpoints]
        size = sum(trashed.size for trashed in manifest.checkpoints)
        message = f"{what}: {', '.join(names)}."
        details = {"trash": manifest.id, "names": names}
        self._telemetry.note(kind, message, command, details=details)
        result = {**details, "bytes": size, "warnings": warnings}
        return Answer(CommandState.DONE, " ".join([message, *warnings]), result)

    def _answer(self, command: Command, answer: Answer) -> None:
        self._telemetry.journal.advance_command(
            command, answer.state, answer.message, result=answer.result, advice=answer.advice
        )

    def _refuse(self, command: Command, why: str, advice: Advice | None = None) -> Answer:
        self._telemetry.note(JournalKind.REFUSED, f"{command.kind.value}: {why}", command)
        return Answer(CommandState.REFUSED, why, advice=advice)

    def _answer_to_save(self, outcome: SaveOutcome) -> Answer:
        if outcome.name is not None:
            return _saved(outcome)
        state = CommandState.REFUSED if outcome.refused else CommandState.FAILED
        advice = self._advice_to_free_space() if outcome.disk_full else None
        return Answer(state, outcome.problem, advice=advice)


def _saved(outcome: SaveOutcome) -> Answer:
    result = {
        "name": outcome.name,
        "step": outcome.step,
        "branch": outcome.branch,
        "bytes": outcome.size,
        "seconds": outcome.seconds,
        "stall_seconds": outcome.stall_seconds,
        "already": outcome.already_saved,
        "warning": outcome.warning,
    }
    if outcome.already_saved:
        return Answer(CommandState.DONE, f"{outcome.name} already holds this step.", result)
    return Answer(
        CommandState.DONE,
        f"Saved {outcome.name}: {size(outcome.size)} in {outcome.seconds:.2f} s, "
        f"{outcome.durability}",
        result,
    )
