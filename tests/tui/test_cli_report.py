"""`report`: all facts of a run in one record, and the formats made of it."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from json_reference import check
from rundir_factory import ABOVE, HYPERPARAMETERS, SPIKE, RunFactory, loss_at, two_branches

from command_running import Tool
from tfckpt_trainer.rundir.event_log import read_series
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_trainer.rundir.records.run import ChangedFile, CodeVersion
from tfckpt_trainer.rundir.storage.documents import append
from tfckpt_tui.reports.reporting import RunReport
from tfckpt_tui.services.reporting.curves import (
    COLUMNS,
    MOST_CELLS,
    MOST_METRICS,
    CurveReader,
)
from tfckpt_tui.services.reporting.facts import report_of


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


CODE = CodeVersion(
    commit="5f0c" * 10,
    branch="main",
    changed_files=2,
    changes=[
        ChangedFile(path="train.py", added=3, removed=1),
        ChangedFile(path="data/x.bin", added=None, removed=None),
    ],
)


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    """A run with everything that a report shows."""
    made = two_branches(tmp_path / "run")
    made.guarded(versions={"python": "3.12.3", "tensorflow": "2.19.0"}, code=CODE)
    made.records("ckpt-b1-400", *HYPERPARAMETERS)
    change = [{"name": "learning_rate", "before": 0.003, "after": 0.0003}]
    made.event_log(
        EventKind.SET,
        "learning_rate from 0.003 to 0.0003.",
        200,
        step=390,
        by="ann@desk",
        details={"hyperparameters": change},
    )
    made.event_log(EventKind.RESTART, "Worker 1 was killed (SIGKILL).", 150, by="supervisor")
    return made


def point(step: int, branch: int = 0, **metrics: float | None) -> SeriesPoint:
    return SeriesPoint(at=float(step), step=step, branch=branch, metrics=dict(metrics))


def test_the_record_has_every_fact_of_a_run(tool: Tool, made: RunFactory) -> None:
    document = tool("report", made.run.root, "--json").json
    check(RunReport, document)
    (loss, throughput, step_time) = document["curves"]["curves"]
    assert [branch["branch"] for branch in loss["branches"]] == [0, 1]
    assert [branch["kept_until"] for branch in loss["branches"]] == [300, 438]
    assert loss["branches"][0]["values"][0] == pytest.approx(loss_at(0))
    assert (throughput["quantity"], step_time["quantity"]) == ("throughput", "step time")
    # The supervisor knows no step: its event is where training was then.
    restart = next(mark for mark in document["curves"]["marks"] if mark["kind"] == "restart")
    assert restart["step"] > 300
    (change,) = document["changes"]
    assert (change["name"], change["before"], change["after"]) == ("learning_rate", 0.003, 0.0003)
    assert [guard["rule"] for guard in document["guards"]] == [SPIKE, ABOVE]
    assert document["saves"]["noted"] == 5
    assert document["saves"]["kept"] == 6
    assert document["code"]["changes"][1]["added"] is None
    assert document["versions"]["tensorflow"] == "2.19.0"
    assert {event["kind"] for event in document["events"]} >= {"restore", "guard", "set", "restart"}
    assert "save" not in {event["kind"] for event in document["events"]}


def test_the_record_says_what_was_pruned(tool: Tool, made: RunFactory) -> None:
    for index in range(2):
        made.run.worker_status(index).unlink()
    assert tool("prune", made.run.root, "--keep-last", "2", "--yes").code == 0
    (pruned,) = tool("report", made.run.root, "--json").json["pruned"]
    assert pruned["checkpoints"] == len(pruned["names"]) > 0
    assert pruned["names"][0] in tool("report", made.run.root).data


def test_markdown_has_every_section(tool: Tool, made: RunFactory) -> None:
    said = tool("report", made.run.root)
    titles = [line[3:] for line in said.data.splitlines() if line.startswith("## ")]
    assert titles == [
        "Summary",
        "Metrics",
        "Hyperparameters",
        "Guards",
        "Restarts and failures",
        "Workers",
        "Saves",
        "Pruned checkpoints",
        "Code and packages",
        "Event log",
    ]
    for words in ("5f0c5f0c", "train.py", "learning_rate", "Worker 1 was killed", "2.19.0"):
        assert words in said.data


def test_a_run_without_anything(tool: Tool, tmp_path: Path) -> None:
    RunFactory(tmp_path / "run").create(strategy="")
    said = tool("report", tmp_path / "run", "--json")
    check(RunReport, said.json)
    assert said.json["curves"] == {"points": 0, "curves": [], "left_out": 0, "marks": []}
    assert "No measurements are recorded." in tool("report", tmp_path / "run").data


def test_a_directory_of_plain_checkpoints(tool: Tool, tmp_path: Path) -> None:
    RunFactory(tmp_path).checkpoint(7, name="model-7", recorded=False)
    said = tool("report", tmp_path, "--json")
    check(RunReport, said.json)
    assert [save["name"] for save in said.json["saves"]["checkpoints"]] == ["model-7"]
    assert "model-7" in tool("report", tmp_path).data
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == []


def test_an_unreadable_part_is_named_and_the_rest_is_told(tool: Tool, made: RunFactory) -> None:
    made.run.config_file.write_text("guards = 3\n")
    said = tool("report", made.run.root)
    assert said.code == 1
    assert "config.toml" in said.words
    assert "## Event log" in said.data


def test_the_ending_of_the_file_names_the_format(tool: Tool, made: RunFactory) -> None:
    file = made.run.root.parent / "run.md"
    file.write_text("earlier")
    assert tool("report", made.run.root, "-o", file).code == 0
    assert file.read_text().startswith("# run\n")
    said = tool("report", made.run.root, "-o", file.with_suffix(".pdf"))
    assert said.code == 2
    assert ".md" in said.words
    assert tool("report", made.run.root, "--json", "-o", file).code == 2


def test_a_spike_survives_downsampling() -> None:
    reader = CurveReader()
    reader.add(point(step, loss=9.0 if step == 77_777 else 1.0) for step in range(100_000))
    (curve,) = reader.facts({}).curves
    (branch,) = curve.branches
    assert len(branch.steps) <= 4 * COLUMNS
    assert (77_777, 9.0) in zip(branch.steps, branch.values, strict=True)
    assert (curve.highest, curve.highest_step) == (9.0, 77_777)
    assert (branch.steps[0], branch.steps[-1]) == (0, 99_999)


def test_downsampled_curves_are_bounded_whatever_is_recorded() -> None:
    random.seed(7)
    reader = CurveReader()
    for step in range(3000):
        names = {f"m{random.randrange(150)}": random.random() for _ in range(20)}
        reader.add([point(step * random.choice([1, 10**12, -1]), random.randrange(40), **names)])
    facts = reader.facts({})
    assert len(facts.curves) <= MOST_METRICS
    assert facts.left_out > 0
    assert sum(len(b.steps) for c in facts.curves for b in c.branches) <= 4 * MOST_CELLS


def test_values_that_are_not_finite_are_counted_and_not_drawn() -> None:
    reader = CurveReader()
    reader.add([point(1, loss=1.0), point(2, loss=None), point(3, loss=math.inf)])
    (curve,) = reader.facts({}).curves
    assert (curve.not_finite, curve.not_finite_steps) == (2, (2, 3))
    assert curve.branches[0].values == (1.0,)


def test_an_event_without_a_step_is_placed_by_its_time() -> None:
    event = EventEntry(at=5.5, kind=EventKind.RESTART, message="Again.")
    late = EventEntry(at=50.0, kind=EventKind.RESTART, message="Late.")
    reader = CurveReader([event, late])
    reader.add(point(step, loss=1.0) for step in range(10))
    assert [(mark.step, mark.message) for mark in reader.facts({}).marks] == [
        (5, "Again."),
        (9, "Late."),
    ]


def test_the_whole_series_is_read_in_blocks(made: RunFactory) -> None:
    with made.run.series.open("ab") as file:
        file.write(b'{"half a line\n\xff\xfe\n')
        line = b'{"at":1,"step":%d,"branch":2,"metrics":{"loss":1.5},"later":1,"schema":1}\n'
        file.write(b"".join(line % step for step in range(60_000)))
        file.write(b'{"at":1,"step":1,"branch":3,"schema":99}\n')
    append(made.run.series, point(60_000, 2, loss=2.5))
    blocks = list(read_series(made.run))
    assert len(blocks) > 1
    points = [one for block in blocks for one in block]
    assert [one.step for one in points if one.branch == 2] == list(range(60_001))
    assert {one.branch for one in points} == {0, 1, 2}
    assert report_of(made.run).curves.points == len(points)
