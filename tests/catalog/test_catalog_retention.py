"""A plan keeps what the rules say, and never gives away what must stay."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint, CheckpointState
from tfckpt_trainer.catalog.directory.packed_record import RecordPacker
from tfckpt_trainer.catalog.retention.plan import plan, plan_of_names
from tfckpt_trainer.catalog.retention.policy import Policy
from tfckpt_trainer.catalog.retention.rules import RULES, BestBy
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord
from tfckpt_trainer.rundir.storage.documents import encode
from weekly import tries

COMPLETE = CheckpointState.COMPLETE
HOUR = 3600.0


def checkpoint(step: int, *, state: CheckpointState = COMPLETE, **more) -> Checkpoint:
    usual = {"name": f"ckpt-{step}", "branch": 0, "size": 10, "saved_at": step * HOUR}
    return Checkpoint(step=step, state=state, shards=1, **{**usual, **more})


def newest_first(*steps: int, **more) -> list[Checkpoint]:
    return [checkpoint(step, **more) for step in sorted(steps, reverse=True)]


def deleted(checkpoints, **policy) -> set[int]:
    return {c.step for c in plan(checkpoints, Policy(**policy)).deleted}


def test_the_last_ones_stay():
    assert deleted(newest_first(1, 2, 3, 4), keep_last=2) == {1, 2}


def test_what_cannot_be_restored_is_none_of_the_last():
    history = newest_first(1, 2, 3)
    history.insert(0, checkpoint(4, state=CheckpointState.INCOMPLETE))
    assert deleted(history, keep_last=2) == {4, 1}


def test_one_every_so_many_steps_stays_on_each_branch():
    history = [
        checkpoint(260, branch=1, name="ckpt-b1-260"),
        checkpoint(210, branch=1, name="ckpt-b1-210"),
        *newest_first(50, 110, 190, 210, 290, 300, 350),
    ]
    left = {c.name for c in history} - {
        c.name for c in plan(history, Policy(keep_every_steps=100)).deleted
    }
    # ckpt-b1-260 is the newest; of each hundred steps the first stays.
    assert left == {"ckpt-b1-260", "ckpt-b1-210", "ckpt-50", "ckpt-110", "ckpt-210", "ckpt-300"}


def test_one_every_so_many_hours_stays():
    history = [checkpoint(n, saved_at=n * HOUR / 4) for n in range(12, 0, -1)]
    assert deleted(history, keep_every_hours=1) == {2, 3, 5, 6, 7, 9, 10, 11}


def test_of_equal_steps_and_times_the_newer_is_the_first():
    twice = [checkpoint(5, name=name) for name in ("newer", "older")]
    for policy in (Policy(keep_every_steps=5), Policy(keep_every_hours=5)):
        made = plan([checkpoint(10), *twice], policy)
        assert [c.name for c in made.deleted] == ["older"]


def test_the_best_stay():
    losses = {1: 0.5, 2: 0.1, 3: 0.4, 4: 0.2, 5: 0.9}
    history = [checkpoint(n, metrics={"loss": losses[n]}) for n in (5, 4, 3, 2, 1)]
    assert deleted(history, keep_best=(BestBy("loss", "min", 2),)) == {1, 3}
    assert deleted(history, keep_best=(BestBy("loss", "max", 2),)) == {2, 3, 4}


def test_values_that_are_no_numbers_are_never_the_best():
    values = {5: 0.9, 4: -math.inf, 3: math.nan, 2: None, 1: 0.5}
    history = [checkpoint(n, metrics={"loss": values[n]}) for n in (5, 4, 3, 2, 1)]
    history.append(checkpoint(0))
    assert deleted(history, keep_best=(BestBy("loss", "min", 1),)) == {4, 3, 2, 0}


def test_of_equal_values_the_newer_stays():
    history = [checkpoint(n, metrics={"loss": 0.5}) for n in (4, 3, 2, 1)]
    history[0] = replace(history[0], metrics={"loss": 0.7})
    assert deleted(history, keep_best=(BestBy("loss", "min", 1),)) == {2, 1}


def test_a_damaged_one_is_never_the_best():
    history = [
        checkpoint(3, metrics={"loss": 0.9}),
        checkpoint(2, metrics={"loss": 0.1}, state=CheckpointState.INCOMPLETE),
        checkpoint(1, metrics={"loss": 0.5}),
    ]
    assert deleted(history, keep_best=(BestBy("loss", "min", 1),)) == {2}


def test_the_newest_with_finite_metrics_stays_whatever_the_rules():
    values = {6: math.nan, 5: None, 4: 0.4, 3: math.inf, 2: 0.2, 1: 0.1}
    history = [checkpoint(n, metrics={"loss": values[n]}) for n in sorted(values, reverse=True)]
    made = plan(history, Policy(keep_last=2))
    assert {c.step for c in made.deleted} == {3, 2, 1}
    reasons = {d.checkpoint.step: d.reason for d in made.decisions}
    assert reasons[4] == "the newest with finite metrics"
    by_name = plan_of_names(history, ["ckpt-4", "ckpt-5", "ckpt-2"])
    assert {c.step for c in by_name.deleted} == {5, 2}


def test_a_damaged_one_is_not_the_newest_with_finite_metrics():
    history = [
        checkpoint(3, metrics={"loss": math.nan}),
        checkpoint(2, metrics={"loss": 0.2}, state=CheckpointState.CORRUPT),
        checkpoint(1, metrics={"loss": 0.1}),
    ]
    assert deleted(history, keep_last=1) == set()
    assert plan_of_names(history, ["ckpt-1"]).deleted == ()


def test_one_without_metrics_counts_as_finite():
    history = [checkpoint(3, metrics={"loss": math.nan}), checkpoint(2), checkpoint(1)]
    assert deleted(history, keep_last=1) == {1}


def test_the_newest_with_finite_values_stays_if_its_values_were_read():
    # The loss was finite at the step that made the weights NaN.
    of_nan = {"loss": math.nan}
    history = [
        checkpoint(5, metrics=of_nan),
        checkpoint(4, metrics=of_nan),
        checkpoint(3, metrics={"loss": 0.3}, not_finite_tensors=2),
        checkpoint(2, metrics={"loss": 0.2}),
        checkpoint(1, metrics={"loss": 0.1}, not_finite_tensors=0),
    ]
    made = plan(history, Policy(keep_last=1))
    reasons = {d.checkpoint.step: d.reason for d in made.decisions}
    assert {c.step for c in made.deleted} == {4}
    assert reasons[3] == "the newest with finite metrics"
    assert reasons[2] == "the newest with no known NaN or infinite value"
    assert reasons[1] == "the newest whose values are known to be finite"


def test_nothing_is_said_of_values_and_metrics_that_nobody_looked_at():
    history = [checkpoint(3, not_finite_tensors=1), checkpoint(2), checkpoint(1)]
    reasons = {d.checkpoint.step: d.reason for d in plan(history, Policy(keep_last=1)).decisions}
    assert reasons == {
        3: "the newest that can be restored",
        2: "the newest with no known NaN or infinite value",
        1: "no rule keeps it",
    }


def test_values_that_were_read_protect_only_while_the_newest_is_known_to_be_bad():
    history = [checkpoint(n, not_finite_tensors=found) for n, found in ((3, None), (2, 1), (1, 0))]
    assert deleted(history, keep_last=1) == {2, 1}
    assert deleted(history[1:], keep_last=1) == set()


def test_values_that_are_known_to_be_finite_count_if_no_metrics_are():
    of_nan = {"loss": math.nan}
    history = [
        checkpoint(3, metrics=of_nan, not_finite_tensors=1),
        checkpoint(2, metrics=of_nan, not_finite_tensors=0),
        checkpoint(1, metrics=of_nan),
    ]
    assert deleted(history, keep_last=1) == {1}


def test_rules_add_up():
    history = newest_first(100, 150, 200, 250, 300)
    assert deleted(history, keep_last=2, keep_every_steps=200) == {150}


def test_an_unknown_metric_is_refused_with_the_known_ones():
    history = [checkpoint(2, metrics={"loss": 1.0, "accuracy": 0.5, "broken": math.nan})]
    with pytest.raises(UsageError, match="'los'; the metrics are: accuracy, loss"):
        plan(history, Policy(keep_best=(BestBy("los", "min", 1),)))
    with pytest.raises(UsageError, match="a finite value of the metric 'broken'"):
        plan(history, Policy(keep_best=(BestBy("broken", "min", 1),)))


@pytest.mark.parametrize(
    "policy",
    [
        Policy(keep_last=0),
        Policy(keep_last=-1),
        Policy(keep_every_steps=0),
        Policy(keep_every_hours=math.nan),
        Policy(keep_every_hours=math.inf),
        Policy(keep_best=(BestBy("loss", "min", 0),)),
    ],
)
def test_an_invalid_rule_is_refused(policy):
    with pytest.raises(UsageError, match="must be more than 0"):
        plan([checkpoint(1, metrics={"loss": 1.0})], policy)


def test_an_empty_policy_keeps_everything():
    made = plan(newest_first(1, 2, 3), Policy())
    assert made.deleted == ()
    assert made.freed_bytes == 0


def test_where_nothing_can_be_restored_no_rule_deletes():
    history = newest_first(1, 2, state=CheckpointState.INCOMPLETE)
    assert deleted(history, keep_last=1) == set()
    assert len(plan_of_names(history, ["ckpt-1"]).deleted) == 1


def test_only_a_name_deletes_a_damaged_one():
    history = [checkpoint(2), checkpoint(1, state=CheckpointState.CORRUPT)]
    assert deleted(history, keep_last=1) == set()
    assert [c.name for c in plan_of_names(history, ["ckpt-1"]).deleted] == ["ckpt-1"]


def test_the_newest_and_the_last_verified_stay_whatever_the_rules():
    verified = [checkpoint(n, state=CheckpointState.VERIFIED) for n in (2, 1)]
    history = [*newest_first(4, 3), *verified, checkpoint(0, metrics={"loss": 1.0})]
    assert deleted(history, keep_best=(BestBy("loss", "min", 1),)) == {3, 1}


def test_what_a_manager_let_go_goes_only_by_name():
    history = [*newest_first(6, 7, 8), *newest_first(1, 4, dropped_by_manager=True)]
    assert deleted(history, keep_last=1) == {7, 6}
    assert [c.step for c in plan_of_names(history, ["ckpt-4"]).deleted] == [4]


def test_names_are_deleted_unless_protected():
    history = [checkpoint(3), checkpoint(2, pinned=True), checkpoint(1)]
    made = plan_of_names(history, ["ckpt-1", "ckpt-2", "ckpt-3"])
    assert [c.name for c in made.deleted] == ["ckpt-1"]
    assert made.freed_bytes == 10
    assert [d.reason for d in made.decisions] == [
        "the newest that can be restored",
        "pinned",
        "chosen",
    ]
    with pytest.raises(UsageError, match="ckpt-9"):
        plan_of_names(history, ["ckpt-9"])


METRIC = st.one_of(
    st.none(),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, 1.0]),
    st.floats(allow_nan=True),
)
STATE = st.sampled_from(CheckpointState)
CHECKPOINT = st.builds(
    Checkpoint,
    name=st.just(""),
    step=st.one_of(st.none(), st.integers(0, 10), st.integers(0, 10**18)),
    branch=st.integers(0, 2),
    state=st.one_of(st.sampled_from([COMPLETE, CheckpointState.VERIFIED]), STATE),
    size=st.integers(0, 10**12),
    shards=st.just(1),
    saved_at=st.one_of(st.floats(0, 1e6), st.floats(allow_nan=True)),
    metrics=st.dictionaries(st.sampled_from(["loss", "accuracy"]), METRIC),
    pinned=st.sampled_from([False, False, False, False, True]),
    dropped_by_manager=st.sampled_from([False, False, False, True]),
    not_finite_tensors=st.sampled_from([None, None, 0, 3]),
)
HISTORY = st.lists(CHECKPOINT, max_size=12).map(
    lambda found: [replace(c, name=f"n{place}") for place, c in enumerate(found)]
)
VALUES = {
    "keep_last": st.none() | st.integers(1, 5),
    "keep_every_steps": st.none() | st.integers(1, 10) | st.integers(1, 10**18),
    "keep_every_hours": st.one_of(
        st.none(),
        st.sampled_from([0.5, 1.0, 24.0]),
        st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    ),
    "keep_best": st.lists(
        st.builds(
            BestBy,
            metric=st.sampled_from(["loss", "accuracy"]),
            mode=st.sampled_from(["min", "max"]),
            count=st.integers(1, 3),
        ),
        max_size=2,
    ).map(tuple),
}
"""Values of each rule, by its key."""
POLICY = st.builds(Policy, **VALUES)


def numbers_in(good, metric):
    values = [(place, c.metrics.get(metric)) for place, c in good]
    return [entry for entry in values if entry[1] is not None and math.isfinite(entry[1])]


def all_rules_can_be_applied(history, policy):
    good = [c for c in history if c.restorable]
    return not any(rule.unmet(good) for rule in policy.rules)


def has_finite_metrics(checkpoint):
    return all(n is not None and math.isfinite(n) for n in checkpoint.metrics.values())


def best_rules(policy):
    return tuple(rule for rule in policy.rules if isinstance(rule, BestBy))


def goes_before(mine, good, better):
    return sum(better(other, *mine) for other in good if other[0] != mine[0])


def is_first(mine, good, same_span, value):
    # Of equal ones the newer comes first.
    return not goes_before(
        mine,
        good,
        lambda other, place, c: (
            same_span(other[1], c) and (value(other[1]), other[0]) < (value(c), place)
        ),
    )


def is_one_of_the_last(count, mine, good):
    return goes_before(mine, good, lambda other, place, _: other[0] < place) < count


def is_first_in_steps(steps, mine, good):
    def same_span(a, b):
        steps_known = a.step is not None and b.step is not None
        return steps_known and a.branch == b.branch and a.step // steps == b.step // steps

    return mine[1].step is not None and is_first(mine, good, same_span, lambda a: a.step)


def is_first_in_hours(hours, mine, good):
    def same_span(a, b):
        return a.saved_at / 3600 // hours == b.saved_at / 3600 // hours

    return is_first(mine, good, same_span, lambda a: a.saved_at)


def is_one_of_the_best(rules, mine, good):
    for best in map(BestBy.from_value, rules):
        sign = 1 if best.mode == "min" else -1
        value = mine[1].metrics.get(best.metric)
        if value is not None and math.isfinite(value):
            ranked = [(sign * n, place) for place, n in numbers_in(good, best.metric)]
            if sum(entry < (sign * value, mine[0]) for entry in ranked) < best.count:
                return True
    return False


IS_KEPT = {
    "keep_last": is_one_of_the_last,
    "keep_every_steps": is_first_in_steps,
    "keep_every_hours": is_first_in_hours,
    "keep_best": is_one_of_the_best,
}
"""Whether a rule keeps a checkpoint, by counting what is better: slow and simple."""


def test_every_rule_is_drawn_and_counted():
    keys = [rule.fields.key for rule in RULES]
    assert sorted(VALUES) == sorted(keys), "Add the rule to VALUES."
    assert sorted(IS_KEPT) == sorted(keys), "Add the rule to IS_KEPT."


def kept_by_rules(history, policy):
    """The names that the rules keep."""
    good = [(place, c) for place, c in enumerate(history) if c.restorable]
    given = {key: value for key, value in policy.values.items() if value}
    return {
        mine[1].name
        for mine in good
        if any(IS_KEPT[key](value, mine, good) for key, value in given.items())
    }


@tries(300)
@given(HISTORY, POLICY, st.sets(st.integers(0, 11), max_size=3), st.integers(0, 11))
def test_what_goes_is_exactly_what_no_rule_and_no_protection_keeps(history, policy, used, head):
    assume(all_rules_can_be_applied(history, policy))
    history = [
        replace(c, is_head=place == head and c.restorable) for place, c in enumerate(history)
    ]
    in_use = {f"n{place}": "in use" for place in used}
    made = plan(history, policy, in_use=in_use)
    assert [d.checkpoint for d in made.decisions] == history
    assert all(d.reason for d in made.decisions)
    restorable = [c.name for c in history if c.restorable]
    verified = [c.name for c in history if c.state is CheckpointState.VERIFIED]
    finite = [c for c in history if c.restorable and has_finite_metrics(c)]
    unsuspected = [c.name for c in finite if not c.not_finite_tensors]
    read = [c.name for c in history if c.restorable and c.not_finite_tensors == 0]
    must_stay = {*restorable[:1], *verified[:1], *unsuspected[:1], *in_use}
    must_stay |= {c.name for c in [c for c in finite if c.metrics][:1]}
    if unsuspected[:1] != restorable[:1]:
        must_stay |= set(read[:1])
    must_stay |= kept_by_rules(history, policy)
    never = {
        CheckpointState.WRITING,
        CheckpointState.TRASHED,
        CheckpointState.CORRUPT,
        CheckpointState.UNREADABLE,
        CheckpointState.UNSUPPORTED,
    }
    must_stay |= {c.name for c in history if c.pinned or c.is_head or c.state in never}
    must_stay |= {c.name for c in history if c.dropped_by_manager and c.restorable}
    goes = {c.name for c in history} - must_stay
    if policy.is_empty or not restorable:
        goes = set()
    assert {c.name for c in made.deleted} == goes
    assert made.freed_bytes == sum(c.size for c in history if c.name in goes)


@given(HISTORY, POLICY, POLICY)
def test_more_rules_never_delete_more(history, policy, more):
    counts = (policy.values["keep_last"], more.values["keep_last"])
    both = Policy(
        **{
            **policy.values,
            "keep_last": max((n for n in counts if n), default=None),
            "keep_best": best_rules(policy) + best_rules(more),
        }
    )
    assume(not policy.is_empty and all_rules_can_be_applied(history, both))
    gone = {c.name for c in plan(history, policy).deleted}
    assert {c.name for c in plan(history, both).deleted} <= gone


@given(HISTORY, POLICY, st.data())
def test_what_cannot_be_restored_decides_nothing_for_others(history, policy, data):
    assume(all_rules_can_be_applied(history, policy))
    broken = replace(
        data.draw(CHECKPOINT),
        name="broken",
        state=data.draw(
            st.sampled_from([s for s in CheckpointState if not s.restorable]), label="state"
        ),
    )
    place = data.draw(st.integers(0, len(history)))
    gone = {c.name for c in plan([*history[:place], broken, *history[place:]], policy).deleted}
    assert gone - {"broken"} == {c.name for c in plan(history, policy).deleted}


@given(HISTORY, POLICY, st.lists(st.tuples(CHECKPOINT, st.integers(0, 12)), max_size=4))
def test_checkpoints_of_others_take_no_place_of_what_a_run_saved(history, policy, others):
    one = CheckpointRecord(name="n", step=1, branch=0, sequence=1, saved_at=1.0, trigger="command")
    packed = RecordPacker().pack(one, encode(one))
    saved = [replace(c, packed=packed) for c in history]
    assume(all_rules_can_be_applied(history, policy) and any(c.restorable for c in history))
    beside = list(saved)
    for number, (other, place) in enumerate(others):
        beside.insert(place, replace(other, name=f"other{number}"))
    gone = {c.name for c in plan(beside, policy).deleted}
    assert {c for c in gone if c.startswith("n")} == {c.name for c in plan(saved, policy).deleted}


@given(HISTORY, POLICY, st.sampled_from(["min", "max"]))
def test_a_metric_without_a_number_is_refused_whatever_else_is_asked(history, policy, mode):
    best = (*best_rules(policy), BestBy("perplexity", mode, 1))
    policy = Policy(**{**policy.values, "keep_best": best})
    # Only what cannot be restored has a number, and that is no reason to delete the rest.
    values = {True: math.nan, False: 1.0}
    history = [
        replace(c, metrics={**c.metrics, "perplexity": values[c.restorable]}) for c in history
    ]
    with pytest.raises(UsageError):
        plan(history, policy)


@given(HISTORY, POLICY)
def test_a_plan_carried_out_leaves_nothing_more_to_delete(history, policy):
    assume(all_rules_can_be_applied(history, policy))
    made = plan(history, policy)
    assert plan(history, policy) == made or any(math.isnan(c.saved_at) for c in history)
    left = [d.checkpoint for d in made.decisions if d.keep]
    assert plan(left, policy).deleted == ()


@given(HISTORY, st.data())
def test_names_never_overrule_protection(history, data):
    names = data.draw(st.lists(st.sampled_from([c.name for c in history]))) if history else []
    gone = plan_of_names(history, names).deleted
    assert {c.name for c in gone} <= set(names)
    assert not any(c.pinned or c.state is CheckpointState.WRITING for c in gone)
    if any(c.restorable for c in history):
        assert any(c.restorable for c in history if c not in gone)


@tries(300)
@given(HISTORY, st.one_of(POLICY, st.sets(st.integers(0, 11))))
def test_a_prune_never_leaves_only_checkpoints_that_are_not_finite(history, wanted):
    def finite(checkpoints):
        good = [c for c in checkpoints if c.restorable and has_finite_metrics(c)]
        return [c.name for c in good if c.metrics or not c.not_finite_tensors]

    def in_values(checkpoints):
        return [c for c in checkpoints if c.restorable and c.not_finite_tensors == 0]

    if isinstance(wanted, Policy):
        assume(all_rules_can_be_applied(history, wanted))
        made = plan(history, wanted)
    else:
        names = [c.name for place, c in enumerate(history) if place in wanted]
        made = plan_of_names(history, names)
        assert [d.checkpoint.name for d in made.decisions] == names
    gone = {c.name for c in made.deleted}
    left = [c for c in history if c.name not in gone]
    assert finite(left)[:1] == finite(history)[:1]
    if in_values(history):
        assert any(c.restorable and not c.not_finite_tensors for c in left)
