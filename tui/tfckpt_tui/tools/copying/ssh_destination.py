"""A destination on another host, reached by ssh."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from shutil import which

from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_trainer.machine.user_directories import state_directory
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.rundir.storage.documents import decode
from tfckpt_trainer.rundir.storage.files import create_file, make_directory, provide_directory
from tfckpt_trainer.rundir.storage.locks import take_lock
from tfckpt_trainer.rundir.storage.scratch_directory import scratch_directory
from tfckpt_tui.tools.copying import remote_scripts as scripts
from tfckpt_tui.tools.copying.address import HostPath
from tfckpt_tui.tools.copying.destination import (
    NOT_A_FILE,
    DestinationSurvey,
    OnSent,
    Placed,
    emptied_by,
    in_use,
    refuse_live,
    refuse_sticky,
)
from tfckpt_tui.tools.copying.source import SourceFile
from tfckpt_tui.tools.copying.ssh_connection import SshConnection

_ENDED = {SupervisorState.STOPPED, SupervisorState.FINISHED, SupervisorState.FAILED}
_DF = re.compile(r"\s(?P<free>\d+)\s+(?:\d+%|-)\s+/")
_PROGRESS = re.compile(rb"\s([\d,.]+)\s+\d+%")
_ESCAPED = re.compile(rb"\\#([0-7]{3})")
_ITEM_SIZE = len(b"<f+++++++++ ")
"""Bytes before the name in a line that says how a file differs."""


class SshDestination:
    """A directory of another host; see `Destination`."""

    transport = "rsync"

    def __init__(self, target: HostPath, seconds: float) -> None:
        self._target = target
        self._directory = target.path
        self._connection = SshConnection(target, seconds)
        self._held = ExitStack()
        self._is_missing = False

    @property
    def label(self) -> str:
        """Host and path."""
        return str(self._target)

    def open(self, *, dry_run: bool) -> None:
        """Connects, and keeps other copies away unless nothing may change; creates nothing."""
        if which("rsync") is None:
            raise _no_rsync("This machine")
        if not dry_run:
            self._lock()
        answer = self._connection.open(scripts.open_script(self._directory))
        lines = answer.decode(errors="replace").splitlines()
        self._is_missing = "missing" in lines
        if "locked" in lines:
            raise in_use(self.label)
        if "kept" in lines:
            raise refuse_sticky(self.label, self._directory)
        for line in lines:
            if line.startswith("{") and _is_live(line.encode()):
                raise refuse_live(self.label, "it has recent heartbeats")
        if "rsync" not in lines:
            raise _no_rsync(self._target.host)

    def create(self) -> None:
        """Creates the directory, if there is none."""
        self._connection.run(scripts.create_script(self._directory))
        self._is_missing = False

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()
        self._held.close()

    def run_id(self) -> str:
        """Returns the ID of the run that was trained there; empty if there is none."""
        data = self.read(".tfckpt/run.json")
        return decode(data, RunInfo, f"{self.label}/.tfckpt/run.json").id if data else ""

    def survey(self, names: Sequence[str], paths: Sequence[str]) -> DestinationSurvey:
        """Returns what it holds."""
        if self._is_missing:
            answer = self._connection.run(scripts.free_script(self._directory))
            return DestinationSurvey(_free_bytes(answer.decode(errors="replace")))
        script = scripts.survey_script(self._directory, names, paths)
        lines = self._connection.run(script).decode(errors="replace").splitlines()
        sizes = {}
        for path, line in zip(paths, lines[1:], strict=False):
            if line.strip() != "-":
                sizes[path] = NOT_A_FILE if line.strip() == "x" else int(line)
        others = (line.split(" ", 1) for line in lines[1 + len(paths) :])
        owned = {f"{names[int(number)]}.{suffix}" for number, suffix in others}
        return DestinationSurvey(_free_bytes(lines[0]), sizes, sorted(owned - set(paths)))

    def differing(self, files: Sequence[Placed]) -> list[SourceFile]:
        """Reads files back on the host, and returns those that are not equal there."""
        options = ["--dry-run", "--checksum", "--out-format=%i %n", "--8-bit-output"]
        names = _listed(b"".join(self._rsync(files, *options)))
        return [file for file, path in files if path in names]

    def send(self, files: Sequence[Placed], on_sent: OnSent) -> None:
        """Writes files to these paths. Where a part of one is, it goes on from there."""
        for output in self._rsync(files, "--append-verify", "--info=progress2"):
            for match in _PROGRESS.findall(output):
                on_sent(int(match.translate(None, b",.")))

    def discard(self, paths: Sequence[str], staging: str) -> None:
        """Deletes files, and the directories that are empty then."""
        script = scripts.remove_script(self._directory, paths, emptied_by(paths, staging))
        self._connection.run(script)

    def remove(self, paths: Sequence[str]) -> None:
        """Deletes files."""
        self._connection.run(scripts.remove_script(self._directory, paths))

    def commit(self, moves: Sequence[tuple[str, str, float]], staging: str) -> None:
        """Flushes and renames files; the last one after all others are flushed."""
        self._connection.run(scripts.commit_script(self._directory, moves, staging))

    def read(self, path: str) -> bytes | None:
        """Returns the content of a small file; None if there is none."""
        if self._is_missing:
            return None
        answer = self._connection.run(scripts.read_script(self._directory, path))
        return answer[2:] if answer.startswith(b"+\n") else None

    def write(self, path: str, data: bytes) -> None:
        """Replaces a small file atomically, and flushes it."""
        self._connection.run(scripts.write_script(self._directory, path, len(data)), [data])

    def _rsync(self, files: Sequence[Placed], *options: str) -> Iterator[bytes]:
        """Passes files to rsync in a directory where each has its path at the destination."""
        base = self._directory if self._directory.startswith("/") else f"./{self._directory}"
        with scratch_directory("tfckpt-") as directory:
            for file, path in files:
                place = directory / path
                make_directory(place.parent)
                if file.open_path is not None:
                    place.symlink_to(file.open_path)
                else:
                    with create_file(place) as target:
                        target.writelines(file.chunks())
            yield from self._connection.rsync(directory, base, *options)

    def _lock(self) -> None:
        """Keeps other processes of this user from copying to the same place."""
        place = state_directory()
        if place is None:
            return
        try:
            provide_directory(place)
        except OSError:
            # The names at the destination are safe without this lock too.
            return
        name = hashlib.sha256(self.label.encode(errors="surrogateescape")).hexdigest()[:16]
        lock = take_lock(place / f"copy-{name}.lock")
        if lock is None:
            raise in_use(self.label)
        self._held.callback(os.close, lock)


def _no_rsync(machine: str) -> TfckptError:
    return TfckptError(
        f"{machine} has no `rsync`, which sends and verifies copies. Install it there, such as "
        "with `apt-get install rsync`."
    )


def _listed(output: bytes) -> set[str]:
    """Returns the files that rsync would send; it escapes control characters in their names."""
    lines = [line[_ITEM_SIZE:] for line in output.splitlines() if line.startswith(b"<f")]
    return {os.fsdecode(_ESCAPED.sub(lambda c: bytes([int(c[1], 8)]), line)) for line in lines}


def _is_live(data: bytes) -> bool:
    """Whether a heartbeat that was written a moment ago is that of a live process."""
    try:
        return decode(data, WorkerStatus, "a heartbeat").activity is not Activity.EXITED
    except DamagedFileError:
        pass
    try:
        return decode(data, SupervisorStatus, "a heartbeat").state not in _ENDED
    except DamagedFileError:
        # It is being overwritten at this moment.
        return True


def _free_bytes(line: str) -> int:
    match = _DF.search(line)
    if match is None:
        raise TfckptError(f"`df` on the host printed {line!r}; expected its free space.")
    return int(match["free"]) * 1024
