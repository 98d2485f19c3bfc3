"""A stranger's file becomes clean RGB, or one sentence; then a square; then a model's input."""

import hashlib
import io
import json
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms

from vit import images
from vit.images import (
    GROUND,
    MAX_BYTES,
    MAX_PIXELS,
    PictureError,
    Square,
    fingerprint,
    frame_picture,
    open_picture,
    resize_to_model,
    to_model_input,
)

# The module silences Pillow's own warnings; pytest sets a module's filters aside.
pytestmark = pytest.mark.filterwarnings("ignore:::PIL")

RED, GREEN, BLUE, YELLOW = (220, 30, 30), (30, 180, 40), (30, 60, 220), (240, 220, 40)
WIDTH, HEIGHT = 240, 160


def quarters(width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Red, green / blue, yellow."""
    picture = Image.new("RGB", (width, height), RED)
    picture.paste(GREEN, (width // 2, 0, width, height))
    picture.paste(BLUE, (0, height // 2, width // 2, height))
    picture.paste(YELLOW, (width // 2, height // 2, width, height))
    return picture


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    picture.copy().save(file, kind, **options)  # Pillow leaves settings on what it saves
    return file.getvalue()


def middles(picture: Image.Image) -> list[tuple[int, ...]]:
    """The colours at the middles of the four quarters, in reading order."""
    places = [(x, y) for y in (1, 3) for x in (1, 3)]
    return [picture.getpixel((x * picture.width // 4, y * picture.height // 4)) for x, y in places]


def assert_quarters(picture: Image.Image, tolerance: int) -> None:
    assert (picture.mode, picture.size, picture.info) == ("RGB", (WIDTH, HEIGHT), {})
    off = np.abs(np.subtract(middles(picture), [RED, GREEN, BLUE, YELLOW]))
    assert off.max() <= tolerance, middles(picture)


def png_chunk(name: bytes, body: bytes) -> bytes:
    check = zlib.crc32(name + body)
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", check)


def png(width: int, height: int, depth: int, colour: int, rows: bytes, extra: bytes = b"") -> bytes:
    """A PNG from its already filtered rows, for kinds that Pillow does not write."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + extra
        + png_chunk(b"IDAT", zlib.compress(rows, 9))
        + png_chunk(b"IEND", b"")
    )


def png_16_bit_rgb() -> bytes:
    wide = np.asarray(quarters()).astype(">u2") * 257
    return png(WIDTH, HEIGHT, 16, 2, b"".join(b"\0" + row.tobytes() for row in wide))


def tiff(tags: dict[int, int], body: bytes) -> bytes:
    """A little-endian TIFF with one directory of single numbers and one strip or tile."""
    start = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(
        struct.pack("<HHII", tag, 4, 1, start if tag in (273, 324) else value)
        for tag, value in sorted(tags.items())
    )
    return b"II*\0\x08\0\0\0" + struct.pack("<H", len(tags)) + entries + b"\0\0\0\0" + body


def tiff_big_endian(grey: np.ndarray) -> bytes:
    tags = {256: 256, 257: 4, 258: 16, 259: 1, 262: 1, 273: 8 + 2 + 12 * 9 + 4, 277: 1, 278: 4}
    entries = b"".join(
        struct.pack(">HHII", tag, 4, 1, value) for tag, value in (tags | {279: grey.nbytes}).items()
    )
    start = b"MM\0*" + struct.pack(">IH", 8, len(tags) + 1)
    return start + entries + b"\0\0\0\0" + grey.astype(">u2").tobytes()


def lab_tiff() -> bytes:
    srgb, lab = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    return saved(ImageCms.profileToProfile(quarters(), srgb, lab, outputMode="LAB"), "TIFF")


