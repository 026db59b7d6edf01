"""`candor import … --policy`: lint a policy before the import, and certify it on the new bundle."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, final

import typer
from rich.markup import escape

from service.commands.local import settings_of
from service.commands.output import REFUSED, USAGE, complaints, console, replace_file, reporting
from service.commands.policy import certified, print_findings, solve_and_print

if TYPE_CHECKING:
    from candor.contract.policies import Policy


@final
class ImportedPolicy:
    """The policy of an import. It goes to CANDOR_POLICIES, else to the folder `policies` beside that of the bundles.

    Args:
        file: Policy in YAML or JSON.
        model: Name of the model.
        bundles: Folder of bundles.

    Raises:
        typer.Exit: The policy, or one that is already in the folder, cannot be used; standard error says why.
    """

    def __init__(self, file: Path, model: str, bundles: Path) -> None:
        from service.serving.policy_files import read_policy

        self._file, self._bundles = file, bundles
        with reporting():
            self._folder: Path = settings_of({}).policies or Path(os.path.normpath(bundles / "../policies"))
            self._policy = read_policy(file)
            self._place = _place(self._folder / model, self._policy)
        self._lint(None)

    def of(self, model: str) -> ImportedPolicy:
        """Return the same policy for another model."""
        return ImportedPolicy(self._file, model, self._bundles)

    def check(self, labels: Sequence[str], sharing: int = 1) -> None:
        """Refuse a policy that does not fit the labels of the model, or the number of labels that share delta."""
        from service.decisions.policy import check_labels, check_shared

        with reporting():
            check_labels(self._policy, labels)
            check_shared(self._policy, sharing)
        self._lint(len(labels))
        console.print(f"policy {escape(self._policy.id)}: no problems found")

    def attach(self, bundle: Path) -> None:
        """Certify the policy on the bundle's reference rows, and put it where the service reads it.

        A segment whose promises are not certified is said; the others decide, as in the service.

        Raises:
            typer.Exit: A promise for all rows, or every segment, cannot be certified; the policy stays where it is.
        """
        try:
            solved = solve_and_print(self._file, bundle=bundle)
            parts = solved.segments
            some = any(part.certified for part in parts.values()) and all(one.valid for one in solved.sets.values())
            if not certified(solved) and not some:
                raise typer.Exit(REFUSED)  # noqa: TRY301 — told as an unusable policy is
        except typer.Exit:
            from candor.contract.policies import TOP

            suggest = ["candor", "policy", "suggest"]
            positive = "LABEL" if self._policy.positive == TOP else self._policy.positive
            complaints.print(
                f"The bundle is written. The policy was not copied to {escape(str(self._folder))}. Promises that these "
                f"rows can certify: {escape(shlex.join([*suggest, str(bundle), '--positive', positive]))}",
                soft_wrap=True,
            )
            raise
        for value in (value for value, part in parts.items() if not part.certified):
            complaints.print(
                f"[yellow]Warning[/yellow]: segment {escape(value)} is not certified. All of its rows go to review "
                "until a recalibration on traffic certifies it.",
                soft_wrap=True,
            )
        if not (self._place.exists() and self._place.samefile(self._file)):
            with reporting():
                replace_file(self._place, self._file.read_bytes())
        folders = ["--bundles", str(self._bundles), "--policies", str(self._folder)]
        console.print(f"policy: {escape(str(self._place))}", soft_wrap=True)
        console.print(f"Next: {escape(shlex.join(['candor', 'serve', *folders]))}", soft_wrap=True, highlight=False)

    def _lint(self, classes: int | None) -> None:
        from service.decisions.lint import lint

        findings = [found for found in lint(self._policy, classes=classes) if found.level == "problem"]
        if findings:
            print_findings(findings, complaints)
            raise typer.Exit(USAGE)


def provide(context: typer.Context) -> None:
    """Give `candor import` what reads and certifies policies."""
    context.obj = ImportedPolicy


def _place(folder: Path, policy: Policy) -> Path:
    """Return the file of a model's folder that has this policy; a new one if none has it.

    Raises:
        PolicyError: A file of the folder is not a usable policy.
    """
    from service.serving.policy_files import policy_files, read_policy

    found = (path for path in policy_files(folder) if read_policy(path).id == policy.id)
    return next(found, folder / f"{policy.id}.yaml")
