"""Composite operators that tracers don't take apart on the meta device, where carriers are.

Torch has Python functions for them there (references and decompositions), and a tracer calls these in place of the
composite kernel, below autograd: their results have no gradient, and nothing says so. Here they are taken apart as on
other devices. Tracers alone ask: calls that nothing traces reach the composite kernel by themselves.
"""

from __future__ import annotations

import torch

from ..core.private import composite_kernel, has_kernel, traced_by

aten = torch.ops.aten
_TRANSFORMS = "fft fft2 fftn fftshift hfft hfft2 hfftn ifft ifft2 ifftn ifftshift ihfft ihfft2 ihfftn irfft irfft2"
NAMES = (
    *"_fused_rms_norm alpha_dropout conj_physical hinge_embedding_loss margin_ranking_loss meshgrid".split(),
    *"meshgrid.indexing nll_loss pairwise_distance pdist prelu relu6 selu selu_ special_ndtr square_".split(),
    *"std std.dim std_mean std_mean.dim var var.dim var_mean var_mean.dim".split(),
    *"where.Scalar where.ScalarOther where.ScalarSelf float_power_.Scalar float_power_.Tensor".split(),
    *"true_divide_.Scalar true_divide_.Tensor".split(),
    *(f"fft_{name}" for name in (*_TRANSFORMS.split(), "irfftn", "rfft", "rfft2", "rfftn")),
)
"""Not those of bits and truths, which have no gradients, nor backwards that the CPU has as one kernel."""


def take_apart() -> None:
    """Has tracers take them apart."""
    for name in NAMES:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(aten, packet, None), overload or "default", None)
        if op is not None and has_kernel(op, "CompositeImplicitAutograd"):
            traced_by(op, composite_kernel(op))
