"""The Git commit of a script is recorded; Git can be absent, slow or hostile."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from requirements import needs, require
from tfckpt_trainer.code_version import MOST_CHANGES, code_directory, read_code_version
from tfckpt_trainer.rundir.records.run import ChangedFile

Git = Callable[..., str]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "code"
    root.mkdir()
    return root


@pytest.fixture
def git(repository: Path) -> Git:
    require("git")

    def run(*arguments: str) -> str:
        who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=repository, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    run("init", "--quiet", "--initial-branch=trunk")
    (repository / "train.py").write_text("a\nb\nc\n")
    (repository / "x.bin").write_bytes(b"\0\1\2")
    run("add", ".")
    run("commit", "--quiet", "-m", "first")
    return run


def test_a_clean_repository_has_its_commit_and_branch(repository: Path, git: Git) -> None:
    (repository / "untracked").touch()
    version = read_code_version(repository)
    assert version is not None
    assert version.commit == git("rev-parse", "HEAD")
    assert (version.branch, version.changed_files, version.changes) == ("trunk", 0, [])


def test_what_differs_from_the_commit_is_counted(repository: Path, git: Git) -> None:
    (repository / "train.py").write_text("a\nB\nc\nd\n")
    (repository / "x.bin").write_bytes(b"\0\2")
    git("checkout", "--quiet", "--detach")
    version = read_code_version(repository)
    assert version is not None
    assert version.branch == ""
    assert (version.changed_files, version.added, version.removed) == (2, 2, 1)
    assert version.changes == [
        ChangedFile(path="train.py", added=2, removed=1),
        ChangedFile(path="x.bin", added=None, removed=None),
    ]


def test_of_thousands_of_changes_the_first_are_named(repository: Path, git: Git) -> None:
    for number in range(MOST_CHANGES + 20):
        (repository / f"{number:04}\n\x1b").write_text("1\n")
    git("add", ".")
    version = read_code_version(repository)
    assert version is not None
    assert version.changed_files == MOST_CHANGES + 20
    assert len(version.changes) == MOST_CHANGES


@needs("git")
def test_without_a_repository_or_a_commit_nothing_is_known(tmp_path: Path) -> None:
    assert read_code_version(tmp_path) is None
    assert read_code_version(tmp_path / "missing") is None
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    assert read_code_version(tmp_path) is None


def test_without_git_nothing_is_known(
    repository: Path, git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert read_code_version(repository) is None


def test_a_slow_git_ends_in_time(
    repository: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text('#!/bin/sh\ncase "$*" in *diff*) exec sleep 600;; *) echo 5f0c;; esac\n')
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    version = read_code_version(repository, seconds=0.5)
    assert version is not None
    assert (version.commit, version.changed_files) == ("5f0c", None)


def test_no_program_of_the_repository_runs(
    repository: Path, git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    for name in (
        "core.fsmonitor",
        "core.pager",
        "diff.external",
        "diff.odd.command",
        "diff.odd.textconv",
        "filter.odd=name.clean",
        "filter.odd.clean",
        "filter.odd.process",
        "filter.odd.smudge",
        "core.hooksPath",
    ):
        git("config", name, str(program))
    git("config", "filter.odd.required", "true")
    for attributes in (repository / ".gitattributes", repository / ".git/info/attributes"):
        attributes.write_text("* filter=odd diff=odd\n*.py filter=odd=name\n")
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    (repository / "train.py").write_text("a\n")
    version = read_code_version(repository)
    assert version is not None
    assert version.changed_files == 1
    assert not ran.exists()
    # The settings do run the program otherwise.
    subprocess.run(["git", "diff", "HEAD"], cwd=repository, capture_output=True, check=False)
    assert ran.exists()


def test_the_index_of_the_repository_is_not_written(repository: Path, git: Git) -> None:
    index = repository / ".git" / "index"
    before = index.read_bytes()
    os.utime(repository / "train.py", (1, 1))
    version = read_code_version(repository)
    assert version is not None
    assert version.changed_files == 0
    assert index.read_bytes() == before


def test_the_directory_of_the_script_counts(tmp_path: Path) -> None:
    script = tmp_path / "code" / "train.py"
    script.parent.mkdir()
    script.touch()
    assert code_directory(("python", "code/train.py"), tmp_path) == script.parent
    assert code_directory(("python", "-m", "pkg"), tmp_path) == tmp_path
    assert code_directory(("python", "gone.py"), tmp_path) == tmp_path
