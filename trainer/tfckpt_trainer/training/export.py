"""Exports a checkpoint of a run as a model for others, from within the run's own script.

Only the script knows how its model is built, so it is started once more, without the other
workers. Where it would begin to train, the checkpoint is restored and the model written; in a
second process it is loaded again and must answer as the first one did.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.documents import load, store
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.export import (
    ExportFormat,
    ExportPhase,
    ExportReport,
    ExportRequest,
)
from tfckpt_trainer.training.checkpoint.save_protocol import describe_failure
from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.loop.inputs import Inputs

EXAMPLES = 4
"""How many examples are made up where the dataset's do not fit the model's inputs."""

FREE_LENGTH = 8
"""How long a dimension is made that the model leaves open."""

TOLERANCE = 1e-5
"""Largest relative difference of an output; another order of additions makes it more than 0."""

Arrays = list[npt.NDArray[Any]]


def export_asked() -> Path | None:
    """Returns where the request lies, if this process was started to export."""
    place = os.environ.get("TFCKPT_EXPORT")
    return Path(place) if place else None


def carry_out(
    place: Path, run: RunDirectory, shared: SharedState, model: Any, inputs: Inputs | None
) -> None:
    """Does one phase of an export, and leaves a report of it beside the request."""
    request = load(place, ExportRequest)
    try:
        if not isinstance(model, keras.Model):
            raise UsageError(
                f"The run's model is a {type(model).__name__}; only a keras.Model can be exported."
            )
        if request.phase is ExportPhase.WRITE:
            report = _write(place.parent, request, run, shared, model, inputs)
        else:
            report = _check(place.parent, request, model)
    except (TfckptError, OSError, ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        # Keras tells of what it cannot save or load by several kinds of error.
        report = ExportReport(problem=describe_failure(error))
    store(place.with_name(f"report-{request.phase.value}.json"), report)


def _write(
    directory: Path,
    request: ExportRequest,
    run: RunDirectory,
    shared: SharedState,
    model: keras.Model,
    inputs: Inputs | None,
) -> ExportReport:
    prefix = run.root / request.checkpoint
    findings = [found.message for found in verify(prefix).findings if found.severity == "error"]
    problems = findings or shared.compare(prefix).problems
    if problems:
        raise RefusedError(f"{request.checkpoint} cannot be restored: {problems[0]}.")
    shared.restore(prefix)
    examples, origin = _examples(model, inputs)
    outputs = _arrays(model(examples, training=False))
    _store_arrays(directory / "inputs.npz", _arrays(examples))
    _store_arrays(directory / "outputs.npz", outputs)
    _WRITERS[request.format](model, directory / request.file_name)
    return ExportReport(step=shared.step, examples=origin, outputs=sum(o.size for o in outputs))


def _check(directory: Path, request: ExportRequest, model: keras.Model) -> ExportReport:
    """Loads what was written, here in another process, and compares its answers."""
    flat = _load_arrays(directory / "inputs.npz")
    answer = _READERS[request.format](model, directory / request.file_name)
    expected = _load_arrays(directory / "outputs.npz")
    found = _arrays(answer(flat))
    if [o.shape for o in found] != [o.shape for o in expected]:
        raise TfckptError(
            f"Loaded again, {request.file_name} answers with {[o.shape for o in found]} where the "
            f"model answers with {[o.shape for o in expected]}."
        )
    difference = max((_difference(a, b) for a, b in zip(found, expected, strict=True)), default=0.0)
    if not difference <= TOLERANCE:
        raise TfckptError(
            f"Loaded again, {request.file_name} does not answer as the model does: outputs differ "
            f"by {difference:.3g} of their size."
        )
    return ExportReport(difference=difference)


def _save_saved_model(model: keras.Model, path: Path) -> None:
    model.export(str(path), verbose=False)


_WRITERS: Mapping[ExportFormat, Callable[[keras.Model, Path], None]] = {
    ExportFormat.KERAS: lambda model, path: model.save(path),
    ExportFormat.SAVED_MODEL: _save_saved_model,
    ExportFormat.WEIGHTS: lambda model, path: model.save_weights(path),
}


def _read_keras(model: keras.Model, path: Path) -> Callable[[Arrays], Any]:
    loaded = keras.models.load_model(path)
    return lambda flat: loaded(_packed(model, flat), training=False)


def _read_saved_model(model: keras.Model, path: Path) -> Callable[[Arrays], Any]:
    loaded = tf.saved_model.load(str(path))

    def answer(flat: Arrays) -> Any:
        # The closure keeps what was loaded alive; its function alone would lose its variables.
        return loaded.serve(_packed(model, [tf.constant(array) for array in flat]))

    return answer


def _read_weights(model: keras.Model, path: Path) -> Callable[[Arrays], Any]:
    model.load_weights(path)
    return lambda flat: model(_packed(model, flat), training=False)


_READERS: Mapping[ExportFormat, Callable[[keras.Model, Path], Callable[[Arrays], Any]]] = {
    ExportFormat.KERAS: _read_keras,
    ExportFormat.SAVED_MODEL: _read_saved_model,
    ExportFormat.WEIGHTS: _read_weights,
}


def _packed(model: keras.Model, flat: list[Any]) -> Any:
    """Gives flat arrays the structure of the model's inputs."""
    structure = getattr(model, "input", None)
    if structure is None:
        return flat[0] if len(flat) == 1 else flat
    return tf.nest.pack_sequence_as(structure, flat)


