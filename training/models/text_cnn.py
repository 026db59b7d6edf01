"""One-dimensional convolutional network for text."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from bundle.text import PAD
from training.models.kaiming import start_from_kaiming
from training.models.network import TokenNetwork

EMBEDDING, WIDTH, KERNEL, CONVOLUTIONS = 100, 128, 5, 5


class TextCNN(TokenNetwork):
    """Eight trainable layers: an embedding, five convolutions of five words each, and two linear layers.

    | layer | output |
    |---|---|
    | input | L tokens |
    | embedding | 100 × L |
    | four times: convolution, batch normalisation, ReLU, max-pool 2 | 128 × L/16 |
    | convolution, batch normalisation, ReLU | 128 × L/16 |
    | mean over the positions with words, dropout | 128 |
    | linear, ReLU, dropout | 128 |
    | linear | K |

    Texts may have any length from one token; odd lengths are rounded up. The source gives only depth and kind of its
    network. The mean lets every word learn at every step: with the maximum instead, training took about twice as many
    passes (5,000 newsgroup posts of 200 words).

    Args:
        vocabulary: Number of token ids; padding has a vector of zeros.
        classes: Number of classes, K.
        dropout: Probability of dropping a unit before each linear layer.

    References:
        Wang, Feng & Zhang 2021, Rethinking calibration of deep neural networks, section 3.1.

    Example:
        >>> import torch
        >>> TextCNN(1000, 20)(torch.zeros(3, 64, dtype=torch.int64)).shape
        torch.Size([3, 20])
    """

    def __init__(self, vocabulary: int, classes: int, *, dropout: float = 0.0) -> None:
        super().__init__(vocabulary, classes)
        self.embedding = nn.Embedding(vocabulary, EMBEDDING, padding_idx=PAD)
        layers: list[nn.Module] = []
        for place in range(CONVOLUTIONS):
            # The shift of batch normalisation replaces the bias.
            convolution = nn.Conv1d(WIDTH if place else EMBEDDING, WIDTH, KERNEL, padding=KERNEL // 2, bias=False)
            layers += [convolution, nn.BatchNorm1d(WIDTH), nn.ReLU()]
            if place < CONVOLUTIONS - 1:
                layers.append(nn.MaxPool1d(2, ceil_mode=True))
        self.convolutions = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(WIDTH, classes),
        )
        start_from_kaiming(self)
        nn.init.normal_(self.embedding.weight, std=EMBEDDING**-0.5)
        nn.init.zeros_(self.embedding.weight[PAD])

    def forward(self, tokens: Tensor) -> Tensor:
        """Map int64 (N, L) in 0 … vocabulary − 1 to logits float32 (N, K)."""
        maps = self.convolutions(self.embedding(tokens).transpose(1, 2))
        words = (tokens != PAD).to(maps.dtype)[:, None, :]
        places = functional.max_pool1d(words, 2 ** (CONVOLUTIONS - 1), ceil_mode=True)
        logits: Tensor = self.head((maps * places).sum(dim=2) / places.sum(dim=2).clamp_min(1.0))
        return logits
