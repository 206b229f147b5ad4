"""Guards: their texts, when they fire, and what they ask for. None needs TensorFlow."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from documentation import DOCS
from tfckpt_trainer.errors import RefusedError, UsageError
from tfckpt_trainer.guards import (
    Evidence,
    GoBack,
    Guard,
    NotFinite,
    Pause,
    Scale,
    StepReading,
)
from tfckpt_trainer.guards.actions import ACTIONS
from tfckpt_trainer.guards.conditions import CONDITIONS
from tfckpt_trainer.guards.watch import OVER_AFTER, GuardWatch, begun_conditions
from tfckpt_trainer.rundir.records.command import (
    CommandArguments,
    PauseArguments,
    RestoreArguments,
    SaveArguments,
    SetArguments,
    SkipArguments,
    StopArguments,
)
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind
from tfckpt_trainer.rundir.records.hyperparameter import Bounds, Hyperparameter

NAN = math.nan


def reading(step: int, **metrics: float) -> StepReading:
    return StepReading(step=step, at=1000.0 + step, seconds=0.1, metrics=metrics)


@dataclass
class Run:
    """A run in which a guard fired."""

    began: int = 51
    step: int = 60
    checkpoints: list[int] = field(default_factory=lambda: [20, 40, 50])
    reads_input: bool = True

    @property
    def evidence(self) -> Evidence:
        return Evidence(what="loss is NaN", began=self.began)

    @property
    def hyperparameters(self) -> Mapping[str, Hyperparameter]:
        rate = Hyperparameter(
            name="learning_rate", value=0.1, script_value=0.2, bounds=Bounds(low=0.0)
        )
        crop = Hyperparameter(name="crop", value=33, script_value=33, bounds=Bounds(whole=True))
        return {"learning_rate": rate, "crop": crop}

    def newest_good(self, before: int) -> str | None:
        steps = [step for step in self.checkpoints if step < before]
        return f"ckpt-{steps[-1]}" if steps else None


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("not_finite *: notify", []),
        ("not_finite: save, stop", [SaveArguments(), StopArguments(save=False)]),
        ("not_finite: pause, save", [SaveArguments(), PauseArguments()]),
        ("not_finite: go_back", [RestoreArguments(name="ckpt-50")]),
        ("not_finite: go_back 10", [RestoreArguments(name="ckpt-40")]),
        (
            "not_finite: set crop 4, go_back, scale learning_rate 0.5",
            [
                RestoreArguments(name="ckpt-50"),
                SetArguments(values={"crop": 4.0}),
                SetArguments(values={"learning_rate": 0.05}),
            ],
        ),
        (
            "not_finite: skip_batches 10, go_back",
            [RestoreArguments(name="ckpt-50"), SkipArguments(batches=10, at_step=50)],
        ),
        ("not_finite: scale crop 0.5", [SetArguments(values={"crop": 16.0})]),
    ],
)
def test_actions_ask_for_commands_in_a_fixed_order(
    text: str, asked: list[CommandArguments]
) -> None:
    assert Guard.parse(text).commands(Run()) == asked


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not_finite: go_back 40", "There is no good checkpoint from before step 11."),
        ("not_finite: set beta 1", "There is no hyperparameter beta. The run has: learning_rate"),
        ("not_finite: set learning_rate -1", "learning_rate cannot be -1; it must be a number, at"),
    ],
)
def test_an_action_that_is_not_possible_says_why(text: str, said: str) -> None:
    with pytest.raises((RefusedError, UsageError), match=said):
        Guard.parse(text).commands(Run())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "A condition is missing. Write one of: not_finite"),
        ("not_finit: stop", "'not_finit' is no condition. Write one of: not_finite"),
        ("not_finite", "An action is missing"),
        ("not_finite:", "An action is missing"),
        ("not_finite: stop,", "An action is missing. Write one of: notify, save"),
        ("not_finite: halt", "'halt' is no action. Write one of: notify, save"),
        ("not_finite a b: stop", "'b' does not fit. Write not_finite [METRIC], such as"),
        ("not_finite metric=a metric=b: stop", "'metric=b' does not fit"),
        ("not_finite layer:0: stop", "it has two :. Put a name that has one into double quotes"),
        ('not_finite "a: stop', "is no text in quotes"),
        ("not_finite: go_back -1", "go_back: steps is '-1'; it must be a whole number of steps"),
        (f"not_finite: go_back {10**20}", "it must be a whole number of steps from 0 to 10^15"),
        ("not_finite: scale x half", "scale: factor is 'half'; it must be a number"),
        ("not_finite: scale x nan", "scale: factor is 'nan'; it must be a number"),
        ("not_finite: scale x", "scale has no FACTOR. Write scale HYPERPARAMETER FACTOR, such as"),
        ("not_finite: go_back; 3", "After ; it has '3'; write at most N"),
        ("not_finite: go_back; at most 0", "at most is 0; it must be at least 1"),
        ("not_finite: go_back; at most 1; at most 2", "it has two ;"),
        ("not_finite: pause, stop", "A guard cannot pause and stop"),
        *(
            pytest.param(text + "1" * 5000 + rest, said, id=text)
            for text, rest, said in [
                ("not_finite: pause; at most ", "", "write at most N"),
                ("no_improvement loss steps=", ": pause", "it must be a whole number of steps"),
                ("above loss ", ": pause", "it must be a number"),
            ]
        ),
    ],
)
def test_a_wrong_text_says_what_is_expected_with_an_example(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        Guard.parse(text)
    assert said in str(error.value)
    assert "such as 'spike loss deviations=8: go_back, skip_batches 10; at most 3'" in str(
        error.value
    )
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("condition", "actions"), [("not_finite", [Pause()]), (NotFinite(), "pause"), (Pause(), [])]
)
def test_parts_that_are_none_are_refused(condition: object, actions: object) -> None:
    with pytest.raises(UsageError, match="is no guard; pass a condition and a list of actions"):
        Guard(condition, actions)  # type: ignore[arg-type]


def test_values_of_python_are_checked_as_those_of_texts_are() -> None:
    with pytest.raises(UsageError, match="it must be a whole number of steps"):
        GoBack(0.5)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not_finite: metric is 3; it must be the name"):
        NotFinite(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("not_finite *:notify", "not_finite: notify"),
        ("not_finite  metric=loss : go_back  steps=5 ;at most 3", "not_finite loss: go_back 5"),
        ('not_finite "loss": pause', "not_finite loss: pause"),
        ('not_finite "a b:c" : pause', 'not_finite "a b:c": pause'),
        ("not_finite: go_back,set a 1e-5", "not_finite: go_back, set a 1e-05"),
        ("not_finite: notify; at most 2", "not_finite: notify; at most 2"),
    ],
)
def test_texts_have_one_canonical_form(text: str, canonical: str) -> None:
    assert str(Guard.parse(text)) == canonical
    assert Guard.parse(canonical) == Guard.parse(text)


def test_guards_that_change_training_have_a_limit() -> None:
    assert Guard.parse("not_finite: go_back").at_most == 3
    assert Guard.parse("not_finite: save, pause").at_most is None
    assert Guard(NotFinite(), [Scale("learning_rate", 0.5), Pause()], at_most=7).at_most == 7


def test_a_guard_fires_when_its_condition_begins() -> None:
    watch = GuardWatch([Guard.parse("not_finite: notify"), Guard.parse("not_finite b: notify")])
    assert watch.step_done(reading(1, loss=1.0)) == []
    (firing,) = watch.step_done(reading(2, loss=NAN, b=1.0))
    assert (firing.rule, firing.step) == ("not_finite: notify", 2)
    assert firing.evidence == Evidence(what="loss is NaN", began=2, values={"loss": "NaN"})
    (other,) = watch.step_done(reading(3, loss=NAN, b=math.inf))
    assert other.evidence.values == {"b": "inf"}
    assert watch.step_done(reading(4, loss=NAN, b=NAN)) == []


def test_it_fires_again_after_steps_without_it() -> None:
    watch = GuardWatch([Guard.parse("not_finite loss: notify")])
    assert watch.step_done(reading(1, loss=NAN))
    for step in range(2, OVER_AFTER + 1):
        assert watch.step_done(reading(step, loss=1.0)) == []
    assert watch.step_done(reading(OVER_AFTER + 1, loss=NAN)) == []
    for step in range(OVER_AFTER):
        # Steps that do not report the metric say nothing about it.
        assert watch.step_done(reading(100 + step, accuracy=1.0)) == []
    assert watch.step_done(reading(200, loss=NAN)) == []
    for step in range(OVER_AFTER):
        assert watch.step_done(reading(300 + step, loss=1.0)) == []
    assert watch.step_done(reading(400, loss=NAN))


def test_it_fires_again_after_a_restore() -> None:
    watch = GuardWatch([Guard.parse("not_finite: notify")])
    assert watch.step_done(reading(5, loss=NAN))
    watch.restored(3)
    assert watch.step_done(reading(4, loss=NAN))
    # This restore is to a step in which it held already.
    watch.restored(4)
    assert watch.step_done(reading(5, loss=NAN)) == []


def test_it_does_not_fire_for_what_fired_on_another_worker() -> None:
    watch = GuardWatch([Guard.parse("not_finite: notify")])
    (firing,) = GuardWatch([Guard.parse("not_finite: notify")]).step_done(reading(5, loss=NAN))
    watch.fired(firing)
    assert watch.step_done(reading(5, loss=NAN)) == []


def test_the_page_on_guards_has_all_of_them_and_its_texts_are_guards() -> None:
    page = (DOCS / "how-to" / "guards.md").read_text()
    rows = [line.partition(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    named = [text.split()[0] for row in rows for text in re.findall(r"`([^`]+)`", row)]
    assert named == [term.name for term in (*CONDITIONS, *ACTIONS)]
    (settings,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    shown = [*tomllib.loads(settings)["guards"], *re.findall(r'--\w+ "(.*?)"', page)]
    assert [str(Guard.parse(text)) for text in shown if text] == [
        "no_checkpoint 2h: notify",
        "no_improvement val_loss steps=5000: save, stop",
        "spike loss: go_back, skip_batches 10",
        "spike loss: go_back, skip_batches 10",
    ]
    for term in CONDITIONS:
        if " deviations=" in term.usage() or "times=" in term.usage() or "mode" in term.usage():
            assert f"`{term.usage()}`" in page


def test_what_began_before_the_step_of_a_start_has_fired():
    def event(kind: EventKind, step: int, **details: object) -> EventEntry:
        return EventEntry(at=0.0, kind=kind, message="", step=step, details=details)

    fired = [
        event(EventKind.GUARD, 12, rule="a", began=10),
        event(EventKind.GUARD, 30, rule="b", began=30),
        event(EventKind.GUARD, 31, rule="c"),
    ]
    assert begun_conditions(fired) == {"a": 10, "b": 30}
    assert begun_conditions([*fired, event(EventKind.START, 20)]) == {"a": 10}
    assert begun_conditions([*fired, event(EventKind.RESTORE, 5)]) == {}
    again = [event(EventKind.RESTORE, 5), event(EventKind.GUARD, 9, rule="a", began=8)]
    assert begun_conditions([*fired, *again, event(EventKind.START, 8)]) == {"a": 8}
