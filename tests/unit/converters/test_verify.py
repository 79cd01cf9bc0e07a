"""Verification: what is equal is found equal, and what is not is found and named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from bnnrt import bundle as bundles
from bnnrt import variants
from bnnrt.backends import numpy_kernels
from bnnrt.bundle import Bundle
from bnnrt.converters.convert import Options, convert
from bnnrt.converters.verify import backends
from bnnrt.converters.verify.inputs import Case
from bnnrt.converters.verify.run import Wanted, _free_batch, verify
from bnnrt.errors import BackendError, InputError
from bnnrt.graph import Constant, Graph, Node
from bnnrt.ops import Arithmetic, ArithmeticKind, BinaryConv, BinaryDense, Domain, Relu, TensorType, Threshold
from bnnrt.preprocess.schemes import InputBinarization, Scheme
from bnnrt.variants import host

from .models import FIXTURES, Net, norm, signs

RNG = np.random.default_rng(31)
NUMPY = Wanted(backends=("numpy",), runs=8)


def saved(tmp_path, model):
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def verified(tmp_path, model, wanted=NUMPY, change=lambda bundle: bundle):
    path = saved(tmp_path, model)
    return verify(change(convert(path)[0]), "model.bnn", path, wanted)


def with_constant(bundle: Bundle, name: str, data) -> Bundle:
    """The bundle with other numbers in a constant of the model's graph."""

    def changed(graph: Graph) -> Graph:
        constants = {**graph.constants}
        constants[name] = Constant(constants[name].type, data)
        return Graph(graph.inputs, graph.nodes, graph.outputs, constants)

    return replace(bundle, model=changed(bundle.model))


def node_of(graph: Graph, op: type, index: int = 0):
    return [node for node in graph.nodes if isinstance(node.op, op)][index]


def binary_network(zero="ge"):
    net = Net(3, 6, 6)
    x = net.conv(net.sign(net.op("Sub", "x", net.constant(100.5))), signs(RNG, 8, 3, 3, 3), pads=[1] * 4)
    x = net.batch_norm(x, *norm(RNG, 8))
    x = net.sign(x) if zero == "ge" else net.op("Sign", x)
    x = net.conv(x, signs(RNG, 6, 8, 3, 3))
    return net.model(net.matmul(net.op("Flatten", net.sign(x)), signs(RNG, 96, 4)))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.onnx")), ids=lambda path: path.stem)
def test_every_fixture_is_equal_on_numpy_and_opencl(path):
    with np.load(FIXTURES / f"{path.stem.rsplit('_', 1)[0]}_golden.npz") as golden:
        given = [Case("given", f"golden {i}", {"input": x}) for i, x in enumerate(golden["x"][:4])]
    result = verify(convert(path)[0], "m.bnn", path, Wanted(("numpy", "opencl"), runs=4, given=given))
    assert result.equal, result.as_json()
    assert [row.backend.split(":")[0] for row in result.backends] == ["numpy", "opencl"]
    assert all(row.tensors > 4 for row in result.backends)
    assert result.source.same_file
    assert result.source.same_graph
    assert result.source.notes == ()
    onnx = result.onnxruntime
    assert onnx.tensors > 10
    assert onnx.images == result.inputs.total()
    assert result.inputs["given"] == 4
    (output,) = onnx.outputs.values()
    assert output.images + output.left_out == onnx.images
    assert len(onnx.signs) == (3 if path.stem.startswith("real_input") else 4)
    assert all(sign.elements for sign in onnx.signs.values())
    if not path.stem.startswith("real_input"):  # its first layer adds real numbers
        assert onnx.rounded == 0
    if path.stem != "real_input_dynamo":  # its last layer does
        assert (output.differing, output.bound) == (0, 0)


def test_a_fused_batch_norm_is_compared_within_its_bound():
    path = FIXTURES / "real_input_dynamo.onnx"
    onnx = verify(convert(path)[0], "m.bnn", path, NUMPY).onnxruntime
    assert onnx.equal
    assert onnx.rounded > 0
    (output,) = onnx.outputs.values()
    assert 0 < output.largest_difference <= output.bound < 1e-3


