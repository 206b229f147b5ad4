"""Positions of the panes of the dashboard, by terminal size."""

from __future__ import annotations

from itertools import pairwise

from textual.geometry import Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

SMALLEST = Size(60, 16)
"""Smallest usable terminal. The panes are designed for 80×24 and more."""

SHORT = 30
"""With fewer lines, panes have a rule above them instead of a box around them."""

WIDE = 200
"""With this many columns, panes are in two columns."""

LEFT = 120
"""Least width of the left column: the lists in it show what they show on a screen of it."""

_CARD_SHARE = 0.6
"""Part of a screen that the failure card takes beside the first chart."""

_CARD_BESIDE = 120
"""Least width of a screen with the first chart beside the failure card."""

_LEAST_CARD = 4

_LEAST_CHART = Size(30, 7)
"""Smallest chart on the dashboard."""

_FIRST_CHART = 38
"""Percent of the height of the right column that the first chart has beside one other."""

_FURTHER_CHART = 30

_KEYS_HEIGHT = 1
_LEAST_HISTORY = 6
_LEAST_BESIDE_PROGRESS = 4
"""Least height of the history while progress takes lines of it: other panes do not come and go."""


def chart_id(place: int) -> str:
    """Returns the id of a chart by its place among the charts of the dashboard."""
    return f"chart-{place}"


def is_too_small(size: Size) -> bool:
    """Whether a terminal has no room for the panes."""
    return size.width < SMALLEST.width or size.height < SMALLEST.height


def is_short(size: Size) -> bool:
    """Whether the terminal has few lines."""
    return size.height < SHORT


