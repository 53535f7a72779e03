"""A tensor type in twenty lines: declare the inner tensors, register a rule, print how each operator is answered.

Run it with `python examples/first_type.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import lamina

aten = torch.ops.aten


class Diagonal(lamina.WrapperTensor):
    """A square matrix that holds its diagonal only."""

    entries: Tensor
    fallback = lamina.Fallback.PLAIN  # an operator without a rule runs on the full matrix

    @classmethod
    def outer_metadata(cls, entries: Tensor) -> lamina.OuterMetadata:
        """A vector of n entries shows as an n x n matrix."""
        n = len(entries)
        return lamina.OuterMetadata((n, n), (n, 1), 0, entries.dtype, entries.device)

    def decode(self) -> Tensor:
        """The full matrix."""
        return self.entries.diag()


@Diagonal.implements(aten.mm.default)
def scale_rows(op: Any, self: Tensor, mat2: Tensor) -> Tensor:
    """A product with a diagonal matrix scales rows: n * k multiplications in place of n * n * k."""
    if isinstance(self, Diagonal) and not isinstance(mat2, Diagonal):
        return self.entries[:, None] * mat2
    return Diagonal.super_rule(op)(self, mat2)


def main() -> None:
    """Use the rule, then the fallback, and print the table."""
    diagonal, matrix = Diagonal(torch.tensor([1.0, 2.0, 3.0])), torch.ones(3, 2)
    print(diagonal @ matrix)  # the rule
    print(diagonal.sum())  # the fallback
    print(lamina.op_table(Diagonal))


if __name__ == "__main__":
    main()
