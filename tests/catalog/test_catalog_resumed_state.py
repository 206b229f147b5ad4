"""What resuming brings back and what not, as the files of a checkpoint tell."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from bundle_writing import (
    GRAPH_KEY,
    Object,
    Stored,
    array,
    graph,
    key_of,
    strings,
    variable,
    variants,
    write,
)
from tfckpt_trainer.bundle.analysis.contents import describe_tensors
from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import read_object_graph
from tfckpt_trainer.catalog.directory.resumed_state import find_resumed_state
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, WorkerFacts

WEIGHTS, SLOTS, STEP, SCHEDULE = "weights", "slot variables", "step", "learning-rate schedule"
INPUT, RANDOM, CALLBACKS = "position in the input", "random states", "callbacks' best so far"

ONES = np.ones((2, 3), np.float32)
COUNTER = np.int64(1500)


def returned(
    prefix: Path, saved: dict[str, object], record: CheckpointRecord | None = None
) -> dict[str, tuple[bool | None, str]]:
    """Saves objects by their paths, with an optimizer like that of Keras if it has any."""
    nodes = [Object({})]
    tensors: dict[str, Stored] = {}
    for path, values in saved.items():
        place = _object(nodes, path)
        key = key_of(path)
        if isinstance(values, Stored):
            key = f"{path}/.ATTRIBUTES/ITERATOR_STATE"
            nodes[place].attributes = [("ITERATOR", "", key)]
        else:
            nodes[place].attributes = [variable(path)]
        tensors[key] = values if isinstance(values, Stored) else array(values)
    write(prefix, {**tensors, GRAPH_KEY: graph(nodes)})  # type: ignore[arg-type]
    index = read_index(prefix)
    tensors = describe_tensors(index, read_object_graph(prefix))
    found = find_resumed_state(prefix, tensors, record)
    assert [one.name for one in found][:7] == [
        WEIGHTS, SLOTS, STEP, SCHEDULE, INPUT, RANDOM, CALLBACKS,
    ]  # fmt: skip
    return {one.name: (one.restored, one.detail) for one in found}


def _object(nodes: list[Object], path: str) -> int:
    place = 0
    for name in path.split("/"):
        if name not in nodes[place].children:
            nodes.append(Object({}))
            nodes[place].children[name] = len(nodes) - 1
        place = nodes[place].children[name]
    return place


def recorded(*contents: str, step: int = 42) -> CheckpointRecord:
    return CheckpointRecord(
        name="c",
        step=step,
        branch=0,
        sequence=1,
        saved_at=1.7e9,
        trigger="command",
        contents=list(contents),
    )


ADAM = {
    "opt/_trainable_variables/0": ONES,
    "opt/_iterations": COUNTER,
    "opt/_momentums/0": ONES,
    "opt/_velocities/0": ONES,
}


def test_weights_alone_bring_back_nothing_else(tmp_path: Path) -> None:
    back = returned(tmp_path / "c", {"net/kernel": ONES, "net/bias": ONES})
    assert back[WEIGHTS] == (True, "2 variables")
    assert {what for what, (comes, _) in back.items() if comes} == {WEIGHTS}
    assert "momentum starts from zero" in back[SLOTS][1]
    assert "the step starts at 0" in back[STEP][1]


def test_an_optimizer_brings_back_its_slots_its_step_and_its_schedule(tmp_path: Path) -> None:
    back = returned(tmp_path / "c", ADAM)
    assert back[SLOTS] == (True, "2 variables: momentums, velocities")
    assert back[STEP] == (True, "opt/_iterations = 1,500")
    assert back[SCHEDULE] == (True, "computed from the iterations, which it has")
    back = returned(tmp_path / "c", ADAM | {"opt/_learning_rate": np.float32(0.1)})
    assert back[SCHEDULE] == (True, "the rate is the variable opt/_learning_rate")


def test_the_rates_of_all_optimizers_are_named(tmp_path: Path) -> None:
    two = {f"{which}/{path}": value for path, value in ADAM.items() for which in ("d", "g")}
    rates = {f"{which}/opt/_learning_rate": np.float32(0.1) for which in ("d", "g")}
    assert returned(tmp_path / "c", two | rates)[SCHEDULE] == (
        True,
        "the rates are the variables d/opt/_learning_rate, g/opt/_learning_rate",
    )


def test_an_optimizer_without_slots_is_not_judged(tmp_path: Path) -> None:
    back = returned(tmp_path / "c", dict(list(ADAM.items())[:2]))
    assert back[SLOTS] == (None, "none so far, or this optimizer has none")


def test_a_step_of_its_own_comes_before_the_iterations_and_both_before_the_record(
    tmp_path: Path,
) -> None:
    back = returned(tmp_path / "c", ADAM | {"step": np.int64(7)}, recorded())
    assert back[STEP] == (True, "step = 7")
    assert returned(tmp_path / "c", ADAM, recorded())[STEP] == (True, "opt/_iterations = 1,500")
    back = returned(tmp_path / "c", {"net/kernel": ONES}, recorded())
    assert back[STEP] == (True, "42, from its record")


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_step_that_cannot_be_read_does_not_come_back(tmp_path: Path, damage: str) -> None:
    prefix = tmp_path / "c"
    returned(prefix, {"step": COUNTER})
    index = read_index(prefix)
    found = describe_tensors(index, read_object_graph(prefix))
    data = prefix.with_name("c.data-00000-of-00001")
    if damage == "cut":
        data.write_bytes(b"")
    else:
        data.unlink()
    step = next(one for one in find_resumed_state(prefix, found, None) if one.name == STEP)
    assert step.restored is False


@pytest.mark.parametrize("lost", ["index", "object graph"])
def test_nothing_is_promised_of_a_checkpoint_that_cannot_be_read(tmp_path: Path, lost: str) -> None:
    record = recorded("model", "input position", "random state", "seeds")
    found = find_resumed_state(tmp_path / "c", (), record, lost=lost)
    assert {(one.restored, one.detail) for one in found} == {
        (None, f"unknown: the {lost} cannot be read")
    }


def test_the_position_in_the_input_is_an_iterator_or_lies_beside(tmp_path: Path) -> None:
    back = returned(tmp_path / "c", {"data": variants([b"state"])})
    assert back[INPUT] == (True, "the iterator data")
    back = returned(tmp_path / "c", {"net/kernel": ONES}, recorded("model", "input position"))
    assert back[INPUT] == (True, "one file per worker, beside the checkpoint")
    assert returned(tmp_path / "c", {"net/kernel": ONES})[INPUT][0] is False


def test_random_states_are_those_of_generators_or_lie_beside(tmp_path: Path) -> None:
    seeds = {"rng/_state_var": np.zeros(3, np.int64), "drop/seed_generator_state": np.zeros(2)}
    back = returned(tmp_path / "c", seeds)
    assert back[RANDOM] == (True, "2 variables; not those of Python and NumPy")
    assert back[WEIGHTS][0] is False
    beside = "one file per worker, beside the checkpoint"
    for seeds in ("seeds", "unsynchronised variables and seeds"):
        record = recorded("random state", seeds)
        back = returned(tmp_path / "c", {"net/kernel": ONES}, record)
        assert back[RANDOM] == (True, beside)


def test_seeds_that_were_not_saved_are_not_claimed(tmp_path: Path) -> None:
    back = returned(tmp_path / "c", {"net/kernel": ONES}, recorded("random state"))
    beside = "one file per worker, beside the checkpoint"
    assert back[RANDOM] == (True, f"those of Python and NumPy alone: {beside}")


def test_the_best_so_far_comes_back_where_the_program_saved_it(tmp_path: Path) -> None:
    back = returned(tmp_path / "c", {"net/kernel": ONES, "best_loss": np.float32(0.5)})
    assert back[CALLBACKS] == (True, "the variable best_loss")
    # A custom loop has no Keras callbacks, and loses nothing.
    without = "not saved: Keras callbacks, if any, start over"
    assert returned(tmp_path / "c", {"net/kernel": ONES})[CALLBACKS] == (None, without)


def test_what_a_script_keeps_comes_back_and_callbacks_with_it(tmp_path: Path) -> None:
    kept = msgspec.structs.replace(
        recorded(),
        state={"callbacks": "[]", "epoch": 3},
        workers=[WorkerFacts(index=0, host="here", state={"mine": 1})],
    )
    found = returned(tmp_path / "c", {"model/a": ONES}, kept)
    assert found[CALLBACKS] == (True, "the state of Keras callbacks, saved by fit")
    own = "the script's own values"
    assert found[own] == (True, "run.state: epoch; run.worker_state: mine")
    assert own not in returned(tmp_path / "d", {"model/a": ONES}, recorded())


def test_texts_are_no_weights(tmp_path: Path) -> None:
    write(tmp_path / "c", {"words": strings([b"a"])})
    tensors = describe_tensors(read_index(tmp_path / "c"), None)
    found = find_resumed_state(tmp_path / "c", tensors, None)
    assert found[0].restored is False