def colour_files() -> dict[str, tuple[bytes, int]]:
    """Every kind of file that holds the four quarters, and how far its colours may be off."""
    plain = quarters()
    other = plain.transpose(Image.Transpose.ROTATE_180)
    more = {"save_all": True, "append_images": [other]}
    palette = plain.quantize(16)
    return {
        "jpeg": (saved(plain, "JPEG"), 4),
        "jpeg, progressive": (saved(plain, "JPEG", progressive=True), 4),
        "jpeg, CMYK": (saved(plain.convert("CMYK"), "JPEG"), 12),
        "jpeg, several pictures": (saved(plain, "MPO", **more), 4),
        "jpeg, something after its end": (saved(plain, "JPEG") + b"\0garbage\xff\xd8" * 999, 4),
        "jpeg, unreadable EXIF": (saved(plain, "JPEG", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff"), 4),
        "png": (saved(plain, "PNG"), 0),
        "png, palette": (saved(palette, "PNG"), 2),
        "png, opaque alpha": (saved(plain.convert("RGBA"), "PNG"), 0),
        "png, 16 bits a channel": (png_16_bit_rgb(), 0),
        "png, animated": (saved(plain, "PNG", **more), 0),
        "gif": (saved(palette, "GIF"), 2),
        "gif, animated": (saved(palette, "GIF", save_all=True, append_images=[other]), 2),
        "webp": (saved(plain, "WEBP"), 10),
        "webp, lossless": (saved(plain, "WEBP", lossless=True), 0),
        "webp, animated": (saved(plain, "WEBP", lossless=True, **more), 0),
        "avif": (saved(plain, "AVIF", speed=10), 10),
        "avif, animated": (saved(plain, "AVIF", speed=10, **more), 10),
        "tiff": (saved(plain, "TIFF"), 0),
        "tiff, several pages": (
            saved(plain, "TIFF", save_all=True, append_images=[other.copy()]),
            0,
        ),
        "tiff, LZW": (saved(plain, "TIFF", compression="tiff_lzw"), 0),
        "tiff, JPEG": (saved(plain, "TIFF", compression="jpeg"), 4),
        "tiff, CMYK": (saved(plain.convert("CMYK"), "TIFF"), 12),
        "tiff, YCbCr": (saved(plain.convert("YCbCr"), "TIFF"), 4),
        "tiff, LAB": (lab_tiff(), 4),
        "bmp": (saved(plain, "BMP"), 0),
        "bmp, palette": (saved(palette, "BMP"), 2),
        "ico": (saved(plain, "ICO", sizes=[plain.size]), 0),
        "ico, bitmap": (saved(plain, "ICO", sizes=[plain.size], bitmap_format="bmp"), 0),
    }


COLOUR_FILES = colour_files()


@pytest.mark.parametrize("kind", COLOUR_FILES)
def test_every_kind_of_file_keeps_its_colours_and_its_first_frame(kind: str) -> None:
    data, tolerance = COLOUR_FILES[kind]
    assert_quarters(open_picture(data), tolerance)


UNDO = {  # what turns an upright picture into the stored one, by EXIF orientation
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF"])
@pytest.mark.parametrize("orientation", UNDO)
def test_exif_orientation_is_undone_once(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    turn = UNDO[orientation]
    stored = quarters() if turn is None else quarters().transpose(turn)
    assert_quarters(open_picture(saved(stored, kind, exif=exif.tobytes())), tolerance=10)


RAMP = np.tile(np.arange(256, dtype=np.uint8), (4, 1))


def grey_tiff(values: np.ndarray, bits: int, white_is_zero: bool = False) -> bytes:
    body = values.tobytes()
    size = {256: 256, 257: 4, 258: bits, 259: 1, 273: 0, 277: 1, 278: 4, 279: len(body)}
    return tiff(size | {262: int(not white_is_zero)}, body)


def grey_files() -> dict[str, tuple[bytes, int]]:
    grey = Image.fromarray(RAMP)
    wide = RAMP.astype(np.uint16) * 257
    ratio = RAMP.astype(np.float32) / 255
    twelve = np.rint(ratio * 4095).astype(np.uint16)
    even, odd = twelve[:, ::2], twelve[:, 1::2]  # two values share three bytes
    packed = np.stack([even >> 4, (even & 15) << 4 | odd >> 8, odd & 255], axis=-1)
    return {
        "jpeg": (saved(grey, "JPEG", quality=95), 3),
        "png": (saved(grey, "PNG"), 0),
        "png with alpha": (saved(grey.convert("LA"), "PNG"), 0),
        "png, 16 bits": (saved(Image.fromarray(wide), "PNG"), 0),
        "tiff, 12 bits": (grey_tiff(packed.astype(np.uint8), 12), 0),
        "tiff, 16 bits": (grey_tiff(wide.astype("<u2"), 16), 0),
        "tiff, 16 bits, big-endian": (tiff_big_endian(wide), 0),
        "tiff, 16 bits, white is zero": (grey_tiff((65535 - wide).astype("<u2"), 16, True), 0),
        "tiff, 32 bits": (grey_tiff((ratio * (2.0**32 - 512)).astype("<u4"), 32), 0),
        "tiff, 32 bits, values of 16": (saved(Image.fromarray(wide.astype(np.int32)), "TIFF"), 0),
        "tiff, float 0 to 1": (saved(Image.fromarray(ratio), "TIFF"), 0),
        "tiff, float 0 to 255": (saved(Image.fromarray(ratio * 255), "TIFF"), 0),
        "tiff, float 0 to 1000000": (saved(Image.fromarray(ratio * 1e6), "TIFF"), 0),
    }


GREY_FILES = grey_files()


@pytest.mark.parametrize("kind", GREY_FILES)
def test_greys_stay_what_they_are_in_all_three_channels(kind: str) -> None:
    data, tolerance = GREY_FILES[kind]
    pixels = np.asarray(open_picture(data)).astype(int)
    assert np.abs(pixels - RAMP[:, :, None]).max() <= tolerance


def test_values_that_are_no_numbers_are_black() -> None:
    values = np.array([[0.0, np.nan, np.inf, -np.inf, -3.0, 0.5, 1.0]], dtype=np.float32)
    pixels = np.asarray(open_picture(saved(Image.fromarray(values), "TIFF")))
    assert pixels[0, :, 0].tolist() == [0, 0, 0, 0, 0, 128, 255]


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "GIF"])
def test_one_bit_is_black_and_white(kind: str) -> None:
    bits = np.indices((8, 11)).sum(axis=0) % 3 == 0
    picture = open_picture(saved(Image.fromarray(bits), kind))
    assert np.array_equal(np.asarray(picture), np.repeat(bits[:, :, None], 3, 2) * np.uint8(255))


def half_transparent_files() -> dict[str, tuple[bytes, tuple[int, int, int]]]:
    """Files whose left half is clear, over a hidden colour, and the colour of the right half."""
    red, grey, black = (255, 0, 0), (200, 200, 200), (0, 0, 0)
    right = (4, 0, 8, 8)
    mask = Image.new("L", (8, 8), 0)
    mask.paste(255, right)
    rgb = Image.new("RGB", (8, 8), black)
    rgb.paste(red, right)
    rgba = rgb.copy()
    rgba.putalpha(mask)
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([*black, *red])
    palette.paste(1, right)
    shades = mask.point(lambda value: 200 if value else 0)
    bits = mask.point(lambda value: 255 - value).convert("1")
    deep_grey = b"\0" + np.array([0] * 4 + [200 * 257] * 4, dtype=">u2").tobytes()
    deep_rgb = b"\0" + np.array([[0, 0, 0]] * 4 + [[65535, 0, 0]] * 4, dtype=">u2").tobytes()
    clear = png_chunk(b"tRNS", bytes(2))
    clear_rgb = png_chunk(b"tRNS", bytes(6))
    return {
        "rgba png": (saved(rgba, "PNG"), red),
        "rgba webp": (saved(rgba, "WEBP", lossless=True, exact=True), red),
        "rgba tiff": (saved(rgba, "TIFF"), red),
        "rgba avif": (saved(rgba, "AVIF", quality=100), red),
        "rgba ico": (saved(rgba, "ICO", sizes=[(8, 8)]), red),
        "palette png, one clear entry": (saved(palette, "PNG", transparency=0), red),
        "palette png, alpha for each entry": (saved(palette, "PNG", transparency=b"\0\xff"), red),
        "palette gif": (saved(palette, "GIF", transparency=0), red),
        "rgb png, one clear colour": (saved(rgb, "PNG", transparency=black), red),
        "grey png, one clear grey": (saved(shades, "PNG", transparency=0), grey),
        "one-bit png, clear white": (saved(bits, "PNG", transparency=1), black),
        "16-bit grey png, one clear grey": (png(8, 8, 16, 0, deep_grey * 8, clear), grey),
        "16-bit rgb png, one clear colour": (png(8, 8, 16, 2, deep_rgb * 8, clear_rgb), red),
    }


HALF_TRANSPARENT = half_transparent_files()


@pytest.mark.parametrize("kind", HALF_TRANSPARENT)
def test_transparency_shows_the_stated_ground_and_no_hidden_colour(kind: str) -> None:
    data, colour = HALF_TRANSPARENT[kind]
    picture = open_picture(data)
    assert picture.getpixel((1, 4)) == GROUND
    assert np.abs(np.subtract(picture.getpixel((6, 4)), colour)).max() <= 2


def test_a_16_bit_clear_colour_that_is_not_black_is_clear() -> None:
    row = struct.pack(">6H", 0x8123, 0x4000, 0xFFFF, 0, 0, 0)
    clear = png_chunk(b"tRNS", struct.pack(">HHH", 0x8123, 0x4000, 0xFFFF))
    picture = open_picture(png(2, 1, 16, 2, b"\0" + row, clear))
    assert [picture.getpixel((x, 0)) for x in (0, 1)] == [GROUND, (0, 0, 0)]


@pytest.mark.parametrize(("mode", "colour"), [("RGBA", (0, 100, 200, 51)), ("LA", (100, 51))])
def test_half_alpha_is_mixed_with_the_ground(mode: str, colour: tuple[int, ...]) -> None:
    mixed = [0.2 * value + 0.8 * 255 for value in (colour[:3] if mode == "RGBA" else [100] * 3)]
    pixel = open_picture(saved(Image.new(mode, (3, 3), colour), "PNG")).getpixel((1, 1))
    assert np.abs(np.subtract(pixel, mixed)).max() <= 1


def test_a_colour_profile_is_applied_and_a_broken_or_foreign_one_ignored() -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    # Exchange the names of the red and green primaries: what the file calls red is green.
    swapped = srgb.replace(b"rXYZ", b"????").replace(b"gXYZ", b"rXYZ").replace(b"????", b"gXYZ")
    red = Image.new("RGB", (4, 4), (255, 0, 0))
    for profile, expected in ((srgb, (255, 0, 0)), (swapped, (0, 255, 0)), (b"junk", (255, 0, 0))):
        pixel = open_picture(saved(red, "PNG", icc_profile=profile)).getpixel((1, 1))
        assert np.abs(np.subtract(pixel, expected)).max() <= 2
    grey = open_picture(saved(Image.new("L", (4, 4), 90), "PNG", icc_profile=srgb))
    assert grey.getpixel((1, 1)) == (90, 90, 90)


def test_one_pixel_is_a_picture() -> None:
    picture = open_picture(saved(Image.new("RGB", (1, 1), (130, 122, 82)), "PNG"))
    pixels = resize_to_model(frame_picture(picture), 32)
    assert (pixels == (130, 122, 82)).all()


def cut(kind: str, **options: object) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    whole = saved(Image.fromarray(noise), kind, **options)
    return whole[: len(whole) // 2]


BLANK = png(8, 8, 8, 0, b"\0" * 9 * 8)
REFUSED = {  # name: (file, what its sentence says is wrong, and what to do)
    "empty": (b"", "empty", "choose a picture"),
    "too many bytes": (b"\0" * (MAX_BYTES + 1), "larger than the 20 MB", "smaller"),
    "text": (b"this is not a picture\n" * 20, "is text", "choose a picture"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG", "PNG"),
    "svg with a preamble": (
        b"\xef\xbb\xbf<?xml version='1.0'?>\n<!-- a -->\n<!DOCTYPE svg>\n<svg>",
        "SVG",
        "PNG",
    ),
    "a page": (b"\n<!DOCTYPE html><html><svg></svg>", "a web page", "save the picture itself"),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3", "PDF", "export"),
    "heic": (b"\0\0\0\x24ftypheic\0\0\0\0mif1heic" + b"\0" * 99, "HEIC", "JPEG or PNG"),
    "heic, mif1 first": (b"\0\0\0\x1cftypmif1\0\0\0\0mif1heic\0\0", "HEIC", "JPEG or PNG"),
    "video": (b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2", "a video", "one frame"),
    "zip": (b"PK\x03\x04" + b"\0" * 99, "an archive", "take the picture out"),
    "photoshop": (b"8BPS\0\x01" + b"\0" * 99, "Photoshop", "export"),
    "jpeg xl": (b"\xff\x0a" + b"\0" * 99, "JPEG XL", "export"),
    "zeros": (b"\0" * 999, "not a picture", "choose a JPEG"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "PostScript", "export"),
    "netpbm": (b"P6 1 1 255 abc\x01", "not a picture", "choose a JPEG"),
    "cut jpeg": (cut("JPEG"), "JPEG picture is cut off", "again"),
    "cut jpeg, progressive": (cut("JPEG", progressive=True), "JPEG picture is cut off", "again"),
    "jpeg's first bytes": (cut("JPEG")[:9], "JPEG picture is cut off", "again"),
    "cut png": (cut("PNG"), "PNG picture is cut off", "again"),
    "cut gif": (cut("GIF"), "GIF picture is cut off", "again"),
    "cut webp": (cut("WEBP"), "WebP picture is cut off", "again"),
    "cut avif": (cut("AVIF"), "AVIF picture is cut off", "again"),
    "cut tiff": (cut("TIFF"), "TIFF picture is cut off", "again"),
    "cut tiff, LZW": (cut("TIFF", compression="tiff_lzw"), "TIFF picture is cut off", "again"),
    "cut bmp": (cut("BMP"), "BMP picture is cut off", "again"),
    "cut ico": (cut("ICO", sizes=[(48, 48)]), "ICO picture is cut off", "again"),
    "damaged png": (BLANK.replace(b"IDAT", b"IDAt"), "PNG picture is cut off", "again"),
    "header bomb": (png(60000, 60000, 1, 0, b""), "50 megapixels", "smaller"),
    "one row too many": (png(MAX_PIXELS // 1000, 1001, 1, 0, b""), "50 megapixels", "smaller"),
    "real bomb": (png(8000, 8000, 1, 0, b"\0" * 1001 * 8000), "50 megapixels", "smaller"),
    "bomb in an icon": (
        struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, 999, 22)
        + png(8000, 8000, 1, 0, b""),
        "50 megapixels",
        "smaller",
    ),
    "longest side": (png(1, 1_000_001, 1, 0, b""), "longer than the 1,000,000", "shorter piece"),
    "longest side in an icon": (
        struct.pack("<HHHBBBBHHII", 0, 1, 1, 16, 16, 0, 0, 1, 32, 999, 22)
        + png(1, 1_000_001, 1, 0, b""),
        "longer than the 1,000,000",
        "shorter piece",
    ),
    "tile bomb": (
        tiff(
            {
                256: 9,
                257: 9,
                258: 8,
                259: 8,
                262: 1,
                277: 1,
                322: 40000,
                323: 40000,
                324: 0,
                325: 9,
            },
            b"\0" * 9,
        ),
        "50 megapixels",
        "smaller",
    ),
    "hidden text bomb": (
        png(8, 8, 8, 0, b"", png_chunk(b"zTXt", b"a\0\0" + zlib.compress(b"a" * 10**7))),
        "PNG picture is cut off or damaged",
        "again",
    ),
    "profile bomb": (
        png(8, 8, 8, 0, b"", png_chunk(b"iCCP", b"a\0\0" + zlib.compress(b"a" * 10**7))),
        "PNG picture is cut off or damaged",
        "again",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refused_file_gets_one_sentence_and_a_way_out(kind: str) -> None:
    data, wrong, remedy = REFUSED[kind]
    with pytest.raises(PictureError) as refusal:
        open_picture(data)
    sentence = str(refusal.value)
    assert wrong in sentence
    assert remedy in sentence
    assert sentence.startswith("This ")
    assert sentence.count(". ") == 0
    assert sentence.endswith(".")


def test_the_pixel_limit_itself_is_allowed_by_header() -> None:
    """What is exactly at the limit fails only because its pixels are missing."""
    with pytest.raises(PictureError, match="cut off"):
        open_picture(png(MAX_PIXELS // 1000, 1000, 1, 0, b""))


def test_a_bomb_is_refused_before_any_pixel_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    monkeypatch.setattr(Image, "_getdecoder", lambda *args, **kwargs: decoded.append(args))
    for kind in ("header bomb", "real bomb", "bomb in an icon", "tile bomb"):
        with pytest.raises(PictureError, match="megapixels"):
            open_picture(REFUSED[kind][0])
    assert decoded == []


@pytest.mark.parametrize("place", ["before the pixels", "among the pixels"])
def test_a_file_that_keeps_the_reader_busy_is_refused_in_time(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock runs a hundred times as fast, so that the test need not."""
    clock = images.time.thread_time
    monkeypatch.setattr(images.time, "thread_time", lambda: 100 * clock())
    if place == "before the pixels":
        data = BLANK[:33] + png_chunk(b"teXt", b"") * 100_000 + BLANK[33:]
    else:
        data = BLANK[:-12] + png_chunk(b"IDAT", b"") * 100_000 + BLANK[-12:]
    with pytest.raises(PictureError, match="too long.*save it anew"):
        open_picture(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "AVIF", "TIFF", "BMP", "ICO"])
def test_nothing_but_a_picture_error_leaves(kind: str) -> None:
    luck = random.Random(kind)
    whole = saved(quarters(24, 16), kind)
    outcomes = {"opened": 0, "refused": 0}
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(luck.choice([1, 2, 8])):
            data[luck.randrange(len(data))] = luck.randrange(256)
        try:
            assert open_picture(bytes(data[: luck.randrange(1, 2 * len(data))])).mode == "RGB"
            outcomes["opened"] += 1
        except PictureError:
            outcomes["refused"] += 1
    assert outcomes["refused"] > 5


def test_fingerprint_is_sha256() -> None:
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert fingerprint(b"abc") == known
    assert fingerprint(b"abcd") == hashlib.sha256(b"abcd").hexdigest()


def test_centre_crop_is_pixel_exact_and_never_enlarged() -> None:
    noise = np.random.default_rng(1).integers(0, 256, (32, 50, 3), dtype=np.uint8)
    framed = np.asarray(frame_picture(Image.fromarray(noise), "crop"))
    assert np.array_equal(framed, noise[:, 9:41])


def test_fit_keeps_all_and_pads_with_the_ground() -> None:
    noise = np.random.default_rng(2).integers(0, 256, (10, 30, 3), dtype=np.uint8)
    framed = np.asarray(frame_picture(Image.fromarray(noise), "fit"))
    assert np.array_equal(framed[10:20], noise)
    assert (framed[:10] == GROUND).all()
    assert (framed[20:] == GROUND).all()


def test_a_chosen_square_is_where_it_says_and_hangs_over_the_ground() -> None:
    noise = np.random.default_rng(3).integers(0, 256, (40, 80, 3), dtype=np.uint8)
    inside = np.asarray(frame_picture(Image.fromarray(noise), Square(x=0.75, y=0.5, side=0.5)))
    assert np.array_equal(inside, noise[10:30, 50:70])
    corner = np.asarray(frame_picture(Image.fromarray(noise), Square(x=0, y=1, side=0.5)))
    assert np.array_equal(corner[:10, 10:], noise[30:, :10])
    assert (corner[10:] == GROUND).all()
    assert (corner[:, :10] == GROUND).all()


def test_large_squares_are_shrunk_to_the_side_asked_for() -> None:
    framed = frame_picture(quarters(1500, 1000), "fit")
    assert framed.size == (512, 512)
    assert framed.getpixel((256, 84)) == GROUND  # the picture covers rows 85 1/3 to 426 2/3
    assert framed.getpixel((100, 90)) == RED
    assert framed.getpixel((400, 420)) == YELLOW
    assert frame_picture(quarters(1500, 1000), "crop", max_side=768).size == (768, 768)


@pytest.mark.parametrize("size", [(2000, 3), (3, 2000), (1, 777), (1, 1), (40_000, 1)])
@pytest.mark.parametrize(
    "how", ["crop", "fit", Square(0, 0, 0.01), Square(1, 1, 0.01), Square(0.5, 1, 3)]
)
def test_extreme_shapes_work_in_every_frame(size: tuple[int, int], how: Square) -> None:
    framed = frame_picture(Image.new("RGB", size, RED), how)
    assert framed.width == framed.height <= 512
    colours = {colour for _, colour in framed.getcolors()}
    assert RED in colours
    assert colours <= {RED, GROUND}


@pytest.mark.parametrize("values", [(-0.1, 0.5, 1), (0.5, 1.1, 1), (float("nan"), 0.5, 1)])
def test_a_square_outside_the_picture_is_refused(values: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="centre must lie in 0 to 1"):
        Square(*values)


@pytest.mark.parametrize("side", [0, -1, float("inf"), float("nan")])
def test_a_square_without_a_side_is_refused(side: float) -> None:
    with pytest.raises(ValueError, match="side must be"):
        Square(side=side)


@pytest.mark.parametrize(("side", "size"), [(512, 32), (100, 32), (33, 32), (32, 32), (20, 32)])
def test_the_resize_is_torchs_antialiased_one(side: int, size: int) -> None:
    noise = np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)
    ours = resize_to_model(Image.fromarray(noise), size).astype(np.float32)
    planes = torch.from_numpy(noise).permute(2, 0, 1)[None].float()
    theirs = torch.nn.functional.interpolate(
        planes, size=(size, size), mode="bilinear", antialias=True, align_corners=False
    )
    assert np.abs(ours - theirs[0].permute(1, 2, 0).numpy()).max() <= 1.01  # rounded twice


def test_grey_is_itu_r_601_luma() -> None:
    square = Image.new("RGB", (4, 4), (200, 100, 50))
    pixels = resize_to_model(square, 4, in_chans=1)
    assert pixels.shape == (4, 4, 1)
    assert (pixels == round(0.299 * 200 + 0.587 * 100 + 0.114 * 50)).all()


def test_the_model_input_is_normalised_per_channel_and_channels_first() -> None:
    square = Image.new("RGB", (64, 64), (51, 102, 204))
    x = to_model_input(square, 32, 3, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 0.2))
    assert (x.shape, x.dtype, x.flags["C_CONTIGUOUS"]) == ((3, 32, 32), np.float32, True)
    assert np.allclose(x[:, 5, 7], [0.2, 0.8, 2.5], atol=1e-6)
    assert np.ptp(x.reshape(3, -1), axis=1).max() == 0
    grey = to_model_input(Image.new("RGB", (8, 8), (51, 51, 51)), 8, 1, mean=(0.1,), std=(0.5,))
    assert grey.shape == (1, 8, 8)
    assert np.allclose(grey, 0.2, atol=1e-6)


def test_other_channel_counts_are_explained() -> None:
    with pytest.raises(ValueError, match=r"takes 4 channels.*3 \(colour\) or 1 \(grey\)"):
        resize_to_model(quarters(), 32, in_chans=4)


def test_the_shipped_samples_open_as_they_are_listed() -> None:
    folder = Path(__file__).parents[1] / "samples"
    listed = json.loads((folder / "samples.json").read_text(encoding="utf-8"))
    assert listed[0] | {"title": ""} == {
        "file": "cat-photo.jpg",
        "title": "",
        "label": "cat",
        "kind": "photo",
    }
    files = {path.name for path in folder.iterdir()} - {"samples.json", "SOURCES.md"}
    assert {sample["file"] for sample in listed} == files
    sources = (folder / "SOURCES.md").read_text(encoding="utf-8")
    for sample in listed:
        assert sample["file"] in sources
        picture = open_picture((folder / sample["file"]).read_bytes())
        assert max(picture.size) <= 512
        assert np.asarray(picture).std() > 20  # a picture, not a plain ground
    assert sum((folder / name).stat().st_size for name in files) < 1_000_000
