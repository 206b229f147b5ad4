"""The option `--histogram` of `compare`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from json_reference import check

from bundle_writing import array, in_parts, key_of, rows, strings, write
from tfckpt_tui.reports.tensors import CompareReport

BEFORE = np.random.default_rng(0).normal(size=(30, 20)).astype(np.float32)
AFTER = (BEFORE + np.random.default_rng(1).normal(size=(30, 20)) * 0.1).astype(np.float32)
W = key_of("model/w")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    same = {key_of("same"): array([1.0]), key_of("text"): strings([b"a"])}
    write(tmp_path / "ckpt-1", {W: array(BEFORE), key_of("n"): array(np.array([1, 5])), **same})
    parts = in_parts(AFTER, rows(30, 20, 7, 23))
    changed = {W: parts, key_of("n"): array(np.array([3, 5])), key_of("new"): array([1.0])}
    write(tmp_path / "ckpt-2", {**changed, **same, key_of("text"): strings([b"b"])})
    return tmp_path


def test_the_histogram_is_that_of_numpy_whatever_the_parts(tool, run):
    said = tool("compare", run, "1", "2", "--json", "--histogram")
    assert said.code == 0
    found = said.json
    figures = {
        one["name"]: one["difference_statistics"]
        for one in found["tensors"]
        if one["difference_statistics"] is not None
    }
    assert set(figures) == {W, key_of("n")}
    difference = AFTER.astype(np.float64) - BEFORE.astype(np.float64)
    counts, edges = np.histogram(difference, bins=16)
    histogram = figures[W]["histogram"]
    assert histogram["counts"] == counts.tolist()
    assert [histogram["low"], histogram["high"]] == pytest.approx([edges[0], edges[-1]])
    assert figures[W]["mean"] == pytest.approx(difference.mean())
    assert figures[W]["deviation"] == pytest.approx(difference.std())
    assert figures[W]["norm"] == pytest.approx(np.linalg.norm(difference))
    assert (figures[key_of("n")]["zeros"], figures[key_of("n")]["maximum"]) == (1, 2.0)
    check(CompareReport, found)


def test_it_is_printed_as_bars(tool, run):
    said = tool("compare", run, "1", "2", "--histogram", "n/*")
    assert said.code == 0
    lines = said.data[said.data.index("ckpt-2 minus ckpt-1:") :].splitlines()
    assert lines[2].endswith("2 elements, 1 equal, mean 1.000, deviation 1.000, norm 2.000")
    assert len(lines) == 3 + 16
    assert lines[3].split()[-2:] == ["#" * 40, "1"]
    assert "model/w" not in "".join(lines)


def test_a_tensor_that_is_equal_is_shown_if_it_is_named(tool, run):
    said = tool("compare", run, "1", "2", "--histogram", "same")
    assert said.code == 0
    assert "1 element, 1 equal, mean 0.000, deviation 0.000, norm 0.000" in said.data


@pytest.mark.parametrize("name", ["text", "new", "same*"])
def test_what_has_no_difference_is_said(tool, run, name):
    said = tool("compare", run, "1", "2", "--histogram", name)
    assert said.code == 2
    assert f"No tensor that matches {name!r} differs and has numbers" in said.words


def test_values_that_are_not_finite_are_counted_and_left_out(tool, tmp_path):
    write(tmp_path / "ckpt-1", {"a": array(np.array([1.0, np.inf, np.nan, 2.0]))})
    write(tmp_path / "ckpt-2", {"a": array(np.array([1.5, np.inf, 0.0, 3.0]))})
    said = tool("compare", tmp_path, "1", "2", "--histogram")
    assert "4 elements, 0 equal, 2 not finite, mean 0.7500" in said.data


def test_damage_is_said_and_is_a_problem(tool, run):
    data = run / "ckpt-2.data-00000-of-00001"
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    said = tool("compare", run, "1", "2", "--histogram")
    assert said.code == 1
    assert "model/w" in said.data
    assert "does not match its checksum" in said.data


def test_edges_that_are_close_have_as_many_digits_as_they_need(tool, tmp_path):
    for step in (1, 2):
        values = np.linspace(1.0, 1.0 + 1e-9, 17) * (step - 1)
        write(tmp_path / f"ckpt-{step}", {"w": array(values)})
    lines = tool("compare", tmp_path, "1", "2", "--histogram").data.splitlines()
    ends = [line.split("#")[0] for line in lines if " to " in line]
    assert len(set(ends)) == len(ends) == 16
    assert ends[-1].split()[-1] == "1.000000001"
