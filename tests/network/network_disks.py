"""Network disks for the tests of this folder: two clients of one server, and sshfs over sshd."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faulty_file_system import unmount
from requirements import require
from ssh_server import SshServer, ssh_server
from waiting import MOST_SECONDS

CACHE_SECONDS = 10.0
"""For so long a client remembers names and attributes."""


@contextmanager
def short_directory() -> Iterator[Path]:
    """Makes a directory with a short path, which sockets need; mounts below it are undone."""
    place = Path(tempfile.mkdtemp(prefix="tfckpt-net-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def sshfs_mounts(place: Path, *names: str) -> Iterator[tuple[Path, ...]]:
    """Mounts one directory of this machine several times by sshfs, over a real sshd on loopback."""
    require("FUSE", "sshfs")
    directory = place / "server"
    directory.mkdir()
    mounted: list[Path] = []
    with ssh_server(place) as server:
        try:
            for name in names:
                (place / name).mkdir()
                _mount_by_ssh(directory, server, place / name)
                mounted.append(place / name)
            yield tuple(mounted)
        finally:
            for root in mounted:
                unmount(root)


def _mount_by_ssh(source: Path, server: SshServer, place: Path) -> None:
    words = ["sshfs", f"{server.user}@127.0.0.1:{source}", str(place), "-p", str(server.port)]
    words += [word for key, value in server.options.items() for word in ("-o", f"{key}={value}")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
    assert done.returncode == 0, f"{done.stderr} {server.log.read_text()[-500:]}"
