"""The callbacks that each worker runs, and how they go on after a restore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from tfckpt_trainer.catalog.retention.rules import BestBy
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.keras.callback_state import CallbackState
from tfckpt_trainer.training.keras_library import (
    BACKUPS_ARE_CHECKPOINTS,
    keras,
    may_look_at_batches,
    rate_of,
    tree,
)
from tfckpt_trainer.training.state.variables import is_variable

_BACKUP = keras.callbacks.BackupAndRestore
_ORBAX = getattr(keras.callbacks, "OrbaxCheckpoint", None)

REPLACED = (_BACKUP,) if BACKUPS_ARE_CHECKPOINTS or hasattr(_BACKUP, "_load_model") else ()
"""Callbacks that do nothing here: `fit` does what they do, and goes on from what they saved."""

REFUSED = tuple({_BACKUP, _ORBAX} - {None, *REPLACED})
"""Callbacks that save and restore the training themselves."""

CHIEF_ONLY = (
    keras.callbacks.CSVLogger,
    keras.callbacks.ModelCheckpoint,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.RemoteMonitor,
    keras.callbacks.TensorBoard,
)
"""Callbacks that write: on several workers, they would write the same files."""

TRACKERS = frozenset(
    {"aim", "clearml", "comet_ml", "dvclive", "mlflow", "neptune", "swanlab", "wandb"}
)
"""Packages whose callbacks send metrics to a tracker: each worker would begin an experiment."""

_GROWING = ("acc", "auc", "f1", "iou", "precision", "recall")
"""Parts of the names of metrics that are better if they are larger."""


class FitCallbacks:
    """The callbacks of one worker, and their state.

    Attributes:
        model: The built model.
        all: The callbacks.
    """

    def __init__(
        self,
        model: keras.Model,
        callbacks: keras.callbacks.CallbackList,
        *,
        saved_weights: int | None,
    ) -> None:
        """Creates the variables for the weights that callbacks keep.

        Args:
            model: The built model.
            callbacks: The callbacks of this worker.
            saved_weights: How many sets of these weights the checkpoints of the run have; None if
                there are no checkpoints.
        """
        self.model = model
        self.all = callbacks
        self._computing = keras.callbacks.CallbackList(
            [callback for callback in callbacks.callbacks if not is_chief_only(callback)]
        )
        self._states = CallbackState(callbacks.callbacks)
        self._states.create_variables(model, saved_weights)
        self._restored = ""
        self._has_begun = False

    def of_batch(self, *, may_repeat: bool) -> keras.callbacks.CallbackList:
        """Returns the callbacks of a batch.

        Args:
            may_repeat: Whether a quick check will repeat it. Then only callbacks are called that
                may have an effect on training; those that write do so the second time.
        """
        return self._computing if may_repeat else self.all

    @property
    def look_at_batches(self) -> bool:
        """Whether a callback may look at what a batch reports."""
        return may_look_at_batches(self.all)

    @property
    def history(self) -> keras.callbacks.History:
        """The history of the training."""
        histories = (c for c in self.all.callbacks if isinstance(c, keras.callbacks.History))
        return cast(keras.callbacks.History, next(histories))

    @property
    def weights(self) -> dict[str, list[Any]]:
        """Variables that hold the weights of callbacks in a checkpoint, by callback."""
        return self._states.variables

    def begin_training(self, *, is_resumed: bool) -> None:
        """Begins training, unless it has begun.

        Args:
            is_resumed: Whether a checkpoint was restored.
        """
        if self._has_begun:
            return
        self._has_begun = True
        for callback in self.all.callbacks:
            if isinstance(callback, keras.callbacks.CSVLogger) and is_resumed:
                # It would start its file again.
                callback.append = True
        self.all.on_train_begin()
        self._states.begin()

    def begin_epoch(self, epoch: int, *, is_resumed: bool) -> None:
        """Begins an epoch.

        Args:
            epoch: Its number, from 0.
            is_resumed: Whether a restore led into the middle of it. Then callbacks prepare for the
                epoch, but it has no effect on their state and on the learning rate.
        """
        if not is_resumed:
            self.model.reset_metrics()
            self.all.on_epoch_begin(epoch)
            return
        optimizer = self.model.optimizer
        rate = rate_of(getattr(optimizer, "inner_optimizer", optimizer))
        value = rate.numpy() if is_variable(rate) else None
        self.all.on_epoch_begin(epoch)
        self._states.restore(self._restored)
        if value is not None:
            rate.assign(value)

    def state(self) -> str:
        """Returns the state of the callbacks as JSON, and sets `weights`."""
        return self._states.text()

    @property
    def unsaved(self) -> list[str]:
        """The attributes of the script's callbacks that `state` leaves out, with types."""
        return self._states.unsaved()

    def restore(self, text: str) -> None:
        """Restores what `state` returned."""
        self._restored = text
        self._states.restore(text)


