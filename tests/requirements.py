"""What tests need of this machine. A test is skipped for exactly what is missing.

    @needs("rsync")                  # a test, a parameter, or `pytestmark` of a module
    require("sshd", "rsync")         # in a fixture or a helper

What is there and does not work fails the test.
"""

from __future__ import annotations

import ctypes
import errno
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tfckpt_trainer.cluster.gpu_shares import visible_gpus

needs = pytest.mark.needs

MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
WITHOUT_FILE_EVENTS = 'echo 0 > /proc/sys/user/max_inotify_instances && exec "$0" "$@"'

_TENSORFLOW_GPUS = "import tensorflow as tf; print(len(tf.config.list_physical_devices('GPU')))"


class Need(NamedTuple):
    """Something that this machine may lack."""

    is_met: Callable[[], bool]
    remedy: str


def require(*names: str) -> None:
    """Skips the test if this machine lacks one of `NEEDS`; says which, and how to get it."""
    lacking = missing(*names)
    if lacking:
        pytest.skip(f"needs {'; '.join(lacking)}", allow_module_level=True)


def missing(*names: str) -> list[str]:
    """Returns which of `NEEDS` this machine lacks, and how to get each."""
    return [f"{name}: {NEEDS[name].remedy}" for name in names if not NEEDS[name].is_met()]


