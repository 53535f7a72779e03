"""The class under test: how to make an instance, and how to read the values that it stands for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from ..subclasses.core.private import map_nested
from ..subclasses.core.wrapper import WrapperTensor
from .inside import FACTS, addresses, context_of, inner_tensors, leaves_of
from .outcome import MismatchError, NotApplicable, first_line

__all__ = [
    "CPU",
    "VALUED",
    "Decode",
    "Kind",
    "Make",
    "Subject",
    "SubjectError",
    "addresses",
    "context_of",
    "inner_tensors",
    "leaves_of",
]

Make = Callable[[torch.Tensor], torch.Tensor]
Decode = Callable[[Any], torch.Tensor]

CPU = torch.device("cpu")


class Kind(Enum):
    """What instances of a class stand for."""

    TRANSPARENT = "transparent"
    """The values of the inner tensor: all ops give the bits that they give on it."""
    REPRESENTATION = "representation"
    """Values that ``decode`` computes: ops give what they give on decoded operands."""
    FAKE = "fake"
    """No values: ops give the metadata that they give on real tensors."""


VALUED = (Kind.TRANSPARENT, Kind.REPRESENTATION)


class SubjectError(ValueError):
    """The class, or its ``make``, can't be checked at all. The text says what to pass."""


@dataclass(frozen=True)
class Subject:
    """``make(plain)`` builds an instance; ``decode(instance)`` is the plain tensor of its values.

    ``rtol``: the relative error allowed where sums are taken in another order or products are approximate, of the
    largest magnitude; None: torch's own for the dtype. ``full``: whether checks try all that they know.
    """

    cls: type[torch.Tensor]
    make: Make
    kind: Kind
    decode: Decode
    device: torch.device = CPU
    rtol: float | None = None
    full: bool = False

    def plain(self, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
        """Values to wrap: the same for the same arguments, normal ones, or 0 to 9 for integers."""
        generator = torch.Generator().manual_seed(seed)
        if dtype.is_floating_point or dtype.is_complex:
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            if dtype.is_complex:
                values = torch.complex(values, torch.randn(shape, generator=generator, dtype=torch.float64))
        else:
            values = torch.randint(0, 2 if dtype is torch.bool else 10, shape, generator=generator)
        return values.to(self.device, dtype)

    def new(self, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, grad: bool = False) -> Any:
        """An instance of ``plain(...)``. It is a leaf that requires grad, if asked."""
        return self.wrap(self.plain(*shape, dtype=dtype, seed=seed), grad=grad)

    def wrap(self, plain: torch.Tensor, *, grad: bool = False) -> Any:
        """An instance that stands for ``plain``: a copy of it, so that the two share no memory. Where ``make`` draws
        random numbers, it draws the same each time."""
        torch.manual_seed(0)
        made = self.make(plain.detach().clone())
        if not isinstance(made, self.cls):
            raise MismatchError(f"make({list(plain.shape)})", self.cls, type(made))
        return self._leaf(made) if grad else made

    def _leaf(self, made: torch.Tensor) -> torch.Tensor:
        try:
            return made.detach().requires_grad_()
        except (RuntimeError, ValueError) as error:
            if "grad" not in str(error):
                raise
            raise NotApplicable(f"{self.cls.__name__} can't require grad: {first_line(error)}") from None

    def takes(self, plain: torch.Tensor) -> bool:
        """Whether ``make`` accepts such a tensor. A class for floats, or for matrices, need not take others."""
        try:
            self.wrap(plain)
        except Exception:  # noqa: BLE001 - whatever make raises, it says no
            return False
        return True

    def is_instance(self, value: Any) -> bool:
        """Whether it is of the class; a Parameter that holds one is."""
        return isinstance(value, self.cls)

    def values(self, value: Any) -> Any:
        """The plain tensors that ``value`` stands for; anything else, in lists too, stays. A class of lamina's may give
        views of another one."""
        return map_nested(self._value, value)

    def _value(self, each: Any) -> Any:
        if self.is_instance(each):
            return self.decode(each).detach()
        detached: Any = each.detach() if isinstance(each, WrapperTensor) else None
        return each if detached is None else detached.to_plain()

    def reference(self, plain: torch.Tensor) -> torch.Tensor:
        """The values that an instance made of ``plain`` stands for: what an op has to be compared with."""
        if self.kind is Kind.FAKE:
            return plain.detach().clone()
        values: torch.Tensor = self.values(self.wrap(plain))
        return values.clone()

    def step(self, values: torch.Tensor) -> float:
        """How far off a write of ``values`` may be: by what the class can represent near them. 0 if all."""
        if self.kind is not Kind.REPRESENTATION or not values.numel() or not self.takes(values):
            return 0.0
        error = (self.reference(values) - values).abs().amax()
        return float(3 * error + 1e-5 * values.abs().amax())

    def same(self, call: str, got: Any, expected: Any, *, loosely: bool = False) -> None:
        """Compare a result, of the class or plain, with the plain one: type of container, shape, dtype and values.

        Bits have to agree; ``loosely``, or where ``rtol`` is set, values within a tolerance.

        Raises:
            MismatchError: they differ. It names ``call``.
        """
        if isinstance(expected, (list, tuple)):
            if not isinstance(got, (list, tuple)) or len(got) != len(expected):
                raise MismatchError(call, f"{len(expected)} results", got)
            for index, (one, wanted) in enumerate(zip(got, expected, strict=True)):
                self.same(f"{call}[{index}]", one, wanted, loosely=loosely)
        elif isinstance(expected, torch.Tensor):
            self._same_tensor(call, got, expected, loosely)
        elif got != expected or type(got) is not type(expected):
            raise MismatchError(call, expected, got)

    def stored(self, call: str, got: Any, written: torch.Tensor, *, loosely: bool = False, writes: int = 1) -> None:
        """Compare ``got``, to which ``written`` was written, in so many ``writes``, with that: within as many steps of
        the representation.

        Raises:
            MismatchError: they differ by more. It names ``call``.
        """
        encoded = isinstance(got, (self.cls, WrapperTensor)) and written.is_floating_point()
        if self.kind is not Kind.REPRESENTATION or not encoded:
            self.same(call, got, written, loosely=loosely)
            return
        values, written = self.values(got), written.detach()
        if (values.shape, values.dtype) != (written.shape, written.dtype):
            raise MismatchError(call, written, values)
        if torch.equal(values, written):
            return
        off, step = (values - written).abs(), writes * self.step(written)
        if off.numel() and not float(off.amax()) <= step:
            place = [int(index) for index in torch.unravel_index(off.argmax(), off.shape)]
            expected = f"{float(written[tuple(place)]):.6g} at {place}, within {step:.2g}"
            raise MismatchError(call, expected, f"{float(values[tuple(place)]):.6g}")

    def kept(self, call: str, got: Any, original: Any) -> None:
        """Compare what stands in for ``original`` with it: class, Parameter-ness, requires_grad, context, and the plain
        tensors inside, bit by bit.

        Raises:
            MismatchError: they differ. It names ``call``.
        """
        if type(got) is not type(original):
            raise MismatchError(f"type({call})", type(original), type(got))
        for name, read in FACTS.items():
            if (now := read(got)) != (before := read(original)):
                raise MismatchError(f"{name} of {call}", before, now)
        leaves = zip(leaves_of(got), leaves_of(original), strict=True)
        if self.kind is not Kind.FAKE and not all(torch.equal(one, other) for one, other in leaves):
            raise MismatchError(f"the tensors inside {call}", "those inside the original, bit by bit", "other bits")

    def layer(self, *, grad: bool = True) -> torch.nn.Linear:
        """``nn.Linear(8, 4)`` whose weight is an instance; its bias is plain."""
        layer = torch.nn.Linear(8, 4, device=self.device)
        layer.weight = torch.nn.Parameter(self.new(4, 8), requires_grad=grad)
        if not self.is_instance(layer.weight):
            raise MismatchError("nn.Parameter(w)", f"a Parameter that is a {self.cls.__name__}", type(layer.weight))
        return layer

    def _same_tensor(self, call: str, got: Any, expected: torch.Tensor, loosely: bool) -> None:
        if not isinstance(got, torch.Tensor):
            raise MismatchError(call, expected, got)
        facts = [(tuple(each.shape), each.dtype, each.device) for each in (got, expected)]
        if facts[0] != facts[1]:
            raise MismatchError(call, "shape {}, {}, {}".format(*facts[1]), "shape {}, {}, {}".format(*facts[0]))
        if self.kind is Kind.FAKE:
            return
        values = self.values(got).detach()
        if type(values) is not torch.Tensor:
            raise MismatchError(call, f"an instance of {self.cls.__name__} or a plain tensor", type(got))
        if tuple(values.shape) != tuple(got.shape):
            raise MismatchError(call, f"values of shape {tuple(got.shape)}", f"values of shape {tuple(values.shape)}")
        self._same_values(call, values, expected.detach(), loosely)

    def _same_values(self, call: str, values: torch.Tensor, expected: torch.Tensor, loosely: bool) -> None:
        if torch.equal(values, expected):  # fast; of the same dtype, and without NaN
            return
        tolerance: dict[str, Any] = {"rtol": 0.0, "atol": 0.0}
        if loosely or self.rtol is not None:
            if self.rtol is None:
                tolerance = {}
            else:
                peak = float(expected.abs().amax()) if expected.numel() else 0.0
                tolerance = {"rtol": 0.0, "atol": self.rtol * peak}
        try:
            torch.testing.assert_close(values, expected, equal_nan=True, **tolerance)
        except AssertionError as error:
            detail = "; ".join(line.strip() for line in str(error).splitlines()[1:] if line.strip())
            raise MismatchError(call, expected, f"{first_line(error)} {detail}") from None
