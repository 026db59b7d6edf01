"""From an encoded image to the model's input, for training and service alike.

Clients' bytes are untrusted: only three formats are accepted, the size in the header is checked against a limit before
any pixel is decoded, checksums are verified, and every failure is an ImageError.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from bundle.errors import BundleFormatError, ImageError
from bundle.golden import Golden
from bundle.inputs import InputSpec
from bundle.manifest import GOLDEN_FILE

_FORMATS = ("PNG", "JPEG", "WEBP")
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_image(data: bytes, spec: InputSpec, *, max_pixels: int) -> NDArray[np.uint8]:
    """Decode a PNG, JPEG or WebP image into one example.

    The EXIF orientation is applied, transparent pixels are blended with white, 16-bit grey is reduced to 8 bits, and
    grey is converted to RGB or RGB to grey (ITU-R 601) as the model requires. Images of another size are resized
    (bilinear, anti-aliased, aspect not kept) if `spec.resize` is set.

    Args:
        data: The encoded image.
        spec: The model's input; its kind must be `image`.
        max_pixels: Maximum width × height, checked in the header before anything is decoded.

    Returns:
        uint8 (H, W, C) as in `spec.shape`, C-contiguous.

    Raises:
        ImageError: Not one of these formats, truncated, corrupt, animated, over the limit, or of another size.

    Example:
        >>> spec = InputSpec(kind="image", dtype="uint8", shape=(2, 2, 1))
        >>> decode_image(encode_png(np.full((2, 2, 3), 7, np.uint8)), spec, max_pixels=100)[..., 0]
        array([[7, 7],
               [7, 7]], dtype=uint8)
    """
    if spec.kind != "image":
        raise ImageError("this model does not accept images", found="an image", expected=spec.kind)
    with _pillows_errors_as_ours(data, max_pixels):
        return _decode(data, spec, max_pixels)


def pixels_of(data: bytes) -> int:
    """Return width × height from an encoded image's header; nothing is decoded.

    Raises:
        ImageError: The bytes are not a PNG, JPEG or WebP image, or exceed Pillow's own limit.

    Example:
        >>> pixels_of(encode_png(np.zeros((2, 3, 1), np.uint8)))
        6
    """
    width, height = _webp_canvas(data)
    if width * height:
        return width * height
    with _pillows_errors_as_ours(data, Image.MAX_IMAGE_PIXELS), Image.open(io.BytesIO(data), formats=_FORMATS) as image:
        return image.width * image.height


def encode_png(array: NDArray[np.uint8]) -> bytes:
    """Encode uint8 (H, W, 1), (H, W, 3) or (H, W, 4) as PNG, without loss.

    Raises:
        ImageError: Another shape or type.
    """
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] not in (1, 3, 4) or 0 in array.shape:
        raise ImageError(
            "the array is not an image",
            found=f"{array.dtype} {array.shape}",
            expected="uint8 (H, W, 1), (H, W, 3) or (H, W, 4)",
        )
    buffer = io.BytesIO()
    Image.fromarray(array[..., 0] if array.shape[2] == 1 else array).save(buffer, "PNG")
    return buffer.getvalue()


def check_golden(golden: Golden, spec: InputSpec) -> None:
    """Check that the encoded golden images decode to their golden inputs on this machine.

    Raises:
        BundleFormatError: One does not, so this machine's decoder would change the model's inputs.
    """
    for image in golden.encoded:
        try:
            decoded = decode_image(image.data, spec, max_pixels=max(1, spec.shape[0] * spec.shape[1]) * 64)
        except ImageError as error:
            raise BundleFormatError(f"a golden image cannot be decoded: {error}", file=GOLDEN_FILE) from error
        if not np.array_equal(decoded, golden.inputs[image.row]):
            raise BundleFormatError(
                "a golden image does not decode to its golden input",
                file=GOLDEN_FILE,
                found=f"{image.media_type}, row {image.row}, another array",
                expected="equal arrays",
            )


@contextmanager
def _pillows_errors_as_ours(data: bytes, max_pixels: int | None) -> Iterator[None]:
    """Turn everything that Pillow raises into an ImageError."""
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError("the image cannot be read", found=_magic(data), expected="a PNG, JPEG or WebP image") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageError(
            "the image has too many pixels", found="more than Pillow's own limit", expected=f"at most {max_pixels}"
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # Pillow's parsers raise nearly anything on hostile bytes
        raise ImageError(
            f"the image cannot be decoded: {error}",
            found=f"{len(data)} bytes",
            expected="a complete PNG, JPEG or WebP image",
        ) from error


def _decode(data: bytes, spec: InputSpec, max_pixels: int) -> NDArray[np.uint8]:
    height, width, channels = spec.shape
    _limit(_webp_canvas(data), max_pixels)
    image: Image.Image = Image.open(io.BytesIO(data), formats=_FORMATS)
    _limit(image.size, max_pixels)
    if image.format in ("PNG", "WEBP") and getattr(image, "is_animated", False):
        raise ImageError(
            "animations are not accepted", found=f"{getattr(image, 'n_frames', 2)} frames", expected="one image"
        )
    if not spec.resize and sorted(image.size) != sorted((width, height)):
        raise _other_size(image.size, width, height)  # before decoding its pixels; rotation would not help
    if image.format == "PNG":
        image.verify()  # the only step that checks every chunk's CRC; it leaves the image unusable
        image = Image.open(io.BytesIO(data), formats=_FORMATS)
    image.load()
    turn = _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    image = _eight_bits(image, "L" if channels == 1 else "RGB")
    if turn is not None:
        image = image.transpose(turn)
    if image.size != (width, height):
        if not spec.resize:
            raise _other_size(image.size, width, height)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(image, np.uint8).reshape(height, width, channels))


def _eight_bits(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.int64).clip(0, 65535)
        return Image.fromarray(((deep + 128) // 257).astype(np.uint8)).convert(mode)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image.convert("RGB").convert(mode) if image.mode in ("P", "CMYK", "YCbCr", "LAB") else image.convert(mode)


def _other_size(size: tuple[int, int], width: int, height: int) -> ImageError:
    return ImageError(
        "the image has the wrong size for the model",
        found=f"{size[0]} × {size[1]} pixels",
        expected=f"{width} × {height} pixels",
    )


def _limit(size: tuple[int, int], max_pixels: int) -> None:
    if size[0] * size[1] > max_pixels:
        raise ImageError(
            "the image has too many pixels",
            found=f"{size[0]} × {size[1]} = {size[0] * size[1]}",
            expected=f"at most {max_pixels}",
        )


def _webp_canvas(data: bytes) -> tuple[int, int]:
    """Return width and height from a WebP header, (0, 0) for other formats; libwebp allocates them on opening.

    Source: RFC 9649, sections 2.5 to 2.7.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return 0, 0
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        packed = int.from_bytes(data[21:25], "little")
        return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
    return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF


def _magic(data: bytes) -> str:
    return f"{len(data)} bytes that begin with {data[:8].hex(' ')}" if data else "no bytes"