@pytest.mark.parametrize("levels", [(1.0, 0.0), (0.0, 1.0), (-1.0, 1.0), (0.75, 0.25)])
def test_bits_that_stand_for_other_numbers(tmp_path, levels):
    """A stem of real numbers: its signs are sections of their own, and bits near the threshold may flip."""

    def step(x):
        return net.op("Where", net.op("Greater", x, net.constant(0.25)), *(net.constant(v) for v in levels))

    net = Net(3, 6, 6)
    x = step(net.conv("x", RNG.normal(size=(8, 3, 3, 3))))
    x = step(net.conv(x, signs(RNG, 6, 8, 3, 3), pads=[1] * 4))
    model = net.model(net.matmul(net.op("Flatten", x), signs(RNG, 96, 4)))
    result = verified(tmp_path, model)
    assert result.equal, result.as_json()
    first, second = result.onnxruntime.signs.values()
    assert first.elements == 128 * result.onnxruntime.images
    assert second.elements >= 96 * result.onnxruntime.images  # flattened, they are another tensor

    def moved(bundle):
        threshold = node_of(bundle.model, Threshold).inputs[1]
        return with_constant(bundle, threshold, bundle.model.constants[threshold].data + 1)

    if levels[0] * levels[1] <= 0:  # others are no bits to a layer, and have no threshold
        changed = verified(tmp_path, model, change=moved).onnxruntime
        assert not changed.equal
        assert changed.first_difference.onnx == "where5_out"


def test_zeros_at_an_onnx_sign_are_counted(tmp_path):
    net = Net(8)
    x = net.op("Sign", net.matmul(net.op("Sign", "x"), signs(RNG, 8, 7)))
    model = net.model(net.matmul(x, signs(RNG, 7, 3)))
    result = verified(tmp_path, model, Wanted(("numpy",), runs=40))
    assert result.equal
    first, second = result.onnxruntime.signs.values()
    assert (first.node, second.node) == ("sign0", "sign2")
    assert first.zeros >= 16  # all of two inputs of zeros
    assert second.zeros > 16
    assert 2 < result.onnxruntime.images_with_zeros <= result.onnxruntime.images
    (output,) = result.onnxruntime.outputs.values()
    assert (output.left_out, output.differing) == (0, 0)


