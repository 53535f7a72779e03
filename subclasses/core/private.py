"""Every use of private torch API in lamina. Checked on torch 2.13.0.

Each name says what it does in our words; the comment gives the reason there is no public way.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from types import CodeType
from typing import Any, cast

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["OpOverload", "OpOverloadPacket", "TorchDispatchMode"]

# The only constructor of wrapper tensors. Called straight (never as ``cls(...)``): ``type.__call__`` adds 4 us.
make_wrapper: Callable[..., Any] = torch.Tensor._make_wrapper_subclass

# Gives a view the outer storage of its base, so that torch's alias analysis sees the two as one (0.25 us).
share_storage: Callable[[torch.Tensor, torch.Tensor], None] = torch._functionalize_unsafe_set

set_conj: Callable[[torch.Tensor, bool], None] = torch._C._set_conj
set_neg: Callable[[torch.Tensor, bool], None] = torch._C._set_neg

# Turns a class's ``__torch_function__`` off, in C: 5.4 us an op and 1.7 us a ``.shape`` cheaper than a Python one.
disabled_torch_function: Any = torch._C._disabled_torch_function_impl
without_torch_function: Callable[[], Any] = torch._C.DisableTorchFunctionSubclass

# Tensor types of torch's own tracers: among the ``types`` of a call they count as plain tensors.
TRACERS: tuple[type, ...] = (FakeTensor, FunctionalTensor)

CONJUGATE = torch._C.DispatchKey.Conjugate
NEGATIVE = torch._C.DispatchKey.Negative
is_excluded: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_excluded
set_excluded: Callable[[Any, bool], None] = torch._C._dispatch_tls_set_dispatch_key_excluded


def with_math_bits(run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls ``run`` with the Conjugate and Negative keys active.

    Torch excludes both inside ``__torch_dispatch__``; a kernel that conjugates on the way (``linalg.pinv``) then reads
    its own intermediate without the bit, and is silently wrong. The saved state is restored (0.6 us).
    """
    conjugate, negative = is_excluded(CONJUGATE), is_excluded(NEGATIVE)
    set_excluded(CONJUGATE, False)
    set_excluded(NEGATIVE, False)
    try:
        return run(*args, **kwargs)
    finally:
        set_excluded(CONJUGATE, conjugate)
        set_excluded(NEGATIVE, negative)


def outside_inference_mode(run: Callable[..., Any], *args: Any) -> Any:
    """Calls ``run`` as if inference mode were off, below autograd and without grad.

    A view made under inference mode of a wrapper made outside fails in torch ("Cannot set version_counter for
    inference tensor"); made this way it is an ordinary tensor and works.
    """
    with torch._C._InferenceMode(False), torch._C._AutoDispatchBelowAutograd(), torch.no_grad():
        return run(*args)


@contextmanager
def below_python() -> Iterator[None]:
    """Ops inside see wrappers as the empty C++ tensors that they are, and change their metadata only."""
    with torch._C._DisableTorchDispatch():
        yield


# The C++ callable under an overload: one Python frame (0.3 us) less than calling the overload.
call_of: Callable[[OpOverload], Callable[..., Any]] = attrgetter("_op")
schema_of: Callable[[OpOverload], torch.FunctionSchema] = attrgetter("_schema")


def has_kernel(op: OpOverload, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key))


def cache_key(tensor: torch.Tensor) -> Any:
    """The metadata of a plain tensor that the compile cache tells tensors apart by."""
    from torch._inductor.codecache import extract_tensor_metadata_for_cache_key

    return extract_tensor_metadata_for_cache_key(tensor)


# Whether two tensors share storage, wrappers included: their outer storages.
is_alias: Callable[[torch.Tensor, torch.Tensor], bool] = torch._C._is_alias_of  # type: ignore[attr-defined]
is_functorch_level: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


def accept_plain_tangents(coerce: Callable[[torch.Tensor, Any, Any], Any]) -> None:
    """Lets AOTAutograd ask ``coerce(tangent, context, expected_type)`` of a plain tangent where a wrapper was traced.

    It asks a method of the tangent, and plain tensors have none: so torch.Tensor gets one. None means what the
    lack of it means.
    """
    torch.Tensor.__coerce_same_metadata_as_tangent__ = coerce  # type: ignore[attr-defined]


class metadata_only:  # noqa: N801 - reads as the scope that it is
    """A scope in which reading a tensor's metadata runs neither a ``__torch_function__`` nor a ``__torch_dispatch__``.

    A class with slots, not a generator: it is entered twice for each recorded operator.
    """

    __slots__ = ("_dispatch", "_function")

    def __enter__(self) -> None:
        self._dispatch = torch._C._DisableTorchDispatch()
        self._function = torch._C.DisableTorchFunction()
        self._function.__enter__()

    def __exit__(self, *error: object) -> None:
        self._function.__exit__(None, None, None)
        del self._dispatch


