"""The operator ``lamina::int8_mm``: a float matrix times an int8 one, ``a @ ((qdata - zero_point) * scale)``.

``a`` is (M, K) and floating. ``qdata`` is (K, N): int8 of any strides (as ``linear`` takes a weight, the transposed
view of an (N, K) payload), or that in oneDNN's layout (``layout.packed``). ``scale`` is float32, with 1, the size of
``qdata`` or a divisor of it along each dim: the numbers of blocks; ``zero_point``, int8, has its shape. The result is
(M, N), of the dtype of ``a``.

``activation`` says how ``a`` takes part: ``"float"`` as it is; ``"int16"`` and ``"int8"`` as integers with a step for
each row, see ``kernels.activations`` for the bounds of the error; ``"auto"`` in whichever of the three is the fastest
for these shapes. Where ``scale`` varies along K only, it is applied to ``a`` before that is rounded. Where it varies
along both dims, there is an integer product for each group along K; groups of fewer than 128 are multiplied as floats,
which is faster (``kernels.groups``), as are all such weights in the gradient and on CUDA.

Sums are of integers and exact: on CPUs whose int8 kernels saturate (those without VNNI instructions), all products are
``"float"``. So is, on a CPU, a call where ``a`` holds NaN, an infinity, a magnitude from 2^100 on, or a row whose peak
is below 2^-108 and not zero; on CUDA rows of the first three kinds are NaN. float64 is rounded to float32 first.

With ``turned`` the int8 operands are transposed first. Differentiable in ``a`` alone, by the same activation and with
``turned`` the other way. So for the integer ones it is the gradient of the product with the decoded weight, off by the
same bound: at most ``s (1/2 + 2^-8) sum_n |w_kn|`` for a row of ``grad`` with step ``s``. Where scales vary along N,
the row is ``grad`` times those scales, and ``w`` is without them. ``qdata``, ``scale`` and ``zero_point`` get none.

Operands of other shapes or dtypes, on several devices, and an ``activation`` of another name raise ``ProductError``.

Registered as a schema with kernels: a call costs 2.4 us and, where autograd is on, 6.4; ``custom_op`` takes 11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from .errors import ProductError
from .kernels.cpu import cpu_mm
from .kernels.cuda import cuda_mm
from .layout import unpacked
from .library import LIBRARY
from .numerics import FLOATING

Kernel: TypeAlias = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, str], torch.Tensor]

ACTIVATIONS = ("float", "int16", "int8", "auto")

LIBRARY.define(
    "int8_mm(Tensor a, Tensor qdata, Tensor scale, Tensor? zero_point, str activation, bool turned=False) -> Tensor"
)
# The operator itself: a function around it would be one more Python frame for each product.
int8_mm: Callable[..., torch.Tensor] = torch.ops.lamina.int8_mm.default


def _checked(kernel: Kernel) -> Callable[..., torch.Tensor]:
    """The registered form of a kernel: it checks its operands and turns them."""

    def checked_mm(
        a: torch.Tensor,
        qdata: torch.Tensor,
        scale: torch.Tensor,
        zero_point: torch.Tensor | None,
        activation: str,
        turned: bool = False,
    ) -> torch.Tensor:
        _check(a, qdata, scale, zero_point, activation, turned)
        if turned:
            # The packed layout is for products from one side.
            qdata = unpacked(qdata) if qdata.is_mkldnn else qdata.t()
            scale, zero_point = scale.t(), zero_point if zero_point is None else zero_point.t()
        return kernel(a, qdata, scale, zero_point, activation)

    return checked_mm


def _fake_mm(
    a: torch.Tensor, qdata: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor | None, activation: str
) -> torch.Tensor:
    return a.new_empty((a.shape[0], qdata.shape[1]))


def _check(
    a: torch.Tensor,
    qdata: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    activation: str,
    turned: bool,
) -> None:
    if activation not in ACTIVATIONS:
        raise ProductError(f"lamina::int8_mm: activation is {activation!r}; it has to be one of {ACTIVATIONS}")
    if not (a.dim() == qdata.dim() == scale.dim() == 2) or a.shape[1] != qdata.shape[1 if turned else 0]:
        raise ProductError(
            f"lamina::int8_mm: a of shape {tuple(a.shape)} can't be multiplied with {'turned ' * turned}qdata of "
            f"{tuple(qdata.shape)} and scale of {tuple(scale.shape)}; they have to be (M, K), (K, N), and of 2 dims"
        )
    if a.dtype not in FLOATING or qdata.dtype is not torch.int8 or scale.dtype is not torch.float32:
        raise ProductError(
            f"lamina::int8_mm: a is {a.dtype}, qdata {qdata.dtype} and scale {scale.dtype}; a has to be one of "
            f"{FLOATING}, qdata torch.int8 and scale torch.float32"
        )
    (rows, columns), (groups, sets) = qdata.shape, scale.shape  # no loop: each costs 1 us
    if (rows != groups and (groups == 0 or rows % groups)) or (columns != sets and (sets == 0 or columns % sets)):
        raise ProductError(
            f"lamina::int8_mm: scale has shape {tuple(scale.shape)}; along each dim it has to divide qdata's "
            f"{tuple(qdata.shape)}"
        )
    if zero_point is not None and (zero_point.dtype is not torch.int8 or zero_point.shape != scale.shape):
        raise ProductError(
            f"lamina::int8_mm: zero_point is {zero_point.dtype} of shape {tuple(zero_point.shape)}; it has to be "
            f"torch.int8, of scale's shape {tuple(scale.shape)}"
        )
    device = a.device
    if qdata.device != device or scale.device != device or (zero_point is not None and zero_point.device != device):
        raise ProductError("lamina::int8_mm: a, qdata, scale and zero_point have to be on one device")


def _save(ctx: Any, inputs: Any, output: torch.Tensor) -> None:
    _, qdata, scale, zero_point, ctx.activation, ctx.turned = inputs
    ctx.save_for_backward(qdata, scale, zero_point)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    # Turned inside the operator: a compiler could not know that qdata is packed, and would transpose it.
    qdata, scale, zero_point = ctx.saved_tensors
    return int8_mm(grad, qdata, scale, zero_point, ctx.activation, not ctx.turned), None, None, None, None, None


LIBRARY.impl("int8_mm", _checked(cpu_mm), "CPU")
LIBRARY.impl("int8_mm", _checked(cpu_mm), "MkldnnCPU")
LIBRARY.impl("int8_mm", _checked(cuda_mm), "CUDA")
torch.library.register_fake("lamina::int8_mm", _checked(_fake_mm), lib=LIBRARY)
torch.library.register_autograd("lamina::int8_mm", _backward, setup_context=_save, lib=LIBRARY)
