"""Random chains of operators that move, pick, repeat and combine elements, in whatever layout they meet, exactly."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from .models import Net, check

MOST = 400  # elements of an image
INT64 = np.int64


class Builder:
    """A network that grows: a value's name and its shape without the batch."""

    def __init__(self, rng, shape):
        self.rng, self.shape = rng, shape
        self.net = Net(*shape, opset=19)
        self.values = [("x", shape)]

    def vector(self, *values):
        return self.net.constant(np.array(values, dtype=INT64), INT64)

    def numbers(self, *shape):
        return self.rng.integers(-2, 3, shape).astype(np.float32)

    def grow(self):
        name, shape = self.values[self.rng.integers(len(self.values))]
        axis = int(self.rng.integers(len(shape)))
        steps = [self.conv, self.transpose, self.split, self.slice, self.gather, self.reduce, self.pad, self.repeat]
        steps += [self.concat, self.constant, self.pair, self.merge, self.unary, self.rows]
        made = steps[self.rng.integers(len(steps))](name, shape, axis)
        self.values += [(n, s) for n, s in made or [] if np.prod(s) <= MOST and len(s) <= 4]

    def conv(self, name, shape, axis):
        if len(shape) in (2, 3):
            kernel = [int(self.rng.integers(1, min(3, size) + 1)) for size in shape[1:]]
            outputs = int(self.rng.integers(1, 5))
            pads = [1] * 2 * len(kernel)
            found = self.net.conv(name, self.numbers(outputs, shape[0], *kernel), pads=pads)
            return [(found, (outputs, *(size + 3 - k for size, k in zip(shape[1:], kernel, strict=True))))]
        return None

    def transpose(self, name, shape, axis):
        order = [int(i) for i in self.rng.permutation(len(shape))]
        return [(self.net.op("Transpose", name, perm=[0, *(i + 1 for i in order)]), tuple(shape[i] for i in order))]

    def resized(self, name, shape, axis, size):
        return [(name, (*shape[:axis], int(size), *shape[axis + 1 :]))]

    def split(self, name, shape, axis):
        if shape[axis] < 2:
            return None
        first = int(self.rng.integers(1, shape[axis]))
        self.net.op("Split", name, self.vector(first, shape[axis] - first), axis=axis + 1, outputs=2)
        one, two = self.net.nodes[-1].output
        return self.resized(one, shape, axis, first) + self.resized(two, shape, axis, shape[axis] - first)

    def slice(self, name, shape, axis):
        step = int(self.rng.choice([-2, -1, 1, 2]))
        bounds = (0, 2**31 - 1) if step > 0 else (-1, -(2**31))
        found = self.net.op("Slice", name, *(self.vector(v) for v in (*bounds, axis + 1, step)))
        return self.resized(found, shape, axis, -(-shape[axis] // abs(step)))

    def gather(self, name, shape, axis):
        indices = self.rng.integers(-shape[axis], shape[axis], self.rng.integers(1, 4))
        found = self.net.op("Gather", name, self.vector(*indices), axis=axis + 1)
        return self.resized(found, shape, axis, len(indices))

    def reduce(self, name, shape, axis):
        found = self.net.op("ReduceMax", name, self.vector(axis + 1))
        return self.resized(found, shape, axis, 1)

    def pad(self, name, shape, axis):
        before, after = (int(n) for n in self.rng.integers(0, min(2, shape[axis]), 2))
        pads = [0] * (2 * len(shape) + 2)
        pads[axis + 1], pads[axis + 2 + len(shape)] = before, after
        mode = str(self.rng.choice(["constant", "reflect", "edge", "wrap"]))
        found = self.net.op("Pad", name, self.vector(*pads), mode=mode)
        return self.resized(found, shape, axis, shape[axis] + before + after)

    def repeat(self, name, shape, axis):
        repeats = [1] * (len(shape) + 1)
        repeats[axis + 1] = 2
        return self.resized(self.net.op("Tile", name, self.vector(*repeats)), shape, axis, 2 * shape[axis])

    def concat(self, name, shape, axis):
        others = [n for n, s in self.values if s == shape]
        other = others[self.rng.integers(len(others))]
        return self.resized(self.net.op("Concat", name, other, axis=axis + 1), shape, axis, 2 * shape[axis])

    def constant(self, name, shape, axis):
        fewer = shape[int(self.rng.integers(len(shape))) :]
        sizes = [size if self.rng.random() < 0.5 else 1 for size in fewer]
        kind = str(self.rng.choice(["Add", "Sub", "Max", "Min"]))
        return [(self.net.op(kind, self.net.constant(self.numbers(*sizes)), name), shape)]

    def pair(self, name, shape, axis):
        fitting = [
            (n, s)
            for n, s in self.values
            if len(s) == len(shape) and all(a == b or 1 in (a, b) for a, b in zip(s, shape, strict=True))
        ]
        other, sizes = fitting[self.rng.integers(len(fitting))]
        kind = str(self.rng.choice(["Add", "Sub", "Max", "Min"]))
        return [(self.net.op(kind, name, other), tuple(max(a, b) for a, b in zip(shape, sizes, strict=True)))]

    def merge(self, name, shape, axis):
        if axis + 1 < len(shape):
            joined = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        elif shape[axis] % 2 == 0:
            joined = (*shape[:axis], 2, shape[axis] // 2)
        else:
            joined = (*shape[:axis], 1, *shape[axis:])
        return [(self.net.op("Reshape", name, self.vector(-1, *joined)), joined)]

    def unary(self, name, shape, axis):
        return [(self.net.op(str(self.rng.choice(["Relu", "Neg", "Abs"])), name), shape)]

    def rows(self, name, shape, axis):
        outputs = int(self.rng.integers(1, 4))
        return [(self.net.matmul(name, self.numbers(shape[-1], outputs)), (*shape[:-1], outputs))]


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=120, deadline=None)
def test_random_operators(seed):
    rng = np.random.default_rng(seed)
    shape = [(3, 4, 5), (4, 6), (1, 3, 4), (7,), (2, 1, 3)][rng.integers(5)]
    builder = Builder(rng, shape)
    for _ in range(rng.integers(1, 9)):
        builder.grow()
    name, last = builder.values[-1]
    axis = int(rng.integers(len(last)))
    ends = [builder.net.op("Identity", name), builder.net.op("ArgMax", name, axis=axis + 1, keepdims=int(seed % 2))]
    model = builder.net.model(*ends)
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    check(model, rng.integers(-3, 4, (2, *shape)).astype(np.float32))
