"""Two contract types for import-linter that say what its own ones cannot.

``confined``: modules import nothing but themselves, the standard library and a short list. (The built-in
"forbidden" needs a list of everything else, which nobody can write.)
``reserved``: modules, external ones too, are imported directly by a short list of importers only.

Both look at direct imports; a chain is caught at the link that breaks a rule. Imports under
``if TYPE_CHECKING`` and inside functions count.
"""

from __future__ import annotations

import sys
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

Violations = list[tuple[str, str, list[int]]]
"""(importer, imported, line numbers)."""


def names(field: Any) -> set[str]:
    """The value of a declared field; the library's fields are descriptors that no type describes."""
    return set(field)


def is_within(module: str, packages: set[str]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def is_standard(module: str) -> bool:
    return module.split(".")[0] in sys.stdlib_module_names


def lines(graph: ImportGraph, importer: str, imported: str) -> list[int]:
    details: list[Any] = graph.get_import_details(importer=importer, imported=imported)
    return sorted(detail["line_number"] for detail in details)


def escapes(graph: ImportGraph, modules: set[str], allowed: set[str]) -> Violations:
    """Imports by ``modules`` of anything that is neither theirs, standard nor ``allowed``."""
    return [
        (importer, imported, lines(graph, importer, imported))
        for importer in sorted(graph.modules)
        if is_within(importer, modules)
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if not (is_within(imported, modules | allowed) or is_standard(imported))
    ]


def trespasses(graph: ImportGraph, modules: set[str], importers: set[str]) -> Violations:
    """Imports of ``modules`` by anyone but themselves and ``importers``."""
    return [
        (importer, imported, lines(graph, importer, imported))
        for importer in sorted(graph.modules)
        if not is_within(importer, modules | importers)
        for imported in sorted(graph.find_modules_directly_imported_by(importer))
        if is_within(imported, modules)
    ]


class _Direct(Contract):
    """What both types share: a set of modules and a way to print violations."""

    modules = fields.SetField(subfield=fields.StringField())

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, imported, numbers in check.metadata["violations"]:
            where = ", ".join(map(str, numbers))
            output.print_error(f"{importer} imports {imported} (line {where})", bold=False)


class Confined(_Direct):
    type_name = "confined"
    may_import = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = escapes(graph, names(self.modules), names(self.may_import))
        return ContractCheck(kept=not found, metadata={"violations": found})


class Reserved(_Direct):
    type_name = "reserved"
    only_for = fields.SetField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = trespasses(graph, names(self.modules), names(self.only_for))
        return ContractCheck(kept=not found, metadata={"violations": found})
