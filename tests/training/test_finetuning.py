"""Networks of other libraries: their weights, their preprocessing, their classes; and what learns, how fast."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import bundle
from training import ConfigurationError, TrainConfig, train_bundle
from training.inputs import ImageShape, TokenShape
from training.models import pretrained
from training.models.pretrained import fine_tuned
from training.optimiser import layers_of
from training.trained import learn, load

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries themselves
COLOUR = ImageShape(48, 48, (1.0,) * 3)
GREY = ImageShape(8, 8, (1.0,))
FOUR = ("a", "b", "c", "d")
TINY = TrainConfig(epochs=1, train_rows=60, reference_rows=60)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randint(0, 256, (3, 48, 48, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def timm() -> Any:
    return pretrained._imported("timm")


@pytest.fixture(scope="module")
def vit(timm: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[nn.Module, Path]:
    """timm's smallest published vision transformer with weights of our own, in BF16 as many are published."""
    torch.manual_seed(0)
    network = timm.create_model("test_vit", num_classes=4).to(torch.bfloat16)
    path = tmp_path_factory.mktemp("timm") / "vit.safetensors"
    safetensors.torch.save_file(network.state_dict(), path)
    return network.float().eval(), path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vision transformer as transformers saves it: 32 × 32 images, three classes."""
    transformers = pretrained._imported("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        id2label={0: "2", 1: "0", 2: "1"},
    )
    path = tmp_path_factory.mktemp("hf") / "vit"
    transformers.logging.disable_progress_bar()
    transformers.ViTForImageClassification(config).save_pretrained(path)
    preprocessing = {"do_normalize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]}
    (path / "preprocessor_config.json").write_text(json.dumps({**preprocessing, "size": {"height": 32, "width": 32}}))
    return path


def entered(images: Tensor, side: int, mean: Any, deviation: Any) -> Tensor:
    """What a library's own preprocessing of whole images makes of them."""
    scaled = (images.float() / 255 - torch.tensor(mean)) / torch.tensor(deviation)
    return nn.functional.interpolate(scaled.permute(0, 3, 1, 2), (side, side), mode="bilinear", align_corners=False)


