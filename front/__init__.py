"""lamina: PyTorch wrapper tensor subclasses, declared once and dispatched by table."""

from __future__ import annotations

from . import modes
from .subclasses.core.errors import (
    CodecError,
    DataDependentError,
    DataSwapError,
    DeclarationError,
    FallbackError,
    FunctorchError,
    GeometryError,
    GradientCutError,
    InnerTensorError,
    LaminaError,
    LayoutError,
    MissingRuleError,
    PlainOnlyError,
    RegistrationError,
    RuleConflictError,
    RuleResultError,
    RuleTypeError,
    ShardingError,
    UnbuiltError,
    UnwrittenError,
)
from .subclasses.core.fields import leaf_tensors
from .subclasses.core.geometry import OuterMetadata
from .subclasses.core.policy import Fallback, Gradients, strict
from .subclasses.core.schema import Kind
from .subclasses.core.table import op_table
from .subclasses.core.wrapper import WrapperTensor
from .subclasses.logging_tensor import (
    ChromeTraceSink,
    JsonLinesSink,
    ListSink,
    Log,
    LoggingSink,
    LoggingTensor,
    LogHandle,
    NoRecordsError,
    OpRecord,
    Sink,
    SinkError,
    SinkWarning,
    TensorMeta,
)
from .subclasses.parameters import (
    NoParameterError,
    NotWrappedError,
    assert_wrapped,
    unwrap_parameters,
    wrap_parameters,
    wrapped_parameters,
)
from .subclasses.scaled_int8 import (
    Granularity,
    GridError,
    PartialViewError,
    PerBlock,
    PerGroup,
    PerRow,
    PerTensor,
    QuantizationError,
    ScaledInt8Tensor,
)
from .subclasses.swap import ParameterInUseError, WrapResultError
from .subclasses.watch import ReplacedWarning

__version__ = "0.1.0"

__all__ = [
    "ChromeTraceSink",
    "CodecError",
    "DataDependentError",
    "DataSwapError",
    "DeclarationError",
    "Fallback",
    "FallbackError",
    "FunctorchError",
    "GeometryError",
    "GradientCutError",
    "Gradients",
    "Granularity",
    "GridError",
    "InnerTensorError",
    "JsonLinesSink",
    "Kind",
    "LaminaError",
    "LayoutError",
    "ListSink",
    "Log",
    "LogHandle",
    "LoggingSink",
    "LoggingTensor",
    "MissingRuleError",
    "NoParameterError",
    "NoRecordsError",
    "NotWrappedError",
    "OpRecord",
    "OuterMetadata",
    "ParameterInUseError",
    "PartialViewError",
    "PerBlock",
    "PerGroup",
    "PerRow",
    "PerTensor",
    "PlainOnlyError",
    "QuantizationError",
    "RegistrationError",
    "ReplacedWarning",
    "RuleConflictError",
    "RuleResultError",
    "RuleTypeError",
    "ScaledInt8Tensor",
    "ShardingError",
    "Sink",
    "SinkError",
    "SinkWarning",
    "TensorMeta",
    "UnbuiltError",
    "UnwrittenError",
    "WrapResultError",
    "WrapperTensor",
    "assert_wrapped",
    "leaf_tensors",
    "modes",
    "op_table",
    "strict",
    "unwrap_parameters",
    "wrap_parameters",
    "wrapped_parameters",
]
