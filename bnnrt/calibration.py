"""Calibration: the input thresholds of a network, tuned on labelled images; its weights stay as they are.

It is the second stage of training in "Binarized Convolutional Neural Networks for Efficient Inference on GPUs", which
minimizes the loss with respect to the thresholds T alone (there by gradients). On 8-bit pixels T has 255 values a
plane, so it can be searched: by whole numbers, with the bits that the device computes, and no gradient.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from bnnrt.backends.base import Backend
from bnnrt.executor import Executor
from bnnrt.graph import Graph
from bnnrt.input_thresholds import InputThresholds
from bnnrt.plan import make_plan
from bnnrt.session import PIXELS, ends_in_softmax, scoring

__all__ = ["MIN_IMAGES", "Calibrated", "Score", "calibrate", "chosen_for_tuning", "search"]

Array = npt.NDArray[Any]
Levels = tuple[int, ...]

MIN_IMAGES = 10
"""Images that each class needs, so that 70 % and 30 % of them are whole numbers of images."""
_COARSE = 32
_STEPS = (16, 8, 4, 2, 1)
_BATCH = 32
# A score of 0 has a loss, too.
_LEAST_SCORE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Score:
    """How a network does on some images; ``loss`` is the mean cross-entropy."""

    images: int
    right: int
    loss: float


@dataclass(frozen=True)
class Calibrated:
    """Levels before and after, each with its score on the images that they were tuned on and on the others."""

    before: Levels
    after: Levels
    tuned: tuple[Score, Score]
    held_out: tuple[Score, Score]
    evaluations: int

    @property
    def worse(self) -> bool:
        """Whether fewer of the images held out are classified correctly than before."""
        return self.held_out[1].right < self.held_out[0].right


def chosen_for_tuning(names: Sequence[str], classes: Sequence[int], seed: int) -> list[bool]:
    """Which images to tune on: of each class 70 %, rounded to the nearest number.

    ``names`` tell the images apart. The choice depends on them and on the seed, by the order of their hashes, and not
    on the order in which they are given.
    """
    chosen = [False] * len(names)
    for label in set(classes):
        members = [i for i, c in enumerate(classes) if c == label]
        members.sort(key=lambda i: hashlib.sha256(f"{seed} {names[i]}".encode(errors="surrogateescape")).digest())
        for i in members[: (7 * len(members) + 5) // 10]:
            chosen[i] = True
    return chosen


def search(
    loss: Callable[[Levels, float], float], start: Levels, tried: Callable[[int, float], None] = lambda n, best: None
) -> tuple[Levels, int]:
    """The levels that a search from ``start`` ends at, and how often it asked for a loss.

    All levels together, and each by itself, are moved by every multiple of 32 within 1 to 255, which finds the way out
    of a region where the loss is flat, as where a plane is constant. Then a pattern search moves them up and down by
    16, by 8, and so on, each for as long as the loss falls. Of equal losses the smaller change counts. ``loss`` is
    given the levels and a limit, and may return infinity where the loss is above it.
    """
    best, best_loss = start, loss(start, inf)
    seen = {start}
    planes = range(len(start))
    moves = [frozenset({plane}) for plane in planes]
    if len(start) > 1:
        moves.insert(0, frozenset(planes))

    def change(levels: Levels) -> int:
        return sum(abs(a - b) for a, b in zip(levels, start, strict=True))

    def better(origin: Levels, moved: frozenset[int], by: int) -> bool:
        """Whether the levels that are ``by`` away from ``origin`` are the best now."""
        nonlocal best, best_loss
        levels = tuple(min(max(level + by, 1), 255) if i in moved else level for i, level in enumerate(origin))
        if levels in seen:
            return False
        seen.add(levels)
        value = loss(levels, best_loss)
        found = (value, change(levels)) < (best_loss, change(best))
        if found:
            best, best_loss = levels, value
        tried(len(seen), best_loss)
        return found

    for moved in moves:
        origin = best
        for by in range(-256, 257, _COARSE):
            better(origin, moved, by)
    for step in _STEPS:
        improved = True
        while improved:
            improved = False
            for moved in moves:
                for by in (step, -step):
                    improved |= better(best, moved, by)
    return best, len(seen)


class _Network:
    """A network from pixels on a device, with any levels."""

    def __init__(self, backend: Backend, thresholds: InputThresholds, pixels: Array, classes: Array) -> None:
        self._backend = backend
        self._thresholds = thresholds
        self._pixels = pixels
        self._classes = classes
        graph = self._graph(thresholds.levels)
        self._gives_scores = ends_in_softmax(graph)
        self._batch = graph.inputs[PIXELS].shape[0] or min(_BATCH, len(pixels))

    def _graph(self, levels: Levels) -> Graph:
        """From pixels to the scores of the classes."""
        graph = scoring(self._thresholds.pixel_graph(levels))
        assert graph is not None  # calibrate
        return graph

    def losses(self, levels: Levels, images: Array, limit: float = inf) -> tuple[float, int, int]:
        """Sum of the losses, correct answers and number of ``images``, given by index; ends early beyond the limit."""
        graph = self._graph(levels)
        executor = Executor(self._backend, make_plan(graph, self._backend.info, self._batch))
        whole = np.zeros((self._batch, *self._pixels.shape[1:]), dtype=np.uint8)
        total, right, done = 0.0, 0, 0
        try:
            for start in range(0, len(images), self._batch):
                part = images[start : start + self._batch]
                whole[: len(part)] = self._pixels[part]
                output = executor.run({PIXELS: whole})[graph.outputs[0]][: len(part)].reshape(len(part), -1)
                truth = self._classes[part]
                total += float(self._cross_entropy(output, truth).sum())
                right += int((output.argmax(axis=1) == truth).sum())
                done += len(part)
                if total > limit:
                    break
        finally:
            executor.close()
        return total, right, done

    def _cross_entropy(self, output: Array, truth: Array) -> Array:
        x = output.astype(np.float64)
        rows = np.arange(len(x))
        if self._gives_scores:
            scores: Array = -np.log(np.maximum(x[rows, truth], _LEAST_SCORE))
            return scores
        with np.errstate(invalid="ignore"):  # infinity less infinity
            x -= x.max(axis=1, keepdims=True)
            losses: Array = np.log(np.exp(x).sum(axis=1)) - x[rows, truth]
        return losses

    def score(self, levels: Levels, images: Array) -> Score:
        total, right, count = self.losses(levels, images)
        return Score(count, right, total / count)


def calibrate(
    backend: Backend,
    thresholds: InputThresholds,
    pixels: Array,
    classes: Sequence[int],
    tuning: Sequence[bool],
    tried: Callable[[int, float], None] = lambda n, best: None,
) -> Calibrated:
    """Search the levels with the lowest mean cross-entropy on the images that are for ``tuning``.

    The network has to give scores of classes (:func:`bnnrt.session.scoring`).

    Args:
        pixels: uint8 [N, H, W, C], as the bundle's pipeline makes them.
        classes: the index of each image's label.
        tuning: which images to tune on; there have to be such and others.
        tried: told the number of levels tried so far and the lowest mean loss.

    Raises BackendError where the device fails.
    """
    network = _Network(backend, thresholds, pixels, np.asarray(classes))
    tuned, held_out = np.flatnonzero(tuning), np.flatnonzero(~np.asarray(tuning, dtype=np.bool_))
    before = thresholds.levels

    def loss(levels: Levels, limit: float) -> float:
        total = network.losses(levels, tuned, limit)[0]
        return total if total <= limit else inf

    after, evaluations = search(loss, before, lambda n, best: tried(n, best / len(tuned)))
    scores = [(network.score(before, part), network.score(after, part)) for part in (tuned, held_out)]
    return Calibrated(before, after, scores[0], scores[1], evaluations)
