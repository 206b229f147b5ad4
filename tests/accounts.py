"""Two accounts of one group, for tests that run as root.

with acting_as(ALICE, umask=0o002):
    launch(options)
"""

from __future__ import annotations

# Imported before the tests are another user, who cannot read the modules of root.
import encodings.ascii  # noqa: F401
import grp  # noqa: F401
import os
import pwd  # noqa: F401
import shutil
import statistics  # noqa: F401
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ALICE, BOB, GROUP = 54321, 54322, 54300


@contextmanager
def acting_as(user: int, umask: int = 0o022) -> Iterator[None]:
    """Opens, writes and starts processes as a user of the group."""
    own, own_group, own_groups = os.geteuid(), os.getegid(), os.getgroups()
    own_umask = os.umask(umask)
    os.seteuid(0)
    os.setgroups([GROUP])
    os.setegid(GROUP)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setgroups(own_groups)
        os.setegid(own_group)
        os.seteuid(own)
        os.umask(own_umask)


def share(directory: Path, owner: int = ALICE) -> Path:
    """Gives a directory to a user, and lets the group write to it."""
    directory.mkdir(exist_ok=True)
    os.chown(directory, owner, GROUP)
    directory.chmod(0o2775)
    return directory


def replace_as(user: int, path: Path, data: bytes, mode: int = 0o644) -> None:
    """Puts a file of a user in the place of another, as one who may write to the directory can."""
    own = path.with_name(f"{path.name}.of-{user}")
    own.write_bytes(data)
    own.chmod(mode)
    shutil.chown(own, user, GROUP)
    os.replace(own, path)


@contextmanager
def sleeping(**environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Alice."""
    process = subprocess.Popen(
        ["/bin/sleep", "600"], start_new_session=True, user=ALICE, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