def test_zeros_at_a_negated_sign_inside_a_function_of_the_model(tmp_path):
    net = Net(8)
    net.domains = ["mine"]
    x = net.matmul(net.op("Sign", "x"), signs(RNG, 8, 6))
    x = net.op("Flip", x, domain="mine")
    model = net.model(net.matmul(x, signs(RNG, 6, 3)))
    body = [
        helper.make_node("Sign", ["a"], ["s"]),
        helper.make_node("Constant", [], ["c"], value_float=-1.0),
        helper.make_node("Mul", ["s", "c"], ["b"]),
    ]
    model.functions.append(helper.make_function("mine", "Flip", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    result = verified(tmp_path, model, Wanted(("numpy",), runs=40))
    assert result.equal
    assert sum(sign.zeros for sign in result.onnxruntime.signs.values()) > 16


def rounded_network(outputs=12):
    """Sums of +-0.1, which ONNX Runtime rounds, in front of a sign; an even number of them can be exactly 0."""
    net = Net(30)
    x = net.matmul(net.sign("x"), signs(RNG, 30, outputs) * np.float32(0.1))
    return net.model(net.matmul(net.sign(x), signs(RNG, outputs, 3)))


def test_a_sign_next_to_its_threshold_is_counted_and_no_failure(tmp_path):
    result = verified(tmp_path, rounded_network(), Wanted(("numpy",), runs=60))
    assert result.equal
    _, sign = result.onnxruntime.signs.values()
    assert sign.near >= sign.flipped > 0
    assert sign.near < sign.elements / 2
    assert 0 < result.onnxruntime.images_with_flips < result.onnxruntime.images
    (output,) = result.onnxruntime.outputs.values()
    assert output.left_out == result.onnxruntime.images_with_flips
    assert (output.differing, output.bound) == (0, 0)  # the last layer is exact


def test_scales_that_are_exact_leave_no_room(tmp_path):
    net = Net(30)
    x = net.matmul(net.sign("x"), signs(RNG, 30, 12) * np.float32(0.375))  # 3 * 2**-3: sums of 30 are exact
    x = net.op("Add", x, net.constant(0.125))
    result = verified(tmp_path, net.model(net.matmul(net.sign(x), signs(RNG, 12, 3))))
    assert result.equal
    assert all(sign.near == 0 for sign in result.onnxruntime.signs.values())
    assert next(iter(result.onnxruntime.outputs.values())).bound == 0


@pytest.mark.parametrize("seed", range(6))
def test_real_valued_layers_stay_within_their_bounds(tmp_path, seed):
    rng = np.random.default_rng(seed)
    net = Net(2, 7, 8)
    x = net.conv("x", rng.normal(size=(6, 1, 3, 3)), rng.normal(size=6), group=2, pads=[1, 0, 1, 2], strides=[1, 2])
    x = net.batch_norm(x, *norm(rng, 6))
    x = net.op("MaxPool", x, kernel_shape=[2, 2]) if seed % 2 else x
    y = net.op("Div", x, net.constant(rng.uniform(0.1, 3, (6, 1, 1))))
    x = net.sign(net.op("Add", x, y))
    x = net.conv(x, signs(rng, 5, 6, 2, 2) * rng.uniform(0.1, 1, (5, 1, 1, 1)), rng.normal(size=5))
    x = net.op("Flatten", net.op("Mul", x, x))
    count = 50 if seed % 2 else 90
    gemm = net.op("Gemm", x, net.constant(rng.normal(size=(count, 4))), net.constant(rng.normal(size=4)), alpha=0.7)
    result = verified(tmp_path, net.model(gemm), Wanted(("numpy",), runs=24))
    assert result.equal, result.as_json()
    assert result.onnxruntime.rounded > 0
    (output,) = result.onnxruntime.outputs.values()
    assert output.bound > 0


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_flipped_weight_bit_is_found_and_its_layer_named(tmp_path, layer):
    model = binary_network()

    def flip(bundle):
        node = node_of(bundle.model, *((BinaryConv, layer) if layer < 2 else (BinaryDense, 0)))
        data = bundle.model.constants[node.inputs[1]].data.copy()
        data[1, 0] ^= 1 << 4
        changed = with_constant(bundle, node.inputs[1], data)
        bundles.write(changed, tmp_path / "m.bnn")
        return bundles.read(tmp_path / "m.bnn")

    result = verified(tmp_path, model, change=flip)
    assert not result.equal
    assert all(row.equal for row in result.backends)
    found = result.onnxruntime.first_difference
    bundle = flip(convert(tmp_path / "model.onnx")[0])
    node = node_of(bundle.model, *((BinaryConv, layer) if layer < 2 else (BinaryDense, 0)))
    assert found.node == node.name
    assert found.index[0] == 1  # the channel
    assert found.wanted != found.found
    assert result.source.same_file
    assert not result.source.same_graph
    assert f"the constant {node.inputs[1]} is not" in result.source.notes[0]


def residual_network(blocks=3):
    """A real stem, and blocks of BatchNorm, sign, binary convolution and BatchNorm with the input added."""
    rng = np.random.default_rng(5)
    net = Net(2, 6, 6)
    x = net.conv("x", rng.normal(size=(8, 2, 3, 3)), pads=[1] * 4)
    for _ in range(blocks):
        y = net.conv(net.sign(net.batch_norm(x, *norm(rng, 8))), signs(rng, 8, 8, 3, 3) * 0.1, pads=[1] * 4)
        x = net.op("Add", net.batch_norm(y, *norm(rng, 8)), x)
    return net.model(net.matmul(net.op("Flatten", x), rng.normal(size=(288, 4))))


@pytest.mark.parametrize("block", [0, 1, 2])
def test_the_last_bit_of_a_number_beside_a_residual_addition_is_found(tmp_path, block):
    """Each section starts from ONNX Runtime's numbers: what was rounded before it leaves no room."""
    norm_behind = f"batchnormalization{6 * block + 5}"

    def change(bundle):
        (node,) = (node for node in bundle.model.nodes if node.name == f"{norm_behind}/offset")
        data = bundle.model.constants[node.inputs[1]].data.copy()
        data[3] = np.nextafter(data[3], np.float32(np.inf))
        return with_constant(bundle, node.inputs[1], data)

    same = verified(tmp_path, residual_network())
    assert same.equal
    assert same.onnxruntime.rounded > 0
    assert all(sign.near == 0 for sign in same.onnxruntime.signs.values())
    (output,) = same.onnxruntime.outputs.values()
    assert 0 < output.largest_difference <= output.bound
    found = verified(tmp_path, residual_network(), change=change).onnxruntime.first_difference
    assert found.node == f"{norm_behind}/offset"
    assert found.index[0] == 3


def test_a_changed_threshold_is_found_behind_the_layer(tmp_path):
    def change(bundle):
        node = node_of(bundle.model, Threshold)
        data = bundle.model.constants[node.inputs[1]].data.copy()
        data[np.argmin(np.abs(data))] += 4
        return with_constant(bundle, node.inputs[1], data)

    result = verified(tmp_path, binary_network(), change=change)
    found = result.onnxruntime.first_difference
    assert not result.equal
    assert {found.wanted, found.found} == {-1.0, 1.0}
    assert found.onnx.startswith("where")


def test_a_wrong_kernel_is_found_and_named(tmp_path, monkeypatch):
    def wrong(op, channels, x, weights, out):
        right(op, channels, x, weights, out)
        if out.shape[-1] == 6:
            out[..., 2] += 2

    right = numpy_kernels.binary_conv
    rows = tuple(
        host._row(BinaryConv, host._packed(wrong)) if row.ops == (BinaryConv,) else row for row in host.HOST_VARIANTS
    )
    others = tuple(v for v in variants.VARIANTS if v not in host.HOST_VARIANTS)
    monkeypatch.setattr(variants, "VARIANTS", (*others, *rows))
    result = verified(tmp_path, binary_network(), Wanted(("numpy", "opencl"), runs=2))
    numpy, opencl = result.backends
    assert opencl.equal
    assert result.onnxruntime.equal
    assert not numpy.equal
    assert not result.equal
    found = numpy.first_difference
    assert (found.graph, found.index[-1], found.found - found.wanted) == ("model", 2, 2.0)
    assert found.node == node_of(convert(tmp_path / "model.onnx")[0].model, BinaryConv, 1).name


def test_pixels_are_compared_with_the_model_behind_its_scaling(tmp_path):
    path = saved(tmp_path, binary_network())
    options = Options(pixel_scale=2.0, pixel_offset=-31.0)
    bundle, _ = convert(path, options)
    same = verify(bundle, "m.bnn", path, Wanted(("numpy",), options=options))
    assert same.equal
    assert same.source.same_graph
    without = verify(bundle, "m.bnn", path, NUMPY)
    assert without.onnxruntime.first_difference.graph == "pixels"
    assert not without.source.same_graph
    assert "pixels: " in without.source.notes[0]
    assert "options that convert was given" in without.source.notes[0]


@pytest.mark.parametrize("scheme", [Scheme.THRESHOLD, Scheme.LBP])
def test_pixels_that_are_binarized_before_the_model(tmp_path, scheme):
    net = Net(3, 6, 6)
    x = net.conv("x", signs(RNG, 8, 3, 3, 3))
    path = saved(tmp_path, net.model(net.conv(net.sign(x), signs(RNG, 4, 8, 4, 4))))
    thresholds = (-100.0, -50.5, -200.0) if scheme is Scheme.THRESHOLD else ()
    options = Options(input_binarization=InputBinarization(scheme, thresholds))
    result = verify(convert(path, options)[0], "m.bnn", path, Wanted(("numpy", "opencl"), runs=4, options=options))
    assert result.equal
    assert result.source.same_graph
    assert ("tie" in result.inputs) == (scheme is Scheme.THRESHOLD)


@pytest.mark.parametrize("levels", [2, 3])
def test_several_thresholds_a_channel_of_pixels(tmp_path, levels):
    net = Net(3, 6, 6)
    offset = -20.5 - 25.0 * np.arange(3 * levels).reshape(1, -1, 1, 1)
    bits = net.sign(net.op("Add", net.op("Concat", *["x"] * levels, axis=1), net.constant(offset)))
    path = saved(tmp_path, net.model(net.conv(bits, signs(RNG, 4, 3 * levels, 3, 3))))
    bundle, _ = convert(path)
    result = verify(bundle, "m.bnn", path, Wanted(("numpy", "opencl"), runs=4))
    assert result.equal
    assert result.inputs["tie"] >= 3 * levels
    assert any(sign.ties for sign in result.onnxruntime.signs.values())
    # Each threshold is looked at: a change of one level, in the last plane alone, is found.
    node = node_of(bundle.pixels, Threshold)
    constants = dict(bundle.pixels.constants)
    changed = constants[node.inputs[1]].data.copy()
    changed[-1] += 1
    constants[node.inputs[1]] = Constant.of(changed)
    pixels = Graph(bundle.pixels.inputs, bundle.pixels.nodes, bundle.pixels.outputs, constants)
    found = verify(replace(bundle, pixels=pixels), "m.bnn", path, Wanted(("numpy",), runs=0)).onnxruntime
    assert found.first_difference.graph == "pixels"
    assert f"threshold {levels} of" in found.first_difference.input


def test_a_device_that_cannot_run_it_is_named_unless_it_was_asked_for(tmp_path, monkeypatch):
    def refuse(graph, device, *rest):
        if device.backend == "numpy":
            raise BackendError("too small", "numpy")
        return make_plan(graph, device, *rest)

    make_plan = backends.make_plan
    monkeypatch.setattr(backends, "make_plan", refuse)
    net = Net(8)
    model = net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3)))
    result = verified(tmp_path, model, Wanted(runs=2))
    assert result.equal
    assert [row.refused for row in result.backends if row.refused] == ["too small (numpy)"]
    with pytest.raises(BackendError, match="too small"):
        verified(tmp_path, model)


