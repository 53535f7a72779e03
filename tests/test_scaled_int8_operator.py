"""``lamina::int8_mm``: its three activations against the product with the decoded weight, within derived bounds."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from lamina.subclasses.scaled_int8.errors import ProductError
from lamina.subclasses.scaled_int8.kernels.activations import encoded, joined
from lamina.subclasses.scaled_int8.kernels.cuda import cuda_mm
from lamina.subclasses.scaled_int8.kernels.integers import SUMS_ARE_EXACT
from lamina.subclasses.scaled_int8.layout import packed
from lamina.subclasses.scaled_int8.operator import ACTIVATIONS, int8_mm

OP = torch.ops.lamina.int8_mm.default
INTEGER = ("int16", "int8")
LEVELS = {"int16": 32639, "int8": 127}
LAYOUTS = ("rows", "columns", "strided", "expanded", "packed")
SHAPES = [(1, 64, 48), (2, 33, 7), (5, 300, 96), (17, 64, 1), (3, 1, 8), (1, 1, 1), (64, 20, 30)]
SCALES = ["columns", "rows", "one", "each", "groups of rows", "groups of columns", "groups of both"]


def payload(layout: str, inputs: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A (K, N) payload, and the plain one that it equals."""
    make: dict[str, Callable[[], torch.Tensor]] = {
        "rows": lambda: torch.randint(-128, 128, (inputs, outputs), dtype=torch.int8),
        "columns": lambda: torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8).t(),
        "strided": torch.randint(-128, 128, (2 * outputs, 3 * inputs), dtype=torch.int8)[::2, ::3].t,
        "expanded": lambda: torch.randint(-128, 128, (inputs, 1), dtype=torch.int8).expand(inputs, outputs),
        "packed": lambda: torch.randint(-128, 128, (outputs, inputs), dtype=torch.int8).t(),
    }
    plain = make[layout]()
    return (packed(plain.t()) if layout == "packed" else plain), plain.contiguous()


def scale_shape(kind: str, inputs: int, outputs: int) -> tuple[int, int]:
    half = {size: next(n for n in (2, 3, 5, 7, size) if size % n == 0) for size in (inputs, outputs)}
    return {
        "columns": (1, outputs),
        "rows": (inputs, 1),
        "one": (1, 1),
        "each": (inputs, outputs),
        "groups of rows": (half[inputs], 1),
        "groups of columns": (1, half[outputs]),
        "groups of both": (half[inputs], half[outputs]),
    }[kind]


