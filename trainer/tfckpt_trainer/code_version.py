"""Asks Git which commit a script is at, and what differs from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.rundir.records.run import ChangedFile, CodeVersion

ANSWER_SECONDS = 3.0
"""How long all questions to Git may take together."""

MOST_CHANGES = 100
"""How many changed files are named."""

_MOST_FILTERS = 100
_LONGEST_PATH = 1000
_HARMLESS = {
    "core.fsmonitor": "false",
    # It would write the index, under a lock that another Git may wait for.
    "diff.autoRefreshIndex": "false",
}
_DIFF = (
    "diff",
    "--numstat",
    "-z",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=all",
    "HEAD",
)


def code_directory(command: Sequence[str], working_directory: Path) -> Path:
    """Returns the directory of the script in a command, or else the working directory."""
    script = next((word for word in command if word.endswith(".py")), "")
    path = working_directory / script
    return path.parent if script and path.is_file() else working_directory


def read_code_version(directory: Path, seconds: float = ANSWER_SECONDS) -> CodeVersion | None:
    """Returns the commit of the Git repository of a directory; None without one, or without Git.

    Takes no locks of the repository, and runs no program that its configuration names.

    Args:
        directory: A directory of the repository.
        seconds: How long it may take. If that is too short, what differs stays unknown.
    """
    try:
        return _Git(directory, time.monotonic() + seconds).read()
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


class _Git:
    """Questions to Git about one repository, until a deadline."""

    def __init__(self, directory: Path, deadline: float) -> None:
        self._directory = directory
        self._deadline = deadline

    def read(self) -> CodeVersion | None:
        commit = self._ask("rev-parse", "--verify", "--quiet", "HEAD").strip()
        if not commit:
            return None
        branch = self._ask("symbolic-ref", "--quiet", "--short", "HEAD").strip()
        version = CodeVersion(commit=commit[:_LONGEST_PATH], branch=branch[:_LONGEST_PATH])
        with suppress(OSError, subprocess.SubprocessError, ValueError):
            return self._with_changes(version)
        return version

    def _with_changes(self, version: CodeVersion) -> CodeVersion:
        changes = list(_changes(self._ask(*_DIFF, settings=self._without_filters())))
        return CodeVersion(
            commit=version.commit,
            branch=version.branch,
            changed_files=len(changes),
            added=sum(change.added or 0 for change in changes),
            removed=sum(change.removed or 0 for change in changes),
            changes=changes[:MOST_CHANGES],
        )

    def _without_filters(self) -> dict[str, str]:
        """Returns settings that switch off the programs which would read changed files."""
        found = self._ask("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
        names = {name.rpartition(".")[0] for name in found.split("\0") if name.count(".") >= 2}
        if len(names) > _MOST_FILTERS:
            raise ValueError("too many filters")
        settings = {f"{name}.{kind}": "" for name in names for kind in ("clean", "process")}
        return {**settings, **{f"{name}.required": "false" for name in names}}

    def _ask(self, *arguments: str, settings: Mapping[str, str] | None = None) -> str:
        """Returns what Git answers; empty if it refuses."""
        program = shutil.which("git")
        if program is None or not os.path.isabs(program):
            return ""
        done = subprocess.run(
            [program, "-C", str(self._directory), *arguments],
            env=_environment({**_HARMLESS, **(settings or {})}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=max(0.0, self._deadline - time.monotonic()),
            check=False,
        )
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    own |= {
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        # A partial clone would fetch what it lacks.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for place, (key, value) in enumerate(settings.items()):
        own |= {f"GIT_CONFIG_KEY_{place}": key, f"GIT_CONFIG_VALUE_{place}": value}
    return own


def _changes(answer: str) -> Iterator[ChangedFile]:
    """Yields files with other contents; without a refresh, Git also names those only touched."""
    for line in answer.split("\0"):
        added, _, rest = line.partition("\t")
        removed, _, path = rest.partition("\t")
        if path and (added, removed) != ("0", "0"):
            yield ChangedFile(
                path=path[:_LONGEST_PATH], added=_number(added), removed=_number(removed)
            )


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
