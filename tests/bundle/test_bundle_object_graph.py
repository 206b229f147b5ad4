"""Object graphs that are sound by their checksums and absurd in what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundle_writing import GRAPH_KEY, Object, array, graph, key_of, strings, variable, write
from tfckpt_trainer.bundle import object_graph
from tfckpt_trainer.bundle.object_graph import read_object_graph
from tfckpt_trainer.bundle.verify import verify
from tfckpt_trainer.errors import BundleError


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "ckpt"


def graph_of(prefix: Path, slot: tuple[int, str, int]) -> Path:
    """The checkpoint of `v` and its slot `m`; the optimizer's object says what the slot is."""
    nodes = [
        Object(children={"v": 1, "optimizer": 2}),
        Object(attributes=[variable("v")]),
        Object(slots=[slot]),
        Object(attributes=[variable("m")]),
    ]
    value = array([1.0, 2.0])
    write(prefix, {key_of("v"): value, key_of("m"): value, GRAPH_KEY: graph(nodes)})
    return prefix


@pytest.mark.parametrize("slot", [(1, "m", 99), (77, "m", 3), (1, "m", -3)])
def test_a_slot_of_an_object_that_is_not_there(prefix, slot):
    """TensorFlow raises an IndexError, or leaves the optimizer as it was and says nothing."""
    graph_of(prefix, slot)
    strange = next(one for one in (slot[0], slot[2]) if not 0 <= one < 4)
    with pytest.raises(BundleError, match=f"refers to object {strange} of 4"):
        read_object_graph(prefix)
    assert [finding.kind for finding in verify(prefix).findings] == ["object-graph"]


def test_a_slot_of_objects_that_are_there(prefix):
    nodes = read_object_graph(graph_of(prefix, (1, "m", 3)))
    assert [(s.variable_node, s.slot_node) for s in nodes[2].slot_variables] == [(1, 3)]
    assert verify(prefix).findings == ()


@pytest.mark.parametrize(
    "field",
    [b"\x11" + b"\x01" * 8, b"\x10\x07", b"\x15abcd"],
    ids=["eight-bytes", "number", "four-bytes"],
)
def test_a_name_of_another_wire_type_is_no_name(prefix, field):
    """As a parser of protocol buffers has it: a field of the wrong type is unknown."""
    child = b"\x08\x00" + field
    node = b"\x0a" + bytes([len(child)]) + child
    text = b"\x0a" + bytes([len(node)]) + node
    write(prefix, {GRAPH_KEY: strings([text], shape=())})
    assert read_object_graph(prefix)[0].children == {"": 0}


def test_a_number_of_another_wire_type_is_no_number(prefix):
    child = b"\x0d\x63\x00\x00\x00" + b"\x12\x01a"
    node = b"\x0a" + bytes([len(child)]) + child
    text = b"\x0a" + bytes([len(node)]) + node
    write(prefix, {GRAPH_KEY: strings([text], shape=())})
    assert read_object_graph(prefix)[0].children == {"a": 0}


def test_an_object_graph_of_absurd_size_is_not_read(prefix, monkeypatch):
    monkeypatch.setattr(object_graph, "SIZE_LIMIT", 1000)
    write(prefix, {GRAPH_KEY: strings([b"\x0a\x00" * 1000], shape=())})
    with pytest.raises(BundleError, match=r"object graph has 20\d\d bytes"):
        read_object_graph(prefix)
