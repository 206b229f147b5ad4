"""Where hyperparameters are: in optimizers, in variables, and in the script."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from numbers import Integral, Real
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import msgspec
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.hyperparameter import Bounds
from tfckpt_trainer.training.hyperparameters.live_float import LiveFloat, live_float
from tfckpt_trainer.training.keras_library import (
    OPTIMIZERS,
    SCALED_OPTIMIZER,
    keras,
    loss_scale_of,
    map_scheduled_rate,
    option_variables,
    rate_of,
    scheduled_rate,
)
from tfckpt_trainer.training.state.variables import exempt, is_variable

_LARGEST = float(tf.float32.max)
"""Layers compute in this type, or in a smaller one whose scale TensorFlow adapts."""

_POSITIVE = Bounds(low=0, above=True, largest=_LARGEST)
_SHARE = Bounds(low=0, high=1, below=True)

_OPTIONS = {
    "weight_decay": Bounds(low=0, largest=_LARGEST),
    "clipnorm": _POSITIVE,
    "clipvalue": _POSITIVE,
    "global_clipnorm": _POSITIVE,
    "momentum": _SHARE,
    "beta_1": _SHARE,
    "beta_2": _SHARE,
    "ema_momentum": Bounds(low=0, high=1),
}
"""Options of Keras's optimizers that become a variable in the graph, with what they can be."""

_OVER_SCHEDULES: WeakKeyDictionary[Any, tuple[LiveFloat, LiveFloat]] = WeakKeyDictionary()
"""By optimizer, the factor upon its schedule, and the rate in its place; NaN for none."""

_WITHOUT_LIVE = (tf.distribute.ParameterServerStrategy, tf.distribute.TPUStrategy)
"""Strategies with which these options were not tried."""


class HyperparameterSource(Protocol):
    """Holds one hyperparameter.

    Attributes:
        name: Its name in the run.
        bounds: The values that it can have.
        what: What the value is, if its name does not say it, as a clause.
        schedule: Name of the schedule that it follows unless it is set; empty without one.
        in_checkpoint: Whether TensorFlow's checkpoint holds it.
    """

    name: str
    bounds: Bounds
    what: str
    schedule: str
    in_checkpoint: bool

    def get(self) -> float:
        """Returns its value."""

    def set(self, value: float) -> None:
        """Changes its value; NaN lets its schedule go on."""


class VariableSource:
    """A variable, of Keras or of TensorFlow."""

    what = ""
    schedule = ""

    def __init__(
        self, name: str, variable: Any, bounds: Bounds, *, in_checkpoint: bool = True
    ) -> None:
        """Takes it.

        Raises:
            UsageError: It holds no single number, or one that is out of its bounds.
        """
        kind = tf.as_dtype(variable.dtype)
        if tuple(variable.shape) or not (kind.is_floating or kind.is_integer):
            raise UsageError(
                f"The hyperparameter {name} is a variable of {kind.name} with shape "
                f"{tuple(variable.shape)}; it must hold one integer or float."
            )
        self.name = name
        self.bounds = msgspec.structs.replace(
            bounds, whole=kind.is_integer, largest=float(kind.max)
        )
        self.in_checkpoint = in_checkpoint
        # A restore sets it to what the record of the checkpoint says.
        self._variable = exempt(variable)
        _check_present(self)

    def get(self) -> float:
        """See `HyperparameterSource`."""
        return _shortest(self._variable.numpy())

    def set(self, value: float) -> None:
        """See `HyperparameterSource`."""
        self._variable.assign(int(value) if self.bounds.whole else value)


class _LiveSource:
    """A number that graphs read from a variable."""

    in_checkpoint = False
    schedule = ""

    def __init__(self, number: LiveFloat) -> None:
        self._number = number
        # As an attribute of the library, it is no state that the script forgot to pass.
        self._variable = number.variables[0]

    def get(self) -> float:
        """See `HyperparameterSource`."""
        return float(self._number)

    def set(self, value: float) -> None:
        """See `HyperparameterSource`."""
        self._variable.assign(value)
        self._number = self._number.with_value(value)


class OptionSource(_LiveSource):
    """An option of an optimizer that is a number of Python."""

    what = ""

    def __init__(
        self, name: str, optimizer: Any, option: str, strategy: tf.distribute.Strategy
    ) -> None:
        present = getattr(optimizer, option)
        # Graphs of an earlier run of this process read the variable of that.
        is_live = isinstance(present, LiveFloat) and len(present.variables) == 1
        super().__init__(present if is_live else live_float(float(present), strategy))
        self.name = name
        self.bounds = _OPTIONS[option]
        self._optimizer = optimizer
        self._option = option
        self.set(self._number.initial)

    def set(self, value: float) -> None:
        """See `HyperparameterSource`."""
        super().set(value)
        setattr(self._optimizer, self._option, self._number)


class ScheduleFactor(_LiveSource):
    """A factor upon the schedule of a learning rate."""

    bounds = Bounds(low=0, largest=_LARGEST)

    def __init__(self, name: str, optimizer: Any, strategy: tf.distribute.Strategy) -> None:
        factor, _ = _over_schedule(optimizer, strategy)
        super().__init__(factor)
        self.name = name
        self.what = f"times {_schedule_of(optimizer)}"
        self.set(factor.initial)


