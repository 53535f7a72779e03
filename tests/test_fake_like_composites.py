"""Composite operators in compiled code over FakeLikeTensors: they have their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lamina import FakeLikeTensor
from lamina.modes import FakeLikeMode

WITHOUT_GRADIENTS = {"item", "is_complex", "sym_numel", "where"}
ONE_KERNEL = {"mish_backward", "silu_backward"}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def labels(x: Tensor) -> Tensor:
    return torch.zeros(4, dtype=torch.int64, device=x.device)


CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "cross_entropy": lambda x: F.cross_entropy(x, labels(x)),
    "nll_loss": lambda x: F.nll_loss(x, labels(x), reduction="sum"),
    "var": lambda x: x.var(0),
    "std": lambda x: x.std(),
    "std_mean": lambda x: torch.std_mean(x, 0)[0],
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "relu6": F.relu6,
    "selu": F.selu,
    "prelu": lambda x: F.prelu(x, x.new_ones(1)),
    "rms_norm": lambda x: F.rms_norm(x, (5,)),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.1, training=True),
    "hinge_embedding_loss": lambda x: F.hinge_embedding_loss(x, x.detach()),
    "margin_ranking_loss": lambda x: F.margin_ranking_loss(x, x.detach(), x.detach()),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x.detach()),
    "pdist": F.pdist,
    "ndtr": torch.special.ndtr,
    "rfft": lambda x: torch.fft.rfft(x).abs(),
    "fftn": lambda x: torch.fft.fftn(x).abs(),
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij")[0],
    "in place": lambda x: (x * 1).square_().true_divide_(2.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_composite_in_compiled_code_has_its_gradient(name: str) -> None:
    call = CALLS[name]
    with FakeLikeMode("cuda"):
        x = torch.ones(4, 5, requires_grad=True)
        torch.compile(lambda x: call(x).sum(), backend="aot_eager", fullgraph=True)(x).backward()
    assert type(x.grad) is FakeLikeTensor
    assert (x.grad.shape, x.grad.device) == (x.shape, x.device)


def test_all_of_them_are_known() -> None:
    """Those that torch gives a Python function on the meta device, and that have a composite kernel."""
    import torch._inductor.decomposition
    import torch._meta_registrations

    keys = torch._C.DispatchKey
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if not name.startswith("aten::") or overload.endswith("out") or packet.startswith("__"):
            continue
        if torch.__version__ < "2.12" and "name" in overload:  # dims with names
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        others = {keys.AutogradMeta, keys.Autograd, keys.CompositeImplicitAutograd} & op.py_kernels.keys()
        if composite and keys.Meta in op.py_kernels and not others:
            assert packet in WITHOUT_GRADIENTS | ONE_KERNEL, f"{name} is missing in composites.py"
