"""Our calibrators beside other packages: how long a fit takes, and whether it reached the optimum.

Each peer lives in a virtual environment of its own under a cache folder, made on the first run; one that cannot be
installed is skipped, and the table says why. Ours and theirs run in turns in one run of this script, each in a process
of its own with one thread; the table shows the fastest of all turns. A fit whose mean NLL on its own rows is more than
1e-4 above the best of its row in the table has not reached the optimum, and is shown in brackets.

    OMP_NUM_THREADS=1 python benchmarks/calibrators.py --write benchmarks/RESULTS.md

Data sets, all float32 logits with a true temperature of 1.5: (a) 5,000 × 10, (b) 25,000 × 1,000, (c) 1,000,000 × 2 with
4 % positives.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import venv
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "candor-benchmarks"
SETS = {"a": "5,000 × 10", "b": "25,000 × 1,000", "c": "1,000,000 × 2"}
TEMPERATURE = 1.5
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# A process that fits gives up after this; a slower peer is shown as such.
SECONDS_A_TASK = 400
# What takes longer than this, in milliseconds, has one turn.
LONG = 10_000
OPTIMUM_SLACK = 1e-4


@dataclass(frozen=True)
class Task:
    """One cell of the table: what to do with which data set."""

    name: str
    data: str
    note: str = ""


TASKS = [
    *(Task("temperature", data) for data in SETS),
    *(Task("vector", data) for data in SETS),
    Task("platt", "c"),
    Task("beta", "c"),
    Task("isotonic", "c"),
    Task("histogram", "c"),
    *(Task("predict", data) for data in SETS),
    *(Task("ece", data) for data in SETS),
    Task("smooth_ece", "c"),
]

Job = tuple[Callable[[], object], Callable[[], np.ndarray] | None]
"""What to time, and what gives the calibrated probabilities afterwards."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cache", type=Path, default=CACHE, help="where peers are installed")
    options.add_argument("--rounds", type=int, default=3, help="turns that ours and each peer take")
    options.add_argument("--only", help="a part of the tasks' names, such as temperature")
    options.add_argument("--write", type=Path, help="a Markdown file for the table")
    options.add_argument("--worker", nargs=3, metavar=("WHO", "TASK", "DATA"), help=argparse.SUPPRESS)
    options.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.worker:
        print(json.dumps(work(*arguments.worker, arguments.folder)))
        return
    tasks = [task for task in TASKS if arguments.only is None or arguments.only in task.name]
    pythons, skipped = install(arguments.cache)
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        results = run(tasks, pythons, Path(folder), arguments.rounds)
    report = table(tasks, results, pythons, skipped, arguments.rounds)
    print(report)
    if arguments.write:
        arguments.write.write_text(report, encoding="utf-8")


def write_data(folder: Path) -> None:
    """Three worlds whose true probabilities are softmax(logits / 1.5)."""
    rng = np.random.default_rng(0)
    for name, rows, classes in (("a", 5_000, 10), ("b", 25_000, 1_000)):
        logits = rng.normal(0, 3, (rows, classes)).astype(np.float32)
        labels = np.empty(rows, np.int64)
        for start in range(0, rows, 1_000):
            part = logits[start : start + 1_000]
            labels[start : start + 1_000] = np.argmax(part / TEMPERATURE + rng.gumbel(size=part.shape), axis=1)
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels)
    margin = rng.normal(-7.0, 3.0, 1_000_000)
    labels = (rng.random(len(margin)) < 1 / (1 + np.exp(-margin / TEMPERATURE))).astype(np.int64)
    shift = rng.normal(0, 1, len(margin))
    np.savez(folder / "c.npz", logits=np.stack([shift, shift + margin], axis=1).astype(np.float32), labels=labels)


# Running


@dataclass
class Result:
    """What one package did at one task; `nll` where it fits something."""

    milliseconds: float = math.inf
    nll: float | None = None
    missing: str = ""
    seen: list[float] = field(default_factory=list)


def install(cache: Path) -> tuple[dict[str, Path], dict[str, str]]:
    """An interpreter for each peer, and why others have none."""
    pythons, skipped = {"ours": Path(sys.executable)}, {}
    for peer, packages in PEERS.items():
        folder = cache / peer
        python = folder / "bin" / "python"
        if not python.exists():
            print(f"installing {peer} into {folder}", file=sys.stderr)
            venv.create(folder, with_pip=True)
        done = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            pythons[peer] = python
        else:
            skipped[peer] = (done.stderr.strip().splitlines() or ["pip failed"])[-1][:160]
    return pythons, skipped


