"""One-dimensional convolutional network for rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bundle.table import UNKNOWN
from training.models.kaiming import start_from_kaiming
from training.models.network import TableNetwork

CHANNELS, LENGTH, WIDTH = 16, 32, 32
FACTORS = 16
FIRST_FACTOR = 0.1  # standard deviation of the vectors' first entries


class TableCNN(TableNetwork):
    """A linear layer that orders the columns, convolutions along that order, and weights for pairs of columns.

    A convolution requires meaningful neighbours, which a table does not have: the linear layer learns which columns to
    place beside each other.

    | layer | output |
    |---|---|
    | input | A numbers, B codes |
    | vector of each code, beside the numbers | A + 16 B |
    | linear, batch normalisation, ReLU | 16 × 32 |
    | convolution 3, batch normalisation, ReLU, max-pool 2 | 32 × 16 |
    | convolution 3, batch normalisation, ReLU, max-pool 2 | 32 × 8 |
    | dropout, linear, ReLU, dropout | 64 |
    | linear | K |

    Two more linear layers add to the logits: one of the numbers and vectors themselves, one of the 16 sums of products
    over all pairs of vectors (a factorisation machine; a number's vector is a learned one times the number). From few
    rows, convolutions hardly learn interactions of two columns, such as month and year.

    The vector of unknown categories starts from zero, the mean of all others, since training may never see it.

    Args:
        numbers: Numbers of a row, A.
        categories: Number of known categories for each of the B columns of categories.
        classes: Number of classes, K.
        dropout: Probability of dropping a unit before each of the last two linear layers.

    References:
        Rendle 2010, Factorization machines, section III. Guo et al. 2017, DeepFM, section 2.1.

    Example:
        >>> import torch
        >>> numbers, codes = torch.zeros(5, 2), torch.zeros(5, 1, dtype=torch.int64)
        >>> TableCNN(2, [7], 3)((numbers, codes)).shape
        torch.Size([5, 3])
    """

    def __init__(self, numbers: int, categories: Sequence[int], classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(numbers, categories, classes)
        inputs = numbers + FACTORS * len(categories)
        self.embeddings = nn.ModuleList(_embedding(count) for count in categories)
        self.factors = nn.Parameter(FIRST_FACTOR * torch.randn(numbers, FACTORS))
        self.order = nn.Sequential(
            nn.Linear(inputs, CHANNELS * LENGTH, bias=False),
            nn.BatchNorm1d(CHANNELS * LENGTH),
            nn.ReLU(),
            nn.Unflatten(1, (CHANNELS, LENGTH)),
        )
        self.convolutions = nn.Sequential(*_convolution(CHANNELS, WIDTH), *_convolution(WIDTH, WIDTH))
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Dropout(dropout),
            nn.Linear(WIDTH * LENGTH // 4, 64),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(64, classes),
        )
        self.alone = nn.Linear(inputs, classes, bias=False)
        self.pairs = nn.Linear(FACTORS, classes, bias=False)
        start_from_kaiming(self)
        nn.init.zeros_(self.alone.weight)

    def forward(self, row: tuple[Tensor, Tensor]) -> Tensor:
        """Map numbers float32 (N, A) and codes int64 (N, B) to logits float32 (N, K)."""
        numbers, codes = row
        vectors = [embedding(codes[:, place]) for place, embedding in enumerate(self.embeddings)]
        known = torch.cat([numbers, *vectors], dim=1)
        # Products of all pairs: the square of the sum contains each twice, plus the squares.
        total, squares = numbers @ self.factors, numbers**2 @ self.factors**2
        for vector in vectors:
            total, squares = total + vector, squares + vector**2
        products = (total**2 - squares) / 2
        logits: Tensor = self.head(self.convolutions(self.order(known))) + self.alone(known) + self.pairs(products)
        return logits


def _embedding(categories: int) -> nn.Embedding:
    embedding = nn.Embedding(categories + 1, FACTORS)
    nn.init.normal_(embedding.weight, std=FIRST_FACTOR)
    nn.init.zeros_(embedding.weight[UNKNOWN])
    return embedding


def _convolution(width: int, planes: int) -> list[nn.Module]:
    # The shift of batch normalisation replaces the bias.
    return [nn.Conv1d(width, planes, 3, padding=1, bias=False), nn.BatchNorm1d(planes), nn.ReLU(), nn.MaxPool1d(2)]