def logits(module: nn.Module, images: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = module.eval()(images)
    return found


def test_timm_gives_what_timm_gives(vit: tuple[nn.Module, Path], images: Tensor) -> None:
    """A new head, and everything before it as published: the features are timm's."""
    network, path = vit
    module = fine_tuned("timm:test_vit", COLOUR, FOUR, weights=path)
    x = entered(images, 160, (0.5,) * 3, (0.5,) * 3)
    torch.testing.assert_close(logits(module[0], images), x)
    ours, theirs = module[1].network, network
    torch.testing.assert_close(ours.forward_features(x), theirs.forward_features(x))  # type: ignore[operator]
    assert module[1].head == {"head.weight", "head.bias"}
    assert not torch.equal(ours.head.weight, theirs.head.weight)  # type: ignore[union-attr]


def test_timm_takes_another_image_size(vit: tuple[nn.Module, Path], images: Tensor) -> None:
    network, path = vit
    module = fine_tuned("timm:test_vit", COLOUR, FOUR, weights=path, side=64)
    positions = module[1].network.pos_embed
    assert positions.shape[1] < network.pos_embed.shape[1]  # type: ignore[union-attr,operator]
    assert logits(module, images).shape == (3, 4)


def test_a_folder_of_timm_keeps_the_head_of_the_same_classes(
    vit: tuple[nn.Module, Path], images: Tensor, tmp_path: Path
) -> None:
    network, path = vit
    (tmp_path / "model.safetensors").write_bytes(path.read_bytes())
    told = {"architecture": "test_vit", "label_names": ["c", "a", "d", "b"]}
    (tmp_path / "config.json").write_text(json.dumps({**told, "pretrained_cfg": {"mean": [0.1] * 3, "std": [0.2] * 3}}))
    module = fine_tuned(f"hf:{tmp_path}", COLOUR, FOUR)
    theirs = logits(network, entered(images, 160, (0.1,) * 3, (0.2,) * 3))
    torch.testing.assert_close(logits(module, images), theirs[:, [1, 3, 0, 2]])


def test_torchvision_gives_what_torchvision_gives(images: Tensor, tmp_path: Path) -> None:
    models = pretrained._imported("torchvision").models
    torch.manual_seed(0)
    network = models.get_model("shufflenet_v2_x0_5", weights=None, num_classes=7).eval()
    torch.save(
        {"state_dict": {f"module.{name}": each for name, each in network.state_dict().items()}}, tmp_path / "w.pth"
    )
    module = fine_tuned("torchvision:shufflenet_v2_x0_5", COLOUR, FOUR, weights=tmp_path / "w.pth", side=64)
    x = entered(images, 64, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    features = module[1].network
    features.fc, network.fc = nn.Identity(), nn.Identity()
    torch.testing.assert_close(logits(module, images), logits(network, x))


@pytest.mark.parametrize(("name", "side"), [("googlenet", 48), ("inception_v3", 80), ("mnasnet0_5", 48)])
def test_torchvision_networks_with_peculiar_weights(name: str, side: int, images: Tensor, tmp_path: Path) -> None:
    """As their library's own weights make them: with other channels, and with a version that a file does not have."""
    models = pretrained._imported("torchvision").models
    auxiliary = {} if name == "mnasnet0_5" else {"aux_logits": True, "transform_input": True, "init_weights": False}
    network = models.get_model(name, weights=None, **auxiliary).eval()
    safetensors.torch.save_file(network.state_dict(), tmp_path / "w.safetensors")
    module = fine_tuned(f"torchvision:{name}", COLOUR, FOUR, weights=tmp_path / "w.safetensors", side=side)
    features, head = module[1].network, "classifier" if name == "mnasnet0_5" else "fc"
    assert {each.partition(".")[0] for each in module[1].head} == {head}
    setattr(features, head, nn.Identity())
    setattr(network, head, nn.Identity())
    x = entered(images, side, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    torch.testing.assert_close(logits(module, images), logits(network, x))
    assert isinstance(module.train()(images), Tensor)


def test_torchvision_takes_another_image_size(images: Tensor, tmp_path: Path) -> None:
    models = pretrained._imported("torchvision").models
    network = models.get_model("vit_b_32", weights=None)
    safetensors.torch.save_file(network.state_dict(), tmp_path / "w.safetensors")
    module = fine_tuned("torchvision:vit_b_32", COLOUR, FOUR, weights=tmp_path / "w.safetensors", side=64)
    assert module[1].network.encoder.pos_embedding.shape[1] == 2 * 2 + 1
    assert logits(module, images).shape == (3, 4)


def test_both_heads_of_a_distilled_network_are_new(timm: Any, images: Tensor, tmp_path: Path) -> None:
    network = timm.create_model("deit_tiny_distilled_patch16_224")
    safetensors.torch.save_file(network.state_dict(), tmp_path / "w.safetensors")
    module = fine_tuned(
        "timm:deit_tiny_distilled_patch16_224", COLOUR, FOUR, weights=tmp_path / "w.safetensors", side=32
    )
    assert module[1].head == {f"{head}.{name}" for head in ("head", "head_dist") for name in ("weight", "bias")}
    assert logits(module, images).shape == (3, 4)


@pytest.mark.parametrize("side", [32, 48])
def test_a_folder_of_transformers_gives_what_transformers_gives(folder: Path, images: Tensor, side: int) -> None:
    offline = os.environ.get("HF_HUB_OFFLINE")
    network = pretrained._imported("transformers").ViTForImageClassification.from_pretrained(folder).eval()
    x = entered(images, side, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    with torch.no_grad():
        theirs = network(x, interpolate_pos_encoding=True).logits
    module = fine_tuned(f"hf:{folder}", COLOUR, ("0", "1", "2"), side=side)
    torch.testing.assert_close(logits(module, images), theirs[:, [1, 2, 0]])
    other = fine_tuned(f"hf:{folder}", COLOUR, FOUR, side=side)  # other classes: a new head
    assert logits(other, images).shape == (3, 4)
    for name, parameter in network.vit.named_parameters():
        torch.testing.assert_close(other[1].network.get_parameter(f"vit.{name}"), parameter)
    assert os.environ.get("HF_HUB_OFFLINE") == offline, "other models of this process come from a hub"


def test_a_folder_without_positions_takes_another_image_size(folder: Path, images: Tensor, tmp_path: Path) -> None:
    transformers = pretrained._imported("transformers")
    config = transformers.ConvNextConfig(hidden_sizes=[4] * 4, depths=[1] * 4, image_size=32)
    transformers.ConvNextForImageClassification(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_bytes((folder / "preprocessor_config.json").read_bytes())
    assert logits(fine_tuned(f"hf:{tmp_path}", COLOUR, FOUR, side=48), images).shape == (3, 4)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": [1.0] * 3},
        {"do_rescale": False, "image_mean": [100.0, 110.0, 120.0], "image_std": [50.0, 60.0, 70.0]},
        {"do_normalize": False},
        {"size": {"height": 40, "width": 40}, "crop_size": {"height": 32, "width": 32}, "do_center_crop": True},
        {"crop_size": {"height": 16, "width": 16}, "do_center_crop": False},
    ],
)
def test_images_enter_as_the_folders_processor_says(told: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    """Images of the network's size: the library's processor and the graph's beginning give the same values."""
    transformers = pretrained._imported("transformers")
    for name in ("config.json", "model.safetensors", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    document = json.loads((tmp_path / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**document, **told}))
    pixels = torch.randint(0, 256, (2, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    module = fine_tuned(f"hf:{tmp_path}", ImageShape(32, 32, (1.0,) * 3), FOUR)
    kept = {name: value for name, value in (document | told).items() if "crop" not in name and name != "size"}
    processor = transformers.ViTImageProcessor(**kept, size={"height": 32, "width": 32})
    expected = processor(list(pixels.permute(0, 3, 1, 2)), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(logits(module[0], pixels), expected.float(), rtol=1e-5, atol=1e-5)


def test_efficientnets_offset_and_a_factor_that_cannot_be(folder: Path) -> None:
    assert pretrained._offset({"rescale_offset": True}) == 1.0
    with pytest.raises(ConfigurationError, match="rescale_factor 0, expected"):
        pretrained._rescaling({"rescale_factor": 0}, folder)


def test_grey_images_enter_as_colours(folder: Path) -> None:
    grey = torch.arange(64, dtype=torch.uint8).reshape(1, 8, 8, 1)
    module = fine_tuned(f"hf:{folder}", GREY, FOUR)
    torch.testing.assert_close(logits(module, grey), logits(module, grey.expand(-1, -1, -1, 3)))


def test_a_fine_tuned_network_becomes_a_bundle(folder: Path, tmp_path: Path) -> None:
    config = replace(TINY, dataset="digits:0,1,2", model=f"hf:{folder}", epochs=3, frozen_epochs=1, layer_decay=0.7)
    made = bundle.verify(train_bundle(config, tmp_path, weights=tmp_path / "weights.npz"))
    assert made.manifest.architecture is not None
    origin = made.manifest.architecture.config["pretrained"]
    assert isinstance(origin, dict)
    assert origin["file"] == "model.safetensors"
    assert made.manifest.training is not None
    assert made.manifest.training.recipe["frozen_epochs"] == 1
    assert made.manifest.input.shape == (8, 8, 1)
    kept = load(tmp_path / "weights.npz")
    np.testing.assert_allclose(kept.scored(kept.parts.gate).logits, made.reference.gate.logits, rtol=1e-4, atol=1e-4)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial export, which other tests do."""
    monkeypatch.setattr("training.trained.check_network", lambda *_: None)


@pytest.mark.usefixtures("unchecked")
def test_while_it_is_frozen_only_the_head_learns(timm: Any) -> None:
    """Weights and statistics of the others stay to the last bit, and then no longer."""
    config = replace(TINY, model="timm:test_resnet", image_size=32, epochs=2)
    states = []
    for frozen in (2, 1):
        network = learn(replace(config, frozen_epochs=frozen)).module[1]  # type: ignore[index]
        states.append({name: each for name, each in network.network.state_dict().items() if "num_batches" not in name})
    torch.manual_seed(config.seed)
    began = fine_tuned(config.model, GREY, tuple("0123456789"), side=32)[1].network.state_dict()
    same = {name: torch.equal(each, began[name]) for name, each in states[0].items()}
    assert {name for name, kept in same.items() if not kept} == {"fc.weight", "fc.bias"}
    assert not any(torch.equal(each, began[name]) for name, each in states[1].items() if "running_mean" in name)


@pytest.mark.usefixtures("unchecked")
def test_each_layer_has_its_learning_rate(folder: Path) -> None:
    """After one step of plain gradient descent, a layer has moved by the decay to the power of its place."""
    config = replace(TINY, dataset="digits:0,1,2", model=f"hf:{folder}", batch_size=60, optimiser="sgd", momentum=0.0)
    fresh = fine_tuned(config.model, GREY, ("0", "1", "2"))
    began, layers = dict(fresh.named_parameters()), layers_of(fresh)
    place = {id(parameter): number for number, layer in enumerate(layers) for parameter in layer}
    assert len(layers) >= 4
    assert place[id(began["1.network.classifier.bias"])] == len(layers) - 1
    moved = {}
    for decay in (1.0, 0.5):
        module = learn(replace(config, layer_decay=decay, learning_rate=1.0)).module
        moved[decay] = {name: (each - began[name]).detach() for name, each in module.named_parameters()}
    for name, change in moved[1.0].items():
        expected = change * 0.5 ** (len(layers) - 1 - place[id(began[name])])
        torch.testing.assert_close(moved[0.5][name], expected, rtol=1e-3, atol=1e-6)


def test_what_cannot_work_is_refused(vit: tuple[nn.Module, Path], folder: Path, tmp_path: Path) -> None:
    _, path = vit
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pth")
    (tmp_path / "config.json").write_text('{"architectures": ["BertForMaskedLM"]}')
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "preprocessor_config.json"):
        (bare / name).write_bytes((folder / name).read_bytes())
    (bare / "pytorch_model.bin").write_bytes(b"")

    def made(model: str, **more: Any) -> Callable[[], object]:
        return lambda: fine_tuned(model, COLOUR, FOUR, **more)

    def config(**more: Any) -> Callable[[], object]:
        return lambda: learn(replace(TINY, **more))

    for attempt, why in (
        (made("timm:test_vitt"), "timm has no model 'test_vitt'; similar names: .*test_vit"),
        (made("torchvision:resnet17"), "torchvision has no classifier 'resnet17'; similar names: .*resnet18"),
        (made("timm:test_vit", weights=tmp_path / "other.pth"), "missing: .*unexpected: a"),
        (made("timm:test_resnet", weights=path), "does not contain the weights of ResNet"),
        (made("timm:test_vit", weights=tmp_path / "none.safetensors"), "no such file"),
        (made(f"hf:{tmp_path}"), "expected a classifier of images"),
        (made(f"hf:{tmp_path}/absent"), "expected what save_pretrained of model and processor writes"),
        (made(f"hf:{bare}"), r"expected weights; those in .bin files are not read"),
        (lambda: fine_tuned("timm:test_vit", TokenShape(10, 4), FOUR), "requires images"),
        (config(model="timm:test_vit", dropout=0.5), "do not apply to timm:test_vit"),
        (config(image_size=32), "belong to the models timm:NAME"),
        (config(frozen_epochs=1), "requires a network of timm:"),
        (config(layer_decay=0.0), "expected a positive number of at most 1"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            attempt()
