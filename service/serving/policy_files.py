"""Policies from YAML or JSON files; a folder of policies has `<folder>/<model>/<policy>.yaml`."""

from __future__ import annotations

from pathlib import Path

import yaml

from candor.contract.policies import Policy
from service.decisions.policy import check_labels, parse_policy
from service.errors import PolicyError


def read_policies(folder: Path | None, model: str, labels: tuple[str, ...]) -> list[Policy]:
    """Return a model's policies, in the order of their file names.

    Args:
        folder: Folder of policies; None for no policies.
        model: Name of the model.
        labels: The model's labels, which must include every policy's positive class.

    Raises:
        PolicyError: A file is not a usable policy, or its id is a duplicate; the message names the file.
    """
    policies: dict[str, Policy] = {}
    for path in policy_files(folder / model) if folder is not None else ():
        policy = read_policy(path, labels)
        if policy.id in policies:
            raise PolicyError(f"{path}: another file has a policy with this id.", where="/id", found=policy.id)
        policies[policy.id] = policy
    return list(policies.values())


def policy_files(folder: Path) -> list[Path]:
    """Return the files of a model's folder that are read as policies, in the order of their names."""
    return sorted(path for path in folder.glob("*") if path.suffix in (".yaml", ".yml"))


def read_policy(path: Path, labels: tuple[str, ...] | None = None) -> Policy:
    """Return the policy in a file.

    Args:
        path: YAML or JSON.
        labels: The model's labels, which must include its positive class; None without a model.

    Raises:
        PolicyError: The file is not a usable policy; the message names it.
    """
    try:
        policy = parse_policy(yaml.safe_load(path.read_text(encoding="utf-8")))
        if labels is not None:
            check_labels(policy, labels)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise PolicyError(f"{path} is not a readable YAML file: {error}", where=str(path)) from error
    except PolicyError as error:
        raise PolicyError(
            f"{path}: {error}", where=error.place, found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    return policy
