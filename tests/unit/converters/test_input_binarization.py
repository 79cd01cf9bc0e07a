"""``--input-binarization``: what stands in front of the network, and which models it fits."""

import json
import sys

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnnrt.bundle
from bnnrt import cli, reference
from bnnrt.converters.convert import Options
from bnnrt.errors import ConversionError, InputError
from bnnrt.preprocess import binarize
from bnnrt.preprocess.schemes import InputBinarization, Scheme

from .models import Net, computing, converted, expected, kinds, signs

RNG = np.random.default_rng(23)
T = (-128.0, -77.5, -0.25)
RGB = np.concatenate([RNG.integers(0, 256, (2, 9, 7, 3)), RNG.integers(126, 131, (2, 9, 7, 3))]).astype(np.uint8)
GRAY = binarize.grayscale(RGB)

# The scheme, what it makes of RGB, and the operators that do.
SCHEMES = {
    "threshold": (InputBinarization(Scheme.THRESHOLD, T), binarize.threshold(RGB, T), ["Threshold"]),
    "threshold-gray": (
        InputBinarization(Scheme.THRESHOLD_GRAY, T[:1]),
        binarize.threshold(GRAY[..., None], T[:1]),
        ["Grayscale", "Threshold"],
    ),
    "lbp": (InputBinarization(Scheme.LBP), binarize.lbp(GRAY), ["Grayscale", "LocalBinaryPattern"]),
}
every_scheme = pytest.mark.parametrize("name", SCHEMES)


def plus_minus(bits):
    return np.where(bits, np.float32(1), np.float32(-1))


def channels_first(x):
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2))


def check(model, name, x):
    """Convert, and compare both graphs with ONNX Runtime on the planes ``x``."""
    scheme, _, operators = SCHEMES[name]
    bundle, report = converted(model, Options(strict=True, input_binarization=scheme))
    (want,) = expected(model, x)
    output = bundle.model.outputs[0]
    np.testing.assert_array_equal(reference.run(bundle.pixels, {"pixels": RGB})[output], want)
    np.testing.assert_array_equal(reference.run(bundle.model, {"x": x})[output], want)
    assert computing(bundle.pixels)[: len(operators)] == operators
    assert bundle.pixels.inputs["pixels"].shape == (None, 9, 7, 3)
    assert bundle.pipeline == bnnrt.bundle.ImagePipeline(9, 7)
    (port,) = bundle.inputs
    assert (port.name, port.dtype, port.shape[1:]) == ("x", "float32", x.shape[1:])
    return bundle, report


@every_scheme
@pytest.mark.parametrize("padding", ["none", "zeros", "minus one", "plus one"])
@pytest.mark.parametrize("last", [False, True], ids=["NCHW", "NHWC"])
def test_convolutions_on_planes_are_binary(name, padding, last):
    planes = plus_minus(SCHEMES[name][1])
    count = planes.shape[3]
    if last:
        net, x = Net(9, 7, count), planes
        first = net.op("Transpose", "x", perm=[0, 3, 1, 2])
    else:
        net, x = Net(count, 9, 7), channels_first(planes)
        first = "x"
    if padding in ("minus one", "plus one"):
        value = net.constant(np.float32(-1 if padding == "minus one" else 1))
        first = net.op("Pad", first, net.constant([0, 0, 1, 2, 0, 0, 2, 1], np.int64), value)
    pads = {"pads": [1, 1, 1, 1]} if padding == "zeros" else {}
    sums = net.conv(first, signs(RNG, 5, count, 3, 3), RNG.integers(-3, 4, 5) + 0.5, **pads)
    model = net.model(net.matmul(net.op("Flatten", net.sign(sums)), signs(RNG, np.prod(shape_of(padding)) * 5, 4)))
    bundle, report = check(model, name, x)
    assert computing(bundle.pixels)[len(SCHEMES[name][2]) :] == ["BinaryConv", "Threshold", "BinaryDense", "ToFloat"]
    (conv,) = [node.op for node in bundle.pixels.nodes if type(node.op).__name__ == "BinaryConv"]
    if padding != "none":
        assert conv.pad_value == {"zeros": 0, "minus one": -1, "plus one": 1}[padding]
    assert [row.kind for row in report.layers] == ["binary", "binary"]
    # In the model's own terms the planes are real numbers.
    assert "BinaryWeightConv" in kinds(bundle.model)


