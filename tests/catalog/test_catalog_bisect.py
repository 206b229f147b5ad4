"""Halving a row of checkpoints: the right answer with few checks, whatever cannot be checked."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.catalog.verification.bisect import Bisection, Probe, ProbeOutcome, bisect

GOOD, BAD, SKIPPED = ProbeOutcome.GOOD, ProbeOutcome.BAD, ProbeOutcome.SKIPPED


def found_in(row: list[ProbeOutcome]) -> tuple[Bisection, list[tuple[str, int]]]:
    told: list[tuple[str, int]] = []
    names = [str(place) for place in range(len(row))]
    found = bisect(
        names,
        lambda name: Probe(name, row[int(name)]),
        lambda probe, left: told.append((probe.name, left)),
    )
    assert [name for name, _ in told] == [probe.name for probe in found.probes]
    return found, told


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_the_first_bad_one_is_found_with_few_checks(place: tuple[int, int]) -> None:
    count, good = place
    found, told = found_in([GOOD] * good + [BAD] * (count - good))
    if good == count:
        assert (found.first_bad, found.last_good) == (None, str(count - 1))
        assert len(found.probes) == 1
        return
    assert found.first_bad == str(good)
    assert found.last_good == (str(good - 1) if good else None)
    assert found.undecided == ()
    assert len(found.probes) <= 2 + math.ceil(math.log2(count))
    left = [number for _, number in told]
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0


ROW = st.lists(st.sampled_from([GOOD, BAD, SKIPPED]), min_size=1, max_size=40)


@given(ROW)
def test_whatever_the_row_the_answer_is_true_of_it(row: list[ProbeOutcome]) -> None:
    found, _ = found_in(row)
    asked = [probe.name for probe in found.probes]
    assert len(asked) == len(set(asked))
    assert all(row[int(probe.name)] is probe.outcome for probe in found.probes)
    checked = [place for place, outcome in enumerate(row) if outcome is not SKIPPED]
    if not checked or row[checked[-1]] is GOOD:
        last = checked[-1] if checked else -1
        behind = tuple(str(place) for place in range(last + 1, len(row)))
        good_one = str(last) if checked else None
        assert found == Bisection(found.probes, good_one, None, behind)
        return
    assert found.first_bad is not None
    bad = int(found.first_bad)
    good = int(found.last_good) if found.last_good is not None else -1
    assert row[bad] is BAD
    assert good < bad
    assert good == -1 or row[good] is GOOD
    # What lies between was tried and could not be told.
    assert found.undecided == tuple(str(place) for place in range(good + 1, bad))
    assert all(row[int(name)] is SKIPPED and name in asked for name in found.undecided)


@given(st.data())
def test_where_some_cannot_be_told_the_rest_is_still_exact(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 60))
    good = data.draw(st.integers(0, count - 1))
    row = [GOOD] * good + [BAD] * (count - good)
    for place in data.draw(st.sets(st.integers(0, count - 1))):
        row[place] = SKIPPED
    found, _ = found_in(row)
    first = next((place for place, outcome in enumerate(row) if outcome is BAD), None)
    assert found.first_bad == (None if first is None else str(first))


def test_a_row_of_none_and_of_one() -> None:
    assert found_in([])[0] == Bisection((), None, None)
    assert found_in([BAD])[0].first_bad == "0"
    assert found_in([GOOD])[0].first_bad is None


def test_where_nothing_can_be_told_all_were_tried() -> None:
    found, _ = found_in([SKIPPED] * 5)
    assert len(found.probes) == 5
    assert (found.first_bad, found.last_good) == (None, None)
    assert found.undecided == ("0", "1", "2", "3", "4")


def test_only_the_nearest_is_tried_in_place_of_one_that_cannot_be_told() -> None:
    row = [GOOD] * 10 + [BAD] * 10
    row[9] = row[10] = SKIPPED
    found, _ = found_in(row)
    assert (found.first_bad, found.last_good, found.undecided) == ("11", "8", ("9", "10"))
    assert len(found.probes) <= 9
