"""The cluster that Slurm's environment variables describe."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfckpt_trainer.cluster.host_list import expand_counts, expand_hosts
from tfckpt_trainer.cluster.slurm import (
    FIRST_PORT,
    PORT_COUNT,
    addresses,
    own_gpus,
    read_step,
    refuse_several_tasks,
    slurm_tf_config,
    task_count,
    task_places,
)
from tfckpt_trainer.errors import UsageError


def step_environment(**changes: str) -> dict[str, str]:
    """The variables of task 2 of 3, as Slurm 22.05 set them on two nodes."""
    return {
        "SLURM_JOB_ID": "6",
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "tn[9-10]",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
        "SLURM_NTASKS": "3",
        "SLURM_PROCID": "2",
        "SLURM_NODEID": "1",
        "SLURM_LOCALID": "0",
        "SLURM_GTIDS": "2",
        **changes,
    }


def step(**changes: str):
    found = read_step(step_environment(**changes), expand_hosts)
    assert found is not None
    return found


def test_a_task_finds_the_cluster_of_its_step_in_the_order_of_slurm():
    config = json.loads(slurm_tf_config(step()))
    hosts = [address.partition(":")[0] for address in config["cluster"]["worker"]]
    assert hosts == ["tn9", "tn9", "tn10"]
    assert config["task"] == {"type": "worker", "index": 2}


def test_the_last_tasks_are_the_parameter_servers():
    environment = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
    found = step(**environment, SLURM_PROCID="3", SLURM_GTIDS="2,3")
    config = json.loads(slurm_tf_config(found, parameter_servers=1))
    assert {job: len(places) for job, places in config["cluster"].items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 1,
    }
    assert config["task"] == {"type": "ps", "index": 0}


def test_too_few_tasks_for_parameter_servers_are_refused():
    with pytest.raises(UsageError, match=r"has 3 tasks; expected at least 4.*--ntasks=4"):
        slurm_tf_config(step(), parameter_servers=2)


def test_outside_of_slurm_there_is_no_step():
    assert read_step({}) is None
    assert task_count({}) == 1
    refuse_several_tasks({}, 1)


def test_a_batch_script_without_srun_is_refused_if_it_has_several_tasks():
    batch = {"SLURM_JOB_ID": "6", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"}
    with pytest.raises(UsageError, match="srun python SCRIPT"):
        read_step(batch)
    assert read_step({**batch, "SLURM_NTASKS": "1"}) is None


def test_several_tasks_that_train_alone_are_refused():
    environment = step_environment()
    with pytest.raises(UsageError, match=r"started 3 tasks.*create_strategy"):
        refuse_several_tasks(environment, 1)
    refuse_several_tasks(environment, 3)
    refuse_several_tasks({**environment, "SLURM_STEP_NUM_TASKS": "1"}, 1)


def test_a_heterogeneous_job_is_refused():
    with pytest.raises(UsageError, match="several components"):
        step(SLURM_HET_SIZE="2")


def test_tasks_that_slurm_placed_otherwise_are_refused():
    with pytest.raises(UsageError, match=r"runs tasks 1 on tn10; expected 2"):
        step(SLURM_GTIDS="1")


def test_nodes_and_counts_of_different_length_are_refused():
    with pytest.raises(UsageError, match="2 nodes but the tasks of 1"):
        step(SLURM_STEP_TASKS_PER_NODE="3")


# What Slurm 22.05 did with 4 tasks on nodes with room for 3 and 1.
@pytest.mark.parametrize(
    ("distribution", "plane", "places"),
    [
        ("block", 1, (0, 0, 0, 1)),
        ("block:cyclic", 1, (0, 0, 0, 1)),
        ("cyclic", 1, (0, 1, 0, 0)),
        ("plane", 2, (0, 0, 1, 0)),
        ("", 1, (0, 0, 0, 1)),
    ],
)
def test_tasks_are_placed_as_slurm_places_them(distribution, plane, places):
    assert task_places((3, 1), distribution, plane) == places


def test_an_arbitrary_distribution_is_refused():
    with pytest.raises(UsageError, match="arbitrarily"):
        task_places((1, 1), "arbitrary")


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=12),
    st.sampled_from(["block", "cyclic", "plane"]),
    st.integers(1, 10**7),
    st.integers(0, 5000),
)
def test_addresses_of_a_step_differ_and_are_in_the_safe_range(counts, distribution, job, number):
    places = task_places(counts, distribution, 2)
    assert [places.count(node) for node in range(len(counts))] == counts
    found = addresses([f"n{node}" for node in range(len(counts))], places, job, number)
    assert len(set(found)) == sum(counts)
    ports = [int(place.partition(":")[2]) for place in found]
    assert all(FIRST_PORT <= port < FIRST_PORT + PORT_COUNT for port in ports)
    assert found == addresses([f"n{node}" for node in range(len(counts))], places, job, number)


@given(st.integers(1, 10**7), st.integers(0, 100), st.integers(1, 64))
def test_consecutive_jobs_and_steps_on_a_node_have_other_ports(job, number, tasks):
    def ports(job: int, number: int) -> set[str]:
        return set(addresses(["n"], (0,) * tasks, job, number))

    assert ports(job, number).isdisjoint(ports(job, number + 1))
    assert ports(job, 0).isdisjoint(ports(job + 1, 0))


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_STEP_GPUS": "0,1,2,3"}, "0,1"),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3", "SLURM_LOCALID": "1"}, "2,3"),
        # With --gpus-per-task, Slurm has bound two GPUs of four to each task.
        (
            {
                "CUDA_VISIBLE_DEVICES": "2,3",
                "SLURM_STEP_GPUS": "2,3",
                "SLURM_GPUS_ON_NODE": "4",
                "SLURM_LOCALID": "1",
            },
            None,
        ),
        # With cgroups, the names of GPUs begin with 0 in each task.
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_GPUS_ON_NODE": "4", "SLURM_LOCALID": "1"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2", "SLURM_GPUS_ON_NODE": "3", "SLURM_LOCALID": "1"}, "1"),
        # A process can use only one MIG instance.
        ({"CUDA_VISIBLE_DEVICES": "MIG-a,MIG-b,MIG-c,MIG-d", "SLURM_LOCALID": "1"}, "MIG-b"),
        # One GPU for two tasks: nothing to share out.
        ({"CUDA_VISIBLE_DEVICES": "0", "SLURM_STEP_GPUS": "0"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}, None),
        ({}, None),
    ],
)
def test_tasks_on_a_node_share_its_gpus(changes, gpus):
    environment = {**step_environment(), "SLURM_STEP_TASKS_PER_NODE": "2(x2)", "SLURM_NODEID": "0"}
    assert own_gpus({**environment, **changes}) == gpus


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("login", ["login"]),
        ("n[9-10]", ["n9", "n10"]),
        ("c[10,9]", ["c10", "c9"]),
        ("a[1-2,07-08]x[1-2],b", ["a1x1", "a1x2", "a2x1", "a2x2", "a07x1", "a07x2", "a08x1",
                                  "a08x2", "b"]),
    ],
)  # fmt: skip
def test_hosts_are_expanded_as_scontrol_does(text, hosts):
    assert expand_hosts(text) == tuple(hosts)


@pytest.mark.parametrize("text", ["", "a[1-", "a[2-1]", "a[x]", "a[1-99999999]", "a],b", "a[[1]]"])
def test_damaged_lists_are_refused(text):
    with pytest.raises(UsageError, match="not a list that Slurm writes"):
        expand_hosts(text)


@pytest.mark.parametrize(
    ("text", "counts"), [("1", (1,)), ("2(x3),1", (2, 2, 2, 1)), ("16(x2),4(x1)", (16, 16, 4))]
)
def test_counts_are_expanded(text, counts):
    assert expand_counts(text) == counts


@pytest.mark.parametrize("text", ["", "a", "2(x0)", "2(x", "1,,2", "1(x99999999999)"])
def test_damaged_counts_are_refused(text):
    with pytest.raises(UsageError, match="not a list that Slurm writes"):
        expand_counts(text)


names = st.from_regex(r"[a-z][a-z-]{0,5}", fullmatch=True)
ranges = st.tuples(st.integers(0, 120), st.integers(0, 20), st.integers(1, 4))


@st.composite
def host_lists(draw):
    """A list in brackets, and the hosts in it."""
    texts, hosts = [], []
    for _ in range(draw(st.integers(1, 3))):
        text, choices = "", []
        for _ in range(draw(st.integers(0, 2))):
            name = draw(names)
            parts, numbers = [], []
            for first, more, width in draw(st.lists(ranges, min_size=1, max_size=3)):
                low = str(first).zfill(width)
                high = str(first + more).zfill(width)
                parts.append(f"{low}-{high}" if more else low)
                numbers += [str(n).zfill(len(low)) for n in range(first, first + more + 1)]
            text += f"{name}[{','.join(parts)}]"
            choices += [[name], numbers]
        end = draw(names)
        texts.append(text + end)
        hosts += ["".join(parts) for parts in product(*choices, [end])]
    return ",".join(texts), tuple(hosts)


@given(host_lists())
def test_every_list_of_hosts_is_expanded(drawn):
    text, hosts = drawn
    assert expand_hosts(text) == hosts


@given(st.text(alphabet="ab[]-,0129(x)", max_size=20))
def test_any_text_is_expanded_or_refused(text):
    for expand in (expand_hosts, expand_counts):
        try:
            assert expand(text)
        except UsageError:
            continue
