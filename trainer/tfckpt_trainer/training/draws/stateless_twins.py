"""Has the random operations of TensorFlow and Keras draw from streams.

Every function of `tf.random`, `tf.image` and `tf.nn` that draws without a generator calls one of
a few generated functions. These are replaced by functions that create the operation without state
which has the same distribution. TensorFlow and Keras have no public hook for that: all that is
private is in this module.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import tensorflow as tf

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.draws.streams import PHILOX, Streams
from tfckpt_trainer.training.keras_library import keras, seed_module

_raw = tf.raw_ops


class _Source(NamedTuple):
    """Gives one operation what it draws from."""

    streams: Streams
    operation_seed: int | None

    @property
    def philox(self) -> dict[str, Any]:
        key, counter = self.streams.next(self.operation_seed)
        return {"key": key, "counter": counter, "alg": PHILOX}

    @property
    def seed(self) -> dict[str, Any]:
        return {"seed": self.streams.seed(self.operation_seed)}


def _gamma(source: _Source, shape: Any, alpha: Any, name: str | None) -> Any:
    shape = _with_shape_of(alpha, shape)
    return _raw.StatelessRandomGammaV3(shape=shape, alpha=alpha, name=name, **source.philox)


def _poisson(source: _Source, shape: Any, rate: Any, dtype: Any, name: str | None) -> Any:
    shape = _with_shape_of(rate, shape)
    return _raw.StatelessRandomPoisson(shape=shape, lam=rate, dtype=dtype, name=name, **source.seed)


def _with_shape_of(parameter: Any, shape: Any) -> tf.Tensor:
    """Returns the shape of so many samples for each value of the parameter."""
    shape = tf.convert_to_tensor(shape)
    return tf.concat([shape, tf.shape(parameter, out_type=shape.dtype)], axis=0)


def _shuffle(source: _Source, value: Any, name: str | None) -> Any:
    """Sorts by random numbers, as XLA does it; it has no operation for a shuffle without state."""
    value = tf.convert_to_tensor(value)
    numbers = _raw.StatelessRandomUniformFullIntV2(
        shape=tf.shape(value)[:1], dtype=tf.int64, **source.philox
    )
    return tf.gather(value, tf.argsort(numbers), name=name)


def _parameterized_truncated_normal(
    source: _Source,
    shape: Any,
    means: Any,
    stdevs: Any,
    minvals: Any,
    maxvals: Any,
    name: str | None,
) -> Any:
    """Has parameters for each value of the first dimension; without state, for the last one."""
    shape = tf.convert_to_tensor(shape)

    def rows(parameter: Any) -> tf.Tensor:
        return tf.broadcast_to(tf.reshape(parameter, [-1]), shape[:1])

    numbers = _raw.StatelessParameterizedTruncatedNormal(
        shape=tf.roll(shape, -1, axis=0),
        means=rows(means),
        stddevs=rows(stdevs),
        minvals=rows(minvals),
        maxvals=rows(maxvals),
        **source.seed,
    )
    return tf.transpose(numbers, tf.roll(tf.range(tf.size(shape)), 1, axis=0), name=name)


def _by_philox(operation: Any) -> Callable[..., Any]:
    return lambda source, **arguments: operation(**arguments, **source.philox)


def _by_seed(operation: Any) -> Callable[..., Any]:
    return lambda source, **arguments: operation(**arguments, **source.seed)


_RANDOM = "tensorflow.python.ops.gen_random_ops"
_IMAGE = "tensorflow.python.ops.gen_image_ops"
_SEEDS = "tensorflow.python.framework.random_seed"
_GRADIENTS = "tensorflow.python.ops.custom_gradient"

_TWINS: dict[tuple[str, str, str], Callable[..., Any]] = {
    (_RANDOM, "random_standard_normal", "RandomStandardNormal"): _by_philox(
        _raw.StatelessRandomNormalV2
    ),
    (_RANDOM, "random_uniform", "RandomUniform"): _by_philox(_raw.StatelessRandomUniformV2),
    (_RANDOM, "random_uniform_int", "RandomUniformInt"): _by_philox(
        _raw.StatelessRandomUniformIntV2
    ),
    (_RANDOM, "truncated_normal", "TruncatedNormal"): _by_philox(_raw.StatelessTruncatedNormalV2),
    (_RANDOM, "parameterized_truncated_normal", "ParameterizedTruncatedNormal"): (
        _parameterized_truncated_normal
    ),
    (_RANDOM, "random_gamma", "RandomGamma"): _gamma,
    (_RANDOM, "random_poisson_v2", "RandomPoissonV2"): _poisson,
    (_RANDOM, "random_shuffle", "RandomShuffle"): _shuffle,
    (_RANDOM, "multinomial", "Multinomial"): _by_seed(_raw.StatelessMultinomial),
    (_IMAGE, "sample_distorted_bounding_box_v2", "SampleDistortedBoundingBoxV2"): _by_seed(
        _raw.StatelessSampleDistortedBoundingBox
    ),
}
"""By module, function and name in `tf.raw_ops`: what draws without state."""

_WITH_TWIN = frozenset(raw for _, _, raw in _TWINS)


def has_twin(kind: str) -> bool:
    """Whether the draws of this type of operation can be made a function of a seed."""
    return kind in _WITH_TWIN


class _OperationSeed(int):
    """A seed that the script passed to an operation; TensorFlow makes up others."""


class StatelessTwins:
    """Replaces functions of TensorFlow and Keras, and puts them back."""

    def __init__(self, streams: Streams) -> None:
        """Prepares it; changes nothing.

        Args:
            streams: What to draw from.
        """
        self._streams = streams
        self._originals: list[tuple[Any, str, Any]] = []

    def install(self) -> None:
        """Replaces the functions.

        Raises:
            UsageError: This release of TensorFlow or Keras does not have one of them.
        """
        try:
            for (module, function, raw), twin in _TWINS.items():
                self._replace(import_module(module), function, partial(self._drawing, twin))
                self._replace(_raw, raw, partial(self._drawing, twin))
            self._replace(import_module(_SEEDS), "get_seed", _marking)
            self._replace(seed_module(), "global_seed_generator", self._seeding)
            for of_recompute in (tf, import_module(_GRADIENTS)):
                self._replace(of_recompute, "recompute_grad", self._repeating)
        except (AttributeError, ImportError) as error:
            self.remove()
            raise UsageError(
                f"random_seed does not support TensorFlow {tf.__version__} with Keras "
                f"{keras.__version__}: {error}. Leave random_seed out, and draw from a "
                "tf.random.Generator that is passed in extra={…}."
            ) from None

    def remove(self) -> None:
        """Puts the functions back."""
        while self._originals:
            setattr(*self._originals.pop())

    def _replace(self, module: Any, name: str, make: Callable[[Any], Any]) -> None:
        original = getattr(module, name)
        self._originals.append((module, name, original))
        setattr(module, name, functools.wraps(original)(make(original)))

    def _drawing(self, twin: Callable[..., Any], original: Any) -> Any:
        signature = inspect.signature(original)

        def draw(*args: Any, **options: Any) -> Any:
            if not self._streams.serve_caller():
                return original(*args, **options)
            bound = signature.bind(*args, **options)
            bound.apply_defaults()
            arguments = bound.arguments
            seed = _given_seed(arguments.pop("seed"), arguments.pop("seed2"))
            return twin(_Source(self._streams, seed), **arguments)

        return draw

    def _seeding(self, original: Any) -> Any:
        """Replaces the generator of functions of `keras.random` that are called without a seed."""
        generator = SimpleNamespace(next=lambda ordered=True: self._streams.seed())
        return lambda: generator if self._streams.serve_caller() else original()

    def _repeating(self, original: Any) -> Any:
        """Has a function that is computed again for its gradient draw the same numbers."""

        def recompute_grad(function: Any) -> Any:
            @functools.wraps(function)
            def call(*args: Any, **options: Any) -> Any:
                if not self._streams.serve_caller():
                    return original(function)(*args, **options)
                first: list[Any] = []

                @functools.wraps(function)
                def compute(*args: Any, **options: Any) -> Any:
                    with self._streams.repeating(first):
                        return function(*args, **options)

                return original(compute)(*args, **options)

            return tf.autograph.experimental.do_not_convert(call)

        return recompute_grad


def _marking(original: Any) -> Any:
    """Marks the seeds of operations to which the script passed one."""

    def get_seed(op_seed: Any) -> Any:
        seed, seed2 = original(op_seed)
        return seed, seed2 if op_seed is None else _OperationSeed(seed2)

    return get_seed


def _given_seed(seed: Any, seed2: Any) -> int | None:
    """Returns the seed that the script passed to an operation; None without one."""
    return int(seed2) if isinstance(seed2, _OperationSeed) else None
