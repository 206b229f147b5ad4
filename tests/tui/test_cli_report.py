"""`report`: all facts of a run in one record, and the formats made of it."""

from __future__ import annotations

import itertools
import math
import os
import random
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from json_reference import check
from rundir_factory import (
    ABOVE,
    HYPERPARAMETERS,
    LOSS,
    SPIKE,
    RunFactory,
    fail,
    loss_at,
    two_branches,
)

from command_running import Tool
from tfckpt_trainer.rundir.records.event import EventEntry, EventKind, SeriesPoint
from tfckpt_trainer.rundir.records.run import ChangedFile, CodeVersion
from tfckpt_trainer.rundir.storage.documents import append
from tfckpt_tui.services.metrics.metric_tail import read_metrics
from tfckpt_tui.tools.reporting.curves import (
    COLUMNS,
    MOST_CELLS,
    MOST_METRICS,
    CurveReader,
)
from tfckpt_tui.tools.reporting.facts import report_of
from tfckpt_tui.tools.reporting.html_report import as_html, figure
from tfckpt_tui.tools.reporting.json_report import RunReport
from tfckpt_tui.tools.reporting.markdown_report import as_markdown
from weekly import tries

CODE = CodeVersion(
    commit="5f0c" * 10,
    branch="main",
    changed_files=2,
    added=3,
    removed=1,
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
    made.event_log(
        EventKind.SET,
        "learning_rate from 0.0003 to 0.01 after step 900.",
        190,
        step=392,
        details={"hyperparameters": change, "begins": 900},
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
    assert document["run"]["code"]["changes"][1]["added"] is None
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
    words = "5f0c5f0c5f0c on main, 2 files changed (+3 -1)"
    assert words in tool("status", made.run.root).data
    for words in (
        "5f0c5f0c",
        "2 files changed (+3 -1)",
        "train.py",
        "learning_rate",
        "Worker 1 was killed",
        "2.19.0",
    ):
        assert words in said.data


def test_a_failed_run_is_explained_with_each_lost_worker(tool: Tool, tmp_path: Path) -> None:
    made = fail(two_branches(tmp_path / "run"))
    said = tool("report", made.run.root).data
    happened = said.partition("## What happened")[2].partition("\n## ")[0]
    assert "38 steps are lost" in happened
    lost = said.partition("## Restarts and failures")[2].partition("\n## ")[0]
    for words in ("train.py:41", "with open", "KeyError: 'x'", "912 MB", "41.0 GB"):
        assert words in lost
    assert tool("report", made.run.root, "--json").json["failure"]["worker"] == 1


def test_the_log_keeps_its_indentation(tmp_path: Path) -> None:
    log = ["Traceback:", "  File x, line 1", "    rates[0]", "    ~~~~~^^^"]
    made = fail(two_branches(tmp_path / "run"), msgspec.structs.replace(LOSS, log=log))
    assert "\n".join(log) in as_html(report_of(made.run))


def test_a_run_without_anything(tool: Tool, tmp_path: Path) -> None:
    RunFactory(tmp_path / "run").create(strategy="")
    said = tool("report", tmp_path / "run", "--json")
    check(RunReport, said.json)
    nothing = {"points": 0, "curves": [], "left_out": 0, "marks": []}
    assert said.json["curves"] == nothing | {"thinned_before": None, "thinned_steps": None}
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
    page = made.run.root.parent / "run.html"
    assert tool("report", made.run.root, "-o", page).code == 0
    assert page.read_text().startswith("<!doctype html>")
    file = made.run.root.parent / "run.md"
    file.write_text("earlier")
    assert tool("report", made.run.root, "-o", file).code == 0
    assert file.read_text().startswith("# run\n")
    said = tool("report", made.run.root, "-o", file.with_suffix(".pdf"))
    assert said.code == 2
    assert ".md" in said.words
    assert tool("report", made.run.root, "--json", "-o", file).code == 2


def test_nothing_is_written_through_a_link(tool: Tool, made: RunFactory) -> None:
    theirs, link = made.run.root.parent / "theirs", made.run.root.parent / "run.md"
    theirs.write_text("of somebody else")
    link.symlink_to(theirs)
    said = tool("report", made.run.root, "-o", link)
    assert (said.code, theirs.read_text()) == (4, "of somebody else")
    assert f"{link} is a symbolic link, and nothing is written through one." in said.words


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
    for step in range(1000):
        names = {f"m{random.randrange(150)}": random.random() for _ in range(20)}
        reader.add([point(step * random.choice([1, 10**12, -1]), random.randrange(40), **names)])
    facts = reader.facts({})
    assert len(facts.curves) <= MOST_METRICS
    assert facts.left_out > 0
    assert sum(len(b.steps) for c in facts.curves for b in c.branches) <= 4 * MOST_CELLS


def test_curves_that_are_left_out_do_not_make_the_others_coarse() -> None:
    random.seed(7)
    reader = CurveReader()
    names = [f"m{number}" for number in range(300)]
    reader.add(point(step, **{name: random.random() for name in names}) for step in range(1000))
    facts = reader.facts({})
    assert facts.left_out == len(names) - MOST_METRICS
    (branch,) = facts.curves[0].branches
    assert len(branch.steps) > 4 * MOST_CELLS / len(names)


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
    blocks = list(read_metrics(made.run))
    assert len(blocks) > 1
    points = [one for block in blocks for one in block]
    assert [one.step for one in points if one.branch == 2] == list(range(60_001))
    assert {one.branch for one in points} == {0, 1, 2}
    assert report_of(made.run).curves.points == len(points)


class Page(HTMLParser):
    """Elements, attributes and texts of a page as a browser sees them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.places: list[float] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attrs}
        given = dict(attrs)
        for name in ("x", "y", "x1", "y2", "cx", "cy"):
            if name in given:
                self.places.append(float(given[name] or "nan"))
        for place in (given.get("points") or "").split():
            self.places += map(float, place.split(","))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "nav", "a", "section", "p"),
    *("div", "table", "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "span", "pre"),
    *("svg", "line", "text", "polyline", "circle", "g"),
}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title><svg onload=alert(1)>",
    "' onmouseover='x",
    "![x](http://evil/x.png) [a](javascript:alert(1))",
    "| a | b |\n|---|---|\n# title",
    "\x1b[31m\u202e&lt;b&gt;\ud800",
]


def with_text(report: RunReport, text: str) -> RunReport:
    """Puts a text wherever a report has some from disk."""

    def put(value: object) -> object:
        if isinstance(value, msgspec.Struct):
            fields = {name: put(getattr(value, name)) for name in value.__struct_fields__}
            return msgspec.structs.replace(value, **fields)
        if isinstance(value, tuple | list):
            return type(value)(map(put, value))
        if isinstance(value, dict):
            return {text if isinstance(key, str) else key: put(one) for key, one in value.items()}
        return text if type(value) is str and value not in {"throughput", "step time"} else value

    changed = put(report)
    assert isinstance(changed, RunReport)
    # The kind of a quantity is one of three words.
    curves = tuple(
        msgspec.structs.replace(curve, quantity=old.quantity)
        for curve, old in zip(changed.curves.curves, report.curves.curves, strict=True)
    )
    return msgspec.structs.replace(
        changed, curves=msgspec.structs.replace(changed.curves, curves=curves)
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    made = two_branches(tmp_path_factory.mktemp("whole") / "run").guarded(code=CODE)
    fail(made)
    made.event_log(EventKind.PRUNE, "Moved to the trash: ckpt-1.", 3)
    return report_of(made.run)


def test_the_page_has_a_figure_for_each_curve_and_loads_nothing(whole: RunReport) -> None:
    page = Page(as_html(whole))
    assert page.elements.count("svg") == len(whole.curves.curves) == 3
    assert page.elements.count("polyline") >= 2 * 3
    assert set(page.elements) - {"title"} <= ELEMENTS
    assert not page.attributes & {"src", "onload", "onerror", "style", "xlink:href"}
    assert all(math.isfinite(place) for place in page.places)
    assert "http" not in as_html(whole).replace("http-equiv", "")


@tries(40)
@given(text=st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=60))
def test_no_text_from_disk_becomes_markup(whole: RunReport, text: str) -> None:
    hostile, plain = with_text(whole, text), with_text(whole, "x")
    page, usual = Page(as_html(hostile)), Page(as_html(plain))
    assert page.elements == usual.elements
    assert page.attributes == usual.attributes
    lines, expected = as_markdown(hostile).splitlines(), as_markdown(plain).splitlines()
    assert len(lines) == len(expected)
    unescaped = re.compile(r"(?<!\\)(?:\\\\)*[<\[]|(?<!\\)(?:\\\\)*&")
    assert [line for line in lines if unescaped.search(line)] == []


@given(ends=st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_no_label_of_a_branch_covers_another(ends: list[float]) -> None:
    reader = CurveReader()
    for branch, end in enumerate(ends):
        reader.add([point(1, branch, loss=1.0), point(10, branch, loss=end)])
    (curve, *_) = reader.facts({}).curves
    drawn = str(figure(curve, (), (1, 10)))
    places = sorted(float(y) for y in re.findall(r'y="([\d.]+)" class="label', drawn))
    assert len(places) == len(ends)
    assert all(lower - upper >= 13.9 for upper, lower in itertools.pairwise(places))


def test_a_first_traced_step_does_not_flatten_the_others() -> None:
    reader = CurveReader()
    reader.add(point(step, loss=30.0 if step == 0 else 0.1 + step % 5 / 100) for step in range(90))
    (curve,) = reader.facts({}).curves
    drawn = str(figure(curve, (), (0, 89)))
    assert "▲ 30" in drawn
    (line,) = re.findall(r'points="([^"]+)"', drawn)
    places = {float(place.split(",")[1]) for place in line.split()[1:]}
    assert max(places) - min(places) > 100, "most of the height of the figure"


@tries(40)
@given(
    values=st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.none(), min_size=1, max_size=9
    ),
    steps=st.lists(st.integers(-(2**62), 2**62), min_size=9, max_size=9),
)
def test_a_figure_of_any_values_is_within_its_edges(
    whole: RunReport, values: list[float | None], steps: list[int]
) -> None:
    reader = CurveReader()
    reader.add(
        point(step, index % 2, loss=value)
        for index, (step, value) in enumerate(zip(steps, values, strict=False))
    )
    facts = reader.facts({})
    page = Page(as_html(msgspec.structs.replace(whole, curves=facts)))
    assert all(-1 <= place <= 760 for place in page.places)


def test_a_pipe_takes_a_report_only_of_its_user_and_with_a_reader(
    tool: Tool, tmp_path: Path
) -> None:
    """That of a stranger kept the command waiting, or had the report."""
    made = RunFactory(tmp_path / "run").create()
    pipe = tmp_path / "run.html"
    os.mkfifo(pipe)
    refused = tool("report", made.run.root, "-o", pipe)
    assert refused.words == (
        f"tfckpt-tui: {pipe} is a pipe that nobody reads. Name a file, or begin to read it first.\n"
    )
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert tool("report", made.run.root, "-o", pipe).code == 0
    assert os.read(reader, 15) == b"<!doctype html>"
    os.close(reader)
    if os.geteuid() == 0:
        os.chown(pipe, 54322, -1)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        said = tool("report", made.run.root, "-o", pipe)
        assert f"{pipe} belongs to user 54322, and is not a regular file" in said.words
        assert os.read(reader, 1) == b""
        os.close(reader)
