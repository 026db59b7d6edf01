"""The original LeNet-5 of 1998."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.models.network import ImageNetwork

# For each of the sixteen maps of the third layer, the maps of the second layer that it sees.
CONNECTIONS = (
    *((0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 5), (0, 4, 5), (0, 1, 5)),
    *((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (0, 3, 4, 5), (0, 1, 4, 5), (0, 1, 2, 5)),
    *((0, 1, 3, 4), (1, 2, 4, 5), (0, 2, 3, 5)),
    (0, 1, 2, 3, 4, 5),
)


class LeNet5Original(ImageNetwork):
    """Two rounds of convolution and trainable subsampling, two full layers, and distances to fixed codes.

    | layer | output | parameters for one channel |
    |---|---|---|
    | C1, convolution 5 × 5 | 6 × 28 × 28 | 156 |
    | S2, subsampling 2 × 2 | 6 × 14 × 14 | 12 |
    | C3, convolution 5 × 5, partly connected | 16 × 10 × 10 | 1,516 |
    | S4, subsampling 2 × 2 | 16 × 5 × 5 | 32 |
    | C5, convolution 5 × 5 | 120 | 48,120 |
    | F6, linear | 84 | 10,164 |
    | output, distances | K | none |

    In total the paper's 60,000. A unit of S2 and S4 adds four inputs, multiplies the sum by its map's coefficient and
    adds its map's bias. All units up to F6 are squashed by 1.7159 tanh(2/3 a). A logit is the negative squared distance
    between F6 and the code of its class, 84 fixed random signs: the paper drew bitmaps of characters by hand and names
    random signs as the alternative for classes without bitmaps. Cross-entropy of these logits is the paper's criterion
    (equation 9) without its extra class for rubbish.

    Weights start uniform within ± 2.4 / fan-in, biases from zero.

    Args:
        channels: Channels of the images, C.
        classes: Number of classes, K.
        dropout: Probability of dropping a unit of C5 and F6; the original had none.

    References:
        LeCun et al. 1998, Gradient-based learning applied to document recognition, section II.B, section II.C and
        appendix A.

    Example:
        >>> import torch
        >>> LeNet5Original(1, 10)(torch.zeros(3, 1, 32, 32)).shape
        torch.Size([3, 10])
    """

    codes: Tensor

    def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(channels, classes)
        self.c1 = nn.Conv2d(channels, 6, 5)
        self.s2 = Subsampling(6)
        self.c3 = PartialConvolution()
        self.s4 = Subsampling(16)
        self.c5 = nn.Conv2d(16, 120, 5)
        self.f6 = nn.Linear(120, 84)
        self.dropout = nn.Dropout(dropout)
        for layer, fan_in in ((self.c1, 25 * channels), (self.c5, 25 * 16), (self.f6, 120)):
            nn.init.uniform_(layer.weight, -2.4 / fan_in, 2.4 / fan_in)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        self.register_buffer("codes", torch.randint(2, (classes, 84)) * 2.0 - 1.0)

    def forward(self, images: Tensor) -> Tensor:
        """Map float32 (N, C, 32, 32) to logits float32 (N, K)."""
        s2 = _squash(self.s2(_squash(self.c1(images))))
        s4 = _squash(self.s4(_squash(self.c3(s2))))
        c5 = self.dropout(_squash(self.c5(s4)).flatten(1))
        f6 = self.dropout(_squash(self.f6(c5)))
        logits: Tensor = -(f6[:, None, :] - self.codes).square().sum(dim=2)
        return logits


class Subsampling(nn.Module):
    """Sums of 2 × 2 inputs, with one trainable coefficient and bias per map.

    Args:
        maps: Number of maps, M.
    """

    def __init__(self, maps: int) -> None:
        super().__init__()
        self.coefficient = nn.Parameter(torch.empty(maps, 1, 1).uniform_(-2.4 / 4, 2.4 / 4))
        self.bias = nn.Parameter(torch.zeros(maps, 1, 1))

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, M, H, W) to (N, M, H / 2, W / 2)."""
        return 4.0 * functional.avg_pool2d(maps, 2) * self.coefficient + self.bias


class PartialConvolution(nn.Module):
    """A 5 × 5 convolution from 6 to 16 maps, connected as in `CONNECTIONS`."""

    places: Tensor

    def __init__(self) -> None:
        super().__init__()
        fans = [25 * len(seen) for seen in CONNECTIONS for _ in seen]
        bounds = 2.4 / torch.tensor(fans, dtype=torch.float32)[:, None]
        self.weight = nn.Parameter((torch.rand(len(fans), 25) * 2.0 - 1.0) * bounds)
        self.bias = nn.Parameter(torch.zeros(len(CONNECTIONS)))
        # Index of the kernel of each of the 16 × 6 pairs; unconnected pairs share a kernel of zeros at the end.
        places = torch.full((len(CONNECTIONS), 6), len(fans))
        pairs = [(out, seen) for out, group in enumerate(CONNECTIONS) for seen in group]
        for place, (out, seen) in enumerate(pairs):
            places[out, seen] = place
        self.register_buffer("places", places.flatten())

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, 6, H, W) to (N, 16, H − 4, W − 4)."""
        kernels = torch.cat([self.weight, torch.zeros_like(self.weight[:1])])[self.places]
        return functional.conv2d(maps, kernels.reshape(len(CONNECTIONS), 6, 5, 5), self.bias)


def _squash(a: Tensor) -> Tensor:
    return 1.7159 * torch.tanh(2.0 / 3.0 * a)
