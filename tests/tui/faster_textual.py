"""Spares tests of the app what Textual computes and nobody looks at."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import pytest
from textual import _callback, _wait
from textual._compositor import Compositor
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

_render_update = Compositor.render_update
_parse_rules = Stylesheet._parse_rules
_count_parameters = _callback._count_parameters
_parsed: dict[tuple[Any, ...], list[RuleSet]] = {}
_counted: dict[CodeType, int] = {}


def make_textual_faster(patch: pytest.MonkeyPatch) -> None:
    """Takes away half of the time that a test of the app takes."""
    patch.setattr(Compositor, "render_update", _without_frames)
    patch.setattr(Stylesheet, "_parse_rules", _parsed_once)
    patch.setattr(_callback, "_count_parameters", _counted_once)
    # After each key, Textual looks in such steps whether the process is idle.
    patch.setattr(_wait, "SLEEP_GRANULARITY", 0.002)


def _without_frames(compositor: Compositor, full: bool = False, **options: Any) -> Any:
    """Draws no frame: without a terminal, Textual discards it. Tests draw those they look at.

    A picture of the screen is a full one.
    """
    if full:
        return _render_update(compositor, full, **options)
    compositor._dirty_regions.clear()
    return None


def _parsed_once(
    stylesheet: Stylesheet, css: str, read_from: tuple[str, str], **options: Any
) -> list[RuleSet]:
    """Parses the style rules once for each theme, and not three times in each app."""
    key = (*stylesheet._variables.items(), css, read_from, *options.items())
    if key not in _parsed:
        _parsed[key] = _parse_rules(stylesheet, css, read_from, **options)
    return _parsed[key]


def _counted_once(function: Callable[..., Any]) -> int:
    """Counts the parameters of a lambda once, and not each time it is made."""
    code = getattr(function, "__code__", None)
    if code is None or hasattr(function, "__wrapped__"):
        return _count_parameters(function)
    if code not in _counted:
        _counted[code] = _count_parameters(function)
    return _counted[code]
