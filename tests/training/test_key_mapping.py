"""Weights that were published elsewhere: their names, their files, and what is refused."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from typer.testing import CliRunner

import bundle
from training import ConfigurationError
from training.cli import app
from training.console import USAGE
from training.models import MODELS, ResNet18, ResNet20
from training.models.published import load_published

State = dict[str, Tensor]


class Lambda(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class PublishedBlock(nn.Module):
    """A residual block in the widespread layout: the shortcut is a module without parameters."""

    def __init__(self, in_planes: int, planes: int) -> None:
        super().__init__()
        stride = 1 if in_planes == planes else 2
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride == 2:
            zeros = planes // 4
            self.shortcut = Lambda(lambda x: functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, zeros, zeros)))

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class PublishedResNet(nn.Module):
    """ResNet-(6 n + 2) with option-A shortcuts, as its weights are published, written here independently of ours."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = nn.Sequential(*[PublishedBlock(16, 16) for _ in range(n)])
        self.layer2 = nn.Sequential(PublishedBlock(16, 32), *[PublishedBlock(32, 32) for _ in range(n - 1)])
        self.layer3 = nn.Sequential(PublishedBlock(32, 64), *[PublishedBlock(64, 64) for _ in range(n - 1)])
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        out = self.layer3(self.layer2(self.layer1(out)))
        out = functional.avg_pool2d(out, out.size(3)).flatten(1)
        logits: Tensor = self.linear(out)
        return logits


def published(n: int) -> tuple[PublishedResNet, Tensor, Tensor]:
    """A network with statistics of its own in every batch normalisation, some images, and what it says of them."""
    torch.manual_seed(n)
    network = PublishedResNet(n)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.3, 0.6)
            nn.init.normal_(layer.bias, std=0.1)
            layer.running_mean.normal_(std=0.1)
            layer.running_var.uniform_(0.8, 1.2)
    images = torch.randn(3, 3, 32, 32)
    with torch.inference_mode():
        return network, images, network.eval()(images)


@pytest.fixture(scope="module")
def state() -> State:
    return published(3)[0].state_dict()


@pytest.mark.parametrize(("name", "n"), [("resnet20", 3), ("resnet32", 5), ("resnet44", 7), ("resnet56", 9)])
def test_the_widespread_layout_loads_and_says_the_same(name: str, n: int, tmp_path: Path) -> None:
    network, images, expected = published(n)
    parallel = {f"module.{key}": value for key, value in network.state_dict().items()}
    torch.save({"state_dict": parallel, "best_prec1": 91.7}, tmp_path / "weights.th")
    ours = MODELS[name](3, 10).eval()
    load_published(ours, tmp_path / "weights.th")
    with torch.inference_mode():
        torch.testing.assert_close(ours(images), expected, rtol=1e-6, atol=1e-6)
    assert expected.std() > 0.01


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model_state_dict", "model", "net"])
@pytest.mark.parametrize("suffix", [".pt", ".pth", ".th"])
def test_every_wrapper_and_suffix_of_pytorch(wrapper: str | None, suffix: str, state: State, tmp_path: Path) -> None:
    path = tmp_path / f"weights{suffix}"
    torch.save(state if wrapper is None else {wrapper: state, "epoch": 200}, path)
    assert_loads(path, state)


def test_arrays_of_numpy(state: State, tmp_path: Path) -> None:
    np.savez(tmp_path / "weights.npz", **{name: tensor.numpy() for name, tensor in state.items()})
    assert_loads(tmp_path / "weights.npz", state)


def test_safetensors(state: State, tmp_path: Path) -> None:
    save_file(state, tmp_path / "weights.safetensors")
    assert_loads(tmp_path / "weights.safetensors", state)


def test_safetensors_in_bfloat16(state: State, tmp_path: Path) -> None:
    rounded = {name: tensor.bfloat16() if tensor.is_floating_point() else tensor for name, tensor in state.items()}
    save_file(rounded, tmp_path / "weights.safetensors")
    assert_loads(tmp_path / "weights.safetensors", {name: tensor.to(state[name]) for name, tensor in rounded.items()})


