"""Where hyperparameters are: in optimizers, in variables, and in the script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import keras
import msgspec
import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.rundir.records.hyperparameter import Bounds
from tfckpt_trainer.training.hyperparameters.live_float import LiveFloat, live_float

_POSITIVE = Bounds(low=0, above=True)
_SHARE = Bounds(low=0, high=1, below=True)

_OPTIONS = {
    "weight_decay": Bounds(low=0),
    "clipnorm": _POSITIVE,
    "clipvalue": _POSITIVE,
    "global_clipnorm": _POSITIVE,
    "momentum": _SHARE,
    "beta_1": _SHARE,
    "beta_2": _SHARE,
    "ema_momentum": Bounds(low=0, high=1),
}
"""Options of Keras's optimizers that become a variable in the graph, with what they can be."""

_WITHOUT_LIVE = (tf.distribute.ParameterServerStrategy, tf.distribute.TPUStrategy)
"""Strategies with which these options were not tried."""


class Source(Protocol):
    """Holds one hyperparameter.

    Attributes:
        name: Its name in the run.
        bounds: The values that it can have.
        what: What the value is, if its name does not say it, as a clause.
        in_checkpoint: Whether TensorFlow's checkpoint holds it.
    """

    name: str
    bounds: Bounds
    what: str
    in_checkpoint: bool

    def get(self) -> float:
        """Returns its value."""

    def set(self, value: float) -> None:
        """Changes its value."""


class VariableSource:
    """A variable, of Keras or of TensorFlow."""

    what = ""

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
        self.bounds = msgspec.structs.replace(bounds, whole=kind.is_integer)
        self.in_checkpoint = in_checkpoint
        self._variable = variable
        _check_present(self)

    def get(self) -> float:
        """See `Source`."""
        # The shortest number that is the same in its type: 0.1, not 0.100000001.
        return float(str(self._variable.numpy()))

    def set(self, value: float) -> None:
        """See `Source`."""
        self._variable.assign(value)


class OptionSource:
    """An option of an optimizer that is a number of Python."""

    what = ""
    in_checkpoint = False

    def __init__(
        self, name: str, optimizer: Any, option: str, strategy: tf.distribute.Strategy
    ) -> None:
        self.name = name
        self.bounds = _OPTIONS[option]
        self._optimizer = optimizer
        self._option = option
        number, self._variable = live_float(getattr(optimizer, option), strategy)
        setattr(optimizer, option, number)

    def get(self) -> float:
        """See `Source`."""
        return float(getattr(self._optimizer, self._option))

    def set(self, value: float) -> None:
        """See `Source`."""
        self._variable.assign(value)
        number: LiveFloat = getattr(self._optimizer, self._option)
        setattr(self._optimizer, self._option, number.with_value(value))


class ScheduleFactor:
    """A factor upon the schedule of a learning rate."""

    bounds = Bounds(low=0)
    in_checkpoint = False

    def __init__(self, name: str, optimizer: Any, strategy: tf.distribute.Strategy) -> None:
        self.name = name
        self.what = f"times {type(optimizer._learning_rate).__name__}"
        self._factor, self._variable = live_float(1.0, strategy)
        scheduled = optimizer._get_current_learning_rate

        def scaled() -> Any:
            rate = tf.convert_to_tensor(scheduled())
            return rate * tf.cast(self._variable, rate.dtype)

        # The schedule itself stays, so that Keras saves the model as it would.
        optimizer._get_current_learning_rate = scaled

    def get(self) -> float:
        """See `Source`."""
        return float(self._factor)

    def set(self, value: float) -> None:
        """See `Source`."""
        self._variable.assign(value)
        self._factor = self._factor.with_value(value)


class OwnSource:
    """A value of the script, which it reads and changes itself."""

    what = ""
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
        value = get()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{name} is {value!r}; a hyperparameter must be an int or a float.")
        self.name = name
        self._is_int = isinstance(value, int)
        self.bounds = msgspec.structs.replace(bounds, whole=self._is_int)
        self._get = get
        self._set = set
        _check_present(self)

    def get(self) -> float:
        """See `Source`."""
        return self._get()

    def set(self, value: float) -> None:
        """See `Source`."""
        self._set(int(value) if self._is_int else float(value))


def _check_present(source: Source) -> None:
    if not source.bounds.allow(source.get()):
        raise UsageError(f"{source.name} is {source.get()}; it must be {source.bounds.words}.")


def sources_of(
    optimizers: Iterable[tuple[str, Any]], strategy: tf.distribute.Strategy
) -> Iterator[Source]:
    """Yields the hyperparameters of Keras optimizers.

    Options of several optimizers are named by the path of theirs: `discriminator/learning_rate`.

    Args:
        optimizers: Path and object.
        strategy: The strategy of the run.
    """
    by_id = {id(one): (path, one) for path, one in reversed([*optimizers])}
    of_keras = [one for one in reversed(by_id.values()) if isinstance(one[1], keras.Optimizer)]
    inner = {
        id(one.inner_optimizer)
        for _, one in of_keras
        if isinstance(one, keras.optimizers.LossScaleOptimizer)
    }
    outer = [(path, one) for path, one in of_keras if id(one) not in inner]
    for path, optimizer in outer:
        prefix = "" if len(outer) == 1 else f"{path.removeprefix('optimizer/')}/"
        yield from _sources_of_one(prefix, optimizer, strategy)


def _sources_of_one(
    prefix: str, optimizer: Any, strategy: tf.distribute.Strategy
) -> Iterator[Source]:
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        if optimizer.built:
            yield VariableSource(f"{prefix}loss_scale", optimizer.dynamic_scale, _POSITIVE)
        optimizer = optimizer.inner_optimizer
    rate = optimizer._learning_rate
    if isinstance(rate, keras.Variable):
        yield VariableSource(f"{prefix}learning_rate", rate, Bounds(low=0))
    if isinstance(strategy, _WITHOUT_LIVE):
        return
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        yield ScheduleFactor(f"{prefix}learning_rate_factor", optimizer, strategy)
    for option in _OPTIONS:
        value = getattr(optimizer, option, None)
        # 0 stands for an option that is off, for which the optimizer has no variables.
        if isinstance(value, float) and value and (option != "ema_momentum" or optimizer.use_ema):
            yield OptionSource(f"{prefix}{option}", optimizer, option, strategy)
