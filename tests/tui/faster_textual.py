"""Spares tests of the app what Textual computes and nobody looks at."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from textual import _callback, _wait
from textual._compositor import Compositor
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

_render_update = Compositor.render_update
_reflow = Compositor.reflow
_reflow_visible = Compositor.reflow_visible
_set_dirty = Widget._set_dirty
_parse_rules = Stylesheet._parse_rules
_replace_rules = Stylesheet.replace_rules
_count_parameters = _callback._count_parameters
_parsed: dict[tuple[Any, ...], list[RuleSet]] = {}
_counted: dict[CodeType, int] = {}
_changes = count(1)
_change = 0
_texts: WeakKeyDictionary[Screen[Any], tuple[int, str]] = WeakKeyDictionary()


def _without_frames(compositor: Compositor, full: bool = False, **options: Any) -> Any:
    """Draws no frame: without a terminal, Textual discards it. Tests draw those they look at.

    A picture of the screen is a full one.
    """
    if full:
        return _render_update(compositor, full, **options)
    compositor._dirty_regions.clear()
    _note()
    return None


def _note() -> None:
    """Notes that something on some screen may look different."""
    global _change
    _change = next(_changes)


def _noted(function: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*arguments: Any, **options: Any) -> Any:
        _note()
        return function(*arguments, **options)

    return noted


def text_of(screen: Screen[Any]) -> str:
    """Returns the text of a screen, which is drawn only if something changed: many tests wait."""
    change, text = _texts.get(screen, (-1, ""))
    if change != _change:
        change = _change
        text = "\n".join(strip.text for strip in screen._compositor.render_strips())
        _texts[screen] = change, text
    return text


def _parsed_once(
    stylesheet: Stylesheet, css: str, read_from: tuple[str, str], **options: Any
) -> list[RuleSet]:
    """Parses the style rules once for each theme, and not three times in each app."""
    key = (*stylesheet._variables.items(), css, read_from, *options.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(stylesheet, css, read_from, **options)
    return _parsed[key]


def _replaced_by_others(node: DOMNode, rules: Any, animate: bool = False) -> None:
    """Sets the style of a widget, unless it has it: a screen that comes back looks as before."""
    if node.styles.base._rules != rules:
        _replace_rules(node, rules, animate=animate)
    elif not animate:
        node.notify_style_update()


def _counted_once(function: Callable[..., Any]) -> int:
    """Counts the parameters of a lambda once, and not each time it is made."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return _count_parameters(function)
    if code not in _counted:
        _counted[code] = _count_parameters(function)
    return _counted[code]


_PATCHES: tuple[tuple[Any, str, Any], ...] = (
    (Compositor, "render_update", _without_frames),
    (Compositor, "reflow", _noted(_reflow)),
    (Compositor, "reflow_visible", _noted(_reflow_visible)),
    (Widget, "_set_dirty", _noted(_set_dirty)),
    (Stylesheet, "_parse_rules", _parsed_once),
    (Stylesheet, "replace_rules", staticmethod(_replaced_by_others)),
    # The same, in C: each style of a widget is looked for among hundreds of rules.
    (RuleSet, "__hash__", object.__hash__),
    (_callback, "_count_parameters", _counted_once),
    # After each key, Textual looks in such steps whether the process is idle.
    (_wait, "SLEEP_GRANULARITY", 0.002),
)
_USUAL = [(owner, name, vars(owner)[name]) for owner, name, _ in _PATCHES]


def make_textual_faster(patch: pytest.MonkeyPatch) -> None:
    """Takes away half of the time that a test of the app takes."""
    for owner, name, value in _PATCHES:
        patch.setattr(owner, name, value)


def make_textual_usual() -> None:
    """Has Textual draw frames again, in a process whose terminal shows them."""
    for owner, name, value in _USUAL:
        setattr(owner, name, value)
