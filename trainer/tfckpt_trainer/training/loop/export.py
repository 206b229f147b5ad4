"""Exports a checkpoint as a model file, from inside the training script.

Only the script can build its model. So it runs again in one process, and instead of training it
restores the checkpoint and writes the model. A second process loads the model and compares its
outputs.
"""

from __future__ import annotations

import os
import re
import traceback
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tfckpt_trainer.bundle.dtypes import format_shape
from tfckpt_trainer.bundle.index import index_path
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import DamagedFileError, RefusedError, TfckptError, UsageError
from tfckpt_trainer.rundir.full_disk import FULL
from tfckpt_trainer.rundir.heartbeats.writer_marks import remove_temporary
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.export import (
    ExportFormat,
    ExportPhase,
    ExportRequest,
    ExportResult,
)
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_trainer.rundir.storage.files import PrivateDirectory
from tfckpt_trainer.training.checkpoint.saves.save_protocol import describe_failure, is_disk_full
from tfckpt_trainer.training.checkpoint.state import SharedState
from tfckpt_trainer.training.keras_library import as_served, keras, save_model_for_serving
from tfckpt_trainer.training.state.adapted import compare_adapted
from tfckpt_trainer.training.state.values_by_path import UNTRACKED
from tfckpt_trainer.training.steps.inputs import Inputs

EXAMPLES = 4
"""Number of generated examples, used if those of the dataset do not fit the model."""

FREE_LENGTH = 8
"""Length of generated examples in dimensions of unspecified length."""

TOLERANCE = 1e-5
"""Largest accepted relative difference of outputs; the order of additions may differ."""

Arrays = list[npt.NDArray[Any]]


_FAILURES = (
    *(TfckptError, OSError, ValueError, TypeError, KeyError, RuntimeError),
    tf.errors.OpError,
)
"""What Keras raises for models that it cannot save or load, and HDF5 when it closes a file."""

_HDF5_NUMBER = re.compile(r"errno = (\d+)")


def _says_disk_full(error: Exception) -> bool:
    # If HDF5 closes a file, the number of the system's error is in the text alone.
    numbers = {int(number) for number in _HDF5_NUMBER.findall(str(error))}
    return is_disk_full(error) or bool(numbers & FULL)


def export_request_path() -> Path | None:
    """Returns the path of the export request, or None if this process is to train."""
    place = os.environ.get("TFCKPT_EXPORT")
    return Path(place) if place else None


def run_export(
    place: Path, run: RunDirectory, shared: SharedState, model: Any, inputs: Inputs | None
) -> None:
    """Carries out one phase of an export and writes a report beside the request.

    Raises:
        RefusedError: Others may write where the request is: a model runs code when it is loaded.
    """
    with closing(PrivateDirectory(place.parent)) as private:
        _run_phase(private.path / place.name, run, shared, model, inputs)


def _run_phase(
    place: Path, run: RunDirectory, shared: SharedState, model: Any, inputs: Inputs | None
) -> None:
    request = load(place, ExportRequest)
    try:
        if not isinstance(model, keras.Model):
            raise UsageError(
                f"The model of the run is a {type(model).__name__}; expected a keras.Model. "
                "Other models cannot be exported."
            )
        if request.phase is ExportPhase.WRITE:
            report = _write(place.parent, request, run, shared, model, inputs)
        else:
            report = _check(place.parent, request, model)
    except _FAILURES as error:
        # The message of a launch names the log.
        traceback.print_exc()
        report = ExportResult(problem=describe_failure(error), disk_full=_says_disk_full(error))
        # On a full disk, its parts have the room that the report needs.
        remove_temporary(place.parent / request.file_name)
    store(place.with_name(f"report-{request.phase.value}.json"), report)


