"""What is known of one call of an operator, as data: names, shapes, dtypes, times. No tensor is held.

Building a record calls no operator and none of an author's code: metadata is read with ``__torch_function__`` and
``__torch_dispatch__`` off, and objects of unknown classes show by the name of their class. (A class that asked torch
for ``dispatch_sizes_strides_policy`` has no sizes but those that it computes: C++ asks it. What it refuses is None.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, cast

import torch

from ..core.private import OpOverload, OpOverloadPacket, function_modes, metadata_only, name_of_packet

Phase: TypeAlias = Literal["forward", "backward", "optimizer"]
Layer: TypeAlias = Literal["subclass", "dispatch", "function", "compiled"]

_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_LONGEST_TEXT = 200
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """The metadata of one tensor. Symbolic sizes are their text; a field that the tensor refuses to tell is None."""

    shape: tuple[int | str, ...] | None
    dtype: torch.dtype
    device: torch.device | None
    stride: tuple[int | str, ...] | None
    kind: str

    def __str__(self) -> str:
        sizes = "?" if self.shape is None else ", ".join(map(str, self.shape))
        text = f"{str(self.dtype).removeprefix('torch.')}[{sizes}]"
        return text if self.kind == "Tensor" else f"{self.kind} {text}"

    def to_json(self) -> dict[str, Any]:
        """The metadata as plain types."""
        return {
            "shape": None if self.shape is None else list(self.shape),
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": None if self.device is None else str(self.device),
            "stride": None if self.stride is None else list(self.stride),
            "class": self.kind,
        }


Value: TypeAlias = "TensorMeta | bool | int | float | complex | str | tuple[Value, ...] | None"


class OpRecord(NamedTuple):  # made in 0.2 us, a frozen dataclass in 1.6
    """One call of an operator or function.

    ``index`` counts calls in the order in which they began; ``depth`` is 0 for a call from outside and one more inside
    each recorded call; ``module`` is the path of the innermost running module, such as ``encoder.0.linear``; ``cls`` is
    the wrapper class that handled the call; ``digest`` stands for the bits of the results, where the log was asked for
    it. Times are nanoseconds of ``time.perf_counter_ns``; a compiled operator is
    recorded when its graph is compiled, and takes none.
    """

    index: int  # type: ignore[assignment]  # not tuple's method
    name: str
    overload: str
    layer: Layer
    phase: Phase
    inputs: tuple[Value, ...]
    keywords: tuple[tuple[str, Value], ...]
    outputs: tuple[Value, ...]
    cls: str | None = None
    depth: int = 0
    module: str | None = None
    start_ns: int = 0
    duration_ns: int = 0
    thread: int = 0
    error: str | None = None
    digest: str | None = None

    @property
    def op(self) -> str:
        """Name and overload: ``aten::add.Tensor``. The default overload is not written."""
        return joined(self.name, self.overload)

    @property
    def failed(self) -> bool:
        """Whether the call raised."""
        return self.error is not None

    @property
    def compiled(self) -> bool:
        """Whether the record stands for a node of a compiled graph, and not for a call."""
        return self.layer == "compiled"

    def to_json(self) -> dict[str, Any]:
        """The record as dicts, lists, strings, numbers, booleans and None: ``json.dumps`` takes it as it is."""
        return {
            "index": self.index,
            "name": self.name,
            "overload": self.overload,
            "layer": self.layer,
            "compiled": self.compiled,
            "phase": self.phase,
            "class": self.cls,
            "inputs": [plain_value(value) for value in self.inputs],
            "keywords": {key: plain_value(value) for key, value in self.keywords},
            "outputs": [plain_value(value) for value in self.outputs],
            "depth": self.depth,
            "module": self.module,
            "start_ns": self.start_ns,
            "duration_ns": self.duration_ns,
            "thread": self.thread,
            "failed": self.failed,
            "error": self.error,
            "digest": self.digest,
        }

    def __str__(self) -> str:
        """One line without times, so that two equal runs print the same text."""
        given = [text_of(value) for value in self.inputs] + [f"{key}={text_of(value)}" for key, value in self.keywords]
        result = f"!! {self.error}" if self.failed else f"-> {', '.join(map(text_of, self.outputs)) or 'None'}"
        where = "".join(f" {part}" for part in (self.cls, self.module and f"in {self.module}") if part)
        return f"{'  ' * self.depth}{self.op}({', '.join(given)}) {result}  [{self.phase} {self.layer}{where}]"


def describe(values: Iterable[Any]) -> tuple[Value, ...]:
    """The values as data; tensors in lists, tuples and dicts included."""
    return tuple([_value(value, 0) for value in values])


def describe_call(
    args: Iterable[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Value, ...], tuple[tuple[str, Value], ...]]:
    """Positional and keyword arguments as data."""
    keywords = tuple([(key, _value(value, 0)) for key, value in kwargs.items()]) if kwargs else ()
    return tuple([_value(value, 0) for value in args]), keywords


def describe_result(result: Any) -> tuple[Value, ...]:
    """The results of a call: none for None, several for a tuple, one for anything else, a list of tensors included."""
    if result is None:
        return ()
    kind = type(result)
    if kind in _PLAIN:
        return (_value(result, 0),)
    several = issubclass(kind, tuple) and kind is not torch.Size
    return describe(tuple.__iter__(result)) if several else (_value(result, 0),)


def describe_error(error: BaseException) -> str:
    """Class and message, without calling ``__str__``: an author's exception may do anything there."""
    message = next((text for text in _error_args(error)[:2] if type(text) is str), "")  # an OSError's is its second
    return f"{type(error).__name__}: {_shortened(message)}" if message else type(error).__name__


