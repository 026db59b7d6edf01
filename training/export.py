"""Export of a trained module to a self-contained ONNX model, with a check that both agree."""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import nn

from bundle import EncodedImage, EncodedText, Golden, Vocabulary
from bundle import text as text_input
from bundle.images import encode_png
from training.errors import ExportError

OPSET = 20
TOLERANCE = 1e-4
_GOLDEN_ROWS = 6


def to_onnx(module: nn.Module, example: NDArray[Any]) -> bytes:
    """Export a module with input `input`, output `logits` and a dynamic batch axis.

    Source files and call stacks recorded by the exporter are removed: a model reveals nothing about the machine that
    made it, and equal weights give equal bytes.

    Args:
        module: In evaluation mode, from inputs (N, …) to logits (N, K).
        example: Two inputs or more, (N, …).

    Returns:
        The serialised model.
    """
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)  # it warns about unused torchvision operators
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about deprecations inside PyTorch's own exporter
            program = torch.onnx.export(
                module,
                (torch.from_numpy(example),),
                input_names=["input"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                opset_version=OPSET,
                dynamo=True,
                verbose=False,
            )
    finally:
        exporter.setLevel(level)
    if program is None:
        raise ExportError("PyTorch's exporter returned no model")
    model = program.model_proto
    for part in (
        model,
        model.graph,
        *model.graph.node,
        *model.graph.input,
        *model.graph.output,
        *model.graph.value_info,
    ):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def logits_of(module: nn.Module, inputs: NDArray[Any], batch_size: int = 512) -> NDArray[np.float32]:
    """Return the logits float32 (N, K) of a module in evaluation mode, computed on its device."""
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    with torch.inference_mode():
        parts = [
            module(torch.from_numpy(inputs[start : start + batch_size]).to(device)).cpu()
            for start in range(0, len(inputs), batch_size)
        ]
    logits: NDArray[np.float32] = torch.cat(parts).numpy()
    return logits


def make_golden(module: nn.Module, held_out: NDArray[Any], vocabulary: Vocabulary | None = None) -> Golden:
    """Choose golden inputs, including extreme ones, and encode some as a client would.

    Images include a black and a white one, and some are encoded as PNG. Texts include an empty one and one of unknown
    words, and some are written out in words. Rows of a table include one with all values missing.

    Args:
        module: The trained module, which gives the golden logits.
        held_out: Held-out inputs, uint8 (N, H, W, C), int32 (N, L) or float32 (N, F).
        vocabulary: Vocabulary of the tokens, if the inputs are tokens.
    """
    some = held_out[:_GOLDEN_ROWS]
    if vocabulary is not None:
        words = [vocabulary.decode(row) for row in some]
        texts = [
            EncodedText(f"{text.upper() if text.isascii() else text}!", row) for row, text in enumerate(words) if text
        ]
        tokens = np.concatenate(
            [
                vocabulary.encode(words),
                np.full_like(some[:1], text_input.PAD),
                np.full_like(some[:1], text_input.UNKNOWN),
            ]
        )
        return Golden(tokens, logits_of(module, tokens), texts=(*texts, EncodedText("", len(some))))
    if some.dtype != np.uint8:
        rows = np.concatenate([some, np.zeros_like(some[:1]), np.full_like(some[:1], np.nan)])
        return Golden(rows, logits_of(module, rows))
    inputs = np.concatenate([some, np.zeros_like(some[:1]), np.full_like(some[:1], 255)])
    opaque = np.full((*some.shape[1:3], 1), 255, np.uint8)
    in_colour = np.concatenate([np.broadcast_to(some[-1], (*some.shape[1:3], 3)), opaque], axis=2)
    encoded = [EncodedImage("image/png", encode_png(image), row) for row, image in enumerate(some[:3])]
    encoded.append(EncodedImage("image/png", encode_png(in_colour), len(some) - 1))
    return Golden(inputs, logits_of(module, inputs), tuple(encoded))


def check(model: bytes, golden: Golden) -> float:
    """Run the golden inputs through ONNX Runtime, as a batch and one by one.

    Args:
        model: The exported model.
        golden: Inputs with PyTorch's logits.

    Returns:
        The largest difference, absolute below 1 and relative above.

    Raises:
        ExportError: It exceeds 1e-4, or ONNX Runtime is missing or refuses the model.
    """
    try:
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it sends telemetry by default
        import onnxruntime
    except ImportError as error:
        raise ExportError("ONNX Runtime is needed to check the export: python requirements/install.py cpu") from error

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session: Any = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    together = session.run(["logits"], {"input": golden.inputs})[0]
    alone = np.concatenate([session.run(["logits"], {"input": row[np.newaxis]})[0] for row in golden.inputs])
    scale = np.maximum(1.0, np.abs(golden.logits))
    difference = max(float((np.abs(logits - golden.logits) / scale).max()) for logits in (together, alone))
    if not difference <= TOLERANCE:
        raise ExportError(
            f"ONNX Runtime's logits differ from PyTorch's by {difference:.2g}, expected at most {TOLERANCE:g}"
        )
    return difference
