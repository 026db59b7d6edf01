"""Policies from files, in YAML or JSON; an operator's folder has them as `<folder>/<model>/<policy>.yaml`."""

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
        policy = read_policy(path, labels)
        if policy.id in policies:
            raise PolicyError(f"{path}: another file has a policy of this id.", where="/id", found=policy.id)
        policies[policy.id] = policy
    return list(policies.values())


def read_policy(path: Path, labels: tuple[str, ...] | None = None) -> Policy:
    """Return the policy in a file.

    Args:
        path: YAML or JSON.
        labels: The model's labels, among which its positive class must be; None where there is no model.

    Raises:
        PolicyError: The file cannot be used; the message names it.
    """
    try:
        policy = Policy.from_dict(yaml.safe_load(path.read_text(encoding="utf-8")))
        if labels is not None:
            policy.check_labels(labels)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PolicyError(f"{path} is no YAML file that can be read: {error}", where=str(path)) from error
    except PolicyError as error:
        raise PolicyError(
            f"{path}: {error}", where=error.where, found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    return policy
