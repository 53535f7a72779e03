"""``wrap_parameters`` and ``unwrap_parameters``: a module's parameters in wrappers, and back."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from torch import nn

from .core.errors import LaminaError
from .core.fields import is_wrapper_class
from .core.private import forward_hooks, load_hooks, map_nested, name_before_compiling, own_parameters, uncompiled
from .core.wrapper import WrapperTensor
from .swap import Taken, Wrap, drop_gradient_hook, exchange, set_gradient_hook, transaction, wrapped
from .watch import Record, Watch, classes_of, note, watches

Where = Callable[[str, nn.Module, nn.Parameter], bool]

_log = logging.getLogger("lamina")
_SHOWN = 8  # parameter names in a message


class NoParameterError(LaminaError, ValueError):
    """No parameter of the module was chosen: nothing would be wrapped."""


class NotWrappedError(LaminaError, AssertionError):
    """Parameters that ``wrap_parameters`` wrapped aren't wrapped any more."""


def wrap_parameters(module: nn.Module, wrap: Wrap, *, where: Where | None = None, outputs: str = "same") -> nn.Module:
    """Puts parameters of ``module`` into wrappers, in place. Each Parameter object stays the one that it is, so that an
    optimizer that holds it trains on; so do ties, ``requires_grad``, ``.grad``, hooks and attributes. Buffers and the
    other parameters stay plain, and get plain gradients.

    >>> import lamina
    >>> only_weights = lambda name, module, parameter: name == "weight"
    >>> model = wrap_parameters(nn.Linear(2, 1), lamina.LoggingTensor, where=only_weights)
    >>> wrapped_parameters(model)
    {'weight': <class '...LoggingTensor'>}

    Wrapping again puts a second layer around the first. A module that ``torch.compile`` returned recompiles; its names
    are those before compiling. What was wrapped is logged (``logging.getLogger("lamina")``, INFO). As ever in torch,
    casting, moving or copying the module drops the hooks of its tensors, also those that turn a gradient
    which autograd hands over in the other type into the type of the leaf's choice.

    Args:
        module: parametrizations are respected: it is their ``original`` that is wrapped.
        wrap: from the parameter's detached tensor to a ``WrapperTensor`` of the same shape, dtype and device; may hold
            that very tensor, must not write to it.
        where: whether to wrap the parameter of this name, in this submodule. A tied parameter is asked for by each of
            its names, and wrapped if one is chosen. None: every parameter.
        outputs: ``"plain"``: what ``module`` returns is unwrapped, in tuples, dicts and dataclasses too, until
            ``unwrap_parameters``. Compiled code doesn't see it if only this changes: call ``torch.compiler.reset()``.

    Raises:
        NoParameterError: there is nothing to wrap.
        WrapResultError: ``wrap`` returned something else.
        ParameterInUseError: a graph, a view or a weak reference holds on to a parameter.
        Exception: what ``wrap`` raised. In every case all parameters are as they were.
    """
    _check_arguments(module, wrap, where, outputs)
    root = uncompiled(module)
    sites = _sites(root)
    chosen = [site for site in sites if site.is_chosen(where)]
    _check_choice(root, sites, chosen, where)
    taken: Taken = {}
    with transaction(root, [(s.name, s.parameter) for s in chosen]) as undo:
        for site in chosen:
            exchange(site.name, site.parameter, wrapped(site.name, site.parameter, wrap, taken), undo)
    _settle(root, sites, chosen, outputs)
    return module


def unwrap_parameters(module: nn.Module) -> nn.Module:
    """Takes all layers off all parameters of ``module``, in place, and removes whatever ``wrap_parameters`` added. Each
    Parameter object stays the one that it is, as do ties, ``requires_grad``, ``.grad`` (now plain), hooks, attributes.

    Returns:
        ``module``.

    Raises:
        ParameterInUseError: a graph, a view or a weak reference holds on to a parameter. Nothing was changed.
    """
    _check_module("unwrap_parameters", module)
    root = uncompiled(module)
    sites = _sites(root)
    wrapped = [site for site in sites if isinstance(site.parameter, WrapperTensor)]
    with transaction(root, [(site.name, site.parameter) for site in wrapped]) as undo:
        for site in wrapped:
            exchange(site.name, site.parameter, site.unwrapped(), undo)
    for site in sites:
        drop_gradient_hook(site.parameter)
    for submodule in root.modules():
        for hooks in (load_hooks(submodule), forward_hooks(submodule)):
            for key in [k for k, hook in hooks.items() if isinstance(hook, (Watch, PlainOutputs))]:
                del hooks[key]
    return module


def wrapped_parameters(module: nn.Module) -> dict[str, type]:
    """The wrapped parameters of ``module`` by name, in its order, and the class of their outermost layer. A tied
    parameter stands under each of its names."""
    owners = _owners(uncompiled(module))
    return {name: type(p) for name, _, _, p in owners if isinstance(p, WrapperTensor)}


def assert_wrapped(module: nn.Module) -> None:
    """Each parameter that ``wrap_parameters`` wrapped is in its layers still. ``load_state_dict(assign=True)`` and
    ``module.weight = nn.Parameter(...)`` replace a wrapper without a word.

    Raises:
        NotWrappedError: some parameters are not, or ``module`` never had wrapped ones.
    """
    watched = [(submodule, watch) for submodule in uncompiled(module).modules() for watch in watches(submodule)]
    if not watched:
        raise NotWrappedError(f"no parameter of this {type(module).__name__} was wrapped. Call lamina.wrap_parameters.")
    replaced = [text for submodule, watch in watched for text in watch.replaced(submodule)]
    if replaced:
        raise NotWrappedError(f"{'; '.join(replaced)}. Call lamina.wrap_parameters again, or load without assign=True.")


