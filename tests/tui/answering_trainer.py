"""The trainer's side of the command box, from a thread: takes commands and answers them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import msgspec

from tfckpt_trainer.catalog.retention.prune import move_to_trash, undo
from tfckpt_trainer.rundir.command_queue import CommandQueue, advance
from tfckpt_trainer.rundir.heartbeats.reading import read_workers
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.command import Command, CommandKind, CommandState
from tfckpt_trainer.rundir.records.worker import Activity
from tfckpt_trainer.rundir.storage.documents import store

Answer = Callable[[CommandQueue, Command], None]


class AnsweringTrainer:
    """Serves the commands of `run` until the block ends.

    Attributes:
        taken: Every command it took.
    """

    def __init__(self, run: RunDirectory, answer: Answer) -> None:
        self.taken: list[Command] = []
        self._run = run
        self._box = CommandQueue(run)
        self._answer = answer
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> AnsweringTrainer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(10)

    def _serve(self) -> None:
        while not self._ended.wait(0.01):
            command = self._box.claim(time.time())
            if command is not None:
                self.taken.append(command)
                self._answer(self._box, command)
                outcome = self._box.look_up(command.id)
                if command.kind is CommandKind.STOP and outcome.state is CommandState.DONE:
                    self._exit()

    def _exit(self) -> None:
        """Has all workers say that they are about to end."""
        for worker in read_workers(self._run):
            ended = msgspec.structs.replace(worker, activity=Activity.EXITED)
            store(self._run.worker_status(worker.index), ended)


def done(message: str, **result: object) -> Answer:
    """Does everything at once, by way of all states."""
    return final(CommandState.DONE, message, **result)


def final(state: CommandState, message: str, **result: object) -> Answer:
    """Answers with `state`, by way of agreed and working."""

    def answer(box: CommandQueue, command: Command) -> None:
        words = "All 2 workers act after step 438."
        fields = {"seen_by": [0, 1], "worker_count": 2, "step": 438}
        agreed = advance(command, CommandState.AGREED, words, **fields)
        box.update(agreed)
        working = advance(agreed, CommandState.WORKING, "It goes on.")
        box.update(working)
        box.finish(advance(working, state, message, result=result))

    return answer


def working_for_ever(box: CommandQueue, command: Command) -> None:
    """Takes it, and never comes to an end."""
    box.update(advance(command, CommandState.WORKING, "Writing shard 1 of 2."))


def moving_files(run: RunDirectory) -> Answer:
    """Prunes and undoes as the chief does."""

    def answer(box: CommandQueue, command: Command) -> None:
        if command.kind is CommandKind.PRUNE:
            manifest = move_to_trash(
                run,
                command.arguments["names"],
                by=command.requested_by,
                now=time.time(),
                update_state_file=True,
            )
        else:
            manifest = undo(run, command.arguments["trash"], update_state_file=True)
        names = [trashed.name for trashed in manifest.checkpoints]
        size = sum(trashed.size for trashed in manifest.checkpoints)
        result = {"trash": manifest.id, "names": names, "bytes": size}
        box.finish(advance(command, CommandState.DONE, "Moved.", result=result))

    return answer
