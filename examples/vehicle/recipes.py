"""How each network is trained: what the tables of docs/accuracy.md are made of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from data import Augmentation
from network import ARCHITECTURES, PARTS, Architecture

TEACHER_SEEDS = (0, 1)


@dataclass(frozen=True)
class Recipe:
    """One way to train one network."""

    input: str = "threshold"  # none, threshold, threshold-gray, lbp
    architecture: Architecture = ARCHITECTURES["paper"]
    kind: str = "binary"  # binary, float (the twin), teacher
    real: tuple[str, ...] = ()  # parts of a binary network that stay in full precision, to see what they cost
    epochs: int = 100
    batch: int = 64
    optimizer: str = "adam"  # adam, rmsprop
    rate: float = 3e-3  # peak of the learning rate
    schedule: str = "cosine"  # cosine (5 % warm-up, then to 0), constant
    decay: float = 0.0  # decoupled weight decay, for networks in full precision
    average: float = 0.0  # of weights (binary ones: of the latent), BatchNorm and T over time; 0: none
    estimator: str = "polynomial"  # gradient of the sign: identity, clip, polynomial
    momentum: float = 0.1  # of BatchNorm: the newest batch's share of the running mean and variance
    smoothing: float = 0.0  # of the labels
    thresholds: str = "joint"  # T is learned: joint (with the weights), never, alternating (the paper's two stages)
    teach: float = 0.0  # share of the loss that comes from the teachers
    teachers: int = 1
    temperature: float = 2.0
    augmentation: Augmentation = field(default_factory=Augmentation)
    finish: Augmentation | None = None  # instead, for the last epochs
    finish_share: float = 0.15  # of all epochs


MILD = Augmentation(shift=6, zoom=0.1, brightness=16)
STRONG = Augmentation(shift=8, zoom=0.15, stretch=0.1, turn=5, brightness=30, contrast=0.25, color=10)
GEOMETRY = Augmentation(
    shift=8, zoom=0.12, stretch=0.08, turn=4, noise=2
)  # patterns do not see brightness and contrast
HARD = replace(STRONG, cutout=24, mixup=0.5)
GAUSSIAN = Augmentation(blur=0.5)  # and flips, which are always there

CUT = replace(STRONG, cutout=20)

# BatchNorm's slow averages: a sign answers a small error of the mean with the wrong bit.
TAUGHT = Recipe(teach=0.9, momentum=0.02, augmentation=CUT)
# Noise, because near a threshold the least of it changes a bit; at the end, photos much as they are in use.
NOISY = replace(TAUGHT, average=0.998, augmentation=replace(CUT, noise=8), epochs=430)
FINISHED = replace(
    NOISY, augmentation=replace(CUT, noise=6), finish=Augmentation(shift=4, zoom=0.08, brightness=12, noise=2)
)
# Four times the batch, and rate, averages and momentum to match: as good an epoch, in 0.7 of the time. For comparisons
# 600 epochs are enough.
BATCHED = replace(FINISHED, batch=256, rate=6e-3, average=0.992, momentum=0.08, finish_share=0.3, epochs=600)
LONG = Recipe(teach=0.9, augmentation=STRONG, epochs=300)
SHORT = Recipe(teach=0.9, epochs=40, batch=128, rate=4e-3, estimator="clip", teachers=2, augmentation=STRONG)
PAPER = Recipe(epochs=150, rate=1e-3, schedule="constant", estimator="identity", augmentation=GAUSSIAN)

RECIPES = {
    "teacher": Recipe(
        kind="teacher", input="none", epochs=100, rate=2e-3, decay=0.05, average=0.998, smoothing=0.1,
        augmentation=HARD,
    ),
    # The twin in full precision, and what is shipped.
    "float": Recipe(
        kind="float", input="none", epochs=266, rate=2e-3, decay=0.05, average=0.998, teach=0.9, augmentation=CUT
    ),
    "float-hard": Recipe(
        kind="float", input="none", epochs=254, rate=2e-3, decay=0.05, average=0.998, teach=0.9, augmentation=HARD
    ),
    "small": replace(FINISHED, architecture=ARCHITECTURES["small"], epochs=431),
    "threshold": replace(BATCHED, epochs=7868),
    "lbp": replace(TAUGHT, input="lbp", epochs=909, augmentation=replace(GEOMETRY, cutout=20)),
    "none": replace(TAUGHT, input="none", epochs=601),
    "threshold-gray": replace(TAUGHT, input="threshold-gray", epochs=481),
    # Where the loss comes from: full precision behind thresholds, and what weights or activations cost alone.
    "threshold-real": replace(NOISY, real=PARTS, rate=2e-3),
    "threshold-real-weights": replace(NOISY, real=("conv weights", "dense weights"), rate=2e-3),
    "threshold-real-activations": replace(NOISY, real=("conv activations", "dense activations")),
    "threshold-real-convs": replace(BATCHED, real=("conv weights", "conv activations"), rate=4e-3),
    "threshold-real-dense": replace(BATCHED, real=("dense weights", "dense activations"), rate=4e-3),
    "threshold-real-dense-weights": replace(BATCHED, real=("dense weights",), rate=4e-3),
    "threshold-real-dense-activations": replace(BATCHED, real=("dense activations",)),
    "small-one-level": replace(NOISY, architecture=replace(ARCHITECTURES["small"], levels=1)),
    # The paper's recipe.
    "paper-float": replace(PAPER, kind="float", input="none", optimizer="rmsprop"),
    "paper-none": replace(PAPER, input="none"),
    "paper-threshold": PAPER,
    "paper-threshold-fixed": replace(PAPER, thresholds="never"),
    "paper-threshold-alternating": replace(PAPER, thresholds="alternating"),
    "paper-threshold-gray": replace(PAPER, input="threshold-gray"),
    "paper-lbp": replace(PAPER, input="lbp"),
    # One choice changed at a time, in longer runs, and in short ones.
    "long": LONG,
    "long-mild": replace(LONG, augmentation=MILD),
    "long-mixup": replace(LONG, augmentation=replace(STRONG, mixup=0.5)),
    "short": SHORT,
    "short-polynomial": replace(SHORT, estimator="polynomial"),
    "short-mild": replace(SHORT, augmentation=MILD, epochs=35),
    "short-untaught": replace(SHORT, teach=0.0, smoothing=0.1),
    "short-fixed": replace(SHORT, thresholds="never"),
    "short-constant": replace(SHORT, schedule="constant", rate=1e-3, epochs=35),
    "short-identity": replace(SHORT, estimator="identity", epochs=35),
}  # fmt: skip
