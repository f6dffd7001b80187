"""Names in an ONNX model: inputs and outputs as an agent calls them, and nothing else so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_INSIDE = "inside/"


def name_ports(graph: Any, ports: dict[str, str]) -> None:
    """Rename a graph's inputs and outputs.

    An entry of an observation may have any name, also one that the exporter gave to a value inside
    the graph, such as `linear`; then all values inside get a prefix.

    Args:
      graph: an ONNX `GraphProto`; it is changed.
      ports: name so far -> new name.
    """
    wanted, prefix = set(ports.values()), ""
    if any(name in wanted for name in _names(graph) if name not in ports):
        prefix = _INSIDE
        while any(name.startswith(prefix) for name in wanted):
            prefix = f"_{prefix}"

    def rename(name: str) -> str:
        # An input that a node does without has an empty name.
        return ports.get(name, f"{prefix}{name}" if name else "")

    _rename(graph, rename)


def _names(graph: Any) -> Iterator[str]:
    """Of all values, those of graphs inside nodes too."""
    for value in (*graph.input, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from node.output
        for inner in _inner(node):
            yield from _names(inner)


def _rename(graph: Any, rename: Callable[[str], str]) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        value.name = rename(value.name)
    for node in graph.node:
        node.input[:] = [rename(name) for name in node.input]
        node.output[:] = [rename(name) for name in node.output]
        for inner in _inner(node):
            _rename(inner, rename)


def _inner(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
