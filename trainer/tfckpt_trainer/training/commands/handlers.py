"""Carries out commands, on all workers at the same step, and answers them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import tensorflow as tf

from tfckpt_trainer.errors import TornRestoreError
from tfckpt_trainer.rundir.records.command import (
    Command,
    CommandKind,
    CommandState,
    parse_arguments,
)
from tfckpt_trainer.rundir.records.event import EventKind
from tfckpt_trainer.scripts.script_errors import describe_script_error
from tfckpt_trainer.training.commands.check import CheckHandler
from tfckpt_trainer.training.commands.guards import GuardsHandler
from tfckpt_trainer.training.commands.handler import (
    CommandAnswer,
    CommandVote,
    Handler,
    Trainer,
)
from tfckpt_trainer.training.commands.pause import PauseHandler, ResumeHandler, StopHandler
from tfckpt_trainer.training.commands.profile import ProfileHandler
from tfckpt_trainer.training.commands.restore import RestoreHandler
from tfckpt_trainer.training.commands.save import SaveHandler
from tfckpt_trainer.training.commands.set import SetHandler
from tfckpt_trainer.training.commands.skip import SkipHandler
from tfckpt_trainer.training.commands.trash import PruneHandler, UndoHandler
from tfckpt_trainer.training.workers.worker_group import WorkerGaveUpError
from tfckpt_trainer.words.counts import all_of, noun

HANDLERS: tuple[type[Handler[Any]], ...] = (
    SaveHandler,
    RestoreHandler,
    PauseHandler,
    ResumeHandler,
    StopHandler,
    PruneHandler,
    UndoHandler,
    CheckHandler,
    SetHandler,
    SkipHandler,
    GuardsHandler,
    ProfileHandler,
)


class CommandHandlers:
    """Carries out one command after the other. All workers call `carry_out` together.

    Each is prepared on every worker, which votes; then all act, and one answer is given. After an
    error of ours on any worker, what the handler has begun is put back, and training goes on.

    Attributes:
        trainer: What commands act on.
        loop: What commands decide about the loop.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.loop = trainer.loop
        self._handlers = {handler.arguments.kind: handler(trainer) for handler in HANDLERS}
        self._check = self._handlers[CommandKind.CHECK]
        # Every step calls them.
        self._after_step = [
            handler
            for handler in self._handlers.values()
            if type(handler).is_due is not Handler.is_due
        ]

    def carry_out(self, command: Command) -> CommandAnswer | None:
        """Carries out `command`; returns its answer, or None if it is given later."""
        event_log, step = self.trainer.telemetry.event_log, self.trainer.position.step
        workers = list(range(self.trainer.group.size))
        agreed = event_log.advance_command(
            command,
            CommandState.AGREED,
            f"{all_of(len(workers), 'worker')} {noun(len(workers), 'acts', 'act')} "
            f"after step {step:,}.",
            seen_by=workers,
            worker_count=len(workers),
            step=step,
        )
        working = event_log.advance_command(
            agreed, CommandState.WORKING, f"{command.kind.value} in progress."
        )
        handler = self._handlers[command.kind]
        return self._carry_out_together(working, handler, partial(self._act, handler, working))

    def retry_stop(self) -> None:
        """Tries the save of a waiting stop again, now that there is room."""
        command, self.loop.waiting_stop = self.loop.waiting_stop, None
        if command is not None:
            handler = self._handlers[command.kind]
            arguments = parse_arguments(command.kind, command.arguments)
            act = partial(handler.commit, command, arguments)
            self._carry_out_together(command, handler, act)

    def advance_check(self, act: Callable[[], None]) -> None:
        """Calls a part of the quick check in progress, if there is one.

        An error of ours ends the check, not training.
        """
        command = self._check.current
        if command is not None:
            self._carry_out_together(command, self._check, act)

    def step_done(self) -> None:
        """Carries out what was planned for this step. An error of ours ends that, not training."""
        for handler in self._after_step:
            if handler.is_due():
                self.trainer.group.join()
                self._carry_out_together(handler.current, handler, handler.carry_on)

    def ended(self) -> None:
        """Answers what goes on when the run ends."""
        for handler in self._handlers.values():
            command = handler.current
            try:
                handler.ended()
            except Exception as error:
                traceback.print_exc()
                self._fail(command, handler, [str(describe_script_error(error))])

    def _act(self, handler: Handler[Any], command: Command) -> CommandAnswer | CommandVote | None:
        """Has all workers vote, and then act."""
        arguments = parse_arguments(command.kind, command.arguments)
        votes = self.trainer.group.all_gather(handler.prepare(command, arguments))
        refused = next((vote for vote in votes if vote.refusal), None)
        return handler.commit(command, arguments) if refused is None else refused

    def _carry_out_together(
        self,
        command: Command | None,
        handler: Handler[Any],
        act: Callable[[], CommandAnswer | CommandVote | None],
    ) -> CommandAnswer | None:
        """Calls `act` on all workers, and answers `command` if there is one.

        An error of ours fails the command. A worker on which `act` raises tells the others in place
        of its next exchange, so all leave `act` at the same point, and training goes on. These
        errors still end training: an error of the script, which `act` may call; a restore that
        failed halfway; a lost worker.
        """
        problem, before = "", replace(self.loop)
        try:
            answer = act()
            # Another worker may have given up after the last exchange of `act`.
            self.trainer.group.barrier()
        except WorkerGaveUpError:
            pass
        except TornRestoreError:
            raise
        except Exception as error:
            is_of_peer = isinstance(error, tf.errors.OpError) and self.trainer.group.size > 1
            described = describe_script_error(error)
            if is_of_peer or described.line is not None:
                raise
            traceback.print_exc()
            problem = str(described)
            self.trainer.group.give_up()
        else:
            return self._answer(command, answer)
        try:
            handler.put_back(command)
        except Exception as error:
            traceback.print_exc()
            problem = f"{problem}; {describe_script_error(error)}".removeprefix("; ")
        vars(self.loop).update(vars(before))
        return self._fail(command, handler, self.trainer.group.all_gather(problem))

    def _answer(
        self, command: Command | None, answer: CommandAnswer | CommandVote | None
    ) -> CommandAnswer | None:
        if command is None:
            return None
        if isinstance(answer, CommandVote):
            refused = f"{command.kind.value}: {answer.refusal}"
            self.trainer.telemetry.note(EventKind.REFUSED, refused, command)
            answer = CommandAnswer(CommandState.REFUSED, answer.refusal, advice=answer.advice)
        if answer is not None:
            self.trainer.answer(command, answer)
        return answer

    def _fail(
        self, command: Command | None, handler: Handler[Any], problems: Sequence[str]
    ) -> CommandAnswer:
        """Tells that a handler failed by an error of ours, given by worker."""
        of_workers = "; ".join(
            f"worker {index}: {problem}" for index, problem in enumerate(problems) if problem
        )
        message = (
            f"An error in tfckpt_trainer, not in the script: {of_workers}. Training goes on. The "
            "log of the worker has the stack for a bug report."
        )
        kind = handler.arguments.kind
        self.trainer.telemetry.note(EventKind.FAILED, f"{kind}: {message}", command)
        answer = CommandAnswer(CommandState.FAILED, message)
        if command is not None:
            self.trainer.answer(command, answer)
        return answer
