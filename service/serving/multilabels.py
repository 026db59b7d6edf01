"""The multi-label models of the process, as the active revisions of its models name them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from service.serving.labels import LabelsPlane, MultiLabel
from service.serving.model import Model


class MultiLabels:
    """The multi-label models of this process.

    Args:
        models: All models by name, which others change.
        limits: Arguments of `LabelsPlane`.
    """

    def __init__(self, models: Mapping[str, Model], limits: Mapping[str, Any]) -> None:
        self._models = models
        self._limits = limits
        self._found: dict[str, MultiLabel] = {}
        self._naming = threading.Lock()

    def get(self, name: str | None) -> MultiLabel | None:
        """Return the multi-label model called `name`; None if no active revision says that it is one of its labels."""
        if name is None or name in self._models:
            return None
        if name not in self._found and self.labels_of(name):
            with self._naming:
                if name not in self._found:
                    plane = LabelsPlane(**self._limits)
                    self._found[name] = MultiLabel(name, partial(self.labels_of, name), plane)
        return self._found.get(name)

    def all(self) -> list[MultiLabel]:
        """Return every multi-label model, by name."""
        served = [model.plane.served for model in list(self._models.values())]
        names = {one.bundle.manifest.label_of.model for one in served if one and one.bundle.manifest.label_of}
        return [several for name in sorted(names) if (several := self.get(name)) is not None]

    def labels_of(self, name: str) -> list[Model]:
        """Return the models of a multi-label model's labels."""
        found = []
        for model in list(self._models.values()):
            of = None if model.plane.served is None else model.plane.served.bundle.manifest.label_of
            if of is not None and of.model == name:
                found.append(model)
        return found

    def close(self) -> None:
        """Finish the waiting requests of every plane."""
        for several in self._found.values():
            several.plane.close()