def test_a_changed_pixel_threshold_is_found(tmp_path):
    path = saved(tmp_path, binary_network())
    bundle, _ = convert(path)
    node = node_of(bundle.pixels, Threshold)
    constants = dict(bundle.pixels.constants)
    constants[node.inputs[1]] = Constant.of(constants[node.inputs[1]].data + np.int32(1))
    pixels = Graph(bundle.pixels.inputs, bundle.pixels.nodes, bundle.pixels.outputs, constants)
    result = verify(replace(bundle, pixels=pixels), "m.bnn", path, Wanted(("numpy",), runs=0))
    found = result.onnxruntime.first_difference
    assert found.graph == "pixels"
    assert "threshold of where" in found.input


def test_another_graph_is_compared_by_its_outputs(tmp_path):
    model, other = binary_network(), binary_network()
    path = saved(tmp_path, model)
    bundle, _ = convert(path)
    (tmp_path / "folder").mkdir()
    wrong = saved(tmp_path / "folder", other)
    renamed = replace(bundle.model.nodes[0], name="renamed")
    graph = Graph(bundle.model.inputs, (renamed, *bundle.model.nodes[1:]), bundle.model.outputs, bundle.model.constants)
    same = verify(replace(bundle, model=graph), "m.bnn", path, NUMPY)
    assert same.equal
    assert same.source.same_file
    assert "only outputs are compared" in same.source.notes[0]
    different = verify(replace(bundle, model=graph), "m.bnn", wrong, NUMPY)
    assert not different.equal
    assert not different.source.same_file
    assert different.onnxruntime.first_difference.node == "output"


