"""The C++ dispatcher: key sets, the keys of the thread, what is registered where, and a hook into each decision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload

DispatchKey = torch._C.DispatchKey

# ``decide(op, runtime key, key of the kernel)`` returns what is called in place of the kernel: with the kernel first.
Decide = Callable[[OpOverload, str, str], Callable[..., Any]]

# Keys of which torch's own handler is asked: it knows of modes, and of layers of function transforms.
_OWN_HANDLER = frozenset({"Python", "PreDispatch"})


def names_of_keys(keys: Any) -> tuple[str, ...]:
    """The keys of a ``DispatchKeySet``, the lowest priority first."""
    inside = repr(keys).partition("(")[2].rstrip(")")
    return tuple(name.strip() for name in inside.split(",") if name.strip())


def keys_of(tensor: torch.Tensor) -> Any:
    """The key set that a tensor carries."""
    return torch._C._dispatch_keys(tensor)


def bits_of_keys(keys: Any) -> int:
    """A key set as the integer that C++ holds: ``backend_count()`` bits for backends, then one a functionality."""
    bits: int = keys.raw_repr()
    return bits


def backend_count() -> int:
    """How many bits of a key set stand for backends."""
    return torch._C._dispatch_num_backends()


def functionality_of(key: str) -> str:
    """The functionality of a runtime key: ``AutogradFunctionality`` for ``AutogradCPU``; others are their own."""
    name: str = torch._C._to_functionality_key(getattr(DispatchKey, key)).name  # type: ignore[attr-defined]
    return name


def all_keys() -> list[str]:
    """Every key that has a name in C++, alias keys too."""
    return [name for name in DispatchKey.__members__ if not name.startswith(("StartOf", "EndOf"))]


def is_alias_key(key: str) -> bool:
    """Whether kernels registered under ``key`` fill the slots of other keys."""
    return torch._C._dispatch_is_alias_key(getattr(DispatchKey, key))


def operators_with(key: str) -> list[str]:
    """The operators for which something is registered under exactly this key."""
    return torch._C._dispatch_get_registrations_for_dispatch_key(key)


def thread_keys() -> tuple[Any, Any]:
    """The key sets that this thread includes in, and excludes from, each call."""
    return torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()


def highest_key(keys: Any) -> str:
    """The runtime key of highest priority."""
    name: str = keys.highestPriorityTypeId().name
    return name


def without_key(keys: Any, name: str) -> Any:
    return keys.remove(getattr(DispatchKey, name)) if hasattr(DispatchKey, name) else keys


def has_key(keys: Any, name: str) -> bool:
    return hasattr(DispatchKey, name) and bool(keys.has(getattr(DispatchKey, name)))


def computed_table(op: str) -> str:
    """The computed dispatch table as torch prints it: a line a runtime key."""
    return torch._C._dispatch_dump_table(op)


def registrations(op: str) -> str:
    """What is registered for an operator, alias keys as such, as torch prints it."""
    return torch._C._dispatch_dump(op)


def all_operator_names() -> list[str]:
    """Each registered operator with its overload: ``aten::add.Tensor``."""
    return torch._C._dispatch_get_all_op_names()


def modes_on_stack() -> list[Any]:
    """The active dispatch modes; the last is asked first."""
    count = torch._C._len_torch_dispatch_stack()
    return [torch._C._get_dispatch_stack_at(index) for index in range(count)]


def kernel_source(op: OpOverload, key: str) -> str | None:
    """The key under which the kernel was registered that C++ takes for a runtime key: itself, or an alias key. None
    where there is no kernel. Python kernels that torch has for its tracers only are passed by."""
    try:
        found = torch._ops.resolve_key(_InCpp(op), getattr(DispatchKey, key))  # type: ignore[arg-type]
    except (NotImplementedError, RuntimeError):
        return None
    name: str = found.name
    return name


class _InCpp:
    """An operator with its C++ kernels alone, as ``resolve_key`` asks for them."""

    def __init__(self, op: OpOverload) -> None:
        self._name = op.name()

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(self._name, key))

    def has_kernel_for_any_dispatch_key(self, keys: Any) -> bool:
        return bool(torch._C._dispatch_has_kernel_for_any_dispatch_key(self._name, keys))


def _without_python_dispatcher(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """The call as C++ takes it: of a missing kernel it says what there is."""
    with torch._C._DisablePythonDispatcher():
        return op._op(*args, **kwargs)


class _Hook:
    """What the dispatcher asks instead of ``OpOverload._get_dispatch``, in one thread."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._thread = threading.get_ident()
        self._torchs = OpOverload._get_dispatch
        self._alive: list[Any] = []  # C++ holds what it calls by a borrowed reference

    def answer(self, op: OpOverload, key: Any) -> Any:
        if threading.get_ident() != self._thread:
            return self._torchs(op, key)
        source = kernel_source(op, key.name)
        run: Callable[..., Any]
        if key.name in _OWN_HANDLER:
            answer = self._torchs(op, key)
            op._dispatch_cache.pop(key, None)  # so that it asks again
            run = partial(op._op_dk, answer) if isinstance(answer, DispatchKey) else answer
        elif source is None:
            run = partial(_without_python_dispatcher, op)
        else:
            run = partial(op._op_dk, getattr(DispatchKey, source))
        decided = self._decide(op, key.name, source or key.name)
        self._alive.append(partial(decided, run))
        return self._alive[-1]


@contextmanager
def every_decision(decide: Decide) -> Iterator[None]:
    """Each time that the dispatcher picks a slot in this thread, ``decide(op, runtime key, key of the kernel)`` is
    called, and what it returns runs in place of the kernel, with the kernel before the arguments."""
    hook = _Hook(decide)
    for op in list(torch._ops.cached_ops):
        op._dispatch_cache.clear()
    ask = hook.answer
    # A lambda, since a bound method would not be given the operator.
    setattr(OpOverload, "_get_dispatch", lambda op, key: ask(op, key))  # noqa: B010, PLW0108
    try:
        with torch._C._EnablePythonDispatcher():
            yield
    finally:
        setattr(OpOverload, "_get_dispatch", hook._torchs)  # noqa: B010


def call_without(op: OpOverload, keys: Any, name: str, args: Any, kwargs: Any) -> Any:
    """The call that arrived with the key set ``keys``, without one of them. Calls inside see it again."""
    return op.redispatch(without_key(keys, name), *args, **kwargs)
