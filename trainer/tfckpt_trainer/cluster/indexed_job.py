"""The TensorFlow cluster of an indexed Job of Kubernetes, from the environment of its pods."""

from __future__ import annotations

from collections.abc import Mapping

from tfckpt_trainer.cluster.tasks import cluster_of, tasks, tf_config
from tfckpt_trainer.errors import UsageError

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
"""Kubernetes sets it in each pod of an indexed Job."""

SERVICE_VARIABLE = "TFCKPT_SERVICE"
COUNT_VARIABLE = "TFCKPT_WORKER_COUNT"
PORT_VARIABLE = "TFCKPT_PORT"

DEFAULT_PORT = 2222


def cluster_of_indexed_job(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that make a pod of an indexed Job a worker of a cluster.

    The pods have the host names JOB-0, JOB-1, …, below the headless Service in `TFCKPT_SERVICE`.

    Args:
        environment: The environment of the pod.

    Returns:
        `TF_CONFIG` and `TFCKPT_WORKER_INDEX`; nothing if `TFCKPT_SERVICE` is not set.

    Raises:
        UsageError: A variable is missing or invalid.
    """
    service = environment.get(SERVICE_VARIABLE)
    if not service:
        return {}
    index = _number(environment, INDEX_VARIABLE, 'Set `completionMode: "Indexed"` in the Job.')
    count = _number(environment, COUNT_VARIABLE, "Set it to the `completions` of the Job.")
    port = _number({PORT_VARIABLE: str(DEFAULT_PORT), **environment}, PORT_VARIABLE, "")
    host = environment.get("HOSTNAME", "").partition(".")[0]
    job, separator, number = host.rpartition("-")
    if not separator or number != str(index):
        raise UsageError(
            f"HOSTNAME is {host!r}; expected the name of an indexed Job's pod, which ends in "
            f"-{index}. Leave the host name of the pod as Kubernetes sets it."
        )
    if index >= count:
        raise UsageError(
            f"{INDEX_VARIABLE} is {index}, but {COUNT_VARIABLE} is {count}. Set it to the "
            "`completions` of the Job."
        )
    members = tasks(count, 0)
    places = [f"{job}-{task.index}.{service}:{port}" for task in members]
    return {
        "TF_CONFIG": tf_config(cluster_of(members, places), members[index]),
        "TFCKPT_WORKER_INDEX": str(index),
    }


def _number(environment: Mapping[str, str], name: str, advice: str) -> int:
    text = environment.get(name)
    if text is None:
        raise UsageError(f"{SERVICE_VARIABLE} is set, but {name} is missing. {advice}".strip())
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{name} is {text!r}; expected a number. {advice}".strip())
    return int(text)
