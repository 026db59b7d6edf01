"""Messages of the protocol, from the compiled `open_inference.proto`.

They live in a pool of their own: generated modules would register them in the pool of the process, where only one
package may define `inference.ModelInferRequest`, and clients such as `tritonclient` define it too.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

POOL: Final = DescriptorPool()
for _file in FileDescriptorSet.FromString((files(__package__) / "open_inference.binpb").read_bytes()).file:
    POOL.Add(_file)

SERVICE: Final = POOL.FindServiceByName("inference.GRPCInferenceService")
"""Descriptor of the service: its methods and their messages."""


def message(name: str) -> Any:
    """Return the class of a message.

    >>> message("ServerLiveResponse")(live=True).live
    True
    """
    return GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))
