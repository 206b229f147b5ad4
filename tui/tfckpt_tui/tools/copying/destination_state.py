"""TensorFlow's state file at a destination: lists the copies, and tells of which model the rest is.

It names one newest checkpoint for a directory. A copy of another model there would be the one from
which the trainer of that directory resumes.
"""

from __future__ import annotations

from pathlib import Path

from tfckpt_trainer.bundle.index import Index, index_path, read_index
from tfckpt_trainer.bundle.state_file import (
    StateFile,
    StateFileError,
    encode_state_file,
    parse_state_file,
)
from tfckpt_trainer.errors import BundleError, DamagedFileError, RefusedError
from tfckpt_trainer.rundir.paths import RunDirectory, is_plain_name
from tfckpt_trainer.rundir.storage.files import write_atomic
from tfckpt_trainer.rundir.storage.scratch_directory import scratch_directory
from tfckpt_tui.tools.copying.destination import Destination

_NAME = "checkpoint"

_Tensors = set[tuple[str, str, tuple[int, ...]]]
"""Name, type and shape of each tensor."""

_SHAPELESS = {"string", "variant", "resource"}
"""Types whose tensors come and go between saves of one model, such as the states of iterators."""


def refuse_other_model(run: RunDirectory, name: str, destination: Destination) -> None:
    """Refuses a destination whose newest checkpoint belongs to another model.

    The models are the same if all tensors of one checkpoint are in the other, with the same type
    and shape: optimizers create slot variables late, and scripts add variables.

    Args:
        run: The run directory.
        name: The checkpoint to copy.
        destination: The destination.

    Raises:
        RefusedError: They are different models.
    """
    newest = _newest_name(destination)
    if newest in {"", name}:
        return
    try:
        here = _tensors(read_index(run.root / name))
        there = _read_tensors(destination, newest)
    except (BundleError, DamagedFileError, OSError):
        # Verification reports damage. The newest one there tells nothing about its model.
        return
    if there is not None and not (here <= there or there <= here):
        only = min(here - there)[0]
        raise RefusedError(
            f"{destination.label} has checkpoints of another model: {newest} there does not have "
            f"{only} as it is in {name}. A trainer there would resume from the copy. Copy to "
            "another directory."
        )


def list_copied(destination: Destination, name: str, saved_at: float) -> str:
    """Adds a checkpoint to the state file of a destination; returns the newest one there."""
    state = _read_state(destination)
    new = with_copied(state, name, saved_at)
    if new != state:
        destination.write(_NAME, encode_state_file(new))
    return new.latest or ""


def with_copied(state: StateFile | None, name: str, saved_at: float) -> StateFile:
    """Returns a state file with one more checkpoint.

    It becomes the newest one unless the newest one so far was saved later.
    """
    if state is None:
        return StateFile(name, (name,), (saved_at,))
    if name in state.names:
        return state
    stamps = state.timestamps
    if len(stamps) != len(state.all_paths):
        stamps = (0.0,) * len(state.all_paths)
    listed = {**dict(zip(state.all_paths, stamps, strict=True)), name: saved_at}
    is_newest = listed.get(state.latest or "", 0.0) <= saved_at
    # From the oldest to the newest, as TensorFlow lists them: a manager deletes the first.
    ordered = sorted(listed, key=listed.__getitem__)
    return StateFile(
        latest=name if is_newest else state.latest,
        all_paths=tuple(ordered),
        timestamps=tuple(listed[path] for path in ordered),
        last_preserved=state.last_preserved,
    )


def _newest_name(destination: Destination) -> str:
    state = _read_state(destination)
    latest = (state.latest or "") if state is not None else ""
    return latest if is_plain_name(latest) else ""


def _read_state(destination: Destination) -> StateFile | None:
    """Returns the state file; None if there is none, or if it is damaged.

    Raises:
        RefusedError: It is a file of somebody else.
    """
    data, path = destination.read(_NAME) or b"", Path(destination.label) / _NAME
    try:
        return parse_state_file(data, path) if data else None
    except StateFileError as error:
        if error.is_foreign:
            raise RefusedError(
                f"{path} is no state file of TensorFlow, and a copy would replace it. Move it "
                "away, or copy to another directory."
            ) from error
        # TensorFlow cannot read it either; the next write replaces it.
        return None


def _read_tensors(destination: Destination, name: str) -> _Tensors | None:
    """Returns the tensors of a checkpoint at the destination; None if it has no index."""
    data = destination.read(index_path(Path(name)).name)
    if data is None:
        return None
    with scratch_directory("tfckpt-") as directory:
        prefix = directory / "newest"
        write_atomic(index_path(prefix), data, durable=False)
        return _tensors(read_index(prefix))


def _tensors(index: Index) -> _Tensors:
    return {
        (entry.name, entry.dtype, entry.shape)
        for entry in index.entries.values()
        if entry.dtype not in _SHAPELESS
    }
