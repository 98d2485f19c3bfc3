"""From a stranger's file to clean RGB, to a square, to the numbers a model takes.

Three steps, each a function: `open_picture` (bytes to an upright RGB picture, or a `PictureError`
that a visitor can read), `frame_picture` (any shape to a square) and `to_model_input` (the square
to normalised float32). A file is judged by its bytes alone: its name is never looked at.
"""

import hashlib
import io
import re
import time
import warnings
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import ExifTags, Image, ImageCms, TiffImagePlugin

MAX_BYTES = 20 * 1024 * 1024
MAX_PIXELS = 50_000_000
MAX_SIDE = 1_000_000  # pixels; every row costs memory of its own, however short it is
MAX_ZOOM_OUT = 1e6  # a chosen square's side, in shorter sides of the picture
FRAME_SIDE = 512  # pixels; a framed square is never larger, unless a caller asks for it
GROUND = (255, 255, 255)  # plain white: behind transparency, and around what does not fill a square

_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "AVIF", "TIFF", "BMP", "ICO")
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# How files begin. Readable kinds first: one that looks like these and still fails is damaged.
_READABLE = {
    "JPEG": rb"\xff\xd8",
    "PNG": rb"\x89PNG",
    "GIF": rb"GIF8",
    "WebP": rb"RIFF....WEBP",
    "AVIF": rb"....ftyp(avif|avis|(mif1|msf1)....(....)*?avif)",
    "TIFF": rb"II[*+]\x00|MM\x00[*+]",
    "BMP": rb"BM",
    "ICO": rb"\x00\x00\x01\x00",
}
_UNREADABLE = {
    rb"....ftyp(hei|hev|mif1|msf1)": ("a HEIC photo", "export it as JPEG or PNG"),
    rb"....ftyp|\x1aE\xdf\xa3|RIFF....AVI ": ("a video", "save one frame of it as JPEG or PNG"),
    rb"\W*<(!doctype )?html": ("a web page", "save the picture itself from that page"),
    rb"\W*<(.*<)?svg": ("an SVG drawing (lines, not pixels)", "export it as PNG"),
    rb"%PDF": ("a PDF document", "export the page as JPEG or PNG"),
    rb"%!PS": ("a PostScript document", "export it as PNG"),
    rb"8BPS": ("a Photoshop document", "export it as JPEG or PNG"),
    rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51": ("a JPEG 2000 picture", "export it as JPEG or PNG"),
    rb"\0\0\0\x0cJXL |\xff\x0a": ("a JPEG XL picture", "export it as JPEG or PNG"),
    rb"PK|Rar!|7z\xbc\xaf|\x1f\x8b": (
        "an archive or office document",
        "take the picture out of it",
    ),
    rb"[\t\n\r\x20-\x7e\x80-\xff]+\Z": ("text", "choose a picture, such as a JPEG or PNG"),
}

# Pillow refuses what has more than twice this number: here, more than MAX_PIXELS. It checks again
# where the true size comes after the header, as in an ICO or a GIF.
Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2
warnings.filterwarnings("ignore", module=r"PIL\.")  # what matters in a file is said by an error


class PictureError(ValueError):
    """A file is not a picture that can be used; the message is one sentence for the visitor."""


@dataclass(frozen=True)
class Square:
    """A chosen square of a picture; where it hangs over the edge, `GROUND` shows.

    Args:
        x: Centre, as a fraction of the picture's width, 0 to 1.
        y: Centre, as a fraction of the picture's height, 0 to 1.
        side: Length of a side, as a fraction of the picture's shorter side; 1 with the centre in
            the middle is the centre crop, more than 1 zooms out.

    Raises:
        ValueError: The centre lies outside the picture or the side is not a positive number.
    """

    x: float = 0.5
    y: float = 0.5
    side: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.x <= 1 and 0 <= self.y <= 1):
            raise ValueError(f"A square's centre must lie in 0 to 1, not ({self.x}, {self.y}).")
        if not (0 < self.side <= MAX_ZOOM_OUT):
            raise ValueError(
                f"A square's side must be above 0 and at most {MAX_ZOOM_OUT}, not {self.side}."
            )


class _Timed(io.BytesIO):
    """The file's bytes, handed out only while reading them has not taken too long.

    A few megabytes can keep a decoder busy for minutes: millions of empty sections, a JPEG of a
    hundred thousand scans. This thread's processor time counts, so a busy machine changes nothing.
    """

    def allow(self, seconds: float) -> None:
        self._deadline = time.thread_time() + seconds

    def read(self, size: int | None = -1, /) -> bytes:
        if time.thread_time() > self._deadline:
            raise PictureError(
                "This picture is built so that reading it takes far too long; "
                "open it in a picture editor and save it anew as JPEG or PNG."
            )
        return super().read(size)


