"""What a directory is, found out before anything is done with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rundir_factory import RunFactory

from bundle_writing import array, write
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_tui.services.runs.open_run import open_run


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"does not exist; .*tfckpt-tui launch"):
        open_run(tmp_path / "missing")


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.touch()
    with pytest.raises(
        UsageError, match="is not a directory; name the directory of the checkpoints"
    ):
        open_run(file)


@pytest.mark.parametrize("typed", ["ckpt-5", "ckpt-5.index", "ckpt-5.data-00000-of-00001"])
def test_the_path_of_a_checkpoint(tmp_path: Path, typed: str) -> None:
    write(tmp_path / "ckpt-5", {"w": array([1.0])})
    with pytest.raises(UsageError) as caught:
        open_run(tmp_path / typed)
    assert f"`tfckpt-tui inspect {tmp_path} ckpt-5`" in str(caught.value)
    assert "launch" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["final.weights.h5", "model.keras", "a.safetensors", "5/_CHECKPOINT_METADATA"]
)
def test_files_that_other_programs_keep_checkpoints_in(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    assert open_run(tmp_path).root == tmp_path


def test_an_empty_directory(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is empty; .*tfckpt-tui launch"):
        open_run(tmp_path)


def test_an_empty_directory_is_opened_to_launch_a_run_in_it(tmp_path: Path) -> None:
    assert open_run(tmp_path, may_be_empty=True) == RunDirectory(tmp_path)
    (tmp_path / "README.md").touch()
    with pytest.raises(UsageError, match="has no checkpoints"):
        open_run(tmp_path, may_be_empty=True)


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    for name in ("README.md", "train.py"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"holds 2 other entries, the first is 'README\.md'"):
        open_run(tmp_path)


@pytest.mark.parametrize("file", ["saved_model.pb", "saved_model.pbtxt"])
def test_a_saved_model_has_its_checkpoint_in_a_subdirectory(tmp_path: Path, file: str) -> None:
    model = tmp_path / "my model"
    (model / "variables").mkdir(parents=True)
    (model / "assets").mkdir()
    (model / file).touch()
    for name in ("variables.index", "variables.data-00000-of-00001"):
        (model / "variables" / name).touch()
    command = f"`tfckpt-tui '{model}/variables'`"
    with pytest.raises(UsageError, match=f"is a SavedModel; its checkpoints are in .*{command}"):
        open_run(model)


def test_checkpoints_one_level_deeper_are_offered(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "run" / "ckpt-5.index").touch()
    with pytest.raises(UsageError, match=r"has no checkpoints itself; its checkpoints are in run"):
        open_run(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ckpt-7.index").touch()
    words = r"there are some in other and run\. List the runs with `tfckpt-tui browse "
    with pytest.raises(UsageError, match=words):
        open_run(tmp_path)


def test_a_directory_that_may_not_be_read(
    open_place: Path, become_nobody: Callable[[], None]
) -> None:
    open_place.chmod(0)
    become_nobody()
    words = r"cannot be read: Permission denied\. Run this as its owner, "
    with pytest.raises(UsageError, match=words):
        open_run(open_place)


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        open_run(tmp_path / ("x" * 300))


@pytest.mark.parametrize("what", ["checkpoints", "state file", "ours"])
def test_what_holds_checkpoints_or_once_did_is_opened(tmp_path: Path, what: str) -> None:
    if what == "checkpoints":
        RunFactory(tmp_path).checkpoint(1, recorded=False, listed=False)
    elif what == "state file":
        (tmp_path / "checkpoint").touch()
    else:
        (tmp_path / ".tfckpt").mkdir()
    assert open_run(tmp_path) == RunDirectory(tmp_path)


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunFactory(tmp_path / "run").run.create()
    monkeypatch.chdir(tmp_path)
    assert open_run("run").root == tmp_path / "run"
