"""The settings of the training loop."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Literal

from training.errors import ConfigurationError

LARGEST_STEP = 1e6

OPTIMISERS = ("adam", "sgd")
SCHEDULES = ("constant", "step", "cosine")
PRECISIONS = ("float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda")
_NUMBERS: dict[str, tuple[type, str]] = {"int": (Integral, "a whole number"), "float": (Real, "a number")}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of the loop; the same recipe, data and threads give the same network on the same machine.

    Attributes:
        epochs: Passes over the training rows.
        batch_size: Rows per step, over all processes together; a single remaining row joins the last step.
        optimiser: `adam`, or `sgd` with momentum.
        learning_rate: Largest step size, in (0, 1e6].
        momentum: Of `sgd`, in [0, 1).
        nesterov: Whether `sgd` uses Nesterov momentum; requires momentum.
        weight_decay: L2 penalty on all parameters, in [0, ∞); `adam` applies it decoupled from the gradient (AdamW).
        schedule: `constant`; `step`, divided by `step_factor` at each milestone; `cosine`, down to 0.
        milestones: Epochs after which `step` divides, ascending.
        step_factor: Divisor of `step`, above 1.
        warm_up: Epochs (may be fractional) of linear rise of the step size from 0.
        layer_decay: Factor of the learning rate from each layer to the one before it, in (0, 1]; 1 for one rate.
        frozen_epochs: Epochs at the beginning in which only the head of a pretrained network learns.
        clip: Largest L2 norm of a step's gradient; None for no limit.
        crop: Pixels of black border for random crops of the original size; 0 for none.
        flip: Whether to mirror half of the images left to right.
        cutout: Side in pixels of a black square in each image; 0 for none.
        rand_augment: Magnitude of RandAugment, two random operations per image, on torchvision's scale, 0 … 30; 0 for
            none.
        erasing: Chance that a random rectangle of an image is erased, in [0, 1]; 0 for none.
        mixup: Both parameters of the Beta distribution for mixing pairs of rows; 0 for none.
        cutmix: Both parameters of the Beta distribution for pasting a box of one image into another; 0 for none. With
            mixup, each step takes one of the two at random.
        accumulation: Parts in which the rows of a step are worked one after another, to save memory.
        average: Decay of the moving average of the weights (EMA), which is evaluated and kept, in [0, 1); 0 for none.
        precision: `bfloat16` computes the network under autocast; weights, losses and updates stay float32.
        channels_last: Whether to store weights and activations with channels last, faster on some processors.
        compile: Whether to compile the network with `torch.compile`; requires a C++ compiler on a CPU.
        patience: Epochs without a lower validation NLL before training stops and restores the best weights; None trains
            to the end and keeps the last weights.
        device: `cpu`, `cuda`, or `auto` (CUDA if available).
        seed: Seed of weights, order, dropout and augmentation; 0 … 2**63 − 1.
        threads: CPU threads of training; by default those that affinity, control group and OMP_NUM_THREADS grant.
        deterministic: Whether only operations are used that give the same result each time; without them a GPU is
            faster, and a network that requires others can be trained.

    Raises:
        ConfigurationError: A value is out of range.

    Example:
        >>> recipe = Recipe(epochs=10, schedule="step", milestones=(5, 8), step_factor=10, learning_rate=0.1, warm_up=2)
        >>> [round(recipe.step_size(epoch), 4) for epoch in (0, 1, 2, 5, 8)]
        [0.0, 0.05, 0.1, 0.01, 0.001]
    """

    epochs: int = 60
    batch_size: int = 32
    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    schedule: Literal["constant", "step", "cosine"] = "constant"
    milestones: tuple[int, ...] = ()
    step_factor: float = 10.0
    warm_up: float = 0.0
    layer_decay: float = 1.0
    frozen_epochs: int = 0
    clip: float | None = None
    crop: int = 0
    flip: bool = False
    cutout: int = 0
    rand_augment: int = 0
    erasing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    accumulation: int = 1
    average: float = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"
    channels_last: bool = False
    compile: bool = False
    patience: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    seed: int = 0
    threads: int | None = None
    deterministic: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))  # a list, where they were read from JSON
        for field in fields(self):
            kind, _, none = str(field.type).partition(" | ")
            if kind in _NUMBERS and not (none and getattr(self, field.name) is None):
                number, expected = _NUMBERS[kind]
                require(field.name, repr(found := getattr(self, field.name)), isinstance(found, number), expected)
        for name in ("epochs", "batch_size", "accumulation", "threads"):
            value = getattr(self, name)
            require(name, value, (value is None and name == "threads") or value >= 1, "at least 1")
        for name in ("crop", "cutout", "mixup", "cutmix", "weight_decay", "warm_up", "frozen_epochs"):
            value = getattr(self, name)
            require(name, value, 0 <= value < math.inf, "a number of at least 0")
        for name, choices in (
            ("optimiser", OPTIMISERS),
            ("schedule", SCHEDULES),
            ("precision", PRECISIONS),
            ("device", DEVICES),
        ):
            require(name, repr(getattr(self, name)), getattr(self, name) in choices, f"one of: {', '.join(choices)}")
        require("seed", self.seed, 0 <= self.seed < 2**63, "0 … 2**63 − 1")
        require(
            "learning_rate",
            self.learning_rate,
            0 < self.learning_rate <= LARGEST_STEP,
            f"a positive number of at most {LARGEST_STEP:g}",
        )
        require("rand_augment", self.rand_augment, 0 <= self.rand_augment <= 30, "0 … 30")
        require("erasing", self.erasing, 0 <= self.erasing <= 1, "0 … 1")
        require("average", self.average, 0 <= self.average < 1, "at least 0 and less than 1")
        require("momentum", self.momentum, 0 <= self.momentum < 1, "at least 0 and less than 1")
        require("nesterov", self.nesterov, not self.nesterov or self.momentum > 0, "a positive momentum")
        require("layer_decay", self.layer_decay, 0 < self.layer_decay <= 1, "a positive number of at most 1")
        require("step_factor", self.step_factor, 1 < self.step_factor < math.inf, "a number above 1")
        ascending = all(a < b for a, b in zip((0, *self.milestones), self.milestones, strict=False))
        require("milestones", self.milestones, ascending, "epochs of at least 1 in ascending order")
        require(
            "milestones",
            self.milestones,
            bool(self.milestones) == (self.schedule == "step"),
            "milestones with the schedule 'step', and none otherwise",
        )
        require("warm_up", self.warm_up, self.warm_up < self.epochs, f"less than the {self.epochs} epochs")
        require("clip", self.clip, self.clip is None or 0 < self.clip < math.inf, "a positive number, or none")
        require("patience", self.patience, self.patience is None or self.patience >= 1, "at least 1, or none")

    def step_size(self, epoch: float) -> float:
        """Return the learning rate after this many epochs, may be fractional, counted from 0."""
        if epoch < self.warm_up:
            return self.learning_rate * epoch / self.warm_up
        if self.schedule == "step":
            return self.learning_rate / self.step_factor ** sum(epoch >= milestone for milestone in self.milestones)
        if self.schedule == "cosine":
            gone = (epoch - self.warm_up) / (self.epochs - self.warm_up)
            return self.learning_rate * (1 + math.cos(math.pi * gone)) / 2
        return self.learning_rate


def require(name: str, found: object, holds: bool, expected: str) -> None:
    """Raise ConfigurationError, with what was found and expected, unless a condition holds."""
    if not holds:
        raise ConfigurationError(f"{name} is {found}, expected {expected}")