def _examples(model: keras.Model, inputs: Inputs | None) -> tuple[Any, str]:
    """Returns inputs for the model, and where they are from."""
    wanted = tf.nest.flatten(getattr(model, "input", None) if model.inputs else None)
    specifications = [tensor for tensor in wanted if tensor is not None]
    batch = next(inputs.iterator, None) if inputs is not None else None
    first = batch[0] if isinstance(batch, (tuple, list)) else batch
    if first is not None and (not specifications or _fits(first, specifications)):
        return first, "the first batch of the dataset"
    if not specifications:
        raise UsageError(
            "The model was never called, so that its inputs are not known; call it once before "
            "TrainingRun, or give TrainingRun a dataset."
        )
    random = np.random.default_rng(0)
    made = [tf.constant(_made_up(tensor, random)) for tensor in specifications]
    return _packed(model, made), f"{EXAMPLES} made-up examples"


def _fits(examples: Any, specifications: list[Any]) -> bool:
    tensors = tf.nest.flatten(examples)
    return len(tensors) == len(specifications) and all(
        tensor.dtype.name == str(specification.dtype)
        and tensor.shape.is_compatible_with(specification.shape)
        for tensor, specification in zip(tensors, specifications, strict=True)
    )


def _made_up(specification: Any, random: np.random.Generator) -> npt.NDArray[Any]:
    free = [EXAMPLES, *[FREE_LENGTH] * len(specification.shape)]
    shape = [known or open_ for known, open_ in zip(specification.shape, free, strict=False)]
    dtype = tf.as_dtype(specification.dtype)
    if dtype.is_floating:
        return random.standard_normal(shape).astype(dtype.as_numpy_dtype)
    if dtype is tf.string:
        return np.full(shape, "example", dtype=object)
    # Small numbers are in every vocabulary.
    return random.integers(0, 2, shape).astype(dtype.as_numpy_dtype)


def _arrays(outputs: Any) -> Arrays:
    """Returns tensors as arrays that any file can hold."""
    return [
        np.asarray(tf.cast(t, tf.float32) if t.dtype in (tf.bfloat16, tf.float16) else t)
        for t in map(tf.convert_to_tensor, tf.nest.flatten(outputs))
    ]


def _store_arrays(path: Path, arrays: Arrays) -> None:
    np.savez(path, *arrays)


def _load_arrays(path: Path) -> Arrays:
    with np.load(path, allow_pickle=True) as stored:
        return [stored[f"arr_{number}"] for number in range(len(stored.files))]


def _difference(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Returns the largest difference, relative to the largest expected value; 0 if equal."""
    if np.array_equal(found, expected, equal_nan=found.dtype.kind in "fc"):
        return 0.0
    if found.dtype.kind not in "fc":
        return float("inf")
    largest = float(np.max(np.abs(expected))) or 1.0
    return float(np.max(np.abs(found - expected))) / largest