def _write(
    directory: Path,
    request: ExportRequest,
    run: RunDirectory,
    shared: SharedState,
    model: keras.Model,
    inputs: Inputs | None,
) -> ExportResult:
    prefix = run.root / request.checkpoint
    findings = [found.message for found in verify(prefix).findings if found.severity == "error"]
    problems = findings or shared.compare(prefix).problems
    if problems:
        raise RefusedError(f"{request.checkpoint} cannot be restored: {problems[0]}.")
    shared.restore(prefix)
    _restore_adapted(run, request.checkpoint, shared)
    examples, origin = _examples(model, inputs)
    outputs = _arrays(model(examples, training=False))
    store_arrays(directory / "inputs.npz", _arrays(examples))
    store_arrays(directory / "outputs.npz", outputs)
    _WRITERS[request.format](model, directory / request.file_name)
    return ExportResult(step=shared.step, examples=origin, outputs=sum(o.size for o in outputs))


def _restore_adapted(run: RunDirectory, checkpoint: str, shared: SharedState) -> None:
    """Gives layers what they were adapted to when `checkpoint` was saved."""
    prefix = run.worker_state_directory(checkpoint) / UNTRACKED
    has_values = index_path(prefix).exists()
    comparison = compare_adapted(shared.find().adapted, {}, prefix if has_values else None)
    if comparison.problems:
        raise RefusedError(f"The model is not that of {checkpoint}: {comparison.problems[0]}.")
    for one, contents in comparison.changed:
        one.assign(contents)


def _check(directory: Path, request: ExportRequest, model: keras.Model) -> ExportResult:
    """Loads the exported model, in another process than `_write`, and compares its outputs."""
    flat = load_arrays(directory / "inputs.npz")
    answer = _READERS[request.format](model, directory / request.file_name)
    expected = load_arrays(directory / "outputs.npz")
    found = _arrays(answer(flat))
    if [o.shape for o in found] != [o.shape for o in expected]:
        raise TfckptError(
            f"{request.file_name} has outputs of shape {_shapes(found)} after loading; "
            f"expected {_shapes(expected)}."
        )
    difference = max((_difference(a, b) for a, b in zip(found, expected, strict=True)), default=0.0)
    if not difference <= TOLERANCE:
        raise TfckptError(
            f"{request.file_name} has other outputs than the model after loading: the relative "
            f"difference is {difference:.3g}; expected at most {TOLERANCE:g}."
        )
    return ExportResult(difference=difference)


def _shapes(arrays: Arrays) -> str:
    return ", ".join(format_shape(array.shape) for array in arrays)


_WRITERS: Mapping[ExportFormat, Callable[[keras.Model, Path], None]] = {
    ExportFormat.KERAS: lambda model, path: model.save(path),
    ExportFormat.SAVED_MODEL: lambda model, path: save_model_for_serving(model, str(path)),
    ExportFormat.WEIGHTS: lambda model, path: model.save_weights(path),
}


def _read_keras(model: keras.Model, path: Path) -> Callable[[Arrays], Any]:
    loaded = keras.models.load_model(path)
    return lambda flat: loaded(_packed(model, flat), training=False)


def _read_saved_model(model: keras.Model, path: Path) -> Callable[[Arrays], Any]:
    loaded = tf.saved_model.load(str(path))

    def answer(flat: Arrays) -> Any:
        # The closure keeps the loaded object alive, which owns the variables.
        return loaded.serve(as_served(_packed(model, [tf.constant(array) for array in flat])))

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
    """Returns flat arrays in the structure of the model's inputs."""
    structure = getattr(model, "input", None)
    if structure is None:
        return flat[0] if len(flat) == 1 else flat
    return tf.nest.pack_sequence_as(structure, flat)


def _examples(model: keras.Model, inputs: Inputs | None) -> tuple[Any, str]:
    """Returns inputs for the model, and a description of their origin."""
    wanted = tf.nest.flatten(getattr(model, "input", None) if model.inputs else None)
    specifications = [tensor for tensor in wanted if tensor is not None]
    batch = inputs.first_element() if inputs is not None else None
    first = batch[0] if isinstance(batch, (tuple, list)) else batch
    if first is not None and (not specifications or _fits(first, specifications)):
        return first, "the first batch of the dataset"
    if not specifications:
        raise UsageError(
            "The inputs of the model are unknown because it was never called. Call it once before "
            "TrainingRun, or pass a dataset to TrainingRun."
        )
    random = np.random.default_rng(0)
    made = [tf.constant(_generate(tensor, random)) for tensor in specifications]
    return _packed(model, made), f"{EXAMPLES} generated examples"


