"""Random draws of a run as a function of its seed, the step and the replica."""

from __future__ import annotations

from tfckpt_trainer.errors import UsageError
from tfckpt_trainer.training.draws.stateless_twins import StatelessTwins
from tfckpt_trainer.training.draws.streams import StreamPosition, Streams

_open: list[DrawsByStep] = []
"""The runs of this process that draw by the step, the newest last."""

_streams = Streams()
"""Of all these runs: a function that was traced in one of them may be called in another."""

_twins = StatelessTwins(_streams)


def next_step_of_draws() -> None:
    """Starts the draws of the next step, also in a graph of several; without a seed, nothing."""
    if _open:
        _streams.next_step()


class DrawsByStep:
    """Has the draws of a training loop start anew at each step."""

    def __init__(self, seed: int, worker: int) -> None:
        """Starts with the draws between here and the first step.

        Args:
            seed: The seed of the run.
            worker: Index of this worker.

        Raises:
            UsageError: The seed is no integer, or this release of TensorFlow is not supported.
        """
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise UsageError(f"random_seed is {seed!r}; it must be an integer, or None.")
        self._seed = seed
        self._worker = worker
        if not _open:
            _twins.install()
        _open.append(self)
        _streams.start(StreamPosition(seed, None, worker))

    def start_step(self, step: int) -> None:
        """Starts the draws of the step after so many steps."""
        _streams.start(StreamPosition(self._seed, step, self._worker))

    def close(self) -> None:
        """Leaves further draws to TensorFlow."""
        if self in _open:
            _open.remove(self)
            if not _open:
                _twins.remove()