# The id of the backward that this thread runs, -1 outside one. Set in the device threads of autograd too.
backward_id: Callable[[], int] = torch._C._current_graph_task_id

# The sequence number that the next autograd node made by this thread gets.
next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


def running_sequence_number() -> int | None:
    """The sequence number of the autograd node whose backward runs in this thread: when it was made, in its forward."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def backward_context() -> contextvars.Context | None:
    """The context of the thread that called ``backward()``: torch hands it to the device threads that it works with."""
    if not torch._C._is_key_in_tls("context"):
        return None
    return cast(contextvars.Context, torch._C._get_obj_in_tls("context"))


def engine_code() -> CodeType:
    """The code of the function that runs autograd's engine: on the stack, everything above it waits for a backward."""
    return torch.autograd.graph._engine_run_backward.__code__


def module_call_code() -> CodeType:
    """The code that runs a module's forward, with the module as ``self``."""
    return torch.nn.Module._call_impl.__code__


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


# The innermost dispatch mode and function mode of this thread.
dispatch_mode_on_top: Callable[[], object] = torch.utils._python_dispatch._get_current_dispatch_mode
function_mode_on_top: Callable[[], object] = torch.overrides._get_current_function_mode


def never_compile(function: Callable[..., Any]) -> None:
    """Dynamo passes by the function, and by all that it calls. ``torch._dynamo.disable`` costs a frame, an import."""
    frames = torch._C._dynamo.eval_frame
    skip = frames._FrameAction.SKIP
    frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))


# ``aten::add``, for ``torch.ops.aten.add``.
name_of_packet: Callable[[OpOverloadPacket], str] = attrgetter("_qualified_op_name")

# The storage under a typed one, whose public ``untyped()`` warns that typed storages will go.
untyped: Callable[[torch.TypedStorage], torch.UntypedStorage] = attrgetter("_untyped_storage")


def is_tracing() -> bool:
    """Dynamo, export or ``make_fx`` is at work. Their modes are off inside a handler of ours, and can't be asked."""
    return torch.compiler.is_compiling() or bool(torch.fx._symbolic_trace.is_fx_symbolic_tracing())


def reference_count(tensor: torch.Tensor) -> int:
    """How many C++ references to the tensor there are. 1: its Python object's alone. A live AccumulateGrad node, a
    view or a saved tensor has one each, and none of them would follow a swap."""
    return int(tensor._use_count())  # type: ignore[attr-defined]


# The dictionary behind ``register_hook``, or None; the handles that users hold refer to this very object.
gradient_hooks: Callable[[torch.Tensor], dict[int, Callable[..., Any]] | None] = attrgetter("_backward_hooks")

# A module's dictionaries: its own parameters, absent ones too, whatever its class makes of ``named_parameters``; hooks.
own_parameters: Callable[[torch.nn.Module], dict[str, torch.nn.Parameter | None]] = attrgetter("_parameters")
load_hooks: Callable[[torch.nn.Module], dict[int, Callable[..., Any]]] = attrgetter("_load_state_dict_post_hooks")
forward_hooks: Callable[[torch.nn.Module], dict[int, Callable[..., Any]]] = attrgetter("_forward_hooks")


def set_gradient_hooks(tensor: torch.Tensor, hooks: dict[int, Callable[..., Any]] | None) -> None:
    """Makes autograd call ``hooks``, for a tensor that doesn't require grad yet too: ``register_hook`` refuses it."""
    tensor._backward_hooks = hooks


def reattach_hooks(tensor: torch.Tensor) -> None:
    """After a swap the Python object has its hooks, but its new C++ tensor doesn't call them: sets both kinds anew."""
    tensor._backward_hooks = tensor._backward_hooks
    tensor._post_accumulate_grad_hooks = tensor._post_accumulate_grad_hooks


def map_nested(function: Callable[[Any], Any], tree: Any) -> Any:
    """``function`` over the leaves of nested tuples, lists, dicts and whatever else is registered with pytree."""
    return torch.utils._pytree.tree_map(function, tree)


def uncompiled(module: torch.nn.Module) -> torch.nn.Module:
    """The module under what ``torch.compile(module)`` returned; any other module itself."""
    return cast(torch.nn.Module, getattr(module, "_orig_mod", module))


def name_before_compiling(name: str) -> str:
    """A parameter's name without the steps that ``torch.compile(module)`` puts in it."""
    return name.replace("_orig_mod.", "")


def drop_weak_weights(module: torch.nn.RNNBase) -> None:
    """An RNN holds weak references to its own weights, and no referenced tensor can be swapped."""
    module._flat_weight_refs = []


def renew_weak_weights(module: torch.nn.RNNBase) -> None:
    module._init_flat_weights()
