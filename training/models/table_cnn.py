"""One-dimensional convolutional network for rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bundle.table import UNKNOWN
from training.models.kaiming import start_from_kaiming
from training.models.network import TableNetwork

CHANNELS, LENGTH, WIDTH = 16, 32, 32
LARGEST_EMBEDDING = 16


class TableCNN(TableNetwork):
    """Embeds categories, lets a linear layer put the columns in an order, and convolves along it.

    Neighbours in a table mean nothing, and a convolution needs neighbours that do: the linear layer learns which
    columns to place beside each other.

    | layer | output |
    |---|---|
    | input | A numbers, B codes |
    | embedding of each code, beside the numbers | A + Σ min(16, ⌈(categories + 1) / 2⌉) |
    | linear, batch normalisation, ReLU | 16 × 32 |
    | convolution 3, batch normalisation, ReLU, max-pool 2 | 32 × 16 |
    | convolution 3, batch normalisation, ReLU, max-pool 2 | 32 × 8 |
    | dropout, linear, ReLU, dropout | 64 |
    | linear | K |

    The vector of unknown categories starts from zero, the mean of all others, since training may never meet it.

    Args:
        numbers: Columns of numbers, A.
        categories: For each of the B columns of categories, how many are known.
        classes: Number of classes, K.
        dropout: Probability of dropping a unit before each of the last two linear layers.

    Example:
        >>> import torch
        >>> numbers, codes = torch.zeros(5, 2), torch.zeros(5, 1, dtype=torch.int64)
        >>> TableCNN(2, [7], 3)((numbers, codes)).shape
        torch.Size([5, 3])
    """

    def __init__(self, numbers: int, categories: Sequence[int], classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(numbers, categories, classes)
        widths = [min(LARGEST_EMBEDDING, (count + 2) // 2) for count in categories]
        self.embeddings = nn.ModuleList(
            _embedding(count, width) for count, width in zip(categories, widths, strict=True)
        )
        self.order = nn.Sequential(
            nn.Linear(numbers + sum(widths), CHANNELS * LENGTH, bias=False),
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
        start_from_kaiming(self)

    def forward(self, row: tuple[Tensor, Tensor]) -> Tensor:
        """Map standardised numbers float32 (N, A) and codes int64 (N, B) to logits float32 (N, K)."""
        numbers, codes = row
        embedded = [embedding(codes[:, place]) for place, embedding in enumerate(self.embeddings)]
        logits: Tensor = self.head(self.convolutions(self.order(torch.cat([numbers, *embedded], dim=1))))
        return logits


def _embedding(categories: int, width: int) -> nn.Embedding:
    embedding = nn.Embedding(categories + 1, width)
    nn.init.zeros_(embedding.weight[UNKNOWN])
    return embedding


def _convolution(width: int, planes: int) -> list[nn.Module]:
    # Batch normalisation has a shift of its own in place of a bias.
    return [nn.Conv1d(width, planes, 3, padding=1, bias=False), nn.BatchNorm1d(planes), nn.ReLU(), nn.MaxPool1d(2)]
