"""The launch form: what it takes over from the last launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.storage.documents import store
from tfckpt_tui.services.runs.launch_form import form_like


@pytest.mark.parametrize(
    "words", [("--run-dir", "runs/first"), ("--run-dir={}/runs/first/",), ("runs/../runs/first",)]
)
def test_a_new_run_gets_a_directory_of_its_own_in_the_command_too(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    run = RunDirectory(tmp_path / "runs" / "first")
    run.create()
    command = ("python", "train.py", "--data=.", *(word.format(tmp_path) for word in words))
    options = LaunchOptions(
        run_directory=str(run.root),
        command=command,
        working_directory=str(tmp_path),
        slurm=SlurmOptions(),
    )
    store(run.launch_file, options)
    form = form_like(run)
    assert form.asks_slurm
    assert str(run.root.parent) in form.directory
    new = form.options().command
    assert new[:3] == command[:3]
    assert "first" not in " ".join(new)
    assert new[-1].endswith(form.directory)
