"""``flatten_state_dict`` and ``unflatten_state_dict``: a state dict as plain tensors and texts, as safetensors and the
like hold them, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from ..core.declaration import Role
from ..core.errors import LaminaError
from ..core.fields import context_of
from ..core.wrapper import WrapperTensor
from ..logging_tensor import LogHandle
from .classes import name_of, value_classes, wrapper_class
from .entries import Entry, Same, Stored, Value, Wrapped, check_tensors, read_entries, write_entries
from .errors import MISMATCHED, CheckpointError, listed
from .memory import Leaf, store, view_of
from .values import Classes, ValueFormatError, from_json, to_json

_PLAIN = (torch.Tensor, nn.Parameter)
_RESERVED = "__metadata__"  # safetensors takes no tensor of this name


def flatten_state_dict(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """A state dict as plain tensors and metadata, both of which safetensors takes. A wrapper of any lamina type becomes
    its innermost tensors, ``weight.qdata``, ``weight.scale``; class and context go to the metadata.

    Each piece of memory is stored once: names that share a tensor, a Parameter or memory in part share it again when
    read. The tensors are contiguous, and copied only where they were not: save them before training goes on. Kept are
    strides (dense ones), Parameters, ``requires_grad`` and the order; not kept are gradients, hooks, a tensor's own
    attributes, conj and neg bits (resolved), and the log of a ``LoggingTensor``, which lives in this process.

    >>> import lamina
    >>> weight = lamina.ScaledInt8Tensor.quantize(torch.ones(3, 2))
    >>> tensors, metadata = flatten_state_dict({"weight": weight, "bias": torch.zeros(3)})
    >>> sorted(tensors)
    ['bias', 'weight.qdata', 'weight.scale']
    >>> type(unflatten_state_dict(tensors, metadata)["weight"]).__name__
    'ScaledInt8Tensor'

    Args:
        state: names to tensors, plain or wrapped; or to what JSON can tell (extra state).

    Raises:
        CheckpointError: an entry has no such form. The text names it, and says what to do.
    """
    if not isinstance(state, Mapping):
        raise TypeError(f"flatten_state_dict takes a state dict, as module.state_dict(), got a {type(state).__name__}")
    writer = _Writer(state)
    entries = {name: writer.entry(index, name, value) for index, (name, value) in enumerate(state.items())}
    tensors = store(writer.leaves)
    return tensors, write_entries(entries)


def unflatten_state_dict(tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """The inverse of ``flatten_state_dict``. The result holds ``tensors`` themselves, not copies: what is mapped from a
    file stays so.

    Of a sharded checkpoint, merge the tensors and the metadata of all shards (``{**first, **second}``), or read one by
    one what ``split_state_dict`` made. A class that a file names has to be imported already: nothing is imported for
    it, and no code of the file runs.

    Raises:
        MissingTensorsError: metadata without their tensors.
        CheckpointError: tensors without metadata, another version, a class that is not there, damaged metadata.
    """
    entries = read_entries(metadata or {})
    check_tensors(tensors, entries)
    reader = _Reader(tensors)
    for name, entry in entries.items():
        reader.read(name, entry)
    return reader.state


class _Writer:
    """Turns values into entries, and collects the plain tensors to store."""

    def __init__(self, names: Iterable[str]) -> None:
        self.leaves: list[Leaf] = []
        self._names = {_RESERVED, *names}
        self._objects: dict[int, tuple[str, Any]] = {}  # the values too: the id of one that is gone may come again

    def entry(self, index: int, name: Any, value: Any) -> Entry:
        if not isinstance(name, str):
            raise CheckpointError(
                repr(name), "the name is no string", "Flatten a module's state dict; an optimizer's has other keys."
            )
        if not isinstance(value, torch.Tensor):
            return Entry(index, Value(_value_json(name, value, {}, "as an entry")))
        first, _ = self._objects.setdefault(id(value), (name, value))
        if first != name:
            return Entry(index, Same(first))
        content = self._tensor(name, name, value)
        return Entry(index, content, isinstance(value, nn.Parameter), value.requires_grad)

    def _tensor(self, entry: str, name: str, value: torch.Tensor) -> Stored | Wrapped:
        if isinstance(value, WrapperTensor):
            form = value.saved_form()
            return self._wrapper(entry, name, value) if form is value else self._tensor(entry, name, form)
        _check_plain(entry, value)
        if value.is_meta:
            raise CheckpointError(entry, "it is on the meta device: it has no values", "Load values into it first.")
        stored = Stored(name if name == entry != _RESERVED else self._free(name))
        self.leaves.append(Leaf(entry, value.detach().resolve_conj().resolve_neg(), stored))
        return stored

    def _wrapper(self, entry: str, name: str, value: Any) -> Wrapped:
        inner: dict[str, Any] = {}
        for field in type(value).declaration.inner:
            held, path = getattr(value, field.name), f"{name}.{field.name}"
            if field.role is Role.RUN:
                inner[field.name] = [self._tensor(entry, f"{path}.{i}", tensor) for i, tensor in enumerate(held)]
            else:
                inner[field.name] = None if held is None else self._tensor(entry, path, held)
        return Wrapped(name_of(type(value)), inner, _context_json(entry, value))

    def _free(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name


def _context_json(entry: str, wrapper: Any) -> dict[str, Any]:
    classes = value_classes(type(wrapper))
    # A log lives in one process only: without its handle a LoggingTensor records to the log in scope.
    context = {name: value for name, value in context_of(wrapper).items() if not isinstance(value, LogHandle)}
    what = f"as context of {type(wrapper).__name__}"
    return {name: _value_json(entry, value, classes, f"{what}, {name!r},") for name, value in context.items()}


def _value_json(entry: str, value: Any, classes: Classes, what: str) -> Any:
    try:
        return to_json(value, classes)
    except ValueFormatError as error:
        raise CheckpointError(
            entry,
            f"{what} it has a value that can't be saved: {error}",
            "Values are None, bool, int, float, str, tuple, list, dict, frozenset, torch.dtype and torch.device; as "
            "context also enums and frozen dataclasses that the annotation of the field names. Take the entry out, or "
            "turn it into such values or a tensor.",
        ) from error


def _check_plain(entry: str, tensor: torch.Tensor) -> None:
    if type(tensor) not in _PLAIN:
        raise CheckpointError(
            entry,
            f"it holds a {name_of(type(tensor))}, a tensor type that is not of lamina",
            "Turn it into plain tensors first (a DTensor: .full_tensor(); torchao: .dequantize()).",
        )
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise CheckpointError(
            entry,
            f"its layout is {tensor.layout}, its dtype {tensor.dtype}: no strided tensor",
            "Convert it (to_dense(), dequantize(), torch.nested.to_padded_tensor).",
        )


class _Reader:
    """Makes values of entries."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.state: dict[str, Any] = {}
        self._tensors = tensors
        self._images: dict[str, torch.Tensor] = {}

    def read(self, name: str, entry: Entry) -> None:
        content = entry.content
        if isinstance(content, Same):
            self.state[name] = self._same(name, content)
        elif isinstance(content, Value):
            self.state[name] = _value_of(name, content.value, {})
        else:
            self.state[name] = _as_leaf(name, self._tensor(name, content), entry)

    def _same(self, name: str, content: Same) -> Any:
        if content.entry not in self.state:
            raise CheckpointError(
                name,
                f"it is tied to {content.entry!r}, of which the metadata say nothing before it",
                f"Pass the metadata and the tensors of {content.entry!r} as well.",
            )
        return self.state[content.entry]

    def _tensor(self, name: str, content: Any) -> Any:
        if content is None:
            return None
        if isinstance(content, list):
            return tuple(self._tensor(name, item) for item in content)
        return self._stored(name, content) if isinstance(content, Stored) else self._wrapper(name, content)

    def _stored(self, name: str, stored: Stored) -> torch.Tensor:
        if stored.tensor not in self._images:
            given = self._tensors[stored.tensor]
            _check_plain(name, given)
            self._images[stored.tensor] = given.detach().contiguous()
        return view_of(self._images[stored.tensor], stored, name)

    def _wrapper(self, name: str, content: Wrapped) -> Any:
        cls = wrapper_class(content.cls, name)
        for said, fields in ((content.inner, cls.declaration.inner), (content.context, cls.declaration.context)):
            unknown = said.keys() - {field.name for field in fields}
            if unknown:
                raise CheckpointError(
                    name,
                    f"{content.cls} has no field {listed(sorted(unknown))}: it was another class when this was saved",
                    "Load it with the version that saved it, and save to_plain() values.",
                )
        classes = value_classes(cls)
        inner = {field: self._tensor(name, item) for field, item in content.inner.items()}
        context = {field: _value_of(name, written, classes) for field, written in content.context.items()}
        try:
            return cls(**inner, **context)
        except (LaminaError, TypeError, ValueError, ArithmeticError, LookupError, RuntimeError) as error:
            raise CheckpointError(
                name,
                f"{content.cls} refuses what was read: {error}",
                MISMATCHED,
            ) from error


def _value_of(name: str, written: Any, classes: Classes) -> Any:
    try:
        return from_json(written, classes)
    except ValueFormatError as error:
        raise CheckpointError(name, str(error), "Or load another copy: this one may be damaged.") from error


def _as_leaf(name: str, tensor: torch.Tensor, entry: Entry) -> torch.Tensor:
    if entry.requires_grad and not (tensor.is_floating_point() or tensor.is_complex()):
        raise CheckpointError(
            name,
            f"a tensor of dtype {tensor.dtype} can't require grad, as its metadata say",
            MISMATCHED,
        )
    if entry.parameter:
        return nn.Parameter(tensor, requires_grad=entry.requires_grad)
    return tensor.requires_grad_(entry.requires_grad)
