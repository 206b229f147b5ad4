"""What a supervisor decides, without a process."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.launch.supervision.restart_policy import (
    AT_ONCE_SECONDS,
    HEALTHY_SECONDS,
    LONGEST_PAUSE_SECONDS,
    REPEATED,
    Attempt,
    EarlierAttempts,
    Exit,
    Limits,
    Next,
    decide,
    pause_before,
)
from tfckpt_trainer.rundir.records.failure import OutOfMemory, ScriptFault
from tfckpt_trainer.rundir.records.worker import Ending

LIMITS = Limits(max_restarts=3, pause_seconds=1.0, start_timeout=100.0)
TRAINED = Attempt(workers=2, seconds=30.0, heard=frozenset({0, 1}), stepped=True)
FRESH = Attempt(workers=2, seconds=1.0)
FIRST = EarlierAttempts()


def after(
    attempt: Attempt, *exits: Exit, history: EarlierAttempts = FIRST, limits: Limits = LIMITS
):
    return decide(replace(attempt, exits=exits), history, limits)


def test_while_all_live_there_is_nothing_to_decide() -> None:
    assert after(TRAINED).next is Next.WAIT


SERVED = replace(TRAINED, workers=4, heard=frozenset(range(4)), replaceable=frozenset({1, 2}))
"""A chief, two workers and a parameter server."""


def test_only_a_worker_that_others_can_do_without_is_replaced() -> None:
    decision = after(SERVED, Exit(1, -9))
    assert (decision.next, decision.lost) == (Next.REPLACE, 1)
    assert decision.reason == (
        "Worker 1 was killed by SIGKILL. The others train on, and it is started again."
    )
    assert after(SERVED, Exit(1, -9), Exit(2, -9)).next is Next.REPLACE
    assert after(SERVED, Exit(3, -9)).next is Next.RESTART
    assert after(SERVED, Exit(1, -9), Exit(0, 75, Ending.PEER_LOST)).next is Next.RESTART
    assert after(replace(SERVED, stepped=False), Exit(1, -9)).next is Next.RESTART
    often = replace(SERVED, replaced=LIMITS.max_restarts)
    assert after(often, Exit(1, -9)).next is Next.RESTART


def test_one_that_ended_well_waits_for_the_others() -> None:
    assert after(TRAINED, Exit(0, 0)).next is Next.WAIT


def test_workers_that_wrote_no_heartbeat_finish_with_a_remark() -> None:
    silent = replace(TRAINED, heard=frozenset(), stepped=False)
    decision = after(silent, Exit(0, 0), Exit(1, 0))
    assert decision.next is Next.FINISH
    assert decision.reason == (
        "All workers finished. They wrote no heartbeat: the script does not use tfckpt_trainer."
    )
    finished = after(TRAINED, Exit(0, 0, Ending.FINISHED), Exit(1, 0, Ending.FINISHED))
    assert finished.reason == "All workers finished."


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        (Ending.FINISHED, Next.FINISH),
        (Ending.STOPPED, Next.STOP),
        (Ending.PREEMPTED, Next.STOP),
        (None, Next.FINISH),
    ],
)
def test_what_the_workers_said_tells_finished_from_stopped(
    ending: Ending | None, expected: Next
) -> None:
    assert after(TRAINED, Exit(0, 0, ending), Exit(1, 0, Ending.FINISHED)).next is expected


def test_a_death_restarts_all_after_a_growing_pause() -> None:
    history, pauses = EarlierAttempts(), []
    for _ in range(3):
        decision = after(TRAINED, Exit(1, -9), history=history)
        assert decision.next is Next.RESTART
        history = decision.history
        pauses.append(decision.pause_seconds)
    assert pauses == [0, 2, 4]
    assert after(TRAINED, Exit(1, -9), history=history).next is Next.FAIL


@pytest.mark.parametrize(
    ("ended", "is_outside"),
    [
        (Exit(1, -9), True),
        (Exit(1, 1), False),
        (Exit(1, -11), False),
        (Exit(1, -9, out_of_memory=OutOfMemory.COUNTED), False),
    ],
)
def test_it_is_told_whether_the_script_is_at_fault(ended: Exit, is_outside: bool) -> None:
    decision = after(TRAINED, ended, history=EarlierAttempts(restarts=3, in_a_row=3))
    assert (decision.next, decision.is_outside) == (Next.FAIL, is_outside)


def test_no_restarts_may_be_allowed() -> None:
    decision = after(TRAINED, Exit(0, 1), limits=replace(LIMITS, max_restarts=0))
    assert decision.next is Next.FAIL
    assert "No restarts are allowed" in decision.reason


def test_a_new_checkpoint_gives_the_restarts_back() -> None:
    used = EarlierAttempts(restarts=3, in_a_row=5, causes=frozenset({"a.py:3: KeyError"}))
    for seconds, pause, in_a_row in ((HEALTHY_SECONDS, 0, 1), (HEALTHY_SECONDS - 1, 32, 6)):
        trained = replace(TRAINED, seconds=seconds, saved=True)
        decision = after(trained, Exit(0, -9), history=used)
        assert (decision.next, decision.pause_seconds) == (Next.RESTART, pause)
        left = EarlierAttempts(restarts=1, in_a_row=in_a_row)
        assert decision.history == left
        unsaved = after(replace(trained, saved=False), Exit(0, -9), history=used)
        assert (unsaved.next, unsaved.verdict) == (
            Next.FAIL,
            "All 3 restarts are used, without a new checkpoint.",
        )


def test_a_victim_is_not_lost_before_the_one_that_did_not_react() -> None:
    waits = replace(TRAINED, silent=(1, "has sent no heartbeat for 30 s"))
    victim = Exit(0, 75, Ending.PEER_LOST)
    assert after(waits, victim).lost == 1
    assert "Worker 1 did not react, and then worker 0 ended" in after(waits, victim).reason
    assert after(waits, victim, Exit(1, -9)).lost == 1
    assert after(waits, Exit(0, 1)).lost == 0
    assert after(waits, victim, Exit(1, 0)).lost == 0


def test_the_first_that_failed_by_itself_is_the_culprit() -> None:
    decision = after(TRAINED, Exit(0, 75), Exit(1, -11), Exit(2, 1))
    assert decision.culprit == Exit(1, -11)
    assert "Worker 1 was killed by SIGSEGV" in decision.reason
    # A script that a shell runs.
    told = (
        "Worker 0 ended with status 137 (usually killed by SIGKILL, often because memory ran out)"
    )
    assert told in after(TRAINED, Exit(0, 137)).reason


def test_the_last_heartbeat_tells_who_lost_another_whatever_the_status() -> None:
    lost = Exit(0, 138, Ending.PEER_LOST)
    assert after(TRAINED, lost, Exit(1, -11)).culprit == Exit(1, -11)
    assert after(FRESH, lost).next is Next.RESTART
    chosen = Exit(0, 75, Ending.FAILED)
    assert after(TRAINED, chosen, Exit(1, -11)).culprit == chosen


@pytest.mark.parametrize("code", [0, 143, 138])
def test_a_preempted_worker_is_no_culprit_whatever_its_status(code: int) -> None:
    exits = (Exit(0, code, Ending.PREEMPTED), Exit(1, code, Ending.PREEMPTED))
    assert after(TRAINED, *exits).next is Next.STOP


@pytest.mark.parametrize("code", [1, 2, -11, -6])
def test_a_first_start_that_fails_at_once_is_final(code: int) -> None:
    assert after(FRESH, Exit(0, code)).next is Next.FAIL


@pytest.mark.parametrize("code", [75, -9, -15])
def test_being_killed_at_once_is_not_the_scripts_fault(code: int) -> None:
    assert after(FRESH, Exit(0, code)).next is Next.RESTART


def test_a_script_without_heartbeats_that_worked_for_long_is_restarted() -> None:
    long = replace(FRESH, seconds=AT_ONCE_SECONDS)
    first = after(long, Exit(0, 1))
    assert first.next is Next.RESTART
    assert after(long, Exit(0, 1), history=first.history).next is Next.RESTART


def failed(index: int = 0, place: str = "a.py:3", error: str = "KeyError: 1") -> Exit:
    return Exit(index, 1, Ending.FAILED, fault=ScriptFault(place=place, error=error))


NOT_COUNTED = Exit(0, -9, out_of_memory=OutOfMemory.ON_HOST)


@pytest.mark.parametrize("stepped", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "is_final"),
    [
        (failed(), failed(), True),
        # Another worker, and another key: it is the same line.
        (failed(), failed(1, error="KeyError: 'b'"), True),
        (failed(), failed(place="a.py:4"), False),
        (failed(), failed(error="OSError: no such file"), False),
        (Exit(0, 1, detail="ValueError"), Exit(1, 1, detail="ValueError"), True),
        (Exit(0, 1, detail="ValueError"), Exit(0, 1, detail="OSError"), False),
        (Exit(0, -11), Exit(0, -11), True),
        # The machine, or a person.
        (Exit(0, -9), Exit(0, -9), False),
        (Exit(0, 75, Ending.PEER_LOST), Exit(0, 75, Ending.PEER_LOST), False),
        (NOT_COUNTED, NOT_COUNTED, False),
        (
            Exit(0, -9, out_of_memory=OutOfMemory.COUNTED),
            Exit(1, -9, out_of_memory=OutOfMemory.COUNTED),
            True,
        ),
    ],
)
def test_the_same_cause_twice_without_a_new_checkpoint_is_final(
    first: Exit, second: Exit, is_final: bool, stepped: bool
) -> None:
    trained = replace(TRAINED, stepped=stepped)
    decision = after(replace(trained, saved=stepped), first)
    assert decision.next is Next.RESTART
    # What comes in between changes nothing.
    killed = after(trained, Exit(1, -9), history=decision.history)
    for history in (decision.history, killed.history):
        told = after(trained, second, history=history)
        assert (told.next is Next.FAIL) == is_final
        assert (told.verdict == REPEATED) == is_final
        saved = after(replace(trained, saved=True), second, history=history)
        assert saved.next is Next.RESTART


def test_a_port_taken_in_between_is_tried_again_without_a_pause() -> None:
    clash = Exit(0, 1, port_taken=True)
    history = EarlierAttempts(restarts=2)
    for _ in range(3):
        decision = after(FRESH, clash, history=history)
        assert (decision.next, decision.pause_seconds) == (Next.RESTART, 0)
        history = decision.history
        assert history.restarts == 2
    assert after(FRESH, clash, history=history).next is Next.FAIL


def test_a_fixed_port_taken_in_between_is_final() -> None:
    decision = after(FRESH, Exit(0, 1, port_taken=True), limits=replace(LIMITS, fixed_ports=True))
    assert decision.next is Next.FAIL
    assert "Launch again with other ports" in decision.reason


def test_a_silent_worker_is_lost_only_beside_others_that_speak() -> None:
    late = Attempt(workers=3, seconds=100.0)
    assert decide(late, EarlierAttempts(), LIMITS).next is Next.WAIT
    heard = replace(late, heard=frozenset({0, 2}))
    decision = decide(heard, EarlierAttempts(), LIMITS)
    assert (decision.next, decision.lost) == (Next.RESTART, 1)
    assert decide(replace(heard, seconds=99.0), EarlierAttempts(), LIMITS).next is Next.WAIT
    assert decide(replace(heard, exits=(Exit(1, 0),)), EarlierAttempts(), LIMITS).next is Next.WAIT


@given(
    codes=st.lists(st.sampled_from([0, 1, 75, -9, -11]), min_size=1, max_size=4),
    seconds=st.floats(0, 1e6),
    stepped=st.booleans(),
    heard=st.booleans(),
    saved=st.booleans(),
    limit=st.integers(0, 5),
    used=st.integers(0, 5),
)
def test_restarts_are_never_more_than_allowed(
    codes, seconds, stepped, heard, saved, limit, used
) -> None:
    attempt = Attempt(
        workers=len(codes),
        seconds=seconds,
        exits=tuple(Exit(index, code) for index, code in enumerate(codes)),
        heard=frozenset(range(len(codes))) if heard else frozenset(),
        stepped=stepped,
        saved=saved,
    )
    earlier = EarlierAttempts(restarts=used, in_a_row=used)
    decision = decide(attempt, earlier, Limits(max_restarts=limit))
    assert decision.next is not Next.WAIT
    assert (decision.next is Next.FINISH) == (not any(codes))
    assert decision.reason.endswith(".")
    if decision.next is Next.RESTART:
        assert 1 <= decision.history.restarts <= limit


@given(st.integers(1, 10_000), st.floats(0, 1e3))
def test_pauses_grow_up_to_the_longest(restart: int, base: float) -> None:
    pause = pause_before(restart, base)
    assert 0 <= pause <= pause_before(restart + 1, base) <= LONGEST_PAUSE_SECONDS
