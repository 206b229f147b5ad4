"""The names of the strategies that can be chosen, known without TensorFlow."""

from __future__ import annotations

from enum import StrEnum


class StrategyName(StrEnum):
    """The strategies that a script, or `demo`, can choose by name."""

    ONE_DEVICE = "one-device"
    MIRRORED = "mirrored"
    MULTI_WORKER = "multi-worker"
    PARAMETER_SERVER = "parameter-server"
    TPU = "tpu"

    @property
    def has_cluster(self) -> bool:
        """Whether it takes several processes."""
        return self in {StrategyName.MULTI_WORKER, StrategyName.PARAMETER_SERVER}
