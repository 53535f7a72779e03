"""Watches a step as it runs under FakeLikeMode: fills the ledger, and counts what operators cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from ...subclasses.core.call_site import call_site
from ...subclasses.core.fields import tensors_in
from ...subclasses.core.private import (
    OpOverload,
    never_compile,
    running_node,
    running_sequence_number,
)
from ...subclasses.core.schema import facts_of
from ...subclasses.logging_tensor import current_phase
from ...subclasses.logging_tensor.module_path import module_path
from ...subclasses.logging_tensor.phase import unwatch_optimizers, watch_optimizers
from ...subclasses.logging_tensor.record import Phase, joined, name_of
from ..dispatch_mode import WatchingDispatchMode
from ..fake.compiled import graphs_for_inductor
from ..fake.random_state import run_from_state, runs_from_state
from ..op_costs import dtype_of
from .costs import StepCosts
from .in_place import in_place
from .kept import kept_bytes
from .ledger import GRADIENTS, INPUTS, PARAMETERS, STATE, Block, Ledger, Step, is_opaque
from .scratch import ScratchLog

_LIFTS = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default)  # of what torch.tensor has just made


class StepWatch(WatchingDispatchMode):
    """``known``: modules, optimizers and tensors that are there before. ``progress``: called after each operator."""

    def __init__(self, known: Sequence[Any], progress: Callable[[Step], object] | None = None) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.steps: list[Step] = []
        self.costs = StepCosts()
        self.scratch = ScratchLog()
        self.compiled_calls = self.inductor_graphs = 0
        self._known: Sequence[Any] = known
        self._progress = progress
        self._compiled_before = 0
        self._depth, self._declines = 0, False
        self._hooks: list[RemovableHandle] = []
        self._outside = call_site()  # where the plan was asked for: no place in the step

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if self._declines:
            self._declines = False
            return NotImplemented
        return super().__torch_dispatch__(func, types, args, kwargs)

    def see(self, func: Any, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if runs_from_state(func):
            return self._see_inside(func, args, kwargs)
        path, phase = module_path(makes_nodes=True), current_phase()
        index = self.ledger.next()
        site = call_site()
        step = Step(index, joined(*name_of(func)), phase, path, None if site == self._outside else site)
        self.steps.append(step)
        given = [*tensors_in((args, dict(kwargs)))]
        for tensor in given:
            self._given(tensor, phase, self._how(phase) if func in _LIFTS else None)
        opaque = any(map(is_opaque, given))
        result = self._opened(run, args, kwargs) if opaque else run(*args, **kwargs)
        kept = kept_bytes(func, args, kwargs, result)
        made = [block for tensor in tensors_in(result) for block in self.ledger.blocks(tensor, self._how(phase), kept)]
        if made and not opaque:
            self.scratch.add(step, func, args, kwargs, made[0].device)
        if phase == "backward":
            self._made_in_backward(func, given, made)
        elif not given and path is None and phase == "forward":
            for block in made:
                _mark(block, INPUTS)
        if not self._depth:  # an operator on a wrapper costs what it is, and not again what the wrapper computes
            self._count(step, func, args, kwargs, result, phase)
        return result

    def _see_inside(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The operator that ``func`` runs is seen by itself."""
        for tensor in tensors_in(tuple(args[:1])):  # the state, if it is given one
            self._given(tensor, current_phase(), None)
        self._push()
        try:
            return run_from_state(func, args, kwargs, self.ledger.last)
        finally:
            self._pop()

    def _opened(self, run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """An operator on wrappers: what they compute inside is seen, too, for its memory. Asked again, the mode
        declines: then torch asks the wrappers, with the mode on."""
        self._declines = True
        self._depth += 1
        self._push()
        try:
            return run(*args, **kwargs)
        finally:
            self._pop()
            self._depth -= 1
            self._declines = False

    def _given(self, tensor: torch.Tensor, phase: Phase, recorded: str | None) -> None:
        is_parameter = isinstance(tensor, nn.Parameter)
        for block in self.ledger.blocks(tensor, recorded):
            if is_parameter:
                block.category = PARAMETERS
            elif phase == "backward" and _was_saved(block):
                block.saved = True

    def _made_in_backward(self, func: Any, given: Sequence[torch.Tensor], made: Sequence[Block]) -> None:
        """The gradients of leaves show by the node that accumulates them."""
        if running_node() == "AccumulateGrad":
            for block in made:
                _mark(block, GRADIENTS)
            return
        node = running_sequence_number()
        for block in made:
            block.node = node if block.node is None else block.node
        if made and given and not torch.is_grad_enabled():
            first = next(self.ledger.blocks(given[0]), None)
            how = None if first is None else in_place(func, given, first.node, node)
            if first is not None and how is not None:
                self.ledger.replaced(made[0], first, how)

    def _how(self, phase: Phase) -> str:
        return "anew" if phase == "backward" and torch.is_grad_enabled() else phase

    def _count(
        self, step: Step, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, phase: Phase
    ) -> None:
        facts = facts_of(func) if isinstance(func, OpOverload) else None
        self.costs.add(step, func, facts, args, kwargs, result, dtype_of(args, result), phase)
        if self._progress is not None:
            self._progress(step)

    def mark(self, values: Any, category: str) -> None:
        """Whatever tensors there are in ``values``: of that category, unless one that stands before it is known."""
        for tensor in tensors_in(values):
            for block in self.ledger.blocks(tensor):
                _mark(block, category)

    def _registered(self, category: str, *registered: Any) -> None:
        self.mark(registered[-1], category)

    def _known_before(self, value: Any) -> None:
        if isinstance(value, nn.Module):
            self.mark(list(value.parameters()), PARAMETERS)
            self.mark([p.grad for p in value.parameters()], GRADIENTS)
            self.mark(list(value.buffers()), INPUTS)
        elif isinstance(value, Optimizer):
            self._of_optimizer(value)
        else:
            self.mark(value, INPUTS)

    def _of_optimizer(self, optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            self.mark(list(group["params"]), PARAMETERS)
            self.mark([p.grad for p in group["params"]], GRADIENTS)
        self.mark([list(state.values()) for state in optimizer.state.values()], STATE)

    def _warn(self, calls: int) -> None:
        """The operators of compiled graphs run one by one, so that all of it is seen."""
        self.compiled_calls = calls

    def _begin(self) -> None:
        for value in self._known:
            self._known_before(value)
        self._known = ()
        self._compiled_before = graphs_for_inductor()
        watch_optimizers()
        self._hooks = [
            register_module_parameter_registration_hook(partial(self._registered, PARAMETERS)),
            register_module_buffer_registration_hook(partial(self._registered, INPUTS)),
            register_optimizer_step_pre_hook(self._of_optimizer),
            register_optimizer_step_post_hook(self._of_optimizer),
        ]

    def _end(self, *, raising: bool) -> None:  # noqa: ARG002 - nothing to complete, so nothing to raise
        for hook in self._hooks:
            hook.remove()
        unwatch_optimizers()
        self.inductor_graphs = graphs_for_inductor() - self._compiled_before
        self.ledger.close()


never_compile(StepWatch.__torch_dispatch__)


def _mark(block: Block, category: str) -> None:
    """What is known of a block stays, but for what only says that it was there."""
    if block.category in (None, INPUTS):
        block.category = category


def _was_saved(block: Block) -> bool:
    """Whether its use by the backward that runs means that autograd kept it: it comes from the forward, or from one
    that ran anew inside the backward, with gradients."""
    return block.recorded == "forward" or (block.recorded == "anew" and not torch.is_grad_enabled())
