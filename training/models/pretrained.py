"""Networks of other libraries, with pretrained weights from files: `timm:NAME`, `torchvision:NAME`, `hf:FOLDER`.

Nothing is downloaded. The network's own configuration says how images enter it (size, mean, deviation); that
preprocessing becomes part of the exported graph. Texts enter a transformer (`hf:FOLDER`) by its own tokenizer
(`training.tokenized`). The last linear layer, the head, is replaced, unless the configuration
names the very classes of the data set: then its rows are put into the data set's order.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from training.errors import ConfigurationError
from training.inputs import ImageShape, InputShape, TextShape
from training.models.published import load_whole, read_weights
from training.models.torchvision_operators import define_missing_operators
from training.preprocess import ImageInput, TextInput

LIBRARIES = ("timm", "torchvision", "hf")
_WHITE = 255.0
_AUXILIARY = {"googlenet": ("aux1.", "aux2."), "inception_v3": ("AuxLogits.",)}
_EXTRA = "python requirements/install.py finetune"


class FineTuned(nn.Module):
    """A network of another library as a network from images, or ids and mask of texts, to logits.

    Args:
        network: The network; it returns logits, or an object with `logits`.
        head: Names of the parameters that begin at random: the head's.
        options: Keyword arguments of its `forward`.
    """

    def __init__(self, network: nn.Module, head: frozenset[str], options: Mapping[str, bool]) -> None:
        super().__init__()
        self.network, self.head, self.options = network, head, dict(options)

    def forward(self, inputs: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """Map images float32 (N, 3, side, side), or ids and mask int64 (N, L), to logits float32 (N, K)."""
        if isinstance(inputs, Tensor):
            found = self.network(inputs, **self.options)
        else:
            found = self.network(input_ids=inputs[0], attention_mask=inputs[1], **self.options)
        logits: Tensor = found if isinstance(found, Tensor) else found.logits
        return logits

    def freeze(self, *, frozen: bool) -> None:
        """Let the head alone learn, with the other modules in evaluation mode, or let all parameters learn again."""
        for name, parameter in self.network.named_parameters():
            parameter.requires_grad_(not frozen or name in self.head)
        for name, module in self.network.named_modules():
            if frozen and name and not any(each.startswith(f"{name}.") for each in self.head):
                module.eval()


@dataclass
class _Found:
    """A network of a library, with a new head.

    Attributes:
        network: The network.
        preprocessing: From stored inputs to the network's.
        labels: Classes of its pretrained head; () if unknown.
        state: Its pretrained weights; empty for none.
        source: Where they are from.
        options: Keyword arguments of the network's `forward`.
        new: Parameters beside the head's that its weights may lack, and that then begin at random.
        heads: Names of its heads, where it has several.
    """

    network: nn.Module
    preprocessing: nn.Module
    labels: tuple[str, ...] = ()
    state: Mapping[str, Tensor] = field(default_factory=dict)
    source: str = ""
    options: Mapping[str, bool] = field(default_factory=dict)
    new: frozenset[str] = frozenset()
    heads: tuple[str, ...] = ()


def names_library(model: str) -> bool:
    """Return whether a model's name is a reference to another library's network."""
    return model.partition(":")[0] in LIBRARIES and ":" in model


def weights_of(model: str, given: Path | None) -> Path | None:
    """Return the file of a model's pretrained weights: the one given, or that in a folder of Hugging Face."""
    library, _, name = model.partition(":")
    return Path(name) / "model.safetensors" if library == "hf" and given is None else given


