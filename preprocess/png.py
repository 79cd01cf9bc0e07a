"""Whether a PNG file holds all its rows. Pillow takes a stream that ends early for one whose last rows are black."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["has_all_rows"]

_SIGNATURE_BYTES = 8
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
# Adam7: first column and row, and steps between them, of each pass.
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
_PIECE = 1 << 16


def _chunks(stream: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Types and contents of the chunks, as far as they go."""
    stream.seek(_SIGNATURE_BYTES)
    while len(head := stream.read(8)) == 8:
        length, kind = struct.unpack(">I4s", head)
        yield kind, stream.read(length)
        stream.read(4)  # the checksum


def _filtered_bytes(header: bytes) -> int:
    """Bytes of all rows, each with the byte of its filter, before compression."""
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header[:13])
    bits = depth * _SAMPLES[colour]
    total = 0
    for left, top, step_x, step_y in _PASSES if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // step_x), -(-(height - top) // step_y)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * bits // 8))
    return total


def has_all_rows(stream: BinaryIO) -> bool:
    """Whether the image data of a PNG file, whose size has been found reasonable, is as long as its header says.

    Leaves the stream where it was. What is damaged in other ways is for the decoder to find.
    """
    place = stream.tell()
    missing = None
    inflate = zlib.decompressobj()
    try:
        for kind, content in _chunks(stream):
            if kind == b"IHDR":
                missing = _filtered_bytes(content)
            elif kind == b"IDAT" and missing is not None:
                while content and missing > 0:
                    missing -= len(inflate.decompress(content, _PIECE))
                    content = inflate.unconsumed_tail
            elif kind == b"IEND":
                break
            if missing is not None and missing <= 0:
                break
    except (KeyError, struct.error, zlib.error):
        return True
    finally:
        stream.seek(place)
    return missing is None or missing <= 0
