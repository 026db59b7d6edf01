"""Corruptions of photographs for evaluation under shift: noise, blur, light, blocks.

Seven of the corruptions of CIFAR-10-C in five severities, with its published parameters for images of 32 × 32 pixels.
Random numbers differ and values are rounded, not truncated, so the images are similar to CIFAR-10-C's but not equal.

Source: Hendrycks & Dietterich 2019, Benchmarking neural network robustness to common corruptions and perturbations,
section 4 and appendix A.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.errors import ConfigurationError

Images = NDArray[np.uint8]
Scaled = NDArray[np.float32]

_BLOCK = 512  # images held as float32 at a time


def corrupt(images: Images, name: str, severity: int, *, seed: int = 0) -> Images:
    """Corrupt images.

    Args:
        images: uint8 (N, H, W, C), C 1 or 3.
        name: Key of `CORRUPTIONS`.
        severity: 1 … 5.
        seed: Seed of the noise; other corruptions are not random.

    Returns:
        uint8 (N, H, W, C).

    Raises:
        ConfigurationError: The corruption or severity is unknown, or the inputs are not images.

    Example:
        >>> grey = np.full((1, 2, 2, 1), 100, np.uint8)
        >>> corrupt(grey, "brightness", 2).ravel()
        array([126, 126, 126, 126], dtype=uint8)
    """
    if name not in CORRUPTIONS:
        raise ConfigurationError(f"unknown corruption {name!r}, expected one of: {', '.join(CORRUPTIONS)}")
    change, parameters = CORRUPTIONS[name]
    if severity not in range(1, len(parameters) + 1):
        raise ConfigurationError(f"severity is {severity}, expected 1 … {len(parameters)}")
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] not in (1, 3):
        raise ConfigurationError(f"images are {images.dtype} {images.shape}, expected uint8 (N, H, W, C), C 1 or 3")
    random = np.random.default_rng(seed)
    corrupted = np.empty_like(images)
    for start in range(0, len(images), _BLOCK):
        block = images[start : start + _BLOCK]
        corrupted[start : start + _BLOCK] = change(block, parameters[severity - 1], random)
    return corrupted


def gaussian_noise(images: Images, deviation: float, random: np.random.Generator) -> Images:
    """Add normal noise with a standard deviation given as a share of full scale."""
    noise = random.standard_normal(images.shape, np.float32)
    return _stored(_scaled(images) + np.float32(deviation) * noise)


def shot_noise(images: Images, photons: float, random: np.random.Generator) -> Images:
    """Add Poisson noise of this mean number of photons for a white pixel."""
    return _stored((random.poisson(_scaled(images) * photons) / photons).astype(np.float32))


def gaussian_blur(images: Images, deviation: float, _: np.random.Generator) -> Images:
    """Blur with a Gaussian, standard deviation in pixels; edge pixels are repeated beyond the edge."""
    from scipy.ndimage import gaussian_filter  # takes a tenth of a second to import

    return _stored(gaussian_filter(_scaled(images), (0, deviation, deviation, 0), mode="nearest"))


def brightness(images: Images, more: float, _: np.random.Generator) -> Images:
    """Raise the HSV value by a share of full scale; hue and saturation stay."""
    scaled = _scaled(images)
    value = scaled.max(axis=3, keepdims=True)
    brighter = np.minimum(value + np.float32(more), 1)
    return _stored(np.where(value > 0, scaled * (brighter / np.where(value > 0, value, 1)), brighter))


def contrast(images: Images, factor: float, _: np.random.Generator) -> Images:
    """Scale each channel's distance from its mean by this factor."""
    scaled = _scaled(images)
    mean = scaled.mean(axis=(1, 2), keepdims=True)
    return _stored((scaled - mean) * np.float32(factor) + mean)


def pixelate(images: Images, share: float, _: np.random.Generator) -> Images:
    """Shrink to this share of each side and enlarge again, both by box filtering."""
    height, width = images.shape[1:3]
    small = max(1, int(width * share)), max(1, int(height * share))
    box = Image.Resampling.BOX
    pictures = (_picture(image).resize(small, box).resize((width, height), box) for image in images)
    return np.stack([np.asarray(picture).reshape(images.shape[1:]) for picture in pictures])


def jpeg(images: Images, quality: float, _: np.random.Generator) -> Images:
    """Compress as JPEG of this quality and decode again."""
    stored = []
    for image in images:
        buffer = io.BytesIO()
        _picture(image).save(buffer, "JPEG", quality=int(quality))
        with Image.open(buffer) as picture:
            stored.append(np.asarray(picture).reshape(images.shape[1:]))
    return np.stack(stored)


def _picture(image: Images) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)


def _scaled(images: Images) -> Scaled:
    return images.astype(np.float32) / np.float32(255)


def _stored(scaled: NDArray[np.floating]) -> Images:
    stored: Images = np.round(np.clip(scaled, 0, 1) * 255).astype(np.uint8)
    return stored


CORRUPTIONS: dict[str, tuple[Callable[[Images, float, np.random.Generator], Images], tuple[float, ...]]] = {
    "gaussian_noise": (gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),
    "shot_noise": (shot_noise, (500, 250, 100, 75, 50)),
    "gaussian_blur": (gaussian_blur, (0.4, 0.6, 0.7, 0.8, 1.0)),
    "brightness": (brightness, (0.05, 0.10, 0.15, 0.20, 0.30)),
    "contrast": (contrast, (0.75, 0.50, 0.40, 0.30, 0.15)),
    "pixelate": (pixelate, (0.95, 0.90, 0.85, 0.75, 0.65)),
    "jpeg": (jpeg, (80, 65, 58, 50, 40)),
}
