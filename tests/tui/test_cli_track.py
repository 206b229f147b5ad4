"""The command `track`."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from json_reference import check
from rundir_factory import two_branches, without_heartbeats

from bundle_writing import array, in_parts, key_of, rows, strings, write
from tfckpt_tui.reports.tensors import TrackReport

VALUES = [np.random.default_rng(n).normal(size=(6, 4)).astype(np.float32) for n in range(4)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Four checkpoints of a tensor; one has it in parts, and one not at all."""
    text = strings([b"a"])
    write(tmp_path / "ckpt-1", {key_of("m/w"): array(VALUES[0]), "text": text})
    write(tmp_path / "ckpt-2", {key_of("m/w"): in_parts(VALUES[1], rows(6, 4, 5, 1)), "text": text})
    write(tmp_path / "ckpt-3", {key_of("m/other"): array(VALUES[2]), "text": text})
    write(tmp_path / "ckpt-4", {key_of("m/w"): array(VALUES[3]), "text": text})
    return tmp_path


def test_the_figures_are_those_of_numpy(tool, run):
    said = tool("track", run, key_of("m/w"), "--json")
    check(TrackReport, said.json)
    assert said.json["tensor"] == key_of("m/w")
    found = {one["name"]: one for one in said.json["checkpoints"]}
    assert list(found) == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4"]
    for name, before, now in (("ckpt-2", 0, 1), ("ckpt-4", 1, 3)):
        one, old, new = found[name], VALUES[before].astype("f8"), VALUES[now].astype("f8")
        assert one["mean"] == pytest.approx(new.mean())
        assert one["deviation"] == pytest.approx(new.std())
        assert one["norm"] == pytest.approx(np.linalg.norm(new))
        assert one["update"] == pytest.approx(np.linalg.norm(new - old))
        ratio = np.linalg.norm(new - old) / np.linalg.norm(old)
        assert one["update_ratio"] == pytest.approx(ratio)
        assert one["compared_with"] == f"ckpt-{before + 1}"
    assert found["ckpt-1"]["compared_with"] is None
    assert found["ckpt-3"]["norm"] is None


def test_a_tensor_that_is_missing_somewhere_is_said(tool, run):
    said = tool("track", run, "m/w/.ATTRIBUTES/VARIABLE_VALUE")
    assert said.code == 1
    lines = said.data.splitlines()
    assert lines[0].split()[:4] == ["NAME", "STEP", "BRANCH", "MEAN"]
    assert lines[3].endswith("It has no numeric tensor m/w/.ATTRIBUTES/VARIABLE_VALUE.")


def test_csv_has_one_line_for_each_checkpoint(tool, run):
    said = tool("track", run, "m/w", "--csv")
    found = list(csv.DictReader(said.data.splitlines()))
    assert [one["name"] for one in found] == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4"]
    assert float(found[1]["norm"]) == pytest.approx(np.linalg.norm(VALUES[1].astype("f8")))
    assert (found[0]["update"], found[2]["norm"]) == ("", "")


def test_updates_refer_to_the_ancestor_and_averages_are_left_out(tool, tmp_path):
    made = without_heartbeats(two_branches(tmp_path / "run"))
    name = next(
        one["name"] for one in tool("inspect", made.run.root, "500", "--json").json["tensors"]
    )
    assert tool("average", made.run.root, "100", "200").code == 0
    said = tool("track", made.run.root, name, "--json")
    assert said.code == 0
    before = {one["name"]: one["compared_with"] for one in said.json["checkpoints"]}
    assert before == {
        "ckpt-100": None,
        "ckpt-200": "ckpt-100",
        "ckpt-300": "ckpt-200",
        "ckpt-400": "ckpt-300",
        "ckpt-500": "ckpt-400",
        "ckpt-b1-400": "ckpt-300",
    }


def test_values_that_are_not_finite_are_counted(tool, tmp_path):
    write(tmp_path / "ckpt-1", {"w": array(np.array([0.0, 0.0]))})
    write(tmp_path / "ckpt-2", {"w": array(np.array([np.nan, 1.0]))})
    found = tool("track", tmp_path, "w", "--json").json["checkpoints"]
    assert (found[1]["not_finite"], found[1]["norm"]) == (1, 1.0)
    assert found[1]["update_ratio"] is None
    assert "1 not finite" in tool("track", tmp_path, "w").data


def test_damage_is_said(tool, run):
    data = run / "ckpt-2.data-00000-of-00001"
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    said = tool("track", run, "m/w", "--json")
    assert said.code == 1
    found = {one["name"]: one for one in said.json["checkpoints"]}
    assert "does not match its checksum" in found["ckpt-2"]["problem"]
    assert found["ckpt-4"]["compared_with"] == "ckpt-1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "No checkpoint has a tensor 'nothing'. List those of one with"),
        (["text"], "text is string; only numeric tensors are tracked."),
        (["m/w", "--csv", "--json"], "Give either --csv or --json."),
    ],
)
def test_what_cannot_be_tracked_is_said(tool, run, words, message):
    said = tool("track", run, *words)
    assert said.code == 2
    assert message in said.words


def test_a_checkpoint_that_cannot_be_restored_is_not_passed_over(tool, run):
    (run / "ckpt-2.data-00000-of-00001").unlink()
    said = tool("track", run, "m/w", "--json")
    assert said.code == 1
    found = {one["name"]: one for one in said.json["checkpoints"]}
    assert found["ckpt-2"]["norm"] is None
    assert "ckpt-2.data-00000-of-00001 is missing" in found["ckpt-2"]["problem"]
    assert found["ckpt-4"]["compared_with"] == "ckpt-1"


def test_a_link_to_a_checkpoint_is_not_tracked_twice(tool, run):
    for ending in ("index", "data-00000-of-00001"):
        (run / f"best.{ending}").symlink_to(f"ckpt-1.{ending}")
        (run / f"out.{ending}").symlink_to(f"../elsewhere/ckpt-1.{ending}")
        (run / f"loop.{ending}").symlink_to(f"loop.{ending}")
    (run / "dead.index").symlink_to("nowhere.index")
    found = tool("track", run, "m/w", "--json").json["checkpoints"]
    assert [one["name"] for one in found] == ["ckpt-1", "ckpt-2", "ckpt-3", "ckpt-4"]
    assert found[0]["compared_with"] is None
