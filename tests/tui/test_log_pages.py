"""Logs of any size are read from anywhere, and searched in full."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from app_driving import opened, top, until
from rundir_factory import RunFactory
from textual.pilot import Pilot

from tfckpt_tui.app.screens.logs import LogsScreen
from tfckpt_tui.app.widgets.run.log_view import LogView, Wanted
from tfckpt_tui.monitor.log_pages import PAGE_BYTES, LogPage, LogSearch, LogSearches, read_around
from tfckpt_tui.monitor.logs import ALL, FIRST_BYTES, LINE_BYTES, Level, LogTail
from waiting import LEAST_SECONDS

LINES = 12_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 2.6 MB: the first needle is far before its last megabyte."""
    path = tmp_path / "worker-0.log"
    write(path)
    return path


def write(path: Path) -> None:
    lines = [
        f"line {number:06d} of a log whose lines are {'long ' * 35}" for number in range(LINES)
    ]
    lines[100] = "the Needle is here"
    lines[6_000] = "another needle"
    path.write_text("\n".join(lines) + "\n")
    assert path.stat().st_size > 2 * FIRST_BYTES


def test_pages_around_all_places_are_the_whole_log(log: Path) -> None:
    text, place, found = log.read_bytes(), 0, b""
    while place < len(text):
        page = read_around(log, place)
        assert page.start <= place < page.end
        assert page.end - page.start <= PAGE_BYTES + 2 * LINE_BYTES
        new = [line for line in page.lines if line.place >= place]
        assert new[0].place == place
        found += b"".join(line.text.encode() + b"\n" for line in new)
        place = page.end
    assert found == text


def test_a_line_of_megabytes_hides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_text("first\n" + "x" * (3 * FIRST_BYTES) + "\nlast\n")
    read = LogTail(path).read_new()
    assert read is not None
    assert read[-1].text == "last"
    assert all(len(line.text) <= LINE_BYTES for line in read)
    assert max(len(line.text) for line in read_around(path, FIRST_BYTES).lines) == LINE_BYTES
    assert read_around(path, 0).lines[0].text == "first"


def test_a_log_without_line_ends_is_shown_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    path.write_text("y" * (FIRST_BYTES + 5))
    tail = LogTail(path)
    read = tail.read_new()
    assert read is not None
    assert sum(len(line.text) for line in read) == FIRST_BYTES
    assert tail.read_new() == []


def test_a_search_finds_every_line_and_goes_on(log: Path) -> None:
    search = LogSearch(log, "nEEdle")
    search.run()
    assert search.has_ended
    lines = [read_around(log, place) for place in search.places]
    texts = [
        next(line.text for line in page.lines if line.place == place)
        for page, place in zip(lines, search.places, strict=True)
    ]
    assert texts == ["the Needle is here", "another needle"]
    with log.open("a") as file:
        file.write("a third needle\n")
    search.run()
    assert len(search.places) == 3


def test_lines_are_shown_and_searched_as_a_terminal_leaves_them(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    bar = b"".join(b"%d of 9000 loading\r" % number for number in range(9000))
    path.write_bytes(b"\x1b[1m10/10\x1b[0m done\n" + bar + b"all loaded\n\x1b[31mlast\x1b[0m")
    seen = ["10/10 done", "all loaded"]
    tail = LogTail(path)
    read = tail.read_new()
    assert read is not None
    assert [line.text for line in read] == seen
    assert tail.unfinished is not None
    assert tail.unfinished.text == "last"
    page = read_around(path, path.stat().st_size)
    assert [line.text for line in page.lines][-2:] == ["all loaded", "last"]
    places = {line.text: line.place for line in (*read, *page.lines)}
    for needle, found in (("10/10 DONE", seen[0]), ("0 done", seen[0]), ("loaded", seen[1])):
        search = LogSearch(path, needle)
        search.run()
        assert list(search.places) == [places[found]]
    for needle in ("loading", "[1m", "8999 of"):
        search = LogSearch(path, needle)
        search.run()
        assert not search.places, needle


@pytest.mark.parametrize("needle", ["between", "loss:   1"])
def test_what_a_line_leaves_open_hides_no_match_in_later_ones(tmp_path: Path, needle: str) -> None:
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"\x1b]0;a title without an end\nbetween\nloss:\t1\n\x07 rings\n")
    search = LogSearch(path, needle)
    search.run()
    assert len(search.places) == 1


