"""What in this process can make repeated steps differ, although all variables are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.config import is_op_determinism_enabled

from tfckpt_trainer.rundir.records.check import CheckFacts
from tfckpt_trainer.rundir.records.exactness import PipelineFacts
from tfckpt_trainer.training.check.traced_steps import is_of_dataset, live_graphs, operations_of

SHOWN_OPERATIONS = 5


def collect_facts(
    topology: Mapping[str, Any],
    *,
    has_dataset: bool,
    iterators: list[str],
    inputs: Sequence[PipelineFacts],
) -> CheckFacts:
    """Returns the facts of this process, after the script's functions have run."""
    in_step: list[str] = []
    in_input: list[str] = []
    for graph in live_graphs():
        facts = operations_of(graph)
        operations = in_input if is_of_dataset(graph) else in_step
        operations += [*facts.draws, *facts.python]
    return CheckFacts(
        strategy=topology["strategy"],
        replicas=topology["replicas"],
        has_dataset=has_dataset,
        gpus=len(tf.config.list_logical_devices("GPU")),
        deterministic=bool(is_op_determinism_enabled()),
        threads=int(tf.config.threading.get_intra_op_parallelism_threads()),
        step_operations=sorted(set(in_step))[:SHOWN_OPERATIONS],
        input_operations=sorted(set(in_input))[:SHOWN_OPERATIONS],
        input_causes=[
            cause for pipeline in inputs for cause in (*pipeline.causes, *pipeline.python)
        ],
        input_remedies=list(
            dict.fromkeys(text for pipeline in inputs for text in pipeline.remedies)
        ),
        iterators=iterators,
    )
