"""Your own texts: one folder per class."""

from __future__ import annotations

import hashlib
from pathlib import Path

from training.data.class_folders import class_folders
from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files, digest_of_many
from training.data.equal import equal_texts
from training.data.tokens import TextsAndTokens, require_sizes
from training.progress import progress

ENDINGS = (".txt",)

TEXT_FOLDER = Distribution(
    title="Text folder",
    folders=(),
    obtain="Set `folder` to a folder that contains one folder of texts per class.",
    layout="CLASS/*.txt in UTF-8, for at least two classes; or train/CLASS/… and test/CLASS/… (test texts are never "
    "trained on).",
)


def load(
    root: Path | None = None,
    *,
    folder: str = ".",
    length: int = 1000,
    vocabulary_size: int = 20_000,
    words: bool = True,
) -> Dataset:
    """Texts of your own: a folder for each class, with .txt files in UTF-8; train/ and test/ above them if any.

    Names that begin with a dot are ignored. The vocabulary contains all words, up to a million, until
    `Dataset.learned_from` keeps those of the training rows. The texts may be more than memory holds.

    Args:
        root: Folder that `folder` begins at; None for CANDOR_DATA, else the current folder.
        folder: Path of the texts' folder.
        length: Words to read from the beginning of a text.
        vocabulary_size: Maximum vocabulary after the training rows are known, including padding and unknown.
        words: Whether to number words; no for a model with a tokenizer of its own.

    Returns:
        Tokens int32 (N, length) in the order of the texts' paths, those of test/ last; classes by name.

    Raises:
        ConfigurationError: An argument is out of range.
        DataError: The folders are missing, or a file in them is not UTF-8 text.
    """
    require_sizes(length, vocabulary_size)
    start = TEXT_FOLDER.root(root)
    files = Files(TEXT_FOLDER, start / folder, start)
    found = class_folders(files, ENDINGS)
    content, digests = TextsAndTokens(length, words=words), dict[str, str]()
    told = progress("Reading", len(found.paths), "texts")

    def text_of(path: Path) -> str:
        told(len(digests))
        data = path.read_bytes()
        digests[path.relative_to(files.folder).as_posix()] = hashlib.sha256(data).hexdigest()
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise files.problem(f"{path} is not UTF-8 text: {error}") from error

    content.add(map(text_of, found.paths))
    files.note(".", digest_of_many(digests))
    tokens, vocabulary, texts = content.finish()
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
        equal=equal_texts(texts, found.labels),
        texts=texts,
    )
