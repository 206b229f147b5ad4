from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcwidth

from tfckpt_tui.formats.text import (
    LONGEST,
    UNSAFE,
    as_seen,
    cell_width,
    clean,
    clean_lines,
    cut,
    pad,
    strategy_words,
)

ANY_TEXT = st.text(st.characters(categories=None))


@given(ANY_TEXT)
def test_cleaned_text_has_no_terminal_controls(text: str) -> None:
    for character in clean(text):
        assert unicodedata.category(character) not in {"Cc", "Cs", "Zl", "Zp"}
        assert character not in "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


REORDERING = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def test_no_character_that_controls_or_reorders_is_left() -> None:
    hostile = [
        character
        for character in map(chr, range(0x10000))
        if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
        or unicodedata.bidirectional(character) in REORDERING
    ]
    assert len(hostile) > 2000
    assert [character for character in hostile if clean(character) == character] == []


@given(ANY_TEXT)
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=LONGEST))
def test_plain_text_is_unchanged(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize("text", ["Größe", "损失", "👩‍🔬", "e\u0301", "naïve ‘loss’ → 2"])
def test_text_in_any_language_is_unchanged(text: str) -> None:
    assert clean(text) == text


def test_names_that_differ_in_a_control_character_still_look_different() -> None:
    assert len({clean(f"ckpt-{c}1") for c in ["", "\x1b", "\x07", "\x00", "\x7f"]}) == 5
    assert clean("a\x1b]0;b") == "a␛]0;b"


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("\x1b[1m10/10\x1b[0m done", "10/10 done"),
        ("\x1b[38;5;9mbad\x1b(B\x1b[m\x1b]0;title\x07\x1b7", "bad"),
        ("loading\r 10%\r\x1b[K100%\r", "100%"),
        ("\x1b[1\x1b[0mm\x1b]0;no end", "␛[1m␛]0;no end"),
        ("\x1b", "␛"),
        ("a\tb", "a   b"),
    ],
)
def test_a_line_of_output_is_as_a_terminal_leaves_it(line: str, seen: str) -> None:
    assert as_seen(line) == seen


@given(st.text(st.sampled_from("\x1b[]()m0;K\\\x07\rA \x9b"), max_size=12))
def test_no_line_of_output_controls_the_terminal(line: str) -> None:
    assert not re.search(UNSAFE, as_seen(line))


def test_long_text_is_cut() -> None:
    assert len(clean("x" * 10_000_000)) == LONGEST


def test_stacked_marks_are_cut() -> None:
    assert len(clean("a" + "\u0301" * 500)) <= 4


def test_lines_have_no_tabs_and_no_line_ends() -> None:
    lines = clean_lines("a\tb\r\nc\x0bd\u2028e")
    assert lines == ["a   b", "c", "d", "e"]
    assert not any(re.search(UNSAFE, line) for line in lines)


@given(ANY_TEXT, st.integers(0, 30))
def test_a_text_is_cut_to_cells_and_padded_to_cells(text: str, width: int) -> None:
    # A combining mark without a letter before it takes the cell of whatever it follows.
    safe = clean(f"a{text}")
    kept = cut(safe, width)
    assert cell_width(kept) <= width
    assert safe.startswith(kept)
    assert cell_width(pad(kept, width)) == cell_width(pad(kept, width, ">")) == width


def test_a_cut_keeps_all_that_fits() -> None:
    assert cut("損失 1", 5) == "損失 "
    assert cut("損失", 3) == "損"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("_DefaultDistributionStrategy", "one device (default)"),
        ("_DefaultDistributionStrategyV1", "one device (default)"),
        ("MirroredStrategyV1", "MirroredStrategy"),
        ("MultiWorkerMirroredStrategy", "MultiWorkerMirroredStrategy"),
        ("Own\x1b", "Own␛"),
    ],
)
def test_a_strategy_is_shown_by_a_name_that_users_know(name: str, words: str) -> None:
    assert strategy_words(name) == words


def test_characters_of_one_cell_are_those_that_wcwidth_says() -> None:
    for character in map(chr, range(0x20, 0x2300)):
        if unicodedata.category(character) not in {"Cc", "Cf"}:
            assert cell_width(character) == max(0, wcwidth(character)), hex(ord(character))
