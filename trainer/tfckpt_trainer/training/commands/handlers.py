"""Carries out commands, on all workers at the same step, and answers them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import tensorflow as tf

from tfckpt_trainer.counts import all_of, noun
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.command_arguments import StopArguments, parse_arguments
from tfckpt_trainer.rundir.records.event import JournalKind
from tfckpt_trainer.script_errors import describe_script_error
from tfckpt_trainer.training.check.quick_check import QuickCheck
from tfckpt_trainer.training.checkpoint.restore_manager import RestoreManager
from tfckpt_trainer.training.checkpoint.restorer import TornRestoreError
from tfckpt_trainer.training.checkpoint.save_manager import SaveManager
from tfckpt_trainer.training.commands.check import CheckHandler
from tfckpt_trainer.training.commands.handler import (
    Answer,
    Handler,
    LoopState,
    Vote,
    give_answer,
)
from tfckpt_trainer.training.commands.pause import PauseHandler, ResumeHandler, StopHandler
from tfckpt_trainer.training.commands.restore import RestoreHandler
from tfckpt_trainer.training.commands.save import SaveHandler
from tfckpt_trainer.training.commands.trash import PruneHandler, UndoHandler
from tfckpt_trainer.training.telemetry.telemetry import Telemetry
from tfckpt_trainer.training.worker_group import WorkerGaveUpError, WorkerGroup


class CommandHandlers:
    """Carries out one command after the other. All workers call `carry_out` together.

    Each is prepared on every worker, which votes; then all act, and one answer is given. After an
    error of ours on any worker, what the handler has begun is put back, and training goes on.

    Attributes:
        loop: What commands decide about the loop.
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
        self._group = group
        self._position = position = restores.position
        self._telemetry = telemetry
        self.loop = loop = LoopState()
        self._check = CheckHandler(run, position, telemetry, saves, quick_check, loop)
        self._stop = StopHandler(run, position, telemetry, saves, loop)
        handlers: list[Handler[Any]] = [
            SaveHandler(run, saves, telemetry.journal),
            RestoreHandler(run, group, restores, quick_check),
            PauseHandler(position, telemetry, loop),
            ResumeHandler(position, telemetry, loop),
            self._stop,
            PruneHandler(run, group, telemetry),
            UndoHandler(run, group, telemetry),
            self._check,
        ]
        self._handlers: dict[CommandKind, Handler[Any]] = {
            handler.arguments.kind: handler for handler in handlers
        }

    def carry_out(self, command: Command) -> None:
        """Carries out `command` and answers it, now or when what it began is done."""
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
        handler = self._handlers[command.kind]
        self._carry_out_together(working, handler, partial(self._act, handler, working))

    def retry_stop(self) -> None:
        """Tries the save of a waiting stop again, now that there is room."""
        command, self.loop.waiting_stop = self.loop.waiting_stop, None
        if command is not None:
            act = partial(self._stop.commit, command, StopArguments())
            self._carry_out_together(command, self._stop, act)

    def advance_check(self, act: Callable[[], None]) -> None:
        """Calls a part of the quick check in progress, if there is one.

        An error of ours ends the check, not training.
        """
        if self._check.current is not None:
            self._carry_out_together(self._check.current, self._check, act)

    def _act(self, handler: Handler[Any], command: Command) -> Answer | Vote | None:
        """Has all workers vote, and then act."""
        arguments = parse_arguments(command.kind, command.arguments)
        votes = self._group.all_gather(handler.prepare(command, arguments))
        refused = next((vote for vote in votes if vote.refusal), None)
        return handler.commit(command, arguments) if refused is None else refused

    def _carry_out_together(
        self,
        command: Command,
        handler: Handler[Any],
        act: Callable[[], Answer | Vote | None],
    ) -> None:
        """Calls `act` on all workers and answers `command`. An error of ours fails the command.

        A worker on which `act` raises tells the others in place of its next exchange, so all leave
        `act` at the same point, and training goes on. These errors still end training: an error of
        the script, which `act` may call; a restore that failed halfway; a lost worker.
        """
        problem, before = "", replace(self.loop)
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
            self._answer(command, answer)
            return
        handler.put_back(command)
        vars(self.loop).update(vars(before))
        self._fail(command, self._group.all_gather(problem))

    def _answer(self, command: Command, answer: Answer | Vote | None) -> None:
        if isinstance(answer, Vote):
            refused = f"{command.kind.value}: {answer.refusal}"
            self._telemetry.note(JournalKind.REFUSED, refused, command)
            answer = Answer(CommandState.REFUSED, answer.refusal, advice=answer.advice)
        if answer is not None:
            give_answer(self._telemetry.journal, command, answer)

    def _fail(self, command: Command, problems: Sequence[str]) -> None:
        """Answers a command that failed by an error of ours, given by worker."""
        of_workers = "; ".join(
            f"worker {index}: {problem}" for index, problem in enumerate(problems) if problem
        )
        message = (
            f"An error in tfckpt_trainer, not in the script: {of_workers}. Training goes on. The "
            "log of the worker has the stack for a bug report."
        )
        self._telemetry.note(JournalKind.FAILED, f"{command.kind}: {message}", command)
        give_answer(self._telemetry.journal, command, Answer(CommandState.FAILED, message))
