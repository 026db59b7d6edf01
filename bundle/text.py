"""From a text to the model's input, for training and service alike.

A text is lower-cased and normalised (NFC). Its words are the longest runs of letters and digits, including apostrophes
between them (`don't`, `o'clock`); everything else separates words and is dropped. A word becomes its number in the
vocabulary, or that of unknown words. Short texts are padded at the end, long texts are cut.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bundle.errors import BundleFormatError
from bundle.golden import Golden
from bundle.inputs import InputSpec
from bundle.manifest import GOLDEN_FILE, VOCABULARY_FILE

PAD, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unknown>")
_SCHEMA_VERSION = 1
_TOKENISER = "lower-case words"
MAX_WORDS = 1_000_000
_MAX_LENGTH = 1_000_000
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text, in order.

    Example:
        >>> list(words_of("Don't PANIC: it's 42_000 km."))
        ["don't", 'panic', "it's", '42', '000', 'km']
    """
    return (match[0] for match in _WORD.finditer(unicodedata.normalize("NFC", text.lower())))


@dataclass(frozen=True)
class Vocabulary:
    """A model's words and its number of tokens per text.

    Attributes:
        words: Word of each token id; the first two are `<pad>` and `<unknown>`, which no text contains.
        length: Tokens per text, L.

    Raises:
        BundleFormatError: A word is duplicate or cannot occur in a text, or a size is out of bounds.

    Example:
        >>> vocabulary = Vocabulary.count(["the cat and the dog", "a dog"], size=4, length=5)
        >>> vocabulary.words
        ('<pad>', '<unknown>', 'dog', 'the')
        >>> vocabulary.encode(["The DOG barks!"])
        array([[3, 2, 1, 0, 0]], dtype=int32)
    """

    words: tuple[str, ...]
    length: int
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.length, int) and 1 <= self.length <= _MAX_LENGTH):
            raise _wrong("the number of tokens is out of bounds", repr(self.length), f"1 … {_MAX_LENGTH}")
        if not len(SPECIAL) <= len(self.words) <= MAX_WORDS:
            raise _wrong("the number of words is out of bounds", str(len(self.words)), f"2 … {MAX_WORDS}")
        if self.words[: len(SPECIAL)] != SPECIAL:
            raise _wrong("the first two words are wrong", ", ".join(map(repr, self.words[:2])), "<pad>, <unknown>")
        ids = {word: number for number, word in enumerate(self.words)}
        if len(ids) != len(self.words):
            twice = Counter(self.words).most_common(1)[0][0]
            raise _wrong("duplicate word", repr(twice), "distinct words")
        for word in self.words[len(SPECIAL) :]:
            if not isinstance(word, str) or next(words_of(word), None) != word:
                raise _wrong("this word cannot occur in a text", repr(word), "one lower-case word")
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def count(cls, texts: Iterable[str], *, size: int, length: int) -> Self:
        """Return the most frequent words among the first `length` of each text; equally frequent ones in code order.

        Args:
            texts: The texts to learn from.
            size: Maximum number of words, including `<pad>` and `<unknown>`.
            length: Tokens per text, L.
        """
        counts = Counter(word for text in texts for word in islice(words_of(text), length))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(SPECIAL + tuple(ranked[: max(0, size - len(SPECIAL))]), length)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """Return the token ids of texts, int32 (N, L)."""
        known = self._ids
        rows = [[known.get(word, UNKNOWN) for word in islice(words_of(text), self.length)] for text in texts]
        encoded = np.full((len(rows), self.length), PAD, np.int32)
        for row, ids in zip(encoded, rows, strict=True):
            row[: len(ids)] = ids
        return encoded

    def decode(self, tokens: NDArray[np.int32]) -> str:
        """Return the known words of one row of tokens, separated by spaces, without padding and unknown words."""
        return " ".join(self.words[token] for token in tokens.tolist() if token >= len(SPECIAL))

    def shown(self, tokens: NDArray[np.int32]) -> str | None:
        """Return one row of tokens for a person, with `<unknown>` in place of unknown words; None if none is known."""
        words = [self.words[token] for token in tokens.tolist() if token != PAD]
        return " ".join(words) if set(words) - {SPECIAL[UNKNOWN]} else None

    def check(self, spec: InputSpec) -> None:
        """Raise BundleFormatError unless the vocabulary fits this input."""
        if spec.kind != "tokens" or spec.shape != (self.length,):
            raise _wrong("the vocabulary does not fit the model", f"{self.length} tokens", f"{spec.kind} {spec.shape}")

    def check_golden(self, golden: Golden) -> None:
        """Raise BundleFormatError unless golden tokens are in the vocabulary and golden texts encode to them."""
        if golden.inputs.size and not 0 <= int(golden.inputs.min()) <= int(golden.inputs.max()) < len(self):
            raise BundleFormatError(
                "a golden input is outside the vocabulary",
                file=GOLDEN_FILE,
                found=f"tokens {golden.inputs.min()} … {golden.inputs.max()}",
                expected=f"0 … {len(self) - 1}",
            )
        golden.check_texts(self.encode)

    def dump(self) -> bytes:
        """Return the bytes of `vocabulary.json`."""
        document = {
            "schema_version": _SCHEMA_VERSION,
            "tokeniser": _TOKENISER,
            "length": self.length,
            "words": self.words,
        }
        return json.dumps(document, ensure_ascii=False, indent=0).encode() + b"\n"

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Read `vocabulary.json`; raises BundleFormatError."""
        try:
            document: Any = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise BundleFormatError(f"not valid JSON: {error}", file=VOCABULARY_FILE) from error
        expected = {"schema_version", "tokeniser", "length", "words"}
        if not isinstance(document, dict) or document.keys() != expected:
            raise _wrong("unexpected fields", str(sorted(document))[:300], ", ".join(sorted(expected)))
        if (document["schema_version"], document["tokeniser"]) != (_SCHEMA_VERSION, _TOKENISER):
            raise _wrong(
                "another tokeniser",
                f"{document['tokeniser']!r}, version {document['schema_version']!r}",
                f"{_TOKENISER!r}, version {_SCHEMA_VERSION}",
            )
        if not isinstance(document["words"], list) or not all(isinstance(word, str) for word in document["words"]):
            raise _wrong("the words are not a list of strings", type(document["words"]).__name__, "a list of strings")
        return cls(tuple(document["words"]), document["length"])


def _wrong(message: str, found: str, expected: str) -> BundleFormatError:
    return BundleFormatError(message, file=VOCABULARY_FILE, found=found[:300], expected=expected)