def test_counts_of_batches_may_be_missing(state: State, tmp_path: Path) -> None:
    torch.save({name: tensor for name, tensor in state.items() if "num_batches" not in name}, tmp_path / "weights.pt")
    assert_loads(tmp_path / "weights.pt", state)


def test_the_names_of_torchvision_for_resnet18(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source, ours = ResNet18(3, 10).eval(), ResNet18(3, 10).eval()
    there = {
        name.replace("linear.", "fc.").replace("shortcut.", "downsample."): tensor
        for name, tensor in source.state_dict().items()
    }
    assert {"fc.weight", "layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_var"} <= there.keys()
    torch.save(there, tmp_path / "weights.pth")
    load_published(ours, tmp_path / "weights.pth")
    images = torch.randn(1, 3, 32, 32)
    assert torch.equal(ours(images), source(images))


def test_what_does_not_fit_is_listed_and_nothing_is_loaded(state: State, tmp_path: Path) -> None:
    wrong = {name: tensor for name, tensor in state.items() if name != "layer1.0.conv1.weight"}
    wrong |= {"layer4.0.conv1.weight": torch.zeros(1), "linear.weight": torch.zeros(100, 64)}
    torch.save(wrong, tmp_path / "weights.pt")
    ours = ResNet20(3, 10)
    before = {name: tensor.clone() for name, tensor in ours.state_dict().items()}
    with pytest.raises(ConfigurationError) as caught:
        load_published(ours, tmp_path / "weights.pt")
    message = str(caught.value)
    assert "does not contain the weights of ResNet20" in message
    assert "missing: layer1.0.conv1.weight;" in message
    assert "unexpected: layer4.0.conv1.weight;" in message
    assert "of another shape: linear.weight (100, 64), expected (10, 64)" in message
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())


def test_a_deeper_network_is_named_by_its_first_weights_and_a_number(tmp_path: Path) -> None:
    torch.save(published(5)[0].state_dict(), tmp_path / "weights.pt")
    with pytest.raises(ConfigurationError, match=r"unexpected: layer1\.3\.bn1\.bias, .* and 64 more"):
        load_published(ResNet20(3, 10), tmp_path / "weights.pt")


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("harmed"),))


def test_files_that_cannot_be_read_safely_are_refused(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Harmful()}, tmp_path / "harmful.pt")
    np.savez(tmp_path / "harmful.npz", weights=np.array([Harmful()], dtype=object))
    (tmp_path / "torn.pt").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "torn.npz").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "torn.safetensors").write_bytes((1000).to_bytes(8, "little") + b"{")
    save_file(state, tmp_path / "whole.safetensors")
    (tmp_path / "short.safetensors").write_bytes((tmp_path / "whole.safetensors").read_bytes()[:-100])
    for name in ("harmful.pt", "harmful.npz", "torn.pt", "torn.npz", "torn.safetensors", "short.safetensors"):
        with pytest.raises(
            ConfigurationError, match=f"{name} does not contain weights that can be read safely"
        ) as told:
            load_published(ResNet20(3, 10), tmp_path / name)
        assert "weights_only" not in str(told.value)
    assert not (tmp_path / "harmed").exists()


def test_what_is_no_file_of_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        load_published(ResNet20(3, 10), tmp_path / "nowhere.pt")
    (tmp_path / "weights.h5").write_bytes(b"")
    with pytest.raises(ConfigurationError, match=r"ends in \.pt, \.pth, \.th"):
        load_published(ResNet20(3, 10), tmp_path / "weights.h5")
    torch.save({"epoch": 3}, tmp_path / "epoch.pt")
    with pytest.raises(ConfigurationError, match="is not a state dictionary"):
        load_published(ResNet20(3, 10), tmp_path / "epoch.pt")


def assert_loads(path: Path, state: State) -> None:
    ours = ResNet20(3, 10)
    load_published(ours, path)
    assert all(torch.equal(ours.state_dict()[name], tensor) for name, tensor in state.items() if "batches" not in name)


