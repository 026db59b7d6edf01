"""Policies from an operator's folder: `<folder>/<model>/<policy>.yaml`."""

from __future__ import annotations

from pathlib import Path

import yaml

from service.decisions.policy import Policy
from service.errors import PolicyError


def read_policies(folder: Path | None, model: str, labels: tuple[str, ...]) -> list[Policy]:
    """Return a model's policies, in the order of their files' names.

    Args:
        folder: Folder of policies; None, or one without the model's folder, has none.
        model: Name of the model.
        labels: Its labels, among which every policy's positive class must be.

    Raises:
        PolicyError: A file cannot be used, or two have the same id; the message names it.
    """
    policies: dict[str, Policy] = {}
    files = (folder / model).glob("*") if folder is not None else ()
    for path in sorted(path for path in files if path.suffix in (".yaml", ".yml")):
        policy = _read(path, labels)
        if policy.id in policies:
            raise PolicyError(f"{path}: another file has a policy of this id.", where="/id", found=policy.id)
        policies[policy.id] = policy
    return list(policies.values())


def _read(path: Path, labels: tuple[str, ...]) -> Policy:
    try:
        policy = Policy.from_dict(yaml.safe_load(path.read_text(encoding="utf-8")))
        policy.check_labels(labels)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PolicyError(f"{path} is no YAML file that can be read: {error}", where=str(path)) from error
    except PolicyError as error:
        raise PolicyError(
            f"{path}: {error}", where=error.where, found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    return policy