def run(tasks: list[Task], pythons: dict[str, Path], folder: Path, rounds: int) -> dict[tuple[str, Task], Result]:
    """Every task by everyone who can, in turns."""
    results = {(who, task): Result() for who in pythons for task in tasks}
    for number in range(rounds):
        for task in tasks:
            for who, python in pythons.items():
                result = results[who, task]
                if result.seen and result.milliseconds > LONG:
                    continue
                if task.name not in JOBS[who] or result.missing:
                    result.missing = result.missing or "–"
                    continue
                print(f"turn {number + 1}: {task.name} ({task.data}) by {who}", file=sys.stderr)
                take_turn(result, who, task, python, folder)
    return results


def take_turn(result: Result, who: str, task: Task, python: Path, folder: Path) -> None:
    command = [python, __file__, "--worker", who, task.name, task.data, "--folder", folder]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT) if who == "ours" else ""}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=SECONDS_A_TASK, env=environment
        )
    except subprocess.TimeoutExpired:
        result.missing = f"over {SECONDS_A_TASK} s"
        return
    except subprocess.CalledProcessError as error:
        result.missing = "failed: " + (error.stderr.strip().splitlines() or ["?"])[-1][:80]
        return
    answer = json.loads(done.stdout.splitlines()[-1])
    result.seen.append(answer["milliseconds"])
    result.milliseconds = min(result.seen)
    result.nll = answer["nll"]


def work(who: str, task: str, data: str, folder: Path) -> dict[str, float | None]:
    """In the process of one package: the fastest of several calls, and the NLL of what was fitted."""
    warnings.simplefilter("ignore")
    sys.path = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]
    held = np.load(folder / f"{data}.npz")
    logits, labels = held["logits"], held["labels"]
    timed, probabilities = JOBS[who][task](logits, labels)
    best, began = math.inf, time.perf_counter()
    for number in range(200):
        start = time.perf_counter()
        timed()
        best = min(best, time.perf_counter() - start)
        # At least three calls where they are short, one where it is long, some two seconds in all.
        if time.perf_counter() - began > (2 if number >= 2 else 10):
            break
    nll = None
    if probabilities is not None:
        own = np.asarray(probabilities(), np.float64)[np.arange(len(labels)), labels]
        nll = float(-np.mean(np.log(np.maximum(own, 1e-300))))
    return {"milliseconds": best * 1e3, "nll": nll}


# What is timed. A job prepares its package's own input type untimed, and fits a fresh object at each call.


def ours(name: str) -> Callable[[np.ndarray, np.ndarray], Job]:
    def job(logits: np.ndarray, labels: np.ndarray) -> Job:
        from calibrators import CALIBRATORS

        kept = {}

        def fit() -> None:
            kept["fitted"] = CALIBRATORS[name]().fit(logits, labels)

        return fit, lambda: kept["fitted"].predict_proba(logits)

    return job


def ours_predict(logits: np.ndarray, labels: np.ndarray) -> Job:
    from calibrators import Temperature

    fitted, out = Temperature().fit(logits, labels), np.empty_like(logits)
    return lambda: fitted.predict_proba(logits, out=out), None


def ours_metric(name: str) -> Callable[[np.ndarray, np.ndarray], Job]:
    def job(logits: np.ndarray, labels: np.ndarray) -> Job:
        from calibrators import metrics, softmax

        probabilities = softmax(logits)
        return lambda: getattr(metrics, name)(probabilities, labels), None

    return job


def netcal_fit(name: str) -> Callable[[np.ndarray, np.ndarray], Job]:
    """Takes probabilities, as netcal does; of two classes that of the second alone."""

    def job(logits: np.ndarray, labels: np.ndarray) -> Job:
        from netcal import binning, scaling

        probabilities = plain_softmax(logits.astype(np.float64))
        values = probabilities[:, 1] if logits.shape[1] == 2 else probabilities
        kept = {}

        def fit() -> None:
            kept["fitted"] = getattr(scaling, name, None) or getattr(binning, name)
            kept["fitted"] = kept["fitted"](bins=15) if name == "HistogramBinning" else kept["fitted"]()
            kept["fitted"].fit(values, labels)

        return fit, lambda: both(kept["fitted"].transform(values))

    return job


