"""Classifiers trained here, and the logits they give to rows they have not seen.

Bundled data sets of scikit-learn and its generators need nothing. With a data folder there are more: 20 Newsgroups
(`20_newsgroup_19997.tar.xz`), Fashion-MNIST (test files), CIFAR-10 (binary version), vehicle insurance claims
(`fraud_oracle.csv`) and edits of a wiki (`editquality`, `training.tsv.bz2`).
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
from sklearn import datasets
from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from calibrators import logits_from_probabilities

_NEWS_HEADERS = ("from:", "subject:", "newsgroups:", "path:", "xref:", "message-id:", "organization:", "references:")


@dataclass(frozen=True, slots=True)
class DataSet:
    """Features and labels.

    Attributes:
        name: Of the data.
        rows: (N, F), dense or sparse.
        labels: (N,) 0 … K−1.
        train: Number of rows that classifiers learn from; the others get logits.
        models: Names in `MODELS`.
    """

    name: str
    rows: Any
    labels: npt.NDArray[np.int64]
    train: int
    models: tuple[str, ...]


def _boosted(rounds: int, leaves: int) -> Callable[[], Any]:
    return lambda: lightgbm.LGBMClassifier(
        n_estimators=rounds, num_leaves=leaves, n_jobs=1, verbose=-1, random_state=0, deterministic=True
    )


def _network(width: int, steps: int) -> Callable[[], Any]:
    net = MLPClassifier((width, width), max_iter=steps, alpha=0, tol=0, n_iter_no_change=steps, random_state=0)
    return lambda: make_pipeline(StandardScaler(with_mean=False), net)


MODELS: dict[str, Callable[[], Any]] = {
    "boosted": _boosted(100, 31),
    "boosted, long": _boosted(400, 63),
    "forest": lambda: RandomForestClassifier(100, n_jobs=1, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(100, min_samples_leaf=3, n_jobs=1, random_state=0),
    "logistic": lambda: make_pipeline(StandardScaler(with_mean=False), LogisticRegression(C=10.0, max_iter=200)),
    "network": _network(64, 30),
    "network, long": _network(128, 60),
    "naive Bayes": GaussianNB,
    "multinomial": lambda: MultinomialNB(alpha=0.01),
}


def data_sets(folder: Path | None) -> Iterator[DataSet]:
    """Yield data sets; those that need a folder only with one."""
    digits = datasets.load_digits()
    few = ("boosted", "forest", "logistic", "network", "naive Bayes")
    yield _shuffled("digits", digits.data, digits.target, 700, few)
    cancer = datasets.load_breast_cancer()
    yield _shuffled("breast cancer", cancer.data, cancer.target, 200, few)
    for share in (0.005, 0.02, 0.05, 0.2):
        rows, labels = datasets.make_classification(
            16_000, 20, n_informative=8, weights=[1 - share], flip_y=0.004, class_sep=0.8, random_state=1
        )
        models = ("boosted", "boosted, long", "forest", "naive Bayes")
        yield _shuffled(f"table, {share:.1%} positives", rows, labels, 8000, models)
    for classes, size in ((5, 6000), (30, 12_000), (100, 15_000)):
        rows, labels = datasets.make_classification(
            size, 40, n_informative=20, n_classes=classes, n_clusters_per_class=1, flip_y=0.02, random_state=2
        )
        yield _shuffled(f"{classes} clusters", rows, labels, size // 3, ("logistic", "forest", "network, long"))
    if folder is None:
        return
    yield _shuffled("claims", *_claims(folder / "vehicle-fraud" / "fraud_oracle.csv"), 7700, MODELS_OF_TABLES)
    yield _shuffled("edits", *_edits(folder / "edits" / "training.tsv.bz2"), 7500, MODELS_OF_TABLES)
    fashion = folder / "fashion-mnist"
    images = np.frombuffer(gzip.decompress((fashion / "t10k-images-idx3-ubyte.gz").read_bytes()), np.uint8, -1, 16)
    targets = np.frombuffer(gzip.decompress((fashion / "t10k-labels-idx1-ubyte.gz").read_bytes()), np.uint8, -1, 8)
    reduced = PCA(60, random_state=0).fit_transform(images.reshape(-1, 784) / 255.0)
    yield _shuffled("Fashion-MNIST", reduced, targets, 4000, ("boosted", "forest", "logistic", "network, long"))
    batch = np.fromfile(folder / "cifar-10-batches-bin" / "data_batch_1.bin", np.uint8).reshape(-1, 3073)
    reduced = PCA(80, random_state=0).fit_transform(batch[:, 1:] / 255.0)
    yield _shuffled("CIFAR-10", reduced, batch[:, 0], 4000, ("extra trees", "logistic", "network", "naive Bayes"))
    texts, groups = _newsgroups(folder / "newsgroups20" / "20_newsgroup_19997.tar.xz")
    words = TfidfVectorizer(max_features=20_000, sublinear_tf=True, stop_words="english").fit_transform(texts)
    yield _shuffled("20 Newsgroups", words, groups, 7000, ("multinomial", "sparse logistic", "sparse network"))


MODELS_OF_TABLES = ("boosted", "boosted, long", "forest", "logistic", "naive Bayes")
MODELS["sparse logistic"] = lambda: LogisticRegression(C=100.0, max_iter=60)
MODELS["sparse network"] = lambda: MLPClassifier((48,), max_iter=8, random_state=0)


def held_out(data: DataSet, model: str) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Train a classifier; return float32 logits (N, K) and labels (N,) of the rows it did not see."""
    fitted = MODELS[model]().fit(data.rows[: data.train], data.labels[: data.train])
    probabilities = np.asarray(fitted.predict_proba(data.rows[data.train :]), np.float64)
    return logits_from_probabilities(probabilities).astype(np.float32), data.labels[data.train :]


def _shuffled(name: str, rows: Any, labels: Any, train: int, models: tuple[str, ...]) -> DataSet:
    order = np.random.default_rng(0).permutation(len(labels))
    return DataSet(name, rows[order], np.asarray(labels, np.int64)[order], train, models)


def _claims(file: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    with file.open(encoding="utf-8") as held:
        lines = list(csv.DictReader(held))
    names = [name for name in lines[0] if name not in ("FraudFound_P", "PolicyNumber")]
    cells = np.array([[line[name] for name in names] for line in lines])
    return OrdinalEncoder().fit_transform(cells), np.array([int(line["FraudFound_P"]) for line in lines])


def _edits(file: Path) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    words = {"True": 1.0, "False": 0.0}
    lines = [line.split("\t")[1:] for line in bz2.decompress(file.read_bytes()).decode().splitlines()]
    cells = np.array([[words[cell] if cell in words else float(cell) for cell in line] for line in lines])
    return cells[:, :-1], cells[:, -1].astype(np.int64)


def _newsgroups(file: Path) -> tuple[list[str], list[int]]:
    texts, groups = [], []
    names: dict[str, int] = {}
    with tarfile.open(file) as held:
        for member in held:
            if not member.isfile():
                continue
            post = held.extractfile(member) or io.BytesIO()
            body = post.read().decode("latin-1").partition("\n\n")[2]
            texts.append("\n".join(line for line in body.splitlines() if not line.lower().startswith(_NEWS_HEADERS)))
            groups.append(names.setdefault(member.name.split("/")[-2], len(names)))
    return texts, groups
