"""Figures that the sources print, to stand beside ours: percent, mean and standard deviation where they give both."""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """A figure as it was published.

    Attributes:
        mean: The figure, in percent (temperatures: as they are).
        deviation: Its standard deviation over runs; None where none is given.
    """

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.deviation is None else f"{self.mean:.2f} ± {self.deviation:.2f}"


LOSSES = ("cross_entropy", "label_smoothing", "lp_norm", "focal")

WANG_COEFFICIENTS: dict[str, dict[str, float]] = {
    "svhn": {"label_smoothing": 0.01, "lp_norm": 0.01, "focal": 1.0},
    "cifar10": {"label_smoothing": 0.05, "lp_norm": 0.05, "focal": 3.0},
    "cifar100": {"label_smoothing": 0.09, "lp_norm": 0.01, "focal": 5.0},
    "newsgroups20": {"label_smoothing": 0.09, "lp_norm": 0.01, "focal": 5.0},
}
"""The underlined coefficients of Wang, Feng & Zhang 2021, table 1."""

WANG: dict[str, dict[str, dict[str, Printed]]] = {
    "svhn": {
        "ece": {
            "cross_entropy": Printed(3.03, 0.16),
            "label_smoothing": Printed(1.84, 0.19),
            "lp_norm": Printed(1.85, 0.04),
            "focal": Printed(1.01, 0.21),
        },
        "accuracy": {
            "cross_entropy": Printed(95.00, 0.27),
            "label_smoothing": Printed(95.21, 0.23),
            "lp_norm": Printed(95.29, 0.13),
            "focal": Printed(94.77, 0.19),
        },
        "ece_temperature": {
            "cross_entropy": Printed(0.72, 0.26),
            "label_smoothing": Printed(1.35, 0.11),
            "lp_norm": Printed(1.22, 0.08),
            "focal": Printed(0.80, 0.22),
        },
        "temperature": {
            "cross_entropy": Printed(1.82),
            "label_smoothing": Printed(1.11),
            "lp_norm": Printed(1.12),
            "focal": Printed(1.10),
        },
        "ece_histogram_width": {
            "cross_entropy": Printed(0.68, 0.22),
            "label_smoothing": Printed(0.70, 0.21),
            "lp_norm": Printed(0.73, 0.20),
            "focal": Printed(0.96, 0.14),
        },
    },
    "cifar10": {
        "ece": {
            "cross_entropy": Printed(6.43, 0.22),
            "label_smoothing": Printed(2.72, 0.32),
            "lp_norm": Printed(2.93, 0.39),
            "focal": Printed(3.00, 0.26),
        },
        "accuracy": {
            "cross_entropy": Printed(90.46, 0.23),
            "label_smoothing": Printed(90.09, 0.41),
            "lp_norm": Printed(90.06, 0.59),
            "focal": Printed(87.84, 0.17),
        },
        "ece_temperature": {
            "cross_entropy": Printed(0.95, 0.19),
            "label_smoothing": Printed(2.54, 0.11),
            "lp_norm": Printed(2.71, 0.36),
            "focal": Printed(1.39, 0.28),
        },
        "temperature": {
            "cross_entropy": Printed(2.51),
            "label_smoothing": Printed(0.96),
            "lp_norm": Printed(0.95),
            "focal": Printed(0.76),
        },
        "ece_histogram_width": {
            "cross_entropy": Printed(0.74, 0.15),
            "label_smoothing": Printed(0.94, 0.21),
            "lp_norm": Printed(1.16, 0.54),
            "focal": Printed(1.65, 0.31),
        },
    },
    "cifar100": {
        "ece": {
            "cross_entropy": Printed(19.53, 0.36),
            "label_smoothing": Printed(2.27, 0.48),
            "lp_norm": Printed(8.07, 0.44),
            "focal": Printed(2.34, 0.35),
        },
        "accuracy": {
            "cross_entropy": Printed(64.64, 0.43),
            "label_smoothing": Printed(63.73, 0.67),
            "lp_norm": Printed(63.07, 0.29),
            "focal": Printed(60.36, 0.44),
        },
        "ece_temperature": {
            "cross_entropy": Printed(1.35, 0.19),
            "label_smoothing": Printed(1.37, 0.27),
            "lp_norm": Printed(3.92, 0.21),
            "focal": Printed(2.14, 0.42),
        },
        "temperature": {
            "cross_entropy": Printed(2.19),
            "label_smoothing": Printed(1.04),
            "lp_norm": Printed(1.24),
            "focal": Printed(0.97),
        },
        "ece_histogram_width": {
            "cross_entropy": Printed(1.27, 0.27),
            "label_smoothing": Printed(2.01, 0.22),
            "lp_norm": Printed(1.56, 0.44),
            "focal": Printed(1.83, 0.30),
        },
    },
    "newsgroups20": {
        "ece": {
            "cross_entropy": Printed(20.82, 0.93),
            "label_smoothing": Printed(5.85, 0.64),
            "lp_norm": Printed(13.31, 0.56),
            "focal": Printed(3.82, 0.51),
        },
        "accuracy": {
            "cross_entropy": Printed(72.85, 0.89),
            "label_smoothing": Printed(72.81, 0.26),
            "lp_norm": Printed(73.61, 0.80),
            "focal": Printed(59.17, 1.81),
        },
        "ece_temperature": {
            "cross_entropy": Printed(3.11, 0.33),
            "label_smoothing": Printed(5.22, 0.60),
            "lp_norm": Printed(2.71, 0.25),
            "focal": Printed(3.77, 0.41),
        },
        "temperature": {
            "cross_entropy": Printed(4.18),
            "label_smoothing": Printed(1.06),
            "lp_norm": Printed(1.48),
            "focal": Printed(0.89),
        },
        "ece_histogram_width": {
            "cross_entropy": Printed(2.52, 0.47),
            "label_smoothing": Printed(2.67, 0.82),
            "lp_norm": Printed(2.61, 0.95),
            "focal": Printed(3.16, 0.97),
        },
    },
}
"""Wang, Feng & Zhang 2021, tables 1 and 2: by data set, metric and loss; 5 seeds, 15 bins."""

