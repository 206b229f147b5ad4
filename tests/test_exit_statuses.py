"""Which exit statuses a script leaves with: its own choice, the environment's, or ours."""

from __future__ import annotations

import pytest

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.scripts.exit_statuses import ExitStatuses, choose_statuses, exit_words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (1, "ended with status 1"),
        (-9, "was killed by SIGKILL"),
        (-60, "was killed by signal 60"),
        (137, "ended with status 137 (usually killed by SIGKILL, often because memory ran out)"),
        (139, "ended with status 139 (usually killed by SIGSEGV)"),
        (128, "ended with status 128"),
        (255, "ended with status 255"),
    ],
)
def test_a_status_in_words(status: int, words: str) -> None:
    assert exit_words(status) == words


def test_without_a_choice_they_are_those_of_the_reference():
    assert choose_statuses(environment={}) == ExitStatuses(preempted=143, restart=75)
    # `TFCKPT_…=` in a manifest unsets it.
    assert choose_statuses(environment={"TFCKPT_RESTART_STATUS": ""}).restart == 75


def test_the_script_comes_before_the_environment():
    environment = {"TFCKPT_PREEMPTED_STATUS": "0", "TFCKPT_RESTART_STATUS": "138"}
    assert choose_statuses(environment=environment) == ExitStatuses(0, 138)
    assert choose_statuses(1, 2, environment) == ExitStatuses(1, 2)


@pytest.mark.parametrize("text", ["-1", "256", "restart", "0"])
def test_a_status_that_no_process_can_exit_with_is_refused(text):
    with pytest.raises(UsageError, match=r"TFCKPT_RESTART_STATUS is .*from 1 to 255"):
        choose_statuses(environment={"TFCKPT_RESTART_STATUS": text})


def test_an_argument_that_no_process_can_exit_with_is_refused():
    with pytest.raises(UsageError, match=r"preempted_status is 300; .*from 0 to 255"):
        choose_statuses(preempted=300, environment={})
