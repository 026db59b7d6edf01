"""The contract between training and service: a folder written once and verified before it is served.

    bundle.write(root, contents)   → <root>/<model>/<version>/, whole or absent
    bundle.verify(path)            → Bundle, every byte checked
    bundle.find(root)              → locations of bundles

`bundle.text`, `bundle.tokenizer`, `bundle.table` and `bundle.images` turn a client's data into the model's input.
Import `bundle.images` separately; it requires Pillow. `bundle.upstream_client` asks a model that runs
elsewhere; it requires httpx.
"""

from bundle.contents import Bundle, BundleContents
from bundle.errors import BundleDamagedError, BundleError, BundleFormatError, ImageError, RemoteError, RowError
from bundle.golden import EncodedImage, EncodedText, Golden
from bundle.graph import Graph, GraphInput, GraphOutput
from bundle.inputs import InputSpec, TensorSpec
from bundle.locations import BundleLocation, find, locate
from bundle.manifest import Manifest
from bundle.profile import ColumnProfile, Profile
from bundle.reader import verify
from bundle.records import (
    Architecture,
    DataRecord,
    ImportRecord,
    LabelOf,
    Loss,
    NativeCheck,
    Part,
    PublishedWeights,
    TrainingRecord,
)
from bundle.reference import LabelledLogits, Reference
from bundle.scores import Scores
from bundle.table import Column, Columns
from bundle.text import Vocabulary
from bundle.tokenizer import Tokenizer
from bundle.trees import Trees
from bundle.upstream import Upstream
from bundle.writer import write

__all__ = [
    "Architecture",
    "Bundle",
    "BundleContents",
    "BundleDamagedError",
    "BundleError",
    "BundleFormatError",
    "BundleLocation",
    "Column",
    "ColumnProfile",
    "Columns",
    "DataRecord",
    "EncodedImage",
    "EncodedText",
    "Golden",
    "Graph",
    "GraphInput",
    "GraphOutput",
    "ImageError",
    "ImportRecord",
    "InputSpec",
    "LabelOf",
    "LabelledLogits",
    "Loss",
    "Manifest",
    "NativeCheck",
    "Part",
    "Profile",
    "PublishedWeights",
    "Reference",
    "RemoteError",
    "RowError",
    "Scores",
    "TensorSpec",
    "Tokenizer",
    "TrainingRecord",
    "Trees",
    "Upstream",
    "Vocabulary",
    "find",
    "locate",
    "verify",
    "write",
]