SINGH: dict[str, dict[str, tuple[float, float, float]]] = {
    "vgg16_bn": {
        "baseline": (10.92, 4.80, 90.90),
        "temperature": (10.21, 2.99, 90.66),
        "entropy_regularisation": (10.58, 4.29, 89.22),
        "label_smoothing": (10.60, 3.93, 78.31),
        "mixup": (9.79, 3.75, 84.38),
        "focal": (10.88, 3.48, 84.50),
    },
    "resnet50": {
        "baseline": (7.12, 2.69, 93.80),
        "temperature": (6.73, 1.35, 93.71),
        "entropy_regularisation": (7.01, 2.37, 93.64),
        "label_smoothing": (8.00, 3.82, 73.46),
        "mixup": (6.35, 2.67, 90.10),
        "focal": (7.50, 1.73, 92.40),
    },
    "densenet121": {
        "baseline": (7.43, 2.83, 92.12),
        "temperature": (7.03, 2.04, 91.60),
        "entropy_regularisation": (7.19, 2.18, 91.83),
        "label_smoothing": (8.51, 2.80, 73.56),
        "mixup": (6.82, 3.67, 88.98),
        "focal": (7.69, 1.71, 91.72),
    },
}
"""Singh et al. 2021, table 2, CIFAR-10: Brier score, ECE and refinement AUROC by network and method; 3 seeds."""

SINGH_SHIFTED: dict[str, dict[str, tuple[float, float, float]]] = {
    "cifar10.1": {
        "baseline": (24.50, 11.28, 86.23),
        "temperature": (22.68, 8.16, 86.10),
        "entropy_regularisation": (23.70, 10.16, 84.32),
        "label_smoothing": (23.60, 6.84, 77.44),
        "mixup": (20.89, 6.87, 84.76),
        "focal": (25.13, 10.51, 80.55),
    },
    "cifar10.2": {
        "baseline": (34.25, 16.32, 83.39),
        "temperature": (31.83, 13.07, 83.06),
        "entropy_regularisation": (34.23, 15.60, 81.85),
        "label_smoothing": (32.37, 11.26, 74.05),
        "mixup": (29.35, 9.77, 80.25),
        "focal": (33.05, 14.61, 77.74),
    },
}
"""Singh et al. 2021, table 3, VGG-16: the same under natural shift."""

CONFIDNET: dict[str, dict[str, Printed]] = {
    "baseline": {"ece": Printed(5.38, 0.15), "auroc": Printed(92.5, 0.01)},
    "confidnet": {"ece": Printed(4.1, 0.2), "auroc": Printed(92.55, 0.1)},
}
"""Singh et al. 2021, table 4: VGG-16 on CIFAR-10."""

LENET: dict[str, Printed] = {
    "accuracy lenet5": Printed(80.9),
    "accuracy lenet5, dropout 0.2": Printed(79.7),
    "ece lenet5": Printed(4.06),
    "ece_temperature lenet5": Printed(2.35),
    "accuracy resnet18": Printed(88.5),
    "ece resnet18": Printed(3.4),
    "ece_temperature resnet18": Printed(1.7),
}
"""The report on temperature scaling of LeNet-5, bird against cat: one run each."""