def shape_of(padding):
    return {"none": (7, 5), "zeros": (9, 7), "minus one": (10, 8), "plus one": (10, 8)}[padding]


@every_scheme
@pytest.mark.parametrize("again", [False, True])
def test_dense_layers_on_planes_are_binary(name, again):
    """Also where the network takes the sign of what is +1 and -1 already."""
    planes = channels_first(plus_minus(SCHEMES[name][1]))
    net = Net(*planes.shape[1:])
    x = net.op("Sign", "x") if again else "x"
    model = net.model(net.matmul(net.op("Flatten", x), signs(RNG, planes[0].size, 5)))
    bundle, _ = check(model, name, planes)
    assert computing(bundle.pixels)[-2:] == ["BinaryDense", "ToFloat"]
    assert "Sign" not in kinds(bundle.pixels)


def test_arithmetic_on_planes_stays_real():
    planes = channels_first(plus_minus(SCHEMES["lbp"][1]))
    net = Net(3, 9, 7)
    scaled = net.op("Mul", net.op("Add", "x", net.constant([[[0.5]], [[2.0]], [[-4.0]]])), net.constant(0.25))
    bundle, _ = check(net.model(net.conv(scaled, signs(RNG, 5, 3, 3, 3))), "lbp", planes)
    assert computing(bundle.pixels)[2:] == ["ToFloat", "Arithmetic", "Arithmetic", "BinaryWeightConv"]


def test_an_image_whose_ends_could_both_be_planes():
    """Only one of them is as long as there are planes."""
    for shape, size in (((1, 9, 3), (9, 3)), ((3, 9, 1), (3, 9))):
        net = Net(*shape)
        model = net.model(net.matmul(net.op("Flatten", "x"), signs(RNG, 27, 2)))
        bundle, _ = converted(model, Options(input_binarization=SCHEMES["threshold-gray"][0]))
        assert (bundle.pipeline.height, bundle.pipeline.width, bundle.pipeline.channels) == (*size, 3)


@given(
    st.one_of(
        st.floats(width=32, allow_nan=False, allow_infinity=False),
        st.floats(-260, 5, width=32),
        st.integers(-257, 2).map(float),
        st.sampled_from([0.0, -0.0, 1e-30, -1e-30, -255.0, -254.99999, -128.00001, -127.99999, -0.1]),
    )
)
def test_a_threshold_is_where_the_float32_sum_becomes_positive(t):
    model = ONE_PIXEL_HIGH
    bundle, _ = converted(model, Options(input_binarization=InputBinarization(Scheme.THRESHOLD_GRAY, (t,))))
    levels = np.arange(256, dtype=np.uint8)
    pixels = np.repeat(levels[None, None, :, None], 3, axis=3)
    bits = reference.run(bundle.pixels, {"pixels": pixels}, everything=True)["pixels/bits"].ravel()
    for level, bit in zip(levels, bits, strict=True):
        assert bit == (1 if np.float32(level) + np.float32(t) > np.float32(0) else -1)


def one_pixel_high():
    net = Net(1, 1, 256)
    return net.model(net.matmul(net.op("Flatten", "x"), signs(RNG, 256, 1)))


ONE_PIXEL_HIGH = one_pixel_high()


