"""A FUSE file system with faults: slow, hanging, failing, full, with stale caches or another clock.

    with faulty_mounts(tmp_path, "a", "b") as (a, b):   # two clients of one server
        a.set_faults(errors={"write": "EIO"}, only="journal")
        a.set_faults(hang=True)                         # every call waits until this is undone
        a.clear()
        a.count_calls()                                 # since the last call, by operation
    a.count_by_process()                            # the same, by process and operation

Each client is a process of its own, and passes every call on to one backing directory. Kernel
locks are not shared between clients, as on many network file systems. Tests are skipped
where FUSE is missing.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

MOUNT_SECONDS = 20.0

_OPENS = {"open": "release", "create": "release", "opendir": "releasedir"}
_RELEASES = set(_OPENS.values())
_UTIME_NOW = (1 << 30) - 1
_FACTS = (
    "st_atime_ns", "st_ctime_ns", "st_gid", "st_ino", "st_mode", "st_mtime_ns", "st_nlink",
    "st_size", "st_uid", "st_blocks", "st_blksize",
)  # fmt: skip


class FaultyMount:
    """One client of the file system, and its faults.

    Attributes:
        root: Where it is mounted.
    """

    def __init__(self, root: Path, control: Path) -> None:
        self.root = root
        self._control = control

    def set_faults(self, **faults: Any) -> None:
        """Replaces the faults.

        Args:
            **faults: `hang` (bool) and `delay` (seconds): of every call, or of `only`. `errors`:
                the name of an error by operation, or for `*`. `only`: the faults hold for paths
                that contain it. `clock`: seconds by which the clock of the server differs.
                `stale`: seconds for which listings and attributes are not read again.
        """
        self._ask({"faults": faults})

    def clear(self) -> None:
        """Removes all faults; calls that hang go on."""
        self.set_faults()

    def count_calls(self) -> Counter[str]:
        """Returns the calls since the last time, by operation."""
        counts: Counter[str] = Counter()
        for calls in self.count_by_process().values():
            counts.update(calls)
        return counts

    def count_by_process(self) -> dict[int, Counter[str]]:
        """Returns the calls since the last time, by process and operation."""
        return {int(process): Counter(calls) for process, calls in self._ask({}).items()}

    def _ask(self, request: dict[str, Any]) -> Any:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self._control))
            line.sendall(json.dumps(request).encode())
            line.shutdown(socket.SHUT_WR)
            return _receive(line)


@contextmanager
def faulty_mounts(
    place: Path, *names: str, cache_seconds: float = 0.0
) -> Iterator[tuple[FaultyMount, ...]]:
    """Mounts clients of one directory below `place`.

    Args:
        place: A directory for the mount points and their files.
        *names: One client for each.
        cache_seconds: How long the kernel keeps names and attributes.
    """
    # Not above: each mount runs this file too.
    from requirements import require

    require("FUSE")
    backing = place / "server"
    backing.mkdir(parents=True)
    with ExitStack() as stack:
        # The path of a socket must be short.
        sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfckpt-fuse-")))
        yield tuple(
            stack.enter_context(_mounted(place / name, backing, sockets / name, cache_seconds))
            for name in names
        )


@contextmanager
def _mounted(
    root: Path, backing: Path, control: Path, cache_seconds: float
) -> Iterator[FaultyMount]:
    root.mkdir()
    words = [sys.executable, "-P", __file__, backing, root, control, str(cache_seconds)]
    log = root.with_name(f"{root.name}.log")
    with open(log, "wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + MOUNT_SECONDS
        while not os.path.ismount(root):
            mounts = process.poll() is None and time.monotonic() < deadline
            assert mounts, f"it is not mounted: {log.read_text()[-500:]}"
            time.sleep(0.02)
        yield FaultyMount(root, control)
    finally:
        # Its end answers all calls that hang.
        process.kill()
        process.wait()
        unmount(root)


def unmount(root: Path) -> None:
    """Unmounts a FUSE file system, even if it is in use or its process has ended."""
    subprocess.run(["fusermount3", "-u", "-z", str(root)], capture_output=True, check=False)


def _receive(line: socket.socket) -> Any:
    return json.loads(b"".join(iter(lambda: line.recv(1 << 16), b"")))


class _Server:
    """Passes calls on to the backing directory, with the faults in between."""

    use_ns = True

    def __init__(self, backing: str, control: str) -> None:
        self._backing = backing
        self._faults: dict[str, Any] = {}
        self._calls: dict[int, Counter[str]] = {}
        self._process_of: dict[int, int] = {}
        self._openers: dict[tuple[str, int], int] = {}
        self._directories = itertools.count(1)
        self._changed = threading.Condition()
        self._cached: dict[tuple[str, str], tuple[float, Any]] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(control)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            line, _ = self._listener.accept()
            with line:
                request = _receive(line)
                with self._changed:
                    answer: Any = self._calls
                    self._calls = {}
                    if "faults" in request:
                        self._faults, answer = request["faults"], {}
                        self._changed.notify_all()
                with suppress(OSError):
                    line.sendall(json.dumps(answer).encode())

    def __call__(self, operation: str, path: str | None, *arguments: Any) -> Any:
        import mfusepy

        process = self._process(mfusepy.fuse_get_context()[2])
        if operation in _RELEASES:
            # The kernel releases later, for whoever opened.
            process = self._openers.pop((operation, arguments[-1]), process)
        self._calls.setdefault(process, Counter())[operation] += 1
        if operation in {"init", "destroy"}:
            return None
        handler = getattr(self, f"do_{operation}", None)
        if handler is None:
            raise mfusepy.FuseOSError(errno.ENOSYS)
        self._suffer(operation, path or "")
        where = path and self._backing + path
        if operation in _OPENS:
            handle = handler(where, *arguments)
            self._openers[_OPENS[operation], handle] = process
            return handle
        seconds = self._faults.get("stale", 0)
        if seconds and operation in {"getattr", "readdir"}:
            return self._stale(operation, where, seconds, lambda: handler(where, *arguments))
        return handler(where, *arguments)

    def _process(self, thread: int) -> int:
        """Returns the process of a thread, which is what the kernel names."""
        if thread not in self._process_of:
            process = thread
            with suppress(OSError, ValueError, IndexError):
                words = Path(f"/proc/{thread}/status").read_text().split()
                process = int(words[words.index("Tgid:") + 1])
            self._process_of[thread] = process
        return self._process_of[thread]

    def _suffer(self, operation: str, path: str) -> None:
        import mfusepy

        while True:
            faults = self._faults
            if faults.get("only", "") not in path:
                return
            if not faults.get("hang"):
                break
            with self._changed:
                self._changed.wait(0.5)
        if faults.get("delay"):
            time.sleep(faults["delay"])
        errors = faults.get("errors", {})
        name = errors.get(operation) or errors.get("*")
        if name:
            raise mfusepy.FuseOSError(getattr(errno, name))

    def _stale(self, operation: str, where: Any, seconds: float, read: Any) -> Any:
        at, answer = self._cached.get((operation, where), (0.0, None))
        if time.monotonic() - at > seconds:
            try:
                answer = read()
            except OSError as error:
                answer = error
            self._cached[operation, where] = time.monotonic(), answer
        if isinstance(answer, OSError):
            raise answer
        return answer

    def do_getattr(self, path: str, handle: int | None = None) -> dict[str, Any]:
        facts = os.fstat(handle) if handle else os.lstat(path)
        found = {name.removesuffix("_ns"): getattr(facts, name) for name in _FACTS}
        for name in ("st_mtime", "st_ctime"):
            found[name] += int(self._faults.get("clock", 0) * 1e9)
        return found

    def do_readdir(self, path: str, handle: int) -> list[str]:
        return [".", "..", *os.listdir(path)]

    def do_open(self, path: str, flags: int) -> int:
        return os.open(path, flags & ~(os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW))

    def do_create(self, path: str, mode: int, info: object = None) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def do_read(self, path: str, size: int, offset: int, handle: int) -> bytes:
        return os.pread(handle, size, offset)

    def do_write(self, path: str, data: bytes, offset: int, handle: int) -> int:
        return os.pwrite(handle, data, offset)

    def do_truncate(self, path: str, length: int, handle: int | None = None) -> None:
        os.truncate(handle or path, length)

    def do_flush(self, path: str, handle: int) -> None:
        return None

    def do_fsync(self, path: str, only_data: int, handle: int) -> None:
        return None

    def do_fsyncdir(self, path: str, only_data: int, handle: int) -> None:
        return None

    def do_release(self, path: str, handle: int) -> None:
        os.close(handle)

    def do_opendir(self, path: str) -> int:
        return next(self._directories)

    def do_releasedir(self, path: str, handle: int) -> None:
        return None

    def do_mkdir(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)

    def do_rmdir(self, path: str) -> None:
        os.rmdir(path)

    def do_unlink(self, path: str) -> None:
        os.unlink(path)

    def do_symlink(self, path: str, target: str) -> None:
        os.symlink(target, path)

    def do_readlink(self, path: str) -> str:
        return os.readlink(path)

    def do_rename(self, path: str, target: str) -> None:
        os.rename(path, self._backing + target)

    def do_chmod(self, path: str, mode: int) -> None:
        os.chmod(path, mode)

    def do_chown(self, path: str, user: int, group: int) -> None:
        os.chown(path, user, group)

    def do_utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        now = time.time_ns()
        os.utime(path, ns=tuple(now if one == _UTIME_NOW else one for one in times or (now, now)))

    def do_statfs(self, path: str) -> dict[str, int]:
        facts = os.statvfs(path)
        return {name: getattr(facts, name) for name in dir(facts) if name.startswith("f_")}


def main(arguments: Sequence[str]) -> None:
    """Serves the file system until it is unmounted."""
    import mfusepy

    backing, root, control, cache_seconds = arguments
    server = _Server(backing, control)

    class Passed(mfusepy.Operations):  # type: ignore[misc, name-defined, unused-ignore]
        use_ns = True

    def pass_on(name: str) -> Any:
        return lambda _self, *words: server(name, *words)

    for name in dir(_Server):
        if name.startswith("do_"):
            operation = name.removeprefix("do_")
            setattr(Passed, operation, pass_on(operation))
    mfusepy.FUSE(
        Passed(),
        root,
        foreground=True,
        fsname="tfckpt-faulty",
        subtype="tfckpt-faulty",
        attr_timeout=float(cache_seconds),
        entry_timeout=float(cache_seconds),
        negative_timeout=0,
        hard_remove=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