def joined(name: str, overload: str) -> str:
    """``aten::add.Tensor``. The default overload is not written."""
    return name if overload in ("", "default") else f"{name}.{overload}"


@lru_cache(maxsize=4096)
def name_of(func: Any) -> tuple[str, str]:
    """Name and overload of an operator, a higher-order operator, or a public function of torch."""
    if isinstance(func, OpOverload):
        name, _, overload = str(cast(Any, func).name()).partition(".")
        return name, overload or "default"
    if isinstance(func, OpOverloadPacket):
        return name_of_packet(func), ""
    own = getattr(func, "__name__", type(func).__name__)
    if own in ("__get__", "__set__", "__delete__"):
        field = getattr(func.__self__, "__name__", type(func.__self__).__name__)
        return f"torch.Tensor.{field}", "" if own == "__get__" else own
    if hasattr(func, "__objclass__"):
        return f"torch.Tensor.{own}", ""
    return _public_name(func, own), ""


def _public_name(func: Any, own: str) -> str:
    """Where users find a function: those made in C++ tell a private module, or none."""
    module = getattr(func, "__module__", None) or "torch"
    if module == "torch._C._nn":
        return f"torch.nn.functional.{own}"
    if module == "torch._tensor":
        return f"torch.{func.__qualname__}"
    if module.startswith("torch._C._"):
        family = module.removeprefix("torch._C._")
        return f"torch.{family}.{own.removeprefix(family + '_')}"
    return f"{module}.{own}"


def _value(value: Any, level: int) -> Value:  # noqa: C901 - a case each
    kind = type(value)
    # Without code of an author's, and outside of function modes: 0.5 us, where the careful way takes 2.5.
    if kind in _PLAIN and not function_modes():
        try:
            return _known_meta(_shape(value), _dtype(value), _device(value), _stride(value), kind)
        except (RuntimeError, TypeError):  # sparse tensors have no strides, nested ones no sizes, symbols no hash
            return _meta(value, kind)
    if issubclass(kind, torch.Tensor):
        return _meta(value, kind)
    if value is None or kind in (bool, int, float, complex):
        return value  # type: ignore[no-any-return]
    if kind is str:
        return _shortened(value)
    if kind in _NAMED or kind in (torch.SymInt, torch.SymFloat, torch.SymBool):
        return str(value).removeprefix("torch.")
    if level >= _DEEPEST:
        return "<...>"
    if issubclass(kind, tuple):
        return tuple([_value(item, level + 1) for item in tuple.__iter__(value)])
    if issubclass(kind, list):
        return tuple([_value(item, level + 1) for item in list.__iter__(value)])
    if kind is dict:
        return tuple([(_value(key, level + 1), _value(item, level + 1)) for key, item in value.items()])
    return f"<{kind.__name__}>"


_shape: Callable[[torch.Tensor], Any] = torch.Tensor.shape.__get__  # type: ignore[attr-defined]
_dtype: Callable[[torch.Tensor], torch.dtype] = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
_device: Callable[[torch.Tensor], torch.device] = torch.Tensor.device.__get__
_stride: Callable[[torch.Tensor], Any] = torch.Tensor.stride
_error_args: Callable[[BaseException], tuple[Any, ...]] = BaseException.args.__get__  # type: ignore[attr-defined]


def _told_meta(
    shape: torch.Size, dtype: torch.dtype, device: torch.device, stride: tuple[int, ...], kind: type
) -> TensorMeta:
    return TensorMeta(_sizes(shape), dtype, device, _sizes(stride), kind.__name__)


_known_meta: Callable[..., TensorMeta] = lru_cache(maxsize=8192)(_told_meta)


def _meta(tensor: torch.Tensor, kind: type) -> TensorMeta:
    """Reads through torch.Tensor's own descriptors: a subclass's property would be an author's code."""
    with metadata_only():
        try:
            shape, device, stride = _shape(tensor), _device(tensor), _stride(tensor)
        except (RuntimeError, NotImplementedError, TypeError):  # as above
            shape, device, stride = _told(_shape, tensor), _told(_device, tensor), _told(_stride, tensor)
        return TensorMeta(_sizes(shape), _dtype(tensor), device, _sizes(stride), kind.__name__)


def _sizes(sizes: Iterable[Any] | None) -> tuple[int | str, ...] | None:
    return None if sizes is None else tuple([size if type(size) is int else str(size) for size in sizes])


def _told(read: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> Any:
    try:
        return read(tensor)
    except (RuntimeError, NotImplementedError, TypeError):
        return None


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def plain_value(value: Value) -> Any:
    """As JSON takes it."""
    if isinstance(value, TensorMeta):
        return value.to_json()
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)  # JSON has neither
    return value


def text_of(value: Value) -> str:
    """In one line."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(text_of, value))}]"
    return str(value)
