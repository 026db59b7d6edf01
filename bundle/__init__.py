"""The contract between training and service: what is written once and verified before it is served.

    bundle.write(root, contents)   → <root>/<model>/<version>/, whole or absent
    bundle.verify(path)            → Bundle, every byte checked
    bundle.find(root)              → where bundles lie

What a client has becomes the model's input in `bundle.text`, `bundle.table` and `bundle.images`; the last is imported
on its own, since it needs Pillow.
"""

from bundle.contents import Bundle, BundleContents
from bundle.errors import BundleDamagedError, BundleError, BundleFormatError, ImageError, RowError
from bundle.golden import EncodedImage, EncodedText, Golden
from bundle.locations import BundleLocation, find
from bundle.manifest import (
    Architecture,
    DataRecord,
    InputSpec,
    Loss,
    Manifest,
    Part,
    PublishedWeights,
    TrainingRecord,
)
from bundle.reader import verify
from bundle.reference import LabelledLogits, Reference
from bundle.table import Column, Columns
from bundle.text import Vocabulary
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
    "Columns",
    "DataRecord",
    "EncodedImage",
    "EncodedText",
    "Golden",
    "ImageError",
    "InputSpec",
    "LabelledLogits",
    "Loss",
    "Manifest",
    "Part",
    "PublishedWeights",
    "Reference",
    "RowError",
    "TrainingRecord",
    "Vocabulary",
    "find",
    "verify",
    "write",
]
