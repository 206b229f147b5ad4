"""Checks one node before workers train there: `python -m …node_check RUN`, a task of a step.

It reports in one line of JSON. The supervisor has put the token to be found into the run
directory and holds the lock to be tried.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from tfckpt_trainer.errors import TfckptError, describe_error
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.full_disk import is_full
from tfckpt_trainer.rundir.heartbeats.process_ids import host_name
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.documents import load
from tfckpt_trainer.rundir.storage.files import open_plain, read_bounded, write_atomic

TOKEN_VARIABLE = "TFCKPT_CHECK_TOKEN"  # noqa: S105 - no secret
PORTS_VARIABLE = "TFCKPT_CHECK_PORTS"


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one node reports.

    Attributes:
        node: The node, as Slurm names it.
        at: Its clock, in seconds since the epoch.
        problem: Why the run directory or the command cannot be used; empty if they can.
        disk_full: Whether that is a full disk or quota, which a later start may not meet.
        locked: Whether it sees the lock that the supervisor holds.
        taken_ports: Ports that another program uses.
        versions: Versions of Python, TensorFlow and this library; those that are installed.
    """

    node: str
    at: float
    problem: str = ""
    disk_full: bool = False
    locked: bool = True
    taken_ports: tuple[int, ...] = ()
    versions: dict[str, str] = {}


def token_file(run: RunDirectory, token: str) -> Path:
    """The file that the supervisor renames into place for all nodes to see."""
    return run.status_directory / f"check-{token}"


def answer_file(run: RunDirectory, token: str, node: str) -> Path:
    """The file that a node renames into place for the supervisor to see."""
    return run.status_directory / f"check-{token}.{node}"


def check_node(run: RunDirectory, token: str, node: str, ports: Sequence[int]) -> NodeReport:
    """Checks this node."""
    disk_full = False
    try:
        problem, locked = _check_directory(run, token, node), True
        if not problem:
            locked = _is_locked(token_file(run, token))
            problem = _check_command(load(run.launch_file, LaunchOptions))
    except (OSError, TfckptError) as error:
        problem, locked, disk_full = describe_error(error), True, is_full(error)
    return NodeReport(
        node=node,
        at=time.time(),
        problem=problem,
        disk_full=disk_full,
        locked=locked,
        taken_ports=tuple(port for port in ports if not _is_free(port)),
        versions=_versions(),
    )


def _check_directory(run: RunDirectory, token: str, node: str) -> str:
    try:
        content = read_bounded(token_file(run, token))
    except FileNotFoundError:
        return f"{run.root} is not the directory that the first node sees"
    if content != token.encode():
        return f"{run.root} shows other content than on the first node"
    write_atomic(answer_file(run, token, node), token.encode(), durable=False)
    return ""


def _check_command(options: LaunchOptions) -> str:
    if not Path(options.working_directory).is_dir():
        return f"{options.working_directory} is not a directory"
    program = os.path.join(options.working_directory, options.command[0])
    name = program if "/" in options.command[0] else options.command[0]
    return "" if shutil.which(name) else f"{options.command[0]!r} is not a program"


def _is_locked(path: Path) -> bool:
    with open_plain(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def _versions() -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    packages = [
        ("TensorFlow", ("tensorflow", "tensorflow-cpu")),
        ("tfckpt-tui", ("tfckpt-tui",)),
    ]
    for name, distributions in packages:
        for distribution in distributions:
            try:
                versions.setdefault(name, version(distribution))
            except PackageNotFoundError:
                continue
    return versions


def main(arguments: Sequence[str]) -> int:
    """Checks this node and prints the report."""
    node = os.environ.get("SLURMD_NODENAME") or host_name()
    ports = msgspec.json.decode(os.environ[PORTS_VARIABLE], type=dict[str, list[int]])
    token = os.environ[TOKEN_VARIABLE]
    report = check_node(RunDirectory(Path(arguments[0])), token, node, ports.get(node, []))
    os.write(1, msgspec.json.encode(report) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
