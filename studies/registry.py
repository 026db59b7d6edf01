"""The studies, by name."""

from __future__ import annotations

from studies import guo2017, lenet_birdcat, losses_cifar10, singh2021, wang2021
from studies.study import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (wang2021.STUDY, singh2021.STUDY, guo2017.STUDY, losses_cifar10.STUDY, lenet_birdcat.STUDY)
}