class ScheduledRate(_LiveSource):
    """A learning rate that follows a schedule, unless it is set."""

    bounds = Bounds(low=0, largest=_LARGEST)

    def __init__(self, name: str, optimizer: Any, strategy: tf.distribute.Strategy) -> None:
        _, rate = _over_schedule(optimizer, strategy)
        super().__init__(rate)
        self.name = name
        self.schedule = _schedule_of(optimizer)
        self.what = f"by {self.schedule}"
        self._optimizer = optimizer
        self.set(rate.initial)
        try:
            self._last = self._read()
        except Exception as error:
            raise UsageError(f"{self.schedule} cannot be read between steps.") from error
        _check_present(self)

    def get(self) -> float:
        """See `HyperparameterSource`."""
        # A schedule is code of the script: no save may depend on it.
        with suppress(Exception):
            self._last = self._read()
        return self._last

    def _read(self) -> float:
        return _shortest(tf.convert_to_tensor(scheduled_rate(self._optimizer)).numpy())


def _schedule_of(optimizer: Any) -> str:
    return type(rate_of(optimizer)).__name__


def _over_schedule(optimizer: Any, strategy: tf.distribute.Strategy) -> tuple[LiveFloat, LiveFloat]:
    # An earlier run of this process may have put them there.
    earlier = _OVER_SCHEDULES.get(optimizer)
    if earlier is not None:
        return earlier
    factor, replacement = live_float(1.0, strategy), live_float(math.nan, strategy)

    def over(scheduled: Any) -> Any:
        rate = tf.convert_to_tensor(scheduled)
        rate *= tf.convert_to_tensor(factor, rate.dtype)
        replaced = tf.convert_to_tensor(replacement, rate.dtype)
        return tf.where(tf.math.is_nan(replaced), rate, replaced)

    map_scheduled_rate(optimizer, over)
    _OVER_SCHEDULES[optimizer] = factor, replacement
    return factor, replacement


class OwnSource:
    """A value of the script, which it reads and changes itself."""

    what = ""
    schedule = ""
    in_checkpoint = False

    def __init__(
        self,
        name: str,
        get: Callable[[], float],
        set: Callable[[Any], object],  # noqa: A002
        bounds: Bounds,
    ) -> None:
        """Takes it.

        Raises:
            UsageError: Its present value is no number, or is out of its bounds.
        """
        value: Any = get()
        if isinstance(value, bool) or not isinstance(value, Real):
            raise UsageError(f"{name} is {value!r}; a hyperparameter must be an int or a float.")
        self.name = name
        self._is_int = isinstance(value, Integral)
        self.bounds = msgspec.structs.replace(bounds, whole=self._is_int)
        self._get = get
        self._set = set
        _check_present(self)

    def get(self) -> float:
        """See `HyperparameterSource`."""
        return float(self._get())

    def set(self, value: float) -> None:
        """See `HyperparameterSource`."""
        self._set(int(value) if self._is_int else float(value))


def _shortest(value: Any) -> float:
    """Returns the shortest number that is the same in its type: 0.1, not 0.100000001."""
    return float(str(value))


def _check_present(source: HyperparameterSource) -> None:
    if not source.bounds.allow(source.get()):
        raise UsageError(f"{source.name} is {source.get()}; it must be {source.bounds.words}.")


def sources_of(
    optimizers: Iterable[tuple[str, Any]], strategy: tf.distribute.Strategy
) -> Iterator[HyperparameterSource]:
    """Yields the hyperparameters of Keras optimizers.

    Options of several optimizers are named by the path of theirs: `discriminator/learning_rate`.

    Args:
        optimizers: Path and object.
        strategy: The strategy of the run.
    """
    by_id = {id(thing): (path, thing) for path, thing in reversed([*optimizers])}
    of_keras = [pair for pair in reversed(by_id.values()) if isinstance(pair[1], OPTIMIZERS)]
    inner = {
        id(optimizer.inner_optimizer)
        for _, optimizer in of_keras
        if isinstance(optimizer, SCALED_OPTIMIZER)
    }
    outer = [(path, optimizer) for path, optimizer in of_keras if id(optimizer) not in inner]
    short = Counter(path.removeprefix("optimizer/") for path, _ in outer)
    for path, optimizer in outer:
        name = path.removeprefix("optimizer/")
        prefix = "" if len(outer) == 1 else f"{name if short[name] == 1 else path}/"
        for make in _makers(prefix, optimizer, strategy):
            # An optimizer of a script may be unlike Keras's: training must not depend on this.
            with suppress(UsageError, AttributeError, TypeError, ValueError):
                yield make()


def _makers(
    prefix: str, optimizer: Any, strategy: tf.distribute.Strategy
) -> Iterator[Callable[[], HyperparameterSource]]:
    """Yields what makes each source of one optimizer."""
    if isinstance(optimizer, SCALED_OPTIMIZER):
        scale = loss_scale_of(optimizer)
        if scale is not None:
            yield partial(VariableSource, f"{prefix}loss_scale", scale, _POSITIVE)
        optimizer = optimizer.inner_optimizer
    rate = rate_of(optimizer)
    if is_variable(rate):
        # A negative rate is gradient ascent.
        bounds = Bounds(low=0) if float(rate.numpy()) >= 0 else Bounds()
        yield partial(VariableSource, f"{prefix}learning_rate", rate, bounds)
    own = option_variables(optimizer)
    for option in filter(own.__contains__, _OPTIONS):
        yield partial(VariableSource, f"{prefix}{option}", own[option], _OPTIONS[option])
    if isinstance(strategy, _WITHOUT_LIVE):
        return
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        yield partial(ScheduledRate, f"{prefix}learning_rate", optimizer, strategy)
        yield partial(ScheduleFactor, f"{prefix}learning_rate_factor", optimizer, strategy)
    for option in _OPTIONS if not own else ():
        value = getattr(optimizer, option, None)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # 0 stands for an option that is off, for which the optimizer has no variables.
        is_on = is_number and bool(value)
        if is_on and (option != "ema_momentum" or getattr(optimizer, "use_ema", False)):
            yield partial(OptionSource, f"{prefix}{option}", optimizer, option, strategy)
