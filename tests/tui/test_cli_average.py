"""The command `average`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from json_reference import check
from msgspec.structs import replace
from rundir_factory import RunFactory, two_branches, without_heartbeats

from bundle_writing import GRAPH_KEY, Object, array, graph, key_of, variable, write, write_floats
from killed_writers import mark_of_a_killed_process
from tfckpt_trainer.bundle.index import index_path, read_index
from tfckpt_trainer.bundle.tensors import read_tensor_bytes
from tfckpt_trainer.catalog.directory.history import resume_point
from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.heartbeats.writer_marks import own_mark
from tfckpt_trainer.rundir.paths import WRITER, RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.storage.documents import load, store
from tfckpt_tui.reports.new_files import AverageReport
from tfckpt_tui.services.checkpoints.look_up import look_up_all
from tfckpt_tui.tools.tensors.average import plan_average
from tfckpt_tui.tools.tensors.new_checkpoint import source_facts


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    return without_heartbeats(two_branches(tmp_path / "run"))


def with_model(root: Path, step: int, scale: float) -> None:
    """A checkpoint of a model with batch normalization."""
    paths = ["model/w", "model/moving_mean", "step"]
    nodes = [
        Object({"model": 1, "step": 4}),
        Object({"w": 2, "moving_mean": 3}),
        *(Object(attributes=[variable(path, path.rpartition("/")[2])]) for path in paths),
    ]
    write(
        root / f"ckpt-{step}",
        {
            key_of("model/w"): array(np.arange(4, dtype=np.float32) * scale),
            key_of("model/moving_mean"): array(np.full(2, scale, np.float32)),
            key_of("step"): array(np.int64(step)),
            GRAPH_KEY: graph(nodes),
        },
    )


def value(prefix: Path, name: str, dtype: str = "<f4") -> list[float]:
    return np.frombuffer(
        read_tensor_bytes(prefix, read_index(prefix).entries[name]), dtype
    ).tolist()


def test_an_average_is_a_verified_checkpoint_of_the_run(tool, made):
    run = made.run
    before = resume_point(run)
    first = tool("ls", run.root, "--json").json["checkpoints"]
    said = tool("average", run.root, "100", "ckpt-500", "200", "--json")
    assert said.code == 0
    check(AverageReport, said.json)
    assert said.json["checkpoint"] == "average-500"
    assert [one["name"] for one in said.json["sources"]] == ["ckpt-100", "ckpt-200", "ckpt-500"]
    listed = tool("ls", run.root, "--json").json["checkpoints"]
    new = next(one for one in listed if one["name"] == "average-500")
    assert (new["state"], new["step"], new["branch"]) == ("verified", 500, 0)
    assert (new["parent"], new["trigger"]) == ("ckpt-500", "average")
    assert [one for one in listed if one["name"] != "average-500"] == first
    assert resume_point(run) == before
    assert tool("verify", run.root, "average-500").code == 0
    assert not list(run.root.glob("*_temp"))
    assert "average-500" not in tool("ls", run.root).words


def test_values_that_are_not_finite_are_said(tool, tmp_path):
    for step, scale in ((1, 1.0), (2, np.nan)):
        with_model(tmp_path, step, scale)
    said = tool("average", tmp_path, "1", "2")
    assert said.code == 0
    words = (
        "average-2 has NaN or infinite values in model/w and 1 more. See which "
        f"checkpoints have them with `tfckpt-tui verify {tmp_path} --finite`."
    )
    assert f"Done, but: {words}\n" in said.words
    assert tool("average", tmp_path, "ckpt-1", "ckpt-2", "--json").json["warning"] == (
        words.replace("average-", "average2-")
    )


@pytest.mark.parametrize("mark", [mark_of_a_killed_process, own_mark])
def test_a_step_is_not_that_of_what_a_command_has_begun(tool, tmp_path, mark):
    for step in (1, 2):
        with_model(tmp_path, step, 1.0)
    assert tool("average", tmp_path, "1", "2").code == 0
    for path in tmp_path.glob("ckpt-2.*"):
        path.unlink()
    left = tmp_path / "average2-2_temp"
    left.mkdir()
    (left / f"{WRITER}{mark()}").touch()
    said = tool("verify", tmp_path, "2")
    assert said.data.startswith("average-2 ")
    assert tool("pin", tmp_path, "2").data == "Pinned average-2.\n"


def test_provenance_is_shown_and_kept(tool, made):
    tool("average", made.run.root, "100", "200", "--weights", "1,3")
    record = load(made.run.record("average-200"), CheckpointRecord)
    assert record.derived is not None
    assert [(one.name, one.step, one.weight) for one in record.derived.sources] == [
        ("ckpt-100", 100, 0.25),
        ("ckpt-200", 200, 0.75),
    ]
    said = tool("inspect", made.run.root, "average-200")
    assert "made by     average of ckpt-100 (0.25), ckpt-200 (0.75)\n" in said.data
    found = tool("inspect", made.run.root, "average-200", "--json").json
    assert found["record"]["derived"]["operation"] == "average"
    assert "Averaged ckpt-100, ckpt-200 into average-200." in tool("journal", made.run.root).data


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], [1 / 3, 1 / 3, 1 / 3]),
        (["--weights", "2,1,1"], [0.25, 0.5, 0.25]),
        (["--ema", "0.9"], [0.81, 0.09, 0.1]),
    ],
)
def test_weights(tool, tmp_path, arguments, expected):
    for step in (1, 2, 3):
        write(tmp_path / f"ckpt-{step}", {"a": array(np.float64(10**step))})
    found = tool("average", tmp_path, "2", "1", "3", *arguments, "--json").json
    assert [one["weight"] for one in found["sources"]] == pytest.approx(expected)
    mean = value(tmp_path / "average-3", "a", "<f8")
    weighted = sum(w * 10**step for w, step in zip(expected, (1, 2, 3), strict=True))
    assert mean == [pytest.approx(weighted)]


def test_what_is_not_averaged_and_batch_normalization_are_said(tool, tmp_path):
    with_model(tmp_path, 1, 1.0)
    with_model(tmp_path, 2, 3.0)
    said = tool("average", tmp_path, "ckpt-1", "ckpt-2", "--name", "swa")
    assert said.code == 0
    assert said.data.startswith("swa: 2 variables averaged, ")
    assert "Taken from ckpt-2: step.\n" in said.words
    assert (
        "Batch normalization needs a pass over training data, which recomputes model/moving_mean.\n"
    ) in said.words
    assert value(tmp_path / "swa", key_of("model/w")) == [0.0, 2.0, 4.0, 6.0]
    assert value(tmp_path / "swa", key_of("step"), "<i8") == [2]


def test_names_that_are_taken_are_stepped_around_or_refused(tool, made):
    for expected in ("average-300", "average2-300", "average3-300"):
        assert tool("average", made.run.root, "200", "300", "--json").json["checkpoint"] == expected
    said = tool("average", made.run.root, "200", "300")
    taken = "The name average-300 is taken, or was once, so the new checkpoint is average4-300."
    assert taken in said.words
    said = tool("average", made.run.root, "200", "300", "--name", "ckpt-100")
    assert said.code == 4
    assert "choose another name" in said.words
    tool("prune", made.run.root, "average2-300", "--yes")
    said = tool("average", made.run.root, "200", "300", "--name", "average2-300")
    assert said.code == 4
    found = tool("average", made.run.root, "ckpt-200", "ckpt-b1-400", "--json").json
    assert found["checkpoint"] == "average-b1-400"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["100"], 2, "Name two or more different checkpoints to average."),
        (["100", "ckpt-100"], 2, "Name two or more different checkpoints to average."),
        (["100", "200", "--weights", "1"], 2, "Got 1 weight for 2 checkpoints; give one for each."),
        (["100", "200", "--weights", "1,-1"], 2, "Weights must be numbers from 0 on"),
        (["100", "200", "--weights", "0,0"], 2, "Weights must be numbers from 0 on"),
        (["100", "200", "--weights", "nan,1"], 2, "Weights must be numbers from 0 on"),
        (["100", "200", "--weights", "a,b"], 2, "--weights a,b is not a list of numbers"),
        (["100", "200", "--weights", "1,1", "--ema", "0.9"], 2, "Give either --weights or --ema."),
        (["100", "200", "--ema", "1"], 2, "--ema"),
        (["100", "200", "--ema", "nan"], 2, "nan is not a finite number."),
        (["100", "200", "--name", "n\n"], 2, "'n\\n' is not a valid checkpoint name"),
        (["100", "200", "--name", ".tfckpt"], 2, "'.tfckpt' is not a valid checkpoint name"),
        (["100", "200", "--name", "../up"], 2, "'../up' is not a valid checkpoint name"),
        (["100", "200", "--name", "swa-9"], 2, "swa-9 looks like step 9 of branch 0; expected"),
        (["100", "999"], 2, "There is no checkpoint"),
    ],
)
def test_what_cannot_be_averaged_is_said(tool, made, words, code, message):
    before = sorted(made.run.root.rglob("*"))
    said = tool("average", made.run.root, *words)
    assert said.code == code
    assert message in said.words
    assert sorted(made.run.root.rglob("*")) == before


def test_different_variables_are_refused_with_a_list(tool, tmp_path):
    write(tmp_path / "ckpt-1", {"a": array(np.zeros(3, np.float32)), "b": array([1.0])})
    write(tmp_path / "ckpt-2", {"a": array(np.zeros(4, np.float32))})
    said = tool("average", tmp_path, "1", "2")
    assert said.code == 4
    assert "The checkpoints have different variables, so they cannot be averaged:" in said.words
    assert "  a: float32 3 in ckpt-1, float32 4 in ckpt-2\n" in said.words
    assert "  b: float64 1 in ckpt-1, missing in ckpt-2\n" in said.words


def test_a_source_that_is_pruned_meanwhile_is_said_to_be_in_the_trash(tool, made, monkeypatch):
    def pruned_meanwhile(*arguments, **options):
        plan = plan_average(*arguments, **options)
        tool("prune", made.run.root, "ckpt-100", "--yes")
        return plan

    monkeypatch.setattr("tfckpt_tui.tools.tensors.average_command.plan_average", pruned_meanwhile)
    said = tool("average", made.run.root, "ckpt-100", "ckpt-200")
    assert said.code == 2
    assert "ckpt-100 is in the trash" in said.words


def test_a_damaged_source_leaves_nothing(tool, made):
    data = made.run.root / "ckpt-200.data-00000-of-00001"
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    before = sorted(made.run.root.rglob("*"))
    said = tool("average", made.run.root, "100", "200")
    assert said.code == 1
    assert "does not match its checksum" in said.words
    assert sorted(made.run.root.rglob("*")) == before


def test_checkpoints_of_other_programs_are_averaged_without_becoming_the_start(tool, tmp_path):
    for name in ("best", "model-7"):
        write_floats(tmp_path / name, (1.0, 2.0))
    assert "The step of model" not in tool("average", tmp_path, "best", "model-7").words
    run = RunDirectory(tmp_path)
    assert load(run.record("average-7"), CheckpointRecord).step == 7


def test_a_step_that_is_unknown_comes_from_the_name(tool, tmp_path):
    for name in ("best", "better"):
        write_floats(tmp_path / name, (1.0, 2.0))
    said = tool("average", tmp_path, "best", "better")
    assert said.code == 2
    assert "Choose a name that ends in the step, such as --name average-500." in said.words
    assert tool("average", tmp_path, "best", "better", "--name", "mean-9").code == 0
    assert load(RunDirectory(tmp_path).record("mean-9"), CheckpointRecord).step == 9


def test_the_state_of_each_worker_is_that_of_the_newest(tool, made):
    own = made.run.worker_state_directory("ckpt-500")
    own.mkdir()
    (own / "worker-0.json").write_text("{}")
    record = load(made.run.record("ckpt-500"), CheckpointRecord)
    facts = FileFacts(name=".tfckpt/workers/ckpt-500/worker-0.json", size=2, crc32c=0)
    store(made.run.record("ckpt-500"), replace(record, files=[*record.files, facts]))
    said = tool("average", made.run.root, "400", "ckpt-500")
    assert said.code == 2, "There are two checkpoints of step 400."
    assert tool("average", made.run.root, "ckpt-400", "ckpt-500").code == 0
    copy = made.run.worker_state_directory("average-500") / "worker-0.json"
    assert copy.read_text() == "{}"
    assert tool("verify", made.run.root, "average-500").code == 0


def test_a_folder_that_nothing_shows_to_be_of_a_save_is_stepped_around_and_kept(tool, made):
    left = made.run.root / "average-500_temp" / "average-500_temp"
    left.mkdir(parents=True)
    (left / "data-00000").write_bytes(b"half")
    for path in (left / "data-00000", left, left.parent):
        os.utime(path, (1e9, 1e9))
    listed = tool("ls", made.run.root, "--json").json["checkpoints"]
    assert "average-500" not in [one["name"] for one in listed]
    found = tool("average", made.run.root, "100", "ckpt-500", "--json").json
    assert found["checkpoint"] == "average2-500"
    assert tool("prune", made.run.root, "average-500", "--yes").code != 0
    assert (left / "data-00000").read_bytes() == b"half"
    made.run.worker_state_directory("average3-500").mkdir(parents=True)
    assert tool("average", made.run.root, "100", "ckpt-500").code == 0
    found = tool("average", made.run.root, "100", "ckpt-500", "--json").json
    assert found["checkpoint"] == "average5-500"


def test_a_pipe_in_place_of_an_index_keeps_no_average_waiting(made: RunFactory) -> None:
    run = made.run
    (read,) = look_up_all(run, ["ckpt-500"])
    index = index_path(run.root / read.name)
    index.unlink()
    os.mkfifo(index)
    with pytest.raises(DamagedFileError, match="not a regular file"):
        source_facts(run, read)