def test_a_fixed_batch(tmp_path):
    net = Net(8, batch=3)
    result = verified(tmp_path, net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3))))
    assert result.equal
    assert result.onnxruntime.images == result.inputs.total()


def test_inputs_at_the_thresholds_of_the_first_sign(tmp_path):
    net = Net(3, 4, 4)
    x = net.sign(net.op("Add", "x", net.constant(np.array([-100.25, 3.1, 0.0]).reshape(3, 1, 1))))
    result = verified(tmp_path, net.model(net.conv(x, signs(RNG, 4, 3, 2, 2))), Wanted(("numpy",), runs=0))
    assert result.equal
    assert result.inputs["tie"] == 6  # for each graph: at, below and around
    (sign,) = result.onnxruntime.signs.values()
    assert sign.ties >= 48


def test_a_model_that_onnx_runtime_does_not_know(tmp_path):
    net = Net(8)
    path = saved(tmp_path, net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3))))
    bundle, _ = convert(path)
    custom = Net(8)
    custom.domains = ["finn"]
    x = custom.op("Thresholding", "x", domain="finn")
    other = custom.model(custom.matmul(x, signs(RNG, 8, 3)))
    other.graph.node[-1].output[0] = other.graph.output[0].name = bundle.model.outputs[0]
    with pytest.raises(InputError, match=r"^ONNX Runtime cannot run this model: it uses finn.Thresholding, which is"):
        verify(bundle, "m.bnn", saved(tmp_path, other), NUMPY)


