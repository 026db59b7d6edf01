"""Preprocessing as part of the exported graph, so that clients send raw inputs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from bundle import table, text
from training.inputs import CategoryColumn, NumberColumn, TableShape


class ImageInput(nn.Module):
    """From stored images to network inputs: scale, layout, size.

    Without a mean, pixels are divided by the root mean square of the training pixels, channel by channel, and not
    centred: black stays zero, so that a dimmer image is a smaller input and not a shifted one. With a mean they are
    centred first, as weights published elsewhere expect.

    Args:
        scale: Divisor of each channel on the scale 0 … 255, positive, length C.
        size: Side of the network's square images; others are resized (bilinear, half-pixel centres). None for any size.
        mean: Subtracted from each channel on the scale 0 … 255, length C.
    """

    scale: Tensor
    mean: Tensor | None

    def __init__(self, scale: Sequence[float], size: int | None, mean: Sequence[float] | None = None) -> None:
        super().__init__()
        self.register_buffer("scale", 1.0 / torch.tensor(scale, dtype=torch.float32))
        self.register_buffer("mean", None if mean is None else torch.tensor(mean, dtype=torch.float32))
        self.size = size

    def extra_repr(self) -> str:
        """Return what the network's description says: a checkpoint belongs to it."""
        return f"size={self.size}, centred={self.mean is not None}"

    def forward(self, images: Tensor) -> Tensor:
        """Map uint8 (N, H, W, C) to float32 (N, C, size, size), or (N, C, H, W) without a size."""
        pixels = images.to(torch.float32)
        if self.mean is not None:
            pixels = pixels - self.mean
        scaled = (pixels * self.scale).permute(0, 3, 1, 2)
        if self.size is None or tuple(scaled.shape[2:]) == (self.size, self.size):
            return scaled
        return functional.interpolate(scaled, size=(self.size, self.size), mode="bilinear", align_corners=False)


class TokenInput(nn.Module):
    """From stored tokens to the network's vocabulary; all others become unknown words.

    Args:
        vocabulary: Number of token ids, V.
    """

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.vocabulary = vocabulary

    def forward(self, tokens: Tensor) -> Tensor:
        """Map int32 (N, L) to int64 (N, L) in 0 … V − 1."""
        known = (tokens >= 0) & (tokens < self.vocabulary)
        return torch.where(known, tokens, text.UNKNOWN).to(torch.int64)


class TextInput(nn.Module):
    """From the stored pairs of ids and mask to both, without the columns at the end that are padding in every row."""

    def forward(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Map int32 (N, 2, L) to ids and mask, int64 (N, l) with l ≤ L."""
        used = pairs[:, 1].any(dim=0).nonzero()
        length = int(used[-1]) + 1 if len(used) else 1
        ids, mask = pairs[:, :, :length].to(torch.int64).unbind(1)
        return ids, mask


class TableInput(nn.Module):
    """From rows of a table to standardised numbers and codes of categories.

    A column of numbers becomes its standardised value and, for each part between two knots, its progress through that
    part from 0 to 1, so that a linear layer bends at every knot. A missing or infinite number becomes the mean of the
    training rows. A missing, fractional or unknown code becomes the code of unknown categories.

    Args:
        shape: The columns.

    Attributes:
        numbers: Number of values per row, A.

    References:
        Gorishniy et al. 2022, On embeddings for numerical features in tabular deep learning, section 3.1.
    """

    number_places: Tensor
    means: Tensor
    deviations: Tensor
    part_places: Tensor
    part_starts: Tensor
    part_lengths: Tensor
    category_places: Tensor
    categories: Tensor

    def __init__(self, shape: TableShape) -> None:
        super().__init__()
        numbers = [(place, c) for place, c in enumerate(shape.columns) if isinstance(c, NumberColumn)]
        codes = [(place, c) for place, c in enumerate(shape.columns) if isinstance(c, CategoryColumn)]
        self.register_buffer("number_places", torch.tensor([place for place, _ in numbers], dtype=torch.int64))
        self.register_buffer("means", torch.tensor([column.mean for _, column in numbers]))
        self.register_buffer("deviations", torch.tensor([column.deviation for _, column in numbers]))
        parts = [
            (place, (start - column.mean) / column.deviation, (end - start) / column.deviation)
            for place, (_, column) in enumerate(numbers)
            for start, end in itertools.pairwise(column.knots)
        ]
        self.register_buffer("part_places", torch.tensor([place for place, _, _ in parts], dtype=torch.int64))
        self.register_buffer("part_starts", torch.tensor([start for _, start, _ in parts]))
        self.register_buffer("part_lengths", torch.tensor([length for _, _, length in parts]))
        self.numbers = shape.numbers
        self.register_buffer("category_places", torch.tensor([place for place, _ in codes], dtype=torch.int64))
        self.register_buffer("categories", torch.tensor([column.categories for _, column in codes], dtype=torch.int64))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Map float32 (N, F) to numbers float32 (N, A), parts behind values, and codes int64 (N, B)."""
        numbers, codes = rows[:, self.number_places], rows[:, self.category_places]
        standardised = (numbers - self.means) / self.deviations
        standardised = torch.where(standardised.isfinite(), standardised, 0.0)
        passed = ((standardised[:, self.part_places] - self.part_starts) / self.part_lengths).clamp(0.0, 1.0)
        known = (codes >= 0) & (codes <= self.categories) & (codes == codes.floor())
        return (
            torch.cat([standardised, passed], dim=1),
            torch.where(known, codes, float(table.UNKNOWN)).to(torch.int64),
        )
