"""What every architecture promises: logits, gradients, seeds, dropout, half precision, and an export that agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from bundle import external_data
from training import ConfigurationError
from training.export import to_onnx
from training.inputs import CategoryColumn, ImageShape, InputShape, NumberColumn, TableShape, TokenShape
from training.models import MODELS, ImageNetwork, Network, TableNetwork, TokenNetwork, assemble

try:
    import torchvision.models  # noqa: F401
except (ImportError, RuntimeError):  # one that is for another PyTorch raises the second
    TORCHVISION = False
else:
    TORCHVISION = True

CLASSES = 4
HERE = [name for name in MODELS if TORCHVISION or name != "imagenet_resnet50"]  # that one needs torchvision
# One of each family is enough where its members share the code.
FAMILIES = [
    *(
        "lenet5",
        "lenet5_original",
        "lenet5_padded",
        "vgg16_bn",
        "resnet18",
        "resnet20",
        "densenet_bc_100_12",
        "wide_resnet_16_4",
    ),
    *("text_cnn", "table_cnn"),
]
# Left out: models with the code of an exported one, in another depth or width. ResNet-50 has the bottlenecks of
# torchvision's ResNet-50, and the rest of ResNet-18.
LEFT_OUT = {"resnet32", "resnet44", "resnet56", "resnet110", "densenet121"} | ({"resnet50"} if TORCHVISION else set())
EXPORTED = [name for name in HERE if name not in LEFT_OUT]
TABLE = TableShape((NumberColumn(3.0, 2.0), CategoryColumn(4), NumberColumn(), CategoryColumn(0)))


def shape_for(architecture: type[Network], channels: int = 3) -> InputShape:
    if issubclass(architecture, ImageNetwork):
        return ImageShape(architecture.size, architecture.size, scale=(60.0,) * channels, mean=(120.0,) * channels)
    return TokenShape(vocabulary=50, length=19) if issubclass(architecture, TokenNetwork) else TABLE


def stored(shape: InputShape, rows: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    match shape:
        case ImageShape():
            return random.integers(0, 256, (rows, shape.height, shape.width, shape.channels)).astype(np.uint8)
        case TokenShape():
            return random.integers(-1, shape.vocabulary + 1, (rows, shape.length)).astype(np.int32)
        case TableShape():
            numbers = random.normal(3.0, 2.0, (rows, len(shape.columns))).astype(np.float32)
            for place, column in enumerate(shape.columns):
                if isinstance(column, CategoryColumn):
                    numbers[:, place] = random.integers(0, column.categories + 1, rows)
            return numbers


def built(name: str, *, dropout: float = 0.0, channels: int = 3, seed: int = 0) -> tuple[nn.Sequential, Tensor]:
    torch.manual_seed(seed)
    shape = shape_for(MODELS[name], channels)
    return assemble(MODELS[name], shape, CLASSES, dropout=dropout), torch.from_numpy(stored(shape, 4))


@pytest.mark.parametrize("name", HERE)
def test_every_model_maps_inputs_to_logits_and_learns(name: str) -> None:
    module, inputs = built(name, dropout=0.1)
    logits = module(inputs)
    assert (logits.shape, logits.dtype) == ((4, CLASSES), torch.float32)
    logits.square().sum().backward()
    for parameter_name, parameter in module.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        assert parameter.grad.any(), parameter_name


@pytest.mark.parametrize("name", [name for name in FAMILIES if issubclass(MODELS[name], ImageNetwork)])
def test_image_models_take_grey_images_too(name: str) -> None:
    module, inputs = built(name, channels=1)
    assert module(inputs).shape == (4, CLASSES)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_seed_decides_the_weights(name: str) -> None:
    (one, _), (same, _), (other, _) = built(name, seed=1), built(name, seed=1), built(name, seed=2)
    assert one.state_dict().keys() == same.state_dict().keys()
    assert all(torch.equal(value, same.state_dict()[key]) for key, value in one.state_dict().items())
    assert not all(torch.equal(value, other.state_dict()[key]) for key, value in one.state_dict().items())


@pytest.mark.parametrize("name", FAMILIES)
def test_dropout_acts_in_training_only(name: str) -> None:
    (plain, inputs), (dropping, _) = built(name), built(name, dropout=0.5)
    assert torch.equal(plain(inputs), plain(inputs))
    assert not torch.equal(dropping(inputs), dropping(inputs))
    dropping.eval()
    assert torch.equal(dropping(inputs), dropping(inputs))


@pytest.mark.parametrize("name", FAMILIES)
def test_half_precision_and_channels_last_change_little(name: str) -> None:
    module, inputs = built(name)
    expected = module(inputs)
    if issubclass(MODELS[name], ImageNetwork):
        module = module.to(memory_format=torch.channels_last)
        torch.testing.assert_close(module(inputs), expected, rtol=1e-3, atol=1e-3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = module(inputs)
    correlation = torch.corrcoef(torch.stack([logits.float().flatten(), expected.flatten()]))[0, 1]
    assert correlation > 0.99


@pytest.mark.parametrize("name", EXPORTED)
def test_onnx_runtime_agrees_with_torch_whatever_the_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if blocks := getattr(MODELS[name], "blocks", None):  # an export takes a second for every few layers
        monkeypatch.setattr(MODELS[name], "blocks", tuple(min(layers, 2) for layers in blocks))
    module, _ = built(name)
    shape = shape_for(MODELS[name])
    normalise_as_after_training(module, torch.from_numpy(stored(shape, 8, seed=1)))
    model = to_onnx(module, stored(shape, 2))
    external_data.refuse(model, file="model.onnx")
    session = session_of(model)
    (taken,), (given_back,) = session.get_inputs(), session.get_outputs()
    assert (taken.name, given_back.name, given_back.type) == ("input", "logits", "tensor(float)")
    assert isinstance(taken.shape[0], str)
    for rows in (1, 3):
        inputs = stored(shape, rows, seed=rows)
        with torch.inference_mode():
            expected = module(torch.from_numpy(inputs)).numpy()
        assert expected.std() > 1e-3
        # float32 through fifty layers: the order of additions alone makes up to 1.2e-4
        np.testing.assert_allclose(session.run(["logits"], {"input": inputs})[0], expected, rtol=1e-4, atol=5e-4)


@pytest.mark.parametrize("shape", [TableShape((NumberColumn(),) * 3), TableShape((CategoryColumn(3),) * 2)])
def test_a_table_of_one_kind_of_columns_is_exported_too(shape: TableShape) -> None:
    torch.manual_seed(0)
    module = assemble(MODELS["table_cnn"], shape, CLASSES).eval()
    rows = stored(shape, 3)
    rows[0, 0], rows[1, 0] = np.nan, 7.5
    logits = session_of(to_onnx(module, rows)).run(["logits"], {"input": rows})[0]
    with torch.inference_mode():
        np.testing.assert_allclose(logits, module(torch.from_numpy(rows)).numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, 2, 7, 100])
def test_texts_may_have_any_length(length: int) -> None:
    torch.manual_seed(0)
    module = assemble(MODELS["text_cnn"], TokenShape(vocabulary=50, length=length), CLASSES).eval()
    assert module(torch.ones(2, length, dtype=torch.int32)).shape == (2, CLASSES)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("lenet5", TABLE), ("text_cnn", ImageShape(8, 8, (1.0,))), ("table_cnn", TokenShape(9, 9))],
)
def test_inputs_of_another_kind_are_refused(name: str, shape: InputShape) -> None:
    with pytest.raises(ConfigurationError, match=r"requires .*, the data set has"):
        assemble(MODELS[name], shape, CLASSES)


def test_every_model_says_what_it_takes() -> None:
    bases = {ImageNetwork: ImageShape, TokenNetwork: TokenShape, TableNetwork: TableShape}
    for architecture in MODELS.values():
        assert [takes for base, takes in bases.items() if issubclass(architecture, base)] == [architecture.takes]


def normalise_as_after_training(module: nn.Module, inputs: Tensor) -> None:
    """Let batch normalisation measure a batch, as training would; without that, the signal of deep nets explodes."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d):
            layer.momentum = 1.0
    with torch.no_grad():
        module.train()(inputs)
    module.eval()


def session_of(model: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
