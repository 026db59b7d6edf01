"""Networks and losses of your own: `package.module:name`, or an entry point of an installed package.

A network is a factory, called as `make(classes, shape, **settings)`:

- `classes`: number of classes, K.
- `shape`: `ImageShape`, `TokenShape` or `TableShape` (`training.inputs`): the inputs of the data set, measured on the
  training rows.
- `settings`: `TrainConfig.model_settings`.

It returns a `torch.nn.Module` from preprocessed inputs to logits, float32 (N, K). Preprocessing is Candor's, and part
of the exported graph: images arrive as float32 (N, channels, height, width), scaled; tokens as int64 (N, length); rows
of a table as a pair, numbers float32 (N, shape.numbers) and codes int64 (N, len(shape.categories)). A subclass of
`training.models.Network` is used as the built-in networks are.

A loss is a function of logits and labels with coefficients as keyword-only arguments (`training.losses.Loss`).

`training.checks` tries both before the first epoch. Nothing here imports torch.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from training.errors import ConfigurationError

GROUPS = {"model": "candor.models", "loss": "candor.losses"}
# Where a line is not that of a model or a loss of your own.
_NOT_THEIRS = (f"{Path(__file__).parent}{os.sep}", f"{os.sep}torch{os.sep}", "<frozen")


def look_up(kind: str, registry: Mapping[str, Any], name: str) -> Any:
    """Return a network or a loss by the name of a built-in one, of an entry point, or as `package.module:name`.

    The current folder is searched last for modules.

    Args:
        kind: `model` or `loss`.
        registry: The built-in ones; they precede entry points of the same name.
        name: What to look up.

    Raises:
        ConfigurationError: The name is unknown, or leads to nothing that can be called.

    Example:
        >>> look_up("loss", {}, "torch.nn.functional:cross_entropy").__name__
        'cross_entropy'
    """
    if name in registry:
        return registry[name]
    points = offered(kind)
    if name in points:
        module, _, attribute = points[name].value.partition(":")
    else:
        module, colon, attribute = name.partition(":")
        if not colon:
            known = ", ".join(sorted({*registry, *points}))
            raise ConfigurationError(f"unknown {kind} {name!r}, expected one of: {known}; or package.module:name")
    return _object(kind, module.strip(), attribute.strip())


def offered(kind: str) -> dict[str, EntryPoint]:
    """Return the entry points of installed packages for a kind, `model` or `loss`, by name."""
    return {point.name: point for point in entry_points(group=GROUPS[kind])}


def _object(kind: str, module: str, attribute: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # last: a file here hides no installed module
    if not _exists(module):
        raise ConfigurationError(
            f"the {kind} {module}:{attribute}: no module {module!r}, expected an installed one or a file in {here}"
        )
    with blamed(kind, f"{module}:{attribute}"):
        found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigurationError(f"the {kind} {module}:{attribute}: {module} has no function or class {attribute!r}")
    return found


@contextmanager
def blamed(kind: str, name: str) -> Iterator[None]:
    """Turn whatever code of others raises into a ConfigurationError that names its last line.

    Args:
        kind: `model` or `loss`.
        name: What it is called.
    """
    try:
        yield
    except ConfigurationError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if not any(part in frame.filename for part in _NOT_THEIRS)]
        last = (theirs or frames)[-1]
        place = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
        said = next(iter(str(error).splitlines()), "")
        raise ConfigurationError(f"the {kind} {name} raised {type(error).__name__}: {said}{place}") from error


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is missing
        return False
    except ValueError:  # no name of a module
        return False
