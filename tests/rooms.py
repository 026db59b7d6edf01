"""An import contract: the number of rooms of a package, and of arrows between them, stays within limits."""

from __future__ import annotations

from collections import defaultdict

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class Rooms(Contract):
    """Limit the rooms of a package: folders with modules, joined by an arrow where a module imports one of another."""

    type_name = "rooms"

    package = fields.StringField()
    most_rooms = fields.IntegerField()
    most_arrows = fields.IntegerField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Count rooms and arrows."""
        root = str(self.package)
        modules = {module for module in graph.modules if f"{module}.".startswith(f"{root}.")}
        rooms = {module: module if graph.find_children(module) else module.rpartition(".")[0] for module in modules}
        rooms[root] = root
        arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
        for module in sorted(modules):
            for other in sorted(graph.find_modules_directly_imported_by(module) & modules):
                if rooms[module] != rooms[other]:
                    arrows[rooms[module], rooms[other]].append(f"{module} -> {other}")
        found = {"rooms": len(set(rooms.values())), "arrows": len(arrows)}
        kept = found["rooms"] <= int(self.most_rooms) and found["arrows"] <= int(self.most_arrows)
        rare = sorted((imports for imports in arrows.values()), key=len)[:10]
        warnings = [f"{self.package}: {found['rooms']} rooms, {found['arrows']} arrows"]
        return ContractCheck(kept=kept, warnings=warnings if verbose else None, metadata={"found": found, "rare": rare})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print the counts, and the arrows that the fewest imports make."""
        found = check.metadata["found"]
        output.print_error(f"{self.package} has {found['rooms']} rooms and {found['arrows']} arrows between them.")
        output.print_error(f"Expected: at most {self.most_rooms} and {self.most_arrows}.")
        output.print_error("Move a function to the room where it belongs. The thinnest arrows:")
        for imports in check.metadata["rare"]:
            output.print_error(f"  {'; '.join(imports)}")
