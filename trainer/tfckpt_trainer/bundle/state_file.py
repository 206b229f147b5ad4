"""TensorFlow's `checkpoint` file, which names the newest checkpoint and lists all known ones.

It is a `CheckpointState` (`tensorflow/python/training/checkpoint_state.proto`) in protocol
buffer text format.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.storage.files import read_bounded, write_atomic

# Possessive quantifiers (`++`, `*+`): backtracking on a line of megabytes would need gigabytes.
_LINE = re.compile(
    rb"\s*+(?P<field>\w++)\s*+:\s*+"
    rb'(?:"(?P<text>(?:[^"\\\n]++|\\.)*+)"|(?P<number>[^\s"]++))\s*+'
)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_LISTED = b'all_model_checkpoint_paths: "'
_SIMPLE = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


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
        DamagedFileError: The file is not a valid state file. TensorFlow cannot use it either.
    """
    try:
        data = read_bounded(path)
    except FileNotFoundError:
        return None
    return parse_state_file(data, path)


def parse_state_file(data: bytes, path: Path) -> StateFile:
    """Parses the content of a `checkpoint` file; `path` is for error messages.

    Raises:
        DamagedFileError: The content is not that of a valid state file.
    """
    latest: str | None = None
    paths: list[str] = []
    stamps: list[float] = []
    preserved: float | None = None
    for line in data.splitlines():
        if _is_plain_path(line):
            paths.append(os.fsdecode(line[len(_LISTED) : -1]))
            continue
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        field, text, number = _parse(line, path)
        if field == b"model_checkpoint_path":
            latest = text
        elif field == b"all_model_checkpoint_paths" and text is not None:
            paths.append(text)
        elif field == b"all_model_checkpoint_timestamps" and number is not None:
            stamps.append(number)
        elif field == b"last_preserved_timestamp":
            preserved = number
    if latest is None:
        raise DamagedFileError(
            f"{path} names no newest checkpoint, so TensorFlow cannot resume from it. "
            "Restore the file from a copy."
        )
    return StateFile(latest, tuple(paths), tuple(stamps), preserved)


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


def _is_plain_path(line: bytes) -> bool:
    """Whether a line lists a path without escapes: a shortcut for lists of thousands."""
    return (
        line.startswith(_LISTED)
        and line.endswith(b'"')
        and line.count(b'"') == 2
        and b"\\" not in line
    )


def _parse(line: bytes, path: Path) -> tuple[bytes, str | None, float | None]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise DamagedFileError(
            f"{path} is not a TensorFlow state file: found {line[:60]!r}. "
            "Restore the file from a copy."
        )
    if match["text"] is not None:
        return match["field"], os.fsdecode(_ESCAPE.sub(_unescape, match["text"])), None
    try:
        return match["field"], None, float(match["number"])
    except ValueError:
        raise DamagedFileError(
            f"{path}: expected a number, found {match['number'][:40]!r}. "
            "Restore the file from a copy."
        ) from None


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes([int(match[1], 8) & 0xFF])
    if match[2]:
        return bytes([int(match[2], 16)])
    return _SIMPLE.get(match[3], match[3])


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
