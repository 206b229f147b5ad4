"""A destination on another host, reached by ssh."""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from shutil import which

from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_trainer.rundir.documents import decode
from tfckpt_trainer.rundir.records.run import RunInfo, SupervisorState, SupervisorStatus
from tfckpt_trainer.rundir.records.worker import Activity, WorkerStatus
from tfckpt_trainer.user_directories import state_directory
from tfckpt_tui.services.copying import remote_scripts as scripts
from tfckpt_tui.services.copying.address import HostPath
from tfckpt_tui.services.copying.destination import (
    NOT_A_FILE,
    OnSent,
    Survey,
    in_use,
    refuse_live,
)
from tfckpt_tui.services.copying.source import SourceFile
from tfckpt_tui.services.copying.ssh_connection import SshConnection

_ENDED = {SupervisorState.STOPPED, SupervisorState.FINISHED, SupervisorState.FAILED}
_DF = re.compile(r"\s(?P<free>\d+)\s+(?:\d+%|-)\s+/")
_RSYNC_PROGRESS = re.compile(rb"\s([\d,.]+)\s+\d+%")


class SshDestination:
    """A directory of another host; see `Destination`."""

    def __init__(self, target: HostPath, seconds: float) -> None:
        self._target = target
        self._directory = target.path
        self._connection = SshConnection(target, seconds)
        self._held = ExitStack()
        self._programs: frozenset[str] = frozenset()
        self._digest_program = ""
        self._is_missing = False

    @property
    def label(self) -> str:
        """Host and path."""
        return str(self._target)

    @property
    def transport(self) -> str:
        """`rsync` if both ends have it, otherwise `ssh`."""
        return "rsync" if "rsync" in self._programs and which("rsync") else "ssh"

    def open(self, *, dry_run: bool) -> None:
        """Connects, and keeps other copies away unless nothing may change; creates nothing."""
        if not dry_run:
            self._lock()
        answer = self._connection.open(scripts.open_script(self._directory))
        lines = answer.decode(errors="replace").splitlines()
        self._programs = frozenset(lines) & {"rsync", "tar", *scripts.DIGEST_PROGRAMS}
        self._is_missing = "missing" in lines
        if "locked" in lines:
            raise in_use(self.label)
        for line in lines:
            if line.startswith("{") and _is_live(line.encode()):
                raise refuse_live(self.label, "it has recent heartbeats")
        found = [name for name in scripts.DIGEST_PROGRAMS if name in self._programs]
        if not found:
            raise TfckptError(
                f"{self._target.host} has no program that computes SHA-256, so a copy could not be "
                f"verified there. Install one of {', '.join(scripts.DIGEST_PROGRAMS)} on it."
            )
        self._digest_program = found[0]

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

    def survey(self, names: Sequence[str], paths: Sequence[str]) -> Survey:
        """Returns what it holds."""
        if self._is_missing:
            answer = self._connection.run(scripts.free_script(self._directory))
            return Survey(_free_bytes(answer.decode(errors="replace")))
        script = scripts.survey_script(self._directory, names, paths)
        lines = self._connection.run(script).decode(errors="replace").splitlines()
        sizes = {}
        for path, line in zip(paths, lines[1:], strict=False):
            if line.strip() != "-":
                sizes[path] = NOT_A_FILE if line.strip() == "x" else int(line)
        found = (line.split(" ", 1) for line in lines[1 + len(paths) :])
        owned = {f"{names[int(number)]}.{suffix}" for number, suffix in found}
        return Survey(_free_bytes(lines[0]), sizes, sorted(owned - set(paths)))

    def digests(self, paths: Sequence[str]) -> list[str]:
        """Reads files back on the host, and returns the SHA-256 of each in hexadecimal."""
        script = scripts.digest_script(self._directory, self._digest_program, paths)
        found = self._connection.run(script).decode(errors="replace").split()
        if len(found) != len(paths):
            raise TfckptError(f"Files could not be read back from {self.label}. Copy again.")
        return found

    def send_small(self, files: Sequence[tuple[SourceFile, str]]) -> None:
        """Writes small files to these paths, in one archive: each command takes a while."""
        if "tar" in self._programs:
            self._connection.run(scripts.unpack_script(self._directory), _archive(files))
            return
        for file, path in files:
            script = scripts.append_script(self._directory, path, 0)
            self._connection.run(script, file.chunks())

    def send(self, file: SourceFile, path: str, offset: int, on_sent: OnSent) -> None:
        """Appends a file from `offset` on to `path`."""
        if self._send_by_rsync(file, path, offset, on_sent):
            return

        def pieces() -> Iterator[bytes]:
            sent = offset
            for data in file.chunks(offset):
                yield data
                sent += len(data)
                on_sent(sent)

        self._connection.run(scripts.append_script(self._directory, path, offset), pieces())

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

    def _send_by_rsync(self, file: SourceFile, path: str, offset: int, on_sent: OnSent) -> bool:
        source = file.open_path
        if self.transport != "rsync" or source is None:
            return False
        parent = path.rpartition("/")[0]
        self._connection.run(scripts.make_directory_script(self._directory, parent))

        def show(output: bytes) -> None:
            for match in _RSYNC_PROGRESS.findall(output):
                on_sent(max(offset, int(match.translate(None, b",."))))

        base = self._directory if self._directory.startswith("/") else f"./{self._directory}"
        if self._connection.rsync(source, f"{base}/{path}", show):
            return True
        self._programs -= {"rsync"}
        return False

    def _lock(self) -> None:
        """Keeps other processes of this user from copying to the same place."""
        # Imported here, so that other commands start sooner.
        from filelock import FileLock, Timeout

        place = state_directory()
        if place is None:
            return
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            # The names at the destination are safe without this lock too.
            return
        name = hashlib.sha256(self.label.encode(errors="surrogateescape")).hexdigest()[:16]
        lock = FileLock(place / f"copy-{name}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise in_use(self.label) from None
        self._held.callback(lock.release)


def _archive(files: Sequence[tuple[SourceFile, str]]) -> Iterator[bytes]:
    """Yields a tar archive of files."""
    for file, path in files:
        entry = tarfile.TarInfo(f"./{path}")
        entry.size, entry.mtime = file.size, int(file.modified_at)
        yield entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
        yield from file.chunks()
        yield bytes(-file.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


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
    found = _DF.search(line)
    if found is None:
        raise TfckptError(f"`df` on the host printed {line!r}; expected its free space.")
    return int(found["free"]) * 1024
