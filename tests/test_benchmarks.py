"""Every benchmark starts; what it measures is read off by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from leftovers import lasting
from requirements import needs
from tensorflow_processes import run_with_tensorflow

sys.path.insert(0, str(Path(__file__).parent / "benchmarks"))
import run_all
from scripts import aims, figures, machine, performance_page

BENCHMARKS = sorted((Path(__file__).parent / "benchmarks").glob("*.py"))


@pytest.mark.tensorflow
@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.stem)
def test_a_benchmark_finds_its_imports_and_explains_itself(benchmark):
    done = run_with_tensorflow(benchmark, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_all_benchmarks_are_run():
    names = {benchmark.name for benchmark in run_all.BENCHMARKS}
    assert names | {"run_all"} == {path.stem for path in BENCHMARKS}
    assert names == SMALL.keys()


SMALL = {
    "background_save": "--megabytes 5 --rounds 1",
    "commands": "--rounds 1 --checkpoints 3",
    "chart_keys": "--metrics 3 --points 5000",
    "check": "--variables 50",
    "event_curves": "--megabytes 2 --rounds 1",
    "first_frame": "--checkpoints 10 --rounds 1",
    "fleet": "--seconds 2 --live 2 --runs 4",
    "follow": "--rounds 1",
    "guards": "--steps 2000 --noise-steps 2000",
    "idle_file_calls": "--seconds 2 --commands 1 --only local",
    "large_list": "--checkpoints 200",
    "listing": "--checkpoints 50 --rounds 1",
    "loop_overhead": "--blocks 2 --step-ms 0.5",
    "many_variables": "--variables 20 --rounds 1",
    "memory": "--size 1000000",
    "one_of_many": "--checkpoints 20 --kinds ours",
    "open_for_long": "--hours 0.01 0.02",
    "open_index": "--rounds 1",
    "partitioned_save": "--megabytes 1",
    "page_keys": (
        "--workers 3 --more-workers 4 --checkpoints 20 --metrics 3 --points 5000 --only charts"
    ),
    "panes": "--rows 50 --rounds 1",
    "parameter_servers": "--blocks 1 --steps 50 --rows 100",
    "replica_checksums": "--megabytes 5 --rounds 1",
    "restart": "--rounds 1",
    "restore_in_place": "--megabytes 1 --ages 1 --growth 1",
    "save": "--megabytes 1 --shared 1 --growth 1 --rounds 1",
    "server_operations": "--seconds 2 --settle 0 --runs 30 --live 2 --workers 20",
    "state_walk": "600",
    "terminal_load": "--seconds 2 --presses 4",
    "verify": "--rounds 1 --small 20",
    "year_of_training": "--days 1 --limit 9000000 --saves 2",
}


@pytest.mark.weekly
@pytest.mark.parametrize("name", SMALL)
def test_a_benchmark_measures(name, tmp_path):
    place = tmp_path / "figures"
    environment = {**os.environ, figures.COLLECTED: str(place)}
    script = run_all.PLACE / f"{name}.py"
    done = subprocess.run(
        [sys.executable, script, *SMALL[name].split()],
        env=environment,
        capture_output=True,
        text=True,
    )
    # It fails on a busy machine, after it has measured.
    assert done.returncode == 0 or "too busy to believe" in done.stderr, done.stderr
    found = [msgspec.json.decode(line, type=figures.Figure) for line in place.open("rb")]
    assert {figure.benchmark for figure in found} == {name}
    assert len({figure.key for figure in found}) == len(found), "two figures with one name"


def test_figures_are_printed_and_collected(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(figures.COLLECTED, str(tmp_path / "figures"))
    figures.report_ratio(
        "rows", [2.0, 9.0, 4.0], [1.0, 3.0, 1.0], "a bare app", along="checkpoints", at=10_000
    )
    figures.report("memory", [70.5], "MB")
    words = ["rows, 10,000 checkpoints: 3 times a bare app (2 to 4)", "memory: 70.5 MB"]
    assert capsys.readouterr().out.splitlines() == words
    lines = (tmp_path / "figures").read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=figures.Figure) for line in lines]
    assert [figure.words for figure in found] == words


def figure(value, low=None, high=None, **changes):
    facts = {"benchmark": "b", "what": "w", "unit": "times", "value": value}
    low, high = low or value, high or value
    return figures.Figure(**{**facts, "low": low, "high": high, **changes})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (figure(2.0, 1.5, 3.0), figure(2.9), []),
        (figure(2.0, 1.9, 2.1), figure(2.15), []),
        (figure(2.0, 1.9, 2.1), figure(3.0), ["2 → w: 3 times"]),
        (figure(2.0), figure(3.0, what="other"), []),
        (figure(2.0), figure(3.0, at=5.0), []),
        (figure(2.0), figure(3.0, unit="ms"), []),
    ],
)
def test_a_median_that_left_the_earlier_range_is_told(before, after, said):
    assert run_all.changes([before], [after]) == said


def run_with(*found, **facts):
    named = {one.benchmark: ran() for one in found}
    return figures.Figures(
        **{"machine": "m", "versions": {}, "runs": named, "figures": [*found]} | facts
    )


def ran(day=0, additions=10.0, **facts):
    return figures.BenchmarkRun(at=day * 86400.0, additions=additions, **facts)


def test_benchmarks_that_ran_again_replace_their_figures_and_no_others():
    before = run_with(
        figure(1.0, benchmark="a"),
        figure(2.0, benchmark="b"),
        figure(4.0, benchmark="c"),
        runs={"a": ran(was_busy=True), "b": ran(was_busy=True), "c": ran()},
    )
    now = {"b": ran(day=1), "c": ran(day=1, has_failed=True)}
    found = run_all.merged(before, run_with(figure(3.0, benchmark="b"), runs=now), ["a", "b", "c"])
    assert [one.value for one in found.figures] == [1.0, 3.0]
    assert (found.busy, found.failed) == (["a"], ["c"])
    with pytest.raises(SystemExit, match="of another machine or versions"):
        run_all.merged(before, run_with(machine="n"), [])


def test_the_page_says_when_each_benchmark_ran_and_how_fast_the_machine_was_then():
    """A virtual machine of the same name may be half as fast on another day."""
    runs = {"a": ran(day=1, additions=None), "b": ran(day=3, additions=6.25, was_busy=True)}
    found = run_with(figure(1.0, benchmark="a"), figure(2.0, benchmark="b"), runs=runs)
    text = performance_page.tables(found)
    assert text.startswith("Measured on 1970-01-02 to 1970-01-04 on m, with ")
    assert " The machine was busy during: b.\n" in text
    assert "### a\n\nOn 1970-01-02.\n" in text
    assert "### b\n\nOn 1970-01-04. A core did 6.25 million additions a second in Python.\n" in text


def test_a_figure_that_misses_its_aim_is_told(monkeypatch):
    most = aims.Aim("b", "w", at_most=2.0)
    least = aims.Aim("b", "rate", at_least=95)
    monkeypatch.setattr(aims, "AIMS", (most, least))
    assert aims.missed([figure(2.0), figure(95.0, what="rate")]) == []
    assert aims.missed([figure(2.1), figure(94.0, what="rate", unit="%")]) == [
        "w: 2.1 times; the aim is at most 2",
        "rate: 94 %; the aim is at least 95",
    ]


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (figure(2.0, 1.9, 2.0), "✓"),
        (figure(2.0, 1.9, 2.1), "✓, not in all rounds"),
        (figure(2.1, 2.1, 3.0), "missed"),
        (figure(2.1, 1.9, 3.0), "missed, not in all rounds"),
    ],
)
def test_a_verdict_says_whether_all_rounds_agree(measured, verdict):
    assert aims.Aim("b", "w", at_most=2.0).verdict(measured) == verdict


GROWING = [figure(value, along="files", at=10.0**n) for n, value in enumerate((1.0, 2.0, 9.0))]
ALONE = figure(5.0, what="alone", unit="ms", along="files", at=10.0)


def test_figures_at_three_sizes_are_a_chart_and_a_table(monkeypatch):
    monkeypatch.setattr(performance_page, "AIMS", (aims.Aim("b", "w", 100.0, at_most=2.0),))
    text = performance_page.tables(run_with(*GROWING, ALONE))
    assert "| w, 100 files | 9 times |  | at most 2 | missed |" in text
    assert "| b, times the reference | 1 | 10 | 100 |" in text
    assert "| w | 1 | 2 | 9 |" in text
    assert "| alone, 10 files | 5 ms |  |" in text


@pytest.mark.e2e
@needs("matplotlib")
def test_each_chart_of_the_page_is_drawn(monkeypatch, tmp_path):
    monkeypatch.setattr(performance_page, "AIMS", ())
    monkeypatch.setattr(performance_page, "CHARTS_DIRECTORY", tmp_path / "charts")
    with lasting():
        # Matplotlib keeps its fonts open.
        performance_page.draw_charts([*GROWING, ALONE])
    (chart,) = (tmp_path / "charts").iterdir()
    assert f"/{chart.name})" in performance_page.tables(run_with(*GROWING, ALONE))


@pytest.mark.e2e
def test_the_figures_of_benchmarks_are_written_and_compared(tmp_path, monkeypatch, capsys):
    words = tuple(SMALL["guards"].split())
    small = run_all.Benchmark("guards", (), words)
    monkeypatch.setattr(run_all, "BENCHMARKS", (small, run_all.Benchmark("check")))
    place = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["run_all.py", "--quick", "--output", str(place)])
    with pytest.raises(SystemExit) as end:
        run_all.main()
    assert not end.value.code
    assert capsys.readouterr().out.startswith("[1/1] guards")
    found = figures.read(place)
    assert {one.benchmark for one in found.figures} == {"guards"}
    assert found.versions["tfckpt-tui"]
    assert found.runs["guards"].words == words
    assert found.runs["guards"].seconds


def test_long_benchmarks_run_when_they_are_asked_for(monkeypatch):
    usual, long = run_all.Benchmark("guards"), run_all.Benchmark("check", is_long=True)
    monkeypatch.setattr(run_all, "BENCHMARKS", (usual, long))
    asked = []
    monkeypatch.setattr(
        run_all, "run", lambda words, before, times: asked.append([*words]) or run_with()
    )
    for options in ([], ["--all"], ["check"]):
        monkeypatch.setattr(sys, "argv", ["run_all.py", *options])
        with pytest.raises(SystemExit):
            run_all.main()
    assert asked == [["guards"], ["guards", "check"], ["check"]]


def test_what_the_quick_form_runs_has_ratios_to_compare():
    published = figures.read(performance_page.FIGURES).figures
    with_ratios = {figure.benchmark for figure in published if figure.against}
    quick = {one.name for one in run_all.BENCHMARKS if one.quick is not None}
    assert quick
    assert quick <= with_ratios


def test_the_time_left_is_that_of_an_earlier_run_with_the_same_words(monkeypatch, capsys):
    monkeypatch.setattr(run_all, "PLACE", Path("/nowhere"))
    before = {"a": ran(words=("--x",), seconds=130.0), "b": ran(seconds=65.0)}
    run_all.run({"a": ("--x",), "b": ("--other",)}, before)
    assert capsys.readouterr().out == "[1/2] a, about 2 min left\n[2/2] b\n"


def test_runs_of_one_benchmark_are_joined_with_the_range_of_all():
    runs = [[figure(2.0, 1.0, 3.0), figure(7.0, what="x")], [figure(4.0)], [figure(2.5, 2.0, 6.0)]]
    assert run_all.joined(runs) == [figure(2.5, 1.0, 6.0), figure(7.0, what="x")]


@pytest.mark.parametrize(("share", "is_believed"), [(0.04, True), (0.06, False)])
def test_figures_of_a_busy_machine_are_not_to_be_believed(monkeypatch, capsys, share, is_believed):
    monkeypatch.setattr(machine, "busy_share", lambda: share)
    judged = machine.on_quiet_machine(lambda: print("a figure"))
    if is_believed:
        judged()
    else:
        with pytest.raises(SystemExit, match="too busy to believe these figures"):
            judged()
    assert capsys.readouterr().out.startswith("a figure")


def test_waiting_and_idling_are_no_load():
    ticks = 1 + 2 + 4 + 32 + 64 + 128
    stat = "cpu  1 2 4 8 16 32 64 128 256 512\ncpu0 0 0 0 0 0 0 0 0 0 0\n"
    assert machine.busy_seconds(stat) == ticks / os.sysconf("SC_CLK_TCK")


def test_a_process_that_computes_is_seen(monkeypatch):
    def compute(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass

    # One second by its clock, in which half a core is used, however long that takes beside others.
    clock = SimpleNamespace(monotonic=iter((0.0, 1.0)).__next__, sleep=lambda _: compute(0.5))
    monkeypatch.setattr(machine, "time", clock)
    assert machine.busy_share() > 0.4 / (os.cpu_count() or 1)
