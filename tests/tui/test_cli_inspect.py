"""The commands that look into checkpoints: verify, inspect, compare, bisect."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from json_reference import check
from rundir_factory import RunFactory, two_branches

from bundle_writing import (
    GRAPH_KEY,
    Object,
    Parts,
    Stored,
    array,
    graph,
    in_parts,
    key_of,
    rows,
    strings,
    variable,
    write,
)
from command_running import BINARY, Said, Tool, run_binary
from tfckpt_trainer.bundle.checksum import crc32c
from tfckpt_trainer.catalog.commit.saves import point_state_file_at
from tfckpt_trainer.catalog.directory.checkpoints import Checkpoint
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.checkpoint import CheckpointRecord, FileFacts
from tfckpt_trainer.rundir.records.run import Head
from tfckpt_trainer.rundir.storage.documents import copy_of, store
from tfckpt_tui.cli.checkpoints import verify as verify_command
from tfckpt_tui.cli.checkpoints.verify import _verified
from tfckpt_tui.reports.tensors import CompareReport, InspectReport
from tfckpt_tui.reports.verification import BisectReport, VerifyReport
from tfckpt_tui.services.checkpoints.choose import pair_to_compare
from tfckpt_tui.services.checkpoints.look_up import list_checkpoints
from tfckpt_tui.services.checkpoints.verify import Verifier
from tfckpt_tui.services.processes import parallel_map
from waiting import MOST_SECONDS, wait_until

KERNEL, MOMENT = key_of("model/kernel"), key_of("model/kernel/.OPTIMIZER_SLOT/optimizer/m")
NOTHING = float("nan")


@pytest.fixture(params=["one by one", "many"])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small checkpoints are read and stored one by one, or as those of a directory with many."""
    if request.param == "many":
        monkeypatch.setattr(verify_command, "_MANY", 1)
        monkeypatch.setattr(verify_command, "_STORED_TOGETHER", 2)
        monkeypatch.setattr(parallel_map, "usable_cores", lambda: 2)
        monkeypatch.setattr(parallel_map, "_BLOCK", 1)


def tensors(step: int, **changed: Any) -> dict[str, Stored | Parts]:
    """A small model with a momentum, a counter and a text, saved at `step`."""
    nodes = [
        Object({"model": 1, "optimizer": 2, "step": 3, "text": 6}),
        Object({"kernel": 4}),
        Object({}, slots=[(4, "m", 5)]),
        Object({}, [variable("step")]),
        Object({}, [variable("model/kernel", "kernel")]),
        Object({}, [("VARIABLE_VALUE", "kernel/m", MOMENT)]),
        Object({}, [variable("text")]),
    ]
    made: dict[str, Stored | Parts] = {
        KERNEL: array(np.arange(12, dtype=np.float32).reshape(3, 4) * step),
        MOMENT: array(np.zeros((3, 4), np.float32)),
        key_of("step"): array(np.int64(step)),
        key_of("text"): strings([b"one", b"two"]),
        GRAPH_KEY: graph(nodes),
    }
    return {**made, **changed}


def begin_save(prefix: Path) -> None:
    """Leaves what TensorFlow has of a save that it has begun."""
    place = prefix.with_name(f"{prefix.name}_temp")
    place.mkdir()
    (place / "part-00000-of-00001.data-00000-of-00001.tempstate1").write_bytes(b"half")


def save(root: Path, step: int, name: str = "", **changed: Any) -> str:
    """Writes a checkpoint long ago, the higher the step the later; returns its name."""
    name = name or f"ckpt-{step}"
    for path in write(root / name, tensors(step, **changed)):
        os.utime(path, (1_700_000_000 + step, 1_700_000_000 + step))
    return name


def in_kernel(*values: float) -> dict[str, Stored]:
    return {KERNEL: array(np.array([[1.0, *values]], np.float32))}


def data_of(root: Path, name: str) -> Path:
    return root / f"{name}.data-00000-of-00001"


def flip(path: Path, place: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def reads_again(said: Said) -> list[bool]:
    return [not one["remembered"] for one in said.json["checkpoints"]]


# verify


@pytest.mark.usefixtures("together")
def test_verify_reads_all_checkpoints_and_counts_the_sound_ones(tool: Tool, tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, step)
    said = tool("verify", tmp_path)
    assert said.code == 0
    lines = said.data.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["ckpt-2", "sound"], ["ckpt-1", "sound"]]
    assert "4 tensors" in lines[0]
    assert len(tool("inspect", tmp_path, "ckpt-2", "--json").json["tensors"]) == 4
    assert lines[-1] == "2 checkpoints: 2 sound."


@pytest.mark.usefixtures("together")
def test_verify_names_what_is_damaged(tool: Tool, tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path, step)
    flip(data_of(tmp_path, "ckpt-1"), 5)
    said = tool("verify", tmp_path)
    assert said.code == 1
    assert "    error: model/kernel in ckpt-1.data-00000-of-00001 does not match" in said.data
    assert said.data.splitlines()[-1] == "2 checkpoints: 1 sound, 1 corrupt."
    assert tool("verify", tmp_path, "2").code == 0
    assert tool("verify", tmp_path, "ckpt-1").code == 1


@pytest.mark.usefixtures("together")
def test_json_of_verify_is_as_documented(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1, **in_kernel(NOTHING))
    begin_save(tmp_path / "ckpt-9")
    data_of(tmp_path, "ckpt-9").write_bytes(b"half")
    data = data_of(tmp_path, "ckpt-1")
    data.write_bytes(data.read_bytes() + b"more")
    said = tool("verify", tmp_path, "--finite", "--json")
    check(VerifyReport, said.json)
    (one,) = said.json["checkpoints"]
    assert (one["name"], one["ok"], one["tensors"]) == ("ckpt-1", False, 4)
    files = tmp_path.glob("ckpt-1.*")
    assert one["bytes"] == sum(path.stat().st_size for path in files) - len(b"more")
    assert [f["kind"] for f in one["findings"]] == ["shard-long"]
    assert [skipped["name"] for skipped in said.json["skipped"]] == ["ckpt-9"]