def fingerprint(data: bytes) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal: its name in links and caches."""
    return hashlib.sha256(data).hexdigest()


def open_picture(data: bytes) -> Image.Image:
    """Turn an untrusted file into a clean, upright RGB picture of its first frame.

    Args:
        data: The file's bytes: JPEG, PNG, GIF, WebP, AVIF, TIFF, BMP or ICO, of any colour kind.

    Returns:
        A picture in mode RGB without metadata, in sRGB if the file carries a colour profile,
        turned as its EXIF orientation says, on `GROUND` where it is transparent.

    Raises:
        PictureError: The file is too big, has too many pixels, is damaged, or is no such picture.
    """
    if not data:
        raise PictureError("This file is empty (0 bytes); choose a picture, such as a JPEG or PNG.")
    if len(data) > MAX_BYTES:
        raise PictureError(
            f"This file is larger than the {MAX_BYTES // 1024**2} MB that can be opened here; "
            "make the picture smaller, or save it as JPEG."
        )
    Image.init()  # loads all decoders, before the clock starts
    try:
        file = _Timed(data)
        file.allow(seconds=1.0)
        if re.match(_READABLE["ICO"], data):  # Pillow decodes the PNG in an icon as it opens it
            for size in re.findall(rb"IHDR(....)(....)", data, re.DOTALL):
                _check_size(*(int.from_bytes(side, "big") for side in size))
        with Image.open(file, formats=_FORMATS) as image:  # reads the header, not the pixels
            _check_size(*image.size)
            if isinstance(image, TiffImagePlugin.TiffImageFile) and 322 in image.tag_v2:
                _check_size(image.tag_v2[322], image.tag_v2[323])  # a tile, larger than it all
            file.allow(seconds=1.0 + 40e-9 * image.width * image.height)
            # How much is read at once: little of a JPEG, which may hold a thousand scans in 64 KB,
            # so that the time is looked at often; else at least a row, however long it is.
            jpeg = image.format in ("JPEG", "MPO")
            image.decodermaxblock = 4096 if jpeg else max(65536, 8 * image.width)
            image.load()
            return _upright(image, _to_rgb(image))
    except PictureError:
        raise
    except Image.DecompressionBombError as error:
        raise PictureError(
            f"This picture has more than the {MAX_PIXELS // 10**6} megapixels that can be opened "
            "here; make it smaller and try again."
        ) from error
    except Exception as error:  # decoders raise anything at all over bytes that are not as they say
        raise PictureError(_what_is_wrong(data)) from error


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise Image.DecompressionBombError(f"{width} x {height} pixels")
    if max(width, height) > MAX_SIDE:
        raise PictureError(
            f"This picture is longer than the {MAX_SIDE:,} pixels that can be opened here; "
            "cut a shorter piece out of it."
        )


def _what_is_wrong(data: bytes) -> str:
    head = data[:4096]
    for kind, beginning in _READABLE.items():
        if re.match(beginning, head, re.DOTALL):
            return (
                f"This {kind} picture is cut off or damaged; copy or download it again, "
                "or open it in a picture editor and save it anew."
            )
    for beginning, (kind, remedy) in _UNREADABLE.items():
        if re.match(beginning, head, re.DOTALL | re.IGNORECASE):
            return f"This file is {kind}, which cannot be opened here; {remedy}."
    return (
        "This file is not a picture that can be opened here; "
        "choose a JPEG, PNG, GIF, WebP, AVIF, TIFF, BMP or ICO."
    )


def _to_rgb(image: Image.Image) -> Image.Image:
    alpha = None
    if image.mode.startswith("I") or image.mode == "F":
        image, alpha = _narrow_grey(image)
    elif image.has_transparency_data:
        transparency = image.info.get("transparency")
        if isinstance(transparency, tuple) and max(transparency) > 255:  # of a 16-bit PNG
            image.info["transparency"] = tuple(value >> 8 for value in transparency)
        alpha = image.convert("RGBA").getchannel("A")
    profile = image.info.get("icc_profile")
    if image.mode in ("1", "LA", "La"):
        image = image.convert("LA" if image.mode == "La" else "L").convert("L")
    elif image.mode not in ("L", "RGB", "CMYK", "LAB"):
        image = image.convert("RGB")
    rgb = _to_srgb(image, profile)
    if alpha is not None:
        ground = Image.new("RGB", rgb.size, GROUND)
        ground.paste(rgb, mask=alpha)
        rgb = ground
    return rgb


def _narrow_grey(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """Scale grey of more than 8 bits to 8 bits; return it with its transparency, if it has one."""
    tags = getattr(image, "tag_v2", {})
    values = np.asarray(image)
    see_through = image.info.get("transparency")
    alpha = None
    if see_through is not None:
        alpha = Image.fromarray(np.where(values == see_through, 0, 255).astype(np.uint8))
    if image.mode == "I" and tags.get(339, (1,)) == (1,):  # unsigned, which Pillow keeps as signed
        values = values.view(np.uint32)
    values = values.astype(np.float32)
    values[~np.isfinite(values)] = 0
    if image.mode.startswith("I;16"):
        white = 2.0 ** tags.get(258, (16,))[0] - 1
    else:  # these kinds do not say which value is white: it is the smallest usual one that fits
        peak = float(values.max())
        whites = (1, 255, 65535, peak if image.mode == "F" else 2**31, 2**32)
        white = next(white for white in whites if peak <= white)
    values *= 255 / white
    np.clip(values, 0, 255, out=values)
    if tags.get(262) == 0:
        np.subtract(255, values, out=values)
    values += 0.5
    return Image.fromarray(values.astype(np.uint8)), alpha


def _to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    try:
        if image.mode == "LAB":
            source = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
        elif profile:
            source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        else:
            return image.convert("RGB")
        srgb = ImageCms.createProfile("sRGB")
        return ImageCms.buildTransform(source, srgb, image.mode, "RGB").apply(image)
    except (ImageCms.PyCMSError, OSError):  # a broken profile, or one for another kind of colour
        return image.convert("RGB")


def _upright(image: Image.Image, rgb: Image.Image) -> Image.Image:
    """Turn `rgb` as the metadata of `image` says; unreadable metadata say nothing."""
    try:
        turn = _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # metadata are no reason to refuse a picture, however broken
        turn = None
    upright = rgb if turn is None else rgb.transpose(turn)
    upright.info.clear()
    return upright


def frame_picture(
    image: Image.Image, how: Literal["crop", "fit"] | Square = "crop", max_side: int = FRAME_SIDE
) -> Image.Image:
    """Cut a picture of any shape to a square of at most `max_side` pixels; it is never enlarged.

    Args:
        image: A picture in mode RGB.
        how: "crop": the largest square in the middle. "fit": all of the picture, the rest of the
            square plain `GROUND`. Or a chosen `Square`.
        max_side: Larger squares are shrunk to this side; give a model's image_size if larger.
    """
    shorter, longer = sorted(image.size)
    if isinstance(how, Square):
        square = how
    else:
        square = {"crop": Square(), "fit": Square(side=longer / shorter)}[how]
    side = max(1, round(square.side * shorter))
    out_side = min(side, max_side)
    source, target = [], []  # per axis: first and last pixel, in the picture and in the square
    for centre, length in ((square.x, image.width), (square.y, image.height)):
        start = round(centre * length - side / 2)
        start = min(max(start, 1 - side), length - 1)  # at least one row or column is seen
        first, last = max(start, 0), min(start + side, length)
        size = max(1, round((last - first) * out_side / side))
        source.append((first, last))
        target.append((min(round((first - start) * out_side / side), out_side - size), size))
    (left, right), (top, bottom) = source
    (x, width), (y, height) = target
    part = image.crop((left, top, right, bottom))
    if part.size != (width, height):
        part = part.resize((width, height), Image.Resampling.BILINEAR)
    framed = Image.new("RGB", (out_side, out_side), GROUND)
    framed.paste(part, (x, y))
    return framed


def resize_to_model(square: Image.Image, image_size: int, in_chans: int = 3) -> np.ndarray:
    """Resize a square to exactly what a model sees, antialiased (bilinear); grey is ITU-R 601 luma.

    Returns:
        uint8 (image_size, image_size, in_chans).

    Raises:
        ValueError: The model takes neither 1 nor 3 channels.
    """
    if in_chans not in (1, 3):
        raise ValueError(
            f"This model takes {in_chans} channels, and a picture has 3 (colour) or 1 (grey)."
        )
    small = square.resize((image_size, image_size), Image.Resampling.BILINEAR)
    pixels = np.asarray(small.convert("L" if in_chans == 1 else "RGB"))
    return pixels.reshape(image_size, image_size, in_chans)


def to_model_input(
    square: Image.Image,
    image_size: int,
    in_chans: int,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> np.ndarray:
    """Resize a square to the model's size and normalise it: (pixel / 255 - mean) / std per channel.

    Returns:
        float32 (in_chans, image_size, image_size).

    Raises:
        ValueError: The model takes neither 1 nor 3 channels.
    """
    pixels = resize_to_model(square, image_size, in_chans).astype(np.float32) / 255
    normalised = (pixels - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)
    return np.ascontiguousarray(normalised.transpose(2, 0, 1))