def fine_tuned(
    model: str,
    shape: InputShape,
    label_names: Sequence[str],
    *,
    weights: Path | None = None,
    side: int | None = None,
    load: bool = True,
) -> nn.Sequential:
    """Chain the preprocessing of a pretrained network with that network.

    Args:
        model: `timm:NAME`, `torchvision:NAME`, or `hf:FOLDER`: a folder with `config.json` and `model.safetensors`, of
            transformers or timm.
        shape: Shape of the stored images, 1 or 3 channels, or of texts by the folder's tokenizer.
        label_names: Names of the K classes.
        weights: File of pretrained weights; None for those in the folder, or none.
        side: Side of the network's square images; None for its own.
        load: Whether to load weights; otherwise the caller will.

    Returns:
        A module from stored inputs to logits float32 (N, K): preprocessing `[0]`, a `FineTuned` `[1]`.

    Raises:
        ConfigurationError: The library is missing, the network unknown, or the weights do not fit it.
    """
    library, _, name = model.partition(":")
    file = weights_of(model, weights) if load else None
    make: dict[str, Callable[..., _Found]] = {"timm": _timm, "torchvision": _torchvision, "hf": _folder}
    with _offline():
        if isinstance(shape, TextShape):
            if side is not None:
                raise ConfigurationError(f"image_size is {side}, expected none for texts")
            found = _of_texts(Path(name), shape, len(label_names), file)
        elif isinstance(shape, ImageShape):
            found = make[library](name, len(label_names), file, side)
        else:
            raise ConfigurationError(f"the model {model} requires images, or texts with hf:FOLDER")
    head = _head(found, len(label_names)) if file is None else _load(found, label_names)
    return nn.Sequential(found.preprocessing, FineTuned(found.network.float(), head, found.options))


def _entrance(side: int, mean: Sequence[float], deviation: Sequence[float], white: float = _WHITE) -> ImageInput:
    """Return the preprocessing of images; mean and deviation are on a scale on which white is divided by `white`."""
    return ImageInput([white * value for value in deviation], side, [white * value for value in mean])


def _timm(
    name: str, classes: int, weights: Path | None, side: int | None, told: Mapping[str, Any] | None = None
) -> _Found:
    timm = _imported("timm")
    kind = name.partition(".")[0]
    if not timm.is_model(kind):
        raise ConfigurationError(f"timm has no model {name!r}{_close(kind, timm.list_models())}")
    config = {**(timm.get_pretrained_cfg(name) or timm.get_pretrained_cfg(kind)).to_dict(), **(told or {})}
    own = config["input_size"][-1]
    sized = {"img_size": side} if config.get("fixed_input_size") and side not in (None, own) else {}
    network = timm.create_model(name, pretrained=False, num_classes=classes, **sized)
    state: Mapping[str, Tensor] = {}
    if weights is not None:
        # Among others, it resamples position embeddings to another image size.
        convert = getattr(sys.modules[type(network).__module__], "checkpoint_filter_fn", None)
        state = read_weights(weights) if convert is None else convert(read_weights(weights), network)
    labels = tuple(config.get("label_names") or ())
    heads = config["classifier"] if isinstance(config["classifier"], tuple | list) else ()  # of distilled networks
    entrance = _entrance(side or own, config["mean"], config["std"])
    return _Found(network, entrance, labels, state, str(weights), heads=tuple(heads))


def _torchvision(name: str, classes: int, weights: Path | None, side: int | None) -> _Found:
    models = _imported("torchvision").models
    known = models.list_models(module=models)
    if name not in known:
        raise ConfigurationError(f"torchvision has no classifier {name!r}{_close(name, known)}")
    published = models.get_model_weights(name).DEFAULT
    transforms = published.transforms()
    own = transforms.crop_size[0]
    settings: dict[str, Any] = {}
    if name in _AUXILIARY:  # as with torchvision's own weights, but for the classifiers that only its training used
        settings = {"aux_logits": False, "transform_input": True}
    resized = name.startswith("vit_") and side not in (None, own)
    if resized:
        settings["image_size"] = side
    network = models.get_model(name, weights=None, num_classes=classes, **settings)
    state = {} if weights is None else _unwrapped(read_weights(weights))
    if name in _AUXILIARY:
        state = {key: tensor for key, tensor in state.items() if not key.startswith(_AUXILIARY[name])}
    if resized and "encoder.pos_embedding" in state:
        state = models.vision_transformer.interpolate_embeddings(side, network.patch_size, state)
    labels = tuple(published.meta["categories"])
    return _Found(network, _entrance(side or own, transforms.mean, transforms.std), labels, state, str(weights))