def test_verify_tells_of_a_damaged_note_of_the_last_restore(tool: Tool, tmp_path: Path) -> None:
    made = two_branches(tmp_path)
    run = made.run
    name = save(tmp_path, 2)
    store(run.head_file, Head(checkpoint=name, step=2, branch=0, sequence=99))
    point_state_file_at(run, name)
    assert tool("verify", tmp_path, name, "--json").json["findings"] == []
    assert "head.json" not in tool("verify", tmp_path).data

    def findings() -> list[tuple[str, str]]:
        found = tool("verify", tmp_path, "--json")
        check(VerifyReport, found.json)
        return [(one["file"], one["message"]) for one in found.json["findings"]]

    flip(copy_of(run.head_file), 20)
    [(file, message)] = findings()
    assert file == "head.json.copy"
    flip(run.head_file, 20)
    [(file, message), (other, _)] = findings()
    assert (file, other) == ("head.json", "head.json.copy")
    assert message.endswith(f"from {name}, the latest checkpoint in TensorFlow's state file.")
    said = tool("verify", tmp_path)
    assert f"warning: {message}" in said.data
    flip(copy_of(run.head_file), 20)
    [(file, message)] = findings()
    assert file == "head.json"
    assert message.endswith("Its copy head.json.copy is used.")


@pytest.mark.usefixtures("together")
def test_a_checkpoint_without_its_record_is_not_called_sound(tool: Tool, tmp_path: Path) -> None:
    run = two_branches(tmp_path).run
    name = save(tmp_path, 2)
    record = CheckpointRecord(name=name, step=2, branch=0, sequence=99, saved_at=0.0, trigger="end")
    store(run.record(name), record)
    assert tool("verify", tmp_path, name, "--strict").code == 0
    for path in (run.record(name), copy_of(run.record(name))):
        flip(path, 20)
    said = tool("verify", tmp_path, name)
    assert f"{name}  inexact" in said.data and "1 inexact" in said.data
    assert said.code == 0
    assert tool("verify", tmp_path, name, "--strict").code == 1
    [row] = [one for one in tool("ls", tmp_path).data.splitlines() if one.startswith(f"{name} ")]
    assert "inexact" in row and "not the input position" in row


