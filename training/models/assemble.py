"""Building a module for raw client inputs from an architecture and the shape of its inputs."""

from __future__ import annotations

from torch import nn

from training.errors import ConfigurationError
from training.inputs import CategoryColumn, ImageShape, InputShape, TableShape, TokenShape
from training.models.network import ImageNetwork, Network, TableNetwork, TokenNetwork
from training.preprocess import ImageInput, TableInput, TokenInput

_CALLED = {ImageShape: "images", TokenShape: "tokens of a text", TableShape: "rows of a table"}


def assemble(architecture: type[Network], shape: InputShape, classes: int, *, dropout: float = 0.0) -> nn.Sequential:
    """Chain preprocessing and network.

    Args:
        architecture: One of `MODELS`.
        shape: Shape of the stored inputs.
        classes: Number of classes, at least two.
        dropout: Probability of dropping a unit while training, in [0, 1).

    Returns:
        A module from stored inputs (N, …) to logits float32 (N, classes): preprocessing `[0]`, network `[1]`.

    Raises:
        ConfigurationError: The architecture requires other inputs.

    Example:
        >>> from training.models.text_cnn import TextCNN
        >>> assemble(TextCNN, TokenShape(vocabulary=1000, length=64), 20)[0]
        TokenInput()
    """
    if issubclass(architecture, ImageNetwork) and isinstance(shape, ImageShape):
        preprocessing: nn.Module = ImageInput(shape.scale, architecture.size, shape.mean)
        network: Network = architecture(shape.channels, classes, dropout=dropout)
    elif issubclass(architecture, TokenNetwork) and isinstance(shape, TokenShape):
        preprocessing = TokenInput(shape.vocabulary)
        network = architecture(shape.vocabulary, classes, dropout=dropout)
    elif issubclass(architecture, TableNetwork) and isinstance(shape, TableShape):
        categories = [column.categories for column in shape.columns if isinstance(column, CategoryColumn)]
        preprocessing = table = TableInput(shape)
        network = architecture(table.numbers, categories, classes, dropout=dropout)
    else:
        raise ConfigurationError(
            f"the model {architecture.__name__} requires {_CALLED[architecture.takes]}, "
            f"the data set has {_CALLED[type(shape)]}"
        )
    return nn.Sequential(preprocessing, network)
