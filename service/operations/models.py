"""List models, load and unload them."""

from __future__ import annotations

from typing import Any, Final

from bundle import Column, Columns, Scores, Tokenizer, Vocabulary
from candor.contract.models import Model, ModelColumn, ModelInput, ModelPage
from service.operations.principal import Principal
from service.runtime import Runtime
from service.serving import model as serving

_MOST_CATEGORIES: Final = 1_000  # of a column, in an answer


def list_models(runtime: Runtime, *, by: Principal) -> ModelPage:
    """Return every model that the caller may reach: what it serves, or why it does not serve its active revision."""
    default = runtime.models.default
    return ModelPage(
        items=tuple(Model(**_described(model)) for model in runtime.models.all() if by.sees(model.name)),
        default=default if default is not None and by.sees(default) else None,
    )


def get_model(model: serving.Model) -> Model:
    """Return what a model serves."""
    return Model(**_described(model))


def load(runtime: Runtime, model: str, *, by: Principal) -> Model:
    """Serve a model on every replica; the answer names the proposals made of newer bundles, and those refused.

    Raises:
        UnknownModelError: Neither the state nor the folder of bundles has such a model.
        BundleRefusedError: Its bundle is damaged, gone, or cannot run here; nothing has changed.
        PolicyError: One of its policy files cannot be used; nothing has changed.
        RevisionStateError: Its revision cannot be read; nothing has changed.
    """
    new = runtime.models.load(model, by=by.name)
    return Model(
        **_described(runtime.models.get(model)),
        proposed={str(version): revision for version, revision in new.proposed.items()},
        refused={str(version): why for version, why in new.refused.items()},
    )


def unload(runtime: Runtime, model: str, *, by: Principal) -> Model:
    """Stop serving a model on every replica. Accepted predictions are answered, and its state stays as it is.

    Raises:
        UnknownModelError: The name is unknown.
    """
    runtime.models.unload(model, by=by.name)
    return get_model(runtime.models.get(model))


def _column(column: Column) -> ModelColumn:
    known = column.categories
    return ModelColumn(
        name=column.name,
        kind=column.kind or "number",
        categories=known and known[:_MOST_CATEGORIES],
        category_count=None if known is None else len(known),
        on_missing=column.on_missing,
        on_unknown=column.on_unknown,
    )


def _described(model: serving.Model) -> dict[str, Any]:
    served = model.plane.served
    encoder = served and served.encoder
    columns = encoder.columns if isinstance(encoder, Columns) else None
    unsaid = {"tensors"} if served and not served.input.tensors else None  # only one kind of input has them
    in_service = served and {
        "revision": served.revision.id,
        "bundle": served.revision.bundle_version,
        "provider": served.session.provider,
        "labels": served.labels,
        "input": ModelInput.model_validate(served.input.model_dump(exclude=unsaid)),
        "columns": None if columns is None else tuple(column.name for column in columns),
        "scores": encoder.field if isinstance(encoder, Scores) else None,
        "texts": isinstance(encoder, Vocabulary | Tokenizer),
        "column_types": None if columns is None else tuple(map(_column, columns)),
        "policies": tuple(sorted(served.policies)),
    }
    return {
        "model": model.name,
        "loaded": model.desired.loaded,
        "epoch": model.pointer.epoch,
        **(in_service or {"revision": None}),
        "problem": model.problem or (model.remote.problem if model.remote else None),
    }
