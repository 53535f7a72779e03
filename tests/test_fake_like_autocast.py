"""autocast on FakeLikeTensors: the policy of the claimed device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import lamina
from lamina.modes import DispatchLog, FakeLikeMode

LOW = torch.bfloat16
Make = Callable[[], Any]


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


ON_CPU: dict[str, Make] = {
    "linear": lambda: F.linear(ones(2, 3), ones(4, 3), ones(4)),
    "matmul": lambda: ones(2, 3, 3) @ ones(3, 3),
    "einsum": lambda: torch.einsum("ij,kj->ik", ones(2, 3), ones(4, 3)),
    "bmm": lambda: torch.bmm(ones(2, 3, 4), ones(2, 4, 3)),
    "addmm": lambda: torch.addmm(ones(2, 2), ones(2, 3), ones(3, 2)),
    "baddbmm of both": lambda: torch.baddbmm(ones(1, 2, 2), ones(1, 2, 3, dtype=LOW), ones(1, 3, 2)),
    "conv2d": lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 2, 2)),
    "conv_transpose2d": lambda: F.conv_transpose2d(ones(1, 3, 4, 4), ones(3, 2, 2, 2)),
    "prelu": lambda: F.prelu(ones(2, 3, dtype=LOW), ones(1)),
    "attention": lambda: F.scaled_dot_product_attention(*(ones(1, 2, 4, 8) for _ in range(3))),
    "float64": lambda: ones(2, 3, dtype=torch.float64) @ ones(3, 2, dtype=torch.float64),
    "int64": lambda: ones(2, 3, dtype=torch.int64) @ ones(3, 2, dtype=torch.int64),
    "mse_loss": lambda: F.mse_loss(ones(2, 3, dtype=LOW), ones(2, 3, dtype=LOW)),
    "cross_entropy": lambda: F.cross_entropy(ones(2, 3, dtype=LOW), torch.zeros(2, dtype=torch.int64)),
    "nll_loss": lambda: F.nll_loss(ones(2, 3, dtype=LOW), torch.zeros(2, dtype=torch.int64)),
    "binary_cross_entropy": lambda: F.binary_cross_entropy(ones(2, dtype=LOW), ones(2, dtype=LOW)),
    "avg_pool3d": lambda: F.avg_pool3d(ones(1, 1, 2, 2, 2, dtype=LOW), 2),
    "prod": lambda: torch.prod(ones(2, 3, dtype=LOW)),
    "softmax": lambda: F.softmax(ones(2, 3, dtype=LOW), -1),
    "layer_norm": lambda: F.layer_norm(ones(2, 3, dtype=LOW), [3]),
    "cat": lambda: torch.cat([ones(2, dtype=LOW), ones(2)]),
    "stack": lambda: torch.stack([ones(2, dtype=LOW), ones(2, dtype=LOW)]),
    "index_copy": lambda: torch.index_copy(ones(3), 0, torch.zeros(1, dtype=torch.int64), ones(1, dtype=LOW)),
    "add of both": lambda: ones(2) + ones(2, dtype=LOW),
    "sum": lambda: ones(2, dtype=LOW).sum(),
    "interpolate": lambda: F.interpolate(ones(1, 1, 2, 2, dtype=LOW), scale_factor=2),
}


def seen(make: Make) -> tuple[torch.dtype, list[str]]:
    with torch.autocast("cpu", dtype=LOW), DispatchLog() as log:
        out = make()
    return out.dtype, [str(record).partition("(")[0] for record in log.log.records]


@pytest.mark.parametrize("name", ON_CPU)
def test_a_claim_of_the_cpu_casts_where_the_real_cpu_casts(name: str) -> None:
    real = seen(ON_CPU[name])
    with FakeLikeMode():
        fake = seen(ON_CPU[name])
    assert fake == real


ON_CUDA: dict[str, tuple[Make, torch.dtype]] = {
    "linear": (lambda: F.linear(ones(2, 3), ones(4, 3)), LOW),
    "matmul": (lambda: ones(2, 3) @ ones(3, 2), LOW),
    "einsum": (lambda: torch.einsum("ij,kj->ik", ones(2, 3), ones(4, 3)), LOW),
    "conv2d": (lambda: F.conv2d(ones(1, 3, 4, 4), ones(2, 3, 2, 2)), LOW),
    "attention": (lambda: F.scaled_dot_product_attention(*(ones(1, 2, 4, 8) for _ in range(3))), LOW),
    "softmax": (lambda: F.softmax(ones(2, 3, dtype=LOW), -1), torch.float32),
    "softmax to a dtype": (lambda: F.softmax(ones(2, 3), -1, dtype=LOW), LOW),
    "sum": (lambda: ones(2, dtype=LOW).sum(), torch.float32),
    "cumsum": (lambda: ones(2, dtype=LOW).cumsum(0), torch.float32),
    "norm": (lambda: ones(2, dtype=LOW).norm(), torch.float32),
    "norm by dims": (lambda: torch.ops.aten.norm.ScalarOpt_dim(ones(2, 2, dtype=LOW), 2, [0]), torch.float32),
    "layer_norm": (lambda: F.layer_norm(ones(2, 3, dtype=LOW), [3]), torch.float32),
    "exp": (lambda: ones(2, dtype=LOW).exp(), torch.float32),
    "pow": (lambda: ones(2, dtype=LOW) ** 2, torch.float32),
    "cross_entropy": (lambda: F.cross_entropy(ones(2, 3, dtype=LOW), torch.zeros(2, dtype=torch.int64)), torch.float32),
    "addcmul": (lambda: torch.addcmul(ones(2, dtype=LOW), ones(2), ones(2, dtype=LOW)), torch.float32),
    "addcmul, narrow": (lambda: torch.addcmul(*(ones(2, dtype=LOW) for _ in range(3))), LOW),
    "cat": (lambda: torch.cat([ones(2, dtype=LOW), ones(2)]), torch.float32),
    "relu": (lambda: ones(2, dtype=LOW).relu(), LOW),
    "float64": (lambda: ones(2, 2, dtype=torch.float64).exp(), torch.float64),
}


@pytest.mark.parametrize("name", ON_CUDA)
def test_a_claim_of_cuda_casts_by_cudas_policy_without_cuda(name: str) -> None:
    make, expected = ON_CUDA[name]
    with FakeLikeMode("cuda"), torch.autocast("cuda", dtype=LOW):
        out = make()
    assert (out.dtype, out.device.type) == (expected, "cuda")


def test_float16_is_the_default_and_disabled_scopes_cast_nothing() -> None:
    with FakeLikeMode("cuda"), torch.autocast("cuda"):
        assert (ones(2, 2) @ ones(2, 2)).dtype is torch.float16
        with torch.autocast("cuda", enabled=False):
            assert (ones(2, 2) @ ones(2, 2)).dtype is torch.float32
        assert (ones(2, 2, dtype=LOW).cpu() @ ones(2, 2).cpu().bfloat16()).dtype is LOW
        assert (ones(2, 2).cpu() @ ones(2, 2).cpu()).dtype is torch.float32


def test_binary_cross_entropy_is_refused_as_on_cuda() -> None:
    with FakeLikeMode("cuda"), torch.autocast("cuda"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(ones(2), ones(2))


def test_gradients_come_in_the_dtype_of_the_weight_and_a_weight_is_cast_once() -> None:
    with FakeLikeMode("cuda"):
        layer, x = nn.Linear(3, 3, bias=False), ones(2, 3)
        with torch.autocast("cuda", dtype=LOW), DispatchLog() as log:
            layer(x)
            layer(x)
        casts = [r for r in log.log.records if "_to_copy" in str(r) and "[3, 3]" in str(r)]
        assert len(casts) == 1
        with torch.autocast("cuda", dtype=LOW), DispatchLog() as log:
            loss = layer(x).sum()
        assert sum("_to_copy" in str(r) and "[3, 3]" in str(r) for r in log.log.records) == 1
        loss.backward()
    assert (layer.weight.grad.dtype, layer.weight.grad.device.type) == (torch.float32, "cuda")


def test_what_a_checkpoint_recomputes_is_cast_again() -> None:
    with FakeLikeMode("cuda"):
        layer, dtypes = nn.Linear(3, 3), []

        def block(x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = layer(x)
            dtypes.append(out.dtype)
            return out.relu()

        with torch.autocast("cuda", dtype=LOW):
            out = checkpoint(block, ones(2, 3).requires_grad_(), use_reentrant=False)
        out.sum().backward()
    assert dtypes == [LOW, LOW]


def test_a_gradient_scaler_is_on_without_cuda() -> None:
    with FakeLikeMode("cuda"):
        scaler = torch.amp.GradScaler("cuda")
        assert scaler.is_enabled()


def test_nothing_of_it_stays_behind() -> None:
    enabled = torch.is_autocast_enabled("ipu")
    with FakeLikeMode("cuda"), torch.autocast("cuda"):
        ones(2, 2) @ ones(2, 2)
    assert torch.is_autocast_enabled("ipu") == enabled
    assert (ones(2, 2) @ ones(2, 2)).dtype is torch.float32
    if not torch.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available"):
            torch.autocast("cuda")


def test_autocast_of_a_device_without_a_known_policy_is_refused() -> None:
    with FakeLikeMode("xpu"), torch.autocast("xpu"), pytest.raises(lamina.UndecidedError, match="xpu"):
        ones(2, 2) @ ones(2, 2)


REFUSED = pytest.raises(lamina.UndecidedError, match=r"autocast\(\"cpu\"\) is on, and outside FakeLikeMode")
OUTSIDE: dict[str, Callable[[torch.Tensor], Any]] = {
    "mm": lambda x: x @ x,
    "linear": lambda x: F.linear(x, x),
    "conv2d": lambda x: F.conv2d(x[None, None], x[None, None]),
    "softmax": lambda x: F.softmax(x, -1),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "add": lambda x: x + x,
    "add_": lambda x: x.add_(1),
    "logged": lambda x: lamina.LoggingTensor(x) @ x,
    "foreach": lambda x: torch._foreach_add([x], 1),
    "keyword": lambda x: torch.sum(input=x),
}


@pytest.mark.parametrize("grad", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("name", OUTSIDE)
def test_outside_the_mode_autocast_is_refused(name: str, grad: Any) -> None:
    x = lamina.FakeLikeTensor.from_tensor(ones(4, 4))
    with grad():
        OUTSIDE[name](x)
        for _ in range(2):  # what was seen before, too
            with torch.autocast("cpu", dtype=LOW), REFUSED:
                OUTSIDE[name](x)
        OUTSIDE[name](x)


def test_outside_the_mode_what_autocast_leaves_alone_goes_on() -> None:
    x = lamina.FakeLikeTensor.from_tensor(ones(4, 4))
    with torch.autocast("cpu", dtype=LOW):
        assert x.view(2, 8).t().dtype is torch.float32
        with torch.autocast("cpu", enabled=False):
            assert (x @ x).dtype is torch.float32
        far = lamina.FakeLikeTensor.from_tensor(x, "cuda")
        assert (far @ far).dtype is torch.float32
        with FakeLikeMode():
            assert (x @ x).dtype is LOW
            assert torch.cholesky_inverse(x).dtype is torch.float32
        with REFUSED:
            x @ x


def test_outside_the_mode_a_compiled_step_under_autocast_is_refused() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=LOW):
            return x @ x

    x = lamina.FakeLikeTensor.from_tensor(ones(4, 4))
    with pytest.raises(Exception, match=r"outside FakeLikeMode"):
        torch.compile(step, backend="aot_eager", fullgraph=True)(x)
