"""Texts of your own: a folder for each class."""

from __future__ import annotations

import hashlib
from pathlib import Path

from training.data.class_folders import class_folders
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files, digest_of_many
from training.data.tokens import require_sizes, tokens_of

ENDINGS = (".txt",)

TEXT_FOLDER = Distribution(
    title="Text folder",
    folders=(),
    obtain="Name as `folder` the one that holds a folder of texts for each class.",
    layout="CLASS/*.txt in UTF-8, for two classes or more; or train/CLASS/… and test/CLASS/…, where the test texts are "
    "never trained on.",
)


def load(root: Path | None = None, *, folder: str = ".", length: int = 1000, vocabulary_size: int = 20_000) -> Dataset:
    """Texts of your own: a folder for each class, with .txt files in UTF-8; train/ and test/ above them if any.

    Files that begin with a dot are passed over. The vocabulary holds all words until `Dataset.learned_from` keeps those
    of the training rows.

    Args:
        root: Folder that `folder` begins at; None for the one that CANDOR_DATA names, else the current one.
        folder: Path of the texts' folder.
        length: Words of a text that count, from its beginning.
        vocabulary_size: Words to tell apart once the training rows are known, padding and unknown included.

    Returns:
        Tokens int32 (N, length) in the order of the texts' paths, those of test/ last; classes by name.

    Raises:
        ConfigurationError: An argument is out of range.
        DataError: There are no such folders, or a file in them is no text in UTF-8.
    """
    require_sizes(length, vocabulary_size)
    start = TEXT_FOLDER.root(root)
    files = Files(TEXT_FOLDER, start / folder, start)
    found = class_folders(files, ENDINGS)
    texts, digests = [], {}
    for path in found.paths:
        data = path.read_bytes()
        try:
            texts.append(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise files.problem(f"{path} is no text in UTF-8: {error}") from error
        digests[path.relative_to(files.folder).as_posix()] = hashlib.sha256(data).hexdigest()
    files.note(".", digest_of_many(digests))
    tokens, vocabulary = tokens_of(texts, length)
    return Dataset(
        "text_folder",
        tokens,
        found.labels,
        found.names,
        kind="tokens",
        test=found.test,
        sources=files.digests,
        vocabulary=vocabulary,
        vocabulary_size=vocabulary_size,
    )
