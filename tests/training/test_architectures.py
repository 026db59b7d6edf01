"""Architectures are those of their papers: parameters counted by hand, connections, shortcuts, first weights."""

from __future__ import annotations

import itertools
import math
import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from training import ConfigurationError
from training.models import MODELS, ImageNetResNet50, LeNet5Original, TableCNN, TextCNN
from training.models.lenet5_original import CONNECTIONS
from training.models.resnet_cifar import Block


def conv(width: int, planes: int, kernel: int) -> int:
    """Weights of a convolution without bias and of the batch normalisation behind it."""
    return width * planes * kernel**2 + 2 * planes


def linear(width: int, planes: int) -> int:
    return (width + 1) * planes


def cifar_resnet(depth: int) -> int:
    blocks = (depth - 2) // 6
    stages = [(16, 16), (16, 32), (32, 64)]
    return (
        conv(3, 16, 3)
        + sum(conv(width, planes, 3) + (2 * blocks - 1) * conv(planes, planes, 3) for width, planes in stages)
        + linear(64, 10)
    )


def resnet18() -> int:
    stages = [(64, 64, 0), (64, 128, 1), (128, 256, 1), (256, 512, 1)]
    return (
        conv(3, 64, 3)
        + sum(conv(w, p, 3) + 3 * conv(p, p, 3) + projected * conv(w, p, 1) for w, p, projected in stages)
        + linear(512, 10)
    )


def resnet50(stem_kernel: int, classes: int) -> int:
    total, width = conv(3, 64, stem_kernel), 64
    for planes, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        total += conv(width, 4 * planes, 1)  # the one shortcut that changes the shape
        for _ in range(blocks):
            total += conv(width, planes, 1) + conv(planes, planes, 3) + conv(planes, 4 * planes, 1)
            width = 4 * planes
    return total + linear(width, classes)


def vgg16() -> int:
    widths = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512]
    return sum(conv(w, p, 3) + p for w, p in itertools.pairwise(widths)) + linear(512, 10)


