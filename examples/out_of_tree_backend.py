"""A backend from outside PyTorch: the slots that its operators take, a fallback for those without a kernel, autograd.

Run it: python examples/out_of_tree_backend.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from numpy_backend import mapped, on_cpu
from torch import Tensor

from lamina import Log, LoggingTensor, ScaledInt8Tensor
from lamina.modes import DispatcherTrace, dispatch_keys

ALL = torch.library.Library("_", "IMPL")
fell_back: list[str] = []


def fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operator, on the CPU: what it writes to is the arguments' memory, what it returns anew is copied."""
    fell_back.append(op.name())
    twins: list[tuple[Tensor, Tensor, Any]] = []

    def there(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return torch.device("cpu") if isinstance(value, torch.device) else value
        twin = on_cpu(value) if value.numel() else torch.empty(value.shape, dtype=value.dtype)  # which can grow
        twins.append((value, twin, twin.untyped_storage()))
        return twin

    def back(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if any(memory is value.untyped_storage() and twin is not value for _, twin, memory in twins):
            raise NotImplementedError(f"{op.name()} shares memory, for which 'arrays' needs a kernel of its own")
        own = [mine for mine, twin, _ in twins if twin is value]
        return own[0] if own else value.to("arrays")

    results = mapped(back, op(*mapped(there, args), **{name: mapped(there, value) for name, value in kwargs.items()}))
    for mine, twin, _ in twins:
        if mine.shape != twin.shape:
            mine.data = twin.to("arrays")
    return results


def shown(title: str, op: str, call: Callable[[], Any]) -> None:
    """Print which slots the operator took in a call."""
    with DispatcherTrace() as trace:
        try:
            outcome = f"a result on {call().device}"
        except NotImplementedError as error:
            outcome = f"{type(error).__name__}: {str(error).partition('. ')[0]}"
    print(title)
    for each in trace.decisions:
        if each.slot and each.op.partition(".")[0] == op:
            print(f"    {each.op} at {each.key}: {each.slot.kernel.value}")
    print(f"    {outcome}")


def trained(device: str) -> Any:
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(3, 4).to(device), torch.randn(2, 3).to(device)
    torch.sigmoid(layer(x)).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    return layer


def lamina_types(x: Tensor, w: Tensor) -> None:
    logged = LoggingTensor(x).requires_grad_()
    with Log() as log:
        torch.sigmoid(logged @ w.t()).sum().backward()
    print(f"LoggingTensor on {logged.device}", *log.by_phase.items(), sep="\n    ")
    weight: Any = torch.nn.Parameter(ScaledInt8Tensor.quantize(w))
    y = F.linear(x, weight)
    y.sum().backward()
    same = torch.allclose(y.cpu(), F.linear(x.cpu(), weight.cpu()))
    print(f"ScaledInt8Tensor on {weight.device}, as on the CPU: {same}; gradient {weight.grad.tolist()}")


if __name__ == "__main__":
    x, w = torch.ones(3, 3).to("arrays"), torch.randn(4, 3).to("arrays")
    print("accelerator:", torch.accelerator.current_accelerator(), "keys:", *dispatch_keys(x).keys)
    shown("a kernel", "aten::mm", lambda: torch.mm(x, w.t()))
    shown("no kernel", "aten::sigmoid", lambda: torch.sigmoid(x))
    ALL.fallback(fallback, "PrivateUse1")
    shown("the fallback", "aten::sigmoid", lambda: torch.sigmoid(x))
    with torch.autocast("arrays"):
        shown("autocast", "aten::mm", lambda: torch.mm(x, x))
        ALL.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
        shown("autocast, with a fallthrough", "aten::mm", lambda: torch.mm(x, x))
    ours, cpu = trained("arrays"), trained("cpu")
    print("after a training step; the fallback took", *dict.fromkeys(fell_back))
    for name, here, there in (("gradient", ours.weight.grad, cpu.weight.grad), ("weight", ours.weight, cpu.weight)):
        print(f"{name} on {here.device}, as on the CPU: {torch.allclose(here.cpu(), there)}")
    lamina_types(x, w)