def _folder(name: str, classes: int, weights: Path | None, side: int | None) -> _Found:
    folder = Path(name)
    config = _document(folder / "config.json")
    if "architecture" in config:
        told = {**config.get("pretrained_cfg", {}), "label_names": config.get("label_names")}
        return _timm(config["architecture"], classes, weights, side, told)
    kind = "".join(config.get("architectures") or ["a model without `architectures`"])
    if not kind.endswith("ForImageClassification"):
        raise ConfigurationError(f"{folder} has {kind}, expected a classifier of images, …ForImageClassification")
    image = _document(folder / "preprocessor_config.json")
    transformers = _transformers()
    cropped = image.get("crop_size") if image.get("do_center_crop", True) else None
    own = _side(cropped or image.get("size", config.get("image_size")), folder)
    made = transformers.AutoConfig.from_pretrained(folder, num_labels=classes, local_files_only=True)
    network = transformers.AutoModelForImageClassification.from_config(made)
    options = {}
    # The positions of its patches are learned. A network that has none takes any size, or fails before the first epoch.
    if side not in (None, own) and "interpolate_pos_encoding" in inspect.signature(network.forward).parameters:
        options = {"interpolate_pos_encoding": True}
    state = {} if weights is None else _weights_of_folder(folder, weights, type(network), made)
    mean, deviation = ([0.0], [1.0])
    if image.get("do_normalize", True):
        try:
            mean, deviation = image["image_mean"], image["image_std"]
        except KeyError as error:
            raise ConfigurationError(
                f"{folder}/preprocessor_config.json has no {error.args[0]}, which `do_normalize` requires"
            ) from None
    if len(mean) == 1:
        mean, deviation = mean * 3, deviation * 3
    entrance = _entrance(
        side or own, [value + _offset(image) for value in mean], deviation, 1 / _rescaling(image, folder)
    )
    return _Found(network, entrance, _labels(config), state, str(weights), options=options)


def _rescaling(image: Mapping[str, Any], folder: Path) -> float:
    """Return what pixels are multiplied by before they are normalised."""
    factor = image.get("rescale_factor", 1 / _WHITE) if image.get("do_rescale", True) else 1.0
    if not isinstance(factor, int | float) or not 0 < factor <= 1:
        raise ConfigurationError(
            f"{folder}/preprocessor_config.json has rescale_factor {factor!r}, expected a number above 0, at most 1"
        )
    return factor


def _offset(image: Mapping[str, Any]) -> float:
    """Return what is subtracted from rescaled pixels before they are normalised, as EfficientNet does."""
    return 1.0 if image.get("do_rescale", True) and image.get("rescale_offset") else 0.0


def _of_texts(folder: Path, shape: TextShape, classes: int, weights: Path | None) -> _Found:
    """Return a transformer that classifies texts; one that was trained for another task gets a new head."""
    config = _document(folder / "config.json")
    transformers = _transformers()
    try:
        made = transformers.AutoConfig.from_pretrained(folder, num_labels=classes, local_files_only=True)
        made.use_cache = False
        if made.pad_token_id is None:
            made.pad_token_id = shape.padding
        # The plain attention is deterministic, and exports as it is.
        network = transformers.AutoModelForSequenceClassification.from_config(made, attn_implementation="eager")
    except (ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"{folder} is not a transformer that can classify texts: {reason[:300]}") from error
    rows = network.get_input_embeddings().num_embeddings
    if rows < shape.vocabulary:
        raise ConfigurationError(
            f"{folder}/tokenizer.json has {shape.vocabulary} token ids, expected at most {rows}, the network's"
        )
    inner = f"{network.base_model_prefix}."
    new = frozenset(name for name in network.state_dict() if not name.startswith(inner) or ".pooler." in name)
    state = {} if weights is None else _weights_of_folder(folder, weights, type(network), made)
    return _Found(network, TextInput(), _labels(config), state, str(weights), new=new)