def netcal_ece(logits: np.ndarray, labels: np.ndarray) -> Job:
    from netcal.metrics import ECE

    probabilities = plain_softmax(logits.astype(np.float64))
    values = probabilities[:, 1] if logits.shape[1] == 2 else probabilities
    return lambda: ECE(15).measure(values, labels), None


def sklearn_temperature(logits: np.ndarray, labels: np.ndarray) -> Job:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    scores = logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits
    classifier = FrozenEstimator(scores_classifier(logits.shape[1]))
    kept = {}

    def fit() -> None:
        kept["fitted"] = CalibratedClassifierCV(classifier, method="temperature").fit(scores_column(scores), labels)

    return fit, lambda: kept["fitted"].predict_proba(scores_column(scores))


def sklearn_platt(logits: np.ndarray, labels: np.ndarray) -> Job:
    from sklearn.linear_model import LogisticRegression

    margin = (logits[:, 1] - logits[:, 0])[:, None]
    kept = {}

    def fit() -> None:
        kept["fitted"] = LogisticRegression(C=1e8, solver="newton-cholesky", tol=1e-6).fit(margin, labels)

    return fit, lambda: kept["fitted"].predict_proba(margin)


def sklearn_isotonic(logits: np.ndarray, labels: np.ndarray) -> Job:
    from sklearn.isotonic import IsotonicRegression

    margin = logits[:, 1] - logits[:, 0]
    kept = {}

    def fit() -> None:
        kept["fitted"] = IsotonicRegression(out_of_bounds="clip").fit(margin, labels)

    return fit, lambda: both(kept["fitted"].predict(margin))


def scipy_predict(logits: np.ndarray, labels: np.ndarray) -> Job:  # noqa: ARG001
    from scipy import special

    return lambda: special.softmax(logits / np.float32(TEMPERATURE), axis=1), None


def probmetrics_fit(name: str) -> Callable[[np.ndarray, np.ndarray], Job]:
    def job(logits: np.ndarray, labels: np.ndarray) -> Job:
        import torch
        from probmetrics import calibrators
        from probmetrics.distributions import CategoricalLogits

        torch.set_num_threads(1)
        values, truth = CategoricalLogits(torch.from_numpy(logits)), torch.from_numpy(labels)
        kept = {}

        def fit() -> None:
            kept["fitted"] = getattr(calibrators, name)().fit_torch(values, truth)

        return fit, lambda: kept["fitted"].predict_proba_torch(values).get_probs().numpy()

    return job


def probmetrics_predict(logits: np.ndarray, labels: np.ndarray) -> Job:
    import torch
    from probmetrics.calibrators import TemperatureScalingCalibrator
    from probmetrics.distributions import CategoricalLogits

    torch.set_num_threads(1)
    values = CategoricalLogits(torch.from_numpy(logits))
    fitted = TemperatureScalingCalibrator().fit_torch(values, torch.from_numpy(labels))
    return lambda: fitted.predict_proba_torch(values).get_probs().numpy(), None


def scores_column(scores: np.ndarray) -> np.ndarray:
    return scores[:, None] if scores.ndim == 1 else scores


def scores_classifier(classes: int) -> object:
    """A fitted classifier whose inputs are its scores."""
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Scores(ClassifierMixin, BaseEstimator):
        def __init__(self) -> None:
            self.classes_ = np.arange(classes)

        def fit(self, inputs: np.ndarray, labels: np.ndarray) -> Scores:  # noqa: ARG002
            return self

        def predict(self, inputs: np.ndarray) -> np.ndarray:
            return (inputs[:, 0] > 0).astype(int) if classes == 2 else inputs.argmax(axis=1)

        def decision_function(self, inputs: np.ndarray) -> np.ndarray:
            return inputs[:, 0] if classes == 2 else inputs

    return Scores()


def plain_softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def both(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values)
    if values.ndim == 2 and values.shape[1] > 1:
        return values
    return np.stack([1 - values.ravel(), values.ravel()], axis=1)


