"""The start of a `fit` from a file of Keras, with its weights, optimizer state and epoch."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tfckpt_trainer.bundle.exchange.array_file import Array
from tfckpt_trainer.bundle.exchange.convert import open_array_file
from tfckpt_trainer.catalog.directory.other_formats import (
    BACKUP,
    OF_KERAS,
    OtherFile,
    find_neighbours,
)
from tfckpt_trainer.errors import RefusedError, TfckptError, describe_error
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.training.checkpoint.restores.restore_manager import StartingPoint
from tfckpt_trainer.training.keras.backup_checkpoint import BackupCheckpoint, newest_backup
from tfckpt_trainer.training.keras_library import (
    BACKUPS_ARE_CHECKPOINTS,
    as_array,
    is_legacy,
    keras,
    unnumbered,
)
from tfckpt_trainer.training.workers.worker_group import WorkerGroup
from tfckpt_trainer.words.clean_text import clean

_MOST_TRIED = 10
"""Files that a start reads to find one that fits; a run can have one of each epoch."""

_OPTIMIZER = "optimizer/"
"""How the names of the variables of the optimizer begin in files of Keras 3."""


@dataclass(frozen=True)
class _Choice:
    """The file that all workers load, as the chief found it.

    Attributes:
        path: The file; empty if there is none.
        epoch: The epoch to begin with, counted from 0.
        passed_over: Why others are not it, as sentences.
        problem: Why the backup of the script cannot be loaded.
    """

    path: str = ""
    epoch: int = 0
    passed_over: tuple[str, ...] = ()
    problem: str = ""


class KerasFiles:
    """Files of Keras from which a run without checkpoints can go on.

    Args:
        run: The run directory, whose files are used if they fit.
        backups: Directories of `BackupAndRestore`, whose files have to fit.
        epoch_steps: Steps of an epoch.
        initial_epoch: The first epoch of the run. If the script begins later than at 0, only
            backups count, as in Keras.
    """

    def __init__(
        self,
        run: RunDirectory,
        group: WorkerGroup,
        model: keras.Model,
        backups: Sequence[Path],
        epoch_steps: int,
        initial_epoch: int,
    ) -> None:
        self._run = run
        self._group = group
        self._model = model
        self._backups = backups
        self._epoch_steps = epoch_steps
        self._initial_epoch = initial_epoch

    def load_newest(self) -> StartingPoint:
        """Loads the newest file that fits the model, if the script has not loaded one itself.

        All workers call it together.

        Raises:
            RefusedError: A backup does not fit, or a worker cannot load the file.
        """
        choice = self._group.broadcast(self._choose() if self._group.is_chief else None, _Choice)
        assert choice is not None
        if choice.problem:
            raise RefusedError(choice.problem)
        if not choice.path:
            return StartingPoint(passed_over=choice.passed_over)
        failures = [text for text in self._group.all_gather(self._load(choice.path)) if text]
        if failures:
            raise RefusedError(_refusal(choice.path, failures[0]))
        return StartingPoint(
            (choice.epoch - self._initial_epoch) * self._epoch_steps,
            f"with weights, optimizer state and epoch of {choice.path}",
            choice.passed_over,
        )

    def _choose(self) -> _Choice:
        optimizer = self._model.optimizer
        if optimizer is None or _steps_of(optimizer):
            # The script has restored it itself.
            return _Choice()
        backup = newest_backup(self._backups, self._model) if BACKUPS_ARE_CHECKPOINTS else None
        if backup is not None:
            return self._choose_checkpoint(backup)
        passed_over = []
        for path, file in islice(self._files(), _MOST_TRIED):
            try:
                epoch = self._epoch_of(path, file)
            except (OSError, TfckptError) as error:
                problem = describe_error(error).rstrip(".")
                if path.parent in self._backups:
                    return _Choice(problem=_refusal(str(path), problem))
                passed_over.append(f"{path.name}: {problem}.")
            else:
                return _Choice(str(path), epoch, tuple(passed_over))
        return _Choice(passed_over=tuple(passed_over))

    def _choose_checkpoint(self, backup: BackupCheckpoint) -> _Choice:
        try:
            epoch = self._checked(backup.epoch(self._epoch_steps))
        except (OSError, TfckptError) as error:
            problem = _refusal(str(backup.prefix), describe_error(error), str(backup.prefix.parent))
            return _Choice(problem=problem)
        return _Choice(str(backup.prefix), epoch)

    def _files(self) -> Iterator[tuple[Path, OtherFile]]:
        for root in (*self._backups, *([] if self._initial_epoch else [self._run.root])):
            # A first start has no directory yet.
            directory = RunDirectory(root)
            files = find_neighbours(root).others if root.is_dir() else ()
            for file in files:
                path = root / file.name
                is_own = not (file.is_link_of_others or directory.stranger_of(path))
                if is_own and file.name.endswith(OF_KERAS):
                    yield path, file

    def _epoch_of(self, path: Path, file: OtherFile) -> int:
        """Returns the epoch to go on with.

        Raises:
            RefusedError: The file does not fit, or has no state of an optimizer.
            TfckptError: It cannot be read.
            OSError: It cannot be read.
        """
        with open_array_file(path) as reader:
            states = [array for array in reader.arrays if array.name.startswith(_OPTIMIZER)]
            weights = [array for array in reader.arrays if not array.name.startswith(_OPTIMIZER)]
            if not _has_shapes(weights, self._model.weights):
                raise RefusedError("its shapes are not those of this model")
            self._check_optimizer(states)
            done = max((_value(array) for array in states if _is_counter(array)), default=0)
            if not done:
                raise RefusedError("its optimizer has made no step")
            if self._has_values(weights):
                raise RefusedError("the script has loaded its weights")
        said = file.epoch if file.name == BACKUP else None
        return self._checked(done // self._epoch_steps if said is None else said)

    def _checked(self, epoch: int) -> int:
        """Returns an epoch to go on with.

        Raises:
            RefusedError: The script begins later.
        """
        if epoch < self._initial_epoch:
            raise RefusedError(
                f"it has done {epoch} epochs, and initial_epoch is {self._initial_epoch}"
            )
        return epoch

    def _check_optimizer(self, states: Sequence[Array]) -> None:
        own = self._model.optimizer
        if is_legacy(own):
            raise RefusedError("Keras loads no state into a legacy optimizer")
        saved = {unnumbered(array.owner.rpartition("/")[2]) for array in states} - {""}
        if not states:
            raise RefusedError("it has no state of an optimizer")
        if not _has_shapes(states, own.variables) or (saved and unnumbered(own.name) not in saved):
            raise RefusedError(
                f"it has the state of {', '.join(sorted(saved)) or 'another optimizer'}, and the "
                f"optimizer of the script is {unnumbered(own.name)}"
            )

    def _has_values(self, arrays: Iterable[Array]) -> bool:
        """Whether the model has the values of a file, because its script has loaded it."""
        saved = {_digest(array.chunks()) for array in arrays}
        own = (as_array(weight) for weight in self._model.trainable_weights)
        return all(_digest([values]) in saved for values in own)

    def _load(self, path: str) -> str:
        """Loads the file on this worker; returns what prevents it."""
        try:
            with self._model.distribute_strategy.scope():
                if path.endswith(OF_KERAS):
                    self._model.load_weights(path)
                else:
                    BackupCheckpoint(Path(path), self._model).restore()
        except Exception as error:
            # Keras raises errors of any type for what does not fit.
            return f"worker {self._group.index}: {clean(str(error)) or type(error).__name__}"
        done = _steps_of(self._model.optimizer)
        return "" if done else f"worker {self._group.index}: Keras left out the optimizer state"


def _steps_of(optimizer: Any) -> int:
    return int(as_array(optimizer.iterations))


def _refusal(path: str, problem: str, place: str = "") -> str:
    """Returns why a start cannot go on from a path.

    Args:
        path: The file.
        problem: Why.
        place: What to move away to start all the same; the file by default.
    """
    place = place or path
    named = problem if path in problem else f"{path}: {problem}"
    return (
        f"Training cannot go on from {named.rstrip('.')}. A start at step 0 would lose "
        "what it holds. To start at step 0 all the same, move it away: "
        f"`mv {shlex.quote(place)} {shlex.quote(place + '.old')}`."
    )


def _has_shapes(arrays: Iterable[Array], variables: Iterable[Any]) -> bool:
    return not Counter(tuple(v.shape) for v in variables) - Counter(a.shape for a in arrays)


def _is_counter(array: Array) -> bool:
    return array.shape == () and array.dtype == "int64"


def _value(array: Array) -> int:
    return int(next(iter(array.chunks()))[0])


def _digest(chunks: Iterable[Any]) -> bytes:
    digest = hashlib.blake2b()
    for chunk in chunks:
        digest.update(chunk.tobytes())
    return digest.digest()