def most_progress_lines(height: int) -> int:
    """Returns how many of the lines of a terminal show progress at most."""
    return max(0, height // 4)


def failure_width(size: Size) -> int:
    """Returns the width of the failure card on a terminal."""
    if size.width >= WIDE and not is_short(size):
        return size.width - _left_width(size.width)
    return size.width if size.width < _CARD_BESIDE else int(size.width * _CARD_SHARE)


def arrange(
    size: Size,
    workers: int,
    progress: int,
    *,
    files_only: bool = False,
    filtering: bool = False,
    checkpoints: int = 1_000_000,
    failure: int = 0,
    charts: int = 2,
) -> dict[str, Region]:
    """Returns the region of each visible pane, by its id; that of a chart is `chart_id`.

    Args:
        size: Size of the terminal.
        workers: Number of workers.
        progress: Lines needed to show commands in progress.
        files_only: Whether there are only checkpoints and charts to show, because this library was
            never used in the directory.
        filtering: Whether the filter line is open.
        checkpoints: Number of checkpoints; workers get the room that these do not need.
        failure: Lines of the failure card; 0 if there is none. It replaces charts.
        charts: Number of charts; those for which there is no room are left out. There is at least
            one, unless there are only files.
    """
    width, height = size
    if is_too_small(size):
        return {"too-small": Region(0, 0, width, height)}
    header = 2 if is_short(size) else 3
    progress = min(progress, most_progress_lines(height))
    foot = height - _KEYS_HEIGHT
    places = {
        "header": Region(0, 0, width, header),
        "keys": Region(0, foot, width, _KEYS_HEIGHT),
    }
    if progress:
        foot -= progress
        places["progress"] = Region(0, foot, width, progress)
    body = Region(0, header, width, foot - header)
    if files_only:
        places |= _files(size, body, charts)
    elif width >= WIDE and not is_short(size):
        # Without the lines of progress: charts do not come and go.
        charts = min(charts, _most_stacked(height - header - _KEYS_HEIGHT))
        places |= _two_columns(body, workers, failure, charts)
    elif failure:
        places |= _with_card(size, body, workers, checkpoints, failure)
    else:
        places |= _one_column(body, workers, checkpoints, progress, charts, short=is_short(size))
    if filtering:
        places["history"], places["filter"] = places["history"].split_horizontal(-1)
    return places


def _files(size: Size, body: Region, charts: int) -> dict[str, Region]:
    """Places checkpoints, and charts of event files beside or below them."""
    if not charts:
        return {"history": body}
    if size.width >= WIDE and not is_short(size):
        left, column = body.split_vertical(_left_width(size.width))
        places = _stacked(column, min(charts, _most_stacked(body.height)))
        lowest, region = places.popitem()
        return {
            "history": left,
            **places,
            lowest: region.grow((0, 0, column.bottom - region.bottom, 0)),
        }
    below = _charts_height(body.height, short=is_short(size))
    if body.height - below < _LEAST_HISTORY:
        return {"history": body}
    history, row = body.split_horizontal(-below)
    return {"history": history, **_side_by_side(row, min(charts, size.width // _LEAST_CHART.width))}


def _charts_height(height: int, *, short: bool) -> int:
    """Returns the lines of charts beside each other."""
    return 7 if short else max(9, min(15, height * 3 // 10))


def _one_column(
    body: Region, workers: int, checkpoints: int, progress: int, charts: int, *, short: bool
) -> dict[str, Region]:
    x, y, width, height = body
    edges = 1 if short else 2
    rows = max(1, min(workers, 4 if short else 8))
    workers_height = edges + (1 if workers else 0) + rows
    events_height = edges + (2 if short else max(3, min(8, height // 7)))
    charts_height = _charts_height(height, short=short)
    left = height - workers_height - events_height - charts_height
    if _is_too_low(left, progress):
        left += charts_height
        charts_height = 0
    if _is_too_low(left, progress):
        left += events_height
        events_height = 0
    spare = left - max(_LEAST_HISTORY, edges + 1 + checkpoints)
    more = max(0, min(spare, workers - rows))
    workers_height, left = workers_height + more, left - more
    places = {"workers": Region(x, y, width, workers_height)}
    y += workers_height
    if charts_height:
        row = Region(x, y, width, charts_height)
        places |= _side_by_side(row, min(charts, width // _LEAST_CHART.width))
        y += charts_height
    places["history"] = Region(x, y, width, left)
    y += left
    if events_height:
        places["events"] = Region(x, y, width, events_height)
    return places


def _side_by_side(row: Region, charts: int) -> dict[str, Region]:
    """Returns the places of charts beside each other."""
    x, y, width, height = row
    edges = [x + width * place // charts for place in range(charts + 1)]
    return {
        chart_id(place): Region(left, y, right - left, height)
        for place, (left, right) in enumerate(pairwise(edges))
    }


def _stacked(column: Region, charts: int) -> dict[str, Region]:
    """Returns the places of charts below each other; the first one is the highest."""
    x, y, width, height = column
    shares = [_FIRST_CHART, *[_FURTHER_CHART] * (charts - 1)]
    places = {}
    for place, share in enumerate(shares):
        own = height * share // sum(shares)
        places[chart_id(place)] = Region(x, y, width, own)
        y += own
    return places


def _most_stacked(height: int) -> int:
    """Returns how many charts have room below each other, one at least."""
    room = height * (_FIRST_CHART + _FURTHER_CHART) // 100 / _LEAST_CHART.height
    return max(1, 1 + int(room - _FIRST_CHART / _FURTHER_CHART))


def _is_too_low(history: int, progress: int) -> bool:
    return history + progress < _LEAST_HISTORY or history < _LEAST_BESIDE_PROGRESS


def _with_card(
    size: Size, body: Region, workers: int, checkpoints: int, failure: int
) -> dict[str, Region]:
    """Returns the places in one column, with the failure card instead of charts."""
    x, y, width, height = body
    edges = 1 if is_short(size) else 2
    rows = max(1, min(workers, 4 if edges == 1 else 8))
    workers_height = edges + (1 if workers else 0) + rows
    events_height = edges + (2 if edges == 1 else max(3, min(8, height // 7)))
    room = height - _LEAST_HISTORY
    if room - workers_height < _LEAST_CARD:
        # The card says how the workers ended.
        workers_height = 0
    card = min(edges + failure, room - workers_height)
    if room - workers_height - card < events_height:
        events_height = 0
    history = height - workers_height - card - events_height
    if workers_height:
        spare = history - max(_LEAST_HISTORY, edges + 1 + checkpoints)
        more = max(0, min(spare, workers - rows))
        workers_height, history = workers_height + more, history - more
    own = failure_width(size)
    places = {"failure": Region(x, y + workers_height, own, card)}
    if workers_height:
        places["workers"] = Region(x, y, width, workers_height)
    if own < width:
        places[chart_id(0)] = Region(x + own, y + workers_height, width - own, card)
    places["history"] = Region(x, y + workers_height + card, width, history)
    if events_height:
        places["events"] = Region(x, y + height - events_height, width, events_height)
    return places


def _left_width(width: int) -> int:
    return max(LEFT, width * 56 // 100)


def _two_columns(body: Region, workers: int, failure: int, charts: int) -> dict[str, Region]:
    x, y, width, height = body
    left = _left_width(width)
    right = width - left
    workers_height = 2 + (1 if workers else 0) + max(1, min(workers, height // 3))
    card = min(failure + 2, height // 2) if failure else 0
    if failure:
        upper = {chart_id(0): Region(x + left, y, right, height * _FURTHER_CHART // 100)}
    else:
        column = Region(x + left, y, right, height * (_FIRST_CHART + _FURTHER_CHART) // 100)
        upper = _stacked(column, charts)
    events = max(chart.bottom for chart in upper.values()) + card
    places = {
        **upper,
        "workers": Region(x, y, left, workers_height),
        "history": Region(x, y + workers_height, left, height - workers_height),
        "events": Region(x + left, events, right, y + height - events),
    }
    if failure:
        places["failure"] = Region(x + left, events - card, right, card)
    return places


class DashboardLayout(Layout):
    """Places the panes with `arrange`; panes without a region are hidden."""

    name = "dashboard"

    def __init__(self, charts: int) -> None:
        self.workers = 0
        self.checkpoints = 0
        self.progress = 0
        self.failure = 0
        self.charts = charts
        self.metrics = 0
        self.files_only = False
        self.filtering = False

    def places(self, size: Size) -> dict[str, Region]:
        """Returns the region of each visible pane, by its id."""
        return arrange(
            size,
            self.workers,
            self.progress,
            files_only=self.files_only,
            filtering=self.filtering,
            checkpoints=self.checkpoints,
            failure=self.failure,
            charts=min(self.charts, self.metrics) if self.files_only else self.charts,
        )

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        """Returns the placement of each visible child."""
        del parent, greedy
        places = self.places(size)
        return [
            WidgetPlacement(places[child.id], Region().offset, child.styles.margin, child)
            for child in children
            if child.id is not None and child.id in places
        ]
