"""Decides whose word a file is. What is executed or believed comes from its user or root alone."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from tfckpt_trainer.errors import NotTrustedError
from tfckpt_trainer.machine.permissions import name_of
from tfckpt_trainer.words.advice import Advice

_TAKE = (
    "Read it. If it says what you want, make it yours: "
    "`install -m {mode} {file} {copy} && mv {copy} {file}`."
)
_FILE_OF = " (file of "
LONGEST_CLAIM = 500
"""Characters of it that are kept beside the owner of the file."""
_CLOSE = "Read it, and run `chmod go-w {file}`."


def require_owner(
    path: Path | str, descriptor: int, user: int, *, is_read_by_all: bool = False
) -> None:
    """Raises an error if anyone but a user and root could have written an open file.

    The owner decides, not the directory. Whoever may write there can put three things in its
    place: an own file, which has another owner; a further link to a file of this user, which has
    two links; or an earlier file of this user.

    Args:
        path: Its path, for the error.
        descriptor: The open file that is read.
        user: The ID of the user.
        is_read_by_all: Whether all users of the run read it, so that it has to stay readable.

    Raises:
        NotTrustedError: It has another owner, other users may write to it, or it has further
            links.
    """
    facts = os.fstat(descriptor)
    problem, advice = "", _TAKE
    if not is_own_there(Path(path).parent, facts.st_uid, user):
        problem = f"; expected {user_name(user)}."
    elif facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem, advice = ", and other users may write to it.", _CLOSE
    elif facts.st_nlink > 1:
        problem = ", and has another hard link."
    if problem:
        # The name of a user may come from a directory that is slow.
        found = f"{path} belongs to {user_name(facts.st_uid)}{problem}"
        file, copy = map(shlex.quote, (os.fspath(path), f"{os.fspath(path)}.own"))
        mode = f"{facts.st_mode & 0o644 | 0o600:o}" if is_read_by_all else "600"
        raise NotTrustedError(found, Advice.of(advice, mode=mode, file=file, copy=copy))


def user_name(user: int) -> str:
    """Returns the name of a user with the ID, or the ID alone."""
    name = name_of(user)
    return f"{name} (user {user})" if name else f"user {user}"


def signed_by(claim: str, owner: int) -> str:
    """Returns who did something by the words of a file, and whose file it is if not that user's.

    Args:
        claim: The words, as `USER@HOST`, `USER@HOST, THROUGH` or `USER`; others name no user.
        owner: The ID of the user whose file it is.
    """
    said = claim.partition(_FILE_OF)[0]
    user, at_host, _ = said.partition("@")
    if user in {name_of(owner), f"user {owner}"}:
        return said
    if not at_host and (owner in {0, os.geteuid()} or user_id(user, owner) == owner):
        return said
    return f"{said[:LONGEST_CLAIM]}{_FILE_OF}{user_name(owner)})"


def user_id(name: str, unknown: int) -> int:
    """Returns the ID of a user with this name; `unknown` if there is none."""
    import pwd

    try:
        return pwd.getpwnam(name).pw_uid
    except (KeyError, ValueError):
        return unknown


def is_own_there(directory: Path, owner: int, user: int) -> bool:
    """Whether the files of an owner are those of a user or of root, as a disk shows owners.

    SSHFS, containers, and network disks that map or squash users show the files of this process as
    those of another user. All users that such a disk shows as one are one for it.
    """
    if owner in {0, user}:
        return True
    if user != os.geteuid():
        return False
    # Imported here: of what nobody replaced, it is never needed.
    import tempfile

    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            return os.fstat(probe.fileno()).st_uid == owner
    except OSError:
        return False
