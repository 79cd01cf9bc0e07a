"""Draw a small made-up data set: circles, squares and triangles, lighter than the background.

    python examples/own_images/shapes.py shapes

writes shapes/train/<label>/, for training, and shapes/board/<label>/, the same in dim light, as another camera might
see them: 120 and 40 images a class.
"""

import argparse
import random
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

LABELS = ("circle", "square", "triangle")
SIDE = 64


def draw(label, rng, light):
    """One image: a shape of any colour and place; ``light`` is the share of it that the camera gets."""

    def color(darkest, lightest):
        return tuple(round(light * rng.randint(darkest, lightest)) for _ in range(3))

    image = Image.new("RGB", (SIDE, SIDE), color(20, 90))
    pen, fill = ImageDraw.Draw(image), color(150, 255)
    radius = rng.randint(14, 22)
    x, y = (rng.randint(radius + 2, SIDE - radius - 3) for _ in range(2))
    turn = rng.uniform(-10, 10)
    if label == "circle":
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
    else:
        sides = 4 if label == "square" else 3
        pen.regular_polygon((x, y, radius), sides, rotation=turn, fill=fill)
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, 8 * light, (SIDE, SIDE, 1))
    return Image.fromarray((np.asarray(image) + noise).clip(0, 255).astype(np.uint8))


def main():
    parser = argparse.ArgumentParser(description="Draw circles, squares and triangles to train with.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    rng = random.Random(0)
    for part, count, light in (("train", 120, 1.0), ("board", 40, 0.4)):
        for label in LABELS:
            place = folder / part / label
            place.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                draw(label, rng, light).save(place / f"{label}{number:03}.png")


if __name__ == "__main__":
    main()
