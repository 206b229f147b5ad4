"""Who lets this user into a file or directory of a run, and with which command."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.words.advice import Advice

CONTROL = ".tfckpt"
"""The subdirectory of a run with all files of this library."""

BY_EFFECTIVE_ID = os.access in os.supports_effective_ids
"""Whether `os.access` can ask as file calls do."""

_CHANGED_IN_PLACE = (".lock", ".jsonl", ".log")
"""How the names of files end that all users of a run open; others are replaced by a rename."""


def is_path(name: object) -> bool:
    """Whether the file name of an error is one."""
    return isinstance(name, str | bytes | os.PathLike)


def find_closed(error: PermissionError) -> Path | None:
    """Returns the file or directory whose permissions refuse an access; None if none is seen."""
    paths = [Path(os.fsdecode(n)) for n in (error.filename, error.filename2) if is_path(n)]
    return next((closed for path in paths if (closed := closed_at(path)) is not None), None)


def closed_at(path: Path) -> Path | None:
    """Returns what keeps this user from a path: itself or its directory; None if nothing does."""
    return next(filter(is_closed, _deciding(path)), None)


def is_of_library(error: OSError) -> bool:
    """Whether an error names a file of this library."""
    return is_path(error.filename) and CONTROL in Path(os.fsdecode(error.filename)).parts


def is_of_run(error: OSError) -> bool:
    """Whether an error names a file of a run, which users may share: of this library or beside."""
    if not is_path(error.filename):
        return False
    directory = Path(os.fsdecode(error.filename)).parent
    return is_of_library(error) or os.path.isdir(directory / CONTROL)


def advice_about(error: OSError) -> Advice | None:
    """Says who opens the file of a run that an error names; None if it is not closed."""
    return opening_advice(error) if is_of_run(error) else None


def opening_advice(error: OSError) -> Advice | None:
    """Says who opens the file that an error names, of whatever; None if it is not closed."""
    if isinstance(error, PermissionError):
        with suppress(OSError):
            closed = find_closed(error)
            if closed is not None:
                return access_advice(closed)
            if error.errno == errno.EPERM:
                return _sticky_advice(Path(os.fsdecode(error.filename)))
    return None


def _sticky_advice(path: Path) -> Advice | None:
    """Says who may move a file of a directory with the sticky bit; None if this user may."""
    directory, owner = path.parent.stat(), path.lstat().st_uid
    if not directory.st_mode & stat.S_ISVTX or os.geteuid() in {0, owner, directory.st_uid}:
        return None
    return Advice.of(
        "{place} has the sticky bit: only {owner} may replace, move or delete {name}. This ran as "
        "{user}. Run it as {owner}, or have {holder} run `chmod -t {word}`, after which all who "
        "may write there may.",
        place=path.parent,
        owner=_called(owner),
        name=path.name,
        user=_called(os.geteuid()),
        holder=_called(directory.st_uid),
        word=_word(path.parent),
    )


def access_advice(path: Path) -> Advice:
    """Says who can let this user into a file or directory, and how.

    Raises:
        OSError: It cannot be looked at.
    """
    user = path.stat().st_uid
    if user == os.geteuid():
        right = "u+rwx" if path.is_dir() else "u+rw"
        return Advice.of(
            "You own {path}: run `chmod {right} {word}`.", path=path, right=right, word=_word(path)
        )
    owner = name_of(user)
    advice = Advice.of("Run this as its owner, {owner}.", owner=_called(user))
    control = next((p for p in (path, *path.parents) if p.name == CONTROL), None)
    if control is not None and _is_added(control):
        return advice.then(
            "If they have no run here, move it away: `mv {control} {aside}`.",
            control=_word(control),
            aside=_word(control.with_name(f"{control.name}.of-others")),
        )
    group = _common_group(path, owner)
    command = _command(path, user, group) if group is not None else ""
    if command:
        advice = advice.then(
            "To share {path}, {owner} runs `{command}`.",
            owner=_called(user),
            path=path,
            command=command,
        )
    if control is not None and path != control and _may_move(path):
        command = _moving_command(path, user)
        advice = advice.then(
            "If they have no part in this run, move it away: `{command}`.", command=command
        )
    return advice


def moving_advice(path: Path) -> str:
    """Says whose a document of a newer release is, and how to go on if there is no such release.

    Whoever may write to a run can put one there, which would keep everybody else from changing it.

    Args:
        path: The document.
    """
    try:
        owner = path.lstat().st_uid
    except OSError:
        return ""
    found = f"{path} belongs to {_called(owner)}."
    moved = next(filter(_may_move, _within_run(path)), None)
    if moved is None:
        return f"{found} If they used no newer release, have them delete it."
    command = _moving_command(moved, owner)
    return f"{found} If nobody used a newer release here, move it away: `{command}`."


def _moving_command(path: Path, owner: int) -> str:
    """Returns the command that moves what others put into a run to where nothing reads it."""
    # Above its directory.
    control = next((place for place in path.parents if place.name == CONTROL), path.parent)
    aside = control / f"{path.name}.of-{_called(owner).replace(' ', '-')}"
    return f"mv {_word(path)} {_word(aside)}"


def _may_move(path: Path) -> bool:
    """Whether this user may take a file or directory out of its directory."""
    writes = os.access(path.parent, os.W_OK | os.X_OK, effective_ids=BY_EFFECTIVE_ID)
    return writes and may_replace(path)


def _is_added(path: Path) -> bool:
    """Whether the sticky bit of a directory of this user lets others own what lies there."""
    directory, owner = path.parent.stat(), path.lstat().st_uid
    added = bool(directory.st_mode & stat.S_ISVTX) and owner not in {0, directory.st_uid}
    return added and os.geteuid() in {0, directory.st_uid}


def _deciding(path: Path) -> list[Path]:
    """Returns the file and its directory, or the lowest directory that is seen."""
    there = [place for place in (path, *path.parents) if os.path.lexists(place)]
    return there[:2] if there[:1] == [path] else there[:1]


def is_closed(place: Path) -> bool:
    """Whether this user may not do with a file or directory of a run what its users do."""
    if os.path.isdir(place):
        wanted = os.R_OK | os.W_OK | os.X_OK
    else:
        # Whoever may write to the directory replaces all others.
        wanted = os.R_OK | (os.W_OK if place.name.endswith(_CHANGED_IN_PLACE) else 0)
    return not os.access(place, wanted, effective_ids=BY_EFFECTIVE_ID)


def may_replace(path: Path) -> bool:
    """Whether the sticky bit of its directory lets this user replace a file; it may not exist."""
    try:
        directory, file = os.stat(path.parent), os.lstat(path)
    except FileNotFoundError:
        return True
    if not directory.st_mode & stat.S_ISVTX:
        return True
    return os.geteuid() in {0, directory.st_uid, file.st_uid}


def _within_run(path: Path) -> Iterator[Path]:
    """Yields a path of a run and the directories above it, up to `.tfckpt` if it is below."""
    yield path
    if CONTROL in path.parent.parts:
        yield from _within_run(path.parent)


def _common_group(path: Path, owner: str) -> int | None:
    """Returns the group to share a path with: of it or of a directory above, else any in common."""
    mine = [os.getegid(), *os.getgroups()]
    theirs = _groups_of(owner, path) if owner else None
    *_, top = _within_run(path)
    for place in (path, *path.parents):
        group = place.stat().st_gid
        if group in mine and (theirs is None or group in theirs):
            return group
        if place == top.parent:
            break
    return next((group for group in mine if group in (theirs or ())), None)


def _groups_of(owner: str, path: Path) -> list[int]:
    """Returns the groups of a user, and that of a path of theirs, which needs no change."""
    import pwd

    return [*os.getgrouplist(owner, pwd.getpwnam(owner).pw_gid), path.stat().st_gid]


def _command(path: Path, user: int, group: int) -> str:
    """Returns the command that opens a path to a group, with what is closed around it."""
    closed = [
        place
        for place in _within_run(path)
        if place.is_dir() and place.stat().st_uid == user and is_closed(place)
    ]
    commands = []
    if closed and CONTROL in closed[-1].parts:
        commands += _open_tree(closed[-1], user, group)
    elif closed:
        commands += _open_one(path, group, "g+rwxs")
    if path.name.endswith(_CHANGED_IN_PLACE):
        commands += [] if closed else _open_one(path, group, "g+rw")
    elif not path.is_dir() and not os.access(path, os.R_OK, effective_ids=BY_EFFECTIVE_ID):
        commands += _open_one(path, group, "g+r")
    return " && ".join(commands)


def _open_one(path: Path, group: int, right: str) -> list[str]:
    taken = [] if path.stat().st_gid == group else [f"chgrp {_group_word(group)} {_word(path)}"]
    return [*taken, f"chmod {right} {_word(path)}"]


def _open_tree(top: Path, user: int, group: int) -> list[str]:
    """Opens directories, and files that are changed in place; private ones stay so."""
    find = f"find {_word(top)} -user {shlex.quote(name_of(user) or str(user))}"
    names = " -o ".join(f"-name '*{end}'" for end in _CHANGED_IN_PLACE)
    taken = f"-exec chgrp {_group_word(group)} {{}} +"
    return [
        f"{find} -type d {taken} -exec chmod g+rwxs {{}} +",
        f"{find} -type f \\( {names} \\) {taken} -exec chmod g+rw {{}} +",
    ]


def _word(path: Path) -> str:
    return shlex.quote(str(path))


def name_of(user: int) -> str:
    """Returns the name of the user with an ID; empty if it has none."""
    # Imported here: only errors need it, and directories of users may be slow.
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return ""


def _called(user: int) -> str:
    return name_of(user) or f"user {user}"


def _group_word(group: int) -> str:
    import grp

    try:
        return shlex.quote(grp.getgrgid(group).gr_name)
    except KeyError:
        return str(group)
