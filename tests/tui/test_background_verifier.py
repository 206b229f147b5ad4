from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest
from rundir_factory import two_branches

from tfckpt_tui.monitor import background_verifier
from tfckpt_tui.monitor.background_verifier import BackgroundVerifier, VerificationOutcome
from waiting import MOST_SECONDS, wait_until


def test_one_that_was_cancelled_while_it_reports_progress_can_be_requested_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: queue.Queue[VerificationOutcome] = queue.Queue()
    verifier = BackgroundVerifier(two_branches(tmp_path / "run").run, outcomes.put)
    progress = background_verifier.VerificationProgress
    cancels = []

    def cancelled_meanwhile(name, done, total, seconds):
        if done and not cancels:
            cancel = threading.Thread(target=verifier.cancel)
            cancel.start()
            cancels.append(cancel)
            # A cancel that has to wait for the report ends after it.
            cancel.join(0.2)
        return progress(name, done, total, seconds)

    monkeypatch.setattr(background_verifier, "VerificationProgress", cancelled_meanwhile)
    verifier.request("ckpt-100")
    wait_until(lambda: cancels, 10, "the first report")
    cancels[0].join()
    wait_until(lambda: not verifier.is_busy, 10, "the cancel")
    wait_until(
        lambda: not any(t.name == "verify" for t in threading.enumerate()), 10, "the first thread"
    )
    assert verifier.reading is None
    verifier.request("ckpt-100")
    assert outcomes.get(timeout=60).name == "ckpt-100"


def test_one_that_is_requested_is_not_read_again_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: queue.Queue[VerificationOutcome] = queue.Queue()
    verifier = BackgroundVerifier(two_branches(tmp_path / "run").run, outcomes.put)
    may_end = threading.Event()
    make = background_verifier.Verifier

    def waiting(run, *, only, into_run):
        if only == {"ckpt-100"}:
            may_end.wait(MOST_SECONDS)
        return make(run, only=only, into_run=into_run)

    monkeypatch.setattr(background_verifier, "Verifier", waiting)
    for name in ("ckpt-100", "ckpt-200", "ckpt-300"):
        verifier.add_when_idle(name)
    verifier.request("ckpt-200")
    found = [outcomes.get(timeout=60)]
    may_end.set()
    found += [outcomes.get(timeout=60) for _ in range(2)]
    assert [(one.name, one.requested) for one in found] == [
        ("ckpt-200", True),
        ("ckpt-100", False),
        ("ckpt-300", False),
    ]
