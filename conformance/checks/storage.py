"""Where the memory of an instance would be read past the class: pointers, numpy, dlpack, ``.data``."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils import dlpack

from ..check import check
from ..outcome import KnownLimit, MismatchError, NotApplicable
from ..subject import VALUED, Subject, addresses

# What a class may say where it can't give values.
REFUSALS = (TypeError, ValueError, RuntimeError, BufferError, AttributeError)


def _or_refused(subject: Subject, call: str, run: Callable[[], Any], expected: torch.Tensor) -> None:
    """The call gives these values, or an error with a text; never other values."""
    try:
        got = run()
    except REFUSALS as error:
        if not str(error).strip():
            raise MismatchError(call, "values, or an error with a text", error) from None
        return
    subject.same(call, got if isinstance(got, torch.Tensor) else torch.as_tensor(got), expected)


@check("life", "data_ptr() is an address of other memory, or crashes")
def data_ptr_is_no_other_address(subject: Subject) -> None:
    """A wrapper has no memory of its own: ``data_ptr`` and the storage's give 0 or an error, or the address of the
    values themselves; never one that a kernel could read garbage from. torch's own copying relies on the 0."""
    instance = subject.new(4, 8)
    shown = {"w": instance, "nn.Parameter(w)": torch.nn.Parameter(instance)}
    shown |= {"w[1:3]": instance[1:3], "w[2]": instance[2]}
    for name, tensor in shown.items():
        for call, read in _pointers(tensor).items() if subject.is_instance(tensor) else ():
            try:
                pointer = read()
            except RuntimeError:
                continue
            if pointer not in (0, *addresses(tensor), *addresses(instance)):
                raise MismatchError(f"{name}.{call}", "0, an error, or the address of a tensor inside", pointer)


def _pointers(tensor: torch.Tensor) -> dict[str, Callable[[], int]]:
    return {"data_ptr()": tensor.data_ptr, "untyped_storage().data_ptr()": lambda: tensor.untyped_storage().data_ptr()}


@check("life", "reading the storage crashes", kinds=VALUED)
def the_storage_is_read_safely(subject: Subject) -> None:
    """Sharding code and serializers ask for the storage. Its size in bytes is that of the shape and dtype, or an error;
    reading it gives the bytes of the values, or an error: no crash, no garbage."""
    instance = subject.new(4, 8)
    expected = subject.reference(subject.plain(4, 8)).contiguous().view(torch.uint8).flatten().cpu()
    _or_refused(subject, "w.untyped_storage().tolist()", lambda: _bytes(instance.untyped_storage().tolist()), expected)
    _or_refused(subject, "w.untyped_storage().clone()", lambda: _bytes(instance.untyped_storage().clone()), expected)
    size = torch.tensor(4 * 8 * 4)
    _or_refused(subject, "w.untyped_storage().nbytes()", lambda: instance.untyped_storage().nbytes(), size)
    _or_refused(subject, "w.nbytes", lambda: instance.nbytes, size)


def _bytes(values: Any) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.uint8)


@check("life", "tolist() or item() gives other values", kinds=VALUED)
def values_are_read_out(subject: Subject) -> None:
    """``item``, ``float`` and ``bool`` give the values that the instance stands for; ``tolist`` does, or is refused
    with an error. Logging a loss goes through them."""
    instance = subject.new(4, 8)
    plain = subject.reference(subject.plain(4, 8))
    element = instance[1, 2]
    for call, run in (("w[1, 2].item()", element.item), ("float(w[1, 2])", lambda: float(element))):
        subject.same(call, torch.tensor(run()), plain[1, 2].cpu())
    subject.same("bool(w[1, 2] < 1e9)", bool(element < 1e9), True)
    _or_refused(subject, "w.tolist()", lambda: torch.tensor(instance.tolist()), plain.cpu())


@check("life", "numpy() gives memory that is not there", kinds=VALUED)
def numpy_gives_the_values(subject: Subject) -> None:
    """``w.numpy()``, ``np.asarray(w)`` and ``np.array(w)`` give the values, or an error that says what to do."""
    instance = subject.new(4, 8)
    plain = subject.reference(subject.plain(4, 8)).cpu()
    ways: dict[str, Callable[[], Any]] = {
        "w.numpy()": instance.numpy,
        "w.numpy(force=True)": lambda: instance.numpy(force=True),
        "np.asarray(w)": lambda: np.asarray(instance),
        "np.array(w)": lambda: np.array(instance),
    }
    for call, run in ways.items():
        _or_refused(subject, call, run, plain)


@check("life", "torch.from_dlpack(w), then a read: the process dies", kinds=VALUED)
def dlpack_gives_the_values(subject: Subject) -> None:
    """``torch.from_dlpack(w)`` and ``w.__dlpack__()`` hand out values, or an error. What torch does by itself is a
    capsule around a null pointer, and a crash at the first read."""
    instance = subject.new(4, 8)
    plain = subject.reference(subject.plain(4, 8))
    _or_refused(subject, "torch.from_dlpack(w)", lambda: dlpack.from_dlpack(instance).clone(), plain)
    _or_refused(subject, "torch.from_dlpack(w.__dlpack__())", lambda: dlpack.from_dlpack(instance.__dlpack__()), plain)


@check("life", "np.from_dlpack(w) is garbage", kinds=VALUED)
def numpy_takes_the_values_by_dlpack(subject: Subject) -> None:
    """``np.from_dlpack(w)`` gives the values, or an error."""
    instance = subject.new(4, 8)
    plain = subject.reference(subject.plain(4, 8)).cpu()
    _or_refused(subject, "np.from_dlpack(w)", lambda: torch.tensor(np.array(np.from_dlpack(instance))), plain)


@check("life", "plain.data = w, then a read: the process dies", kinds=VALUED)
def memory_taken_past_the_class_is_no_garbage(subject: Subject) -> None:
    """``plain.data = w``, ``plain.set_(storage)`` and the old dlpack capsule give a plain tensor of the values, or an
    error. torch itself takes a wrapper's missing memory there without asking its class, and dies at the first read: a
    known limit. Other values are a failure."""
    if subject.device.type != "cpu":
        raise NotApplicable("it may crash, and a process that uses a GPU can't be forked")
    instance, plain = subject.new(4, 8), subject.reference(subject.plain(4, 8))
    dead = [call for call, take in _TAKEN.items() if not _survives(subject, call, partial(take, instance), plain)]
    if dead:
        raise KnownLimit(f"the process dies at {' and at '.join(dead)}: torch asks no class there")


def _survives(subject: Subject, call: str, run: Callable[[], Any], expected: torch.Tensor) -> bool:
    """Whether a fork of this process gets through the call, which has to give the expected values or an error."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            _or_refused(subject, call, run, expected)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code > 0:
        raise MismatchError(call, "values, or an error with a text", "other values")
    return code == 0


def _set_data(instance: Any) -> torch.Tensor:
    plain = torch.zeros(4, 8)
    plain.data = instance
    return plain.clone()


def _set_storage(instance: Any) -> torch.Tensor:
    plain = torch.empty(0).set_(instance.untyped_storage(), 0, instance.shape, instance.stride())
    return plain.clone()


def _capsule(instance: Any) -> torch.Tensor:
    old: Any = dlpack
    return dlpack.from_dlpack(old.to_dlpack(instance)).clone()


_TAKEN: dict[str, Callable[[Any], torch.Tensor]] = {
    "plain.data = w; plain.clone()": _set_data,
    "plain.set_(w.untyped_storage(), 0, w.shape).clone()": _set_storage,
    "from_dlpack(torch.utils.dlpack.to_dlpack(w)).clone()": _capsule,
}
