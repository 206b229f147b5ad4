"""Reads the files of Keras's `CSVLogger`, without TensorFlow.

The first line names the columns: `epoch`, then the metrics. Each other line is of an epoch, without
its time (`keras/src/callbacks/csv_logger.py`).
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tfckpt_trainer.errors import DamagedFileError
from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.storage.files import open_plain
from tfckpt_trainer.rundir.storage.tail import Tail

SUFFIXES = (".csv", ".log")
"""How the names of such files end, as in the documentation of Keras."""

MOST_BYTES = 1 << 24
"""A larger file is not taken for one of a `CSVLogger`."""

_MOST_COLUMNS_BYTES = 1 << 16
_MOST_DIGITS = 15
_EPOCH = "epoch"
_SEPARATORS = ",;\t|"


def is_csv_log(path: Path) -> bool:
    """Whether a file begins as those of a `CSVLogger` do."""
    with suppress(OSError, DamagedFileError), open_plain(path) as file:
        is_small = os.fstat(file.fileno()).st_size <= MOST_BYTES
        return is_small and bool(_separator_of(_text(file.readline(_MOST_COLUMNS_BYTES))))
    return False


class CsvLogTail(Tail[SeriesPoint]):
    """Reads the new lines of a file, as points of branch 0 whose steps are epochs.

    Lines that are read at once have the time of the last change of the file.
    """

    def __init__(self, path: Path, prefix: str) -> None:
        """Creates a reader.

        Args:
            path: The file.
            prefix: What the names of its metrics begin with.
        """
        super().__init__(path, SeriesPoint, first=MOST_BYTES, most=MOST_BYTES)
        self._prefix = prefix
        self._separator = ""
        self._names: Sequence[str] = ()

    def _parse(self, data: bytes) -> tuple[list[SeriesPoint], int]:
        used = data.rfind(b"\n") + 1
        lines = _text(data[:used]).splitlines()
        if self._offset == 0 and lines:
            self._separator = _separator_of(lines[0])
            columns = lines.pop(0).split(self._separator or None)[1:]
            # In event files, Keras names the metrics of an epoch so.
            self._names = [f"{self._prefix}{_EPOCH}_{column}" for column in columns]
        points: list[SeriesPoint] = []
        with suppress(OSError, csv.Error):
            at = self._path.lstat().st_mtime
            for row in csv.reader(lines, delimiter=self._separator or ","):
                if len(row) == 1 + len(self._names) and _is_epoch(row[0]):
                    metrics = _numbers(self._names, row[1:])
                    points.append(SeriesPoint(at=at, step=int(row[0]), branch=0, metrics=metrics))
        return points, used


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _separator_of(line: str) -> str:
    """Returns what separates the columns that a line names; empty if it names none."""
    separator = line[len(_EPOCH) : len(_EPOCH) + 1]
    return separator if line.startswith(_EPOCH) and separator in _SEPARATORS else ""


def _is_epoch(text: str) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS


def _numbers(names: Iterable[str], texts: Iterable[str]) -> dict[str, float | None]:
    """Returns the numbers of a line by name; None stands for NaN. `NA` is no number."""
    found: dict[str, float | None] = {}
    for name, text in zip(names, texts, strict=True):
        with suppress(ValueError):
            number = float(text)
            found[name] = None if math.isnan(number) else number
    return found
