"""Training: several networks of a recipe at once, and several recipes in turn."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from data import augment, mixed
from network import THRESHOLD_WINDOW, Network, Teacher, Told

ALTERNATE_EPOCHS = 50  # of weights, between two stages of T (the paper's number)
ALTERNATE_STEPS = 20  # of Adam on T in a stage
EVALUATIONS = 60  # on the validation block, spread over a run


def start_thresholds(scheme, levels, images):
    """T before training: minus quantiles of the training pixels.

    The colours of a photo are much alike, so that each plane gets a brightness of its own: of three planes, red is
    compared with the darkest quarter, green with the median, blue with the brightest quarter.
    """
    if scheme == "threshold":
        planes = 3 * levels
        values = [np.quantile(images[::8, i % 3], (i + 1) / (planes + 1)) for i in range(planes)]
        return torch.tensor(-np.array(values) - 0.5, dtype=torch.float32)
    return torch.tensor([-np.median(images[::8]) - 0.5], dtype=torch.float32)


def build(recipe, classes, start):
    """An untrained network of a recipe."""
    if recipe.kind == "teacher":
        return Teacher(classes)
    return Network(
        recipe.architecture, recipe.input, start, classes,
        binary=recipe.kind == "binary", estimator=recipe.estimator, momentum=recipe.momentum,
        real=recipe.real,
    )  # fmt: skip


@torch.no_grad()
def predict(model, images, batch=512):
    """Logits of uint8 images, in evaluation mode and float32 (TF32 is exact on -1, +1 and on pixels)."""
    model.eval()
    dtype, model.dtype = model.dtype, torch.float32
    logits = torch.cat([model(part.float()) for part in images.split(batch)])
    model.dtype = dtype
    model.train()
    return logits


def call(model, pixels):
    """What is compiled: one function for all networks of a recipe."""
    return model(pixels)


class Run:
    """Networks of one recipe, one a seed, which train side by side.

    On a GPU each network has a stream and a step is one CUDA graph, so that their small kernels run at the same time.
    """

    def __init__(self, recipe, seeds, data, device, teachers=(), log=print):
        self.recipe, self.seeds, self.device, self.log = recipe, seeds, torch.device(device), log
        self.cuda = self.device.type == "cuda"
        self.images, self.classes = (torch.from_numpy(a).to(self.device) for a in data["train"])
        self.held_images, self.held_classes = (torch.from_numpy(a).to(self.device) for a in data["validation"])
        self.count = int(self.classes.max()) + 1
        self.targets = torch.eye(self.count, device=self.device)[self.classes]
        self.generator = torch.Generator(self.device).manual_seed(seeds[0])  # of orders and changes, for all seeds
        start = start_thresholds(recipe.input, recipe.architecture.levels, data["train"][0])
        self.models = []
        for seed in seeds:
            torch.manual_seed(seed)
            self.models.append(build(recipe, self.count, start).to(self.device).train())
        for model in self.models:
            if self.cuda:
                model.to(memory_format=torch.channels_last)
                model.dtype = torch.bfloat16
            if hasattr(model.input, "threshold"):
                model.input.threshold.requires_grad_(recipe.thresholds == "joint")
        self.averages = [copy.deepcopy(m).requires_grad_(False) for m in self.models] if recipe.average else []
        self.teachers = [Told(t).to(self.device) for t in teachers[: recipe.teachers]] if recipe.teach else []
        self.parameters = [p for model in self.models for p in model.parameters() if p.requires_grad]
        self.latent = [w.latent for model in self.models for w in model.weights() if w.binary]
        self.chosen = torch.zeros(len(seeds), recipe.batch, dtype=torch.long, device=self.device)
        self.losses = torch.zeros(len(seeds), device=self.device)
        self.optimizer = self._optimizer()
        self.best = [(-1.0, 0.0)] * len(seeds)
        self.states = [{} for _ in seeds]
        self.history = []
        self.forward = torch.compile(call, dynamic=False) if self.cuda else call
        if self.cuda:
            self.stream = torch.cuda.Stream()
            self.streams = [torch.cuda.Stream() for _ in self.models]
            torch.cuda.synchronize()

    def _optimizer(self):
        rate = torch.tensor(0.0, device=self.device)
        if self.recipe.optimizer == "rmsprop":
            return torch.optim.RMSprop(self.parameters, rate, capturable=self.cuda, foreach=self.cuda)
        decayed = [p for p in self.parameters if p.ndim in (2, 4)]  # weights; not BatchNorm, not T
        others = [p for p in self.parameters if p.ndim not in (2, 4)]
        groups = [{"params": decayed, "weight_decay": self.recipe.decay}, {"params": others, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, rate, capturable=self.cuda, fused=self.cuda)

    def _set_rate(self, rate):
        for group in self.optimizer.param_groups:
            group["lr"].fill_(rate)

    # --- one step -----------------------------------------------------------------------------------------------------

    def _backward(self, i, pixels, target, soft):
        """Gradients of one network."""
        recipe = self.recipe
        logits = self.forward(self.models[i], pixels)
        loss = -(target * F.log_softmax(logits, 1)).sum(1).mean()
        if soft is not None:
            told = -(soft * F.log_softmax(logits / recipe.temperature, 1)).sum(1).mean()
            loss = (1 - recipe.teach) * loss + recipe.teach * recipe.temperature**2 * told
        loss.backward()
        self.losses[i].add_(loss.detach())

    def _step(self, changes):
        recipe = self.recipe
        for p in self.parameters:
            p.grad = None
        flat = self.chosen.flatten()
        pixels = augment(self.images[flat].float(), changes, self.generator)
        target = self.targets[flat]
        if changes.mixup:
            pixels, share = mixed(pixels, changes.mixup, self.generator)
            target = share[:, None] * target + (1 - share[:, None]) * target.roll(1, 0)
        target = target * (1 - recipe.smoothing) + recipe.smoothing / self.count
        soft = [None] * len(self.models)
        if self.teachers:
            with torch.no_grad():
                told = [F.softmax(teacher(pixels) / recipe.temperature, 1) for teacher in self.teachers]
                soft = (sum(told) / len(told)).split(recipe.batch)
        batches = zip(pixels.split(recipe.batch), target.split(recipe.batch), soft, strict=True)
        for i, batch in enumerate(batches):
            if self.cuda:
                here = torch.cuda.current_stream()
                self.streams[i].wait_stream(here)
                with torch.cuda.stream(self.streams[i]):
                    self._backward(i, *batch)
            else:
                self._backward(i, *batch)
        if self.cuda:
            for stream in self.streams:
                here.wait_stream(stream)
        self.optimizer.step()
        with torch.no_grad():
            if self.latent:
                torch._foreach_clamp_min_(self.latent, -1.0)
                torch._foreach_clamp_max_(self.latent, 1.0)
            for average, model in zip(self.averages, self.models, strict=False):
                torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - recipe.average)
                for kept, new in zip(average.buffers(), model.buffers(), strict=True):
                    if kept.is_floating_point():
                        kept.lerp_(new, 1 - recipe.average)

    def _captured(self, changes):
        """The step as a CUDA graph: its hundreds of small kernels start without the CPU."""
        step = functools.partial(self._step, changes)
        if not self.cuda:
            return step
        self._set_rate(0.0)
        for _ in range(3):
            step()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        with torch.cuda.graph(graph, stream=self.stream):
            step()
        return graph.replay

    def _rate_at(self, step, steps):
        if self.recipe.schedule == "constant":
            return self.recipe.rate
        warm = 0.05 * steps
        if step < warm:
            return self.recipe.rate * (step + 1) / warm
        return self.recipe.rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))

    # --- the whole run ------------------------------------------------------------------------------------------------

    def train(self):
        """Train; keep each network's best epoch on the validation block."""
        for _ in interleaved([self]):
            pass

    def steps(self):
        """The same, a step at a time: yields the epoch in progress."""
        recipe = self.recipe
        steps = len(self.images) // recipe.batch
        every = max(1, recipe.epochs // EVALUATIONS)
        step = self._captured(recipe.augmentation)
        finish = self._captured(recipe.finish) if recipe.finish else step
        for epoch in range(recipe.epochs):
            self.losses.zero_()
            shuffled = torch.rand(len(self.seeds), len(self.images), device=self.device, generator=self.generator)
            orders = shuffled.argsort(1)
            if epoch >= (1 - recipe.finish_share) * recipe.epochs:
                step = finish
            for i in range(steps):
                self._set_rate(self._rate_at(epoch * steps + i, recipe.epochs * steps))
                self.chosen.copy_(orders[:, i * recipe.batch : (i + 1) * recipe.batch])
                step()
                yield epoch
            if recipe.thresholds == "alternating" and (epoch + 1) % ALTERNATE_EPOCHS == 0:
                self._tune_thresholds((epoch + 1) // ALTERNATE_EPOCHS % 2)
            if (epoch + 1) % every == 0 or epoch + 1 == recipe.epochs:
                self._validate(epoch + 1, steps)

    def _validate(self, epoch, steps):
        models = self.averages or self.models
        logits = [predict(model, self.held_images) for model in models]
        right = torch.stack([(each.argmax(1) == self.held_classes).float().mean() for each in logits])
        losses = torch.stack([F.cross_entropy(each, self.held_classes) for each in logits])
        accuracies, losses, trained = torch.stack([right, losses, self.losses / steps]).tolist()
        for i, model in enumerate(models):
            if (accuracies[i], -losses[i]) > self.best[i]:
                self.best[i] = (accuracies[i], -losses[i])
                self.states[i] = {name: value.clone() for name, value in model.state_dict().items()}
        self.history.append(
            {
                "epoch": epoch,
                "training loss": [round(v, 4) for v in trained],
                "validation accuracy": [round(v, 4) for v in accuracies],
                "validation loss": [round(v, 4) for v in losses],
            }
        )

    def _tune_thresholds(self, half):
        """The second stage of the paper: T on one half of the validation block; the other half accepts it or not."""
        for model in self.models:
            kept = model.input.threshold
            tuned = kept.detach().clone().requires_grad_()
            optimizer = torch.optim.Adam([tuned], 1 / THRESHOLD_WINDOW)
            dtype, model.dtype = model.dtype, torch.float32
            model.eval()

            def loss(threshold, part, model=model):
                images, classes = self.held_images[part::2].float(), self.held_classes[part::2]
                return F.cross_entropy(
                    torch.func.functional_call(model, {"input.threshold": threshold}, images), classes
                )

            for _ in range(ALTERNATE_STEPS):
                (tuned.grad,) = torch.autograd.grad(loss(tuned, half), tuned)
                optimizer.step()
            with torch.no_grad():
                if loss(tuned, 1 - half) < loss(kept, 1 - half):
                    kept.copy_(tuned)
            model.dtype = dtype
            model.train()

    def save(self, folder, name, labels):
        """Write each network's best epoch (NAME-SEED.npz) and the history of all (NAME.json)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for seed, state in zip(self.seeds, self.states, strict=True):
            save_state(folder / f"{name}-{seed}.npz", state, binary=bool(self.latent))
        summary = {
            "recipe": asdict(self.recipe),
            "labels": labels,
            "seeds": self.seeds,
            "best validation accuracy": [round(accuracy, 4) for accuracy, _ in self.best],
            "history": self.history,
        }
        (folder / f"{name}.json").write_text(json.dumps(summary))


def interleaved(runs):
    """Train several runs in turn, a step each, so that a GPU always has work; yields each run that is done."""
    active = [(run, run.steps()) for run in runs]
    while active:
        for pair in list(active):
            run, steps = pair
            with torch.cuda.stream(run.stream) if run.cuda else contextlib.nullcontext():
                if next(steps, None) is None:
                    active.remove(pair)
                    yield run


def save_state(path, state, *, binary):
    """Write a network's parameters: binary weights as int8 signs, the rest as it is."""
    arrays = {}
    for name, value in state.items():
        array = value.cpu().contiguous().numpy()
        arrays[name] = np.where(array >= 0, 1, -1).astype(np.int8) if binary and name.endswith(".latent") else array
    np.savez_compressed(path, **arrays)


def load_state(path, recipe, classes):
    """Read a network that ``save_state`` wrote."""
    with np.load(path) as arrays:
        state = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    start = state.get("input.threshold", torch.zeros(1))
    model = build(recipe, classes, start)
    model.load_state_dict({name: v.float() if v.dtype == torch.int8 else v for name, v in state.items()})
    return model.eval()
