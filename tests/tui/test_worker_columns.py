"""The columns of workers: where each is shown, and what an unknown value looks like."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tfckpt_trainer.rundir.heartbeats.health import WorkerState
from tfckpt_trainer.rundir.records.worker import Activity, GpuStatus, TaskShare, WorkerStatus
from tfckpt_tui.app.widgets.base.columns import choose, column_of
from tfckpt_tui.formats.worker_columns import (
    COLUMNS,
    NO_SHARE,
    WorkerView,
    json_record,
    json_values,
    table,
)

AT = 1_000.0
CELLS_AT_120 = 116
MORE_IN_A_LARGER_PANE = {"pid", "detail"}
"""Shown where no chart is beside the pane. All others have room in a usual terminal."""

STATUS = WorkerStatus(
    index=3,
    host="node-3",
    pid=41,
    process_started_at=900.0,
    updated_at=999.0,
    interval_seconds=1.0,
    activity=Activity.TRAINING,
    step=1_200,
    loss=0.25,
    gpus=[
        GpuStatus(name="a", memory_used=1 << 30, memory_total=4 << 30, use_percent=None),
        GpuStatus(name="b", memory_used=1 << 30, memory_total=4 << 30, use_percent=70.0),
    ],
)
SHARE = TaskShare(job="worker", task=2, steps_per_second=1234.0, variable_bytes=2_500_000)
VIEW = WorkerView(STATUS, WorkerState.TRAINING, 1.0, share=SHARE)


def facts(view: WorkerView) -> Any:
    return json_record()(*json_values(view, AT))


def texts(view: WorkerView) -> dict[str, str]:
    return {column.key: column.text(facts(view)) for column in COLUMNS}


def matters(view: WorkerView) -> dict[str, bool]:
    asked = {column.key: column.matters for column in COLUMNS}
    return {key: ask(view) for key, ask in asked.items() if ask is not None}


def test_a_table_has_the_columns_with_a_heading_in_their_order():
    header, (row,), right = table([facts(VIEW)], lambda column: column.status)
    declared = [column.status for column in COLUMNS if column.status and column.key != "measured"]
    assert list(header) == declared
    shown = dict(zip(header, row, strict=True))
    known = {"WORKER": "3", "JOB": "worker", "STATE": "training", "HOST": "node-3", "STEP": "1,200"}
    assert known.items() <= shown.items()
    assert {header[place] for place in right} >= {"WORKER", "STEP", "LOSS"}
    assert not {header[place] for place in right} & {"JOB", "STATE", "HOST"}


def test_each_column_has_room_in_a_terminal_of_120():
    declared = [column_of(c.key, c.cell) for c in COLUMNS if c.cell and c.matters is None]
    shown = {column.key for column, _ in choose(declared, CELLS_AT_120).columns}
    assert {column.key for column in declared} - shown == MORE_IN_A_LARGER_PANE


def test_gpus_are_shown_by_the_busiest_and_all_their_memory():
    assert texts(VIEW)["gpu"] == "70%"
    assert texts(VIEW)["gpu-memory"] == "2.15 GB of 8.59 GB"
    assert matters(VIEW) == {
        "job": False,
        "measured": False,
        "rate": True,
        "variables": True,
        "gpu": True,
        "gpu-memory": True,
    }


def test_a_worker_that_measured_itself_long_before_it_was_last_heard_of_says_so():
    early = replace(VIEW, status=replace(STATUS, measured_at=STATUS.updated_at - 40))
    assert matters(early)["measured"]
    assert (texts(early)["age"], texts(early)["measured"]) == ("1s", "41s")
    assert not matters(replace(VIEW, status=replace(STATUS, measured_at=STATUS.updated_at - 4)))[
        "measured"
    ]


def test_what_no_chief_knows_of_any_worker_is_left_out_of_tables():
    assert texts(VIEW)["rate"] == "1.23k"
    assert texts(VIEW)["variables"] == "2.50 MB"
    apart = [facts(replace(VIEW, share=NO_SHARE)), facts(replace(VIEW, share=NO_SHARE))]
    both = [facts(VIEW), apart[0]]
    headings = [table(workers, lambda column: column.status)[0] for workers in (both, apart)]
    assert set(headings[0]) - set(headings[1]) == {"STEPS/S", "VARIABLES"}


def test_what_is_not_known_is_a_dash():
    unknown = WorkerView(replace(STATUS, gpus=[], loss=None, step=0), WorkerState.LOST, 60.0)
    shown = texts(unknown)
    names = ("step", "loss", "time", "p95", "rate", "input", "cpu", "memory", "variables", "gpu")
    assert {name: shown[name] for name in names} == dict.fromkeys(names, "–")
    assert not any(matters(unknown).values())


def test_a_worker_that_is_gone_uses_nothing():
    gone = WorkerView(
        replace(STATUS, cpu_percent=90.0, memory_bytes=1 << 30), WorkerState.EXITED, 60.0
    )
    assert (facts(gone).cpu_percent, facts(gone).memory_bytes, facts(gone).gpus) == (None, None, ())


def test_a_parameter_server_is_told_by_its_job():
    server = WorkerView(replace(STATUS, job="ps"), WorkerState.SERVING, 1.0)
    assert matters(server)["job"]
    assert texts(server)["step"] == "–"
