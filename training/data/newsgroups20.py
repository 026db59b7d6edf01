"""20 Newsgroups: posts to twenty discussion groups."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import numpy as np

from training.data.dataset import Dataset
from training.data.distribution import Distribution, Files, digest_of_many
from training.data.tokens import TextsAndTokens, require_sizes
from training.errors import ConfigurationError

GROUPS = (
    "alt.atheism", "comp.graphics", "comp.os.ms-windows.misc", "comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware",
    "comp.windows.x", "misc.forsale", "rec.autos", "rec.motorcycles", "rec.sport.baseball", "rec.sport.hockey",
    "sci.crypt", "sci.electronics", "sci.med", "sci.space", "soc.religion.christian", "talk.politics.guns",
    "talk.politics.mideast", "talk.politics.misc", "talk.religion.misc",
)  # fmt: skip
HEADERS = ("none", "subject", "all")
_ARCHIVES = ("20_newsgroup_19997.tar.xz", "20news-19997.tar.gz", "20_newsgroups.tar.gz")

NEWSGROUPS20 = Distribution(
    title="20 Newsgroups",
    folders=("newsgroups20", "20_newsgroups", "20_newsgroup"),
    obtain="Download 20news-19997.tar.gz from http://qwone.com/~jason/20Newsgroups/ and put it into newsgroups20/ in "
    "the folder of data sets, or unpack it there.",
    layout=f"newsgroups20/ with one of {', '.join(_ARCHIVES)}, or with a folder for each of the twenty groups "
    "(alt.atheism … talk.religion.misc), one file a post.",
)


def load(
    root: Path | None = None, *, length: int = 1000, vocabulary_size: int = 20_000, headers: str = "none"
) -> Dataset:
    """20 Newsgroups: 19,997 posts to twenty discussion groups, as words; without a test part.

    Posts are ordered by group and number. A header names the group, which is the label, so by default only the text
    after the first empty line is read. The vocabulary contains all words until `Dataset.learned_from` keeps those of
    the training rows.

    Args:
        root: Folder of data sets, or of this one; None for CANDOR_DATA.
        length: Words to read from the beginning of a post.
        vocabulary_size: Maximum vocabulary after the training rows are known, including padding and unknown.
        headers: `none`; `subject` for the subject before the body; `all` for the complete post, including the label.

    Returns:
        Tokens int32 (N, length).

    Raises:
        ConfigurationError: An argument is out of range.
        DataError: The posts are missing, or in other groups.

    References:
        Lang 1995, Newsweeder: learning to filter netnews.
    """
    if headers not in HEADERS:
        raise ConfigurationError(f"headers is {headers!r}, expected one of: {', '.join(HEADERS)}")
    require_sizes(length, vocabulary_size)
    files = NEWSGROUPS20.find(root, *_ARCHIVES, "20_newsgroups", "20_newsgroup", *GROUPS)
    posts = sorted(_posts(files), key=lambda post: post[:2])
    found = {group for group, _, _ in posts}
    if found != set(GROUPS):
        strange = sorted(found - set(GROUPS)) or sorted(set(GROUPS) - found)
        raise files.problem(
            f"{files.folder} holds posts of {len(found)} groups; {strange[0]!r} is "
            + ("not one of the twenty" if found - set(GROUPS) else "missing")
        )
    content = TextsAndTokens(length)
    content.add(_text(post, headers) for _, _, post in posts)
    tokens, vocabulary, _ = content.finish()
    return Dataset(
        "newsgroups20",
        tokens,
        np.array([GROUPS.index(group) for group, _, _ in posts], np.int64),
        GROUPS,
        kind="tokens",
        sources=files.digests,
        vocabulary=vocabulary,
        vocabulary_size=vocabulary_size,
    )


def _text(post: bytes, headers: str) -> str:
    text = post.decode("latin-1").replace("\r\n", "\n")
    if headers == "all":
        return text
    header, _, body = text.partition("\n\n")
    if headers == "none":
        return body
    subject = next((line for line in header.split("\n") if line.lower().startswith("subject:")), "")
    return f"{subject.partition(':')[2]}\n{body}"


def _posts(files: Files) -> Iterator[tuple[str, int, bytes]]:
    """Yield group, number and bytes of each post, in any order."""
    archive = next((name for name in _ARCHIVES if (files.folder / name).exists()), None)
    if archive is None:
        yield from _posts_in_folders(files)
        return
    path = files.folder / archive
    try:
        with path.open("rb") as stream:
            files.note(archive, hashlib.file_digest(stream, "sha256").hexdigest())
        with tarfile.open(path, "r:*") as members:
            for member in members:
                file = members.extractfile(member) if member.isfile() else None
                if file is not None:
                    name = PurePosixPath(member.name)
                    yield name.parent.name, _number(files, name), file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise files.problem(f"{path} cannot be unpacked: {error}") from error


def _posts_in_folders(files: Files) -> Iterator[tuple[str, int, bytes]]:
    inner = (files.folder / name for name in ("20_newsgroups", "20_newsgroup"))
    folder = next((path for path in inner if path.is_dir()), files.folder)
    digests = {}
    for group in sorted(path for path in folder.iterdir() if path.is_dir()):
        for post in sorted(group.iterdir()):
            data = post.read_bytes()
            digests[f"{group.name}/{post.name}"] = hashlib.sha256(data).hexdigest()
            yield group.name, _number(files, PurePosixPath(post.relative_to(folder))), data
    files.note(str(folder.relative_to(files.folder)), digest_of_many(digests))


def _number(files: Files, name: PurePosixPath) -> int:
    if not (name.name.isascii() and name.name.isdigit()):
        raise files.problem(f"{name} in {files.folder} is not a post: its file name must be a number")
    return int(name.name)