def test_the_matches_of_several_logs_follow_each_other(tmp_path: Path) -> None:
    texts = {"worker 0": "a\nx\nx\n", "worker 1": "a\n", "worker 2": "x\na\nx\n"}
    paths = {log: tmp_path / log for log in [*texts, "worker 3"]}
    for log, text in texts.items():
        paths[log].write_text(text)
    searches = LogSearches(paths, "X")
    assert not searches.has_ended
    searches.run()
    assert searches.has_ended
    assert searches.counts == {"worker 0": 2, "worker 2": 2}
    forward = [("worker 0", 2), ("worker 0", 4), ("worker 2", 0), ("worker 2", 4)]
    for before, after in zip(forward, forward[1:] + forward[:1], strict=True):
        assert searches.beyond(*before, 1) == after
        assert searches.beyond(*after, -1) == before
    assert searches.beyond("worker 1", -1, 1) == ("worker 2", 0)
    assert searches.beyond("worker 1", 0, -1) == ("worker 0", 4)
    held = {"worker 0": 4, "worker 2": 4}
    assert searches.outside(held, 1) == ("worker 0", 2)
    assert searches.outside(held, -1) == ("worker 2", 0)
    assert searches.outside({"worker 0": 2, "worker 2": 0}, 1) is None


async def shows(pilot: Pilot[int], text: str) -> None:
    await until(pilot, lambda: text in top(pilot.app), text)


async def test_a_match_before_the_last_megabyte_is_found_and_shown(live: RunFactory) -> None:
    write(live.run.worker_log(0))
    async with opened(live.run) as pilot:
        await pilot.press("l", "right")
        await shows(pilot, "line 011999")
        await pilot.press("/", *"the needle", "enter")
        await shows(pilot, "1 match ")
        await shows(pilot, "the Needle is here")


async def test_the_app_reads_and_searches_all_of_a_log(live: RunFactory) -> None:
    write(live.run.worker_log(0))
    async with opened(live.run) as pilot:
        await pilot.press("l")
        await shows(pilot, "line 011999")
        await shows(pilot, "the ends of the logs")
        await pilot.press("right")
        await shows(pilot, "the end; ↑ reads on")
        await pilot.press("home")
        await shows(pilot, "line 000000")
        await shows(pilot, "at 0 B of 2.")
        await pilot.press("/", *"needle", "enter")
        await shows(pilot, "2 matches")
        await shows(pilot, "the Needle is here")
        await pilot.press("n")
        await shows(pilot, "another needle")
        await shows(pilot, "line 005999")
        await pilot.press("pageup", "pageup")
        await shows(pilot, "line 005930")
        for _ in range(3):
            await pilot.press("pagedown")
        await shows(pilot, "line 006030")
        await pilot.press("end")
        await shows(pilot, "line 011999")
        await shows(pilot, "following")


async def test_a_search_of_all_logs_reads_all_of_them(live: RunFactory) -> None:
    write(live.run.worker_log(0))
    write(live.run.worker_log(1))
    async with opened(live.run, size=(80, 24)) as pilot:
        await pilot.press("l")
        await shows(pilot, "the ends of the logs")
        await pilot.press("/", *"needle", "enter")
        await shows(pilot, "4 matches: worker 0 2, worker 1 2; n shows one")
        await pilot.press("n")
        await shows(pilot, "the Needle is here")
        assert shown_log(pilot) == "worker 0"
        await pilot.press("n")
        await shows(pilot, "another needle")
        await pilot.press("n")
        await shows(pilot, "the Needle is here")
        assert shown_log(pilot) == "worker 1"
        await pilot.press("N")
        await shows(pilot, "another needle")
        assert shown_log(pilot) == "worker 0"
        await shows(pilot, "2 of 4 matches")


async def test_matches_before_the_ends_of_all_logs_follow_those_in_the_ends(
    live: RunFactory,
) -> None:
    write(live.run.worker_log(0))
    with live.run.worker_log(0).open("a") as file:
        file.write("a needle at the end\n")
    async with opened(live.run) as pilot:
        await pilot.press("l", "/", *"needle", "enter")
        await shows(pilot, "a needle at the end")
        await shows(pilot, "3 matches: worker 0 3 ")
        await pilot.press("N")
        await shows(pilot, "another needle")
        assert shown_log(pilot) == "worker 0"


