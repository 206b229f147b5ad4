"""Names of the supported `tf.distribute` strategies, without importing TensorFlow."""

from __future__ import annotations

from enum import StrEnum


class StrategyName(StrEnum):
    """Strategies that `create_strategy` and `tfckpt-tui demo` accept."""

    ONE_DEVICE = "one-device"
    MIRRORED = "mirrored"
    MULTI_WORKER = "multi-worker"
    PARAMETER_SERVER = "parameter-server"
    TPU = "tpu"

    @property
    def has_cluster(self) -> bool:
        """Whether the strategy runs several processes."""
        return self in {StrategyName.MULTI_WORKER, StrategyName.PARAMETER_SERVER}
