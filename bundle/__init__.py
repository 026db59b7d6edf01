"""The contract between training and service: what is written once and verified before it is served.

    bundle.write(root, contents)   → <root>/<model>/<version>/, whole or absent
    bundle.verify(path)            → Bundle, every byte checked
    bundle.find(root)              → where bundles lie

`bundle.images` turns encoded images into the model's input; it is imported on its own, since it needs Pillow.
"""

from bundle.contents import Bundle, BundleContents
from bundle.errors import BundleDamagedError, BundleError, BundleFormatError, ImageError
from bundle.golden import EncodedImage, Golden
from bundle.locations import BundleLocation, find
from bundle.manifest import Architecture, InputSpec, Loss, Manifest, Part, TrainingRecord
from bundle.reader import verify
from bundle.reference import LabelledLogits, Reference
from bundle.writer import write

__all__ = [
    "Architecture",
    "Bundle",
    "BundleContents",
    "BundleDamagedError",
    "BundleError",
    "BundleFormatError",
    "BundleLocation",
    "EncodedImage",
    "Golden",
    "ImageError",
    "InputSpec",
    "LabelledLogits",
    "Loss",
    "Manifest",
    "Part",
    "Reference",
    "TrainingRecord",
    "find",
    "verify",
    "write",
]
