"""From a text to the model's input, in the one place that both sides use.

A text is lower-cased and normalised (NFC); its words are the longest runs of letters and digits, which an apostrophe
between two of them does not end (`don't`, `o'clock`). Everything else parts words and is dropped. A word becomes the
number that the vocabulary has for it, or that of unknown words; a text of fewer words than the model takes is filled up
with padding at its end, and of a longer one only the first words count.
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
from bundle.manifest import GOLDEN_FILE, VOCABULARY_FILE, InputSpec

PAD, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unknown>")
_SCHEMA_VERSION = 1
_TOKENISER = "lower-case words"
_MAX_WORDS = 1_000_000
_MAX_LENGTH = 1_000_000
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words_of(text: str) -> Iterator[str]:
    """The words of a text, in order.

    Example:
        >>> list(words_of("Don't PANIC: it's 42_000 km."))
        ["don't", 'panic', "it's", '42', '000', 'km']
    """
    return (match[0] for match in _WORD.finditer(unicodedata.normalize("NFC", text.lower())))


@dataclass(frozen=True)
class Vocabulary:
    """The words that a model knows, and how many of a text it takes.

    Attributes:
        words: Word of each token id; the first two are `<pad>` and `<unknown>`, which no text contains.
        length: Tokens per text, L.

    Raises:
        BundleFormatError: These make no vocabulary: a word twice, one that no text can contain, a size out of bounds.

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
        if not len(SPECIAL) <= len(self.words) <= _MAX_WORDS:
            raise _wrong("the number of words is out of bounds", str(len(self.words)), f"2 … {_MAX_WORDS}")
        if self.words[: len(SPECIAL)] != SPECIAL:
            raise _wrong("the first words are others", ", ".join(map(repr, self.words[:2])), "<pad>, <unknown>")
        ids = {word: number for number, word in enumerate(self.words)}
        if len(ids) != len(self.words):
            twice = Counter(self.words).most_common(1)[0][0]
            raise _wrong("a word stands there twice", repr(twice), "distinct words")
        for word in self.words[len(SPECIAL) :]:
            if not isinstance(word, str) or next(words_of(word), None) != word:
                raise _wrong("this is no word that a text can contain", repr(word), "one lower-case word")
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def count(cls, texts: Iterable[str], *, size: int, length: int) -> Self:
        """The most frequent words of the first `length` words of each text; of equally frequent ones the first by code.

        Args:
            texts: The texts to learn from.
            size: Largest number of words, `<pad>` and `<unknown>` included.
            length: Tokens per text, L.
        """
        counts = Counter(word for text in texts for word in islice(words_of(text), length))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(SPECIAL + tuple(ranked[: max(0, size - len(SPECIAL))]), length)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, texts: Iterable[str]) -> NDArray[np.int32]:
        """Token ids of texts, int32 (N, L)."""
        known = self._ids
        rows = [[known.get(word, UNKNOWN) for word in islice(words_of(text), self.length)] for text in texts]
        encoded = np.full((len(rows), self.length), PAD, np.int32)
        for row, ids in zip(encoded, rows, strict=True):
            row[: len(ids)] = ids
        return encoded

    def decode(self, tokens: NDArray[np.int32]) -> str:
        """The known words of one row of tokens, parted by blanks; padding and unknown words are left out."""
        return " ".join(self.words[token] for token in tokens.tolist() if token >= len(SPECIAL))

    def check(self, spec: InputSpec) -> None:
        """Raise BundleFormatError unless this is the vocabulary of a model with such an input."""
        if spec.kind != "tokens" or spec.shape != (self.length,):
            raise _wrong("the vocabulary does not fit the model", f"{self.length} tokens", f"{spec.kind} {spec.shape}")

    def check_golden(self, golden: Golden) -> None:
        """Raise BundleFormatError unless the golden tokens are of this vocabulary and the golden texts give them."""
        if golden.inputs.size and not 0 <= int(golden.inputs.min()) <= int(golden.inputs.max()) < len(self):
            raise BundleFormatError(
                "a golden input is outside the vocabulary",
                file=GOLDEN_FILE,
                found=f"tokens {golden.inputs.min()} … {golden.inputs.max()}",
                expected=f"0 … {len(self) - 1}",
            )
        for example in golden.texts:
            if not np.array_equal(self.encode([example.text])[0], golden.inputs[example.row]):
                raise BundleFormatError(
                    "a golden text is encoded to something else than its golden input",
                    file=GOLDEN_FILE,
                    found=f"row {example.row}, other tokens",
                    expected="equal tokens",
                )

    def dump(self) -> bytes:
        """The bytes of `vocabulary.json`."""
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
            raise BundleFormatError(f"no JSON: {error}", file=VOCABULARY_FILE) from error
        expected = {"schema_version", "tokeniser", "length", "words"}
        if not isinstance(document, dict) or document.keys() != expected:
            raise _wrong("other fields", str(sorted(document))[:300], ", ".join(sorted(expected)))
        if (document["schema_version"], document["tokeniser"]) != (_SCHEMA_VERSION, _TOKENISER):
            raise _wrong(
                "another tokeniser",
                f"{document['tokeniser']!r}, version {document['schema_version']!r}",
                f"{_TOKENISER!r}, version {_SCHEMA_VERSION}",
            )
        if not isinstance(document["words"], list) or not all(isinstance(word, str) for word in document["words"]):
            raise _wrong("the words are no list of strings", type(document["words"]).__name__, "a list of strings")
        return cls(tuple(document["words"]), document["length"])


def _wrong(message: str, found: str, expected: str) -> BundleFormatError:
    return BundleFormatError(message, file=VOCABULARY_FILE, found=found[:300], expected=expected)
