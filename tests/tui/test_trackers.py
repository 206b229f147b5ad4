"""The programs of the page on trackers, as they stand, with what a tracker would get."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rundir_factory import RunFactory

from documentation import DOCS, python_blocks
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.documents import append


def block_with(words: str) -> str:
    (block,) = (block for block in python_blocks(DOCS / "how-to/trackers.md") if words in block)
    return block


@pytest.fixture
def made(tmp_path: Path) -> RunFactory:
    made = RunFactory(tmp_path / "first").create()
    made.checkpoint(1)
    for branch, step, value in ((0, 1, 0.5), (0, 2, 0.25), (1, 2, 0.75)):
        point = SeriesPoint(at=1000.5 + step, step=step, branch=branch, metrics={"loss": value})
        append(made.run.series, point)
    return made


def module(monkeypatch: pytest.MonkeyPatch, name: str, **members: Any) -> None:
    found = ModuleType(name)
    vars(found).update(members)
    monkeypatch.setitem(sys.modules, name, found)


def test_each_branch_is_a_run_of_wandb(made: RunFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[tuple[dict[str, Any], list[tuple[int, dict[str, float]]]]] = []

    def init(**given: Any) -> SimpleNamespace:
        points: list[tuple[int, dict[str, float]]] = []
        got.append((given, points))
        log = lambda values, step: points.append((step, values))  # noqa: E731
        return SimpleNamespace(log=log, finish=lambda: None)

    module(monkeypatch, "wandb", init=init)
    monkeypatch.setattr(sys, "argv", ["to_wandb.py", str(made.run.root), "digits"])
    exec(block_with("project=sys.argv[2]"), {})
    assert [(given["tags"], points) for given, points in got] == [
        (["branch 0"], [(1, {"loss": 0.5}), (2, {"loss": 0.25})]),
        (["branch 1"], [(2, {"loss": 0.75})]),
    ]
    assert {(given["project"], given["group"]) for given, _ in got} == {("digits", "first")}


def test_each_branch_is_a_run_of_mlflow(made: RunFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    got: dict[str, Any] = {"tags": [], "points": []}

    def start_run(run_name: str, tags: dict[str, str]) -> Any:
        got["tags"].append(tags["branch"])
        return nullcontext(SimpleNamespace(info=SimpleNamespace(run_id=run_name)))

    client = SimpleNamespace(log_batch=lambda run, points: got["points"].append((run, points)))
    module(
        monkeypatch,
        "mlflow",
        MlflowClient=lambda: client,
        set_experiment=lambda name: got.update(experiment=name),
        set_tracking_uri=lambda uri: got.update(uri=uri),
        start_run=start_run,
    )
    module(monkeypatch, "mlflow.entities", Metric=lambda *fields: fields)
    monkeypatch.setattr(sys, "argv", ["to_mlflow.py", str(made.run.root), "http://server"])
    exec(block_with("mlflow.set_tracking_uri"), {})
    assert got == {
        "uri": "http://server",
        "experiment": "first",
        "tags": ["0", "1"],
        "points": [
            ("branch 0", [("loss", 0.5, 1001500, 1), ("loss", 0.25, 1002500, 2)]),
            ("branch 1", [("loss", 0.75, 1002500, 2)]),
        ],
    }