def spread(scale: torch.Tensor, inputs: int, outputs: int) -> torch.Tensor:
    return scale.repeat_interleave(inputs // scale.shape[0], 0).repeat_interleave(outputs // scale.shape[1], 1)


def decoded(plain: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None) -> torch.Tensor:
    steps = plain.double()
    if zero_point is not None:
        steps = steps - spread(zero_point, *plain.shape)
    return steps * spread(scale, *plain.shape).double()


def bound(
    a: torch.Tensor, plain: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, activation: str
) -> torch.Tensor:
    """The derived bound of the error, (M, N): that of the codes, and float32's of sums of K terms."""
    weight = decoded(plain, scale, zero_point)
    rounding = (a.double().abs() @ weight.abs()) * (plain.shape[0] + 8) * 2.0**-23
    if zero_point is not None:  # the sum and its correction are each larger than their difference
        magnitudes = decoded(plain, scale, None).abs() + decoded(torch.zeros_like(plain), scale, zero_point).abs()
        rounding = (a.double().abs() @ magnitudes) * (plain.shape[0] + 8) * 2.0**-23
    if activation == "float" or (min(scale.shape) > 1 and plain.shape[0] // scale.shape[0] < 128):
        return rounding + 1e-30
    folded = a.double() * spread(scale, plain.shape[0], 1).t().double() if scale.shape[1] == 1 < scale.shape[0] else a
    peaks = folded.double().abs().amax(1, keepdim=True)
    weight = weight if folded is a else decoded(plain, torch.ones_like(scale), zero_point)
    return peaks / LEVELS[activation] * (0.5 + 2**-8) * weight.abs().sum(0) + rounding + 1e-30


def decibels(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float(20 * torch.log10(exact.double().norm() / (result.double() - exact.double()).norm()))


def ran(function: Callable[[], object]) -> set[str]:
    """The operators that ran, those inside kernels too."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        function()
    return {event.name for event in profile.events()}


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation", ["float", *INTEGER])
def test_product_is_within_its_bound(activation: str, layout: str, kind: str, zero_points: bool) -> None:
    torch.manual_seed(0)
    for rows, inputs, outputs in SHAPES:
        qdata, plain = payload(layout, inputs, outputs)
        shape = scale_shape(kind, inputs, outputs)
        scale = torch.rand(shape) * 0.02 + 0.001
        zero_point = torch.randint(-128, 128, shape, dtype=torch.int8) if zero_points else None
        a = torch.randn(rows, 2 * inputs)[:, ::2]
        result = int8_mm(a, qdata, scale, zero_point, activation)
        exact = a.double() @ decoded(plain, scale, zero_point)
        assert (result.shape, result.dtype, result.is_contiguous()) == (exact.shape, a.dtype, True)
        excess = (result.double() - exact).abs() - bound(a, plain, scale, zero_point, activation)
        assert excess.max() <= 0, (rows, inputs, outputs, float(excess.max()))


@pytest.mark.parametrize("layout", ["columns", "rows", "packed"])
@pytest.mark.parametrize("rows", [1, 2, 4, 6, 16, 64, 300])
def test_large_weights_take_every_way_to_multiply(rows: int, layout: str) -> None:
    torch.manual_seed(0)
    qdata, plain = payload(layout, 2048, 512)
    scale, a = torch.rand(1, 512) * 0.02 + 0.001, torch.randn(rows, 2048)
    exact = a.double() @ decoded(plain, scale, None)
    for activation in ("float", *INTEGER):
        result = int8_mm(a, qdata, scale, None, activation)
        assert ((result - exact).abs() <= bound(a, plain, scale, None, activation)).all()


def test_accuracy_on_normal_data() -> None:
    torch.manual_seed(0)
    qdata, plain = payload("columns", 1024, 256)
    scale, a = torch.rand(1, 256) * 0.02 + 0.001, torch.randn(32, 1024)
    exact = a.double() @ decoded(plain, scale, None)
    assert decibels(int8_mm(a, qdata, scale, None, "int8"), exact) >= 38
    assert decibels(int8_mm(a, qdata, scale, None, "int16"), exact) >= 85
    assert decibels(int8_mm(a, qdata, scale, None, "float"), exact) >= 120


@pytest.mark.parametrize(
    ("layout", "activation", "rows", "kernel", "absent"),
    [
        ("columns", "int8", 1, "aten::_int_mm", "onednn::qlinear_pointwise"),
        ("columns", "int16", 9, "aten::_int_mm", "onednn::qlinear_pointwise"),
        ("rows", "int8", 9, "aten::_int_mm", "onednn::qlinear_pointwise"),
        ("packed", "int8", 1, "onednn::qlinear_pointwise", "aten::_int_mm"),
        ("packed", "int16", 9, "onednn::qlinear_pointwise", "aten::_int_mm"),
        ("columns", "float", 9, "aten::mm", "aten::_int_mm"),
        ("columns", "auto", 64, "aten::_int_mm", "aten::mm"),
    ],
)
def test_the_intended_kernel_ran(layout: str, activation: str, rows: int, kernel: str, absent: str) -> None:
    qdata, _ = payload(layout, 256, 512)
    names = ran(lambda: int8_mm(torch.randn(rows, 256), qdata, torch.rand(1, 512), None, activation))
    assert {"lamina::int8_mm", kernel} <= names
    assert absent not in names


@pytest.mark.parametrize("kind", ["each", "groups of both"])
def test_small_groups_are_multiplied_as_floats(kind: str) -> None:
    qdata, _ = payload("columns", 64, 32)
    scale = torch.rand(scale_shape(kind, 64, 32))
    names = ran(lambda: int8_mm(torch.randn(4, 64), qdata, scale, None, "int8"))
    assert "aten::mm" in names
    assert "aten::_int_mm" not in names


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("along_columns", [48, 16])
@pytest.mark.parametrize("activation", INTEGER)
def test_large_groups_are_multiplied_as_integers(activation: str, along_columns: int, zero_points: bool) -> None:
    torch.manual_seed(0)
    qdata, plain = payload("columns", 512, 48)
    scale = torch.rand(4, along_columns) * 0.02 + 0.001
    zero_point = torch.randint(-128, 128, scale.shape, dtype=torch.int8) if zero_points else None
    for rows in (1, 5):
        a = torch.randn(rows, 512)
        exact = a.double() @ decoded(plain, scale, zero_point)
        result = int8_mm(a, qdata, scale, zero_point, activation)
        assert ((result - exact).abs() <= bound(a, plain, scale, zero_point, activation)).all()
        assert "aten::_int_mm" in ran(lambda a=a: int8_mm(a, qdata, scale, zero_point, activation))
        a[0, 3] = math.nan
        assert int8_mm(a, qdata, scale, zero_point, activation)[0].isnan().all()


def test_auto_is_the_float_product_for_tiny_weights_only() -> None:
    for size, name in ((16, "float"), (512, "int8")):
        qdata, _ = payload("columns", size, size)
        a, scale = torch.randn(4, size), torch.rand(1, size)
        assert torch.equal(int8_mm(a, qdata, scale, None, "auto"), int8_mm(a, qdata, scale, None, name))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["columns", "packed"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_other_dtypes(activation: str, layout: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    qdata, plain = payload(layout, 64, 48)
    scale = torch.rand(1, 48) * 0.02 + 0.001
    for rows in (1, 7):
        a = torch.randn(rows, 64, dtype=dtype)
        result = int8_mm(a, qdata, scale, None, activation)
        exact = a.double() @ decoded(plain, scale, None)
        assert result.dtype is dtype
        least = {torch.float64: 300, torch.bfloat16: 44, torch.float16: 66}[dtype] if activation == "float" else 32
        assert decibels(result, exact) >= least


@pytest.mark.parametrize("layout", ["columns", "packed"])
@pytest.mark.parametrize("activation", ["float", *INTEGER])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 3e38])
def test_rows_that_integers_cannot_stand_for(bad: float, activation: str, layout: str) -> None:
    torch.manual_seed(0)
    qdata, plain = payload(layout, 64, 48)
    scale = torch.rand(1, 48) * 0.02 + 0.001
    for rows in (1, 3):
        a = torch.randn(rows, 64)
        a[0, 5] = bad
        result = int8_mm(a, qdata, scale, None, activation)
        plainly = torch.mm(a, decoded(plain, scale, None).float())
        torch.testing.assert_close(result[:1], plainly[:1], equal_nan=True)
        torch.testing.assert_close(result[1:], plainly[1:], rtol=0.1, atol=1.0)


@pytest.mark.parametrize("layout", ["columns", "packed"])
@pytest.mark.parametrize("activation", ["float", *INTEGER])
@pytest.mark.parametrize(("of_a", "of_scale"), [(1e-20, 2.6e36), (2.0**99, 1e-36), (1e-32, 1.0), (1.0, 1.2e-38)])
def test_magnitudes_at_the_ends_of_float32(of_a: float, of_scale: float, activation: str, layout: str) -> None:
    torch.manual_seed(0)
    qdata, plain = payload(layout, 512, 48)
    scale = torch.full((1, 48), of_scale)
    for rows in (1, 3):
        a = torch.randn(rows, 512).clamp(-1, 1) * of_a
        exact = a.double() @ decoded(plain, scale, None)
        result = int8_mm(a, qdata, scale, None, activation)
        assert result.isfinite().all()
        assert decibels(result.double() / of_a / of_scale, exact / of_a / of_scale) >= 38


def test_unscaled_float16_products_do_not_overflow() -> None:
    qdata = torch.full((2048, 4), 127, dtype=torch.int8)
    for activation in ACTIVATIONS:
        result = int8_mm(torch.ones(2, 2048, dtype=torch.float16), qdata, torch.full((1, 4), 1e-3), None, activation)
        torch.testing.assert_close(result, torch.full((2, 4), 2048 * 0.127, dtype=torch.float16), rtol=1e-3, atol=0)


@pytest.mark.parametrize("layout", ["columns", "packed"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_rows_of_zeros(activation: str, layout: str) -> None:
    qdata, _ = payload(layout, 512, 512)
    for rows in (1, 4):
        result = int8_mm(torch.zeros(rows, 512), qdata, torch.rand(1, 512), None, activation)
        assert torch.equal(result, torch.zeros(rows, 512))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(0, 4, 3), (2, 0, 3), (2, 4, 0), (0, 0, 0)])
def test_empty_operands(rows: int, inputs: int, outputs: int, activation: str) -> None:
    qdata = torch.zeros(inputs, outputs, dtype=torch.int8)
    result = int8_mm(torch.ones(rows, inputs), qdata, torch.ones(1, outputs), None, activation)
    assert torch.equal(result, torch.zeros(rows, outputs))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"activation": "int4"}, "activation is 'int4'"),
        ({"a": torch.ones(2, 5)}, r"a of shape \(2, 5\) can't be multiplied with qdata of \(4, 3\)"),
        ({"a": torch.ones(4)}, r"a of shape \(4,\)"),
        ({"a": torch.ones(2, 4, dtype=torch.int64)}, "a is torch.int64"),
        ({"qdata": torch.ones(4, 3, dtype=torch.uint8)}, "qdata torch.uint8"),
        ({"turned": True}, "turned qdata"),
    ],
)
def test_operands_that_do_not_fit(change: dict[str, Any], text: str) -> None:
    fitting = {
        "a": torch.ones(2, 4),
        "qdata": torch.ones(4, 3, dtype=torch.int8),
        "scale": torch.ones(1, 3),
        "zero_point": None,
        "activation": "int8",
    }
    with pytest.raises(ProductError, match=text):
        int8_mm(**fitting | change)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that")  # which opcheck of torch 2.14 reads
def test_opcheck(activation: str, zero_points: bool, turned: bool) -> None:
    qdata, _ = payload("columns", 8, 12)
    zero_point = torch.randint(-9, 9, (1, 12), dtype=torch.int8) if zero_points else None
    for dtype in (torch.float32, torch.bfloat16):
        a = torch.randn(5, 12 if turned else 8, dtype=dtype, requires_grad=True)
        torch.library.opcheck(OP, (a, qdata, torch.rand(1, 12) + 0.1, zero_point, activation, turned))


@pytest.mark.parametrize("kind", SCALES)
def test_gradcheck_of_floats(kind: str) -> None:
    qdata, _ = payload("columns", 6, 10)
    shape = scale_shape(kind, 6, 10)
    scale, zero_point = torch.rand(shape) + 0.1, torch.randint(-9, 9, shape, dtype=torch.int8)
    a = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: int8_mm(a, qdata, scale, zero_point, "float"), a)
    assert torch.autograd.gradgradcheck(lambda a: int8_mm(a, qdata, scale, zero_point, "float"), a)


@pytest.mark.parametrize("kind", ["columns", "rows", "one"])
@pytest.mark.parametrize("layout", ["columns", "packed"])
@pytest.mark.parametrize("activation", INTEGER)
def test_gradients_of_integers_are_those_of_the_decoded_product_within_the_bound(
    activation: str, layout: str, kind: str
) -> None:
    torch.manual_seed(0)
    qdata, plain = payload(layout, 64, 48)
    shape = scale_shape(kind, 64, 48)
    scale, zero_point = torch.rand(shape) * 0.02 + 0.001, torch.randint(-99, 99, shape, dtype=torch.int8)
    a, grad = torch.randn(5, 64, requires_grad=True), torch.randn(5, 48)
    int8_mm(a, qdata, scale, zero_point, activation).backward(grad)
    exact = grad.double() @ decoded(plain, scale, zero_point).t()
    limit = bound(grad, plain.t(), scale.t(), zero_point.t(), activation)
    assert ((a.grad - exact).abs() <= limit).all()


def test_gradients_are_computed_by_the_same_activation() -> None:
    qdata, _ = payload("columns", 256, 256)
    result = int8_mm(torch.randn(4, 256, requires_grad=True), qdata, torch.rand(1, 256), None, "int8").sum()
    names = ran(result.backward)
    assert {"lamina::int8_mm", "aten::_int_mm"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["columns", "packed"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_compiled_forward_and_backward_with_a_dynamic_batch(activation: str, layout: str) -> None:
    qdata, _ = payload(layout, 32, 12)
    scale = torch.rand(1, 12)

    def product(a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return int8_mm(a * 2, qdata, scale, None, activation) + 1

    compiled = torch.compile(product, fullgraph=True, dynamic=True)
    for rows in (2, 3, 9):
        a = torch.randn(rows, 32, requires_grad=True)
        b = a.detach().clone().requires_grad_()
        grad = torch.randn(rows, 12)
        result, expected = compiled(a, qdata, scale), product(b, qdata, scale)
        result.backward(grad)
        expected.backward(grad)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(a.grad, b.grad)


def test_sums_beyond_int32_are_computed_as_floats() -> None:
    a, qdata = torch.ones(1, 2**18), torch.full((2**18, 2), 127, dtype=torch.int8)
    torch.testing.assert_close(int8_mm(a, qdata, torch.ones(1, 2), None, "int8"), torch.mm(a, qdata.float()))


@pytest.mark.skipif(not SUMS_ARE_EXACT, reason="the int8 kernels of this CPU saturate")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 20])
def test_arithmetic_of_the_cuda_kernel(rows: int, zero_points: bool, kind: str, activation: str) -> None:
    """On a CPU, whose operators take the same arguments: without a device nothing else runs it."""
    torch.manual_seed(0)
    qdata, plain = payload("columns", 64, 48)
    shape = scale_shape(kind, 64, 48)
    scale = torch.rand(shape) * 0.02 + 0.001
    zero_point = torch.randint(-128, 128, shape, dtype=torch.int8) if zero_points else None
    a = torch.randn(rows, 64)
    result = cuda_mm(a, qdata, scale, zero_point, activation)
    taken = "int8" if activation == "auto" else activation
    error = (result.double() - a.double() @ decoded(plain, scale, zero_point)).abs()
    assert (error <= bound(a, plain, scale, zero_point, taken)).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device: the CUDA kernel is not run")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 64, 48), (40, 64, 48), (40, 33, 7), (5, 0, 3)])
def test_cuda_matches_cpu(rows: int, inputs: int, outputs: int, activation: str) -> None:
    torch.manual_seed(0)
    qdata, _ = payload("columns", inputs, outputs)
    a, scale = torch.randn(rows, inputs), torch.rand(1, outputs) * 0.02
    result = int8_mm(a.cuda(), qdata.cuda(), scale.cuda(), None, activation)
    torch.testing.assert_close(result.cpu(), int8_mm(a, qdata, scale, None, activation), rtol=0.1, atol=0.5)


SATURATING = """
import torch, lamina
from lamina.subclasses.scaled_int8.kernels.integers import SUMS_ARE_EXACT

assert not SUMS_ARE_EXACT
values, x = torch.rand(64, 512) + 1, torch.rand(5, 512) + 1
for activation in ("int16", "int8", "auto"):
    weight = lamina.ScaledInt8Tensor.quantize(values, activation=activation)
    torch.testing.assert_close(x @ weight.t(), x @ weight.dequantize().t(), rtol=1e-5, atol=0)
    try:
        weight.pack()
    except lamina.PackedError as error:
        assert "saturate" in str(error)
    else:
        raise AssertionError("packed")
print("done")
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the variable names instructions of x86")
def test_where_int8_sums_saturate_products_are_of_floats() -> None:
    """oneDNN's own switch makes it take the kernels of CPUs without VNNI: 30 dB where 85 are promised, if not seen."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"}
    done = subprocess.run(
        [sys.executable, "-c", SATURATING], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"scale": torch.ones(1, 7)}, r"scale has shape \(1, 7\).*divide"),
        ({"scale": torch.ones(3, 1)}, r"scale has shape \(3, 1\)"),
        ({"scale": torch.ones(1, 6, dtype=torch.int32)}, "scale torch.int32"),
        ({"scale": torch.ones(1, 6, device="meta")}, "one device"),
        ({"zero_point": torch.zeros(1, 1, dtype=torch.int8)}, r"zero_point is torch.int8 of shape \(1, 1\)"),
        ({"zero_point": torch.zeros(1, 6)}, "zero_point is torch.float32"),
        ({"a": torch.ones(3, 8).to(torch.float8_e4m3fn)}, "a is torch.float8"),
    ],
)
def test_operands_that_do_not_fit_are_named(change: dict[str, Any], text: str) -> None:
    operands = {"a": torch.ones(3, 8), "qdata": torch.ones(8, 6, dtype=torch.int8), "scale": torch.ones(1, 6)}
    operands = {**operands, "zero_point": None, **change}
    for activation in ("float", "int16", "int8", "auto"):
        with pytest.raises(ProductError, match=text):
            torch.ops.lamina.int8_mm(*operands.values(), activation)


@pytest.mark.parametrize("rows", [3, 40])
@pytest.mark.parametrize("activation", ["int16", "int8"])
def test_codes_are_made_on_the_device_of_the_activations(activation: str, rows: int) -> None:
    """Up to torch's own product, which a fake device can't run here: no tensor of the CPU is in the way."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        a = torch.empty(rows, 16, device="cuda")
        codes = encoded(a, torch.empty(rows, 1, device="cuda"), activation == "int16", unsigned=False)
    assert (codes.device.type, codes.dtype) == ("cuda", torch.int8)
    assert codes.shape == (rows * (2 if activation == "int16" else 1), 16)


@pytest.mark.parametrize("rows", [1, 3])
def test_halves_are_joined_on_the_device_of_the_products(rows: int) -> None:
    product = joined(torch.empty(2 * rows, 8, device="meta"))
    assert (product.device.type, product.shape) == ("meta", (rows, 8))


@pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="this CPU has no VNNI instructions")
@pytest.mark.skipif("ONEDNN_MAX_CPU_ISA" in os.environ, reason="oneDNN is told to leave instructions out")
def test_a_cpu_with_vnni_sums_exactly() -> None:
    """Else all tests of packed weights would be skipped, and none would say so."""
    assert SUMS_ARE_EXACT
