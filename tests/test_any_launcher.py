"""What the page on launchers says is true: each statement has a test, which is named here."""

from __future__ import annotations

import re

import pytest

from documentation import DOCS, ROOT
from tfckpt_trainer.cluster.indexed_job import DEFAULT_PORT
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.launch.options import LaunchOptions
from tfckpt_trainer.scripts.exit_statuses import ExitStatuses

PAGE = " ".join((DOCS / "how-to" / "any-launcher.md").read_text().split())

INTERNAL = {
    "TFCKPT_ATTEMPT",  # from the supervisor
    "TFCKPT_CHECK",  # from `tfckpt-tui check`
    "TFCKPT_CHECK_PORTS",  # from `launch --slurm` to the check of a node
    "TFCKPT_CHECK_TOKEN",  # likewise
    "TFCKPT_CHECKPOINT",  # for the command of `bisect`
    "TFCKPT_EXPORT",  # from `tfckpt-tui export`
    "TFCKPT_PLACEMENT",  # from the supervisor of a Slurm job
    "TFCKPT_TUI_COMPLETE",  # completion of the shell
}
"""Variables that are no business of a launcher."""

STATEMENTS = {
    "| the tasks of Slurm's `srun`, else one worker |": (
        "launch/test_launch_slurm_environment.py::"
        "test_a_task_finds_the_cluster_of_its_step_in_the_order_of_slurm",
    ),
    "`TFCKPT_RUN_DIR` | The run directory, if the script passes none.": (
        "launch/test_launch_supervisor.py",
        "training/test_training_control.py::test_a_killed_worker_makes_the_others_ask_for_a_restart",
    ),
    "With it, a worker shows a heartbeat while it waits for the others.": (
        "training/test_training_strategies.py::test_a_worker_is_heard_while_it_waits_for_others",
    ),
    "Longest network failure between workers that costs no restart.": (
        "training/test_training_partitions.py::"
        "test_a_short_cut_costs_no_restart_and_a_long_one_names_the_pair",
    ),
    "sets the same two statuses in the script. It overrides the environment.": (
        "test_exit_statuses.py::test_the_script_comes_before_the_environment",
    ),
    "`TF_CONFIG` is made from it.": (
        "test_indexed_job.py::test_each_pod_is_the_worker_of_its_index",
    ),
    "All workers save and exit with the status for a preemption.": (
        "training/test_training_control.py::test_sigterm_to_one_worker_saves_once_and_ends_all",
    ),
    "The code after the loop does not run.": (
        "training/test_training_leaving.py::"
        "test_whichever_way_it_leaves_a_process_does_not_wait_for_tf_data",
    ),
    "`SIGUSR1` | All workers save, and training continues.": (
        "training/test_training_saving.py::test_a_signal_to_any_worker_saves_on_all",
    ),
    "The other workers notice and exit with the status for a restart.": (
        "training/test_training_control.py::test_a_killed_worker_makes_the_others_ask_for_a_restart",
    ),
    "A `SIGTERM` before the first step takes effect at that step.": (
        "training/test_training_control.py::"
        "test_sigterm_between_the_strategy_and_the_run_is_not_lost",
    ),
    "| 0 | Training finished, or a user stopped the run. |": (
        "training/test_training_fit.py::"
        "test_a_fit_serves_commands_and_goes_on_after_a_preemption_with_the_very_next_batch",
    ),
    "| 1 | The script failed. |": (
        "training/test_training_failing.py::"
        "test_every_worker_tells_which_line_of_the_script_failed",
    ),
    "A start restores the newest good checkpoint.": (
        "training/test_training_control.py::"
        "test_a_cold_start_passes_over_damaged_checkpoints_and_overwrites_nothing",
    ),
    "The number of workers may differ.": (
        "training/test_training_elastic.py::"
        "test_the_shared_state_comes_back_exactly_and_what_begins_anew_is_said",
    ),
    "has the same information in the field `ending`.": (
        "training/test_training_control.py::test_sigterm_to_one_worker_saves_once_and_ends_all",
        "launch/test_launch_plan.py::"
        "test_the_last_heartbeat_tells_who_lost_another_whatever_the_status",
    ),
    "`SIGTERM` still works with several workers": (
        "training/test_training_ray.py::"
        "test_ray_train_runs_a_script_unmodified_and_restarts_it_from_the_newest_checkpoint",
    ),
    "Ray announces that it will drain a node, such as a spot instance. Save when it does:": (
        "training/test_training_ray.py::"
        "test_ray_train_runs_a_script_unmodified_and_restarts_it_from_the_newest_checkpoint",
    ),
    "After a preemption or a lost worker, Ray starts all workers again": (
        "training/test_training_ray.py::"
        "test_ray_train_runs_a_script_unmodified_and_restarts_it_from_the_newest_checkpoint",
    ),
    "Call these methods instead, from any thread of any worker:": (
        "training/test_training_run.py::test_any_thread_can_ask_for_a_save",
        "training/test_training_run.py::test_any_thread_can_ask_for_a_stop",
    ),
    "takes the same arguments and stops the run of this process.": (
        "training/test_training_run.py::"
        "test_a_fit_that_was_interrupted_goes_on_with_the_next_in_the_same_process",
    ),
    "An interrupted cell closes the run, and its last steps are not saved.": (
        "training/test_training_run.py::"
        "test_after_an_interrupted_cell_another_run_goes_on_in_the_same_process",
    ),
    "A run that is still open, for example after an interrupted `model.fit`, is closed then.": (
        "training/test_training_run.py::test_a_run_that_was_left_open_is_closed_by_the_next",
    ),
    "Two threads of a process cannot train in one run directory.": (
        "training/test_training_run.py::test_two_threads_cannot_train_in_one_directory",
    ),
}
"""Statements of the page, with the tests that hold them."""


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_page_says_what_a_test_holds(statement):
    assert statement in PAGE
    for place in STATEMENTS[statement]:
        file, _, name = place.partition("::")
        source = (ROOT / "tests" / file).read_text()
        assert f"def {name}(" in source or not name, f"{place} is gone"


def test_the_page_lists_every_variable_of_the_library():
    sources = [path.read_text() for path in (ROOT / "trainer").rglob("*.py")]
    sources += [path.read_text() for path in (ROOT / "tui").rglob("*.py")]
    read = {name for source in sources for name in re.findall(r"TFCKPT_[A-Z_]+[A-Z]", source)}
    assert set(re.findall(r"\| `(TFCKPT_\w+)` \|", PAGE)) == read - INTERNAL


def test_the_page_has_the_defaults_of_the_library():
    statuses = ExitStatuses()
    options = LaunchOptions(run_directory="", command=(), working_directory="", workers=1)
    for name, default in {
        "TFCKPT_PEER_SECONDS": f"{options.peer_seconds:g}",
        "TFCKPT_PREEMPTED_STATUS": statuses.preempted,
        "TFCKPT_RESTART_STATUS": statuses.restart,
        "TFCKPT_PORT": DEFAULT_PORT,
    }.items():
        assert re.search(rf"`{name}` \| [^|]+ \| {default} \|", PAGE), name
    for code in (ExitCode.DONE, ExitCode.PREEMPTED, ExitCode.RESTART_WORKERS, ExitCode.PROBLEM):
        assert f"| {int(code)} |" in PAGE
