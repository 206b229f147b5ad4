"""A replay: what a guard would have done in a recorded history."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tfckpt_trainer.guards.guard import Guard
from tfckpt_trainer.guards.replay import Replay, replay
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint

Entry = EventEntry | SeriesPoint


class History:
    """Records points and events, one a second."""

    def __init__(self) -> None:
        self.series: list[SeriesPoint] = []
        self.events: list[EventEntry] = []

    @property
    def _now(self) -> float:
        return float(len(self.series) + len(self.events))

    def train(self, first: int, losses: Iterable[float | None]) -> History:
        for step, loss in enumerate(losses, first):
            metrics = {"loss": loss, "noise": 1.0}
            self.series.append(
                SeriesPoint(at=self._now, step=step, branch=0, metrics=metrics, step_seconds=0.1)
            )
        return self

    def note(
        self, kind: EventKind, step: int, checkpoint: str | None = None, **details: object
    ) -> History:
        entry = EventEntry(
            at=self._now, kind=kind, message="", step=step, checkpoint=checkpoint, details=details
        )
        self.events.append(entry)
        return self

    def replay(self, text: str) -> Replay:
        return replay(Guard.parse(text), self.series, self.events)


def flat(count: int) -> list[float]:
    return [2.0 + 0.01 * (step % 7) for step in range(count)]


def test_a_spike_is_found_with_the_checkpoint_to_go_back_to() -> None:
    history = History().train(1, flat(60)).note(EventKind.SAVE, 60, "ckpt-60")
    history.train(61, flat(20)).note(EventKind.SAVE, 80, "ckpt-80").train(81, [9.0, *flat(5)])
    found = history.replay("spike loss: skip_batches 5, go_back")
    (fired,) = found.firings
    assert (fired.firing.step, fired.checkpoint) == (81, "ckpt-80")
    assert fired.actions == ("go_back", "skip_batches 5")
    assert (found.points, found.first_step, found.last_step) == (86, 1, 86)
    (fired,) = history.replay("spike loss: go_back 20").firings
    assert fired.checkpoint == "ckpt-60"
    (fired,) = history.replay("spike loss: go_back 30").firings
    assert fired.actions == ("pause: no checkpoint is known from before step 51",)


def test_none_stands_for_nan_and_events_tell_of_steps_between_points() -> None:
    history = History().train(1, [1.0, None, 1.0])
    assert [f.firing.step for f in history.replay("not_finite loss: notify").firings] == [2]
    history = History().train(1, [1.0, 1.0])
    history.note(EventKind.NOT_FINITE, 2, metrics={"loss": "nan", "norm": "inf"})
    (fired,) = history.replay("not_finite norm: notify").firings
    assert (fired.firing.step, fired.firing.evidence.what) == (2, "norm is inf")
    values = {"loss": 91.5, "median": 2.0, "noise": "high"}
    history = History().train(1, [1.0, 1.0]).note(EventKind.GUARD, 2, values=values)
    (fired,) = history.replay("above loss 2: notify").firings
    assert fired.firing.evidence.what == "loss is 91.5, above 2"
    assert "No metric median is recorded" in history.replay("above median 1: notify").why_not


@pytest.mark.parametrize(
    "details", [{}, {"metrics": 3}, {"metrics": ["loss"]}, {"metrics": {"loss": ["nan"]}}]
)
def test_details_of_an_event_are_not_trusted(details: dict[str, object]) -> None:
    history = History().train(1, [1.0]).note(EventKind.NOT_FINITE, 2, **details)
    assert history.replay("not_finite: notify").firings == ()


@pytest.mark.parametrize("is_recorded", [True, False])
def test_it_goes_back_where_training_did(is_recorded: bool) -> None:
    history = History().train(1, [1.0, 2.0, None])
    history.note(EventKind.SAVE, 3, "ckpt-3")
    if is_recorded:
        history.note(EventKind.RESTORE, 1, "ckpt-1")
    history.train(2, [2.0, None])
    fired = history.replay("not_finite loss: go_back").firings
    assert [one.firing.step for one in fired] == [3, 3]
    # The checkpoint of a line that was left is not one to go back to.
    assert [one.checkpoint for one in fired] == [None, None]


def test_after_its_limit_it_pauses() -> None:
    history = History()
    for _ in range(3):
        history.note(EventKind.RESTORE, 5).train(6, [1.0, None])
    first, second, third = history.replay("not_finite: set x 1; at most 2").firings
    assert first.actions == second.actions == ("set x 1",)
    assert third.actions == ("pause: it fired 2 times before",)


def test_a_start_begins_with_an_empty_window() -> None:
    history = History().train(1, flat(60)).note(EventKind.START, 60).train(61, [9.0])
    assert history.replay("spike loss: notify").firings == ()
    history = History().train(1, flat(60)).note(EventKind.RESTORE, 60).train(61, [9.0])
    assert len(history.replay("spike loss: notify").firings) == 1


def test_time_without_a_checkpoint_counts_from_the_last_save() -> None:
    history = History().note(EventKind.START, 0).train(1, flat(30))
    history.note(EventKind.SAVE, 30, "ckpt-30").train(31, flat(130))
    (fired,) = history.replay("no_checkpoint 2m: notify").firings
    assert fired.firing.step == 151
    assert history.replay("no_checkpoint 3m: notify").firings == ()


def test_a_pause_is_no_time_without_a_checkpoint() -> None:
    history = History().note(EventKind.START, 0).train(1, flat(30))
    history.note(EventKind.SAVE, 30, "ckpt-30").train(31, flat(5)).note(EventKind.PAUSE, 35)
    for _ in range(500):
        history.note(EventKind.NOTE, 35)
    history.note(EventKind.RESUME, 35).train(36, flat(130))
    (fired,) = history.replay("no_checkpoint 2m: notify").firings
    assert fired.firing.step > 145


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("disk_full 2h: pause", "Free disk space is not recorded, so disk_full cannot be replayed"),
        ("spike loss: pause", "3 points are recorded; spike with a window of 200 needs 50"),
        ("above val_loss 3: pause", "No metric val_loss is recorded. The metrics are: loss, noise"),
    ],
)
def test_what_was_not_recorded_cannot_be_replayed(rule: str, why: str) -> None:
    assert why in History().train(1, flat(3)).replay(rule).why_not
    assert "No metrics of tfckpt_trainer" in History().replay(rule).why_not
