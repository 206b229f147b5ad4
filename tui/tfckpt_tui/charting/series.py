"""The recorded values of a run, kept for charts as the extremes of equal intervals.

Each measurement has its own intervals, so that one that is rarely reported keeps all its values.
Where an interval begins depends on the number of recorded values alone, and joining two keeps what
both together would have kept. So a series that grew for hours, point by point, is the same as one
that is read at once.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from itertools import chain
from struct import calcsize, iter_unpack, unpack_from

from tfckpt_trainer.rundir.records.event import SeriesPoint
from tfckpt_trainer.rundir.thinning import EPOCH, extremes
from tfckpt_tui.charting.quantities import QUANTITIES, Quantity, values_of

WEIGHTS = (0.0, 0.6, 0.9, 0.97, 0.99)
"""The weights of the moving averages that are kept with each value; 0 does not smooth."""

MOST_METRICS = 1000
"""Metrics that are kept at most; those that come later are left out."""

MOST_INTERVALS = 1024
"""Intervals of a measurement. A chart 200 cells wide has 400 columns of dots."""

_ALL_INTERVALS = 64_000
"""Intervals of all measurements together. One takes up to half a kilobyte."""

_LEAST_INTERVALS = 64

_MOST_BROKEN_STEPS = 100


Key = str | Quantity
"""The name of a metric, or another quantity."""

INDEX, AT, STEP, EPOCHS, VALUE, AVERAGE = range(6)
"""Of a sample: the number of its point in the record, time, step, epoch (NaN: not reported), value
(NaN or infinite: not finite), and the first of its moving averages."""

_FIELDS = AVERAGE + len(WEIGHTS) - 1
_FORMAT = f"{_FIELDS}d"
_SAMPLE_BYTES = calcsize(_FORMAT)

Sample = tuple[float, ...]
"""A value, with its place."""

_Place = tuple[float, float, float, float]
"""The fields of a sample before its value."""

_Recorded = tuple[list[_Place], list[float]]
"""Values of a measurement, and the place of each."""

_LAST_SHARE = 4095
"""From so many values on, each moves the averages alike."""


@cache
def _shares() -> list[tuple[float, ...]]:
    """Returns how far a value moves each average, by the number of values before it."""
    return [
        tuple((1 - weight) / (1 - weight ** (seen + 1)) for weight in WEIGHTS[1:])
        for seen in range(_LAST_SHARE + 1)
    ]


class Segment:
    """The samples of a measurement on one branch, as far as steps increase. Immutable."""

    def __init__(self, branch: int, intervals: tuple[bytes, ...]) -> None:
        """Makes a segment.

        Args:
            branch: The branch.
            intervals: The samples of each interval, as packed numbers.
        """
        self.branch = branch
        self._intervals = intervals

    @cached_property
    def _numbers(self) -> array[float]:
        numbers = array("d")
        numbers.frombytes(b"".join(self._intervals))
        return numbers

    def column(self, field: int) -> array[float]:
        """Returns one field of all samples, in the order in which they were recorded."""
        return self._numbers[field::_FIELDS]

    @property
    def first(self) -> Sample:
        """The first sample."""
        return unpack_from(_FORMAT, self._intervals[0])

    @property
    def last(self) -> Sample:
        """The newest sample."""
        newest = self._intervals[-1]
        return unpack_from(_FORMAT, newest, len(newest) - _SAMPLE_BYTES)

    @property
    def sizes(self) -> list[int]:
        """The number of samples in each interval."""
        return [len(interval) // _SAMPLE_BYTES for interval in self._intervals]

    @cached_property
    def samples(self) -> list[Sample]:
        """The samples, in the order in which they were recorded."""
        return list(iter_unpack(_FORMAT, self._numbers))

    @property
    def ends(self) -> Segment:
        """A segment of the first and the last sample."""
        return Segment(self.branch, (_packed([self.first, self.last]),))

    def until(self, step: float) -> Segment:
        """Returns the part up to a step."""
        if self.last[STEP] <= step:
            return self
        kept = (_packed([s for s in _unpacked(one) if s[STEP] <= step]) for one in self._intervals)
        return Segment(self.branch, tuple(filter(None, kept)))


class Channel:
    """All that is kept of one measurement. Immutable.

    Attributes:
        segments: In the order in which they were recorded.
        recorded: How many values were recorded.
        not_finite: How many of them are NaN or infinite.
        not_finite_steps: The first steps with such values.
    """

    def __init__(
        self,
        segments: tuple[Segment, ...] = (),
        recorded: int = 0,
        not_finite: int = 0,
        not_finite_steps: tuple[int, ...] = (),
    ) -> None:
        self.segments = segments
        self.recorded = recorded
        self.not_finite = not_finite
        self.not_finite_steps = not_finite_steps

    @property
    def is_thinned(self) -> bool:
        """Whether more values were recorded than are kept."""
        return sum(sum(segment.sizes) for segment in self.segments) < self.recorded


class Samples:
    """What is kept of a run, as it was at one moment. Immutable.

    Attributes:
        channels: By measurement.
        newest: The newest recorded point, also if it is left out here; None without points.
        points: How many points were recorded.
        left_out: How many metrics are left out, because there are too many.
    """

    def __init__(
        self,
        channels: Mapping[Key, Channel] | None = None,
        newest: SeriesPoint | None = None,
        points: int = 0,
        left_out: int = 0,
    ) -> None:
        self.channels = channels or {}
        self.newest = newest
        self.points = points
        self.left_out = left_out

    def __bool__(self) -> bool:
        """Whether anything was recorded."""
        return self.newest is not None

    @cached_property
    def metrics(self) -> list[str]:
        """The names of all metrics, in the order in which they were first reported."""
        return [key for key in self.channels if isinstance(key, str)]

    @cached_property
    def branches(self) -> list[int]:
        """All branches with values."""
        return sorted({one.branch for ch in self.channels.values() for one in ch.segments})

    @cached_property
    def began(self) -> float | None:
        """The time of the first sample; None without one."""
        firsts = [ch.segments[0].first for ch in self.channels.values() if ch.segments]
        return min(firsts)[AT] if firsts else None

    def segments(self, key: Key) -> Sequence[Segment]:
        """Returns the segments of a measurement, in the order in which they were recorded."""
        channel = self.channels.get(key)
        return channel.segments if channel is not None else ()

    def until(self, last_steps: Mapping[int, float]) -> Samples:
        """Returns the part up to a step of each branch; what has no values there is left out.

        So is what a restart trained again.
        """
        channels: dict[Key, Channel] = {}
        for key, channel in self.channels.items():
            lasts = steps_before_restarts(channel.segments)
            cut = [
                one.until(min(last, last_steps.get(one.branch, -math.inf)))
                for one, last in zip(channel.segments, lasts, strict=True)
            ]
            segments = tuple(segment for segment in cut if segment.sizes)
            if segments:
                channels[key] = Channel(segments, channel.recorded)
        return Samples(channels, self.newest, self.points, self.left_out)


def steps_before_restarts(segments: Sequence[Segment]) -> list[float]:
    """Returns, for each segment, the last step that no later one of its branch records again.

    Args:
        segments: Those of a measurement, in the order in which they were recorded.
    """
    lasts: list[float] = []
    firsts: dict[int, float] = {}
    for segment in reversed(segments):
        first = firsts.get(segment.branch, math.inf)
        lasts.append(first - 1)
        firsts[segment.branch] = min(first, segment.first[STEP])
    return lasts[::-1]


class Series:
    """Takes the points of a run as they are recorded, and keeps what charts show of them."""

    def __init__(self, points: Iterable[SeriesPoint] = (), most: int = MOST_INTERVALS) -> None:
        """Makes a series.

        Args:
            points: Its first points.
            most: The most intervals of each measurement.
        """
        self._limit = most
        self._channels: dict[Key, _Channel] = {}
        self._left_out: set[str] = set()
        self._points = 0
        self._newest: SeriesPoint | None = None
        self._samples: Samples | None = None
        self.add(points)

    @property
    def samples(self) -> Samples:
        """What is kept now; the same object until there are more points."""
        if self._samples is None:
            channels = {key: channel.kept() for key, channel in self._channels.items()}
            self._samples = Samples(channels, self._newest, self._points, len(self._left_out))
        return self._samples

    def add(self, points: Iterable[SeriesPoint]) -> None:
        """Takes the next points."""
        begun: list[SeriesPoint] = []
        for point in points:
            last = begun[-1] if begun else point
            if point.branch != last.branch or point.step < last.step:
                self._take(begun)
                begun = []
            begun.append(point)
        self._take(begun)
        if begun:
            most = self._most
            for channel in self._channels.values():
                channel.bound(most)
            self._newest, self._samples = begun[-1], None

    def _take(self, points: Sequence[SeriesPoint]) -> None:
        """Takes points of one branch whose steps increase."""
        values: dict[Key, _Recorded] = {}
        for point in points:
            # This runs for millions of values: nothing is called for most of them.
            metrics = point.metrics
            epoch = metrics.get(EPOCH)
            place = (self._points, point.at, point.step, math.nan if epoch is None else epoch)
            self._points += 1
            for name, value in metrics.items():
                found = values.get(name)
                if found is None:
                    found = values[name] = [], []
                found[0].append(place)
                found[1].append(math.nan if value is None else value)
            for quantity, value in zip(QUANTITIES, values_of(point), strict=True):
                if value is not None:
                    found = values.setdefault(quantity, ([], []))
                    found[0].append(place)
                    found[1].append(value)
        for key, recorded in values.items():
            channel = self._channel(key)
            if channel is not None:
                channel.extend(points[0].branch, *recorded, self._most)

    @property
    def _most(self) -> int:
        """The most intervals of each measurement."""
        shared = _ALL_INTERVALS // max(1, len(self._channels))
        return min(self._limit, max(_LEAST_INTERVALS, shared))

    def _channel(self, key: Key) -> _Channel | None:
        """Returns the channel of a measurement; None if it is left out."""
        channel = self._channels.get(key)
        if channel is not None:
            return channel
        if isinstance(key, str) and len(self._channels) >= MOST_METRICS:
            if len(self._left_out) < 10 * MOST_METRICS:
                self._left_out.add(key)
            return None
        channel = self._channels[key] = _Channel()
        return channel


class _Part:
    """A segment that grows."""

    __slots__ = ("averages", "branch", "count", "intervals", "newest", "seen", "segment")

    def __init__(self, branch: int) -> None:
        self.branch = branch
        self.count = self.seen = 0
        self.intervals: list[bytes] = []
        self.newest: list[Sample] = []
        self.averages = (0.0,) * (len(WEIGHTS) - 1)
        self.segment: Segment | None = None

    def extend(self, places: Sequence[_Place], values: Sequence[float], width: int) -> None:
        """Adds values to intervals of `width` values."""
        self.segment = None
        begin = 0
        while begin < len(values):
            end = begin + width - self.count % width
            samples = self._kept_of(places[begin:end], values[begin:end])
            self.newest = _extremes([*self.newest, *samples]) if self.newest else samples
            self.count += len(values[begin:end])
            begin = end
            if self.count % width == 0:
                self.intervals.append(_packed(self.newest))
                self.newest = []

    def _kept_of(self, places: Sequence[_Place], values: Sequence[float]) -> list[Sample]:
        """Returns the extremes of values, with the averages of all values up to each."""
        samples: list[Sample] = []
        shares, (a, b, c, d), seen, begin = _shares(), self.averages, self.seen, 0
        for place in extremes(values):
            for value in values[begin : place + 1]:
                if value - value == 0:
                    e, f, g, h = shares[seen if seen < _LAST_SHARE else _LAST_SHARE]
                    seen += 1
                    # The difference is exactly 0 while the value does not change.
                    a += e * (value - a)
                    b += f * (value - b)
                    c += g * (value - c)
                    d += h * (value - d)
            begin = place + 1
            samples.append((*places[place], values[place], a, b, c, d))
        self.averages, self.seen = (a, b, c, d), seen
        return samples

    def halve(self) -> None:
        """Joins every two intervals."""
        self.segment = None
        pairs = zip(self.intervals[::2], self.intervals[1::2], strict=False)
        joined = [_packed(_extremes(_unpacked(one + other))) for one, other in pairs]
        if len(self.intervals) % 2:
            self.newest = _extremes([*_unpacked(self.intervals[-1]), *self.newest])
        self.intervals = joined

    def kept(self) -> Segment:
        """Returns what is kept now."""
        if self.segment is None:
            newest = (_packed(self.newest),) if self.newest else ()
            self.segment = Segment(self.branch, (*self.intervals, *newest))
        return self.segment


class _Channel:
    """A measurement that grows."""

    def __init__(self) -> None:
        self._parts: deque[_Part] = deque()
        self._width = 1
        self._step = 0.0
        self._recorded = self._broken = 0
        self._broken_steps: list[int] = []
        self._kept: Channel | None = None

    def extend(
        self, branch: int, places: Sequence[_Place], values: Sequence[float], most: int
    ) -> None:
        """Adds values.

        Args:
            branch: Their branch.
            places: The place of each; steps increase.
            values: The values.
            most: The most intervals.
        """
        self._kept = None
        part = self._parts[-1] if self._parts else None
        if part is None or part.branch != branch or places[0][STEP] < self._step:
            self._parts.append(part := _Part(branch))
        self._step = places[-1][STEP]
        while self._too_many(most, len(values)):
            self._double_width()
        part.extend(places, values, self._width)
        self._recorded += len(values)
        if not math.isfinite(sum(values)):
            broken = [int(at[STEP]) for at, one in zip(places, values, strict=True) if one - one]
            self._broken += len(broken)
            self._broken_steps += broken[: _MOST_BROKEN_STEPS - len(self._broken_steps)]

    def _too_many(self, most: int, more: int = 0) -> bool:
        """Whether there are too many intervals; the first of each part does not count.

        Args:
            most: The most intervals.
            more: Values that the newest part gets.
        """
        width, newest = self._width, self._parts[-1].count
        count = sum([(part.count - 1) // width for part in self._parts])
        return count + (newest + more - 1) // width - (newest - 1) // width > most

    def _double_width(self) -> None:
        self._width *= 2
        for part in self._parts:
            part.halve()

    def bound(self, most: int) -> None:
        """Drops the oldest parts, and joins intervals, where there are too many.

        Args:
            most: The most intervals, and the most parts.
        """
        while len(self._parts) > most:
            self._parts.popleft()
            self._kept = None
        while self._too_many(most):
            self._double_width()
            self._kept = None

    def kept(self) -> Channel:
        """Returns what is kept now."""
        if self._kept is None:
            self._kept = Channel(
                tuple(part.kept() for part in self._parts),
                self._recorded,
                self._broken,
                tuple(self._broken_steps),
            )
        return self._kept


def _extremes(samples: list[Sample]) -> list[Sample]:
    if len(samples) <= 2:
        return samples
    return [samples[place] for place in extremes([sample[VALUE] for sample in samples])]


def _packed(samples: Sequence[Sample]) -> bytes:
    return array("d", chain.from_iterable(samples)).tobytes()


def _unpacked(interval: bytes) -> list[Sample]:
    return list(iter_unpack(_FORMAT, interval))
