"""`launch --slurm` on a machine whose sbatch is a script; tests/cluster has the real one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from command_running import Tool
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.job import BatchJob
from tfckpt_trainer.rundir.storage.documents import load

COMMAND = ["--", sys.executable, "train.py"]


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An sbatch that a test writes; it is the only one in the path."""
    program = tmp_path / "bin" / "sbatch"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


def answer(program: Path, shell: str) -> None:
    program.write_text(f"#!/bin/sh\n{shell}\n")
    program.chmod(0o755)


def test_a_launch_submits_the_batch_script_of_the_run_directory(
    tool: Tool, tmp_path: Path, sbatch: Path
) -> None:
    answer(sbatch, f'echo "$@" > {tmp_path}/told; echo "1234;west"')
    run = RunDirectory(tmp_path / "run")
    options = ["--slurm", "--detach", "--json", "--nodes", "2", "--time", "8:00:00"]
    said = tool("launch", run.root, *options, *COMMAND)
    assert said.code == 0
    assert said.json == {
        "schema": 1, "directory": str(run.root), "supervisor_pid": None, "job": "1234",
    }  # fmt: skip
    assert (tmp_path / "told").read_text() == f"--parsable {run.job_script}\n"
    assert "#SBATCH --time=8:00:00\n" in run.job_script.read_text()
    job = load(run.job_file, BatchJob)
    assert (job.scheduler, job.id, job.cluster) == ("slurm", "1234", "west")
    assert job.script == ".tfckpt/job.sbatch"
    (entry,) = read_entries(run)
    assert (entry.kind, entry.message) == ("submit", "Submitted as job 1234 on 2 nodes.")
    assert "Slurm starts it in its turn. Watch it: tfckpt-tui attach" in said.words
    assert str(run.root) in tool("runs").data
    launched = load(run.launch_file, LaunchOptions)
    assert launched.slurm is not None
    assert launched.workers == 2


def test_a_dry_run_prints_the_script_and_changes_nothing(tool: Tool, tmp_path: Path) -> None:
    said = tool("launch", tmp_path / "run", "--slurm", "--dry-run", "--nodes", "1-4", *COMMAND)
    assert said.code == 0
    assert "#SBATCH --nodes=1-4\n" in said.data
    assert not (tmp_path / "run").exists()


def test_a_launch_says_which_variables_of_sbatch_it_ignores(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SBATCH_PARTITION", "SBATCH_ACCOUNT", "SBATCH_NO_REQUEUE", "SLURM_EXCLUSIVE"):
        monkeypatch.setenv(name, "shell")
    options = ["--slurm", "--dry-run", "--account", "own"]
    said = tool("launch", tmp_path / "run", *options, *COMMAND)
    assert "#SBATCH --partition=shell\n#SBATCH --account=own\n" in said.data
    assert said.words == "Ignored: SBATCH_NO_REQUEUE. Pass options of sbatch with --sbatch-arg.\n"


def test_a_refusal_of_slurm_is_shown(tool: Tool, tmp_path: Path, sbatch: Path) -> None:
    answer(sbatch, 'echo "sbatch: error: invalid partition specified: gpu" >&2; exit 1')
    said = tool("launch", tmp_path / "run", "--slurm", "--detach", *COMMAND)
    assert said.code == 1
    assert "invalid partition specified: gpu" in said.words
    run = RunDirectory(tmp_path / "run")
    assert not run.job_file.exists()
    (entry,) = read_entries(run)
    assert entry.kind == "failed"
    assert entry.message.startswith("The submission failed. `sbatch` failed: sbatch: error: inv")
    assert f"state     refused: {entry.message}" in tool("status", run.root).data


def test_a_refusal_of_slurm_keeps_the_record_of_the_last_job(
    tool: Tool, tmp_path: Path, sbatch: Path
) -> None:
    answer(sbatch, 'echo "1234;west"')
    assert tool("launch", tmp_path / "run", "--slurm", "--detach", *COMMAND).code == 0
    run = RunDirectory(tmp_path / "run")
    before = run.job_file.read_bytes()
    answer(sbatch, "exit 1")
    answer(sbatch.with_name("squeue"), "echo Socket timed out >&2; exit 1")
    again = ["launch", run.root, "--slurm", "--detach", *COMMAND]
    assert "Slurm cannot be asked: squeue: Socket timed out." in tool(*again).words
    assert tool(*again[:3], "--force", *again[3:]).code == 1
    assert run.job_file.read_bytes() == before


@pytest.mark.e2e
def test_an_answer_without_a_job_id_is_shown(tool: Tool, tmp_path: Path, sbatch: Path) -> None:
    answer(sbatch, "echo welcome")
    said = tool("launch", tmp_path / "run", "--slurm", "--detach", *COMMAND)
    assert said.code == 1
    assert "expected the ID of a job" in said.words


def test_without_slurm_the_launch_says_where_to_go(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = tool("launch", tmp_path / "run", "--slurm", "--detach", *COMMAND)
    assert said.code == 1
    assert "This machine has no `sbatch`. Use a login node of the cluster." in said.words


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--nodes", "2"], "--nodes needs --slurm."),
        (["--dry-run"], "--dry-run needs --slurm."),
        (["--slurm", "--workers", "2"], "give --nodes and --tasks-per-node, not --workers"),
        (["--slurm", "--foreground"], "either --slurm or --foreground"),
        (["--slurm", "--detach", "--nodes", "0"], "--nodes is '0'"),
        (["--slurm", "--detach", "--ports", "9001"], "--ports cannot be used with --slurm"),
        (["--slurm", "--detach", "--sbatch-arg=--array=0-3"], "directory of its own"),
        (["--slurm", "--detach", "--parameter-servers", "1"], "expected at least 3"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tool: Tool, tmp_path: Path, options: list[str], why: str
) -> None:
    said = tool("launch", tmp_path / "run", *options, *COMMAND)
    assert said.code == 2
    assert why in said.words
    assert not (tmp_path / "run").exists()


def test_a_mistyped_option_ends_in_one_mark(tool: Tool, tmp_path: Path) -> None:
    said = tool("launch", tmp_path / "run", "--slurm", "--acount", "a", *COMMAND)
    assert said.code == 2
    assert "Did you mean '--account'? See `" in said.words
