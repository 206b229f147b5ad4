"""`profile`: which operations of the traced steps took most of the time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from answering_trainer import AnsweringTrainer, done
from hypothesis import given
from hypothesis import strategies as st
from json_reference import check
from rundir_factory import RunFactory, two_branches
from tiny_trace import DEVICE, HOST, SECOND, plane

from command_running import Tool
from tfckpt_trainer.errors import DamagedFileError, TfckptError
from tfckpt_tui.reports.profile import ProfileReport
from tfckpt_tui.services.runs.traces import Operation, _own_times, slowest_operations


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "vm.xplane.pb"
    path.write_bytes(HOST + DEVICE + plane("/host:metadata", [("a:B", 0, 9 * SECOND)]))
    return path


@pytest.fixture
def live(tmp_path: Path) -> RunFactory:
    return two_branches(tmp_path / "run", live=True)


def test_an_operation_counts_without_those_that_it_calls(trace: Path) -> None:
    slowest, total = slowest_operations(trace)
    assert slowest == [
        Operation("while", "While", "CPU", 1, 5.0),
        Operation("ampere_sgemm", "", "GPU:0", 1, 4.0),
        Operation("model/MatMul", "MatMul", "CPU", 2, 3.0),
        Operation("model/␛[31mMean", "Mean", "CPU", 1, 1.0),
    ]
    assert total == 13.0
    assert slowest_operations(trace, 1)[0] == slowest[:1]


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda e: (e[0], e[0] + e[1])),
        max_size=20,
    )
)
def test_own_times_of_nested_events_are_the_time_in_which_any_is_open(
    spans: list[tuple[int, int]],
) -> None:
    nested: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if all(end <= other[1] or start >= other[1] for other in nested):
            nested.append((start, end))
    covered = {instant for start, end in nested for instant in range(start, end)}
    own = list(_own_times((start, end, 0) for start, end in nested))
    assert sum(time for _, time in own) == len(covered)
    assert all(time >= 0 for _, time in own)


@given(st.binary(max_size=200))
def test_a_damaged_trace_is_read_or_is_damaged(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.xplane.pb"
    path.write_bytes(HOST[: len(data)] + data)
    with suppress(DamagedFileError):
        slowest_operations(path)


def test_a_missing_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TfckptError, match="cannot be read"):
        slowest_operations(tmp_path / "none")


def answer(*files: str) -> dict[str, object]:
    workers = [
        {"worker": index, "file": file, "before_seconds": 2.0, "step_seconds": 2.5}
        for index, file in enumerate(files)
    ]
    return {"steps": 10, "workers": workers}


def test_profile_prints_the_slowest_operations(tool: Tool, live: RunFactory, trace: Path) -> None:
    with AnsweringTrainer(live.run, done("Traced.", **answer(str(trace)))):
        said = tool("profile", live.run.root, "--steps", "10", "--workers", "0")
    assert (said.code, said.data.splitlines()[0]) == (0, "Traced.")
    assert "38.5%  500 ms      1  CPU    While   while" in said.data


def test_profile_as_json_says_what_cannot_be_read(
    tool: Tool, live: RunFactory, trace: Path
) -> None:
    with AnsweringTrainer(live.run, done("Traced.", **answer(str(trace), "/none"))):
        said = tool("profile", live.run.root, "--json")
    check(ProfileReport, said.json)
    assert said.code == 1
    first, second = said.json["traces"]
    assert [operation["kind"] for operation in first["operations"]][:1] == ["While"]
    assert second["problem"].startswith("The trace /none cannot be read")


def test_workers_are_a_list_of_indexes(tool: Tool, live: RunFactory) -> None:
    said = tool("profile", live.run.root, "--workers", "0,x")
    assert said.code == 2
    assert "expected indexes such as 0,1, or all" in said.words