@every_scheme
def test_a_bundle_survives_its_file(name, tmp_path):
    planes = channels_first(plus_minus(SCHEMES[name][1]))
    net = Net(*planes.shape[1:])
    model = net.model(net.conv("x", signs(RNG, 5, planes.shape[1], 3, 3)))
    bundle, _ = converted(model, Options(input_binarization=SCHEMES[name][0]))
    bnnrt.bundle.write(bundle, tmp_path / "m.bnn")
    again = bnnrt.bundle.read(tmp_path / "m.bnn")
    assert kinds(again.pixels) == kinds(bundle.pixels)
    (want,) = expected(model, planes)
    np.testing.assert_array_equal(reference.run(again.pixels, {"pixels": RGB})[again.pixels.outputs[0]], want)


# Models that do not fit


def refused(net, name, *words):
    model = net.model(net.op("Flatten", net.nodes[-1].output[0] if net.nodes else "x"))
    with pytest.raises(ConversionError) as caught:
        converted(model, Options(input_binarization=SCHEMES[name][0]))
    text = str(caught.value)
    assert all(word in text for word in words), text


def test_models_with_other_planes_are_refused():
    wanted = ("threshold makes 3 planes", "float [?, 1, 9, 7]", "input x", "[N, 3, H, W]")
    refused(Net(1, 9, 7), "threshold", *wanted)
    refused(Net(3, 9, 7), "threshold-gray", "threshold-gray makes 1 plane of", "float [?, 3, 9, 7]")
    refused(Net(1, 9, 7), "lbp", "lbp makes 3 planes")
    refused(Net(12, batch=2), "lbp", "float [2, 12]")
    net = Net(3, 9, 7, dtype=onnx.TensorProto.UINT8)
    net.op("Cast", "x", to=onnx.TensorProto.FLOAT)
    refused(net, "lbp", "uint8 [?, 3, 9, 7]")


def test_models_with_two_inputs_are_refused():
    net = Net(3, 9, 7)
    net.inputs.append(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 3, 9, 7]))
    net.op("Add", "x", "y")
    refused(net, "lbp", "the model has 2 inputs")


@pytest.mark.parametrize("name", ["threshold", "lbp"])
def test_models_that_threshold_pixels_themselves_are_refused(name):
    net = Net(3, 9, 7)
    offsets = net.constant(np.array([-100, -120, -99.5]).reshape(3, 1, 1))
    net.sign(net.op("Add", "x", offsets))
    refused(net, name, "binarizes its input itself", "node where2", "leave --input-binarization out")


def test_a_sign_that_some_planes_pass_is_not_refused():
    net = Net(3, 9, 7)
    bits = net.sign(net.op("Add", "x", net.constant(np.array([-100, 0.5, 100]).reshape(3, 1, 1))))
    model = net.model(net.conv(bits, signs(RNG, 5, 3, 3, 3)))
    check(model, "lbp", channels_first(plus_minus(SCHEMES["lbp"][1])))


def test_binarized_pixels_are_not_scaled():
    net = Net(3, 9, 7)
    model = net.model(net.op("Flatten", "x"))
    with pytest.raises(ConversionError, match="binarized cannot be scaled"):
        converted(model, Options(pixel_scale=2.0, input_binarization=SCHEMES["lbp"][0]))


@pytest.mark.parametrize(
    ("scheme", "thresholds", "problem"),
    [
        (Scheme.THRESHOLD, (), "threshold takes 3 thresholds, not 0: give --thresholds T1,T2,T3"),
        (Scheme.THRESHOLD, (1.0,), "threshold takes 3 thresholds, not 1"),
        (Scheme.THRESHOLD_GRAY, (1.0, 2.0), "threshold-gray takes one threshold, not 2: give --thresholds T"),
        (Scheme.LBP, (1.0,), "lbp takes no thresholds, not 1: leave --thresholds out"),
        (Scheme.NONE, (), "none is no binarization"),
        (Scheme.THRESHOLD_GRAY, (float("nan"),), "the threshold nan is no finite float32"),
        (Scheme.THRESHOLD, (1.0, float("-inf"), 2.0), "the threshold -inf is no finite float32"),
        (Scheme.THRESHOLD, (1.0, 2.0, 1e39), "the threshold 1e+39 is no finite float32"),
    ],
)
def test_parameters_that_do_not_fit_a_scheme(scheme, thresholds, problem):
    with pytest.raises(InputError) as caught:
        InputBinarization(scheme, thresholds)
    assert problem in str(caught.value)


