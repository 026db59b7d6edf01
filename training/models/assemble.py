"""Building a module for raw client inputs from an architecture and the shape of its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from training.errors import ConfigurationError
from training.inputs import ImageShape, InputShape, TableShape, TextShape, TokenShape
from training.models.network import ImageNetwork, Network, TableNetwork, TokenNetwork
from training.own import blamed
from training.preprocess import ImageInput, TableInput, TextInput, TokenInput

_CALLED = {
    ImageShape: "images",
    TokenShape: "tokens of a text",
    TextShape: "texts by a tokenizer",
    TableShape: "rows of a table",
}


Architecture = type[Network] | Callable[..., nn.Module]


def assemble(
    architecture: Architecture,
    shape: InputShape,
    classes: int,
    *,
    dropout: float = 0.0,
    settings: Mapping[str, Any] | None = None,
) -> nn.Sequential:
    """Chain preprocessing and network.

    Args:
        architecture: One of `MODELS`, or a factory (`training.own`).
        shape: Shape of the stored inputs.
        classes: Number of classes, at least two.
        dropout: Probability of dropping a unit while training, in [0, 1); of `MODELS`.
        settings: Keyword arguments of a factory.

    Returns:
        A module from stored inputs (N, …) to logits float32 (N, classes): preprocessing `[0]`, network `[1]`.

    Raises:
        ConfigurationError: The architecture requires other inputs, or does not take these settings.

    Example:
        >>> from training.models.text_cnn import TextCNN
        >>> assemble(TextCNN, TokenShape(vocabulary=1000, length=64), 20)[0]
        TokenInput()
    """
    if not (isinstance(architecture, type) and issubclass(architecture, Network)):
        return nn.Sequential(_preprocessing(shape), _made(architecture, shape, classes, dropout, settings or {}))
    if settings:
        raise ConfigurationError(
            f"the model {architecture.__name__} has no setting {next(iter(settings))!r}; it takes `dropout` alone"
        )
    if issubclass(architecture, ImageNetwork) and isinstance(shape, ImageShape):
        preprocessing: nn.Module = ImageInput(shape.scale, architecture.size, shape.mean)
        network: Network = architecture(shape.channels, classes, dropout=dropout)
    elif issubclass(architecture, TokenNetwork) and isinstance(shape, TokenShape):
        preprocessing = TokenInput(shape.vocabulary)
        network = architecture(shape.vocabulary, classes, dropout=dropout)
    elif issubclass(architecture, TableNetwork) and isinstance(shape, TableShape):
        preprocessing = TableInput(shape)
        network = architecture(shape.numbers, shape.categories, classes, dropout=dropout)
    else:
        raise ConfigurationError(
            f"the model {architecture.__name__} requires {_CALLED[architecture.takes]}, "
            f"the data set has {_CALLED[type(shape)]}"
        )
    return nn.Sequential(preprocessing, network)


def _preprocessing(shape: InputShape) -> nn.Module:
    if isinstance(shape, ImageShape):
        return ImageInput(shape.scale, None, shape.mean)
    if isinstance(shape, TextShape):
        return TextInput()
    return TokenInput(shape.vocabulary) if isinstance(shape, TokenShape) else TableInput(shape)


def _made(
    factory: Callable[..., object], shape: InputShape, classes: int, dropout: float, settings: Mapping[str, Any]
) -> nn.Module:
    name = getattr(factory, "__name__", type(factory).__name__)
    if dropout:
        raise ConfigurationError(f"dropout is {dropout}, expected 0 for the model {name}; --model-setting sets its own")
    try:
        inspect.signature(factory).bind(classes, shape, **settings)
    except TypeError as error:
        raise ConfigurationError(
            f"the model {name} cannot be called as {name}(classes, shape{''.join(f', {key}=…' for key in settings)}): "
            f"{error}"
        ) from None
    with blamed("model", name):
        network = factory(classes, shape, **settings)
    if not isinstance(network, nn.Module):
        raise ConfigurationError(f"the model {name} returns {type(network).__name__}, expected a torch.nn.Module")
    return network