PEERS = {"netcal": ["netcal"], "scikit-learn": ["scikit-learn>=1.8"], "probmetrics": ["probmetrics", "numba"]}
JOBS: dict[str, dict[str, Callable[[np.ndarray, np.ndarray], Job]]] = {
    "ours": {
        **{name: ours(name) for name in ("temperature", "vector", "platt", "beta", "isotonic", "histogram")},
        "predict": ours_predict,
        "ece": ours_metric("expected_calibration_error"),
        "smooth_ece": ours_metric("smooth_calibration_error"),
    },
    "netcal": {
        "temperature": netcal_fit("TemperatureScaling"),
        "platt": netcal_fit("LogisticCalibration"),
        "beta": netcal_fit("BetaCalibration"),
        "histogram": netcal_fit("HistogramBinning"),
        "ece": netcal_ece,
    },
    "scikit-learn": {
        "temperature": sklearn_temperature,
        "platt": sklearn_platt,
        "isotonic": sklearn_isotonic,
        "predict": scipy_predict,
    },
    "probmetrics": {
        "temperature": probmetrics_fit("TemperatureScalingCalibrator"),
        "vector": probmetrics_fit("VectorScalingCalibrator"),
        "predict": probmetrics_predict,
    },
}
# Fits of a convex likelihood, whose NLL says whether the optimum was reached.
LIKELIHOOD = {"temperature", "vector", "platt", "beta"}


# The report


def table(
    tasks: list[Task],
    results: dict[tuple[str, Task], Result],
    pythons: dict[str, Path],
    skipped: dict[str, str],
    rounds: int,
) -> str:
    peers = [who for who in pythons if who != "ours"]
    lines = [
        "# Calibrators beside other packages",
        "",
        "Milliseconds, the fastest of all calls in "
        f"{rounds} turns; one process, one thread. The machine was shared with other work, so read ratios, not times.",
        "Brackets: the fit did not reach the optimum (mean NLL more than 1e-4 above the best of its row), or answers "
        "another question; it does not count for the ratio.",
        "",
        "| task | data | ours | " + " | ".join(peers) + " | ratio to the fastest peer |",
        "|---|---|---" + "|---" * len(peers) + "|---|",
    ]
    for task in tasks:
        row = {who: results[who, task] for who in pythons}
        values = [result.nll for result in row.values() if result.nll is not None]
        least = min(values, default=math.nan)

        def reached(who: str, row: dict[str, Result] = row, least: float = least, task: Task = task) -> bool:
            nll = row[who].nll
            return math.isfinite(row[who].milliseconds) and not (
                task.name in LIKELIHOOD and nll is not None and not nll <= least + OPTIMUM_SLACK
            )

        cells = []
        for who, result in row.items():
            text = result.missing if not result.seen else f"{result.milliseconds:,.3g}"
            if result.seen and not reached(who):
                text = f"({text}; NLL +{result.nll - least:.1e})"
            cells.append(text)
        rivals = [row[who].milliseconds for who in peers if reached(who)]
        ratio = f"{min(rivals) / row['ours'].milliseconds:.1f}×" if rivals and row["ours"].seen else "–"
        lines.append(f"| {task.name} | ({task.data}) {SETS[task.data]} | " + " | ".join(cells) + f" | {ratio} |")
    lines += [
        "",
        "`predict`: temperature scaling of all rows, ours into a given array; scikit-learn's column is scipy's softmax "
        "of logits / T. `platt` by scikit-learn: unregularised logistic regression, Newton's method. `ece` by netcal "
        "with two classes is that of the second class, not of the top label; so is its `histogram`. netcal takes "
        "float64 probabilities.",
        "Where the ratio is below 1× ours is the slower one.",
        "",
        "## How",
        "",
        "- Command: `OMP_NUM_THREADS=1 python benchmarks/calibrators.py "
        f"--rounds {rounds} --write benchmarks/RESULTS.md`",
        f"- Hardware: {processor()}, {os.cpu_count()} cores; {platform.system()}",
        f"- Ours: Python {platform.python_version()}, " + ", ".join(map(version, ("numpy", "scipy"))),
    ]
    for who in peers:
        lines.append(f"- {who}: {peer_versions(pythons[who], who)}")
    lines += [f"- {who} was skipped: {reason}" for who, reason in skipped.items()]
    return "\n".join(lines) + "\n"


def version(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def peer_versions(python: Path, peer: str) -> str:
    code = (
        "import importlib.metadata as m\n"
        f"for p in ({peer!r}, 'numpy', 'scipy', 'torch'):\n"
        "    try: print(p, m.version(p))\n"
        "    except m.PackageNotFoundError: pass"
    )
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False).stdout
    return ", ".join(dict.fromkeys(found.splitlines()))


def processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
