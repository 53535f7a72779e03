"""A number as the sum of two bfloat16: for hardware that multiplies bfloat16 and nothing else, at twice the precision.

Run it with `python examples/split_float.py`. In a test file, one line checks the type in all that it has to do:

    test_split_float = lamina.conformance.conformance_tests(SplitFloat)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import lamina

aten = torch.ops.aten


class SplitFloat(lamina.WrapperTensor):
    """Stands for ``high + low``: 16 bits of a float's 24."""

    high: Tensor
    low: Tensor
    dtype_of_values: torch.dtype = torch.float32
    fallback = lamina.Fallback.PLAIN  # an operator without a rule runs on the sums, and what it wrote is split again
    gradients = lamina.Gradients.PLAIN

    @classmethod
    def outer_metadata(cls, high: Tensor, *others: Any) -> lamina.OuterMetadata:
        """That of ``high``, but for the dtype: the last field."""
        return lamina.OuterMetadata(high.shape, high.stride(), high.storage_offset(), others[-1], high.device)

    @classmethod
    def encode(cls, values: Tensor, **_: Any) -> SplitFloat:
        """Split: what the upper half can't hold is left to the lower one."""
        if not values.is_floating_point():
            raise ValueError(f"SplitFloat holds floating values, got {values.dtype}")
        high = values.bfloat16()
        return cls(high, (values - high).bfloat16(), values.dtype)

    def decode(self) -> Tensor:
        """The sums."""
        return self.high.to(self.dtype) + self.low.to(self.dtype)


@SplitFloat.implements(aten._to_copy.default)
def cast(op: Any, self: Any, **options: Any) -> Any:
    """To integers and complex numbers: the result is plain."""
    if (options.get("dtype") or self.dtype).is_floating_point:
        return SplitFloat.super_rule(op)(self, **options)
    return op(self.decode(), **options)


def main() -> None:
    """How exact it is, beside bfloat16; then what the conformance kit says of it."""
    torch.manual_seed(0)
    weight, x = torch.randn(64, 64), torch.randn(8, 64)
    exact = x @ weight
    for name, held in (("bfloat16", weight.bfloat16().float()), ("split", SplitFloat.from_plain(weight))):
        print(f"{name}: error {float((x @ held - exact).norm() / exact.norm()):.1e}")
    print(lamina.conformance.check_subclass(SplitFloat, only=["views", "writes"]).headline())


if __name__ == "__main__":
    main()
