"""Write the model cards of the shipped models, models/*.md, and the pictures of what they get wrong.

    python cards.py

All of it comes from models/results.json, which ship.py writes, and from recipes.py. The pictures show photos/ alone.
"""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from evaluate import interval
from PIL import Image, ImageDraw
from recipes import RECIPES

HERE = Path(__file__).parent
IMAGES = HERE.parents[1] / "docs" / "images"
TILE, LINE, COLUMNS = 96, 26, 6

INPUTS = {
    "none": "the image as numbers, (X - 128) / 128; the weights of the first layer are -1 and +1 like all others",
    "threshold": "bit = (X + T > 0) for each colour X, with learned T",
    "threshold-gray": "bit = (gray + T > 0), with one learned T",
    "lbp": "local binary patterns of the gray image, three planes",
}
TAKEN = {"threshold-gray": "1 plane of -1 and +1", "lbp": "3 planes of -1 and +1"}


def confusion_table(labels, matrix):
    """A confusion matrix in Markdown."""
    rows = ["| true \\ answered | " + " | ".join(labels) + " |", "| --- |" + " ---: |" * len(labels)]
    rows += [f"| {label} | " + " | ".join(map(str, row)) + " |" for label, row in zip(labels, matrix, strict=True)]
    return "\n".join(rows)


def failures(result, path):
    """A sheet of the photos in photos/ that a model gets wrong; returns how many there are."""
    answers = dict(entry.split() for entry in result["wrong"])
    photos = [photo for photo in sorted((HERE / "photos").glob("*/*.jpg")) if photo.name in answers]
    rows = max(1, -(-len(photos) // COLUMNS))
    sheet = Image.new("RGB", (COLUMNS * TILE, rows * (TILE + LINE)), "white")
    draw = ImageDraw.Draw(sheet)
    for i, photo in enumerate(photos):
        left, top = i % COLUMNS * TILE, i // COLUMNS * (TILE + LINE)
        with Image.open(photo) as image:
            small = image.convert("RGB").resize((TILE - 2, TILE - 2), Image.Resampling.BILINEAR)
        sheet.paste(small, (left, top))
        draw.multiline_text(
            (left + 2, top + TILE - 1), f"{photo.stem}:\n{answers[photo.name]}", fill="black", spacing=1
        )
    sheet.quantize(64).save(path, optimize=True)
    return len(photos)


def layers(architecture):
    """An architecture in words."""
    convs = [
        f"conv {c.kernel}x{c.kernel} to {c.channels}"
        + (f" with stride {c.stride}" if c.stride > 1 else "")
        + (f", max pooling {c.pool}x{c.pool}" if c.pool > 1 else "")
        for c in architecture.convs
    ]
    return "; ".join([*convs, f"dense to {', '.join(map(str, architecture.dense))} and 6"])


def paragraphs(text):
    """The text with its paragraphs filled to 118 columns; tables, code, lists and pictures stay as they are."""
    parts = text.strip().split("\n\n")
    kept = ("|", "    ", "#", "![")
    return "\n\n".join(p if p.startswith(kept) else textwrap.fill(" ".join(p.split()), 118) for p in parts) + "\n"


def card(model, result):
    """The text of one card."""
    recipe, labels = RECIPES[result["recipe"]], result["labels"]
    picture = f"{Path(model).stem}-failures.png".replace("_", "-")
    count = failures(result, IMAGES / picture)
    total = sum(map(sum, result["test_confusion"]))
    right = sum(row[i] for i, row in enumerate(result["test_confusion"]))
    shown = sum(map(sum, result["photos_confusion"]))
    low, high = interval(right, total)
    told = result["convert"]
    options = f" --input-binarization {told['input_binarization']}" if told else ""
    if "thresholds" in told:
        options += " --thresholds=" + ",".join(map(repr, told["thresholds"]))
    levels = recipe.architecture.levels
    each = f"; {levels} thresholds a colour" if levels > 1 else ""
    planes = 1 if recipe.input == "threshold-gray" else 3
    return paragraphs(f"""
# {model}

A binary network that sorts small roadside photos into {", ".join(labels)}.

**Network.** Input: {INPUTS[recipe.input]}{each}. Then {layers(recipe.architecture)}. All weights and all activations
between layers are -1 or +1; images are padded with {"gray (0)" if recipe.input == "none" else "-1"}, later layers
with -1; BatchNorm stands before every sign; the logits have a fixed scale, a power of two.

**File.** `input`: float32 [N, {planes}, 96, 96], {TAKEN.get(recipe.input, "RGB in pixel units 0 to 255")}. `logits`:
float32 [N, {len(labels)}]. Weights are int8. The labels are in the metadata property `labels`. Photos are resized to
96x96 with Pillow's bilinear filter, whatever their shape.

    bnnrt convert {model} -o vehicle.bnn{options}

**Data.** "A Dataset Containing Tiny and Low Quality Images for Vehicle Classification", Zenodo record 6634554,
[CC BY 4.0](https://creativecommons.org/licenses/by/4.0/): 720 photos of each class. The numbering follows the
recording, so the split is by number: 1 to 576 train, 577 to 640 validation, 641 to 720 test.

**Licence.** The model's is that of this repository; the photos keep theirs ([ATTRIBUTION](../photos/ATTRIBUTION.md)).

**Recipe.** `{result["recipe"]}` of [recipes.py](../recipes.py), {result["epochs"]} epochs, seed {result["seed"]}: the
best of five on the validation block ({100 * result["validation_accuracy"]:.1f} %, which is therefore too high).
[docs/accuracy.md](../../../docs/accuracy.md) has all five, and what each choice is worth.

**Accuracy** on the test block: {right} of {total} right, **{100 * right / total:.2f} %**. With so many independent
photos the 95 % interval is {100 * low:.1f} to {100 * high:.1f} %; neighbours can show the same vehicle, so it is
wider. ONNX Runtime and `bnnrt eval` on every backend answer alike:

{confusion_table(labels, result["test_confusion"])}

**Failures.** All {count} of the {shown} photos in [photos/](../photos) that it gets wrong, with its answer:

![Photos that the network gets wrong](../../../docs/images/{picture})

**Not for.** Anything but photos from this one roadside viewpoint: expect less from any other camera, at night, in
rain. It knows no buses, no pedestrians, no empty road: it always picks one of its six classes. Some labels that it
learned from are wrong (three-wheelers under bike, vans under car). Never let it decide about people alone: no fines,
no access, no safety functions.
""")


def main():
    results = json.loads((HERE / "models" / "results.json").read_text())
    for model, result in results.items():
        (HERE / "models" / model).with_suffix(".md").write_text(card(model, result), encoding="utf-8")
        print(model)


if __name__ == "__main__":
    main()