def densenet(growth: int, blocks: tuple[int, ...]) -> int:
    width = 2 * growth
    total = 27 * width
    for number, depth in enumerate(blocks):
        if number:
            total, width = total + 2 * width + width * (width // 2), width // 2
        for _ in range(depth):
            total += 2 * width + width * 4 * growth + 2 * 4 * growth + 4 * growth * growth * 9
            width += growth
    return total + 2 * width + linear(width, 10)


def wide_resnet_16_4() -> int:
    total = 27 * 16
    for width, planes in ((16, 64), (64, 128), (128, 256)):
        total += 2 * width + 9 * width * planes + 2 * planes + 9 * planes**2 + width * planes
        total += 2 * planes + 9 * planes**2 + 2 * planes + 9 * planes**2
    return total + 2 * 256 + linear(256, 10)


PUBLISHED = {
    "lenet5": (1, 61_706, 6 * 26 + 16 * 151 + 120 * 401 + 84 * 121 + 10 * 85),
    "lenet5_original": (1, 60_000, 6 * 26 + 12 + (60 * 25 + 16) + 32 + 120 * 401 + 84 * 121),
    "vgg16_bn": (3, 14_728_266, vgg16()),
    "resnet18": (3, 11_173_962, resnet18()),
    "resnet50": (3, 23_520_842, resnet50(3, 10)),
    "resnet20": (3, 269_722, cifar_resnet(20)),
    "resnet32": (3, 464_154, cifar_resnet(32)),
    "resnet44": (3, 658_586, cifar_resnet(44)),
    "resnet56": (3, 853_018, cifar_resnet(56)),
    "resnet110": (3, 1_727_962, cifar_resnet(110)),
    "densenet121": (3, 6_956_298, densenet(32, (6, 12, 24, 16))),
    "densenet_bc_100_12": (3, 769_162, densenet(12, (16, 16, 16))),
    "wide_resnet_16_4": (3, 2_748_890, wide_resnet_16_4()),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_as_many_as_published_and_as_counted_by_hand(name: str) -> None:
    channels, published, by_hand = PUBLISHED[name]
    assert count(MODELS[name](channels, 10)) == published == by_hand


def test_the_networks_of_our_own_have_the_layers_that_they_document() -> None:
    assert count(TextCNN(1000, 20)) == (
        1000 * 100 + conv(100, 128, 1) + 4 * 100 * 128 + 4 * (5 * 128 * 128 + 256) + linear(128, 128) + linear(128, 20)
    )
    learning = [
        layer for layer in TextCNN(1000, 20).modules() if isinstance(layer, nn.Embedding | nn.Conv1d | nn.Linear)
    ]
    assert len(learning) == 8
    vectors, width = (2 + 5 + 100) * 16, 2 + 2 * 16  # of 2 numbers, 4 and 99 categories, each with one for the unknown
    assert count(TableCNN(2, [4, 99], 3)) == (
        vectors
        + 3 * width
        + 3 * 16
        + width * 512
        + 2 * 512
        + 3 * 16 * 32
        + 64
        + 3 * 32 * 32
        + 64
        + linear(256, 64)
        + linear(64, 3)
    )


def test_the_padded_lenet5_differs_from_the_first_in_its_classifier_alone() -> None:
    assert count(MODELS["lenet5_padded"](1, 10)) == 61_706 + 84 * 120 * (4 * 4 - 1)


def test_every_network_is_counted() -> None:
    assert {*PUBLISHED, "lenet5_padded", "text_cnn", "table_cnn", "imagenet_resnet50"} == set(MODELS)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_imagenet_resnet50_has_the_published_parameters() -> None:
    assert count(ImageNetResNet50(3, 1000)) == 25_557_032 == resnet50(7, 1000)


def test_imagenet_resnet50_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    with pytest.raises(ConfigurationError, match=r"requires torchvision .* pip install torchvision"):
        ImageNetResNet50(3, 1000)


@pytest.mark.parametrize("name", ["lenet5", "vgg16_bn", "resnet18", "resnet20", "densenet_bc_100_12"])
def test_weights_start_as_kaiming_says(name: str) -> None:
    torch.manual_seed(0)
    for layer in MODELS[name](3, 10).modules():
        if isinstance(layer, nn.Conv2d):
            expected = math.sqrt(2 / (layer.out_channels * layer.kernel_size[0] ** 2))
        elif isinstance(layer, nn.Linear):
            expected = math.sqrt(2 / layer.in_features)
        else:
            continue
        assert layer.weight.detach().std().item() == pytest.approx(expected, rel=0.2)
        assert layer.bias is None or not layer.bias.any()


def test_the_first_lenet5_connects_as_its_table_says() -> None:
    assert [len(group) for group in CONNECTIONS] == [3] * 6 + [4] * 9 + [6]
    assert all(sum(seen in group for group in CONNECTIONS) == 10 for seen in range(6))
    torch.manual_seed(0)
    c3, maps = LeNet5Original(1, 10).c3, torch.randn(1, 6, 14, 14)
    before = c3(maps)
    for seen in range(6):
        changed = maps.clone()
        changed[:, seen] += 1.0
        moved = (c3(changed) - before).abs().amax(dim=(0, 2, 3)) > 1e-3
        assert moved.tolist() == [seen in group for group in CONNECTIONS]


def test_the_first_lenet5_gives_the_nearest_code() -> None:
    torch.manual_seed(0)
    model = LeNet5Original(1, 10).eval()
    assert model.codes.shape == (10, 84)
    assert set(model.codes.flatten().tolist()) == {-1.0, 1.0}
    logits = model(torch.randn(5, 1, 32, 32))
    assert (logits < 0).all()
    with torch.no_grad():  # F6 says exactly what the code of class 7 is
        model.f6.weight.zero_()
        model.f6.bias.copy_(1.5 * torch.atanh(model.codes[7] / 1.7159))
    logits = model(torch.randn(5, 1, 32, 32))
    assert logits.argmax(dim=1).tolist() == [7] * 5
    torch.testing.assert_close(logits[:, 7], torch.zeros(5), rtol=0, atol=1e-4)


def test_the_shortcut_without_parameters_takes_every_second_pixel_and_fills_with_zeros() -> None:
    block = Block(16, 32, 2).eval()
    nn.init.zeros_(block.bn2.weight)
    maps = torch.rand(2, 16, 8, 8)
    seen = block(maps)
    assert torch.equal(seen[:, 8:24], maps[:, :, ::2, ::2])
    assert not seen[:, :8].any()
    assert not seen[:, 24:].any()


def test_padding_adds_nothing_to_the_embedding_of_a_text() -> None:
    assert not TextCNN(10, 2).embedding(torch.zeros(1, dtype=torch.int64)).any()


def test_a_text_is_not_diluted_by_padding_far_behind_it() -> None:
    torch.manual_seed(0)
    model, text = TextCNN(50, 3).eval(), torch.randint(2, 50, (4, 64))
    padded = torch.cat([text, torch.zeros(4, 400, dtype=torch.int64)], dim=1)
    longer = torch.cat([padded, torch.zeros(4, 400, dtype=torch.int64)], dim=1)
    torch.testing.assert_close(model(padded), model(longer))
    assert model(torch.zeros(1, 64, dtype=torch.int64)).isfinite().all()


def test_unknown_categories_start_from_zero() -> None:
    for embedding in TableCNN(1, [3, 5], 2).embeddings:
        assert not embedding(torch.zeros(1, dtype=torch.int64)).any()
        assert embedding(torch.ones(1, dtype=torch.int64)).all()


def test_a_table_weighs_the_products_of_all_pairs_of_columns() -> None:
    torch.manual_seed(0)
    model = TableCNN(2, [3, 4], 3).eval()
    last, months, years = model.head[-1], *model.embeddings
    assert isinstance(last, nn.Linear)
    assert isinstance(months, nn.Embedding)
    assert isinstance(years, nn.Embedding)
    nn.init.zeros_(last.weight)
    numbers, codes = torch.tensor([[0.5, -2.0]]), torch.tensor([[1, 4]])
    vectors = [*(numbers.T * model.factors), months.weight[1], years.weight[4]]
    products = sum(a * b for a, b in itertools.combinations(vectors, 2))
    torch.testing.assert_close(model((numbers, codes))[0], model.pairs(products))


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())
