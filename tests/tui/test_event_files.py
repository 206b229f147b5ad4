"""The metrics of a run that reports none: those of TensorBoard event files."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from app_driving import opened, resize, shown, top, until_shown
from hypothesis import given
from hypothesis import strategies as st
from json_reference import check
from rundir_factory import RunFactory
from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2

from bundle_writing import write_floats
from command_running import Tool
from event_files import event, float_value, record, simple_value, tensor_value
from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.paths import RunDirectory
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_tui import open_run
from tfckpt_tui.app.runs_app import RunsApp
from tfckpt_tui.app.widgets.run.run_list import BARS
from tfckpt_tui.charting.view import saves_along
from tfckpt_tui.monitor.snapshot_reader import SnapshotReader
from tfckpt_tui.reports.run_facts import EventFileFacts, StatusReport
from tfckpt_tui.services.metrics.event_files import BLOCK_BYTES, EventFileTail
from tfckpt_tui.services.metrics.metric_tail import (
    LOOK_SECONDS,
    MOST_FILES,
    MetricTail,
    RecentMetrics,
    read_metrics,
)
from tfckpt_tui.services.runs.open_run import open_run as open_directory
from tfckpt_tui.services.runs.report import status_report
from tfckpt_tui.settings.config import Config

NAME = "events.out.tfevents.1.host"
VERSION = record(event_pb2.Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
WRITTEN = [event(step, float_value("loss", step / 2)) for step in range(40)]


def write(directory: Path, *records: bytes, name: str = NAME) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    path.write_bytes(VERSION + b"".join(records))
    return path


def values(points: Sequence[SeriesPoint], name: str = "loss") -> list[tuple[int, float | None]]:
    return [(point.step, point.metrics[name]) for point in points if name in point.metrics]


def newest(directory: Path) -> EventFileFacts | None:
    recent = RecentMetrics(RunDirectory(directory))
    recent.read()
    return recent.newest


def read(directory: Path, name: str = "loss") -> list[tuple[int, float | None]]:
    blocks = read_metrics(RunDirectory(directory))
    return values([point for block in blocks for point in block], name)


def names(directory: Path) -> set[str]:
    blocks = read_metrics(RunDirectory(directory))
    return {name for block in blocks for point in block for name in point.metrics}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (simple_value("loss", 0.5), 0.5),
        (float_value("loss", 0.1), float(tensor_pb2.TensorProto(float_val=[0.1]).float_val[0])),
        (float_value("loss", math.nan), None),
        (float_value("loss", -math.inf), -math.inf),
        (tensor_value("loss", tensor_pb2.TensorProto(dtype=1)), 0.0),
        (tensor_value("loss", tensor_pb2.TensorProto(dtype=2, double_val=[0.1])), 0.1),
        (tensor_value("loss", tensor_pb2.TensorProto(dtype=3, int_val=[-3])), -3.0),
        (tensor_value("loss", tensor_pb2.TensorProto(dtype=9, int64_val=[1 << 40])), 2.0**40),
        (tensor_value("loss", tensor_pb2.TensorProto(dtype=19, half_val=[0x3800])), 0.5),
        (tensor_value("loss", tensor_pb2.TensorProto(dtype=19, half_val=[0x1_3800])), 0.5),
        (
            tensor_value("loss", tensor_pb2.TensorProto(dtype=2, tensor_content=b"\0" * 7 + b"@")),
            2.0,
        ),
    ],
    ids=lambda value: str(value)[:40].replace("\n", " "),
)
def test_each_kind_of_scalar_is_read(tmp_path: Path, value, expected) -> None:
    write(tmp_path, event(7, value))
    assert read(tmp_path) == [(7, expected)]


FLOATS = st.floats(width=32) | st.sampled_from([0.0, 1.0, 2.0**-100])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["loss", 'lo"\4\0\0', "\x15\0\0\0\0"]),
            st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 1 << 40, (1 << 63) - 1, -1]),
            FLOATS,
            st.sampled_from(["tensor", "simple", "two", "graph", "twice"]),
        ),
        max_size=30,
    )
)
def test_an_event_is_read_as_it_is_decoded_whatever_came_before_it(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, int, float, str]]
) -> None:
    contents = []
    for name, step, number, kind in written:
        packed = struct.pack("<f", number)
        tensor = tensor_value(name, tensor_pb2.TensorProto(dtype=1, tensor_content=packed))
        value = simple_value(name, number) if kind == "simple" else tensor
        one = event_pb2.Event(wall_time=abs(step) / 2, step=step)
        one.summary.value.extend([value, value] if kind == "two" else [value])
        content = one.SerializeToString()
        if kind == "graph":
            content += event_pb2.Event(graph_def=b"no summary").SerializeToString()
        elif kind == "twice":
            # The last of a field counts.
            content += event_pb2.Event(step=7).SerializeToString()
        contents.append(content)
    path = write(tmp_path_factory.mktemp("alike"), *map(record, contents))
    alone = []
    for content in contents:
        one = EventFileTail(write(path.parent / "alone", record(content)), "", 1 << 20)
        alone += one.read_new()
    whole = EventFileTail(path, "", 1 << 20).read_new()
    assert _each(whole) == _each(alone)


def _each(points: Sequence[SeriesPoint]) -> list[tuple[int, str, float | None]]:
    return [(point.step, *found) for point in points for found in point.metrics.items()]


def test_what_is_no_scalar_is_left_out(tmp_path: Path) -> None:
    two = tensor_pb2.TensorProto(dtype=1, float_val=[1, 2])
    two.tensor_shape.dim.add(size=2)
    text = tensor_pb2.TensorProto(dtype=7, string_val=[b"text"])
    later = summary_pb2.Summary.Value(tag="weights", tensor=tensor_pb2.TensorProto(dtype=1))
    write(
        tmp_path,
        event(1, tensor_value("pair", two), tensor_value("text", text)),
        event(1, tensor_value("weights", tensor_pb2.TensorProto(dtype=1), "histograms")),
        # Only the first value with a name says what it is.
        event(2, later, float_value("loss", 1)),
        event(3, summary_pb2.Summary.Value(tag="image", image=summary_pb2.Summary.Image())),
    )
    assert names(tmp_path) == {"loss"}


@given(st.lists(st.integers(1, 400), max_size=40), st.integers(0, len(b"".join(WRITTEN))))
def test_a_file_that_grows_is_read_as_if_it_were_whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cut: int
) -> None:
    whole = VERSION + b"".join(WRITTEN)
    path = tmp_path_factory.mktemp("growing") / NAME
    path.write_bytes(whole[:cut])
    tail, points, at = MetricTail(RunDirectory(path.parent)), [], cut
    for size in [*sizes, len(whole)]:
        points += tail.read_new()
        with path.open("ab") as file:
            file.write(whole[at : at + size])
        at += size
    points += tail.read_new()
    # A file of which nothing is there yet is found when it is looked for again.
    assert values(points) == [(step, step / 2) for step in range(40)]


@given(st.data())
def test_damage_costs_only_the_records_in_which_it_is(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(VERSION + b"".join(WRITTEN))
    begins = [len(VERSION) + sum(map(len, WRITTEN[:step])) for step in range(41)]
    begin = data.draw(st.integers(0, len(content) - 1))
    end = data.draw(st.integers(begin + 1, min(len(content), begin + 300)))
    noise = random.Random(begin).randbytes(end - begin)
    content[begin:end] = noise
    path = tmp_path_factory.mktemp("damaged") / NAME
    path.write_bytes(content)
    found = read(path.parent)
    intact = (n for n in range(40) if begins[n] >= end or begins[n + 1] <= begin)
    if len(content) - end > 2 * len(WRITTEN[0]):
        assert {(step, step / 2) for step in intact} <= set(found)
    assert set(found) <= {(step, step / 2) for step in range(40)}


def test_a_value_whose_checksum_differs_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, *WRITTEN[:3])
    content = bytearray(path.read_bytes())
    # Of the last event, the last byte of its content.
    content[-5] ^= 1
    path.write_bytes(content)
    assert read(tmp_path) == [(0, 0.0), (1, 0.5)]


def test_the_newest_part_of_a_file_begins_anywhere(tmp_path: Path) -> None:
    path = write(tmp_path, *WRITTEN * 400)
    size = path.stat().st_size
    for first in range(9_000, 9_000 + len(WRITTEN[0])):
        assert first < size
        found = values(MetricTail(RunDirectory(tmp_path), first).read_new())
        assert found[-40:] == [(step, step / 2) for step in range(40)]
        assert len(found) < 300


def test_a_record_of_any_size_is_skipped(tmp_path: Path) -> None:
    image = summary_pb2.Summary.Image(encoded_image_string=b"\x09" * (2 * BLOCK_BYTES))
    large = event(1, summary_pb2.Summary.Value(tag="image", image=image))
    write(tmp_path, event(0, float_value("loss", 1)), large, event(2, float_value("loss", 3)))
    assert read(tmp_path) == [(0, 1.0), (2, 3.0)]


def test_a_hole_takes_no_time(tool: Tool, tmp_path: Path) -> None:
    """Of a terabyte: that of a stranger kept `metrics` reading for minutes."""
    path = write(tmp_path, event(0, float_value("loss", 1)))
    os.truncate(path, 1 << 40)
    with path.open("ab") as file:
        file.write(event(2, float_value("loss", 3)))
    write(tmp_path, event(1, float_value("loss", 2)), name="events.out.tfevents.0.host")
    os.truncate(tmp_path / "events.out.tfevents.0.host", 1 << 40)
    said = tool("metrics", tmp_path).data.splitlines()[1:]
    assert [line.split(",", 1)[1] for line in said] == [
        "1,0,loss,2.0",
        "0,0,loss,1.0",
        "2,0,loss,3.0",
    ]


def test_names_are_those_of_tensorboard(tmp_path: Path) -> None:
    write(tmp_path / "logs" / "train", event(1, float_value("loss", 1)))
    assert names(tmp_path) == {"loss"}
    write(tmp_path / "logs" / "validation", event(1, float_value("loss", 1)))
    assert names(tmp_path) == {"train/loss", "validation/loss"}
    write(tmp_path / "logs", event(1, float_value("loss", 1)))
    assert names(tmp_path) == {"loss", "train/loss", "validation/loss"}


def test_hidden_directories_and_links_are_left_out(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", event(1, float_value("secret", 1)))
    run = tmp_path / "run"
    write(run / ".tfckpt" / "tensorboard", event(1, float_value("own", 1)))
    (run / "linked").symlink_to(outside.parent)
    (run / outside.name).symlink_to(outside)
    os.mkfifo(run / "pipe.tfevents.1")
    assert names(run) == set()


def test_files_of_one_directory_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, step in (("b.tfevents.2", 2), ("a.tfevents.1", 1), ("c.tfevents.3", 3)):
        write(tmp_path, event(step, float_value("loss", step)), name=name)
    assert read(tmp_path) == [(1, 1.0), (2, 2.0), (3, 3.0)]


def test_new_files_are_found_and_replaced_ones_are_read_again(tmp_path: Path) -> None:
    now = [0.0]
    tail = MetricTail(RunDirectory(tmp_path), clock=lambda: now[0])
    assert tail.read_new() == []
    assert not tail.beginnings
    first = write(tmp_path, event(1, float_value("loss", 1)))
    assert tail.read_new() == []
    now[0] += LOOK_SECONDS
    assert values(tail.read_new()) == [(1, 1.0)]
    assert tail.beginnings == 1
    write(tmp_path, event(2, float_value("loss", 2)), name="events.out.tfevents.2.host")
    now[0] += LOOK_SECONDS
    assert values(tail.read_new()) == [(2, 2.0)]
    assert tail.beginnings == 1
    fresh = write(tmp_path, event(5, float_value("loss", 5)), name="new")
    fresh.replace(first)
    assert tail.read_new() == []
    assert tail.is_behind
    assert tail.beginnings == 2
    assert values(tail.read_new()) == [(5, 5.0), (2, 2.0)]


def test_a_second_directory_gives_the_metrics_other_names(tmp_path: Path) -> None:
    now = [0.0]
    tail = MetricTail(RunDirectory(tmp_path), clock=lambda: now[0])
    write(tmp_path / "train", event(1, float_value("loss", 1)))
    assert values(tail.read_new()) == [(1, 1.0)]
    write(tmp_path / "validation", event(1, float_value("loss", 2)))
    now[0] += LOOK_SECONDS
    points = tail.read_new()
    while tail.is_behind:
        points += tail.read_new()
    assert tail.beginnings == 2
    assert values(points, "train/loss")[-1:] == [(1, 1.0)]
    assert values(points, "validation/loss") == [(1, 2.0)]


def test_a_run_that_reports_its_metrics_shows_no_others(tmp_path: Path) -> None:
    made = RunFactory(tmp_path / "run").create()
    made.series(1, 5, 0)
    write(made.run.root / "logs", event(1, float_value("other", 1)))
    assert "other" not in names(made.run.root)
    assert status_report(made.run).run.event_files is None


def test_the_newest_metrics_tell_the_step_and_the_pace(tmp_path: Path) -> None:
    write(tmp_path, *(event(10 * n, float_value("loss", n)) for n in range(200)))
    measured = newest(tmp_path)
    assert measured is not None
    assert (measured.step, measured.at, measured.step_seconds) == (1990, 2990.0, 1.0)


def test_the_highest_step_is_told_where_some_metrics_count_epochs(tmp_path: Path) -> None:
    """Keras does so; the step jumped between the two."""
    for epoch in range(3):
        write(
            tmp_path / "validation",
            *(event(100 * n, float_value("by_step", n)) for n in range(epoch + 2)),
            *(event(n, float_value("by_epoch", n), at=2000.0) for n in range(epoch + 1)),
        )
        measured = newest(tmp_path)
        assert measured is not None
        assert measured.step == 100 * (epoch + 1)
        assert measured.at == 2000.0 + epoch


def test_the_pace_leaves_out_an_outage(tmp_path: Path) -> None:
    write(tmp_path, *(event(n, float_value("loss", n), at=1.0 * n) for n in range(20)))
    later = [event(n, float_value("loss", n), at=1.0 * n + 1000) for n in range(20, 23)]
    write(tmp_path, *later, name="events.out.tfevents.2.host")
    measured = newest(tmp_path)
    assert measured is not None
    assert (measured.step, measured.step_seconds, measured.loss) == (22, 2.0, 22.0)


def test_after_a_restart_the_step_is_that_of_the_new_attempt(tmp_path: Path) -> None:
    write(tmp_path, *WRITTEN)
    write(tmp_path, event(20, float_value("loss", 5), at=3000.0), name="events.out.tfevents.2.host")
    measured = newest(tmp_path)
    assert measured is not None
    assert (measured.step, measured.at, measured.step_seconds) == (20, 3020.0, None)


def test_files_beyond_the_most_are_said_to_be_left_out(tmp_path: Path, tool: Tool) -> None:
    for number in range(MOST_FILES):
        write(tmp_path / "runs" / f"{number // 2:03}", WRITTEN[1], name=f"tfevents.{number}")
    complete = tool("metrics", tmp_path)
    assert (len(complete.data.splitlines()), complete.words) == (MOST_FILES + 1, "")
    write(tmp_path / "last" / "of" / "all", WRITTEN[2])
    found = tool("metrics", tmp_path)
    assert len(found.data.splitlines()) == MOST_FILES + 1
    assert f"Only the first {MOST_FILES} event files were read." in found.words
    said = tool("status", tmp_path).data
    assert f"metrics   of the first {MOST_FILES} event files up to step 1," in said


def test_recent_metrics_are_kept_until_there_are_more(tmp_path: Path) -> None:
    path = write(tmp_path, *WRITTEN)
    recent = RecentMetrics(RunDirectory(tmp_path))
    known = recent.read()
    assert recent.read() is known
    with path.open("ab") as file:
        file.write(event(99, float_value("loss", 9)))
    assert recent.read()[-1].step == 99


def test_a_directory_of_event_files_is_opened(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").touch()
    with pytest.raises(UsageError, match="has no checkpoints"):
        open_directory(tmp_path / "empty")
    write(tmp_path / "run" / "train", *WRITTEN)
    run = open_directory(tmp_path / "run")
    assert read(run.root) == [(step, step / 2) for step in range(40)]
    assert list(open_run(run.root).metrics["loss"].values) == [step / 2 for step in range(40)]


def test_what_keras_counts_by_epochs_is_told_as_epochs(tool: Tool, tmp_path: Path) -> None:
    epochs = [event(step, float_value("epoch_loss", 1)) for step in range(3)]
    write(tmp_path / "run" / "train", *epochs)
    write(tmp_path / "run" / "validation", *epochs)
    said = tool("status", tmp_path / "run").data
    assert "up to epoch 2, written" in said
    assert "1.00 s an epoch" in said


CSV_LOG = "epoch,loss,val_loss\n0,0.5,NA\n1,nan,0.25\n2,0.125,0.5\n"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("file", ["training.csv", "training.log"])
def test_the_file_of_a_csv_logger_is_read(tmp_path: Path, separator: str, file: str) -> None:
    (tmp_path / file).write_text(CSV_LOG.replace(",", separator))
    assert read(tmp_path, "epoch_loss") == [(0, 0.5), (1, None), (2, 0.125)]
    assert read(tmp_path, "epoch_val_loss") == [(1, 0.25), (2, 0.5)]


def test_each_csv_file_is_a_run_beside_event_files(tmp_path: Path) -> None:
    write(tmp_path, *WRITTEN)
    for fold in ("a", "b"):
        (tmp_path / f"{fold}.csv").write_text(CSV_LOG)
    assert names(tmp_path) == {
        "loss",
        *(f"{fold}/epoch_{name}" for fold in ("a", "b") for name in ("loss", "val_loss")),
    }


def test_other_files_are_no_csv_logs(tmp_path: Path) -> None:
    others = "epochs,loss\n1,2\n", "step,loss\n1,2\n", "epoch\n1\n", "epoch 1, loss 0.5\n", ""
    for number, content in enumerate((*others, "\0" * 99, f"epoch,loss\n{'9' * 5000},1\n")):
        (tmp_path / f"{number}.csv").write_text(content)
    (tmp_path / "data.txt").write_text(CSV_LOG)
    with (tmp_path / "large.csv").open("w") as large:
        large.write(CSV_LOG)
        large.truncate(1 << 30)
    assert names(tmp_path) == set()


def test_the_pace_is_known_from_lines_that_were_seen_to_come(tmp_path: Path) -> None:
    log = tmp_path / "training.csv"
    log.write_text(CSV_LOG)
    os.utime(log, (1000, 1000))
    recent = RecentMetrics(RunDirectory(tmp_path))
    recent.read()
    assert recent.newest is not None
    assert (recent.newest.step, recent.newest.unit) == (2, "epoch")
    assert (recent.newest.at, recent.newest.step_seconds) == (1000.0, None)
    log.write_text(f"{CSV_LOG}3,0.5,0.5\n4,0.25")
    os.utime(log, (1060, 1060))
    recent.read()
    assert (recent.newest.step, recent.newest.step_seconds) == (3, 60.0)


def test_a_csv_file_that_begins_anew_is_read_anew(tmp_path: Path) -> None:
    log = tmp_path / "training.csv"
    log.write_text(CSV_LOG)
    tail = MetricTail(RunDirectory(tmp_path), clock=lambda: 0.0)
    assert len(tail.read_new()) == 3
    log.write_text("epoch,mae\n0,0.75\n")
    again = [*tail.read_new(), *tail.read_new()]
    assert values(again, "epoch_mae") == [(0, 0.75)]


@given(st.text(alphabet=st.sampled_from('epoch,0123456789.eNA"\n\r;- \x1b\x00'), max_size=200))
def test_no_line_of_a_csv_file_stops_reading(text: str) -> None:
    with TemporaryDirectory() as place:
        (Path(place) / "log.csv").write_text(f"epoch,loss\n{text}\n7,0.5\n")
        assert (7, 0.5) in read(Path(place), "epoch_loss") or '"' in text


def test_commands_show_them(tool: Tool, tmp_path: Path) -> None:
    write(tmp_path / "run", *WRITTEN)
    said = tool("status", tmp_path / "run")
    assert "metrics   up to step 39, written" in said.data
    assert "1.00 s a step" in said.data
    document = json.loads(tool("status", tmp_path / "run", "--json").data)
    check(StatusReport, document)
    assert document["run"]["event_files"] == {
        "step": 39,
        "unit": "step",
        "at": 1039.0,
        "step_seconds": 1.0,
        "loss": 19.5,
        "most_files": None,
    }
    assert tool("metrics", tmp_path / "run").data.splitlines()[1:3] == [
        "1000.000,0,0,loss,0.0",
        "1001.000,1,0,loss,0.5",
    ]
    report = tool("report", tmp_path / "run").data
    assert "19.50 at step 39" in report
    assert "one value a second" not in report


def test_event_files_without_scalars_are_told(tool: Tool, tmp_path: Path) -> None:
    write(tmp_path)
    assert "metrics   none: the event files have no scalars yet" in tool("status", tmp_path).data
    said = tool("metrics", tmp_path)
    assert (said.code, "has event files without a scalar" in said.words) == (2, True)
    write(tmp_path, event(1, float_value("loss", 1)))
    assert "metrics   up to step 1" in tool("status", tmp_path).data


def test_status_of_a_parent_names_the_directories_with_checkpoints(
    tool: Tool, tmp_path: Path
) -> None:
    write(tmp_path / "logs", event(1, float_value("loss", 1)))
    for name in ("ck", "odd\x1b"):
        (tmp_path / name).mkdir()
        write_floats(tmp_path / name / "ckpt-5", (1.0,))
    said = tool("status", tmp_path).data
    assert (
        f"\nbelow     checkpoints in ck and odd\u241b: `tfckpt-tui status {tmp_path}/ck`\n" in said
    )
    assert tool("status", tmp_path, "--json").json["run"]["below"] == ["ck", "odd\x1b"]
    assert "below" not in tool("status", tmp_path / "ck").data


def test_directories_of_event_files_alone_are_runs(tool: Tool, tmp_path: Path) -> None:
    for place in ("alone", "keras/train", "keras/validation", "search/1", "search/2", "saved/logs"):
        write(tmp_path / place, *WRITTEN)
    write_floats(tmp_path / "saved" / "ckpt-3", [1.0])
    RunFactory(tmp_path / "ours").create()
    write(tmp_path / "ours" / "logs", *WRITTEN)
    listed = json.loads(tool("runs", tmp_path, "--json").data)["runs"]
    assert {Path(one["directory"]).relative_to(tmp_path).as_posix() for one in listed} == {
        *("alone", "keras", "search/1", "search/2", "saved", "ours")
    }
    assert len(listed) == 6
    by_place = {Path(one["directory"]).name: one for one in listed}
    assert (by_place["keras"]["step"], by_place["keras"]["active_at"]) == (39, 1039.0)
    # Not the number in the name of its checkpoint.
    assert by_place["saved"]["step"] == 39
    inside = json.loads(tool("runs", tmp_path / "keras" / "train", "--json").data)["runs"]
    assert [one["directory"] for one in inside] == [str(tmp_path / "keras" / "train")]


async def test_the_list_of_runs_shows_their_curve(tmp_path: Path) -> None:
    write(tmp_path / "alone", *WRITTEN)
    app = RunsApp(tmp_path, Config())
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "1 run")
        (row,) = (row for row in top(app).splitlines() if "alone" in row)
        assert " 39 " in row
        assert BARS[0] in row
        assert BARS[-1] in row
        await pilot.press("enter")
        await pilot.pause()
    assert app.return_value == RunDirectory(tmp_path / "alone")


def test_another_place_is_named(tool: Tool, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    write_floats(checkpoints / "ckpt-1", [1.0])
    write(tmp_path / "logs", *WRITTEN)
    assert tool("metrics", checkpoints).code == 2
    for command in ("metrics", "status", "report"):
        said = tool(command, checkpoints, "--logdir", tmp_path / "logs")
        assert "39" in said.data
    refused = tool("metrics", checkpoints, "--logdir", tmp_path / "elsewhere")
    assert refused.code == 2
    assert f"{tmp_path / 'elsewhere'} is not a directory" in refused.words


def test_a_place_that_is_named_comes_before_what_a_script_reports(
    tool: Tool, tmp_path: Path
) -> None:
    made = RunFactory(tmp_path / "run").create()
    made.series(0, 8, 0)
    write(made.run.root / "logs", *WRITTEN)
    assert ",39," not in tool("metrics", made.run.root).data
    assert ",39," in tool("metrics", made.run.root, "--logdir", made.run.root / "logs").data


def test_without_the_packages_that_read_them_commands_go_on(tmp_path: Path) -> None:
    write(tmp_path / "run", *WRITTEN)
    write_floats(tmp_path / "run" / "ckpt-1", [1.0])
    code = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"google", "tensorboard"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from tfckpt_tui.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
    command = [sys.executable, "-c", code, "status", tmp_path / "run"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "ckpt-1" in ended.stdout


async def test_the_app_draws_them(tmp_path: Path) -> None:
    path = write(tmp_path / "run" / "train", *WRITTEN)
    write(tmp_path / "run" / "validation", event(3, float_value("accuracy", 0.5)))
    run = open_directory(tmp_path / "run")
    async with opened(run) as pilot:
        await until_shown(pilot, "metrics up to step 39")
        await until_shown(pilot, "train/loss")
        assert "no step yet" not in shown(pilot.app)
        for width, height in ((80, 24), (120, 40), (200, 50)):
            await resize(pilot, width, height)
            await until_shown(pilot, "validation/accuracy")
            assert "19.50" in shown(pilot.app)
        with path.open("ab") as file:
            file.write(event(50, float_value("loss", 77)))
        await until_shown(pilot, "metrics up to step 50")
        await pilot.press("c")
        await until_shown(pilot, "77.00")
        # Throughput and step time are told by this library only.
        await until_shown(pilot, "1 of 2")


@pytest.mark.parametrize(
    ("name", "saved_at", "step"),
    [
        ("model.ckpt-25", 1026.0, 25),
        ("ckpt-3", 1026.0, 20),
        ("ckpt-1", 995.0, 0),
        ("model.ckpt-95", 1098.0, 95),
        ("ckpt-10", 1098.0, 90),
        ("best", 1051.0, 50),
        ("copied-later", 1101.0, None),
        ("of-an-earlier-run", 989.0, None),
    ],
)
def test_a_checkpoint_is_marked_where_the_curve_was_when_it_was_written(
    tmp_path: Path, name: str, saved_at: float, step: int | None
) -> None:
    write(tmp_path, *(event(10 * n, float_value("loss", n)) for n in range(10)))
    for path in write_floats(tmp_path / name, [1.0]):
        os.utime(path, (saved_at, saved_at))
    seen = SnapshotReader(RunDirectory(tmp_path)).read(2000.0)
    marks = list(saves_along(seen.checkpoints, seen.samples.segments("loss")))
    found = [(one.checkpoint, one.at, one.step) for one in marks]
    assert found == ([] if step is None else [(name, saved_at, step)])


async def test_the_app_marks_checkpoints_of_other_programs(tmp_path: Path) -> None:
    write(tmp_path, *WRITTEN)
    for path in write_floats(tmp_path / "ckpt-2", [1.0]):
        os.utime(path, (1030.5, 1030.5))
    async with opened(open_directory(tmp_path)) as pilot:
        await until_shown(pilot, "metrics up to step 39")
        await pilot.press("c")
        await until_shown(pilot, "◆")
        await pilot.press("n")
        await until_shown(pilot, "step 30  ◆ ckpt-2 was written.")
        await pilot.press("t", "n", "enter")
        await until_shown(pilot, "ckpt-2")


def test_an_app_left_open_shows_what_one_opened_now_does(tmp_path: Path) -> None:
    path = write(tmp_path, *WRITTEN[:1])
    run = RunDirectory(tmp_path)
    followed = SnapshotReader(run)
    for one in WRITTEN[1:]:
        followed.read(2000.0)
        with path.open("ab") as file:
            file.write(one)
    kept, fresh = followed.read(2000.0), SnapshotReader(run).read(2000.0)
    assert kept.samples.channels.keys() == fresh.samples.channels.keys() == {"loss"}
    (one,), (other,) = kept.samples.segments("loss"), fresh.samples.segments("loss")
    assert repr(one.samples) == repr(other.samples)
    assert kept.measured == fresh.measured
