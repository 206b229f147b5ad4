"""The user's own directories for cache, configuration and state, as the XDG standard places them.

So on macOS too, where other tools of the command line have their files in `~/.config`. A user
without a home directory has none of them, nor one who may not enter it, as in many containers.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_NAME = "tfckpt-tui"

NO_HOME = (
    "There is no home directory that this user may enter: set HOME, or set XDG_CONFIG_HOME, "
    "XDG_STATE_HOME and XDG_CACHE_HOME."
)


def cache_directory() -> Path | None:
    """Returns the directory of what can be found out again, or None without a home directory."""
    return _directory("XDG_CACHE_HOME", "~/.cache")


def cached_path(kind: str, directory: Path) -> Path | None:
    """Returns where the cache keeps something about a directory, or None without a home directory.

    Args:
        kind: What is kept.
        directory: The directory; its real path counts.
    """
    return cached_path_of(kind, cache_key(directory))


def cache_key(directory: Path) -> str:
    """Returns the name of a directory in the cache, from its real path."""
    # Imported here: it loads OpenSSL, which commands that do not list checkpoints do not need.
    import hashlib

    return hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:24]


def cached_path_of(kind: str, key: str) -> Path | None:
    """Returns what `cached_path` does, for the `cache_key` of a directory."""
    cache = cache_directory()
    return Path(cache, kind, key) if cache is not None else None


def config_directory() -> Path | None:
    """Returns the directory of the configuration file, or None without a home directory."""
    return _directory("XDG_CONFIG_HOME", "~/.config")


def state_directory() -> Path | None:
    """Returns the directory of recent runs and demos, or None without a home directory."""
    return _directory("XDG_STATE_HOME", "~/.local/state")


def _directory(variable: str, default: str) -> Path | None:
    return _placed(os.environ.get(variable, ""), default, os.environ.get("HOME"), os.geteuid())


@lru_cache(maxsize=8)
def _placed(place: str, default: str, _home: str | None, _user: int) -> Path | None:
    # The standard says to ignore a relative path.
    if not os.path.isabs(place):
        place = os.path.expanduser(default)
    if not os.path.isabs(place):
        return None
    found = Path(place, _NAME)
    try:
        found.lstat()
    except PermissionError:
        return None
    except OSError:
        pass
    return found


def expand_user(path: str | os.PathLike[str]) -> Path:
    """Returns a path with the home directory for `~`; the path itself if there is no such user."""
    return Path(os.path.expanduser(path))
