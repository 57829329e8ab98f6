"""Strongly connected components of a graph of ranks and places: who waits for whom in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Node = tuple[str, object]
"""("rank", rank) or ("place", (group, sequence))."""


def components(edges: Mapping[Node, Iterable[Node]]) -> list[list[Node]]:
    """Every component, each after those that it leads to (Tarjan). No recursion: a cluster is deeper than a
    stack."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    on_path: set[Node] = set()
    path: list[Node] = []
    found: list[list[Node]] = []
    for start in edges:
        if start in index:
            continue
        work = [(start, iter(edges.get(start, ())))]
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        while work:
            node, targets = work[-1]
            target = next(targets, None)
            if target is None:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == index[node]:
                    found.append(_cut(path, on_path, node))
            elif target not in index:
                index[target] = low[target] = len(index)
                path.append(target)
                on_path.add(target)
                work.append((target, iter(edges.get(target, ()))))
            elif target in on_path:
                low[node] = min(low[node], index[target])
    return found


def _cut(path: list[Node], on_path: set[Node], root: Node) -> list[Node]:
    component: list[Node] = []
    while True:
        node = path.pop()
        on_path.discard(node)
        component.append(node)
        if node == root:
            return component
