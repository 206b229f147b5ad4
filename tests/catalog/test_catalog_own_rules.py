"""Retention rules of a script count like those of the library, also where none can be imported."""

from __future__ import annotations

import pytest
from test_catalog_retention import checkpoint, newest_first

from tfckpt_trainer import Policy
from tfckpt_trainer.catalog.retention.own_rules import KEY
from tfckpt_trainer.catalog.retention.plan import plan, plan_of_names
from tfckpt_trainer.catalog.retention.policy import RetentionSettings
from tfckpt_trainer.errors import UsageError


class KeepTens:
    def kept(self, checkpoints):
        for one in checkpoints:
            if one.step % 10 == 0:
                yield one, "a multiple of 10"


class KeepFirst:
    def kept(self, checkpoints):
        return [(checkpoints[-1], "the first")]

    def __str__(self) -> str:
        return "the first of all"


def reasons(made) -> dict[str, str]:
    return {d.checkpoint.name: d.reason for d in made.decisions if d.keep}


def test_a_checkpoint_stays_if_any_rule_keeps_it():
    policy = Policy(keep_last=1, rules=[KeepTens(), KeepFirst()])
    assert reasons(plan(newest_first(3, 10, 11, 20, 21), policy)) == {
        "ckpt-21": "the newest that can be restored",
        "ckpt-20": "a multiple of 10",
        "ckpt-10": "a multiple of 10",
        "ckpt-3": "the first",
    }
    assert str(policy) == "keep the last 1, KeepTens, the first of all"
    assert repr(policy) == "Policy(keep_last=1, rules=[KeepTens, the first of all])"


def test_own_rules_alone_are_a_policy():
    assert not Policy(rules=[KeepTens()]).is_empty
    assert reasons(plan(newest_first(9, 10, 11), Policy(rules=[KeepTens()]))).keys() == {
        "ckpt-10",
        "ckpt-11",
    }


class Failing:
    def kept(self, checkpoints):
        raise ValueError("no such file")


class Bare:
    def kept(self, checkpoints):
        return checkpoints


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Failing(), r"The retention rule Failing failed: ValueError\('no such file'\)"),
        (Bare(), "The retention rule Bare failed: .*pairs of a checkpoint and a reason"),
    ],
)
def test_a_rule_that_fails_prunes_nothing(rule, message):
    with pytest.raises(UsageError, match=message):
        plan(newest_first(1, 2), Policy(keep_last=1, rules=[rule]))


@pytest.mark.parametrize("rule", [KeepTens, "keep_last", None])
def test_what_is_no_rule_is_refused_at_once(rule):
    with pytest.raises(TypeError, match=r"expected objects with a method kept"):
        Policy(rules=[rule])


def recorded(policy: Policy) -> Policy:
    """The policy as the app and the commands read it."""
    section = RetentionSettings(policy).recorded
    assert KEY in section
    return RetentionSettings.from_json(section).policy


def test_others_prune_by_what_the_trainer_recorded():
    history = newest_first(3, 10, 11, 20, 21)
    policy = Policy(keep_last=1, rules=[KeepTens(), KeepFirst()])
    told = recorded(policy.judged(history))
    assert reasons(plan(history, told)) == reasons(plan(history, policy))
    assert str(told) == str(policy)
    assert recorded(told) == told


def test_a_checkpoint_that_no_rule_was_asked_about_stays():
    asked = newest_first(9, 10, 11)
    told = recorded(Policy(rules=[KeepTens()]).judged(asked))
    made = plan([checkpoint(13), checkpoint(12), *asked], told)
    assert [c.name for c in made.deleted] == ["ckpt-11", "ckpt-9"]
    assert reasons(made)["ckpt-12"] == "not judged yet by KeepTens"
    before_the_first_save = recorded(Policy(rules=[KeepTens()]))
    assert plan(asked, before_the_first_save).deleted == ()


def test_a_prune_by_name_says_which_rule_it_overrules():
    history = newest_first(9, 10, 11)
    own = Policy(rules=[KeepTens()]).judged(history).own
    made = plan_of_names(history, ["ckpt-9", "ckpt-10"], own=own)
    assert {d.checkpoint.name: d.reason for d in made.decisions if not d.keep} == {
        "ckpt-9": "chosen",
        "ckpt-10": "chosen, but KeepTens keeps it: a multiple of 10",
    }


def test_a_policy_without_rules_keeps_everything_beside_those_of_a_script():
    assert plan(newest_first(1, 2, 3), Policy().with_own([KeepTens()])).deleted == ()


@pytest.mark.parametrize(
    "section", [{"rules": ["A"], "reasons": {"ckpt-1": 5}}, {"reasons": {}}, [], "KeepTens", 3]
)
def test_an_invalid_record_is_refused(section):
    with pytest.raises(UsageError, match=f"{KEY} in run.json is invalid"):
        RetentionSettings.from_json({"keep_last": 1, KEY: section})


def test_what_no_document_can_hold_is_not_recorded():
    odd = checkpoint(10, name="ckpt\udcff-10")
    history = [checkpoint(11), odd]

    class Odd:
        def kept(self, checkpoints):
            return [(one, "two\nlines \udcff" + "x" * 500) for one in checkpoints]

    (told,) = Policy(rules=[Odd()]).judged(history).own
    assert told.reasons.keys() == {"ckpt-11"}
    assert told.reasons["ckpt-11"].startswith("two lines ?xxx")
    assert len(told.reasons["ckpt-11"]) == 200
    assert [one for one, _ in told.kept(history)] == history
