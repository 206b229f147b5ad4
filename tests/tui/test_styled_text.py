from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_tui.app.widgets.base.styled_text import ELLIPSIS, StyledLine, fit, line

SPANS = st.lists(st.tuples(st.text("ab 終", max_size=6), st.just("value")), max_size=5)


@pytest.mark.parametrize(
    ("texts", "width", "shown"),
    [
        (("12", "34"), 4, "1234"),
        (("12", "34"), 3, "12…"),
        (("12", "34"), 2, "1…"),
        (("12", "  "), 2, "12"),
        (("12", "  ", "3"), 4, "12 …"),
        (("終", "a"), 2, " …"),
        (("12",), 0, ""),
    ],
)
def test_a_cut_between_two_texts_is_shown_too(
    texts: tuple[str, ...], width: int, shown: str
) -> None:
    assert StyledLine(fit([(text, "value") for text in texts], width)).text == shown


@given(SPANS, st.integers(1, 20))
def test_a_cut_line_ends_in_an_ellipsis(spans: list[tuple[str, str]], width: int) -> None:
    whole = line(*spans)
    shown = whole.fitted(width)
    cut = not shown.text.startswith(whole.text.rstrip(" "))
    assert shown.width == width
    assert cut == shown.text.endswith(ELLIPSIS)
