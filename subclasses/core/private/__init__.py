"""Every use of private torch API in lamina. Checked on torch 2.13.0.

Each name says what it does in our words; the comment gives the reason there is no public way. Import the names from
here: the modules are how they are grouped.
"""

from __future__ import annotations

from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._python_dispatch import TorchDispatchMode

from .autograd import (
    backward_context,
    backward_id,
    engine_code,
    gradient_hooks,
    next_sequence_number,
    reattach_hooks,
    running_sequence_number,
    set_gradient_hooks,
)
from .compiler import (
    TRACERS,
    accept_plain_tangents,
    cache_key,
    compiler_of_backend,
    frames_compiled,
    is_tracing,
    never_compile,
    on_compiled_calls,
    with_graph_observer,
)
from .fakes import FakeTensor, FakeTensorMode
from .modules import (
    drop_weak_weights,
    forward_hooks,
    load_hooks,
    module_call_code,
    name_before_compiling,
    own_parameters,
    renew_weak_weights,
    uncompiled,
)
from .operators import call_of, composite_kernel, has_kernel, int8_product, name_of_packet, schema_of
from .scopes import (
    below_python,
    disabled_torch_function,
    dispatch_mode_on_top,
    function_mode_on_top,
    metadata_only,
    outside_inference_mode,
    with_math_bits,
    without_torch_function,
)
from .tensors import (
    is_alias,
    is_functorch_level,
    make_wrapper,
    reference_count,
    set_conj,
    set_neg,
    share_storage,
    storage_id,
    untyped,
)
from .trees import map_nested

__all__ = [
    "TRACERS",
    "FakeTensor",
    "FakeTensorMode",
    "OpOverload",
    "OpOverloadPacket",
    "TorchDispatchMode",
    "accept_plain_tangents",
    "backward_context",
    "backward_id",
    "below_python",
    "cache_key",
    "call_of",
    "compiler_of_backend",
    "composite_kernel",
    "disabled_torch_function",
    "dispatch_mode_on_top",
    "drop_weak_weights",
    "engine_code",
    "forward_hooks",
    "frames_compiled",
    "function_mode_on_top",
    "gradient_hooks",
    "has_kernel",
    "int8_product",
    "is_alias",
    "is_functorch_level",
    "is_tracing",
    "load_hooks",
    "make_wrapper",
    "map_nested",
    "metadata_only",
    "module_call_code",
    "name_before_compiling",
    "name_of_packet",
    "never_compile",
    "next_sequence_number",
    "on_compiled_calls",
    "outside_inference_mode",
    "own_parameters",
    "reattach_hooks",
    "reference_count",
    "renew_weak_weights",
    "running_sequence_number",
    "schema_of",
    "set_conj",
    "set_gradient_hooks",
    "set_neg",
    "share_storage",
    "storage_id",
    "uncompiled",
    "untyped",
    "with_graph_observer",
    "with_math_bits",
    "without_torch_function",
]
