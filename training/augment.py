"""Random changes to a batch of stored images, on their device; RandAugment and random erasing are torchvision's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from training.errors import ConfigurationError
from training.models.torchvision_operators import define_missing_operators
from training.recipe import Recipe


def check_suits(recipe: Recipe, shape: tuple[int, ...]) -> None:
    """Raise ConfigurationError if inputs of this shape are not images, or too small for `crop` or `cutout`."""
    wanted = [name for name in ("crop", "flip", "cutout", "rand_augment", "erasing") if getattr(recipe, name)]
    if not wanted:
        return
    if len(shape) != 4:
        raise ConfigurationError(f"{wanted[0]} requires images, (N, H, W, C), found inputs of shape {shape}")
    side = min(shape[1:3])
    for name, pixels in (("crop", recipe.crop), ("cutout", recipe.cutout)):
        if pixels >= side:
            raise ConfigurationError(f"{name} is {pixels}, expected less than {side}, the shorter side of the images")


class Augmentation:
    """Random shifts, mirroring and holes, independent for each image.

    All randomness comes from one generator on the CPU, so that the same seed gives the same images on every device.

    Args:
        recipe: Selects `crop`, `flip`, `cutout`, `rand_augment` and `erasing`.
        generator: Source of randomness.

    Raises:
        ConfigurationError: torchvision is needed and not installed.
    """

    def __init__(self, recipe: Recipe, generator: torch.Generator) -> None:
        self._crop, self._flip, self._cutout = recipe.crop, recipe.flip, recipe.cutout
        self._generator = generator
        first, last = recipe.rand_augment, recipe.erasing
        library = _torchvision() if first or last else None
        self._first = library.RandAugment(magnitude=first) if library and first else None
        self._last = library.RandomErasing(p=last) if library and last else None

    def __call__(self, images: Tensor) -> Tensor:
        """Map uint8 (N, H, W, C) to changed images of the same shape; the input stays unchanged."""
        if self._first is not None:
            images = self._each(self._first, images)
        if self._crop or self._flip or self._cutout:
            images = self._moved(images)
        return images if self._last is None else self._each(self._last, images)

    def _each(self, transform: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
        """Apply a transform of torchvision to one image after another; its randomness is that of the generator."""
        with torch.random.fork_rng(devices=[]):  # it draws from the global one of the CPU
            torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=self._generator)))
            changed = [transform(image) for image in images.permute(0, 3, 1, 2)]
        return torch.stack(changed).permute(0, 2, 3, 1)

    def _moved(self, images: Tensor) -> Tensor:
        count, height, width, _ = images.shape
        rows = torch.arange(height).expand(count, height)
        columns = torch.arange(width).expand(count, width)
        if self._flip:
            mirrored = torch.rand(count, 1, generator=self._generator) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        if self._crop:
            border = self._crop
            images = functional.pad(images, (0, 0, border, border, border, border))
            rows = rows + self._shifts(count, 2 * border + 1)
            columns = columns + self._shifts(count, 2 * border + 1)
        device = images.device
        if self._crop or self._flip:
            which = torch.arange(count, device=device)[:, None, None]
            images = images[which, rows.to(device)[:, :, None], columns.to(device)[:, None, :]]
        if self._cutout:
            hole = self._near_centre(count, height)[:, :, None] & self._near_centre(count, width)[:, None, :]
            images = images.masked_fill(hole.to(device)[..., None], 0)
        return images

    def _shifts(self, count: int, below: int) -> Tensor:
        return torch.randint(below, (count, 1), generator=self._generator)

    def _near_centre(self, count: int, size: int) -> Tensor:
        """Return which of `size` places are in the hole (count, size); the hole may extend over the border."""
        start = self._shifts(count, size) - self._cutout // 2
        places = torch.arange(size)
        return (places >= start) & (places < start + self._cutout)


def _torchvision() -> Any:
    define_missing_operators()
    try:
        from torchvision.transforms import v2
    except ImportError as error:
        raise ConfigurationError(
            "rand_augment and erasing need torchvision: python requirements/install.py finetune"
        ) from error
    return v2
