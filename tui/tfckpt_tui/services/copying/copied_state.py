"""TensorFlow's state file at the destination of a copy."""

from __future__ import annotations

from pathlib import Path

from tfckpt_trainer.bundle.state_file import StateFile, encode_state_file, parse_state_file
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_tui.services.copying.destination import Destination

NAME = "checkpoint"


def list_copied(destination: Destination, name: str, saved_at: float) -> str:
    """Adds a checkpoint to the state file of a destination; returns the newest one there."""
    data = destination.read(NAME)
    try:
        state = parse_state_file(data, Path(destination.label) / NAME) if data else None
    except DamagedFileError:
        # TensorFlow cannot read a damaged state file either; this write replaces it.
        state = None
    new = with_copied(state, name, saved_at)
    if new != state:
        destination.write(NAME, encode_state_file(new))
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
