"""Export of a trained module to a self-contained ONNX model, with a check that both agree."""

from __future__ import annotations

import io
import logging
import math
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bundle import EncodedImage, EncodedText, Golden, Graph, GraphInput, GraphOutput, Tokenizer, Vocabulary
from bundle import text as text_input
from bundle.images import encode_png
from training.errors import ExportError
from training.preprocess import TextInput
from training.stored import Stored, batches
from training.tokenized import TENSORS, as_pairs, as_records

OPSET = 20
TOLERANCE = 1e-4
_GOLDEN_ROWS = 6
_BATCH, _BATCH_VALUES = 512, 2**24  # rows, and values of their inputs, of a batch


class _OfTensors(nn.Module):
    """A module of texts, from ids and mask as two inputs of a graph.

    Args:
        module: `TextInput`, and what follows it.
    """

    def __init__(self, module: nn.Sequential) -> None:
        super().__init__()
        self.rest = module[1:]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Map ids and mask int64 (N, L) to logits (N, K)."""
        logits: Tensor = self.rest((ids, mask))
        return logits


def graph_of(module: nn.Module, golden: Golden) -> Graph | None:
    """Return how texts enter the graph of a module; None for others, which take `input`."""
    if not _takes_texts(module):
        return None
    inputs = tuple(GraphInput(name=name, dtype="int64", shape=golden.inputs[name].shape[1:]) for name in TENSORS)
    return Graph(inputs=inputs, output=GraphOutput(name="logits", form="logits"), mask=TENSORS[1])


def _takes_texts(module: nn.Module) -> bool:
    return isinstance(module, nn.Sequential) and isinstance(module[0], TextInput)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep PyTorch's exporter from printing; where it fails, the last line of the network is a note of its error."""
    loggers = {name: logging.getLogger(name) for name in ("torch.onnx", "torch.fx.experimental.symbolic_shapes")}
    levels = {name: logger.level for name, logger in loggers.items()}
    said = io.StringIO()  # the network as far as it got, line by line
    try:
        for logger in loggers.values():
            logger.setLevel(logging.ERROR)  # they warn about unused operators, and what the error says
        with redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about deprecations inside the exporter
            yield
    except Exception as error:
        if lines := re.findall(r"# File: (.+?) in \w+, code: (.+)", said.getvalue()):
            error.add_note(" ".join(lines[-1]))
        raise
    finally:
        for name, logger in loggers.items():
            logger.setLevel(levels[name])


def to_onnx(module: nn.Module, example: NDArray[Any]) -> bytes:
    """Export a module with input `input`, output `logits` and a dynamic batch axis.

    Modules of texts have the inputs `input_ids` and `attention_mask`, of any length.

    Source files and call stacks recorded by the exporter are removed: a model reveals nothing about the machine that
    made it, and equal weights give equal bytes.

    Args:
        module: In evaluation mode, from inputs (N, …) to logits (N, K).
        example: Two inputs or more, (N, …), structured for texts.

    Returns:
        The serialised model.
    """
    batch = torch.export.Dim("batch")
    names: tuple[str, ...]
    arguments: tuple[Tensor, ...]
    if isinstance(module, nn.Sequential) and _takes_texts(module):
        names = TENSORS
        arguments = tuple(torch.from_numpy(np.ascontiguousarray(example[name])) for name in names)
        shapes: Any = ({0: batch, 1: torch.export.Dim.DYNAMIC},) * len(names)
        module = _OfTensors(module)
    else:
        names, arguments, shapes = ("input",), (torch.from_numpy(example),), ({0: batch},)
    with _quiet_exporter():
        program = torch.onnx.export(
            module,
            arguments,
            input_names=list(names),
            output_names=["logits"],
            dynamic_shapes=shapes,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
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


def logits_of(module: nn.Module, inputs: NDArray[Any] | Stored) -> NDArray[np.float32]:
    """Return the logits float32 (N, K) of a module in evaluation mode, computed on its device."""
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    places: NDArray[np.int64] | slice = slice(None)
    if isinstance(inputs, Stored):
        inputs, places = inputs.ordered()
    size = min(_BATCH, max(1, _BATCH_VALUES // max(1, math.prod(inputs.shape[1:]))))
    with torch.inference_mode(), closing(batches(inputs, size)) as rows:
        parts = [module(torch.from_numpy(batch).to(device)).cpu() for batch in rows]
    logits: NDArray[np.float32] = torch.cat(parts).numpy()[places]
    return logits


def make_golden(
    module: nn.Module, held_out: NDArray[Any] | Stored, encoder: Vocabulary | Tokenizer | None = None
) -> Golden:
    """Choose golden inputs, including extreme ones, and encode some as a client would.

    Images include a black and a white one, and some are encoded as PNG. Texts include an empty one and one of unknown
    words, and some are written out in words. Rows of a table include one with all values missing.

    Args:
        module: The trained module, which gives the golden logits.
        held_out: Held-out inputs, uint8 (N, H, W, C), int32 (N, L), float32 (N, F), or int32 (N, 2, L) by a tokenizer.
        encoder: Vocabulary or tokenizer of the texts, if the inputs are texts.
    """
    some = np.asarray(held_out[:_GOLDEN_ROWS])
    if isinstance(encoder, Tokenizer):
        read = [encoder.decode(record) for record in as_records(some, encoder.input)]
        given = [*filter(None, read), "", "?"]
        records = encoder.encode(given)
        examples = tuple(map(EncodedText, given, range(len(given))))
        return Golden(records, logits_of(module, as_pairs(records)), texts=examples)
    if encoder is not None:
        words = [encoder.decode(row) for row in some]
        texts = [
            EncodedText(f"{text.upper() if text.isascii() else text}!", row) for row, text in enumerate(words) if text
        ]
        tokens = np.concatenate(
            [
                encoder.encode(words),
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


def check(model: bytes, golden: Golden, graph: Graph | None = None) -> float:
    """Run the golden inputs through ONNX Runtime, as a batch and one by one.

    Args:
        model: The exported model.
        golden: Inputs with PyTorch's logits.
        graph: How texts enter it; None for the input `input`.

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

    def run(rows: NDArray[Any]) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = session.run(["logits"], {"input": rows} if graph is None else graph.feeds(rows))[
            0
        ]
        return logits

    together = run(golden.inputs)
    alone = np.concatenate([run(golden.inputs[row : row + 1]) for row in range(len(golden.inputs))])
    scale = np.maximum(1.0, np.abs(golden.logits))
    difference = max(float((np.abs(logits - golden.logits) / scale).max()) for logits in (together, alone))
    if not difference <= TOLERANCE:
        raise ExportError(
            f"ONNX Runtime's logits differ from PyTorch's by {difference:.2g}, expected at most {TOLERANCE:g}"
        )
    return difference
