"""Directories of plain TensorFlow programs as a starting point."""

from __future__ import annotations

import json
import os

import pytest
from this_process import run_here

from requirements import needs
from reserved_ports import reserved_ports
from tensorflow_processes import TensorFlowProcess
from tfckpt_trainer.cluster.tasks import cluster_of, tasks, tf_config
from tfckpt_trainer.launch.processes.cluster import addresses
from tfckpt_trainer.rundir.event_log import read_entries
from tfckpt_trainer.rundir.paths import RunDirectory
from waiting import MOST_SECONDS

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plain")
    assert run_here("adopting.py", directory) == 0
    return json.loads((directory / "results.json").read_text())


@pytest.mark.parametrize(
    ("form", "first"),
    [
        ("tutorial", 6),
        ("guide", 7),
        ("multi_worker_tutorial", 20),
        ("root", 20),
        ("several", 6),
        ("derived", 6),
        ("odd", 6),
    ],
)
def test_training_goes_on_at_the_step_of_the_checkpoint(results, form, first):
    assert results[form]["steps"] == list(range(first, first + 4))


@pytest.mark.parametrize("form", ["tutorial", "guide", "several", "derived", "odd"])
def test_losses_go_on_as_those_of_the_plain_program(results, form):
    assert results[form]["losses"] == results[form]["expected"]


@pytest.mark.parametrize("form", ["multi_worker_tutorial", "root"])
def test_without_optimizer_state_the_weights_are_adopted(results, form):
    assert results[form]["losses"][0] == results[form]["expected"][0]
    assert any(
        "optimizer" in message and "starts over" in message for message in results[form]["journal"]
    )


def test_no_save_is_lost_where_another_program_has_its_name(results):
    # Steps 8 and 10 are saved; the plain manager has a ckpt-8 of its own.
    found = results["tutorial"]
    assert found["names"] == ["ckpt-2", "ckpt-20", "ckpt-8", "ckpt-b1-10", "ckpt-b1-8"]
    assert found["branch"] == 1
    assert any("exists and is not of this run" in message for message in found["journal"])


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("tutorial", "step 6 from optimizer/"),
        ("guide", "model from net"),
        ("guide", "step 7 from step"),
        ("root", "step 20 from its name"),
        ("several", "model from the root; optimizer from the root; step 6 from net_optimizer/"),
    ],
)
def test_the_event_log_says_what_was_adopted_and_how(results, form, words):
    assert any(words in message for message in results[form]["journal"]), results[form]["journal"]


@needs("root")
def test_whose_checkpoint_was_adopted_is_said(results):
    words = r"Another program saved [x]a\b-20, which belongs to user 54322. Adopted: "
    assert any(message.startswith(words) for message in results["odd"]["journal"])
    assert not any("belongs to" in message for message in results["tutorial"]["journal"])


def test_a_model_of_other_shapes_is_refused_with_both_shapes(results):
    assert "float32 4×5 in the checkpoint and float32 4×3" in results["other shapes"]["error"]


def on_two_workers(module: str, directory) -> str:
    """Runs an example to its end; returns the output of both workers."""
    members = tasks(2, 0)
    log = directory.with_name(f"{module}.log")
    with reserved_ports(2) as ports, open(log, "ab") as output:
        cluster = cluster_of(members, addresses(ports))
        processes = [
            TensorFlowProcess(
                [f"tfckpt_trainer.examples.{module}", directory],
                {**os.environ, "TF_CONFIG": tf_config(cluster, member)},
                output,
                is_module=True,
            )
            for member in members
        ]
        try:
            assert [process.wait(MOST_SECONDS) for process in processes] == [0, 0], log.read_text()
        finally:
            for process in processes:
                process.kill()
    return log.read_text()


@pytest.mark.weekly
def test_the_tutorial_of_several_workers_goes_on_with_the_library(tmp_path):
    directory = tmp_path / "run"
    assert "epoch 2: loss" in on_two_workers("tutorial", directory)
    on_two_workers("tutorial_moved", directory)
    assert (directory / "ckpt-60.index").exists()
    adopted = [
        entry.message
        for entry in read_entries(RunDirectory(directory))
        if "Another program saved ckpt-3" in entry.message
    ]
    assert len(adopted) == 1
    assert "step 3 from its name; optimizer starts over" in adopted[0]
    assert "not adopted: epoch, step_in_epoch" in adopted[0]


def test_files_that_no_start_continues_from_are_named(make_run, tmp_path, capsys):
    root = tmp_path / "run"
    root.mkdir()
    for epoch in (2, 3):
        (root / f"w-{epoch:02}.weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
        os.utime(root / f"w-{epoch:02}.weights.h5", (epoch, epoch))
    (root / "best.keras").write_bytes(b"PK\3\4" + bytes(26) + b"metadata.json")
    assert len(list(make_run(total_steps=1))) == 1
    words = "No start continues from best.keras, w-03.weights.h5 (epoch 3): "
    messages = [entry.message for entry in read_entries(RunDirectory(root))]
    assert any(message.startswith(words) for message in messages)
    assert words in capsys.readouterr().err
    list(make_run(total_steps=2))
    messages = [entry.message for entry in read_entries(RunDirectory(root))]
    assert len([message for message in messages if message.startswith(words)]) == 1
