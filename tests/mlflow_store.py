"""A registry of MLflow in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def client(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return MLflow's client of a new registry, where all of MLflow in this process looks from now on."""
    from mlflow import MlflowClient

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", folder.as_uri())
    return MlflowClient()


def register(registry: Any, name: str, alias: str, source: Path) -> None:
    """Register a folder as the newest version of a model, which the alias names from now on."""
    if not registry.search_registered_models(f"name = '{name}'"):
        registry.create_registered_model(name)
    version = registry.create_model_version(name, source.as_uri()).version
    registry.set_registered_model_alias(name, alias, version)