MEAN, DEVIATION = (0.49, 0.48, 0.45), (0.25, 0.24, 0.26)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder with weights that were trained elsewhere, and images that their network is nearly right about."""
    network, _, _ = published(3)
    torch.save(network.state_dict(), tmp_path / "weights.th")
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (100, 32, 32, 3)).astype(np.uint8)
    labels = as_published(network, images).argmax(axis=1)
    labels[::4] = random.integers(0, 10, 25)
    np.savez(
        tmp_path / "own.npz",
        images=images[:40],
        labels=labels[:40],
        test_images=images[40:],
        test_labels=labels[40:],
        label_names=np.array(list("abcdefghij")),
    )
    return tmp_path


def as_published(network: nn.Module, images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the weights' makers would compute: normalised images, channels first."""
    normalised = (images.astype(np.float64) / 255 - MEAN) / DEVIATION
    with torch.inference_mode():
        logits: np.ndarray[Any, Any] = network(torch.from_numpy(normalised.transpose(0, 3, 1, 2)).float()).numpy()
    return logits


def import_weights(folder: Path, *changes: str) -> tuple[int, str]:
    arguments = [
        *("import", str(folder / "weights.th"), "--out", str(folder / "bundles"), "--name", "photographs"),
        *("--dataset", "arrays", "--data-setting", f"file={folder / 'own.npz'}", "--reference-rows", "40"),
        *("--model", "resnet20", *changes),
    ]
    if "--mean" not in changes:
        for mean, deviation in zip(MEAN, DEVIATION, strict=True):
            arguments += ["--mean", str(mean), "--deviation", str(deviation)]
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stderr


def test_imported_weights_make_a_bundle_that_says_what_their_network_says(elsewhere: Path) -> None:
    assert import_weights(elsewhere) == (0, "")
    found = bundle.verify(elsewhere / "bundles" / "photographs" / "1")
    with np.load(elsewhere / "own.npz") as own:
        images, labels = own["test_images"], own["test_labels"]
    session = onnxruntime.InferenceSession(found.model_bytes, providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], {"input": images})[0]
    expected = as_published(published(3)[0], images)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    # Reference rows are rows of the test part, which the network has not seen, each with its label.
    parts = (found.reference.fit, found.reference.certify, found.reference.gate)
    rows = [np.abs(expected - row).sum(axis=1).argmin() for part in parts for row in part.logits]
    assert len(set(rows)) == 40
    np.testing.assert_array_equal(labels[rows], np.concatenate([part.labels for part in parts]))
    assert found.report["test"]["rows"] == 20

    record = found.manifest.training
    assert record.weights is not None
    assert record.weights.sha256 == hashlib.sha256((elsewhere / "weights.th").read_bytes()).hexdigest()
    assert (record.weights.file, record.weights.mean, record.weights.deviation) == ("weights.th", MEAN, DEVIATION)
    assert (record.epochs, record.loss, record.optimiser) == (0, None, None)
    assert {name: part.rows for name, part in record.splits.items()} == {
        "train": 40,
        "fit": 20,
        "certify": 18,
        "gate": 2,
        "feedback": 20,
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["--mean", "0.5", "--deviation", "0.25"], "1 means and 1 deviations, expected one of each for the 3 channels"),
        (["--model", "resnet32"], "does not contain the weights of ResNet32"),
        (["--reference-rows", "61"], "expected at most 60 (rows the network has not seen)"),
        (["--dataset", "vehicle_fraud"], "no setting 'file'"),
        (["--model", "none"], "unknown model"),
    ],
)
def test_imports_that_cannot_work(elsewhere: Path, changes: list[str], told: str) -> None:
    code, err = import_weights(elsewhere, *changes)
    assert code == USAGE
    assert told in err
    assert not (elsewhere / "bundles").exists()


def test_only_images_have_a_normalisation(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("x,y\n" + "\n".join(f"{row},{row % 2}" for row in range(20)))
    settings = ["--data-setting", f"file={tmp_path / 'own.csv'}", "--data-setting", "label=y", "--model", "table_cnn"]
    sides = ["--out", str(tmp_path), "--mean", "0.5", "--deviation", "0.5"]
    result = CliRunner().invoke(app, ["import", str(tmp_path / "weights.pt"), "--dataset", "table", *settings, *sides])
    assert result.exit_code == USAGE
    assert "does not contain images" in result.stderr