def _fits(examples: Any, specifications: list[Any]) -> bool:
    tensors = tf.nest.flatten(examples)
    return len(tensors) == len(specifications) and all(
        tensor.dtype.name == str(specification.dtype)
        and tensor.shape.is_compatible_with(specification.shape)
        for tensor, specification in zip(tensors, specifications, strict=True)
    )


def _generate(specification: Any, random: np.random.Generator) -> npt.NDArray[Any]:
    free = [EXAMPLES, *[FREE_LENGTH] * len(specification.shape)]
    shape = [known or open_ for known, open_ in zip(specification.shape, free, strict=False)]
    dtype = tf.as_dtype(specification.dtype)
    if dtype.is_floating:
        return random.standard_normal(shape).astype(dtype.as_numpy_dtype)
    if dtype is tf.string:
        return np.full(shape, "example", dtype=object)
    # Small integers are valid indexes of any vocabulary.
    return random.integers(0, 2, shape).astype(dtype.as_numpy_dtype)


def _arrays(outputs: Any) -> Arrays:
    """Returns tensors as NumPy arrays, with half precision widened to float32."""
    return [
        np.asarray(tf.cast(t, tf.float32) if t.dtype in (tf.bfloat16, tf.float16) else t)
        for t in map(tf.convert_to_tensor, tf.nest.flatten(outputs))
    ]


def _difference(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    """Returns the largest difference, relative to the largest expected value; 0 if equal."""
    if np.array_equal(found, expected, equal_nan=found.dtype.kind in "fc"):
        return 0.0
    if found.dtype.kind not in "fc":
        return float("inf")
    largest = float(np.max(np.abs(expected))) or 1.0
    return float(np.max(np.abs(found - expected))) / largest


def store_arrays(path: Path, arrays: Arrays) -> None:
    """Writes numeric arrays and arrays of bytes objects to an `.npz` file.

    An array of bytes objects is stored as its bytes and the length of each element. Fixed-width
    NumPy strings would lose trailing zero bytes.
    """
    stored: dict[str, npt.NDArray[Any]] = {}
    for number, array in enumerate(arrays):
        if array.dtype == object:
            elements = array.reshape(-1).tolist()
            stored[f"bytes_{number}"] = np.frombuffer(b"".join(elements), np.uint8)
            lengths = np.array([len(element) for element in elements], np.int64)
            stored[f"lengths_{number}"] = lengths.reshape(array.shape)
        else:
            stored[f"array_{number}"] = array
    np.savez(path, **stored)  # type: ignore[arg-type]


def load_arrays(path: Path) -> Arrays:
    """Reads the arrays that `store_arrays` wrote.

    Raises:
        DamagedFileError: The file is damaged, or it contains pickled objects.
        OSError: The file cannot be read.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            numbers = sorted({int(name.rpartition("_")[2]) for name in stored.files})
            return [_load_array(stored, number) for number in numbers]
    except (ValueError, EOFError, LookupError, TypeError, zipfile.BadZipFile) as error:
        raise DamagedFileError(
            f"{path} is not a valid array file: {error}. Run the export again."
        ) from error


def _load_array(stored: Any, number: int) -> npt.NDArray[Any]:
    if f"array_{number}" in stored.files:
        return np.asarray(stored[f"array_{number}"])
    lengths = stored[f"lengths_{number}"]
    data = stored[f"bytes_{number}"].tobytes()
    ends = np.cumsum(lengths.reshape(-1)).tolist()
    array = np.empty(len(ends), dtype=object)
    for place, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        array[place] = data[start:end]
    return array.reshape(lengths.shape)
