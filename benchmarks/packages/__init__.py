"""The packages and their jobs. Packages are imported only in their own environments, when a job is made."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.packages import netcal, of_one_method, ours, probcal, probmetrics, scikit_learn, torch_uncertainty
from benchmarks.packages.job import Jobs, Maker


@dataclass(frozen=True)
class Package:
    """A package.

    Attributes:
        jobs: Its jobs.
        install: pip's arguments for its environment; empty for ours, which runs in the current interpreter.
    """

    jobs: Jobs
    install: tuple[str, ...] = ()

    def variants(self, job: str, data: str) -> dict[str, Maker]:
        """Return its jobs for one row, by variant of its settings."""
        return self.jobs.get(f"{job}/{data}") or self.jobs.get(job, {})


OURS = "ours"
PACKAGES: dict[str, Package] = {
    OURS: Package(ours.JOBS),
    "netcal": Package(netcal.JOBS, ("netcal",)),
    "scikit-learn": Package(scikit_learn.JOBS, ("scikit-learn>=1.8",)),
    "probmetrics": Package(probmetrics.JOBS, ("probmetrics", "numba")),
    "torch-uncertainty": Package(torch_uncertainty.JOBS, ("torch-uncertainty[cpu]", "scikit-learn")),
    "probcal": Package(probcal.JOBS, ("probcal==0.4.0",)),
    "betacal": Package(of_one_method.BETACAL, ("betacal",)),
    "venn-abers": Package(of_one_method.VENN_ABERS, ("venn-abers==1.5.4",)),
    "splinecalib": Package(of_one_method.SPLINECALIB, ("splinecalib",)),
    "relplot": Package(of_one_method.RELPLOT, ("relplot",)),
    "uncertainty-calibration": Package(of_one_method.UNCERTAINTY_CALIBRATION, ("uncertainty-calibration",)),
}