def find_program(name: str) -> str | None:
    """Returns the path of a program; `PATH` may lack the directories for root."""
    return shutil.which(name, path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin{os.pathsep}/sbin")


@cache
def tensorflow_gpus() -> int:
    """Returns how many GPUs TensorFlow can use."""
    listed = subprocess.run(
        [sys.executable, "-c", _TENSORFLOW_GPUS],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return int(listed.stdout.split()[-1])


def _have(*programs: str) -> bool:
    return all(find_program(program) for program in programs)


def _program(package: str, *programs: str) -> Need:
    return Need(partial(_have, *programs), f"apt-get install {package}")


def _module(name: str, extra: str) -> Need:
    remedy = f"pip install -e '.[{extra}]'"
    return Need(lambda: importlib.util.find_spec(name) is not None, remedy)


def _right(is_met: Callable[[], bool], remedy: str) -> Need:
    """What only an attempt tells. It is made once in each process."""
    return Need(cache(is_met), remedy)


def _works(*words: str) -> bool:
    return _have(words[0]) and subprocess.run(words, capture_output=True).returncode == 0


@contextmanager
def _mounted(*words: str, unmount: tuple[str, ...] = ("umount",)) -> Iterator[bool]:
    """Tries to mount something on an empty directory; yields whether it is mounted."""
    with tempfile.TemporaryDirectory() as place:
        is_mounted = _works(*words, place)
        try:
            yield is_mounted
        finally:
            if is_mounted:
                subprocess.run([*unmount, place], check=True)


def _can_mount() -> bool:
    with _mounted("mount", "-t", "tmpfs", "tmpfs") as is_mounted:
        return is_mounted


def _kernel_has(file_system: str) -> bool:
    """Whether mounting fails for another reason than the type, which the kernel looks at first."""
    kernel = ctypes.CDLL(None, use_errno=True)
    with tempfile.TemporaryDirectory() as place:
        kernel.mount(b"/dev/null", os.fsencode(place), file_system.encode(), 0, None)
    return ctypes.get_errno() != errno.ENODEV


def _has_loop_devices() -> bool:
    with tempfile.NamedTemporaryFile() as image:
        image.truncate(1 << 20)
        words = ["losetup", "--find", "--show", image.name]
        if not _have("losetup"):
            return False
        found = subprocess.run(words, capture_output=True, text=True)
        if found.returncode == 0:
            subprocess.run(["losetup", "--detach", found.stdout.strip()], check=True)
        return found.returncode == 0


def _can_mount_fuse() -> bool:
    """Mounts a file system that nothing serves. The program then sends its device to us."""
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryDirectory() as place:
        environment = {**os.environ, "_FUSE_COMMFD": str(theirs.fileno())}
        done = subprocess.run(
            ["fusermount3", "--", place],
            env=environment,
            pass_fds=[theirs.fileno()],
            capture_output=True,
        )
        if done.returncode == 0:
            subprocess.run(["fusermount3", "-u", "-z", place], check=True)
    return done.returncode == 0


def _has_fuse() -> bool:
    if not _have("fusermount3") or importlib.util.find_spec("mfusepy") is None:
        return False
    try:
        import mfusepy  # noqa: F401
    except OSError:
        # The library of FUSE.
        return False
    return _can_mount_fuse()


def _has_file_events() -> bool:
    """Whether other programs of this user have left any."""
    kernel = ctypes.CDLL(None)
    descriptor = kernel.inotify_init1(os.O_CLOEXEC)
    if descriptor < 0:
        return False
    try:
        modified = 2
        return bool(kernel.inotify_add_watch(descriptor, b"/", modified) >= 0)
    finally:
        os.close(descriptor)


def _has_gpu() -> bool:
    # In WSL2 there are no device files, but the tool.
    return bool(visible_gpus(os.environ).names) or _have("nvidia-smi")


_AS_ROOT = "run as root, in a container with CAP_SYS_ADMIN"

NEEDS = {
    # Programs.
    "bash": _program("bash", "bash"),
    "cc": _program("gcc", "cc"),
    "git": _program("git", "git"),
    "mkfs.ext4": _program("e2fsprogs", "mkfs.ext4"),
    "mkfs.xfs": _program("xfsprogs", "mkfs.xfs"),
    "munge": _program("munge", "munged"),
    "pkill": _program("procps", "pkill", "pgrep"),
    "rsync": _program("rsync", "rsync"),
    "slurm": _program("slurm-wlm", "slurmctld", "slurmd", "sbatch", "scontrol", "sinfo", "srun"),
    "ssh": _program("openssh-client", "ssh", "ssh-keygen"),
    "sshd": _program("openssh-server", "sshd"),
    "sshfs": _program("sshfs", "sshfs"),
    "tmux": _program("tmux", "tmux"),
    "zsh": _program("zsh", "zsh"),
    # Modules of Python.
    "kubernetes-validate": _module("kubernetes_validate", "test"),
    "matplotlib": _module("matplotlib", "docs"),
    "tf_keras": Need(
        lambda: importlib.util.find_spec("tf_keras") is not None,
        "pip install --no-deps tf_keras, in the release of TensorFlow",
    ),
    "tensorflow_recommenders": Need(
        lambda: importlib.util.find_spec("tensorflow_recommenders") is not None,
        "pip install --no-deps tensorflow_recommenders==0.7.7",
    ),
    "ray": _module("ray", "test,ray"),
    # Rights, devices, and what a kernel can.
    "root": Need(lambda: os.geteuid() == 0, "run as root"),
    "mounts": _right(_can_mount, _AS_ROOT),
    "loop devices": _right(_has_loop_devices, _AS_ROOT),
    "ext4": _right(partial(_kernel_has, "ext4"), "a kernel that has it"),
    "XFS": _right(partial(_kernel_has, "xfs"), "a kernel that has it"),
    "FUSE": _right(_has_fuse, "apt-get install fuse3, pip install mfusepy, access to /dev/fuse"),
    "process namespaces": _right(
        partial(_works, "unshare", "--pid", "--fork", "--mount-proc", "true"), _AS_ROOT
    ),
    "mount namespaces": _right(partial(_works, "unshare", "--mount", "true"), _AS_ROOT),
    "network namespaces": _right(
        partial(_works, "unshare", "--net", "ip", "link", "add", "type", "veth"),
        "apt-get install iproute2, and run as root, in a container with CAP_NET_ADMIN",
    ),
    "user namespaces": _right(
        partial(
            _works, "unshare", "--user", "--map-root-user", "sh", "-c", WITHOUT_FILE_EVENTS, "true"
        ),
        "sysctl kernel.unprivileged_userns_clone=1",
    ),
    "control groups": Need(
        lambda: os.access(MEMORY_GROUPS, os.W_OK),
        "run as root, with control groups of version 1 that can be written",
    ),
    "file events": Need(_has_file_events, "end other programs that watch directories"),
    "Linux": Need(lambda: sys.platform == "linux", "only it forks safely here"),
    "GPU": Need(_has_gpu, "a machine with one"),
    "GPU of TensorFlow": Need(lambda: tensorflow_gpus() > 0, "pip install 'tensorflow[and-cuda]'"),
    "REAL_TIME_LIMIT": Need(lambda: "REAL_TIME_LIMIT" in os.environ, "set REAL_TIME_LIMIT=1"),
}
