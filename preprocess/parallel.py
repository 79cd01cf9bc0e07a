"""Decoding many images at once, in order, without holding more than a few dozen."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bnnrt.errors import ImageError, InputError
from bnnrt.preprocess.images import ImageSource
from bnnrt.preprocess.pipeline import ImagePipeline

__all__ = ["MAX_WAITING", "load_many"]

MAX_WAITING = 32
"""The most images that are decoded, or being decoded, and not yet consumed."""

SourceT = TypeVar("SourceT", bound=ImageSource)


def load_many(
    sources: Iterable[SourceT], pipeline: ImagePipeline, workers: int
) -> Generator[tuple[SourceT, NDArray[np.uint8] | ImageError], None, None]:
    """Load images with ``workers`` threads: pairs of a source and its pixels, in the order of ``sources``.

    The pixels are uint8 [pipeline.height, pipeline.width, pipeline.channels]. An image that cannot be read gives its
    :class:`~bnnrt.errors.ImageError` in their place, and the others are not affected. At most ``2 * workers`` images,
    and never more than :data:`MAX_WAITING`, are decoded ahead of the consumer; ``sources`` is read no further ahead,
    and in the consumer's thread. Closing the generator, or leaving it, stops the threads: work that has not begun is
    dropped, and what is being decoded is waited for.

    Raises :class:`~bnnrt.errors.InputError` if ``workers`` is below 1.
    """
    if workers < 1:
        raise InputError(f"cannot load images with {workers} workers", fix="give at least 1")
    return _load_many(sources, pipeline, min(workers, MAX_WAITING), min(2 * workers, MAX_WAITING))


def _load_many(
    sources: Iterable[SourceT], pipeline: ImagePipeline, workers: int, ahead: int
) -> Generator[tuple[SourceT, NDArray[np.uint8] | ImageError], None, None]:
    def load(source: SourceT) -> NDArray[np.uint8] | ImageError:
        try:
            return pipeline.load(source)
        except ImageError as error:
            # A fresh one: this one keeps the decoder's frames alive, with the stream and the pixels in them.
            return ImageError(error.what, error.where, error.fix)

    waiting: deque[tuple[SourceT, Future[NDArray[np.uint8] | ImageError]]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="bnnrt-images")
    try:
        for source in sources:
            waiting.append((source, pool.submit(load, source)))
            if len(waiting) == ahead:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
