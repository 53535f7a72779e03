"""What the CPU's kernels refuse for its dtypes: nothing says it but the kernels, so they are asked, on small tensors.

Where a call that claims the CPU has no replay, the real operator is run with plain tensors in place of ours: of the
same sizes where these are small. Where they are not, element-wise operators are run on smaller ones, whose kernels look
at no size but 0 and 1, and so are public ones whose other arguments are small. An error counts that can't come from
values: any of an element-wise operator, and otherwise one whose text speaks of dtypes or of a missing kernel, or, where
the sizes are the same, of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch

from ..core.fields import tensors_in
from ..core.private import below_python, excluded_key, has_kernel, map_nested
from ..core.schema import Kind, OpFacts

SMALL = 1 << 14  # elements, of all arguments and results
SIDE = 8  # of a tensor that stands for a larger one; a kernel of 7 x 7 fits
_MOST = 4096  # calls on smaller tensors that are remembered

_OF_DTYPES = re.compile(
    r"not (?:yet )?(?:implemented|supported|support|intended to support)|does ?n['o]t support|only supports? |"
    r"unsupported dtype|can't be cast|may not be a boolean|Could not run 'aten::|Expected both inputs to be|"
    r"handles only|to be non-complex|same (?:scalar |data ?)?d?type|(?:expected|of) scalar type|mixed dtype|"
    r"expected dtype|but expected (?:Bool|Long|Int|Float|Double|Complex)|dtypes? match|expected target dtype|"
    r"expected a long tensor|tensors used as (?:indices|masks) must be|safely cast",
    re.IGNORECASE,
)
# Of sizes and dims: those of the call itself, not of smaller tensors.
_OF_SIZES = re.compile(
    r"Dimension out of range|Dimension specified as|have (?:the )?same (?:size|number)|(?:must|shape) match|"
    r"a size equal|should be equal to|not be broadcast|non-zero size|non-empty|sizes should be greater|"
    r"output padding must|kernel size should|should be non-negative|must be positive|should be positive|"
    r"cannot be applied to|to be a vector|should have dimension|does not match the shape|dims but tensor has|"
    r"reduction dim|can have only 1 value|\+ matrix @ vector expected|out of range for tensor of size|must be equal to",
    re.IGNORECASE,
)
_ERRORS = (RuntimeError, TypeError, ValueError, IndexError)
# What they are given decides which memory they touch (pivots, lengths, packed weights), and it is not checked.
_TRUSTING = re.compile(
    r"lu_solve|ldl_solve|lu_unpack|packed_sequence|pack|quant|sparse|nested|mkldnn|onednn|set_|resize"
)
_UNKNOWN = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)

# Where there is something to run.
_KERNELS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")

_taken: set[Hashable] = set()


def refusal(facts: OpFacts, args: Sequence[Any], kwargs: dict[str, Any], result: Any = None) -> Exception | None:
    """The error of the real operator on the CPU, if a call that claims the CPU would have one for its dtypes; None
    where there is none, or it can't be known. ``result``: what is known of it."""
    if not _claims_cpu(args, kwargs) or not _is_askable(facts):
        return None
    smaller = _smaller(facts, args, kwargs, result)
    if smaller is None:
        return None
    pointwise = Kind.POINTWISE in facts.kinds
    try:
        with below_python(), torch.no_grad(), excluded_key("AutocastCPU"):
            samples = _Samples(smaller, torch.ones if pointwise else torch.zeros)
            key = facts.op, _key((*args, *kwargs.items()), samples)
            if key not in _taken:
                facts.op(*map_nested(samples, list(args)), **_named(facts, len(args), kwargs, samples))
    except _ERRORS as error:
        text = str(error)
        as_they_are = smaller is _same and not any(written.keyword_only for written in facts.written)
        if pointwise or _OF_DTYPES.search(text) or (as_they_are and _OF_SIZES.search(text)):
            return error.with_traceback(None)
    except Warning:  # made an error by a filter: the program's own call gives it
        return None
    _remember(key)
    return None


def _remember(key: Hashable) -> None:
    if len(_taken) >= _MOST:
        _taken.clear()
    _taken.add(key)


