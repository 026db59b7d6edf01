"""Images: what fits comes out exactly, what does not is an ImageError, nothing else."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image

from bundle import BundleFormatError, EncodedImage, Golden, ImageError, InputSpec
from bundle.images import check_golden, decode_image, encode_png, pixels_of
from tests.memory import most_traced

MAX_PIXELS = 10_000


def spec(height: int, width: int, channels: int, *, resize: bool = False) -> InputSpec:
    return InputSpec(kind="image", dtype="uint8", shape=(height, width, channels), resize=resize)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, *chunks: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


IMAGES = npst.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([1, 3])))


@given(IMAGES)
def test_png_is_exact(array: np.ndarray) -> None:
    decoded = decode_image(encode_png(array), spec(*array.shape), max_pixels=MAX_PIXELS)
    assert decoded.dtype == np.uint8
    assert decoded.flags.c_contiguous
    np.testing.assert_array_equal(decoded, array)


@given(IMAGES.filter(lambda array: array.shape[2] == 3))
def test_lossless_webp_is_exact(array: np.ndarray) -> None:
    data = encoded(Image.fromarray(array), "WEBP", lossless=True, exact=True)
    np.testing.assert_array_equal(decode_image(data, spec(*array.shape), max_pixels=MAX_PIXELS), array)


@given(IMAGES)
def test_grey_becomes_rgb_and_grey_rgb_becomes_grey(array: np.ndarray) -> None:
    grey = array[..., :1]
    height, width, _ = grey.shape
    coloured = np.repeat(grey, 3, axis=2)
    as_rgb = decode_image(encode_png(grey), spec(height, width, 3), max_pixels=MAX_PIXELS)
    as_grey = decode_image(encode_png(coloured), spec(height, width, 1), max_pixels=MAX_PIXELS)
    np.testing.assert_array_equal(as_rgb, coloured)
    np.testing.assert_array_equal(as_grey, grey)


def test_jpeg_is_close() -> None:
    smooth = np.add.outer(np.arange(0, 128, 4), np.arange(0, 128, 4)).astype(np.uint8)
    decoded = decode_image(encoded(Image.fromarray(smooth), "JPEG", quality=95), spec(32, 32, 1), max_pixels=MAX_PIXELS)
    assert np.abs(decoded[..., 0].astype(int) - smooth).max() <= 4


def test_transparency_lies_over_white() -> None:
    for mode in ("RGBA", "LA"):
        image = Image.new("RGBA", (2, 1), (0, 0, 0, 255)).convert(mode)
        image.putpixel((1, 0), (0, 0, 0, 0) if mode == "RGBA" else (0, 0))
        assert decode_image(encoded(image), spec(1, 2, 1), max_pixels=MAX_PIXELS).tolist() == [[[0], [255]]]
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putpixel((1, 0), 1)
    plain = decode_image(encoded(palette), spec(1, 2, 3), max_pixels=MAX_PIXELS)
    assert plain.tolist() == [[[10, 20, 30], [40, 50, 60]]]
    transparent = decode_image(encoded(palette, transparency=1), spec(1, 2, 3), max_pixels=MAX_PIXELS)
    assert transparent.tolist() == [[[10, 20, 30], [255, 255, 255]]]


def test_sixteen_bits_keep_their_scale() -> None:
    deep = np.array([[0, 257, 32896, 65535]], np.uint16)
    decoded = decode_image(encoded(Image.fromarray(deep)), spec(1, 4, 1), max_pixels=MAX_PIXELS)
    assert decoded.ravel().tolist() == [0, 1, 128, 255]


def test_one_bit_and_cmyk() -> None:
    assert decode_image(encoded(Image.new("1", (1, 1), 1)), spec(1, 1, 1), max_pixels=1).tolist() == [[[255]]]
    cmyk = encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")
    assert (decode_image(cmyk, spec(8, 8, 3), max_pixels=64) == 255).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_exif_orientation_is_applied(orientation: int, kind: str) -> None:
    upright = np.arange(6, dtype=np.uint8).reshape(2, 3, 1) * 40
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = Image.fromarray(np.repeat(stored, 3, axis=2))
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(image, kind, exif=exif, **options)
    np.testing.assert_array_equal(decode_image(data, spec(2, 3, 1), max_pixels=MAX_PIXELS), upright)


def test_another_size_is_refused_or_resized_as_the_model_says() -> None:
    data = encode_png(np.full((28, 20, 1), 77, np.uint8))
    with pytest.raises(ImageError) as caught:
        decode_image(data, spec(8, 8, 1), max_pixels=MAX_PIXELS)
    assert caught.value.found == "20 × 28 pixels"
    assert caught.value.expected == "8 × 8 pixels"
    resized = decode_image(data, spec(8, 8, 1, resize=True), max_pixels=MAX_PIXELS)
    assert resized.shape == (8, 8, 1)
    assert (resized == 77).all()


def test_a_model_without_images_takes_none() -> None:
    with pytest.raises(ImageError, match="does not accept images"):
        decode_image(
            encode_png(np.zeros((1, 1, 1), np.uint8)),
            InputSpec(kind="array", dtype="float32", shape=(1,)),
            max_pixels=1,
        )


def test_the_limit_is_held_against_the_header_before_anything_is_unpacked() -> None:
    rows = zlib.compress(bytes(20_000 * 20_001), 9)
    bombs = {
        "PNG": png(20_000, 20_000, chunk(b"IDAT", rows)),
        "JPEG": b"\xff\xd8\xff\xc0\x00\x0b\x08" + struct.pack(">HH", 65_000, 65_000) + b"\x01\x01\x11\x00\xff\xd9",
        "WEBP lossless": b"RIFF\x30\0\0\0WEBPVP8L\x10\0\0\0\x2f" + b"\xff" * 16,
        "WEBP extended": b"RIFF\x30\0\0\0WEBPVP8X\x0a\0\0\0\x02\0\0\0" + b"\xff\x3f\0" * 2 + bytes(16),
    }

    def refused(data: bytes) -> None:
        with pytest.raises(ImageError, match="too many pixels") as caught:
            decode_image(data, spec(8, 8, 1, resize=True), max_pixels=MAX_PIXELS)
        assert str(MAX_PIXELS) in str(caught.value.expected)

    for name, data in bombs.items():
        assert most_traced(partial(refused, data)) < 2**20, name


def test_the_limit_itself_is_allowed() -> None:
    data = encode_png(np.zeros((10, 10, 1), np.uint8))
    assert decode_image(data, spec(10, 10, 1), max_pixels=100).shape == (10, 10, 1)
    with pytest.raises(ImageError):
        decode_image(data, spec(10, 10, 1), max_pixels=99)


def test_webp_headers_are_read_right() -> None:
    image = Image.new("RGB", (37, 21), (1, 2, 3))
    alpha = Image.new("RGBA", (37, 21), (1, 2, 3, 4))
    for data in (encoded(image, "WEBP"), encoded(image, "WEBP", lossless=True), encoded(alpha, "WEBP")):
        assert decode_image(data, spec(21, 37, 3), max_pixels=37 * 21).shape == (21, 37, 3)
        with pytest.raises(ImageError, match="37 × 21"):
            decode_image(data, spec(21, 37, 3), max_pixels=37 * 21 - 1)


def test_animations_are_refused() -> None:
    frames = [Image.new("RGB", (4, 4), (shade, 0, 0)) for shade in (0, 200)]
    for kind in ("PNG", "WEBP"):
        data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=100)
        with pytest.raises(ImageError, match="animation"):
            decode_image(data, spec(4, 4, 3), max_pixels=MAX_PIXELS)


@pytest.mark.parametrize("kind", ["GIF", "BMP", "TIFF", "PPM", "ICO"])
def test_other_formats_are_refused(kind: str) -> None:
    with pytest.raises(ImageError, match="PNG, JPEG or WebP"):
        decode_image(encoded(Image.new("RGB", (16, 16)), kind), spec(16, 16, 3), max_pixels=MAX_PIXELS)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_a_truncated_image_is_refused_wherever_it_is_cut(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3)).astype(np.uint8)
    data = encoded(Image.fromarray(noise), kind)
    last = len(data) if kind == "PNG" else len(data) - 8  # a JPEG's or WebP's last bytes may be padding
    for end in range(0, last, 7):
        with pytest.raises(ImageError) as caught:
            decode_image(data[:end], spec(16, 16, 3), max_pixels=MAX_PIXELS)
        assert caught.value.found
        assert caught.value.expected


def test_a_flipped_bit_in_a_png_never_changes_a_pixel_unnoticed() -> None:
    array = np.random.default_rng(0).integers(0, 256, (8, 8, 1)).astype(np.uint8)
    data = encode_png(array)
    unnoticed = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x10
        with contextlib.suppress(ImageError):
            np.testing.assert_array_equal(decode_image(bytes(damaged), spec(8, 8, 1), max_pixels=MAX_PIXELS), array)
            unnoticed += 1
    assert unnoticed <= 8  # the last chunk holds no pixels


def test_text_that_unpacks_to_gigabytes_is_refused() -> None:
    text = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(2**24), 9))
    whole = png(2, 2, text, chunk(b"IDAT", zlib.compress(bytes(6))))
    with pytest.raises(ImageError):
        decode_image(whole, spec(2, 2, 1), max_pixels=MAX_PIXELS)


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"RIFF\0\0\0\0WEBPVP8 "])
)
def test_any_bytes_are_an_image_or_an_image_error(data: bytes, magic: bytes) -> None:
    with contextlib.suppress(ImageError):
        decode_image(magic + data, spec(4, 4, 1, resize=True), max_pixels=MAX_PIXELS)


@settings(max_examples=300)
@given(st.sampled_from(["PNG", "JPEG", "WEBP"]), st.data())
def test_any_damage_to_an_image_is_an_image_or_an_image_error(kind: str, data: st.DataObject) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    whole = bytearray(encoded(Image.linear_gradient("L").resize((16, 16)).convert("RGB"), kind, exif=exif))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ImageError):
        decoded = decode_image(bytes(whole), spec(4, 4, 3, resize=True), max_pixels=MAX_PIXELS)
        assert decoded.shape == (4, 4, 3)


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 2), np.uint8), np.zeros((2, 2, 2), np.uint8), np.zeros((2, 2, 1)), np.zeros((0, 2, 1), np.uint8)],
)
def test_only_images_are_encoded(array: np.ndarray) -> None:
    with pytest.raises(ImageError):
        encode_png(array)


def test_golden_images_must_decode_to_their_inputs() -> None:
    inputs = np.arange(8, dtype=np.uint8).reshape(2, 2, 2, 1)
    logits = np.zeros((2, 2), np.float32)
    right = EncodedImage("image/png", encode_png(inputs[1]), 1)
    check_golden(Golden(inputs, logits, (right,)), spec(2, 2, 1))
    for wrong in (EncodedImage("image/png", right.data, 0), EncodedImage("image/png", right.data[:-20], 1)):
        with pytest.raises(BundleFormatError) as caught:
            check_golden(Golden(inputs, logits, (right, wrong)), spec(2, 2, 1))
        assert caught.value.file == "golden.npz"


def test_pixels_are_counted_from_the_header() -> None:
    image = Image.new("RGB", (300, 200))
    for format_ in ("PNG", "JPEG", "WEBP"):
        stream = io.BytesIO()
        image.save(stream, format_)
        assert pixels_of(stream.getvalue()) == 60_000
    for data in (b"", b"GIF89a" + bytes(64), b"\x89PNG\r\n\x1a\n"):
        with pytest.raises(ImageError):
            pixels_of(data)
