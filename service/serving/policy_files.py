"""Policies from YAML or JSON files; a folder of policies has `<folder>/<model>/<policy>.yaml`."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from candor.contract.policies import Policy
from service.decisions.policy import check_labels, parse_policy
from service.errors import MalformedBodyError, PolicyError
from service.places import in_body
from service.serving.plane import Served

_SUFFIXES = (".yaml", ".yml", ".json")
MOST_NODES = 20_000  # keys and values; a policy of the most segments has about a thousand


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
            raise PolicyError(f"{path}: another file has a policy with this id.", where=in_body("id"), found=policy.id)
        policies[policy.id] = policy
    return list(policies.values())


def not_in_force(folder: Path, known: Collection[str], served: Mapping[str, Served]) -> Iterator[tuple[Path, str, str]]:
    """Yield the files in a folder of policies that decide nothing as they are, with the reason and what to do.

    Args:
        folder: Folder of policies.
        known: Names of all models.
        served: Active revisions of the models that had one before the service started.
    """
    found = sorted(path for depth in ("*", "*/*", "*/*/*") for path in folder.glob(depth) if path.suffix in _SUFFIXES)
    for path in found:
        model, *inner = path.relative_to(folder).parts
        if any(part.startswith(".") for part in (model, *inner)):  # such as the versions of a ConfigMap
            continue
        if path.parent.parent != folder or model not in known:
            yield (
                path,
                "The service does not read it.",
                f"Move it to {folder}/MODEL/, MODEL being one of {sorted(known)}.",
            )
        elif path.suffix == ".json":
            yield path, "The service does not read it.", "Give it a name that ends in .yaml; JSON is YAML."
        elif model in served:
            active = served[model]
            put = f"Run: candor policy put {path} --model {model}. Then activate the revision that it names."
            try:
                policy = read_policy(path, active.labels)
            except PolicyError as error:
                yield path, f"It cannot be used: {error}", "Correct it. " + put
                continue
            if policy.id not in active.policies:
                yield path, f"Policy {policy.id!r} is not in force: files are read at a model's first activation.", put
            elif active.policies[policy.id].policy != policy:
                version = active.policies[policy.id].version
                yield path, f"It differs from {policy.id}@{version}, which is in force.", put


class _Loader(yaml.SafeLoader):
    """Reads YAML with integers of at most 64 bits, and each key of a mapping once.

    Nobody could print the integer of `0xFFF…` in an error, and of two values for a key only the last would decide.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return a mapping."""
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in keys:
                    said = f"duplicate key {key.value[:100]!r}"
                    raise yaml.constructor.ConstructorError(None, None, said, key.start_mark)
                keys.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return an integer."""
        value: int = super().construct_yaml_int(node)
        if value.bit_length() > 64:
            raise yaml.constructor.ConstructorError(None, None, "an integer has more than 64 bits", node.start_mark)
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


class _Unshared(_Loader):
    """Reads YAML without aliases, which make a few lines stand for gigabytes, and with a limited number of values.

    256 KiB hold 87,000 values, whose reading would take seconds, and Python's garbage collector as long a pause.
    """

    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next node."""
        self._nodes += 1
        if self._nodes > MOST_NODES:
            said = f"more than {MOST_NODES:,} keys and values"
            raise yaml.composer.ComposerError(None, None, said, self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "aliases are not accepted", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)


def policy_document(body: bytes) -> dict[str, Any]:
    """Return the document in a YAML body that anyone may have sent.

    Raises:
        MalformedBodyError: The body is not YAML, has aliases, a key twice or too many values, or is not a mapping.
    """
    try:
        document = yaml.load(body, _Unshared)  # noqa: S506  # a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise MalformedBodyError(
            f"The body is not valid YAML: {getattr(error, 'problem', None) or error}.",
            where=None if mark is None else f"line {mark.line + 1}, column {mark.column + 1}",
            expected="one YAML document without aliases",
        ) from error
    if not isinstance(document, dict):
        raise MalformedBodyError("The body must be a mapping.", found=type(document).__name__, expected="a mapping")
    return document


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
        policy = parse_policy(yaml.load(path.read_text(encoding="utf-8"), _Loader))  # noqa: S506  # a SafeLoader
        if labels is not None:
            check_labels(policy, labels)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise PolicyError(f"{path} is not a readable YAML file: {error}", where=str(path)) from error
    except PolicyError as error:
        raise PolicyError(
            f"{path}: {error}", where=error.place, found=error.found, expected=error.expected, remedy=error.remedy
        ) from error
    return policy
