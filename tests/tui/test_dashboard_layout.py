"""Where the panes of the dashboard are, on terminals of all sizes."""

from __future__ import annotations

from itertools import starmap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.geometry import Size

from tfckpt_tui.app.widgets.base.dashboard_layout import arrange
from tfckpt_tui.settings.config import MOST_CHARTS

SIZES = st.builds(Size, st.integers(60, 260), st.integers(16, 80))
COUNTS = st.integers(0, 300)


@given(
    SIZES,
    COUNTS,
    st.integers(0, 30),
    st.booleans(),
    st.booleans(),
    COUNTS,
    st.integers(0, 40),
    st.integers(1, MOST_CHARTS),
)
def test_panes_cover_the_screen_and_do_not_overlap(
    size, workers, progress, files_only, filtering, checkpoints, failure, charts
):
    places = arrange(
        size,
        workers,
        progress,
        files_only=files_only,
        filtering=filtering,
        checkpoints=checkpoints,
        failure=failure,
        charts=charts,
    )
    assert all(region.area > 0 for region in places.values())
    cells = [cell for region in places.values() for cell in cells_of(region)]
    assert len(cells) == len(set(cells)) == size.area


def cells_of(region):
    return [(x, y) for x in region.column_range for y in region.line_range]


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize("charts", [2, 3, 4])
@pytest.mark.parametrize(
    "size", starmap(Size, [(80, 24), (120, 40), (100, 30), (200, 30), (200, 35), (200, 46)])
)
def test_what_a_command_says_hides_no_pane(size, workers, charts):
    """It came in two lines, and charts went and came back."""
    without = arrange(size, workers, 0, charts=charts).keys()
    for lines in (1, 2):
        shown = arrange(size, workers, lines, charts=charts).keys()
        assert shown == without | {"progress"}


@pytest.mark.parametrize(
    ("size", "shown"),
    [(Size(60, 40), 2), (Size(80, 40), 2), (Size(120, 40), 4), (Size(200, 50), 4)],
)
def test_as_many_charts_as_have_room(size, shown):
    places = arrange(size, 2, 0, charts=4)
    assert sum(name.startswith("chart-") for name in places) == shown
