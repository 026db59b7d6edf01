"""Score files without a server: every core reads, runs the model, decides, and writes parts of the output.

    summary = score("payments/", "scored/", model="payments", policy="card-fraud")

`inputs` finds files and cuts them into parts, `columns` turns a part into the model's input, `worker` scores it,
`output` writes it, `manifest` says what is done, and `run` has the processes do all that.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.bulk.run import Options, Summary, score

__all__ = ["Options", "Summary", "score"]


def __getattr__(name: str) -> Any:
    # Imported on first use: the command starts `fork_server` first, which imports the same at the same time.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("service.bulk.run"), name)
