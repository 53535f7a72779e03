"""torch.compile for the measurements: whether this machine can, without chatter, with its graphs counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import torch

from ..subclasses.interop.quiet import errors_only

EAGER, COMPILED = "eager", "compiled"
MANY = 64
CHATTER = (
    "torch._dynamo.variables.ctx_manager",  # that a compiled optimizer leaves out the profiler's mark of its own step
    "torch._inductor.utils",  # that the cache is kept after an error: it is not
)


def missing_compiler() -> str | None:
    """Why nothing can be compiled here, or None. Asks Inductor, which goes by the environment's CXX."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "torch.compile needs a C++ compiler and found none. Install g++, or name another one in CXX."
    return None


@contextmanager
def compiling() -> Iterator[None]:
    """Inductor in one process, with room for many compilations of the same code."""
    import torch._dynamo.config
    import torch._inductor.config

    with ExitStack() as scopes:
        scopes.enter_context(errors_only(*CHATTER))
        # One compiling process, this one: none to start, and none to outlive Ctrl-C.
        scopes.enter_context(torch._inductor.config.patch(compile_threads=1))
        # All models run the same code, and an optimizer's is compiled twice: before it has momenta, and after.
        scopes.enter_context(torch._dynamo.config.patch(recompile_limit=MANY))
        yield


@contextmanager
def empty_cache() -> Iterator[None]:
    """Nothing that an earlier run compiled is used, so that compile times mean the same in each; gone at the end."""
    from torch._inductor.utils import fresh_cache

    with compiling(), TemporaryDirectory(prefix="lamina-compiled-") as folder, fresh_cache(dir=folder):
        yield


@contextmanager
def traced_backward() -> Iterator[None]:
    """What is compiled inside may call `backward()`."""
    import torch._dynamo.config

    with torch._dynamo.config.patch(trace_autograd_ops=True):
        yield


class CountingInductor:
    """A backend for torch.compile: Inductor, and how many graphs it was given.

    Each model has its own. Dynamo keeps what it compiled by code and backend, so that it then never looks through what
    belongs to the other models, which would cost those that come last.
    """

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        from torch._inductor.compile_fx import compile_fx

        self.graphs += 1
        return compile_fx(graph, inputs)
