"""Models that stay on a server of the Open Inference Protocol (V2): what they take and give, and their scores."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, get_args
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from bundle import Upstream
from bundle.inputs import TensorType
from bundle.open_inference import OF_DTYPE
from bundle.references import shown
from bundle.schema import first_problem
from bundle.upstream import HEADER_NAME, HEADER_VARIABLE, metadata_digest
from bundle.upstream_client import CallFailedError, HeaderValueError, UpstreamClient
from importing.errors import UnsupportedModelError
from importing.model import Port, fixed_batch

_ADDRESS: Final = re.compile(
    r"(?P<url>https?://[^?#]+?)/v2/models/(?P<model>[^/?#]+)(/versions/(?P<version>[^/?#]+))?/?"
)
_EXAMPLE: Final = "http://HOST:PORT/v2/models/NAME or …/NAME/versions/VERSION"
_DTYPES: Final[dict[str, TensorType]] = {OF_DTYPE[dtype]: dtype for dtype in get_args(TensorType)}
_ROWS: Final = 32  # per request, as many as the service sends at once
_Answer = TypeVar("_Answer")
_LARGEST: Final = 64 * 2**20  # bytes of an answer


class ServerModel:
    """A model on a server, with the interface of `OnnxModel`.

    Args:
        address: Address of its metadata, with its version or without.
        headers: Environment variable that holds the value of each header.
        timeout_s: Seconds that a request may take.
        on_change: What the service does when the model there has changed; see `bundle.Upstream`.

    Attributes:
        origin: Source of the bundle's model.
        inputs: Inputs of the model, in order.
        outputs: Outputs of the model, in order.

    Raises:
        UnsupportedModelError: The address or a header cannot be used, or no such model answers there.
    """

    origin: Final = "remote"

    def __init__(
        self,
        address: str,
        *,
        headers: Mapping[str, str],
        timeout_s: float,
        on_change: Literal["refuse", "alarm"],
    ) -> None:
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise UnsupportedModelError("not the address of a model", found=shown(address), expected=_EXAMPLE)
        for name, variable in headers.items():
            valid = re.fullmatch(HEADER_NAME, name)
            if not valid or not re.fullmatch(HEADER_VARIABLE, variable):
                raise UnsupportedModelError(
                    "a header is not a name and the environment variable that holds its value",
                    where="--header",
                    found=name if valid else None,  # all else may be the secret itself
                    expected="NAME=CANDOR_HEADER_…, of capital letters, digits and _",
                    remedy="Put the value into such a variable: export CANDOR_HEADER_AUTHORIZATION='Bearer …', and "
                    "--header Authorization=CANDOR_HEADER_AUTHORIZATION.",
                )
        version = None if found["version"] is None else unquote(found["version"])
        self._address = address = shown(address)
        try:
            self._upstream = Upstream(
                url=found["url"],
                model=unquote(found["model"]),
                version=version,
                by_version=version is not None,
                metadata="0" * 64,
                timeout_s=timeout_s,
                headers=dict(headers),
                on_change=on_change,
            )
            client = UpstreamClient(self._upstream)
        except ValidationError as error:
            raise UnsupportedModelError(first_problem(error), where=address) from error
        except HeaderValueError as error:
            raise UnsupportedModelError(str(error), where=address) from error
        metadata = self._called(lambda until: client.metadata(until=until))
        self.inputs = _ports(metadata.get("inputs"), "inputs", address)
        self.outputs = _ports(metadata.get("outputs"), "outputs", address)
        known = {"metadata": metadata_digest(metadata), "binary": self._speaks_binary(client)}
        self._upstream = self._upstream.model_copy(update=known)
        client.close()
        self._client = UpstreamClient(self._upstream)

    @property
    def content(self) -> bytes:
        """Bytes of the bundle's `upstream.json`, with the version that answered."""
        return self._upstream.dump()

    @property
    def batch(self) -> int | None:
        """Number of rows in every run where the model fixes it; None for any number."""
        return fixed_batch(self.inputs)

    def run(self, names: list[str], feeds: dict[str, npt.NDArray[Any]]) -> Sequence[Any]:
        """Return outputs for a batch; texts, which score nothing, as empty ones. See `bundle.graph.Run`.

        Raises:
            UnsupportedModelError: There is no usable answer, or another version gave it than before.
        """
        rows = len(next(iter(feeds.values())))
        texts = {port.name for port in self.outputs if port.dtype in (None, "string")}
        found = []
        for name in names:
            if name in texts:
                found.append(np.full(rows, "", object))
                continue
            step = self.batch or _ROWS
            parts = [
                self._scores({key: values[start : start + step] for key, values in feeds.items()}, name)
                for start in range(0, rows, step)
            ]
            found.append(np.concatenate(parts))
        return found

    def _scores(self, feeds: dict[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
        values, version = self._called(lambda until: self._client.infer(feeds, name, largest=_LARGEST, until=until))
        if self._upstream.version is None:
            self._upstream = self._upstream.model_copy(update={"version": version})
        if version != self._upstream.version:
            raise UnsupportedModelError(
                "another version answers than before",
                where=self._address,
                found=version,
                expected=self._upstream.version,
            )
        rows = len(next(iter(feeds.values())))
        if not values.ndim or len(values) != rows:
            raise UnsupportedModelError(
                f"output {name!r} does not have a row for each row of the inputs",
                where=self._address,
                found=str(list(values.shape)),
                expected=f"{rows} rows",
            )
        return values

    def _speaks_binary(self, client: UpstreamClient) -> bool:
        server = self._called(lambda until: client.document(f"{self._upstream.url}/v2", until=until))
        extensions = server.get("extensions")
        return isinstance(extensions, list) and "binary_tensor_data" in extensions

    def _called(self, call: Callable[[float], _Answer]) -> _Answer:
        try:
            return call(time.monotonic() + self._upstream.timeout_s)
        except CallFailedError as error:
            raise UnsupportedModelError(
                "the server gives no usable answer",
                where=self._address,
                found=str(error),
                expected=f"an answer within {self._upstream.timeout_s:g} s" if error.kind == "slow" else None,
                remedy="Give it more time with --timeout." if error.kind == "slow" else None,
            ) from error


def _ports(tensors: Any, key: str, address: str) -> tuple[Port, ...]:
    """Return the inputs or outputs of a model's metadata."""
    try:
        ports = tuple(
            Port(
                str(tensor["name"]),
                _DTYPES.get(tensor["datatype"]),
                tuple(int(size) if int(size) > 0 else None for size in tensor["shape"]),
                str(tensor["datatype"]),
            )
            for tensor in tensors
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"the metadata of the model have no valid `{key}`",
            where=address,
            found=f"{type(error).__name__}: {error}",
            expected="a list of tensors with `name`, `datatype` and `shape`",
        ) from error
    if not ports:
        raise UnsupportedModelError(
            f"the metadata of the model list no {key}",
            where=address,
            expected="each tensor with its name, datatype and shape",
            remedy="Declare them on the server: in MLServer's model-settings.json, or Triton's config.pbtxt.",
        )
    return ports
