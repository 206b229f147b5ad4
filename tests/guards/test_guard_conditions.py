"""Conditions of guards: what each finds, what none finds, and what a restore forgets."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.guards import (
    Action,
    Condition,
    Evidence,
    GoBack,
    Guard,
    NoCheckpoint,
    NoImprovement,
    Notify,
    Scale,
    Set,
    SkipBatches,
    Spike,
    StepReading,
)
from tfckpt_trainer.guards.actions import ACTIONS
from tfckpt_trainer.guards.conditions import CONDITIONS
from tfckpt_trainer.guards.moving_window import MovingWindow
from tfckpt_trainer.guards.watch import Firing, GuardWatch
from weekly import tries

NAN = math.nan


def readings(values: Iterable[float], first: int = 1, metric: str = "loss") -> list[StepReading]:
    return [
        StepReading(step=step, at=float(step), metrics={metric: value})
        for step, value in enumerate(values, first)
    ]


def fired(text: str, steps: Iterable[StepReading]) -> list[Firing]:
    watch = GuardWatch([Guard.parse(f"{text}: notify")])
    return [firing for step in steps for firing in watch.step_done(step)]


def noise(seed: int, count: int = 1000, scale: float = 1.0, offset: float = 0.0) -> list[float]:
    source = random.Random(seed)
    return [offset + scale * source.gauss(0.0, 1.0) for _ in range(count)]


names = st.text(min_size=1, max_size=20).filter(lambda name: name.isprintable())
numbers = st.floats(allow_nan=False, allow_infinity=False)
above_zero = st.floats(min_value=1e-9, max_value=1e9)
limited = st.integers(min_value=1, max_value=10**6)
conditions = st.one_of(
    st.builds(Spike, names, above_zero, st.integers(20, 1000)),
    st.builds(NoImprovement, names, limited, st.sampled_from(["min", "max"])),
    st.builds(NoCheckpoint, above_zero),
    *(st.builds(kind, names) for kind in CONDITIONS if kind.name == "not_finite"),
    *(st.builds(kind, names, numbers) for kind in CONDITIONS if kind.name in {"above", "below"}),
    *(st.builds(kind, above_zero) for kind in CONDITIONS if kind.name == "slow_steps"),
)
actions: st.SearchStrategy[Action] = st.one_of(
    st.just(Notify()),
    st.builds(GoBack, st.integers(0, 10**6)),
    st.builds(SkipBatches, limited),
    st.builds(Set, names, numbers),
    st.builds(Scale, names, numbers),
)
guards = st.builds(
    Guard, conditions, st.lists(actions, min_size=1, max_size=4), st.none() | limited
)


@given(guards)
@tries(200)
def test_the_text_of_a_guard_reads_back_to_it(guard: Guard) -> None:
    assert Guard.parse(str(guard)) == guard
    assert str(Guard.parse(str(guard))) == str(guard)


@given(st.text(max_size=60))
@example('spike "\\ud800": notify')
@example("not_finite: scale x 1e999")
@tries(200)
def test_any_text_is_a_guard_or_an_error_of_usage(text: str) -> None:
    with suppress(UsageError):
        guard = Guard.parse(text)
        assert Guard.parse(str(guard)) == guard


@pytest.mark.parametrize("kind", [*CONDITIONS, *ACTIONS], ids=lambda kind: kind.name)
def test_the_example_of_a_class_is_a_text_of_it(kind: type[Condition] | type[Action]) -> None:
    is_condition = issubclass(kind, Condition)
    guard = Guard.parse(
        f"{kind.example}: notify" if is_condition else f"not_finite: {kind.example}"
    )
    assert isinstance(guard.condition if is_condition else guard.actions[0], kind)


@given(st.lists(st.floats(-1e6, 1e6), min_size=51, max_size=51), st.floats(0.1, 20.0))
@tries(200)
def test_a_spike_is_what_median_and_mad_say(values: list[float], deviations: float) -> None:
    *window, value = values
    median = statistics.median(window)
    mad = 1.4826 * statistics.median(abs(one - median) for one in window)
    deviation = max(mad, 2.0**-23 * max(abs(median), abs(value)))
    above = (value - median) / deviation if deviation else 0.0
    assume(not math.isclose(above, deviations, rel_tol=1e-6))
    condition = Spike("loss", deviations, window=50)
    evidence = [condition.look(reading) for reading in readings(values)][-1]
    assert (evidence is not None) == (above > deviations)


@given(
    seed=st.integers(0, 10**6),
    scale=st.floats(1e-4, 1e4),
    offset=st.floats(-1e3, 1e3),
    at=st.integers(60, 380),
)
@tries(30)
def test_a_spike_is_found_whatever_scale_and_offset(
    seed: int, scale: float, offset: float, at: int
) -> None:
    values = noise(seed, 400, scale, offset * scale)
    values[at] = offset * scale + 20 * scale
    (firing,) = fired("spike loss", readings(values))
    assert firing.step == at + 1
    assert firing.evidence.values["loss"] == values[at]
    assert len(firing.evidence.window) == min(at, 200)


@given(seed=st.integers(0, 10**6), scale=st.floats(1e-4, 1e4), offset=st.floats(-1e3, 1e3))
@tries(30)
def test_normal_noise_has_no_spike(seed: int, scale: float, offset: float) -> None:
    assert fired("spike loss", readings(noise(seed, 1000, scale, offset))) == []


def test_normal_noise_has_hardly_a_spike_in_the_smallest_window() -> None:
    firings = [fired("spike loss window=20", readings(noise(seed, 40))) for seed in range(1000)]
    assert sum(map(len, firings)) <= 2


@given(
    start=st.floats(-1e3, 1e3),
    drop=st.floats(0.0, 1e3),
    length=st.floats(1.0, 1e4),
    slope=st.floats(0.0, 1.0),
)
@tries(30)
def test_constant_and_falling_curves_have_no_spike(
    start: float, drop: float, length: float, slope: float
) -> None:
    values = [start + drop * math.exp(-step / length) - slope * step for step in range(600)]
    assert fired("spike loss", readings(values)) == []


@given(st.floats(-1e6, 1e6), st.lists(st.integers(-1, 1), min_size=300, max_size=300))
@tries(50)
def test_the_rounding_of_a_constant_is_no_spike(value: float, errors: list[int]) -> None:
    values = [value * (1 + error * 2.0**-24) for error in errors]
    assert fired("spike loss", readings(values)) == []


def test_a_spike_above_a_constant_is_found() -> None:
    (firing,) = fired("spike loss", readings([*[0.0] * 100, 1e-3, *[0.0] * 100]))
    assert firing.step == 101
    assert fired("spike loss", readings([*[5.0] * 100, 5.1]))


def test_nan_and_infinities_do_not_change_what_is_a_spike() -> None:
    values = noise(1, 300)
    values[50:100] = [NAN] * 25 + [math.inf] * 25
    assert fired("spike loss", readings(values)) == []
    (firing,) = fired("spike loss", readings([*values, 50.0]))
    assert len(firing.evidence.window) == 200
    assert all(map(math.isfinite, firing.evidence.window))


def test_a_spike_needs_a_quarter_of_the_window() -> None:
    assert fired("spike loss", readings([*noise(2, 49), 1e6])) == []
    assert len(fired("spike loss", readings([*noise(2, 50), 1e6]))) == 1


def test_the_evidence_of_a_spike_says_how_far_it_is() -> None:
    (firing,) = fired("spike loss", readings([*[1.0, 2.0, 3.0] * 40, 91.25]))
    assert firing.evidence.what == (
        "loss is 91.25, 60.2 deviations above 2, the median of 120 steps"
    )


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=100),
    st.lists(st.floats(-1e3, 1e3), max_size=100),
    st.integers(5, 40),
)
@tries(200)
def test_a_window_that_went_back_is_as_it_was(
    before: list[float], after: list[float], size: int
) -> None:
    """Not at once, as older values left it, but when it is where it went back from."""
    window, unmoved = MovingWindow(size), MovingWindow(size)
    for step, value in enumerate([*before, *after]):
        window.add(step, value)
    window.forget_after(len(before) - 1)
    for step, value in enumerate([*before, *after]):
        unmoved.add(step, value)
        if step >= len(before):
            window.add(step, value)
    assert window.values == unmoved.values
    assert not window.values or window.median == unmoved.median


def test_the_same_spike_is_found_again_after_going_back() -> None:
    values = [*noise(3, 300), 60.0]
    watch = GuardWatch([Guard.parse("spike loss: go_back")])
    steps = readings(values)
    first = [firing for step in steps for firing in watch.step_done(step)]
    watch.restored(260)
    second = [firing for step in steps[260:] for firing in watch.step_done(step)]
    assert [firing.step for firing in first] == [firing.step for firing in second] == [301]
    # The spike took the place of the oldest value.
    assert second[0].evidence.window == first[0].evidence.window[1:]


def test_no_improvement_counts_from_the_best() -> None:
    values = [3.0, 2.0, 1.0, *[1.5] * 20]
    (firing,) = fired("no_improvement loss steps=10", readings(values))
    assert (firing.step, firing.evidence.began) == (13, 4)
    assert firing.evidence.what == "loss is 1.5; it was best at step 3, with 1"
    assert fired("no_improvement loss steps=10", readings([-value for value in values]))
    assert not fired("no_improvement loss steps=10 mode=max", readings(range(50)))
    assert fired("no_improvement loss steps=10", readings(range(50)))
    for mode in ("min", "max"):
        assert fired(f"no_improvement loss steps=10 mode={mode}", readings([1.0] * 50))


def test_no_improvement_counts_from_a_restore() -> None:
    watch = GuardWatch([Guard.parse("no_improvement loss steps=10: go_back")])
    values = [3.0, 2.0, 1.0, *[1.5] * 10]
    assert [f.step for r in readings(values) for f in watch.step_done(r)] == [13]
    watch.restored(2)
    again = readings([1.8, *[1.9] * 20], first=3)
    (firing,) = [f for r in again for f in watch.step_done(r)]
    assert (firing.step, firing.evidence.values["best_step"]) == (13, 3)


def test_nan_is_no_improvement() -> None:
    assert fired("no_improvement loss steps=10", readings([1.0, *[NAN] * 20])) == []
    (firing,) = fired("no_improvement loss steps=10", readings([1.0, *[NAN] * 20, 2.0]))
    assert firing.evidence.values == {"loss": 2.0, "best": 1.0, "best_step": 1}


def test_bounds_are_compared() -> None:
    assert [f.step for f in fired("above loss 2", readings([1.0, 2.0, 2.5, NAN]))] == [3]
    assert [f.step for f in fired("below loss -1", readings([1.0, -1.0, -1.5]))] == [3]
    (firing,) = fired("above loss 2", readings([math.inf]))
    assert firing.evidence.what == "loss is inf, above 2"
    assert firing.evidence.values == {"loss": "inf"}
    assert fired("above loss 2", readings([3.0], metric="accuracy")) == []


def test_slow_steps_are_several() -> None:
    times = [0.1] * 100 + [5.0] * 9 + [0.1] * 10 + [0.4] * 10
    steps = [
        StepReading(step=step, at=float(step), seconds=seconds)
        for step, seconds in enumerate(times, 1)
    ]
    (firing,) = fired("slow_steps", steps)
    assert (firing.step, firing.evidence.began) == (129, 120)
    unknown = [step._replace(seconds=None) for step in steps]
    assert fired("slow_steps", unknown) == []


def test_time_without_a_checkpoint_and_a_full_disk() -> None:
    step = StepReading(step=1, at=10_000.0)
    assert fired("no_checkpoint 2h", [step, step._replace(saved_at=2800.0)]) == []
    (firing,) = fired("no_checkpoint 2h", [step._replace(saved_at=2000.0)])
    assert firing.evidence.what == "no checkpoint was saved for 2.22 h"
    assert fired("disk_full 30m", [step, step._replace(disk_full_in=1800.0)]) == []
    (firing,) = fired("disk_full 30m", [step._replace(disk_full_in=90.0)])
    assert firing.evidence.what == "the disk will be full in 1.50 min"


@dataclass
class HighRatio(Condition):
    """One metric is far above another: a condition of a script."""

    most: float = 2.0

    def look(self, reading: StepReading) -> Evidence | None:
        """Compares both."""
        ratio = reading.metrics["val_loss"] / reading.metrics["loss"]
        if ratio <= self.most:
            return None
        return Evidence(what=f"val_loss is {ratio:.3g} times loss", began=reading.step)


def test_evidence_is_one_that_json_can_hold() -> None:
    found = Evidence(
        what="x",
        began=3,
        values={"a": NAN, "b": np.float32(0.5), "c": -math.inf, "d": "text"},
        window=np.array([*range(300), NAN]),  # type: ignore[arg-type]
    )
    assert found.values == {"a": "NaN", "b": 0.5, "c": "-inf", "d": "text"}
    assert found.window == [float(value) for value in range(100, 300)]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Evidence) == found


def test_a_condition_of_a_script_is_one_class() -> None:
    guard = Guard(HighRatio(most=3.0), [Notify()])
    assert str(guard) == "high_ratio 3: notify"
    with pytest.raises(UsageError, match="most is 'x'; it must be a value of type float"):
        HighRatio(most="x")  # type: ignore[arg-type]
    step = StepReading(step=7, at=0.0, metrics={"loss": 1.0, "val_loss": 4.0})
    (firing,) = GuardWatch([guard]).step_done(step)
    assert firing.evidence.what == "val_loss is 4 times loss"
    with pytest.raises(UsageError, match="'high_ratio' is no condition"):
        Guard.parse(str(guard))
