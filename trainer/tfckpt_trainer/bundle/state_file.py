"""TensorFlow's `checkpoint` file, which names the newest checkpoint and lists all known ones.

It is a `CheckpointState` (`tensorflow/python/training/checkpoint_state.proto`) in protocol
buffer text format.
"""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path

import msgspec

from tfckpt_trainer.bundle.text_format import parse_text_message
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage.files import facts_of, read_bounded, write_atomic

_LATEST = "model_checkpoint_path"
_LISTED = "all_model_checkpoint_paths"
_STAMPS = "all_model_checkpoint_timestamps"
_PRESERVED = "last_preserved_timestamp"


class StateFileCondition(StrEnum):
    """Whether TensorFlow's state file can be used."""

    MISSING = "missing"
    EMPTY = "empty"
    INCOMPLETE = "incomplete"
    """It names no newest checkpoint: TensorFlow raises a `ValueError`."""
    UNDECODABLE = "undecodable"
    """It is not UTF-8: TensorFlow raises a `UnicodeDecodeError`."""
    DAMAGED = "damaged"
    """It is no `CheckpointState`: TensorFlow ignores it."""
    LINKED = "linked"
    """A symbolic link: TensorFlow reads what it leads to."""
    DIRECTORY = "directory"
    """TensorFlow ignores it, and cannot write the list of its next save."""
    IRREGULAR = "irregular"
    """A pipe, a socket or a device."""
    OVERSIZED = "oversized"
    """It is larger than what this library reads; TensorFlow may read it."""
    OF_OTHERS = "of-others"
    """A stranger added it to a directory with the sticky bit; TensorFlow reads it."""
    GOOD = "good"


class StateFileError(DamagedFileError):
    """What lies at the place of a `checkpoint` file cannot be used.

    Attributes:
        condition: What is wrong with it.
        is_foreign: Whether it is a file of somebody else, not a damaged one of TensorFlow.
    """

    def __init__(
        self, message: str, condition: StateFileCondition, *, is_foreign: bool = False
    ) -> None:
        super().__init__(message)
        self.condition = condition
        self.is_foreign = is_foreign


class StateFile(msgspec.Struct, frozen=True):
    """The content of a `checkpoint` file.

    Attributes:
        latest: Path of the newest checkpoint as written, relative to the directory or absolute.
        all_paths: Paths of all listed checkpoints, oldest first.
        timestamps: Save times in seconds since the epoch, in the same order; may be empty.
        last_preserved: Time of the last checkpoint that was kept permanently
            (`keep_checkpoint_every_n_hours`).
    """

    latest: str | None
    all_paths: tuple[str, ...] = ()
    timestamps: tuple[float, ...] = ()
    last_preserved: float | None = None

    @property
    def latest_name(self) -> str | None:
        """Name of the newest checkpoint, without its directory."""
        return os.path.basename(self.latest) if self.latest else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all listed checkpoints, oldest first, without their directories."""
        return tuple(os.path.basename(path) for path in self.all_paths)


def read_state_file(path: Path) -> StateFile | None:
    """Reads a `checkpoint` file; returns None if there is none.

    Raises:
        StateFileError: It is not a valid state file, not a regular file, or too large.
        OSError: The file cannot be read.
    """
    try:
        data = read_bounded(path)
    except FileNotFoundError:
        return None
    except DamagedFileError as error:
        facts = facts_of(path)
        if facts is None:
            return None
        condition = _condition_of_unread(facts.st_mode)
        is_foreign = condition is not StateFileCondition.DIRECTORY
        raise StateFileError(str(error), condition, is_foreign=is_foreign) from error
    return parse_state_file(data, path)


def _condition_of_unread(mode: int) -> StateFileCondition:
    if stat.S_ISLNK(mode):
        return StateFileCondition.LINKED
    if stat.S_ISDIR(mode):
        return StateFileCondition.DIRECTORY
    return StateFileCondition.OVERSIZED if stat.S_ISREG(mode) else StateFileCondition.IRREGULAR


def parse_state_file(data: bytes, path: Path) -> StateFile:
    """Parses the content of a `checkpoint` file; `path` is for error messages.

    Raises:
        StateFileError: The content is not that of a valid state file.
    """

    def refuse(condition: StateFileCondition, problem: str) -> StateFileError:
        message = f"{path} {problem}. Restore the file from a copy."
        return StateFileError(message, condition, is_foreign=_is_foreign(data))

    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise refuse(StateFileCondition.UNDECODABLE, "is not a text in UTF-8") from None
    try:
        message = parse_text_message(
            text,
            texts={_LATEST, _LISTED},
            numbers={_STAMPS, _PRESERVED},
            repeated={_LISTED, _STAMPS},
        )
    except ValueError as error:
        problem = f"is not a TensorFlow state file: {error}"
        raise refuse(StateFileCondition.DAMAGED, problem) from None
    latest = message.texts[_LATEST][-1:]
    if latest in ([], [""]):
        is_empty = not any([*message.texts.values(), *message.numbers.values()])
        condition = StateFileCondition.EMPTY if is_empty else StateFileCondition.INCOMPLETE
        problem = "names no newest checkpoint, so TensorFlow cannot resume from it"
        raise refuse(condition, problem)
    preserved = message.numbers[_PRESERVED]
    return StateFile(
        latest[0],
        tuple(message.texts[_LISTED]),
        tuple(message.numbers[_STAMPS]),
        preserved[-1] if preserved else None,
    )


def _is_foreign(data: bytes) -> bool:
    # TensorFlow writes the path of the newest checkpoint first; a power cut may leave nothing.
    return bool(data.strip(b"\0 \n")) and not data.startswith(_LATEST.encode())


def write_state_file(path: Path, state: StateFile) -> None:
    """Replaces the `checkpoint` file atomically and flushes it to disk."""
    write_atomic(path, encode_state_file(state))


def encode_state_file(state: StateFile) -> bytes:
    """Returns the content of a `checkpoint` file."""
    lines = [b"model_checkpoint_path: " + _quoted(state.latest or "")]
    lines += [b"all_model_checkpoint_paths: " + _quoted(name) for name in state.all_paths]
    lines += [f"all_model_checkpoint_timestamps: {stamp!r}".encode() for stamp in state.timestamps]
    if state.last_preserved is not None:
        lines.append(f"last_preserved_timestamp: {state.last_preserved!r}".encode())
    return b"\n".join(lines) + b"\n"


def state_line(name: str) -> str:
    """Returns the line of a `checkpoint` file that names `name` as the newest checkpoint."""
    return "model_checkpoint_path: " + _quoted(name).decode("ascii")


def _quoted(text: str) -> bytes:
    quoted = bytearray()
    for byte in os.fsencode(text):
        if byte in b'"\\':
            quoted += b"\\" + bytes([byte])
        elif 32 <= byte < 127:
            quoted.append(byte)
        else:
            quoted += b"\\%03o" % byte
    return b'"' + bytes(quoted) + b'"'