class PlainOutputs:
    """A forward hook that unwraps what the module returns. Differentiable."""

    def __call__(self, module: nn.Module, args: object, output: Any) -> Any:
        return map_nested(_plain, output)


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, WrapperTensor):
        return leaf.to_plain()
    if is_dataclass(leaf) and not isinstance(leaf, type):
        return replace(leaf, **{f.name: map_nested(_plain, getattr(leaf, f.name)) for f in fields(leaf) if f.init})
    if isinstance(leaf, (MutableMapping, MutableSequence)):  # a class of its own, which pytree does not look into
        unwrapped: Any = copy.copy(leaf)
        for key in leaf if isinstance(leaf, MutableMapping) else range(len(leaf)):
            unwrapped[key] = map_nested(_plain, leaf[key])
        return unwrapped
    return leaf


@dataclass(eq=False)
class _Site:
    """One Parameter, and each place where it is."""

    parameter: nn.Parameter
    plain: type  # its class before anything was wrapped
    places: list[tuple[str, nn.Module, str]]  # full name, owner, name in the owner

    @property
    def name(self) -> str:
        return self.places[0][0]

    def is_chosen(self, where: Where | None) -> bool:
        return where is None or any(where(name, owner, self.parameter) for name, owner, _ in self.places)

    def record(self) -> None:
        for name, owner, local in self.places:
            note(owner, local, Record(name, classes_of(self.parameter), self.plain))

    def unwrapped(self) -> nn.Parameter:
        values: Any = self.parameter.detach()
        new = nn.Parameter(values.to_plain(), requires_grad=self.parameter.requires_grad)
        if type(new) is nn.Parameter:
            new.__class__ = self.plain
        return new


def _owners(root: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Parameter]]:
    for prefix, owner in root.named_modules(remove_duplicate=False):
        for local, parameter in own_parameters(owner).items():
            if parameter is not None:
                yield name_before_compiling(f"{prefix}.{local}" if prefix else local), owner, local, parameter


def _sites(root: nn.Module) -> list[_Site]:
    """The parameters of ``root``, each once."""
    sites: dict[int, _Site] = {}
    for name, owner, local, parameter in _owners(root):
        site = sites.setdefault(id(parameter), _Site(parameter, _class_before(owner, local, parameter), []))
        site.places.append((name, owner, local))
    return list(sites.values())


def _class_before(owner: nn.Module, local: str, parameter: nn.Parameter) -> type:
    if not isinstance(parameter, WrapperTensor):
        return type(parameter)
    return next((watch.records[local].plain for watch in watches(owner) if local in watch.records), nn.Parameter)


def _check_arguments(module: Any, wrap: Any, where: Any, outputs: Any) -> None:
    """Refuses arguments of ``wrap_parameters`` that would fail half-way, or deep inside."""
    _check_module("wrap_parameters", module)
    if not callable(wrap):
        raise TypeError(f"wrap_parameters: wrap is a function from tensor to wrapper, got {wrap!r}")
    if where is not None and not callable(where):
        raise TypeError(f"wrap_parameters: where is a predicate (name, module, parameter) -> bool, got {where!r}")
    if outputs not in ("same", "plain"):
        raise ValueError(f"outputs={outputs!r} is neither 'same' nor 'plain'")
    if is_wrapper_class(wrap) and sum(f.required for f in wrap.declaration.fields) > 1:
        raise TypeError(
            f"wrap_parameters: {wrap.__name__}(...) takes more than a tensor. Pass what makes one of values: "
            f"{wrap.__name__}.from_plain" + (", or .quantize" if hasattr(wrap, "quantize") else "")
        )


def _check_module(caller: str, module: Any) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(f"{caller} takes a torch.nn.Module, got a {type(module).__name__}")


def _check_choice(root: nn.Module, sites: list[_Site], chosen: list[_Site], where: Where | None) -> None:
    kind = type(root).__name__
    if not sites:
        raise NoParameterError(f"this {kind} has no parameters: there is nothing to wrap")
    if not chosen:
        asked = getattr(where, "__qualname__", repr(where))
        raise NoParameterError(
            f"where={asked} chose no parameter of this {kind}. It was asked for {_listed([s.name for s in sites])}; "
            "its arguments are (name, module, parameter), where module is the submodule that owns the parameter."
        )
    lazy = [site.name for site in chosen if nn.parameter.is_lazy(site.parameter)]
    if lazy:
        raise NoParameterError(f"{_listed(lazy)} have no shape yet. Run the module once on a batch, then wrap.")


def _settle(root: nn.Module, sites: list[_Site], chosen: list[_Site], outputs: str) -> None:
    """What is done once the parameters are exchanged; can't fail."""
    for site in sites:
        if site in chosen:
            site.record()
        else:
            set_gradient_hook(site.parameter)
    if outputs == "plain" and not any(isinstance(h, PlainOutputs) for h in forward_hooks(root).values()):
        root.register_forward_hook(PlainOutputs())
    _report(root, sites, chosen)


def _report(root: nn.Module, sites: list[_Site], chosen: list[_Site]) -> None:
    if not _log.isEnabledFor(logging.INFO):
        return
    kinds = " and ".join(sorted({type(s.parameter).__name__ for s in chosen}))
    ties = [" = ".join(name for name, _, _ in s.places) for s in chosen if len(s.places) > 1]
    tied = f"; tied: {', '.join(ties)}" if ties else ""
    names = _listed([s.name for s in chosen])
    _log.info(
        "%d of %d parameters of %s are in %s: %s%s", len(chosen), len(sites), type(root).__name__, kinds, names, tied
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(n) for n in names[:_SHOWN]) + more
