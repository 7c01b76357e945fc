"""A contract for import-linter: no package imports a private module of another one."""

from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class PrivateModules(Contract):
    """Modules whose name begins with an underscore are imported from within their own package only.

    Options
    -------
    shared : list of str
        Packages and modules that all others may import from.
    """

    type_name = "private_modules"
    shared = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = [
            (importer, imported)
            for importer in sorted(graph.modules)
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if self._is_foreign(importer, imported)
        ]
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        broken: list[Any] = check.metadata["broken"]
        for importer, imported in broken:
            output.print_error(f"{importer} imports the private module {imported}")

    def _is_foreign(self, importer: str, imported: str) -> bool:
        root, *inside = imported.split(".")
        private = [place for place, name in enumerate(inside) if name[0] == "_" and name[:2] != "__"]
        if root != "frhsic" or not private or any(imported.startswith(name) for name in self.shared):
            return False
        package = ".".join([root, *inside[: private[0]]])
        return not (importer == package or importer.startswith(f"{package}."))
