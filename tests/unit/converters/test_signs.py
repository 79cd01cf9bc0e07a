"""Every way in which files write a sign (and some that look like one and are none)."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from bnnrt import reference
from bnnrt.converters.cleanup.clean import clean
from bnnrt.converters.signs.recognise import recognise
from bnnrt.errors import ConversionError

from .models import Net, check, converted, expected, kinds

FLOAT = onnx.TensorProto.FLOAT
X = np.array([[-np.inf, -3, -1, -0.25, -1e-40, -0.0, 0.0, 1e-40, 0.25, 1, 3, np.inf]], dtype=np.float32)
SIZE = X.shape[1]


def where(net, condition, yes, no, dtype=np.float32):
    return net.op("Where", condition, net.constant(yes, dtype), net.constant(no, dtype))


def cast(net, x):
    return net.op("Cast", x, to=FLOAT)


def compare(operator, constant=0.0, first=False):
    def build(net):
        zero = net.constant(constant)
        return net.op(operator, zero, "x") if first else net.op(operator, "x", zero)

    return build


def filled(net, x):
    one = numpy_helper.from_array(np.ones(1, dtype=np.float32))
    return net.op("ConstantOfShape", net.op("Shape", x), value=one)


def expanded(net, number):
    return net.op("Expand", net.constant(number), net.op("Shape", "x"))


def table(net, numbers, index, nd=False):
    """``torch.tensor(numbers)[index]``."""
    if nd:
        return net.op("GatherND", net.constant(numbers), net.op("Unsqueeze", index, net.constant([-1], np.int64)))
    return net.op("Gather", net.constant(numbers), index)


def index(net, condition):
    return net.op("Cast", condition, to=onnx.TensorProto.INT64)


def affine(net, x, scale=2.0, offset=1.0):
    return net.op("Sub", net.op("Mul", x, net.constant(scale)), net.constant(offset))


FORMS = {
    "ge, where": lambda n: where(n, compare("GreaterOrEqual")(n), 1.0, -1.0),
    "gt, where": lambda n: where(n, compare("Greater")(n), 1.0, -1.0),
    "lt, where": lambda n: where(n, compare("Less")(n), -1.0, 1.0),
    "le, where": lambda n: where(n, compare("LessOrEqual")(n), -1.0, 1.0),
    "0 <= x": lambda n: where(n, compare("LessOrEqual", first=True)(n), 1.0, -1.0),
    "0 > x": lambda n: where(n, compare("Greater", first=True)(n), -1.0, 1.0),
    "not lt": lambda n: where(n, n.op("Not", compare("Less")(n)), 1.0, -1.0),
    "table": lambda n: table(n, [-1.0, 1.0], index(n, compare("GreaterOrEqual")(n))),
    "table by GatherND": lambda n: table(n, [-1.0, 1.0], index(n, compare("Greater")(n)), nd=True),
    "table, from its end": lambda n: table(
        n, [1.0, 5.0, -1.0], n.op("Sub", n.constant(0, np.int64), index(n, compare("Less")(n)))
    ),
    "zero of one element": lambda n: where(n, compare("Greater", [0.0])(n), 1.0, -1.0),
    "full branches": lambda n: where(n, compare("GreaterOrEqual")(n), np.ones((1, SIZE)), -np.ones((1, SIZE))),
    "branches filled at run time": lambda n: n.op(
        "Where", compare("GreaterOrEqual")(n), filled(n, "x"), n.op("Neg", filled(n, "x"))
    ),
    "branches expanded at run time": lambda n: n.op(
        "Where", compare("Greater")(n), expanded(n, 1.0), expanded(n, -1.0)
    ),
    "integer branches": lambda n: cast(n, where(n, compare("GreaterOrEqual")(n), 1, -1, np.int64)),
    "cast, mul, sub": lambda n: affine(n, cast(n, compare("Greater")(n))),
    "cast, add, div": lambda n: n.op(
        "Div", n.op("Add", cast(n, compare("Greater")(n)), n.constant(-0.5)), n.constant(0.5)
    ),
    "1 - 2 * lt": lambda n: n.op("Sub", n.constant(1.0), n.op("Mul", n.constant(2.0), cast(n, compare("Less")(n)))),
    "sign, add, sign": lambda n: n.op("Sign", n.op("Add", n.op("Sign", "x"), n.constant(0.1))),
    "sign, sub, sign": lambda n: n.op("Sign", n.op("Sub", n.op("Sign", "x"), n.constant(0.1))),
    "add, sign": lambda n: n.op("Sign", n.op("Add", "x", n.constant(1e-6))),
    "clip, ge": lambda n: where(
        n, n.op("GreaterOrEqual", n.op("Clip", "x", n.constant(-1.0), n.constant(1.0)), n.constant(0.0)), 1.0, -1.0
    ),
    "heaviside": lambda n: affine(
        n, n.op("Where", compare("Equal")(n), n.constant(1.0), where(n, compare("Less")(n), 0.0, 1.0))
    ),
    "another threshold": lambda n: where(n, compare("Greater", 0.25)(n), 1.0, -1.0),
    "a threshold a channel": lambda n: where(n, compare("Less", np.linspace(-1, 1, SIZE))(n), -1.0, 1.0),
    "minus ge": lambda n: where(n, compare("GreaterOrEqual")(n), -1.0, 1.0),
    "minus gt": lambda n: where(n, compare("Greater")(n), -1.0, 1.0),
    "minus lt": lambda n: where(n, compare("Less")(n), 1.0, -1.0),
    "minus, another threshold": lambda n: where(n, compare("LessOrEqual", 0.25)(n), 1.0, -1.0),
    "1 - 2 * gt": lambda n: n.op("Sub", n.constant(1.0), n.op("Mul", n.constant(2.0), cast(n, compare("Greater")(n)))),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_sign(form):
    net = Net(SIZE)
    bundle = check(net.model(FORMS[form](net)), X)
    assert "Sign" in kinds(bundle.model)
    assert set(kinds(bundle.model)) <= {"Arithmetic", "Sign", "ToFloat"}


def test_onnx_sign_gives_plus_one_at_zero_and_says_so():
    net = Net(SIZE)
    model = net.model(net.op("Sign", "x"))
    bundle, report = converted(model)
    (got,) = reference.run(bundle.model, {"x": X}).values()
    (want,) = expected(model, X)
    np.testing.assert_array_equal(got, np.where(want == 0, 1, want))
    assert [w.node for w in report.warnings] == ["sign0"]


@pytest.mark.parametrize("limits", [(-1.0, 1.0), (-0.5, 3.0)])
def test_a_clip_before_a_sign_goes(limits):
    net = Net(SIZE)
    clipped = net.op("Clip", "x", *(net.constant(limit) for limit in limits))
    model = clean(net.model(net.op("Sign", clipped)))
    recognise(model)
    assert [node.op_type for node in model.graph] == ["Sign"]


def test_a_clip_of_an_old_operator_set_goes():
    net = Net(SIZE, opset=9)
    model = net.model(net.op("Sign", net.op("Clip", "x", min=-1.0, max=1.0)))
    assert "Sign" in kinds(converted(model)[0].model)


@pytest.mark.parametrize("limits", [(0.0, 1.0), (-1.0, 0.0)])
def test_a_clip_at_0_before_a_sign_makes_two_numbers(limits):
    net = Net(SIZE)
    model = net.model(net.op("Sign", net.op("Clip", "x", *(net.constant(limit) for limit in limits))))
    assert kinds(check(model, X).model) == ["Sign", "ToFloat", "Arithmetic", "Arithmetic"]
    assert not converted(model)[1].warnings


def test_a_clip_beyond_0_before_a_sign_stays():
    net = Net(SIZE)
    model = net.model(net.op("Sign", net.op("Clip", "x", net.constant(0.5), net.constant(1.0))))
    assert kinds(check(model, X).model) == ["Clip", "Sign", "ToFloat"]


def test_a_relu_before_a_sign_makes_two_numbers():
    net = Net(SIZE)
    model = net.model(net.op("Sign", net.op("Relu", "x")))
    assert kinds(check(model, X).model) == ["Sign", "ToFloat", "Arithmetic", "Arithmetic"]
    assert not converted(model)[1].warnings


ODD = np.array([-np.inf, -3, -1e-45, -0.0, 0.0, 1e-45, 2e-45, 1, 3.4e38, np.inf, np.nan], dtype=np.float32)


@pytest.mark.parametrize("operator", ["Greater", "Less"])
@pytest.mark.parametrize("form", ["where", "not", "cast"])
def test_two_tensors_become_the_sign_of_their_difference(operator, form):
    pairs = np.stack(np.meshgrid(ODD, ODD), axis=-1).reshape(1, 2, -1, order="F")
    net = Net(*pairs.shape[1:])
    a, b = (net.op("Gather", "x", net.constant([part], np.int64), axis=1) for part in (0, 1))
    condition = net.op(operator, a, b)
    if form == "not":
        condition = net.op("Not", condition)
    y = affine(net, cast(net, condition)) if form == "cast" else where(net, condition, 1.0, -1.0)
    bundle = check(net.model(y), np.ascontiguousarray(pairs))
    assert kinds(bundle.model).count("Sign") == 1


def test_a_threshold_that_is_the_mean_of_an_image():
    net = Net(3, 4, 4)
    mean = net.op("ReduceMean", "x", axes=[2, 3])
    y = where(net, net.op("Greater", "x", mean), 1.0, -1.0)
    x = np.random.default_rng(3).integers(-9, 9, (2, 3, 4, 4)).astype(np.float32)
    bundle = check(net.model(net.conv(y, np.sign(x[:, :, :2, :2] + 0.5))), x)
    assert "BinaryConv" in kinds(bundle.model)


def test_a_comparison_of_two_functions_of_one_number_is_its_sign():
    net = Net(SIZE)
    bundle = check(net.model(where(net, net.op("Greater", "x", net.op("Neg", "x")), 1.0, -1.0)), X)
    assert kinds(bundle.model) == ["Sign", "ToFloat"]


NO_SIGNS = {
    "+1 and +1": lambda n: where(n, compare("Greater")(n), 1.0, 1.0),
    "branches that differ": lambda n: where(n, compare("Greater")(n), np.linspace(0, 1, SIZE), -1.0),
    "a computed branch": lambda n: n.op("Where", compare("Greater")(n), "x", n.constant(-1.0)),
    "equal": lambda n: where(n, compare("Equal")(n), 1.0, -1.0),
    "two thresholds": lambda n: n.op(
        "Where", compare("Greater", 0.5)(n), n.constant(1.0), where(n, compare("Greater", -0.5)(n), 0.0, -1.0)
    ),
    "branches that enlarge": lambda n: where(n, compare("Greater")(n), np.ones((3, 1, SIZE)), -1.0),
    "filled to another shape": lambda n: n.op(
        "Where", compare("Greater")(n), filled(n, n.op("Concat", "x", "x", axis=0)), n.constant(-1.0)
    ),
    "unsigned": lambda n: affine(
        n,
        cast(n, n.op("Cast", n.op("Sub", cast(n, compare("Greater")(n)), n.constant(1.0)), to=onnx.TensorProto.UINT8)),
    ),
    "two tensors that may be one infinity": lambda n: where(
        n, n.op("GreaterOrEqual", "x", n.op("Mul", "x", "x")), 1.0, -1.0
    ),
}


@pytest.mark.parametrize("form", NO_SIGNS)
def test_what_is_no_sign_is_not_taken_for_one(form):
    net = Net(SIZE)
    with pytest.raises(ConversionError, match="not supported"):
        converted(net.model(NO_SIGNS[form](net)))


def test_one_comparison_may_serve_two_signs():
    net = Net(SIZE)
    condition = compare("Greater")(net)
    check(net.model(where(net, condition, 1.0, -1.0), where(net, condition, -1.0, 1.0)), X)
