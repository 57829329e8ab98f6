"""The reference tables of docs/operations.md name exactly what the code has."""

from __future__ import annotations

import re
from pathlib import Path

from scoutd.daemon.config import keys
from scoutd.daemon.serve.metrics import Metrics

DOCS = Path(__file__).parents[2] / "docs"


def table(name: str) -> list[list[str]]:
    """The cells of the marked table's rows, without its head."""
    text = (DOCS / "operations.md").read_text()
    (body,) = re.findall(rf"<!-- {name}: .*? -->\n(.*?)<!-- end -->", text, re.DOTALL)
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in body.splitlines()[2:]]


def test_every_configuration_key() -> None:
    told = {row[0]: row[1] for row in table("configuration")}
    assert told == {key.path: key.env for key in keys()}


def test_defaults() -> None:
    told = {row[0]: row[2] for row in table("configuration")}
    true = {key.path: f"{key.default:g}" if key.kind != "str" else key.default for key in keys()}
    assert {path: told[path] for path in told if true[path]} == {
        path: text for path, text in true.items() if text
    }


def test_every_metric() -> None:
    told = {row[0]: {label for label in row[1].split(", ") if label} for row in table("metrics")}
    metrics = Metrics(list, lambda: 0, "1", "3")
    text = metrics.exposition().decode()
    names = {
        f"{name}_total" if kind == "counter" and not name.endswith("_total") else name
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    }
    assert set(told) == names


def test_links_lead_somewhere() -> None:
    for page in [*DOCS.rglob("*.md"), DOCS.parent / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
