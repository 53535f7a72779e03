"""Tracers and compilers: what they look at, what they made, when they are at work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

# Tensor types of torch's own tracers: among the ``types`` of a call they count as plain tensors.
TRACERS: tuple[type, ...] = (FakeTensor, FunctionalTensor)

# AOTAutograd of these versions says the symbolic sizes of a result once more, where its strides should stand.
MIXES_UP_STRIDES = torch.__version__ < "2.12"


def is_tracing() -> bool:
    """Dynamo, export or ``make_fx`` is at work. Their modes are off inside a handler of ours, and can't be asked."""
    return torch.compiler.is_compiling() or bool(torch.fx._symbolic_trace.is_fx_symbolic_tracing())


def cache_key(tensor: torch.Tensor) -> Any:
    """The metadata of a plain tensor that the compile cache tells tensors apart by."""
    from torch._inductor.codecache import extract_tensor_metadata_for_cache_key

    return extract_tensor_metadata_for_cache_key(tensor)


def accept_plain_tangents(coerce: Callable[[torch.Tensor, Any, Any], Any]) -> None:
    """Lets AOTAutograd ask ``coerce(tangent, context, expected_type)`` of a plain tangent where a wrapper was traced.

    It asks a method of the tangent, and plain tensors have none: so torch.Tensor gets one. None means what the
    lack of it means.
    """
    torch.Tensor.__coerce_same_metadata_as_tangent__ = coerce  # type: ignore[attr-defined]


def never_compile(function: Callable[..., Any]) -> None:
    """Dynamo passes by the function, and by all that it calls. ``torch._dynamo.disable`` costs a frame, an import."""
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


def mark_dynamic(tensor: torch.Tensor, dim: int) -> None:
    """The size along ``dim`` is symbolic in what Dynamo compiles next. Imports Dynamo (1 s)."""
    import torch._dynamo

    torch._dynamo.mark_dynamic(tensor, dim)


def package_ahead_of_time(program: torch.export.ExportedProgram, path: Path) -> Callable[..., Any]:
    """Compiles an exported program with AOTInductor, in this process, and loads what came of it. Needs a C++ compiler.

    These functions are documented, and live in a module that is not.
    """
    import torch._inductor as inductor

    package = inductor.aoti_compile_and_package(
        program, package_path=str(path), inductor_configs={"compile_threads": 1}
    )
    return cast(Callable[..., Any], inductor.aoti_load_package(package))


def compiler_of_backend(backend: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function behind the name of a ``torch.compile`` backend. Imports Dynamo (1 s)."""
    from torch._dynamo.backends.registry import lookup_backend

    return cast(Callable[..., Any], lookup_backend(backend))


def with_graph_observer(
    observe: Callable[[torch.fx.GraphModule, bool], None], compile_graph: Callable[..., Any], *args: Any, **options: Any
) -> Any:
    """``compile_graph(*args, **options)``, with ``observe(graph, is_backward)`` called for each graph that AOTAutograd
    hands to a compiler, then or later (a backward is compiled when it first runs).

    The one place that all backends pass: they differ in how they take their compilers, and Dynamo holds a lock while it
    compiles. On a hit of AOTAutograd's cache nothing is compiled, hence nothing seen: the cache is off meanwhile.
    """
    from unittest import mock

    import torch._functorch.aot_autograd as module

    compile_stage = module.aot_stage2_compile  # type: ignore[attr-defined]

    def watched(compiler: Callable[..., Any], backward: bool) -> Callable[..., Any]:
        def compile_part(graph: torch.fx.GraphModule, inputs: Any) -> Any:
            observe(graph, backward)
            return compiler(graph, inputs)

        return compile_part

    def stage(
        state: Any, capture: Any, partition: Any, forward: Any, backward: Any = None, inference: Any = None
    ) -> Any:
        compilers = watched(forward, False), watched(backward or forward, True), watched(inference or forward, False)
        return compile_stage(state, capture, partition, *compilers)

    caches = "should_use_local_autograd_cache", "should_use_remote_autograd_cache"
    meanwhile: dict[str, Any] = {"aot_stage2_compile": stage, **dict.fromkeys(caches, lambda: False)}
    with mock.patch.multiple(module, **meanwhile):
        return compile_graph(*args, **options)


def frames_compiled() -> int:
    """How many frames Dynamo has compiled in this process. Does not import Dynamo."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return 0 if dynamo is None else cast(int, dynamo.FRAME_COUNTER)


def on_compiled_calls(observe: Callable[[], None]) -> Callable[[], None] | None:
    """Calls ``observe()`` in the calling thread, each time a function made by ``torch.compile`` is called, until the
    function that is returned is called. None, and nothing done, where Dynamo isn't loaded: it takes 1 s to import.

    Dynamo has hooks for compilations and none for calls; this is the one function that each call passes.
    """
    dynamo: Any = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None or not hasattr(dynamo, "_callback_from_stance"):
        return None
    original = dynamo._callback_from_stance

    def callback_from_stance(callback: Any) -> Any:
        chosen = original(callback)
        if chosen is not None:  # None: run as plain Python
            observe()
        return chosen

    dynamo._callback_from_stance = callback_from_stance

    def undo() -> None:
        dynamo._callback_from_stance = original

    return undo