def test_a_warning_alone_is_no_problem(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    with open(data_of(tmp_path, "ckpt-1"), "ab") as file:
        file.write(b"more")
    said = tool("verify", tmp_path)
    assert said.code == 0
    assert "warning: ckpt-1.data-00000-of-00001 has 4 bytes that no tensor uses" in said.data
    assert "1 checkpoint: 1 sound." in said.data


@pytest.mark.usefixtures("together")
def test_what_is_not_finite_is_a_problem_only_where_it_was_asked_for(
    tool: Tool, tmp_path: Path
) -> None:
    save(tmp_path, 1, **in_kernel(NOTHING, 2.0, float("inf"), -float("inf")))
    assert tool("verify", tmp_path).code == 0
    said = tool("verify", tmp_path, "--finite")
    assert said.code == 1
    expected = "1 NaN and 2 infinite of 5 values, the first at [0, 1]"
    assert f"model/kernel: {expected}" in said.data
    assert said.data.splitlines()[-1] == "1 checkpoint: 0 sound, 1 not finite."


@pytest.mark.usefixtures("together")
def test_values_that_are_not_finite_are_remembered_and_protect_an_older_checkpoint(
    tool: Tool, tmp_path: Path
) -> None:
    RunFactory(tmp_path).create()
    save(tmp_path, 1)
    for step in (2, 3):
        save(tmp_path, step, **in_kernel(NOTHING))
    plan = ("prune", tmp_path, "--keep-last", "1", "--dry-run", "--json")
    assert goes(tool(*plan)) == {"ckpt-1", "ckpt-2"}
    assert tool("verify", tmp_path, "--finite").code == 1
    assert tool("verify", tmp_path, "--again").code == 0
    rows = tool("ls", tmp_path, "--json").json["checkpoints"]
    marks = ["✗ 1 tensor not finite" in row for row in tool("ls", tmp_path).data.splitlines()]
    assert marks == [False, True, True, False]
    assert "values      ✗ 1 tensor not finite\n" in tool("inspect", tmp_path, "2").data
    assert "✗" not in tool("inspect", tmp_path, "1").data
    assert [row["not_finite_tensors"] for row in rows] == [1, 1, 0]
    assert goes(tool(*plan)) == {"ckpt-2"}
    said = tool(*plan[:-1])
    assert re.search(r"keep +ckpt-1 .*the newest whose values are known to be finite", said.data)


def test_what_bisect_found_is_remembered_too(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    for step in (3, 4):
        save(tmp_path, step, **in_kernel(NOTHING))
    assert "The first bad one is ckpt-3" in tool("bisect", tmp_path, "--finite").data
    rows = tool("ls", tmp_path, "--json").json["checkpoints"]
    assert [row["not_finite_tensors"] for row in rows] == [1, 1, 0, 0]
    assert goes(tool("prune", tmp_path, "--keep-last", "1", "--dry-run", "--json")) == {
        "ckpt-3",
        "ckpt-1",
    }


def goes(said: Said) -> set[str]:
    return {one["name"] for one in said.json["plan"]["decisions"] if not one["keep"]}


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("ours", [False, True])
def test_what_was_verified_is_not_read_again_until_it_changes(
    tool: Tool, tmp_path: Path, ours: bool
) -> None:
    if ours:
        RunFactory(tmp_path).create()
    for step in (1, 2):
        save(tmp_path, step)
    assert reads_again(tool("verify", tmp_path, "--json")) == [True, True]
    second = tool("verify", tmp_path, "--json")
    assert reads_again(second) == [False, False]
    flip(data_of(tmp_path, "ckpt-1"), 5)
    third = tool("verify", tmp_path, "--json")
    assert (third.code, reads_again(third)) == (1, [False, True])
    fourth = tool("verify", tmp_path, "--json")
    assert (fourth.code, reads_again(fourth)) == (1, [False, False])
    assert fourth.json["checkpoints"][1]["findings"] == third.json["checkpoints"][1]["findings"]
    assert reads_again(tool("verify", tmp_path, "--again", "--json")) == [True, True]
    assert RunDirectory(tmp_path).control.exists() == ours


def test_where_nothing_can_be_remembered_the_answer_is_right_all_the_same(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    root.mkdir()
    save(root, 1)
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for damaged in (False, True):
        if damaged:
            flip(data_of(root, "ckpt-1"), 5)
        said = tool("verify", root, "--json")
        assert (said.code, reads_again(said)) == (int(damaged), [True])
        assert "The result is not stored: " in said.words


@pytest.mark.usefixtures("together")
def test_the_digests_of_our_record_are_checked_too(tool: Tool, tmp_path: Path) -> None:
    made = RunFactory(tmp_path).create()
    name = save(tmp_path, 7)
    facts = [
        FileFacts(name=p.name, size=p.stat().st_size, crc32c=crc32c(p.read_bytes()))
        for p in sorted(tmp_path.glob(f"{name}.*"))
    ]
    record = CheckpointRecord(
        name=name, step=7, branch=0, sequence=1, saved_at=1.7e9, trigger="command", files=facts
    )
    store(made.run.record(name), record)
    assert tool("verify", tmp_path).code == 0
    # A whole checkpoint, only not the one that was saved.
    save(tmp_path, 8, name=name)
    said = tool("verify", tmp_path)
    assert said.code == 1
    assert "ckpt-7.index has another checksum than recorded" in said.data


@pytest.mark.usefixtures("together")
def test_what_is_only_half_there_is_damaged_not_a_failure(tool: Tool, tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    data_of(tmp_path, "ckpt-1").unlink()
    (tmp_path / "ckpt-2.index").write_bytes(b"")
    flip(tmp_path / "ckpt-3.index", 4)
    data_of(tmp_path, "ckpt-4").unlink()
    data_of(tmp_path, "ckpt-4").mkdir()
    said = tool("verify", tmp_path, "--json")
    assert said.code == 1
    kinds = {one["name"]: {f["kind"] for f in one["findings"]} for one in said.json["checkpoints"]}
    assert kinds["ckpt-1"] == {"shard-missing"}
    assert kinds["ckpt-2"] == {"index-empty"}
    assert kinds["ckpt-3"] == {"index"}
    assert "shard-not-plain" in kinds["ckpt-4"]
    words = tool("verify", tmp_path, "--again").data
    assert words.splitlines()[-1] == "4 checkpoints: 0 sound, 3 incomplete, 1 corrupt."
    listed = tool("ls", tmp_path, "--json").json["checkpoints"]
    assert {one["name"]: one["state"] for one in listed} == {
        "ckpt-1": "incomplete",
        "ckpt-2": "incomplete",
        "ckpt-3": "corrupt",
        "ckpt-4": "incomplete",
    }


@pytest.mark.usefixtures("together")
def test_tensors_in_a_data_file_that_may_not_be_read_are_not_called_damaged(
    tool: Tool, open_place: Path, become_nobody: Callable[[], None]
) -> None:
    for step in (1, 2, 3):
        save(open_place, step)
    (open_place / "ckpt-1.data-00000-of-00001").chmod(0)
    # Modules can be imported only before.
    tool("inspect", open_place, "2", "--stats")
    tool("prune", open_place, "--keep-last", "1", "--dry-run")
    become_nobody()
    said = tool("inspect", open_place, "1", "--stats")
    assert said.code == 1
    assert "(not read)" in said.data
    assert "(damaged)" not in said.data
    assert "ckpt-1.data-00000-of-00001 cannot be read: Permission denied." in said.data
    planned = tool("prune", open_place, "--keep-last", "1", "--dry-run", "--json").json["plan"]
    reasons = {one["name"]: one["reason"] for one in planned["decisions"]}
    assert reasons["ckpt-1"] == (
        "unreadable: delete it by name "
        "(ckpt-1.data-00000-of-00001 cannot be read: Permission denied)"
    )


@pytest.mark.usefixtures("together")
def test_a_checkpoint_of_a_big_endian_machine_is_unsupported_and_stays(
    tool: Tool, tmp_path: Path
) -> None:
    write(tmp_path / "ckpt-1", {"v": array(np.ones(3, np.float32))}, is_big_endian=True)
    for step in (2, 3):
        save(tmp_path, step)
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-1"\n')
    listed = tool("ls", tmp_path, "--json").json
    assert [one["state"] for one in listed["checkpoints"]] == [
        "unsupported", "complete", "complete",
    ]  # fmt: skip
    (newest,) = [one for one in listed["diagnostics"] if one["kind"] == "latest-unusable"]
    assert "which is unsupported" in newest["message"]
    assert "restore it with TensorFlow and save it again." in newest["message"]
    said = tool("status", tmp_path)
    assert said.code == 1
    assert "The newest checkpoint ckpt-1 is unsupported: ckpt-1.index: was written" in said.data
    assert "from a copy" not in said.data
    said = tool("verify", tmp_path)
    assert said.code == 1
    assert said.data.splitlines()[-1] == "3 checkpoints: 2 sound, 1 unsupported."
    for path in tmp_path.glob("ckpt-1.*"):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    planned = tool("prune", tmp_path, "--keep-last", "1", "--dry-run", "--json").json["plan"]
    reasons = {one["name"]: one["reason"] for one in planned["decisions"]}
    assert reasons["ckpt-1"].startswith("unsupported: delete it by name (ckpt-1.index: was")
    assert "was written on a big-endian machine" in tool("inspect", tmp_path, "ckpt-1").data


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("part", ["index", "data-00000-of-00001"])
def test_what_could_not_be_read_is_not_held_against_a_checkpoint(
    tool: Tool, open_place: Path, become_nobody: Callable[[], None], part: str
) -> None:
    for step in (1, 2):
        save(open_place, step)
    closed = open_place / f"ckpt-2.{part}"
    closed.chmod(0)
    become_nobody()
    said = tool("verify", open_place)
    assert said.code == 1
    assert f"    error: {closed.name} cannot be read: Permission denied\n" in said.data
    assert said.data.splitlines()[-1] == "2 checkpoints: 1 sound, 1 unreadable."
    assert "Errno" not in said.data
    assert [one["state"] for one in tool("ls", open_place, "--json").json["checkpoints"]] == [
        "unreadable", "verified",
    ]  # fmt: skip
    said = tool("bisect", open_place, "--finite", "--to", "2", "--json")
    assert said.json["checks"][0]["outcome"] == "skipped"
    os.seteuid(os.getuid())
    closed.chmod(0o644)
    become_nobody()
    said = tool("verify", open_place, "--json")
    assert (said.code, reads_again(said)) == (0, [True, False])


def test_a_checkpoint_that_is_asked_for_and_cannot_be_read_yet_is_a_problem(
    tool: Tool, tmp_path: Path
) -> None:
    save(tmp_path, 1)
    begin_save(tmp_path / "ckpt-2")
    assert tool("verify", tmp_path).code == 0
    said = tool("verify", tmp_path, "ckpt-2")
    assert said.code == 1
    assert "ckpt-2 was skipped" in said.words


def test_many_findings_are_cut_for_people_and_whole_in_json(tool: Tool, tmp_path: Path) -> None:
    many = {f"w{n:02d}": Stored(1, (1,), [b"\0" * 4], crc=1) for n in range(30)}
    write(tmp_path / "ckpt-1", many)
    said = tool("verify", tmp_path)
    assert said.data.count("error: ") == 20
    assert "    … and 10 more; --json prints all" in said.data
    assert len(tool("verify", tmp_path, "--json").json["checkpoints"][0]["findings"]) == 30


@pytest.mark.e2e
def test_ctrl_c_ends_a_verification_at_once(tmp_path: Path) -> None:
    size = 1 << 37
    data = write(tmp_path / "ckpt-1", {"w": Stored(4, (size,), [], size=size)})[0]
    os.truncate(data, size)
    process = subprocess.Popen(
        [BINARY, "verify", tmp_path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    descriptors = Path(f"/proc/{process.pid}/fd")

    def reads_data() -> bool:
        try:
            return any(os.path.samefile(fd, data) for fd in descriptors.iterdir())
        except FileNotFoundError:
            # A descriptor that was closed since its name was read.
            return False

    try:
        wait_until(reads_data, 30, "the data file is open")
        process.send_signal(signal.SIGINT)
        out, words = process.communicate(timeout=MOST_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, out, words.strip()) == (130, "", "")


# inspect


def test_inspect_shows_what_is_in_it_and_what_comes_back(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    said = tool("inspect", tmp_path)
    assert said.code == 0
    lines = said.data.splitlines()
    assert lines[0] == "checkpoint  ckpt-2, complete"
    table = [line.split() for line in lines]
    assert ["model/kernel", "float32", "3×4", "48", "B", "0", "weight"] in table
    slot = next(row for row in table if row[:1] == ["optimizer/m/model/kernel"])
    assert slot[-3:] == ["m", "of", "model/kernel"]
    assert ["model", "1", "48", "B"] in table
    assert any(line.startswith("weights ") and " yes " in line for line in lines)
    assert any(line.startswith("step ") and line.endswith("step = 2") for line in lines)
    assert tool("inspect", tmp_path, "1").data.startswith("checkpoint  ckpt-1,")


def test_inspect_shows_all_tensors_beside_a_value_of_the_root_object(
    tool: Tool, tmp_path: Path
) -> None:
    # As Keras 2 writes it with `save_weights`.
    config = "/.ATTRIBUTES/OBJECT_CONFIG_JSON"
    root = Object({"kernel": 1}, [("OBJECT_CONFIG_JSON", "", config)])
    nodes = [root, Object({}, [variable("kernel")])]
    weights = {key_of("kernel"): array(np.ones(3, np.float32)), config: strings([b"{}"], ())}
    write(tmp_path / "weights", {**weights, GRAPH_KEY: graph(nodes)})
    said = tool("inspect", tmp_path, "weights")
    rows = [line.split()[:2] for line in said.data.split("\n\n")[1].splitlines()]
    assert rows == [["PATH", "DTYPE"], ["kernel", "float32"], [".OBJECT_CONFIG_JSON", "string"]]


def test_json_of_inspect_is_as_documented(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 2)
    said = tool("inspect", tmp_path, "--json")
    assert said.code == 0
    check(InspectReport, said.json)
    assert said.json["record"] is None
    assert {t["name"]: (t["dtype"], t["shape"], t["bytes"]) for t in said.json["tensors"]} == {
        KERNEL: ("float32", [3, 4], 48),
        MOMENT: ("float32", [3, 4], 48),
        key_of("step"): ("int64", [], 8),
        key_of("text"): ("string", [2], 12),
    }
    made = RunFactory(tmp_path).create()
    name = made.checkpoint(300)
    said = tool("inspect", tmp_path, name, "--json")
    check(InspectReport, said.json)
    assert (said.json["record"]["step"], said.json["object_graph"]) == (300, False)


def test_json_of_statistics_is_as_documented(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 2, **in_kernel(3.0, NOTHING))
    said = tool("inspect", tmp_path, "--stats", "--json")
    assert said.code == 0
    check(InspectReport, said.json)
    by_name = {tensor["name"]: tensor["statistics"] for tensor in said.json["tensors"]}
    assert by_name[key_of("text")] is None
    found = by_name[KERNEL]
    assert (found["minimum"], found["maximum"], found["mean"], found["nan"]) == (1, 3, 2, 1)
    assert sum(found["histogram"]["counts"]) == 2
    assert by_name[MOMENT]["histogram"] is None
    words = tool("inspect", tmp_path, "--stats").data
    assert "NOT FINITE" in words


@pytest.mark.parametrize(("text", "shown"), [("KERNEL", 2), ("step", 1), ("no such", 0)])
def test_a_filter_finds_paths_whatever_the_case(
    tool: Tool, tmp_path: Path, text: str, shown: int
) -> None:
    save(tmp_path, 1)
    said = tool("inspect", tmp_path, "--filter", text, "--json")
    assert (said.code, len(said.json["tensors"])) == (0, shown)
    assert tool("inspect", tmp_path, "--filter", text).code == 0


def test_a_damaged_index_is_one_message(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    flip(tmp_path / "ckpt-1.index", 4)
    for words in (["inspect"], ["inspect", "--stats"]):
        said = tool(*words, tmp_path)
        assert (said.code, said.words) == (1, "")
        assert "problem     ckpt-1.index at byte 0: a block does not match" in said.data
        assert "so its content is unknown" in said.data
    found = tool("inspect", tmp_path, "--json").json
    check(InspectReport, found)
    assert (found["object_graph"], found["tensors"]) == (None, [])
    assert {one["comes_back"] for one in found["resuming"]} == {None}
    save(tmp_path, 2)
    assert tool("compare", tmp_path, "1", "2").code == 1


@pytest.mark.parametrize("stats", [False, True])
@pytest.mark.parametrize("damage", ["missing", "cut", "graph"])
def test_what_the_index_tells_is_shown_whatever_became_of_the_data(
    tool: Tool, tmp_path: Path, damage: str, stats: bool
) -> None:
    save(tmp_path, 1)
    data = data_of(tmp_path, "ckpt-1")
    if damage == "missing":
        data.unlink()
    elif damage == "cut":
        os.truncate(data, 20)
    else:
        flip(data, data.stat().st_size - 1)
    words = ["--stats"] if stats else []
    said = tool("inspect", tmp_path, "--json", *words)
    assert said.code == 1
    names = {tensor["name"] for tensor in said.json["tensors"]}
    assert names == {KERNEL, MOMENT, key_of("step"), key_of("text")}
    assert said.json["problem"]
    assert said.json["object_graph"] is None
    assert {tensor["role"] for tensor in said.json["tensors"]} == {"unknown"}
    assert {one["comes_back"] for one in said.json["resuming"]} == {None}
    said = tool("inspect", tmp_path, *words)
    assert said.code == 1
    assert "\nproblem     " in said.data
    assert "3×4" in said.data


def test_one_tensor_that_cannot_be_read_takes_no_other_with_it(tool: Tool, tmp_path: Path) -> None:
    # Beyond the end of the data file, as an index of another save would have it.
    save(tmp_path, 1, **{KERNEL: Stored(1, (3, 4), [], size=48, offset=1 << 20, crc=0)})
    said = tool("inspect", tmp_path, "--stats", "--json")
    assert said.code == 1
    known = {t["name"] for t in said.json["tensors"] if t["statistics"] is not None}
    assert known == {MOMENT, key_of("step")}


def test_damaged_tensors_are_marked_once_they_are_known(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    flip(data_of(tmp_path, "ckpt-1"), 5)
    said = tool("inspect", tmp_path, "--stats", "--json")
    assert said.code == 1
    found = {one["name"]: one for one in said.json["tensors"]}
    assert found[KERNEL]["statistics"] is None
    assert "does not match its checksum" in found[KERNEL]["problem"]
    assert found[MOMENT]["problem"] == ""
    assert "weight (damaged)" in tool("inspect", tmp_path, "--stats").data
    assert "(damaged)" not in tool("inspect", tmp_path).data
    assert tool("verify", tmp_path).code == 1
    assert "weight (damaged)" in tool("inspect", tmp_path).data


# compare


def test_compare_tells_what_changed(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2, extra=array(np.zeros(2)))
    said = tool("compare", tmp_path, "1", "2")
    assert said.code == 0
    lines = said.data.splitlines()
    assert lines[0] == "ckpt-1 → ckpt-2: 1 added, 2 changed, 2 equal"
    assert [line.split()[0] for line in lines[2:]] == ["extra", "model/kernel", "step"]
    slot = "optimizer/m/model/kernel"
    assert slot not in said.data
    assert slot in tool("compare", tmp_path, "1", "2", "--all").data


def test_json_of_compare_is_as_documented(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 1)
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    columns = [((0, 3), (0, 2)), ((0, 3), (2, 2))]
    save(tmp_path, 2, **{KERNEL: in_parts(matrix * 2, columns), "x": array(np.zeros(2))})
    said = tool("compare", tmp_path, "ckpt-1", "ckpt-2", "--json")
    check(CompareReport, said.json)
    assert said.json["counts"] == {
        "added": 1, "removed": 0, "shape": 0, "dtype": 0, "changed": 2, "equal": 2,
    }  # fmt: skip
    by_name = {one["name"]: one for one in said.json["tensors"]}
    assert by_name[KERNEL]["unknown"]
    assert by_name["x"]["shape"] == [None, [2]]

    save(tmp_path, 3, **{KERNEL: in_parts(matrix * 2, rows(3, 4, 2, 1)), "x": array(np.zeros(2))})
    said = tool("compare", tmp_path, "1", "3", "--norms", "--json")
    check(CompareReport, said.json)
    changes = {tensor["name"]: tensor["change"] for tensor in said.json["tensors"]}
    assert changes[KERNEL]["relative"] == pytest.approx(1.0)
    assert changes[KERNEL]["norm_after"] == pytest.approx(2 * np.linalg.norm(matrix))
    assert changes["x"] is None


def test_the_largest_change_comes_first(tool: Tool, tmp_path: Path) -> None:
    one = {name: array(np.ones(4)) for name in ("a", "b", "c", "d")}
    two = {"a": array(np.ones(4) * 1.1), "b": array(np.ones(4) * 3)}
    two |= {"c": array(np.zeros(4)), "d": array(np.array([1, 1, 2, NOTHING]))}
    for step, changed in ((1, one), (2, two)):
        write(tmp_path / f"ckpt-{step}", changed)
    lines = tool("compare", tmp_path, "1", "2", "--norms").data.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["d", "b", "c", "a"]
    assert "1 not finite" in lines[2]
    assert "200 %" in lines[3]


@pytest.mark.parametrize("norms", [[], ["--norms"]])
def test_damage_in_what_is_compared_is_said(tool: Tool, tmp_path: Path, norms: list[str]) -> None:
    for step in (1, 2):
        save(tmp_path, step)
    data_of(tmp_path, "ckpt-2").unlink()
    said = tool("compare", tmp_path, "1", "2", *norms)
    assert said.code == 1
    lines = said.data.splitlines()
    assert lines[1] == "problem: ckpt-2 is incomplete: ckpt-2.data-00000-of-00001 is missing."
    assert any("model/kernel " in line and "changed (damaged)" in line for line in lines)
    found = tool("compare", tmp_path, "1", "2", "--json", *norms).json
    assert found["problems"] == [lines[1].removeprefix("problem: ")]
    assert all("ckpt-2.data-00000-of-00001" in one["problem"] for one in found["tensors"])


def test_damage_that_is_met_while_comparing_takes_no_other_tensor_with_it(
    tool: Tool, tmp_path: Path
) -> None:
    for step in (1, 2):
        save(tmp_path, step)
    flip(data_of(tmp_path, "ckpt-2"), 5)
    assert tool("compare", tmp_path, "1", "2").code == 0
    said = tool("compare", tmp_path, "1", "2", "--norms", "--json")
    assert said.code == 1
    found = {one["name"]: one for one in said.json["tensors"]}
    assert found[KERNEL]["change"] is None
    assert "does not match its checksum" in found[KERNEL]["problem"]
    assert found[key_of("step")]["change"]["distance"] == 1


# which checkpoint is meant


@pytest.mark.parametrize("words", [["verify"], ["inspect"], ["bisect", "--finite", "--to"]])
@pytest.mark.parametrize("name", ["ckpt-7", "7", "", "\x1b[2Jx", "*"])
def test_a_name_that_is_not_there_is_a_usage_error(
    tool: Tool, tmp_path: Path, words: list[str], name: str
) -> None:
    save(tmp_path, 1)
    said = tool(words[0], tmp_path, *words[1:], name)
    assert (said.code, said.data) == (2, "")
    assert "the newest are: ckpt-1" in said.words
    assert "\x1b" not in said.words


def test_a_step_that_was_saved_twice_must_be_named(tool: Tool, tmp_path: Path) -> None:
    save(tmp_path, 5, name="ckpt-5")
    save(tmp_path, 5, name="best-5")
    for words in (["verify", tmp_path, "5"], ["inspect", tmp_path, "5"]):
        said = tool(*words)
        assert said.code == 2
        assert "ckpt-5" in said.words
        assert "best-5" in said.words
        assert tool(*words[:2], "best-5").code == 0
    assert tool("compare", tmp_path, "5", "ckpt-5").code == 2


@pytest.mark.parametrize("command", ["verify", "inspect", "compare", "bisect"])
def test_a_run_without_checkpoints_is_no_failure_of_ours(
    tool: Tool, tmp_path: Path, command: str
) -> None:
    RunFactory(tmp_path / "run").create()
    more = {"compare": ["1", "2"], "bisect": ["--finite"]}.get(command, [])
    said = tool(command, tmp_path / "run", *more)
    if command == "verify":
        assert (said.code, said.data) == (0, "0 checkpoints: 0 sound.\n")
    else:
        assert said.code == 2
        assert "no checkpoint" in said.words.lower()


# names that nobody expects

HOSTILE = [
    "esc-\x1b]52;c;QUFB\x07-1",
    "[red]ckpt[bold]-1",
    "ckpt[*]?-1",
    os.fsdecode(b"bad-\xff-1"),
    "-rf",
    "--json",
    "ü" * 117,
    "a b;$(id)-1",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_taken_as_they_are_and_shown_without_harm(
    tool: Tool, tmp_path: Path, name: str
) -> None:
    hostile = "tensor\x1b[2J\u202e[bold]"
    save(tmp_path, 1, name=name, **{hostile: array(np.ones(2))})
    save(tmp_path, 2, **{hostile: array(np.zeros(2))})
    data = data_of(tmp_path, name)
    os.truncate(data, data.stat().st_size - 1)
    for words in (
        ["verify", tmp_path, "--", name],
        ["inspect", tmp_path, "--", name],
        ["inspect", tmp_path, "--stats", "--", name],
        ["compare", tmp_path, "--", name, "ckpt-2"],
        ["bisect", tmp_path, "--finite", f"--to={name}"],
    ):
        said = tool(*words)
        assert said.code == 1, said
        for text in (said.data, said.words):
            assert not any(c in text for c in "\x1b\x07\u202e\udcff")
    said = tool("verify", tmp_path, "--json", "--", name)
    assert said.json["checkpoints"][0]["name"] == name
    assert said.data.isascii()
    said = tool("bisect", tmp_path, "--json", f"--to={name}", "--", "test", "-e", "/nowhere")
    assert said.json["undecided"][-1] == name


def test_a_checkpoint_of_no_utf_8_name_is_verified_without_a_note_of_it(
    tool: Tool, tmp_path: Path
) -> None:
    save(tmp_path, 1, name=os.fsdecode(b"bad-\xff-1"))
    for _ in range(2):
        said = tool("verify", tmp_path, "--json")
        assert (said.code, reads_again(said)) == (0, [True])
        assert "The result is not stored" in said.words


# bisect


def row_of(root: Path, bad_from: int, *, steps: int = 9) -> None:
    for step in range(1, steps + 1):
        value = NOTHING if step >= bad_from else 1.0
        save(root, step, **in_kernel(value))


def test_the_reason_of_a_skipped_check_ends_without_a_full_stop(tool: Tool, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        write(tmp_path / f"ckpt-{step}", {"w": array([1.0])})
    os.truncate(tmp_path / "ckpt-3.data-00000-of-00001", 1)
    said = tool("bisect", tmp_path, "--to", "3", "--", "test", "-e")
    assert "incomplete" in said.data
    assert ".;" not in said.data
    assert ".)" not in said.data


def test_a_shown_name_is_accepted_if_it_is_the_only_one(tool: Tool, tmp_path: Path) -> None:
    write(tmp_path / "a\nb-20", {"w": array([1.0])})
    assert tool("inspect", tmp_path, "a␊b-20").code == 0
    write(tmp_path / "a␊b-20", {"other": array([1.0])})
    assert "other" in tool("inspect", tmp_path, "a␊b-20").data


def test_bisect_finds_the_first_that_is_not_finite(tool: Tool, tmp_path: Path) -> None:
    row_of(tmp_path, 6)
    said = tool("bisect", tmp_path, "--finite")
    assert said.code == 1
    lines = said.data.splitlines()
    assert lines[0] == "9 checkpoints from ckpt-1 to ckpt-9"
    assert lines[1].startswith("  ckpt-9  bad  (model/kernel: 1 NaN of 2 values")
    assert lines[2].startswith("  ckpt-1  good  (all values of 4 tensors are finite; 7 checkpoints")
    assert lines[-1] == "The first bad one is ckpt-6; ckpt-5 before it is good."
    assert len(lines) <= 3 + 2 + 3


def test_bisect_with_nothing_wrong_asks_once(tool: Tool, tmp_path: Path) -> None:
    row_of(tmp_path, 100)
    said = tool("bisect", tmp_path, "--finite")
    assert said.code == 0
    assert said.data.splitlines()[-1].startswith(
        "ckpt-9 is good. Earlier checkpoints were not searched"
    )
    said = tool("bisect", tmp_path, "--finite", "--json")
    assert (said.code, said.json["first_bad"], said.json["last_good"]) == (0, None, "ckpt-9")
    assert [probe["name"] for probe in said.json["checks"]] == ["ckpt-9"]


def test_bisect_within_a_part_of_the_row(tool: Tool, tmp_path: Path) -> None:
    row_of(tmp_path, 2)
    said = tool("bisect", tmp_path, "--finite", "--from", "4", "--to", "ckpt-7", "--json")
    assert (said.json["first_bad"], said.json["last_good"]) == ("ckpt-4", None)
    assert {probe["name"] for probe in said.json["checks"]} == {"ckpt-4", "ckpt-7"}
    said = tool("bisect", tmp_path, "--finite", "--from", "7", "--to", "4")
    assert said.code == 2
    assert "ckpt-7 is not an ancestor of ckpt-4" in said.words


MADE = [
    ["edit", "RUN", "6", "--rename", "model/kernel", "model/other", "--name", "ed", "--yes"],
    ["average", "RUN", "4", "5", "6", "--name", "mean-6"],
    ["convert", "RUN", "ckpt-10", "RUN/w.npz", "--by-name"],
    ["convert", "RUN", "weights", "RUN/w.npz", "--like", "RUN", "6"],
]


@pytest.mark.parametrize("words", MADE, ids=lambda words: " ".join(words[::2]))
def test_bisect_passes_over_one_that_no_training_made(
    tool: Tool, tmp_path: Path, words: list[str]
) -> None:
    row_of(tmp_path, 8, steps=9)
    np.savez(tmp_path / "w.npz", **{"model/kernel": np.zeros((1, 2), np.float32)})
    before = tool("bisect", tmp_path, "--finite")
    assert before.data.splitlines()[-1] == "The first bad one is ckpt-8; ckpt-7 before it is good."
    made = tool(*(word.replace("RUN", str(tmp_path)) for word in words))
    assert made.code == 0, made.words
    assert tool("bisect", tmp_path, "--finite").data == before.data
    found = list_checkpoints(RunDirectory(tmp_path))
    assert [one.name for one in found if one.is_head] == ["ckpt-9"]
    pair = pair_to_compare(found, [], next(one for one in found if one.name == "ckpt-6"))
    assert [one.name for one in pair] == ["ckpt-5", "ckpt-6"]


def checked_by(root: Path, script: str) -> list[object]:
    """A check in Python, in which `step` is that of the checkpoint."""
    prepared = "import os, sys; step = int(sys.argv[1].rpartition('-')[2]); " + script
    return ["bisect", root, "--json", "--", sys.executable, "-c", prepared]


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ([], "4 checkpoints from ckpt-100 to ckpt-b1-400"),
        (["--to", "500"], "5 checkpoints from ckpt-100 to ckpt-500"),
        (["--from", "200"], "3 checkpoints from ckpt-200 to ckpt-b1-400"),
    ],
)
def test_bisect_follows_the_branch_on_which_its_end_was_reached(
    tool: Tool, tmp_path: Path, words: list[str], row: str
) -> None:
    two_branches(tmp_path)
    said = tool("bisect", tmp_path, *words, "--", "true")
    assert (said.code, said.data.splitlines()[0]) == (0, row)
    said = tool("bisect", tmp_path, "--from", "500", "--", "true")
    assert "ckpt-500 is not an ancestor of ckpt-b1-400" in said.words


def test_json_of_bisect_is_as_documented(tool: Tool, tmp_path: Path) -> None:
    row_of(tmp_path, 100)
    said = tool(*checked_by(tmp_path, "sys.exit(125 if step in (4, 5) else step > 5)"))
    assert said.code == 1
    check(BisectReport, said.json)
    found = said.json
    assert (found["first_bad"], found["last_good"]) == ("ckpt-6", "ckpt-3")
    assert found["undecided"] == ["ckpt-4", "ckpt-5"]
    outcomes = {probe["name"]: probe["outcome"] for probe in found["checks"]}
    assert outcomes["ckpt-4"] == "skipped"
    words = tool(*[word for word in checked_by(tmp_path, "sys.exit(step > 5)") if word != "--json"])
    assert words.data.splitlines()[-1] == "The first bad one is ckpt-6; ckpt-5 before it is good."


def test_the_check_is_given_a_path_that_it_can_open(tool: Tool, tmp_path: Path) -> None:
    row_of(tmp_path, 100)
    script = "path = os.environ['TFCKPT_CHECKPOINT']; "
    script += "sys.exit(path != sys.argv[1] or not os.path.exists(path + '.index'))"
    said = tool(*checked_by(tmp_path, script))
    assert said.code == 0


@pytest.mark.e2e
def test_what_the_check_prints_is_not_mixed_with_the_answer(tmp_path: Path) -> None:
    row_of(tmp_path, 3, steps=3)
    said = run_binary("bisect", tmp_path, "--json", "--", "echo", "said")
    assert said.code == 0
    assert json.loads(said.data)["first_bad"] is None
    assert said.words == f"said {tmp_path}/ckpt-3\n"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("import signal; os.kill(os.getpid(), signal.SIGKILL)", "was killed by SIGKILL"),
        ("sys.exit(128 + 15)", "(usually killed by SIGTERM), so its result is unknown."),
        ("sys.exit(200)", "ended with status 200, which has no meaning"),
    ],
)
def test_a_check_that_is_killed_says_nothing(
    tool: Tool, tmp_path: Path, script: str, told: str
) -> None:
    row_of(tmp_path, 1, steps=2)
    said = tool(*checked_by(tmp_path, script))
    assert said.code == 1
    assert told in said.words
    assert said.json["error"]["name"] == "problem"


@pytest.mark.parametrize("command", ["no-such-command-at-all", "/etc/passwd", "/"])
def test_a_check_that_cannot_be_run_is_named(tool: Tool, tmp_path: Path, command: str) -> None:
    row_of(tmp_path, 1, steps=2)
    said = tool("bisect", tmp_path, "--", command, "x")
    assert said.code == 2
    assert f"{command} cannot be run" in said.words


@pytest.mark.parametrize("words", [[], ["--finite", "--", "true"], ["--finite", "--bad", "loss>9"]])
def test_bisect_needs_one_check(tool: Tool, tmp_path: Path, words: list[str]) -> None:
    row_of(tmp_path, 1, steps=2)
    said = tool("bisect", tmp_path, *words)
    assert said.code == 2
    assert "one of --finite, --bad and -- COMMAND" in said.words


@pytest.mark.parametrize("known", [False, True])
def test_damaged_ones_stay_in_question_and_it_is_said_so(
    tool: Tool, tmp_path: Path, known: bool
) -> None:
    row_of(tmp_path, 4, steps=5)
    flip(data_of(tmp_path, "ckpt-3"), 5)
    if known:
        assert tool("verify", tmp_path).code == 1
    said = tool("bisect", tmp_path, "--finite")
    assert said.code == 1
    assert "  ckpt-3  skipped  (corrupt: " in said.data
    last = said.data.splitlines()[-1]
    assert last == "The first bad one is ckpt-4, or one that was skipped: ckpt-3."
    said = tool("bisect", tmp_path, "--finite", "--from", "3", "--json")
    assert (said.json["last_good"], said.json["undecided"]) == (None, ["ckpt-3"])


def test_a_program_is_not_asked_of_what_is_known_to_be_damaged(tool: Tool, tmp_path: Path) -> None:
    row_of(tmp_path, 100, steps=3)
    data_of(tmp_path, "ckpt-1").unlink()
    said = tool(*checked_by(tmp_path, "sys.exit(step != 2)"))
    assert said.code == 1
    assert (said.json["first_bad"], said.json["last_good"]) == ("ckpt-3", "ckpt-2")
    assert said.json["checks"][1]["outcome"] == "skipped"
    assert "is missing" in said.json["checks"][1]["detail"]


def test_where_nothing_could_be_checked_nothing_is_said_to_be_good(
    tool: Tool, tmp_path: Path
) -> None:
    row_of(tmp_path, 100, steps=3)
    said = tool("bisect", tmp_path, "--", "sh", "-c", "exit 125")
    assert said.code == 1
    assert said.data.splitlines()[-1] == "No result: every check was skipped."
    said = tool(*checked_by(tmp_path, "sys.exit(125 * (step == 3))"))
    assert (said.code, said.json["undecided"], said.json["last_good"]) == (0, ["ckpt-3"], "ckpt-2")


def test_what_is_being_written_is_no_part_of_the_row(tool: Tool, tmp_path: Path) -> None:
    row_of(tmp_path, 100, steps=2)
    begin_save(tmp_path / "ckpt-3")
    said = tool("bisect", tmp_path, "--finite")
    assert said.data.splitlines()[0] == "2 checkpoints from ckpt-1 to ckpt-2"
    said = tool("bisect", tmp_path, "--finite", "--to", "3")
    assert (said.code, said.words) == (
        2,
        "tfckpt-tui: ckpt-3 cannot be checked: It is being written.\n",
    )


# against TensorFlow


@pytest.fixture(scope="module")
def written_by_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import keras
    import tensorflow as tf

    root = tmp_path_factory.mktemp("tensorflow")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    model.fit(np.ones((4, 4)), np.ones((4, 1)), verbose=0)
    values = {
        name: tf.Variable(tf.cast([[0.0, 1.0, 2.0]] * 20, name))
        for name in ("bfloat16", "float16", "int8", "uint16", "complex64", "float8_e4m3fn", "bool")
    }
    policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=300)
    tf.train.Checkpoint(model=model, step=tf.Variable(3, dtype=tf.int64), **values).write(
        str(root / "ckpt-3"),
        options=tf.train.CheckpointOptions(experimental_sharding_callback=policy),
    )
    return root


@pytest.mark.tensorflow
def test_names_types_and_shapes_are_those_that_tensorflow_reads(
    tool: Tool, written_by_tensorflow: Path
) -> None:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(written_by_tensorflow / "ckpt-3"))
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    said = tool("inspect", written_by_tensorflow, "--stats", "--json")
    assert said.code == 0
    found = {t["name"]: t for t in said.json["tensors"]}
    assert found.keys() == shapes.keys() - {GRAPH_KEY}
    for name, tensor in found.items():
        assert (tensor["shape"], tensor["dtype"]) == (shapes[name], types[name].name)
        values = reader.get_tensor(name)
        assert tensor["bytes"] == values.nbytes
        expected = np.abs(values) if np.iscomplexobj(values) else values
        assert tensor["statistics"]["maximum"] == expected.astype(np.float64).max()
    assert any(tensor["shard"] is None for tensor in found.values())


@pytest.mark.tensorflow
def test_a_compiled_keras_model_is_shown_by_its_own_names(
    tool: Tool, written_by_tensorflow: Path
) -> None:
    said = tool("inspect", written_by_tensorflow, "--json")
    roles = {t["path"]: (t["role"], t["slot_of"]) for t in said.json["tensors"]}
    weights = [path for path, (role, _) in roles.items() if role == "weight" and "model/" in path]
    assert sorted(path.rpartition("/")[2] for path in weights) == ["bias", "bias"] + 2 * ["kernel"]
    assert all("optimizer" not in path for path in weights)
    slots = [owner for role, owner in roles.values() if role == "slot variable"]
    assert sorted(slots) == sorted(2 * weights)
    back = {one["what"]: one["comes_back"] for one in said.json["resuming"]}
    assert (back["slot variables"], back["step"], back["position in the input"]) == (
        True,
        True,
        False,
    )
    assert tool("verify", written_by_tensorflow, "--finite").code == 0


def test_one_that_was_rotated_away_meanwhile_is_passed_over(tmp_path: Path) -> None:
    """Beside a live trainer the list is old by the time its end is read."""
    made = RunFactory(tmp_path)
    made.checkpoint(1, recorded=False)
    (listed,) = list_checkpoints(made.run)
    for path in tmp_path.glob("ckpt-1.*"):
        path.unlink()
    answer = _verified(Verifier(made.run), listed)
    assert isinstance(answer, Checkpoint)
    assert "There is no checkpoint ckpt-1" in answer.problem


def test_compare_says_why_a_tensor_could_not_be_read(
    tool: Tool, open_place: Path, become_nobody: Callable[[], None]
) -> None:
    for step in (1, 2):
        save(open_place, step)
    (open_place / "ckpt-2.data-00000-of-00001").chmod(0)
    become_nobody()
    said = tool("compare", open_place, "1", "2", "--norms")
    assert said.code == 1
    assert "changed (not read)" in said.data
    assert "(damaged)" not in said.data
    assert "ckpt-2.data-00000-of-00001: Permission denied" in said.words


def test_a_run_without_a_checkpoint_is_named(tool: Tool, tmp_path: Path) -> None:
    run = RunFactory(tmp_path / "new").create().run
    said = tool("inspect", run.root)
    assert said.code == 2
    assert f"{run.root} has no checkpoint yet. `tfckpt-tui status" in said.words
