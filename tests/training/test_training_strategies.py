"""Which strategy a script gets, and what it is told where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from cluster import free_ports

pytestmark = pytest.mark.tensorflow

CREATE = "import sys; from tfckpt_trainer.training import create_strategy as c; c(sys.argv[1])"


def create(name, **environment):
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CREATE, name],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.splitlines()[-1] if done.returncode else "", time.monotonic() - began


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "'local'"),
        ({"TPU_NAME": "no-such-tpu"}, "'no-such-tpu'"),
        ({"TPU_NAME": "grpc://127.0.0.1:{port}"}, "'grpc://127.0.0.1:"),
        ({"TPU_NAME": "grpc://nonsense"}, "'grpc://nonsense'"),
    ],
)
def test_without_a_tpu_one_message_says_what_was_looked_for(environment, named):
    (port,) = free_ports(1)
    message, seconds = create("tpu", **{k: v.format(port=port) for k, v in environment.items()})
    assert f"No usable TPU found as {named}" in message
    assert "choose another strategy" in message
    assert seconds < 60


def test_an_unknown_strategy_is_told_of_with_all_there_are():
    message, _ = create("horovod")
    assert "Unknown strategy 'horovod'" in message
    assert "one-device, mirrored, multi-worker, parameter-server, tpu" in message


def test_several_workers_without_a_cluster_are_told_how_to_get_one():
    message, _ = create("multi-worker", TF_CONFIG="")
    assert "needs TF_CONFIG" in message


def test_parameter_servers_without_a_cluster_are_told_how_to_get_one():
    message, _ = create("parameter-server", TF_CONFIG="")
    assert "needs TF_CONFIG with a chief, workers and parameter servers" in message
    assert "--parameter-servers M" in message