def _transformers() -> Any:
    transformers = _imported("transformers")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _labels(config: Mapping[str, Any]) -> tuple[str, ...]:
    labels = config.get("id2label") or {}
    return tuple(labels[key] for key in sorted(labels, key=int))


def _side(size: Any, folder: Path) -> int:
    found = size.get("shortest_edge") or size.get("height") if isinstance(size, dict) else size
    if not isinstance(found, int):
        raise ConfigurationError(f"{folder} does not say the size of its images, expected preprocessor_config.json")
    return found


def _weights_of_folder(folder: Path, weights: Path, kind: Any, config: Any) -> dict[str, Tensor]:
    """Return the weights under the names of this version of transformers, which renames older ones."""
    if weights.parent != folder:
        return read_weights(weights)
    if not (weights.is_file() or weights.with_name(f"{weights.name}.index.json").is_file()):
        raise ConfigurationError(f"{weights}: no such file, expected weights; those in .bin files are not read")
    try:
        network, told = kind.from_pretrained(
            folder,
            config=config,
            ignore_mismatched_sizes=True,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            dtype=torch.float32,
        )
    except (SafetensorError, OSError, ValueError) as error:
        raise ConfigurationError(f"{folder}: the weights cannot be read: {error}") from error
    new = {*told["missing_keys"], *(name for name, *_ in told["mismatched_keys"])}
    return {name: tensor for name, tensor in network.state_dict().items() if name not in new}


def _head(found: _Found, classes: int) -> frozenset[str]:
    """Return the names of the parameters of the heads, else of the last linear layer or a convolution in its place."""
    network = found.network
    names = [
        name
        for name, module in network.named_modules()
        if getattr(module, "out_features", getattr(module, "out_channels", None)) == classes
    ]
    if not names:
        raise ConfigurationError(f"{type(network).__name__} has no linear layer with {classes} outputs to replace")
    return frozenset(
        f"{head}.{name}"
        for head in found.heads or names[-1:]
        for name, _ in network.get_submodule(head).named_parameters()
    )


def _unwrapped(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a network that was wrapped for several processes under its own names."""
    return {name.removeprefix("module."): tensor for name, tensor in state.items()}


def _load(found: _Found, label_names: Sequence[str]) -> frozenset[str]:
    """Load the pretrained weights, all but the head's or with it; return the names of what begins at random."""
    there = {
        name: tensor.float() if tensor.is_floating_point() else tensor
        for name, tensor in _unwrapped(found.state).items()
    }
    head = _head(found, len(label_names))
    order = _order(found.labels, label_names) if head <= there.keys() else None
    for name in head & there.keys():
        if order is None or len(there[name]) != len(order):
            del there[name]
        else:
            there[name] = there[name][order]
    new = head | (found.new - there.keys())
    load_whole(found.network, there, found.source, new)
    return new


def _order(before: Sequence[str], now: Sequence[str]) -> list[int] | None:
    """Return the pretrained column of each class of the data set; None where the classes differ."""
    if len(set(before)) != len(before) or set(before) != set(now):
        return None
    return [list(before).index(name) for name in now]


def _close(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, 5)
    return f"; similar names: {', '.join(close)}" if close else ""


def _document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path}: no such file, expected what save_pretrained of model and processor writes"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} holds {type(document).__name__}, expected an object")
    return document


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    added = [name for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY") if name not in os.environ]
    os.environ |= dict.fromkeys(added, "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside the libraries
            yield
    finally:
        for name in added:
            del os.environ[name]


def _imported(library: str) -> Any:
    define_missing_operators()
    try:
        return import_module(library)
    except (ImportError, RuntimeError) as error:  # RuntimeError: built for another PyTorch
        raise ConfigurationError(
            f"this model requires {library} for PyTorch {torch.__version__}: {_EXTRA} ({error})"
        ) from error
