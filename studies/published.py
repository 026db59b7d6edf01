"""Figures printed by the sources, for comparison: percent, with standard deviation where given."""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """A figure as it was published.

    Attributes:
        mean: The figure, in percent except for temperatures.
        deviation: Its standard deviation over runs; None if not given.
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


def _by_loss(table: str) -> dict[str, dict[str, dict[str, Printed]]]:
    """Read lines of a data set, a metric and a figure for each of `LOSSES`."""
    found: dict[str, dict[str, dict[str, Printed]]] = {}
    for line in table.strip().splitlines():
        task, metric, *figures = line.split()
        printed = [Printed(*map(float, figure.split("±"))) for figure in figures]
        found.setdefault(task, {})[metric] = dict(zip(LOSSES, printed, strict=True))
    return found


WANG = _by_loss("""
    svhn         accuracy            95.00±0.27 95.21±0.23 95.29±0.13 94.77±0.19
    svhn         ece                 3.03±0.16  1.84±0.19  1.85±0.04  1.01±0.21
    svhn         ece_temperature     0.72±0.26  1.35±0.11  1.22±0.08  0.80±0.22
    svhn         ece_histogram_width 0.68±0.22  0.70±0.21  0.73±0.20  0.96±0.14
    svhn         temperature         1.82       1.11       1.12       1.10
    cifar10      accuracy            90.46±0.23 90.09±0.41 90.06±0.59 87.84±0.17
    cifar10      ece                 6.43±0.22  2.72±0.32  2.93±0.39  3.00±0.26
    cifar10      ece_temperature     0.95±0.19  2.54±0.11  2.71±0.36  1.39±0.28
    cifar10      ece_histogram_width 0.74±0.15  0.94±0.21  1.16±0.54  1.65±0.31
    cifar10      temperature         2.51       0.96       0.95       0.76
    cifar100     accuracy            64.64±0.43 63.73±0.67 63.07±0.29 60.36±0.44
    cifar100     ece                 19.53±0.36 2.27±0.48  8.07±0.44  2.34±0.35
    cifar100     ece_temperature     1.35±0.19  1.37±0.27  3.92±0.21  2.14±0.42
    cifar100     ece_histogram_width 1.27±0.27  2.01±0.22  1.56±0.44  1.83±0.30
    cifar100     temperature         2.19       1.04       1.24       0.97
    newsgroups20 accuracy            72.85±0.89 72.81±0.26 73.61±0.80 59.17±1.81
    newsgroups20 ece                 20.82±0.93 5.85±0.64  13.31±0.56 3.82±0.51
    newsgroups20 ece_temperature     3.11±0.33  5.22±0.60  2.71±0.25  3.77±0.41
    newsgroups20 ece_histogram_width 2.52±0.47  2.67±0.82  2.61±0.95  3.16±0.97
    newsgroups20 temperature         4.18       1.06       1.48       0.89
""")
"""Wang, Feng & Zhang 2021, tables 1 and 2: by data set, metric and loss; 5 seeds, 15 bins."""

SINGH_METHODS = ("baseline", "temperature", "entropy_regularisation", "label_smoothing", "mixup", "focal")


def _by_method(table: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """Read lines of a name and the figures of each of `SINGH_METHODS`, separated by slashes."""
    lines = (line.split() for line in table.strip().splitlines())
    return {
        name: dict(zip(SINGH_METHODS, (tuple(map(float, figure.split("/"))) for figure in figures), strict=True))
        for name, *figures in lines
    }


SINGH = {
    "cifar10": _by_method("""
    vgg16_bn    10.92/4.80/90.90 10.21/2.99/90.66 10.58/4.29/89.22 10.60/3.93/78.31 9.79/3.75/84.38 10.88/3.48/84.50
    resnet50    7.12/2.69/93.80 6.73/1.35/93.71 7.01/2.37/93.64 8.00/3.82/73.46 6.35/2.67/90.10 7.50/1.73/92.40
    densenet121 7.43/2.83/92.12 7.03/2.04/91.60 7.19/2.18/91.83 8.51/2.80/73.56 6.82/3.67/88.98 7.69/1.71/91.72
"""),
    "cifar100": _by_method("""
    vgg16_bn    43.26/16.29/84.97 39.18/6.46/84.31 42.09/13.96/84.21 38.69/8.77/82.90 38.18/7.68/83.60 39.68/9.05/83.12
    resnet50    34.05/12.17/85.69 31.50/3.49/85.07 32.56/9.80/85.41 32.07/6.21/81.96 30.27/6.02/85.78 30.61/3.98/85.91
    densenet121 30.68/8.47/87.15 29.91/4.68/86.39 30.50/6.10/86.78 33.01/8.22/81.36 28.93/3.55/85.80 29.90/3.06/86.50
"""),
}
"""Singh et al. 2021, table 2: Brier score, ECE and refinement AUROC by data set, network and method; 3 seeds."""

SINGH_SHIFTED = _by_method("""
    cifar10.1 24.50/11.28/86.23 22.68/8.16/86.10 23.70/10.16/84.32 23.60/6.84/77.44 20.89/6.87/84.76 25.13/10.51/80.55
    cifar10.2 34.25/16.32/83.39 31.83/13.07/83.06 34.23/15.60/81.85 32.37/11.26/74.05 29.35/9.77/80.25 33.05/14.61/77.74
""")
"""Singh et al. 2021, table 3, VGG-16: the same under natural shift."""

CONFIDNET: dict[str, dict[str, dict[str, Printed]]] = {
    "cifar10": {
        "baseline": {"ece": Printed(5.38, 0.15), "auroc": Printed(92.5, 0.01)},
        "confidnet": {"ece": Printed(4.1, 0.2), "auroc": Printed(92.55, 0.1)},
    },
    "cifar100": {
        "baseline": {"ece": Printed(19.12, 0.13), "auroc": Printed(85.18, 0.21)},
        "confidnet": {"ece": Printed(13.95, 2.7), "auroc": Printed(86.0, 0.18)},
    },
}
"""Singh et al. 2021, table 4: VGG-16."""

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

GUO: dict[str, Printed] = {"lenet5": Printed(55.0), "depth=110": Printed(69.0)}
"""The notes on Guo et al. 2017, figure 1: accuracy of LeNet and ResNet on CIFAR-100."""
