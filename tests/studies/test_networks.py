"""Networks of the ablations: those of the library where they coincide, and the pairs of the normalisation."""

from __future__ import annotations

import pytest
import torch

from studies.networks import convnet, resnet
from training.errors import ConfigurationError
from training.inputs import ImageShape
from training.models import MODELS

SHAPE = ImageShape(32, 32, scale=(64.0, 64.0, 64.0))


def test_depth_20_and_width_16_are_resnet20() -> None:
    torch.manual_seed(0)
    ours = resnet(10, SHAPE, depth=20, width=16).state_dict()
    torch.manual_seed(0)
    theirs = MODELS["resnet20"](3, 10).state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_depth_without_whole_blocks_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="depth is 10, expected 8, 14, 20"):
        resnet(10, SHAPE, depth=10)


def test_normalisation_leaves_the_initial_weights_alone() -> None:
    networks = []
    for batch_norm in (False, True):
        torch.manual_seed(0)
        networks.append(convnet(10, SHAPE, batch_norm=batch_norm))
    drawn = [
        [layer.weight for layer in network if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear)]
        for network in networks
    ]
    assert len(drawn[0]) == len(drawn[1]) == 7
    assert all(torch.equal(one, other) for one, other in zip(*drawn, strict=True))
    assert networks[0](torch.zeros(2, 3, 32, 32)).shape == (2, 10)
