"""The manifests of the page on Kubernetes are valid and agree with the library."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from documentation import DOCS, ROOT
from requirements import require
from tfckpt_trainer.cluster.indexed_job import DEFAULT_PORT, cluster_of_indexed_job
from tfckpt_trainer.errors import ExitCode
from tfckpt_trainer.scripts.exit_statuses import choose_statuses

require("kubernetes-validate")

import kubernetes_validate  # noqa: E402

PAGE = DOCS / "how-to" / "kubernetes.md"
INDEXED_JOB, TF_JOB = (
    DOCS / "how-to" / "kubernetes" / name for name in ("indexed-job.yaml", "tfjob.yaml")
)
TF_JOB_SCHEMA = ROOT / "tests" / "data" / "tfjob-schema.json"
OLDEST = "1.29"
"""The oldest version of Kubernetes that has all fields."""


def documents(path: Path) -> dict[str, dict]:
    """The documents of a manifest by their kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(path.read_text())}


def environment_of(container: dict) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
def test_the_indexed_job_fulfils_the_published_schemas(version):
    found = documents(INDEXED_JOB)
    assert set(found) == {"PersistentVolumeClaim", "Service", "Job"}
    for document in found.values():
        kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_find_a_mistake():
    job = documents(INDEXED_JOB)["Job"]
    job["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0].pop("status")
    with pytest.raises(kubernetes_validate.ValidationError, match="status"):
        kubernetes_validate.validate(job, OLDEST, strict=True)


def test_the_tfjob_fulfils_the_schemas_of_kubeflow_and_of_pods():
    import jsonschema

    job = documents(TF_JOB)["TFJob"]
    jsonschema.validate(job, json.loads(TF_JOB_SCHEMA.read_text()))
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "worker"}}
    template["template"] = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    kubernetes_validate.validate(template, OLDEST, strict=True)


def test_the_job_retries_our_statuses_without_counting_them():
    rules = documents(INDEXED_JOB)["Job"]["spec"]["podFailurePolicy"]["rules"]
    (ignored,) = [rule["onExitCodes"] for rule in rules if "onExitCodes" in rule]
    assert ignored["values"] == [ExitCode.RESTART_WORKERS, ExitCode.PREEMPTED]
    assert {rule["action"] for rule in rules} == {"Ignore"}


def test_kubeflow_retries_our_statuses():
    """With `ExitCode`, it restarts after 130, 137, 138 and 143, and gives up after all below."""
    worker = documents(TF_JOB)["TFJob"]["spec"]["tfReplicaSpecs"]["Worker"]
    (container,) = worker["template"]["spec"]["containers"]
    # It takes the status of the container of this name.
    assert container["name"] == "tensorflow"
    statuses = choose_statuses(environment=environment_of(container))
    assert worker["restartPolicy"] == "ExitCode"
    assert {statuses.preempted, statuses.restart} == {143, 138}


def test_the_pods_of_the_job_find_each_other():
    found = documents(INDEXED_JOB)
    job, service = found["Job"], found["Service"]
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    name, count = job["metadata"]["name"], job["spec"]["completions"]
    # The pods have addresses below a Service that selects them, if it is headless.
    assert service["metadata"]["name"] == pod["subdomain"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert service["spec"]["clusterIP"] == "None"
    assert {port["port"] for port in service["spec"]["ports"]} == {DEFAULT_PORT}
    for index in range(count):
        set_by_kubernetes = {"JOB_COMPLETION_INDEX": str(index), "HOSTNAME": f"{name}-{index}"}
        made = cluster_of_indexed_job(environment_of(container) | set_by_kubernetes)
        expected = [f"{name}-{n}.{pod['subdomain']}:{DEFAULT_PORT}" for n in range(count)]
        assert json.loads(made["TF_CONFIG"]) == {
            "cluster": {"worker": expected},
            "task": {"type": "worker", "index": index},
        }


@pytest.mark.parametrize("manifest", [INDEXED_JOB, TF_JOB], ids=lambda path: path.name)
def test_the_run_directory_is_on_the_volume(manifest):
    (pod,) = re.findall(r"mountPath: (\S+)}", manifest.read_text())
    (run_dir,) = re.findall(r"name: TFCKPT_RUN_DIR, value: (\S+)}", manifest.read_text())
    assert Path(run_dir).is_relative_to(pod)


@pytest.mark.parametrize("manifest", [INDEXED_JOB, TF_JOB], ids=lambda path: path.name)
def test_the_page_shows_the_manifest(manifest):
    assert f"```yaml\n{manifest.read_text()}```" in PAGE.read_text()
