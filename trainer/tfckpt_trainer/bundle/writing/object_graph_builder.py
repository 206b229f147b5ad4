"""Makes the object graph of a new checkpoint from the names of its tensors."""

from __future__ import annotations

from collections.abc import Iterable

from tfckpt_trainer.bundle.object_graph import VALUE_ATTRIBUTE, Attribute, Node, unescaped

ATTRIBUTES = "/.ATTRIBUTES/"
VALUE_SUFFIX = f"{ATTRIBUTES}{VALUE_ATTRIBUTE}"
"""End of the tensor name of a variable; before it comes the path of the variable."""


def tensor_name(path: str) -> str:
    """Returns the name of the tensor of the variable at `path`."""
    return path if ATTRIBUTES in path else f"{path}{VALUE_SUFFIX}"


def variable_path(name: str) -> str:
    """Returns the path of the variable whose tensor has this name; other names as they are."""
    return name.removesuffix(VALUE_SUFFIX)


def build_object_graph(names: Iterable[str]) -> tuple[Node, ...]:
    """Returns a tree of objects with a tensor at each path.

    `tf.train.Checkpoint` restores it into objects whose attributes have the names of the paths.

    Args:
        names: Tensor names from `tensor_name`.
    """
    children: list[dict[str, int]] = [{}]
    attributes: list[list[Attribute]] = [[]]
    for name in names:
        path, _, attribute = name.rpartition(ATTRIBUTES)
        node = 0
        for part in filter(None, path.split("/")):
            following = children[node].setdefault(unescaped(part), len(children))
            if following == len(children):
                children.append({})
                attributes.append([])
            node = following
        attributes[node].append(Attribute(attribute, path.rpartition("/")[2], name))
    return tuple(
        Node(own, tuple(node_attributes), ())
        for own, node_attributes in zip(children, attributes, strict=True)
    )
