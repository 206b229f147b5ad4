"""Variables whose rows are divided among parameter servers: a checkpoint fits any of these."""

from __future__ import annotations

import json
import shutil

import pytest
from kerases import KERAS_2, environment_of
from training_cluster import Cluster

from tfckpt_trainer.bundle.index import read_index
from tfckpt_trainer.bundle.object_graph import tensors_of
from tfckpt_trainer.bundle.verify import verify
from weekly import weekly

pytestmark = pytest.mark.tensorflow


def trained(tmp_path, partitions, servers, *words, keras="tf_keras"):
    """Trains on in the same directory; returns the values before each step, by branch and step."""
    log = tmp_path / f"{partitions}.jsonl"
    words = ["--log", str(log), "--partitions", partitions, *words]
    strategy = "parameter-server" if servers else "one-device"
    environment = environment_of(keras)
    with Cluster(
        tmp_path / "run", "partitioned.py", words, 1, strategy, environment, servers
    ) as cluster:
        assert set(cluster.wait()) == {0}, cluster.output()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return {(branch, step): value for branch, step, value in lines}


@pytest.mark.parametrize("keras", [KERAS_2])
@pytest.mark.parametrize(
    ("optimizer", "way"), [((), ("--in-parts",)), *weekly((("--legacy",), ()))]
)
def test_a_checkpoint_fits_other_servers_and_partitions(tmp_path, keras, optimizer, way):
    first = trained(tmp_path, "two", 2, "--restore-at", "7", *way, *optimizer)
    assert [first[1, step] for step in (4, 5, 6)] == [first[0, step] for step in (4, 5, 6)]

    prefix = tmp_path / "run" / "ckpt-b1-12"
    assert verify(prefix).findings == ()
    shapes = {
        name.split("/.")[0]: one.shape for name, one in tensors_of(read_index(prefix)).items()
    }
    assert shapes["model/layer_with_weights-0/embeddings"] == (11, 4)

    shutil.copytree(tmp_path / "run", tmp_path / "alone" / "run")
    one = trained(tmp_path, "three", 1, "--steps", "16", *optimizer)
    assert one[1, 12] == first[1, 12]
    whole = trained(tmp_path / "alone", "none", 0, "--steps", "16", *optimizer)
    # The optimizer adds the rows of a batch on servers as on one device.
    assert whole == one
    many = trained(tmp_path, "small", 3, "--steps", "20", *optimizer)
    assert many[1, 16] == one[1, 16]
    assert len(set(many.values())) == 5


def test_a_partitioned_layer_of_keras_3_is_refused_before_it_trains(tmp_path):
    words = ["--log", str(tmp_path / "log"), "--partitions", "two"]
    environment = environment_of("keras")
    with Cluster(
        tmp_path / "run", "partitioned.py", words, 1, "parameter-server", environment, 2
    ) as cluster:
        assert cluster.wait() == [1, 0, 0, 0], cluster.output()
        assert "TF_USE_LEGACY_KERAS=1" in cluster.output()
