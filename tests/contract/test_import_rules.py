"""The import contracts of pyproject.toml catch what they are there to catch."""

from __future__ import annotations

import pytest
from grimp import ImportGraph, build_graph

from tests.contract.import_rules import escapes, trespasses


def graph_of(*imports: tuple[str, str]) -> ImportGraph:
    graph = ImportGraph()
    for importer, imported in imports:
        graph.add_import(importer=importer, imported=imported, line_number=7, line_contents="import x")
    return graph


def test_confined_allows_itself_the_standard_library_and_the_list() -> None:
    graph = graph_of(
        ("scoutd.shim.a", "scoutd.shim.b"),
        ("scoutd.shim.a", "mmap"),
        ("scoutd.shim.a", "torch"),
        ("scoutd.daemon.x", "grpc"),
    )
    assert escapes(graph, {"scoutd.shim"}, {"torch"}) == []


@pytest.mark.parametrize(
    "imported", ["grpc", "google.protobuf", "scoutd.daemon.x", "scoutd.proto.v1", "torchvision"]
)
def test_confined_catches_everything_else(imported: str) -> None:
    graph = graph_of(("scoutd.shim.a", imported))
    found = escapes(graph, {"scoutd.shim"}, {"torch", "scoutd.proto.shm"})
    assert found == [("scoutd.shim.a", imported, [7])]


def test_reserved_catches_other_importers_only() -> None:
    graph = graph_of(
        ("scoutd.daemon.cli.run", "rich"),
        ("scoutd.daemon.loop", "rich"),
        ("scoutd.daemon.loop", "asyncio"),
    )
    assert trespasses(graph, {"rich"}, {"scoutd.daemon.cli"}) == [("scoutd.daemon.loop", "rich", [7])]


def test_the_graph_sees_every_package_and_its_external_imports() -> None:
    """The mapping of folders to scoutd.* must not make the linter look at an empty graph."""
    graph = build_graph(
        "scoutd.agent",
        "scoutd.daemon",
        "scoutd.proto",
        "scoutd.shim",
        include_external_packages=True,
        cache_dir=None,
    )
    assert {"scoutd.agent.evidence", "scoutd.proto.shm", "scoutd.proto.v1.query_pb2"} <= graph.modules
    assert "struct" in graph.find_modules_directly_imported_by("scoutd.proto.shm")
    assert "scoutd.agent.evidence" in graph.find_modules_directly_imported_by("scoutd.agent.verdict")
