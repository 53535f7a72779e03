"""How PyTorch picks a kernel, in nine short experiments.

Run it: python examples/how_dispatch_works.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from lamina import LoggingTensor
from lamina.modes import DispatcherTrace, DispatchLog, FunctionLog, dispatch_keys, explain_table, why


def shown(title: str, *lines: object) -> None:
    """Print one experiment."""
    print(f"\n{title}")
    for line in lines:
        print(f"  {line}")


def keys_and_grad_modes() -> None:
    plain, x, lines = torch.ones(2), torch.ones(2, requires_grad=True), []
    shown("1. A tensor carries keys, and requires_grad adds none", dispatch_keys(plain).keys, dispatch_keys(x).keys)
    for scope in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with scope():
            given = torch.ones(2) if scope is torch.inference_mode else x
            with DispatcherTrace() as trace:
                y = given.exp()
        path = [each.key for each in trace.decisions if each.key]
        lines.append(f"{scope.__name__:<15} {' > '.join(path):<18} grad_fn {type(y.grad_fn).__name__}")
    shown("2. no_grad takes the same path and records nothing; in inference_mode there is no Autograd key", *lines)


def layers() -> None:
    wrapped = LoggingTensor(torch.ones(2)).requires_grad_()
    with FunctionLog(), DispatchLog(), DispatcherTrace() as trace:
        wrapped.exp()
    order = [each.layer if each.layer != "dispatcher" else each.key for each in trace.decisions if "exp" in each.op]
    shown("3. The order: function mode, autograd, dispatch mode, subclass, backend", " > ".join(map(str, order)))


def autocast_and_meta() -> None:
    x, w = torch.ones(2, 3), torch.ones(4, 3)
    with torch.autocast("cpu", torch.bfloat16):
        decision, dtype = why("aten::linear", x, w), F.linear(x, w).dtype
    shown("4. Autocast stands above autograd", f"{decision.key}: {decision.slot}; the result is {dtype}")
    huge = torch.ones(4096, 4096, device="meta") @ torch.ones(4096, 4096, device="meta")
    try:
        huge.tolist()
    except (RuntimeError, NotImplementedError) as error:
        refused = str(error).splitlines()[0]
    shown("5. A meta tensor has a shape and no memory", tuple(huge.shape), refused)


def overloads() -> None:
    x, linear = torch.ones(2), explain_table("aten::linear")
    shown(
        "6. Overloads are operators of their own", torch.ops.aten.add.overloads()[:3], torch.add(x, x, alpha=3).tolist()
    )
    shown(
        "7. One kernel, made of other operators, can fill all slots",
        *(f"{key}: {linear[key]}" for key in ("CPU", "CUDA")),
    )


@torch.library.custom_op("how_dispatch_works::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    """An operator of one's own, with a kernel and no derivative."""
    return x**3


def derivative() -> None:
    x = torch.tensor([2.0], dtype=torch.float64, requires_grad=True)
    try:
        cube(x).backward()
    except RuntimeError as error:
        lost = str(error).partition(", ")[0]
    cube.register_autograd(
        lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),  # noqa: ARG005
    )
    shown("8. A kernel is no derivative", lost, f"with one, gradcheck: {torch.autograd.gradcheck(cube, x)}")


def missing() -> None:
    x = torch.eye(2).to_sparse()
    with DispatcherTrace() as trace:
        try:
            torch.cumsum(x, 0)
        except NotImplementedError as error:
            text = str(error).partition(".")[0]
    shown("9. A slot without a kernel is an error", f"{trace.decisions[-1].key}: {trace.decisions[-1].slot}", text)


if __name__ == "__main__":
    for experiment in (keys_and_grad_modes, layers, autocast_and_meta, overloads, derivative, missing):
        experiment()
