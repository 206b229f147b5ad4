"""A real ssh server on loopback, with a key of its own."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from requirements import find_program, require

SECONDS = 20.0
_SFTP = "/usr/lib/openssh/sftp-server"


@dataclass(frozen=True)
class SshServer:
    """An ssh server.

    Attributes:
        pid: Its process; the processes of its connections are the children.
        options: The options with which `ssh` and `sshfs` reach it.
    """

    pid: int
    port: int
    log: Path
    options: dict[str, str]
    user: str

    def cut_connections(self) -> None:
        """Kills the processes of all connections, as a lost link does in the end."""
        subprocess.run(["pkill", "-KILL", "-P", str(self.pid)], check=False)


@contextmanager
def ssh_server(place: Path, **environment: str) -> Iterator[SshServer]:
    """Starts a server; its keys and its log are in `place`.

    Args:
        place: A directory.
        environment: Variables of the commands that it runs.
    """
    require("ssh", "sshd", "pkill")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for key in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / key)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    shutil.copy(place / "user.pub", place / "authorized")
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    options = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": place / "host",
        "AuthorizedKeysFile": place / "authorized",
        "PidFile": place / "pid",
        "StrictModes": "no",
        "UsePAM": "no",
        # Others make keys of kilobytes for each connection.
        "KexAlgorithms": "curve25519-sha256",
        "Subsystem": f"sftp {_SFTP}" if os.path.exists(_SFTP) else "sftp internal-sftp",
    }
    if environment:
        options["SetEnv"] = " ".join(f"{name}={value}" for name, value in environment.items())
    words = [str(find_program("sshd")), "-D", "-e", "-f", "/dev/null"]
    words += [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    log = place / "sshd.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    client = {
        "IdentityFile": str(place / "user"),
        "UserKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "no",
        "LogLevel": "ERROR",
    }
    try:
        _wait_for_port(port, log)
        yield SshServer(process.pid, port, log, client, getpass.getuser())
    finally:
        process.terminate()
        process.wait()


def _wait_for_port(port: int, log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"sshd does not start: {log.read_text()[-500:]}")
