"""Network disks for the tests of this folder: two clients of one server, and sshfs over sshd."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from faulty_file_system import require_fuse, unmount

SSHD_SECONDS = 20.0
_SFTP = "/usr/lib/openssh/sftp-server"


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
    require_fuse()
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.path.exists(sshd) or shutil.which("sshfs") is None:
        pytest.skip("sshfs and openssh-server are not installed")
    server = place / "server"
    server.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for key in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / key)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    shutil.copy(place / "user.pub", place / "authorized")
    os.makedirs("/run/sshd", exist_ok=True)
    options = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": place / "host",
        "AuthorizedKeysFile": place / "authorized",
        "PidFile": place / "pid",
        "StrictModes": "no",
        "UsePAM": "no",
        "Subsystem": f"sftp {_SFTP}" if os.path.exists(_SFTP) else "sftp internal-sftp",
    }
    words = [sshd, "-D", "-e", "-f", "/dev/null"]
    words += [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    log = place / "sshd.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    mounted: list[Path] = []
    try:
        _wait_for_port(port, log)
        for name in names:
            (place / name).mkdir()
            _mount_by_ssh(f"{getpass.getuser()}@127.0.0.1:{server}", place, name, port, log)
            mounted.append(place / name)
        yield tuple(mounted)
    finally:
        for root in mounted:
            unmount(root)
        process.terminate()
        process.wait()


def _mount_by_ssh(source: str, place: Path, name: str, port: int, log: Path) -> None:
    options = {
        "IdentityFile": place / "user",
        "UserKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "no",
        "LogLevel": "ERROR",
    }
    words = ["sshfs", source, str(place / name), "-p", str(port)]
    words += [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        pytest.skip(f"sshfs cannot be mounted here: {done.stderr} {log.read_text()[-500:]}")


def _wait_for_port(port: int, log: Path) -> None:
    deadline = time.monotonic() + SSHD_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.skip(f"sshd does not start here: {log.read_text()[-500:]}")