# The command


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for planes in (1, 3):
        net = Net(planes, 9, 7)
        sums = net.conv("x", signs(RNG, 5, planes, 3, 3), np.full(5, 0.5))
        model = net.model(net.matmul(net.op("Flatten", net.sign(sums)), signs(RNG, 175, 4)))
        (folder / f"{planes}.onnx").write_bytes(model.SerializeToString())
    return folder


@pytest.fixture
def command(monkeypatch, capsys):
    """``bnnrt convert``, in this process: its exit status, output and errors."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["bnnrt", "convert", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, *capsys.readouterr()

    return command


@pytest.mark.parametrize(
    ("name", "thresholds"), [("threshold", "-128,-77.5,-0.25"), ("threshold-gray", "-128"), ("lbp", None)]
)
def test_the_command_puts_a_scheme_into_the_bundle(command, models, tmp_path, name, thresholds):
    scheme, _, operators = SCHEMES[name]
    given = () if thresholds is None else ("--thresholds", thresholds)
    status, out, err = command(
        *(models / f"{scheme.planes}.onnx", "-o", tmp_path / "m.bnn", "--input-binarization", name, *given, "--json")
    )
    assert (status, err) == (0, "")
    assert [layer["kind"] for layer in json.loads(out)["layers"]] == ["binary", "binary"]
    written = bnnrt.bundle.read(tmp_path / "m.bnn")
    assert kinds(written.pixels)[: len(operators)] == operators
    bits = reference.run(written.pixels, {"pixels": RGB}, everything=True)["pixels/bits"]
    np.testing.assert_array_equal(bits, plus_minus(scheme.bits(RGB)))


def test_none_is_what_the_model_says(command, models, tmp_path):
    for name, options in (("a", ()), ("b", ("--input-binarization", "none"))):
        assert command(models / "3.onnx", "-o", tmp_path / name, *options)[0] == 0
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert kinds(bnnrt.bundle.read(tmp_path / "a").pixels)[0] == "ToFloat"


@pytest.mark.parametrize(
    ("model", "options", "problem"),
    [
        ("3", ("--input-binarization", "threshold"), "threshold takes 3 thresholds, not 0"),
        ("3", ("--input-binarization", "threshold", "--thresholds", "-1,-2"), "threshold takes 3 thresholds, not 2"),
        ("3", ("--input-binarization", "threshold", "--thresholds", "-1,-2,nan"), "nan is no finite float32"),
        ("3", ("--input-binarization", "threshold", "--thresholds", "-1,-2,x"), "'-1,-2,x' is no list of numbers"),
        ("3", ("--input-binarization", "threshold", "--thresholds", ""), "'' is no list of numbers"),
        ("3", ("--input-binarization", "none", "--thresholds", "-1,-2,-3"), "thresholds belong to a scheme"),
        ("3", ("--thresholds", "-1,-2,-3"), "thresholds belong to a scheme"),
        ("1", ("--input-binarization", "lbp"), "lbp makes 3 planes"),
        ("3", ("--input-binarization", "lbp", "--pixel-scale", "2"), "cannot be scaled"),
        ("3", ("--input-binarization", "gray"), "'gray' is not one of"),
    ],
)
def test_the_command_refuses_in_one_line(command, models, tmp_path, model, options, problem):
    status, out, err = command(models / f"{model}.onnx", "-o", tmp_path / "m.bnn", *options)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert problem in err
    assert not list(tmp_path.iterdir())
