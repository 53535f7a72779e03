"""One case, wrapped, against the plain run of it; and what both of them call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from .compare import Candidate, Comparison, MismatchError, Plain, Values, aliases
from .report import Failure
from .samples import PLAIN_GRADIENT, REORDERED_GRADIENT, SEED, UNDECLARED_ALIAS, Arguments, Case, callable_of, seed
from .text import call_text


@dataclass
class Run:
    """One call: the arguments after it, its target (what an in-place call mutates) and its result.

    ``of_the_class``: of the plain run, whether an operand is of the class in the other.
    """

    arguments: Arguments
    target: Any
    result: Any
    of_the_class: bool = True

    def touched(self) -> list[torch.Tensor]:
        """All that the call could have mutated."""
        extra = [self.target] if self.target is not self.arguments.input else []
        return self.arguments.tensors() + extra

    def outputs(self) -> list[torch.Tensor]:
        return [leaf for leaf in tree_leaves(self.result) if isinstance(leaf, torch.Tensor)]


def call(case: Case, arguments: Arguments) -> Run:
    function = callable_of(case.op, case.variant)
    assert function is not None
    target = arguments.input
    if case.variant == "inplace" and target.requires_grad:
        target = target.clone()  # a leaf that requires grad cannot be mutated
    seed()
    return Run(arguments, target, function(target, *arguments.args, **arguments.kwargs))


class Trial:
    """The wrapped run of one case, compared with the plain one in stages; each stage raises what differs."""

    def __init__(self, candidate: Candidate, case: Case, plain: Run, aliasing: bool) -> None:
        self._candidate = candidate
        self._case = case
        self._plain = plain
        self._aliasing = aliasing
        self._grad = any(t.requires_grad for t in plain.arguments.tensors())
        # A factory that is given no tensor cannot know of the class: its result is plain.
        self._factory = not plain.arguments.tensors()
        self._strictness = Comparison(
            candidate,
            Values.IGNORED if case.uninitialized else Values.BITS,
            Plain.ALWAYS if self._factory else Plain.NEVER,
            candidate.tolerance(case.name, case.dtype),
        )
        self._gradient_strictness: Comparison | None = None
        self.compared_gradients = False
        self.refused = False

    @property
    def rounded(self) -> bool:
        """Whether something was equal within the candidate's tolerance only."""
        gradient = self._gradient_strictness
        return self._strictness.rounded or (gradient is not None and gradient.rounded)

    def first_failure(self) -> Failure | None:
        for name, stage in (("forward", self._forward), ("input", self._inputs), ("grad", self._gradients)):
            try:
                stage()
            except MismatchError as mismatch:
                return self._failure(name, mismatch.kind, mismatch.detail)
            except Exception as error:  # whatever a candidate raises where the plain run does not is a finding
                self.refused = _refuses_layout(error)
                return self._failure(name, type(error).__name__, str(error).split("\n")[0])
        return None

    def _failure(self, stage: str, kind: str, detail: str) -> Failure:
        return failure_of(self._candidate, self._case, stage, kind, detail)

    def _forward(self) -> None:
        plain, case = self._plain, self._case
        wrap = leaf_maker(self._candidate, lambda tensor: self._candidate.wrap(tensor.detach()))
        wrapped = call(case, case.fresh_arguments(self._grad).map(wrap))
        self._strictness.trees("output", plain.result, wrapped.result)
        if (plain.result is plain.target) != (wrapped.result is wrapped.target):
            raise MismatchError("identity", "the result is the input itself in one of the runs only")
        if self._aliasing and not self._factory and case.op.name not in UNDECLARED_ALIAS:
            aliases(plain.touched(), plain.outputs(), wrapped.touched(), wrapped.outputs())
        self._wrapped = wrapped

    def _inputs(self) -> None:
        self._strictness.trees("input", self._plain.touched(), self._wrapped.touched())

    def _gradients(self) -> None:
        case = self._case
        if not self._grad or case.uninitialized:
            return
        try:
            expected, cotangents = _differentiate(case, self._plain, None)
        except Exception:  # torch has no backward for this sample: only the forward can be compared
            return
        if not expected:
            return
        wrapped_cotangents = [self._candidate.cotangent(cotangent) for cotangent in cotangents]
        got, _ = _differentiate(case, self._wrapped, wrapped_cotangents)
        # Some C++ derivatives (`repeat` by 0, `normal`) answer `at::zeros` and never ask the class.
        anyhow = self._candidate.plain_gradients or case.op.name in PLAIN_GRADIENT
        plain = Plain.ALWAYS if anyhow else Plain.ZEROS
        values = Values.ROUNDING if case.op.name in REORDERED_GRADIENT else Values.BITS
        for index, gradient in enumerate(got):
            self._candidate.check_gradient(f"gradient {index}", gradient)
        self._gradient_strictness = Comparison(self._candidate, values, plain, self._strictness.tolerance)
        self._gradient_strictness.trees("gradient", expected, got)
        self.compared_gradients = True


def failure_of(candidate: Candidate, case: Case, stage: str, kind: str, detail: str) -> Failure:
    """It carries the call, and how much is in its tensors."""
    size = sum(tensor.numel() for tensor in case.arguments.tensors() if tensor.layout is torch.strided)
    place = (case.name, case.variant, case.dtype_name, case.index)
    return Failure(*place, stage, kind, detail, call_text(case, candidate), size)


def _refuses_layout(error: Exception) -> bool:
    text = str(error).lower()
    return isinstance(error, (RuntimeError, ValueError)) and ("sparse" in text or "layout" in text)


def leaf_maker(candidate: Candidate, make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Calls ``make`` once for each tensor; the result is an autograd leaf like the given one."""
    made: dict[int, torch.Tensor] = {}

    def leaf(plain: torch.Tensor) -> torch.Tensor:
        if not candidate.takes(plain):
            return plain
        if id(plain) not in made:
            new = make(plain)
            made[id(plain)] = new if new is plain else new.requires_grad_(plain.requires_grad)
        return made[id(plain)]

    return leaf


def _differentiate(
    case: Case, run: Run, cotangents: list[torch.Tensor] | None
) -> tuple[list[torch.Tensor | None], list[torch.Tensor]]:
    """Gradients of all leaves for fixed cotangents. The sample's own post-processing removes gauge freedom first."""
    processed = tree_leaves(case.sample.output_process_fn_grad(run.result))
    outputs = [leaf for leaf in processed if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    leaves = [tensor for tensor in run.arguments.tensors() if tensor.requires_grad]
    if not outputs:
        return [], []
    if cotangents is None:
        generator = torch.Generator().manual_seed(SEED)
        cotangents = [torch.randn(o.shape, dtype=o.dtype, generator=generator) for o in outputs]
    seed()
    return list(torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)), cotangents
