"""What is tried with a network or a loss of your own before the first epoch."""

from __future__ import annotations

import copy
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bundle import Golden, Tokenizer, Vocabulary
from training import export
from training.errors import ConfigurationError, ExportError
from training.losses import Criterion
from training.own import blamed

_ROWS = 4


def check_network(
    name: str, module: nn.Module, inputs: NDArray[Any], classes: int, encoder: Vocabulary | Tokenizer | None
) -> None:
    """Check shape and type of the logits, the gradient, and that ONNX Runtime gives the same logits.

    The module itself stays unchanged: a copy is tried.

    Args:
        name: Name of the network, for errors.
        module: Preprocessing and network, on the CPU.
        inputs: Training rows, (N, …), at least one.
        classes: Number of classes, K.
        encoder: Vocabulary or tokenizer of the texts, if the inputs are texts.

    Raises:
        ConfigurationError: A check failed; the message says which.
    """
    rows = inputs[:_ROWS]
    tried = copy.deepcopy(module)
    with torch.random.fork_rng(devices=[]):
        with blamed("model", name):
            logits = tried.train()(torch.from_numpy(rows))
        _check_logits(name, logits, len(rows), classes)
        trainable = [parameter for parameter in tried.parameters() if parameter.requires_grad]
        if not trainable or not logits.requires_grad:
            raise ConfigurationError(
                f"the model {name} has nothing to train, expected parameters that reach the logits"
            )
        loss = functional.cross_entropy(logits.float(), torch.arange(len(rows)) % classes)
        gradients = [each for each in torch.autograd.grad(loss, trainable, allow_unused=True) if each is not None]
        if not all(gradient.isfinite().all() for gradient in gradients):
            raise ConfigurationError(f"the model {name} has a gradient that is not finite")
        if not any(gradient.any() for gradient in gradients):
            raise ConfigurationError(f"the model {name} has a gradient of 0 in every parameter")
        tried = copy.deepcopy(module).eval()  # training changes the statistics of normalisation layers
        with blamed("model", name):
            golden = export.make_golden(tried, rows, encoder)
    _check_export(name, tried, golden)


def check_loss(name: str, criterion: Criterion, classes: int, *, mixed: bool) -> None:
    """Check that a loss gives one finite value per example, and a finite gradient.

    Args:
        name: Name of the loss, for errors.
        criterion: The loss with its coefficients.
        classes: Number of classes, K.
        mixed: Whether labels are weights of the classes, as from mixup.

    Raises:
        ConfigurationError: A check failed; the message says which.
    """
    count = 2 * _ROWS
    tried = copy.deepcopy(criterion)
    logits = torch.sin(torch.arange(count * classes, dtype=torch.float32)).reshape(count, classes).requires_grad_()
    labels = torch.arange(count) % classes
    targets = functional.one_hot(labels, classes).float() if mixed else labels
    with blamed("loss", name):
        losses = tried(logits, targets, torch.zeros(count, dtype=torch.int64))
    if not isinstance(losses, Tensor) or losses.shape != (count,) or not losses.is_floating_point():
        raise ConfigurationError(
            f"the loss {name} returns {_told(losses)} for {count} examples, expected one floating value each, "
            f"({count},): use reduction='none'"
        )
    if not losses.requires_grad:
        raise ConfigurationError(f"the loss {name} does not depend on the logits, expected a gradient")
    (gradient,) = torch.autograd.grad(losses.mean(), logits, allow_unused=True)
    if not losses.isfinite().all() or gradient is None or not gradient.isfinite().all():
        raise ConfigurationError(f"the loss {name} or its gradient is not finite for logits between -1 and 1")
    if not gradient.any():
        raise ConfigurationError(f"the loss {name} has a gradient of 0 in every logit")


def _check_logits(name: str, logits: object, rows: int, classes: int) -> None:
    if not isinstance(logits, Tensor) or logits.shape != (rows, classes) or logits.dtype != torch.float32:
        raise ConfigurationError(
            f"the model {name} returns {_told(logits)} for {rows} rows, expected logits, float32 ({rows}, {classes})"
        )
    if not logits.isfinite().all():
        raise ConfigurationError(f"the model {name} returns logits that are not finite for the first training rows")


def _check_export(name: str, module: nn.Module, golden: Golden) -> None:
    try:
        graph = export.to_onnx(module, golden.inputs)
    except Exception as error:  # the exporter raises errors of many kinds
        cause: BaseException = error
        while cause.__cause__ is not None:  # the first words of the exporter's own error are about its steps
            cause = cause.__cause__
        reason = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
        place = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        raise ConfigurationError(f"the model {name} cannot be exported to ONNX: {reason}{place}") from error
    try:
        export.check(graph, golden, export.graph_of(module, golden))
    except ExportError as error:
        raise ConfigurationError(
            f"the model {name}: {error}. In evaluation mode, a row's logits must depend on that row alone, not on "
            "the batch or on chance"
        ) from error


def _told(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
