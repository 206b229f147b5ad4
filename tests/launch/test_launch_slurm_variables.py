"""Which environment variables of Slurm its commands see, of all that its manual pages list."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recorded_slurm import ASKED_BY_VARIABLES, listed_variables
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.launch.slurm.batch_script import batch_script
from tfckpt_trainer.launch.slurm.commands import run_command
from tfckpt_trainer.launch.slurm.variables import (
    command_environment,
    ignored_variables,
    step_environment,
    with_variables,
)
from tfckpt_trainer.launch.slurm_options import SlurmOptions
from tfckpt_trainer.rundir.paths import RunDirectory

OF_CLUSTER = {"SLURM_CONF", "SLURM_CLUSTERS"}

OF_STEP = {
    "SLURM_ACCTG_FREQ",
    "SLURM_CORE_SPEC",
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPU_FREQ_REQ",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_GPU_FREQ",
    "SLURM_HINT",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_MEM_BIND",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NETWORK",
    "SLURM_OVERCOMMIT",
    "SLURM_PROFILE",
    "SLURM_THREADS_PER_CORE",
    "SLURM_THREAD_SPEC",
    "SRUN_CPUS_PER_TASK",
}
"""What `srun` takes from its job: how sbatch hands its own options to it."""


def shell(*kinds: str) -> dict[str, str]:
    """A shell in which all of them are set."""
    return {**dict.fromkeys(listed_variables(*kinds), "1"), "PATH": "/bin"}


@pytest.mark.parametrize("command", ["sbatch", "squeue", "scancel", "scontrol", "sinfo"])
def test_commands_see_which_cluster_and_no_option_of_the_shell(command: str) -> None:
    given = shell("sbatch", "srun", "job", command)
    left = command_environment(given).keys() & listed_variables("sbatch", "job", command)
    assert left == OF_CLUSTER


def test_a_step_gets_what_the_job_was_asked_for_and_no_option_of_the_shell() -> None:
    given = shell("sbatch", "srun", "job")
    # The rest is for MPI, which steps do not use.
    of_slurm = {name for name in listed_variables("srun") if not name.startswith("PMI_")}
    assert step_environment(given).keys() & of_slurm == OF_CLUSTER | OF_STEP


def test_a_step_gets_the_processors_of_its_tasks_and_what_slurm_tells_a_job() -> None:
    given = {"SLURM_CPUS_PER_TASK": "8", "SLURM_RESTART_COUNT": "2", "PATH": "/bin"}
    # Of nodes in a cloud, and of a release after 22.05. The last one is the user's.
    given |= {"SLURM_NODE_ALIASES": "(null)", "SLURM_STEPMGR": "tn0", "THREADS": "4"}
    assert step_environment(given) == {**given, "SRUN_CPUS_PER_TASK": "8"}


def test_a_batch_script_asks_what_the_shell_asks_of_sbatch(tmp_path: Path) -> None:
    given = shell("sbatch")
    asked = with_variables(SlurmOptions(), given)
    options = LaunchOptions(
        run_directory=str(tmp_path),
        command=(sys.executable,),
        working_directory=str(tmp_path),
        slurm=asked,
    )
    lines = batch_script(RunDirectory(tmp_path), options).splitlines()
    for option in ASKED_BY_VARIABLES.values():
        assert f"#SBATCH {option}=1" in lines
    is_of_sbatch = {name for name in listed_variables("sbatch") if name.startswith("SBATCH_")}
    assert set(ignored_variables(given)) == is_of_sbatch - ASKED_BY_VARIABLES.keys()


def test_options_of_the_launch_beat_those_of_the_shell() -> None:
    given = dict.fromkeys(ASKED_BY_VARIABLES, "shell")
    launch = SlurmOptions(
        account="launch", partition="launch", time="8:00:00", arguments=("--qos=launch",)
    )
    asked = with_variables(launch, given)
    assert (asked.account, asked.partition, asked.time) == ("launch", "launch", "8:00:00")
    # sbatch takes the last one.
    assert [a for a in asked.arguments if a.startswith("--qos=")] == ["--qos=shell", "--qos=launch"]
    assert with_variables(launch, {"SBATCH_QOS": ""}) == launch


def test_no_command_runs_with_the_options_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in listed_variables("sbatch", "squeue", "scontrol", "sinfo", "scancel"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("SLURM_A_LATER_RELEASE", "1")
    show = "import os; print(*(n for n in os.environ if n[:5] in ('SLURM', 'SBATC', 'SQUEU')))"
    said = run_command([sys.executable, "-c", show], 60.0).output
    assert set(said.split()) == OF_CLUSTER
