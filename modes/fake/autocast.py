"""autocast on FakeLikeTensors, as the claimed device does it.

Autocast's kernels stand at keys of the tensors' backends, and those of carriers have none. Inside FakeLikeMode each
call passes by a key that no backend uses; once autocast is seen to be on, kernels of ours stand there. Each asks what
autocast does to its operator on the claimed device: that is observed, not written down (``modes/trace/autocast.py``).
Outside the mode autocast is refused (``subclasses/fake_like/autocast.py``).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.library import Library

from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import (
    OpOverload,
    added_key,
    call_without,
    excluded_key,
    kernel_at,
    map_nested,
    operators_with,
    pass_by,
    schema_of,
)
from ...subclasses.fake_like import FakeLikeTensor
from ...subclasses.fake_like.autocast import KEY
from ...subclasses.fake_like.errors import UndecidedError
from ..trace.autocast import DEVICES, Policy, observed_policy
from .outside import outside

_KEYS = {device: key for key, device in DEVICES.items()}
_OTHERS = ("xpu", "mps", "mtia", "maia", "hpu", "xla")
# Where float32 is asked for by calling another overload.
_APPENDED = {"aten::norm.Scalar": "ScalarOpt_dtype", "aten::norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}

aten = torch.ops.aten
_is_enabled = torch.is_autocast_enabled


class Casting:
    """The kernels: registered once, at the first use of autocast in a FakeLikeMode, until the last mode that used it
    ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._library: Any = None
        self._fallback: Any = None
        self._policies: dict[tuple[str, str], Policy] = {}
        self._casts = threading.local()

    def scope(self) -> Any:
        """What a mode enters so that its calls pass by our key."""
        if self._fallback is None:
            with self._lock:
                if self._fallback is None:  # another thread may have been first
                    self._fallback = pass_by(KEY)
        return added_key(KEY)

    def begin(self) -> None:
        """A mode has seen autocast."""
        with self._lock:
            self._users += 1
            if self._library is None:
                self._library = Library("aten", "IMPL")
                for name in sorted({name for key in DEVICES for name in operators_with(key)}):
                    self._register(name)

    def end(self) -> None:
        """A mode that had seen autocast has ended."""
        with self._lock:
            self._users -= 1
            self.forget()
            if not self._users:
                self._library._destroy()
                self._library = None

    def forget(self) -> None:
        """Drops the casts of weights, as autocast does when its outermost scope ends."""
        self._casts = threading.local()

    def _register(self, name: str) -> None:
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace == "aten":
            op = getattr(getattr(aten, packet), overload or "default")
            self._library.impl(rest, self._kernel(op), KEY, with_keyset=True)

    def _kernel(self, op: OpOverload) -> Any:
        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            device = _device(args, kwargs)
            policy = Policy.NO_CAST
            if device is not None and torch.is_autocast_enabled(device):
                policy = self._policy(op, device)
            if policy is Policy.NO_CAST:
                return call_without(op, keys, KEY, args, kwargs)
            with excluded_key(KEY):
                return self._cast(op, policy, device, args, kwargs)

        return kernel

    def _policy(self, op: OpOverload, device: str) -> Policy:
        if device not in _KEYS:
            raise UndecidedError(
                f"autocast on {device} is not known here: FakeLikeTensors follow that of the CPU and of CUDA. Claim "
                "one of these, or leave autocast off."
            )
        name = op.name()
        found = self._policies.get((name, device))
        if found is None:
            found = Policy.NO_CAST
            if name in operators_with(_KEYS[device]):
                with outside():
                    found = observed_policy(op, _KEYS[device])
            self._policies[name, device] = found
        return found

    def _cast(self, op: OpOverload, policy: Policy, device: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if policy is Policy.REFUSED:
            return kernel_at(op, _KEYS[device])(*args, **kwargs)  # which raises, and says what to do
        if policy is Policy.FP32_SET_OPT_DTYPE:
            return _in_float32(op, device, args, kwargs)
        if policy is Policy.FP32_APPEND_DTYPE:
            if not _is_castable(args[0], device):
                return op(*args, **kwargs)
            missing = {"keepdim": False} if op.name() == "aten::norm.ScalarOpt_dim" and len(args) < 4 else {}
            return getattr(aten.norm, _APPENDED[op.name()])(*args, **{**missing, **kwargs}, dtype=torch.float32)
        to = self._target(policy, device, args, kwargs)

        def cast(leaf: Any) -> Any:
            return self._converted(leaf, to) if _is_castable(leaf, device) else leaf

        return op(*map_nested(cast, list(args)), **map_nested(cast, dict(kwargs)))

    def _target(self, policy: Policy, device: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.dtype:
        low = torch.get_autocast_dtype(device)
        if policy is Policy.LOWER_PRECISION_FP:
            return low
        if policy is Policy.FP32:
            return torch.float32
        found = [t for t in tensors_in((tuple(args), dict(kwargs))) if _is_castable(t, device)]
        return torch.float32 if any(t.dtype == torch.float32 for t in found) else low

    def _converted(self, tensor: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        """In ``to``; a weight is converted once for each scope of autocast, as torch does it."""
        if tensor.dtype == to:
            return tensor
        if (
            not (tensor.requires_grad and tensor.is_leaf and torch.is_autocast_cache_enabled())
            or tensor.dtype != torch.float32
        ):
            return tensor.to(to)
        casts = self._casts.__dict__.setdefault("of", {})
        source, found = casts.get(id(tensor), (None, None))
        if source is None or source() is not tensor or found.dtype != to:
            found = tensor.to(to)
            casts[id(tensor)] = (weakref.ref(tensor), found)
        return found  # type: ignore[no-any-return]


def _device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The type of the device that a call with FakeLikeTensors is about."""
    found = [t.device.type for t in tensors_in((tuple(args), dict(kwargs))) if isinstance(t, FakeLikeTensor)]
    return next((kind for kind in found if kind != "cpu"), found[0] if found else None)


def _is_castable(value: Any, device: str) -> bool:
    if not isinstance(value, FakeLikeTensor) or value.device.type != device:
        return False
    return value.is_floating_point() and value.dtype != torch.float64


def _in_float32(op: OpOverload, device: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """With ``dtype=torch.float32`` where no dtype is given."""
    places = [argument.name for argument in schema_of(op).arguments]
    at = places.index("dtype")
    given = args[at] if at < len(args) else kwargs.get("dtype")
    if given is not None or not _is_castable(args[0], device):
        return op(*args, **kwargs)
    if at < len(args):
        return op(*args[:at], torch.float32, *args[at + 1 :], **kwargs)
    return op(*args, **{**kwargs, "dtype": torch.float32})


def is_on() -> bool:
    """Whether autocast is on for a device that FakeLikeTensors may claim."""
    return _is_enabled("cuda") or _is_enabled("cpu") or any(map(_is_enabled, _OTHERS))


casting = Casting()
