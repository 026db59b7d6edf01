"""Write a sample folder of images: scans of digits, genuine or forged, and later ones from an aged scanner.

    .venv/bin/python examples/own_images.py var/own     see docs/tutorials/own-images.md

The folder gets `photos/genuine/` and `photos/forged/`, 1,200 labelled images; `incoming/`, 597 later ones; and
`labels.csv`, a person's labels for the later ones. A forged scan has the lower half of another digit, with a seam.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

LABELLED = 1200
FORGED = 0.4
SEAM = 0.8  # how dark the first row of the pasted half is


def main(folder: Path) -> None:
    """Write the images and the labels."""
    draw = np.random.default_rng(5)
    bunch = load_digits()
    order = draw.permutation(len(bunch.images))
    scans, digits = bunch.images[order] * (255 / 16), bunch.target[order]
    images = scans.copy()
    forged = draw.random(len(images)) < FORGED
    for row in np.flatnonzero(forged).tolist():
        other = draw.choice(np.flatnonzero(digits != digits[row]))
        images[row, 4:] = scans[other, 4:]
        images[row, 4] *= SEAM
    names = np.where(forged, "forged", "genuine")
    for name in np.unique(names):
        (folder / "photos" / name).mkdir(parents=True, exist_ok=True)
    (folder / "incoming").mkdir(exist_ok=True)
    for number, (image, name) in enumerate(zip(images, names, strict=True)):
        later = number >= LABELLED
        path = folder / ("incoming" if later else f"photos/{name}") / f"scan-{number:04}.png"
        faded = 0.25 * image + draw.normal(0.0, 3.0, image.shape) if later else image
        Image.fromarray(np.clip(np.round(faded), 0, 255).astype(np.uint8)).save(path)
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["reference", "label", "source"])
        rows.writerows([f"scan-{row:04}.png", names[row], "reviewer"] for row in range(LABELLED, len(images)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
