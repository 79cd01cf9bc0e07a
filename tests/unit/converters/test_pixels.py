import numpy as np
import pytest

from bnnrt import reference
from bnnrt.converters.convert import Options
from bnnrt.errors import ConversionError

from .models import Net, check, computing, converted, expected, kinds, signs

RNG = np.random.default_rng(16)
PIXELS = RNG.integers(0, 256, (3, 8, 6, 3)).astype(np.uint8)


def run(bundle, pixels):
    return reference.run(bundle.pixels, {"pixels": pixels})[bundle.model.outputs[0]]


@pytest.mark.parametrize("channels_first", [True, False])
@pytest.mark.parametrize("channels", [1, 3])
def test_thresholds_on_the_input_become_pixel_thresholds(channels_first, channels):
    pixels = PIXELS[..., :channels]
    x = pixels.astype(np.float32)
    offset = RNG.uniform(-255, 0, channels)
    if channels_first:
        net = Net(channels, 8, 6)
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        bits = net.sign(net.op("Add", "x", net.constant(offset.reshape(1, -1, 1, 1))))
    else:
        net = Net(8, 6, channels)
        bits = net.op("Transpose", net.sign(net.op("Add", "x", net.constant(offset))), perm=[0, 3, 1, 2])
    model = net.model(net.op("Flatten", net.conv(bits, signs(RNG, 5, channels, 3, 3))))
    bundle = check(model, x)
    assert computing(bundle.pixels)[:2] == ["Threshold", "BinaryConv"]
    assert (bundle.pipeline.height, bundle.pipeline.width, bundle.pipeline.channels) == (8, 6, channels)
    np.testing.assert_array_equal(run(bundle, pixels), expected(model, x)[0])


@pytest.mark.parametrize("levels", [2, 5, 12])
def test_several_thresholds_a_channel(levels):
    net = Net(3, 8, 6)
    repeated = net.op("Concat", *["x"] * levels, axis=1)
    offset = RNG.uniform(-255, 0, (1, 3 * levels, 1, 1))
    model = net.model(
        net.conv(net.sign(net.op("Add", repeated, net.constant(offset))), signs(RNG, 5, 3 * levels, 3, 3))
    )
    x = np.ascontiguousarray(PIXELS.astype(np.float32).transpose(0, 3, 1, 2))
    bundle = check(model, x)
    assert computing(bundle.pixels)[:2] == ["Threshold", "BinaryConv"]
    np.testing.assert_array_equal(run(bundle, PIXELS), expected(model, x)[0])


def test_what_else_is_joined_with_pixels_stays_a_concat():
    net = Net(3, 8, 6)
    joined = net.op("Concat", "x", net.op("Relu", "x"), axis=1)
    offset = RNG.uniform(-255, 0, (1, 6, 1, 1))
    model = net.model(net.conv(net.sign(net.op("Add", joined, net.constant(offset))), signs(RNG, 5, 6, 3, 3)))
    x = np.ascontiguousarray(PIXELS.astype(np.float32).transpose(0, 3, 1, 2))
    bundle = check(model, x)
    assert "Concat" in computing(bundle.pixels)
    np.testing.assert_array_equal(run(bundle, PIXELS), expected(model, x)[0])


def test_pixels_are_scaled_as_asked():
    net = Net(3, 8, 6)
    model = net.model(net.conv(net.sign("x"), signs(RNG, 5, 3, 3, 3)))
    scale, offset = np.float32(1 / 127.5), np.float32(-1)
    bundle, _ = converted(model, Options(pixel_scale=float(scale), pixel_offset=-1.0))
    x = np.ascontiguousarray((PIXELS.astype(np.float32) * scale + offset).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(run(bundle, PIXELS), expected(model, x)[0])
    assert computing(bundle.pixels)[:2] == ["Threshold", "BinaryConv"]


def test_real_first_layers_start_from_pixels_too():
    net = Net(3, 8, 6)
    x = net.op("Div", net.op("Sub", "x", net.constant(128.0)), net.constant(64.0))
    model = net.model(net.conv(x, signs(RNG, 5, 3, 3, 3)))
    bundle, _ = converted(model)
    x = np.ascontiguousarray(PIXELS.astype(np.float32).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(run(bundle, PIXELS), expected(model, x)[0])
    assert computing(bundle.pixels) == ["ToFloat", "Arithmetic", "Arithmetic", "BinaryWeightConv"]


def test_flattened_images_permute_weights():
    net = Net(3, 8, 6)
    model = net.model(
        net.matmul(net.op("Flatten", net.sign(net.op("Sub", "x", net.constant(99.5)))), signs(RNG, 144, 5))
    )
    bundle, _ = converted(model)
    x = np.ascontiguousarray(PIXELS.astype(np.float32).transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(run(bundle, PIXELS), expected(model, x)[0])
    assert kinds(bundle.pixels) == ["Threshold", "Reshape", "BinaryDense", "ToFloat"]


def test_an_image_whose_ends_could_both_be_channels():
    net = Net(3, 8, 3)
    bundle, _ = converted(net.model(net.conv("x", signs(RNG, 5, 3, 3, 3))))
    assert bundle.pixels.inputs["pixels"].shape == (None, 8, 3, 3)
    net = Net(3, 8, 3)
    bundle, _ = converted(net.model(net.op("Transpose", "x", perm=[0, 3, 1, 2])))
    assert bundle.pixels.inputs["pixels"].shape == (None, 3, 8, 3)


@pytest.mark.parametrize("shape", [(12,), (4, 5, 6), (2, 8, 8)])
def test_other_inputs_are_no_images(shape):
    net = Net(*shape)
    model = net.model(net.op("Add", "x", net.constant(1.0)))
    bundle, _ = converted(model)
    assert bundle.pixels is None
    assert bundle.pipeline is None
    with pytest.raises(ConversionError, match="takes no images"):
        converted(model, Options(pixel_scale=2.0))
