"""A number and its noun agree, also if there is one of it."""

from __future__ import annotations

import re
from pathlib import Path

import tfckpt_trainer
import tfckpt_tui
from tfckpt_trainer.words.counts import all_are, all_of, count, few_of, first_lines, join_names

OWN_PLURAL = re.compile(r"""["']s["']\s+if\b|\belse\s+["']s["']|["']1 \w+["'] if\b""")
"""A plural that is formed where a message is written, instead of by `count`."""

SOURCES = [
    path
    for package in (tfckpt_trainer, tfckpt_tui)
    for path in Path(*package.__path__).rglob("*.py")
]


def test_one_has_no_plural() -> None:
    assert [count(number, "step") for number in (0, 1, 2, 1_000)] == [
        "0 steps",
        "1 step",
        "2 steps",
        "1,000 steps",
    ]
    assert (all_of(1, "worker"), all_of(2, "worker")) == ("The only worker", "All 2 workers")
    assert all_are(1, "restart") == "The only restart is"
    assert all_are(3, "restart") == "All 3 restarts are"


def test_of_many_names_the_first_ones_and_their_number_are_told() -> None:
    names = [f"ckpt-{step}" for step in range(2_010)]
    assert few_of(names[:3], 3) == "ckpt-0, ckpt-1, ckpt-2"
    assert few_of(names[:4], 3, separator="; ") == "ckpt-0; ckpt-1; ckpt-2 and 1 more"
    assert few_of(names).endswith("ckpt-9 and 2,000 more")
    assert few_of(names[:2], 3, total=5) == "ckpt-0, ckpt-1 and 3 more"
    assert few_of([]) == ""
    assert first_lines(names[:3], 3) == names[:3]
    assert first_lines(names, 3) == [*names[:3], "and 2,007 more"]
    assert [join_names(names[:number]) for number in (0, 1, 2, 3, 5)] == [
        "",
        "ckpt-0",
        "ckpt-0 and ckpt-1",
        "ckpt-0, ckpt-1 and ckpt-2",
        "ckpt-0, ckpt-1, ckpt-2 and 2 more",
    ]


def test_no_message_forms_a_plural_of_its_own() -> None:
    assert SOURCES
    assert [path.name for path in SOURCES if OWN_PLURAL.search(path.read_text())] == []