def test_the_wrong_model_and_backends_that_are_not_there(tmp_path):
    net = Net(8)
    path = saved(tmp_path, net.model(net.matmul(net.sign("x"), signs(RNG, 8, 3))))
    with pytest.raises(InputError, match=r"the bundle's inputs are input, the model's x"):
        verify(convert(FIXTURES / "paper_legacy.onnx")[0], "m.bnn", path, NUMPY)
    bundle, _ = convert(path)
    wide = Net(9)
    y = wide.matmul(wide.sign("x"), signs(RNG, 9, 3))
    with pytest.raises(InputError, match=r"x has the shape \['N', 8\] in the bundle and \[None, 9\] in the model"):
        verify(bundle, "m.bnn", saved(tmp_path, wide.model(y)), NUMPY)
    with pytest.raises(BackendError, match="unknown backend vulkan"):
        verify(bundle, "m.bnn", saved(tmp_path, net.model(y)), Wanted(("vulkan",)))


@pytest.mark.parametrize(("rows", "batch"), [(8, 8), (1024, 5), (4096, 1), (16384, 1)])
def test_a_large_network_is_verified_a_few_images_at_a_time(rows, batch):
    nodes = (
        Node("relu", Relu(), ("x",), ("a",)),
        *(
            Node(f"add {i}", Arithmetic(ArithmeticKind.ADD), (a, a), (b,))
            for i, (a, b) in enumerate(("ab", "bc", "cd"))
        ),
        Node("last", Relu(), ("d",), ("y",)),
    )
    graph = Graph({"x": TensorType((None, rows, 512, 8), Domain.FLOAT32)}, nodes, ("y",))
    assert _free_batch(graph) == batch


# Of 18 weights; numpy's mean of their sizes has 15 bits only, and ONNX Runtime's, in another order, has more.
LATENT = np.random.default_rng(76).normal(size=(1, 2, 3, 3)).astype(np.float32)


@pytest.mark.parametrize("place", ["weights", "factor", "bias", "slope", "norm"])
def test_constants_that_onnxruntime_rounds_otherwise_are_not_exact(tmp_path, place):
    net = Net(2, 5, 5)
    latent = net.constant(LATENT)
    mean = net.op("ReduceMean", net.op("Abs", latent), axes=[1, 2, 3], keepdims=1)
    weights = net.op("Sign", latent)
    if place == "weights":
        weights = net.op("Mul", weights, mean)
    y = net.op("Conv", net.sign("x"), weights)
    if place == "norm":
        vector = net.op("Reshape", mean, net.constant([1], np.int64))
        ones, zeros = net.constant([1.0]), net.constant([0.0])
        y = net.op("BatchNormalization", y, vector, zeros, zeros, ones)
    elif place != "weights":
        y = net.op({"factor": "Mul", "bias": "Add", "slope": "PRelu"}[place], y, mean)
    result = verified(tmp_path, net.model(y))
    assert result.equal, result.as_json()
    (output,) = result.onnxruntime.outputs.values()
    assert output.bound > 0


def test_a_stored_constant_is_exact_however_many_bits_it_has(tmp_path):
    net = Net(2, 5, 5)
    y = net.op("Mul", net.conv(net.sign("x"), np.sign(LATENT)), net.constant(np.float32(0.87442017)))
    result = verified(tmp_path, net.model(y))
    assert result.equal
    assert result.onnxruntime.outputs[y].bound == 0


def test_a_constant_that_is_folded_wrongly_is_found(tmp_path, monkeypatch):
    net = Net(2, 5, 5)
    latent = net.constant(LATENT)
    mean = net.op("ReduceMean", net.op("Abs", latent), axes=[1, 2, 3], keepdims=1)
    model = net.model(net.op("Mul", net.op("Conv", net.sign("x"), net.op("Sign", latent)), mean))
    wrong = np.full((1, 1, 1, 1), 0.875, dtype=np.float32)
    monkeypatch.setattr("onnx.reference.ops.op_reduce_mean.ReduceMean_1._run", lambda *args, **kwargs: (wrong,))
    result = verified(tmp_path, model)
    assert not result.equal