def watched_metric(given: Any, *, validates: bool) -> BestBy:
    """Returns the metric whose best checkpoint stays by default, and which of its values is best.

    Args:
        given: As for `worker_callbacks`.
        validates: Whether `fit` validates.
    """
    callbacks = worker_callbacks(given, is_chief=True)
    watching = next((c for c in callbacks if isinstance(getattr(c, "monitor", None), str)), None)
    metric = str(getattr(watching, "monitor", "val_loss" if validates else "loss"))
    grows = any(word in metric for word in _GROWING)
    said = {"min": False, "max": True}.get(getattr(watching, "mode", ""), grows)
    return BestBy(metric, "max" if said else "min", 1)


def worker_callbacks(given: Any, *, is_chief: bool) -> list[keras.callbacks.Callback]:
    """Returns the callbacks of this worker.

    Args:
        given: A callback, a `CallbackList`, any nest of callbacks, or None.
        is_chief: Whether this is the chief. On other workers, callbacks that write are replaced by
            one that does nothing, at the same position; so is `BackupAndRestore` on all.

    Raises:
        UsageError: One conflicts with `fit`, or is not a callback.
    """
    callbacks = _flat(given)
    for callback in callbacks:
        if isinstance(callback, REFUSED):
            name = type(callback).__name__
            raise UsageError(
                f"{name} conflicts with fit, which saves and restores checkpoints itself. Remove "
                f"{name} from the callbacks."
            )
        if not isinstance(callback, keras.callbacks.Callback):
            raise UsageError(
                f"callbacks has a {type(callback).__name__}; expected a keras.callbacks.Callback."
            )
    return [
        keras.callbacks.Callback() if _is_idle(callback, is_chief=is_chief) else callback
        for callback in callbacks
    ]


def backup_directories(callbacks: Any) -> list[Path]:
    """Returns where callbacks of type `BackupAndRestore` keep their files.

    Args:
        callbacks: As for `worker_callbacks`.
    """
    return [
        Path(os.path.realpath(callback.backup_dir))
        for callback in _flat(callbacks)
        if isinstance(callback, REPLACED)
    ]


def _is_idle(callback: keras.callbacks.Callback, *, is_chief: bool) -> bool:
    return isinstance(callback, REPLACED) or (not is_chief and is_chief_only(callback))


def _flat(given: Any) -> list[Any]:
    if isinstance(given, keras.callbacks.CallbackList):
        given = given.callbacks
    return [] if given is None else tree.flatten(_listed(given))


def is_chief_only(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback runs on the chief only.

    Its attribute `chief_only` says so. Without it, those of Keras do that write files or send data,
    and those of the packages in `TRACKERS`.

    Args:
        callback: The callback.

    Raises:
        UsageError: The attribute is no truth value.
    """
    said = getattr(callback, "chief_only", None)
    if said is not None and not isinstance(said, bool):
        raise UsageError(
            f"{type(callback).__name__}.chief_only is {said!r}; expected True or False: whether "
            "the callback runs on the chief only."
        )
    if said is not None:
        return said
    packages = {kind.__module__.partition(".")[0] for kind in type(callback).__mro__}
    return isinstance(callback, CHIEF_ONLY) or not packages.isdisjoint(TRACKERS)


def _listed(given: Any) -> Any:
    """Returns a list for an iterable that Keras does not know as a nest."""
    is_nest = isinstance(given, (list, tuple, dict, keras.callbacks.Callback))
    return given if is_nest or not hasattr(given, "__iter__") else list(given)