async def test_a_search_of_all_logs_tells_its_progress(
    live: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(live.run.worker_log(0))
    write(live.run.worker_log(1))
    may_go_on = threading.Event()
    run = LogSearches.run

    def run_in_two_parts(searches: LogSearches) -> None:
        for search in searches.by_log.values():
            search.measure()
        searches.by_log["worker 0"].run()
        may_go_on.wait(LEAST_SECONDS)
        run(searches)

    async with opened(live.run) as pilot:
        await pilot.press("l")
        await shows(pilot, "the ends of the logs")
        monkeypatch.setattr(LogSearches, "run", run_in_two_parts)
        await pilot.press("/", *"needle", "enter")
        await shows(pilot, "2 matches: worker 0 2, 50% searched")
        may_go_on.set()
        await shows(pilot, "4 matches: worker 0 2, worker 1 2;")


def shown_log(pilot: Pilot[int]) -> str:
    return pilot.app.screen.query_one(LogView).shown_log


async def test_scrolling_beyond_the_last_megabyte_reads_on(live: RunFactory) -> None:
    write(live.run.worker_log(0))
    async with opened(live.run) as pilot:
        await pilot.press("l", "right")
        await shows(pilot, "the end; ↑ reads on")
        view = pilot.app.screen.query_one(LogView)
        first = view.rows[0].text[: len("line 000000")]
        # Not beyond, which would read on.
        view.scroll_rows(view.visible_rows() - view.row_count())
        await until(pilot, lambda: first in top(pilot.app), "the first row that is held")
        await pilot.press("up", "up")
        before = f"line {int(first.split()[1]) - 2:06d}"
        await shows(pilot, before)
        await shows(pilot, first)


async def test_keys_pressed_while_a_page_is_read_scroll_it_further(
    live: RunFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(live.run.worker_log(0))
    may_read = threading.Event()

    def read_later(log: Path, place: int) -> LogPage:
        may_read.wait(LEAST_SECONDS)
        return read_around(log, place)

    monkeypatch.setattr("tfckpt_tui.app.screens.logs.read_around", read_later)
    async with opened(live.run) as pilot:
        await pilot.press("l", "right")
        await shows(pilot, "the end; ↑ reads on")
        view = pilot.app.screen.query_one(LogView)
        first = int(view.rows[0].text.split()[1])
        view.scroll_rows(view.visible_rows() - view.row_count())
        await pilot.press("up", "up", "up")
        may_read.set()
        await shows(pilot, f"line {first - 3:06d}")
        assert f"line {first - 4:06d}" not in top(pilot.app)


async def test_a_page_that_is_no_longer_wanted_is_not_shown(live: RunFactory) -> None:
    log = live.run.worker_log(0)
    write(log)
    async with opened(live.run) as pilot:
        await pilot.press("l", "right")
        await shows(pilot, "the end; ↑ reads on")
        view = pilot.app.screen.query_one(LogView)
        view.show_page(Wanted(view._log, 0, 0), read_around(log, 0))
        assert view.is_following
        await shows(pilot, f"line {LINES - 1:06d}")


async def test_long_lines_are_wrapped_or_scrolled_sideways(live: RunFactory) -> None:
    live.run.worker_log(0).write_text("start " + "x" * 150 + " the end of the line\n")
    live.worker(0, updated_at=time.time())
    async with opened(live.run) as pilot:
        await pilot.press("l", "right")
        await shows(pilot, "start xxx")
        assert "end of the line" not in top(pilot.app)
        await pilot.press("w")
        await shows(pilot, "end of the line")
        await pilot.press("w", ">", ">", ">", ">", ">")
        await shows(pilot, "end of the line")
        assert "start xxx" not in top(pilot.app)
        await pilot.press("<", "<", "<", "<", "<")
        await shows(pilot, "start xxx")


async def test_lines_that_arrive_while_the_app_quits_are_dropped(live: RunFactory) -> None:
    live.run.worker_log(0).write_text("a line\n")
    async with opened(live.run) as pilot:
        await pilot.press("l")
        await shows(pilot, "a line")
        screen = pilot.app.screen
        assert isinstance(screen, LogsScreen)
        # As an app that quits does, before it takes the screen off the stack.
        pilot.app._running = False
        await screen.remove_children()
        screen._show_lines({})
        screen._show_page(Wanted(ALL, 0, 0), read_around(live.run.worker_log(0), 0))


def test_a_search_finds_only_lines_of_a_level(tmp_path: Path) -> None:
    path = tmp_path / "worker-0.log"
    filler, trace = (f"{text} {'.' * 900}\n" * (FIRST_BYTES // 450) for text in ("0", "  at"))
    path.write_text(
        f"needle\nERROR: needle\n  needle of the error\nWARNING: needle\n\n  needle\n{filler}"
        f"ERROR: unknown\n{trace}  needle, still of the error\n"
    )
    counts = []
    for least in Level:
        search = LogSearch(path, "needle", least)
        search.run()
        counts.append(len(search.places))
    assert counts == [6, 4, 3]


async def test_the_level_counts_for_the_search_of_a_whole_log(live: RunFactory) -> None:
    path = live.run.worker_log(0)
    path.parent.mkdir(exist_ok=True)
    filler = f"INFO step {'.' * 900}\n" * (FIRST_BYTES // 500)
    path.write_text(f"ERROR: needle\nneedle\nWARNING: needle\n{filler}needle\n")
    async with opened(live.run) as pilot:
        await pilot.press("l", "right", "slash", *"needle", "enter")
        await shows(pilot, "4 matches")
        await pilot.press("e")
        await shows(pilot, "2 matches")
        await pilot.press("n")
        await shows(pilot, "ERROR: needle")
        await pilot.press("e")
        await shows(pilot, "1 match ")
        await pilot.press("e")
        await shows(pilot, "4 matches")