def _named(facts: OpFacts, given: int, kwargs: dict[str, Any], samples: _Samples) -> dict[str, Any]:
    """Keyword arguments for the trial, with ``given`` by position; what is written alone is empty, and so of any
    size."""
    named: dict[str, Any] = map_nested(samples, dict(kwargs))
    if any(a.name == "generator" and (a.keyword_only or a.index >= given) for a in facts.arguments):
        named["generator"] = torch.Generator()
    for argument in facts.written:
        if argument.keyword_only and isinstance(named.get(argument.name), torch.Tensor):
            named[argument.name] = torch.empty(0, dtype=named[argument.name].dtype)
    return named


def _key(value: Any, samples: _Samples) -> Hashable:
    if isinstance(value, torch.Tensor):
        sample = samples(value)
        return sample.dtype, tuple(sample.shape), sample.stride()
    if isinstance(value, (list, tuple)):
        return tuple(_key(each, samples) for each in value)
    kind: type = type(value)
    return kind if isinstance(value, (float, torch.Generator)) else (kind, value)


def _claims_cpu(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    tensors = [*tensors_in((tuple(args), kwargs))]
    named = kwargs.get("device")
    if not tensors:
        return named is not None and torch.device(named).type == "cpu"
    return all(t.device.type == "cpu" and t.layout is torch.strided and t.dtype not in _UNKNOWN for t in tensors)


def _is_askable(facts: OpFacts) -> bool:
    op = facts.op
    if op.namespace != "aten" or Kind.VIEW in facts.kinds or torch.Tag.inplace_view in op.tags:
        return False
    draws = torch.Tag.nondeterministic_seeded in op.tags and any(has_kernel(op, key) for key in _KERNELS)
    if draws and not any(argument.name == "generator" for argument in facts.arguments):
        return False
    return bool(facts.results or facts.written) and not _TRUSTING.search(op.name())


def _is_elementwise(facts: OpFacts) -> bool:
    return Kind.POINTWISE in facts.kinds or facts.op.name().startswith(("aten::_foreach_", "aten::_fused_adam"))


Smaller = Callable[[int], int]


def _same(size: int) -> int:
    return size


def _broadcastable(size: int) -> int:
    return min(size, 2)


def _with_sides(size: int) -> int:
    return min(size, SIDE)


def _smaller(facts: OpFacts, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Smaller | None:
    """What makes the sizes of the tensors that are tried of those of the call; None: such a call can't be tried."""
    if _is_elementwise(facts):
        return _broadcastable
    tame = all(abs(number) <= SIDE for number in _numbers((*args, *kwargs.values())))
    size = sum(t.numel() for t in tensors_in((tuple(args), kwargs, result)))
    if size <= SMALL and (tame or result is not None):
        return _same
    return _with_sides if tame and facts.tensors and _checks_sizes(facts) else None


def _checks_sizes(facts: OpFacts) -> bool:
    """Operators for everybody do; those for other operators rely on them."""
    name = facts.op.overloadpacket.__name__
    public = not name.startswith("_") and "backward" not in name
    return public or name.startswith("_linalg_") or torch.Tag.core in facts.op.tags


def _numbers(values: Any) -> Iterator[float]:
    for value in values:
        if isinstance(value, (int, float)):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _numbers(value)


class _Samples:
    """Plain tensors on the CPU for ours: of sizes that ``smaller`` makes, with strides in the same order."""

    def __init__(self, smaller: Smaller, filled: Callable[..., torch.Tensor]) -> None:
        self.smaller, self.filled = smaller, filled
        self.made: dict[int, torch.Tensor] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Generator):
            return torch.Generator()
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.made:
            size, stride = self.geometry(value)
            extent = 0 if 0 in size else 1 + sum((n - 1) * each for n, each in zip(size, stride, strict=True))
            self.made[id(value)] = self.filled(extent, dtype=value.dtype).as_strided(size, stride)
        return self.made[id(value)]

    def geometry(self, tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
        size = tuple(map(self.smaller, tensor.shape))
        if size == tensor.shape:
            return size, tensor.stride()
        strides, below = [0] * len(size), 1
        for dim in sorted(range(len(size)), key=lambda dim: (tensor.stride(dim), -dim)):
            if tensor.stride(dim):
                strides[dim] = below
                below *= max(size[dim], 1)
        return size, tuple(strides)
