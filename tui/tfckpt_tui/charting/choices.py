"""How a user looked at the charts of a run, as it is kept until the next time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from tfckpt_tui.charting.grid import SIZES, GridSize
from tfckpt_tui.charting.series import WEIGHTS
from tfckpt_tui.charting.view import View


class Compared(msgspec.Struct, frozen=True):
    """What the charts are compared with; nothing if both are None.

    Attributes:
        directory: The directory of another run.
        branch: Another branch of the run.
    """

    directory: str | None = None
    branch: int | None = None


class ChartChoices(msgspec.Struct, frozen=True):
    """How a user looks at the charts of a run.

    Attributes:
        view: The view.
        grid_size: The grid; None for as many charts as there is room for.
        pattern: The filter of the charts.
        joined: Names of measurements that share a chart.
        chosen: The first measurement of the chosen chart; empty for the main metric.
        compared: What is drawn under the curves.
    """

    view: View = View()
    grid_size: GridSize | None = None
    pattern: str = ""
    joined: tuple[tuple[str, ...], ...] = ()
    chosen: str = ""
    compared: Compared = Compared()

    def to_keep(self) -> dict[str, Any]:
        """Returns them as values of JSON, without what belongs to one moment of the run."""
        kept: dict[str, Any] = msgspec.to_builtins(replace(self, view=self.view.lasting()))
        return kept


def kept_choices(kept: Mapping[str, Any]) -> ChartChoices:
    """Returns choices that were kept; what is invalid in them is as if never chosen.

    Args:
        kept: What `to_keep` returned, as it was read from disk.
    """
    try:
        choices = msgspec.convert(kept, ChartChoices)
    except msgspec.ValidationError:
        return ChartChoices()
    view = choices.view.lasting()
    if view.smoothing not in WEIGHTS:
        view = replace(view, smoothing=0.0)
    size = choices.grid_size if choices.grid_size in SIZES else None
    return replace(choices, view=view, grid_size=size)
