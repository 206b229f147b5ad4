"""A signal does not come between the start of a process and the code that ends it."""

from __future__ import annotations

import signal
import threading

import pytest

from tfckpt_trainer.machine.held_signals import hold_signals


@pytest.fixture
def ended_by_exceptions():
    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    yield end
    signal.signal(signal.SIGTERM, before)


def test_a_block_is_done_before_a_signal_ends_it(ended_by_exceptions) -> None:
    done = []

    def block() -> None:
        with hold_signals():
            signal.raise_signal(signal.SIGTERM)
            done.append("the block")

    with pytest.raises(SystemExit, match=r"^143$"):
        block()
    assert done == ["the block"]
    assert signal.getsignal(signal.SIGTERM) is ended_by_exceptions


def test_an_error_of_the_block_gives_the_handlers_back(ended_by_exceptions) -> None:
    with pytest.raises(ValueError, match="wrong"), hold_signals():
        raise ValueError("wrong")
    assert signal.getsignal(signal.SIGTERM) is ended_by_exceptions


def test_signals_that_are_ignored_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with hold_signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_need_no_hold() -> None:
    entered = threading.Event()

    def enter() -> None:
        with hold_signals():
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(60)
    assert entered.is_set()
