"""The scratch memory of one convolution on a CPU: what its kernel takes and has given back when it returns.

Two kinds of kernel: oneDNN's, which work on copies of their tensors in *blocked* layouts (channels in runs of 16 or 8,
padded to whole runs; https://uxlfoundation.github.io/oneDNN/dev_guide_understanding_memory_formats.html), and torch's
own, which unfold the input into columns (im2col). Which one it is, and in which order copies come and go, was read off
the profiler's memory events of torch 2.13 on a processor with AVX-512, one thread. Against these events, what 240
random two-dimensional convolutions of contiguous float32 tensors held inside their kernels at most, results and
scratch, came out within 2 % for 96 % of the forwards and 91 % of the backwards; the others are grouped, or small. For
bfloat16 it was 80 % of the forwards, and 63 % of the backwards within 10 %.

Not in it: the scratchpads that oneDNN takes for its own work (8 to 60 kB mostly), and what further threads add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ...subclasses.core.private import mkldnn_takes

RUNS = {"AVX512": 16}  # channels in a block, by what torch says of the processor; else 8, that of AVX2
GROUP_RUN = 4  # grouped: the kernels that take blocks want this many channels in a group, or a multiple
SUMS = 4  # of the weight's gradient, which the matrix kernel adds up in the end
COLUMNS_AT_ONCE = 1 << 20  # bytes that the forward's matrix kernel unfolds at a time, about: as much as a cache holds
FEW, SMALL = 3, 8  # channels: images are not blocked; a run of 8 does


@dataclass(frozen=True)
class Convolution:
    """One call. ``output``: shape of what the forward gives; ``item``: bytes of an element."""

    input: Tensor
    weight: Tensor
    output: tuple[int, ...]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    groups: int

    @property
    def item(self) -> int:
        return self.input.element_size()

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return prod(self.weight.shape[2:])

    @property
    def strided(self) -> bool:
        return any(step > 1 for step in self.stride)

    @property
    def dilated(self) -> bool:
        """So that it makes a difference."""
        return self.taps > 1 and any(step > 1 for step in self.dilation)

    @property
    def channels_last(self) -> bool:
        """Then oneDNN works on the tensors as they are, but for the weight."""
        if self.input.dim() not in (4, 5):
            return False
        last = torch.channels_last if self.input.dim() == 4 else torch.channels_last_3d
        return any(t.is_contiguous(memory_format=last) and not t.is_contiguous() for t in (self.input, self.weight))


def by_onednn(call: Convolution) -> bool:
    """Whether torch hands the call to oneDNN: its ``ConvParams::use_mkldnn``."""
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    dtype, shape = call.input.dtype, call.input.shape
    if dtype in (torch.bfloat16, torch.float16):
        return mkldnn_takes(dtype)
    last = (1, *call.weight.shape[2:])[-2:]
    windowed = call.strided or max(call.dilation) > 1 or shape[0] >= 16 or max(last) > 1 or torch.get_num_threads() > 1
    large = call.groups > 1 or min(last) > 3 or shape[0] > 1 or prod(shape[:4]) > 20480
    return dtype == torch.float32 and windowed and large


def forward_scratch(call: Convolution) -> int:
    """Bytes over those of the result, at most."""
    if not by_onednn(call):
        return _columns_of_torch(call)
    sizes = _Sizes(call)
    if call.transposed:
        return sizes.blocked_input + (2 * sizes.output if call.strided else sizes.blocked_output)
    if call.channels_last:
        return sizes.blocked_weight
    if not sizes.blocked:
        return max(min(sizes.columns, COLUMNS_AT_ONCE), sizes.output)
    plain = call.groups == 1 and call.input.shape[1] < _run() and call.taps > 1  # the input is read as it is
    copies = sizes.weight_of_plain if plain else sizes.blocked_input + sizes.blocked_weight
    return max(copies + sizes.blocked_output - sizes.output, sizes.blocked_output)


def backward_scratch(call: Convolution, wanted: Sequence[bool]) -> int | None:
    """Bytes over those of the results, at most. ``wanted``: the gradients of input, weight and bias. None: of a
    transposed one, not known."""
    if call.transposed:
        return None
    if not by_onednn(call):
        return _columns_of_torch(call)
    sizes = _Sizes(call)
    given = sizes.input if wanted[0] else 0
    results = given + (sizes.weight if wanted[1] else 0) + (sizes.bias if wanted[2] else 0)
    most = [results]
    if wanted[0]:
        most.append(_input_gradient(call, sizes))
    if wanted[1]:
        most.append(given + _weight_gradient(call, sizes))
    return max(most) - results


def _input_gradient(call: Convolution, sizes: _Sizes) -> int:
    if call.channels_last:
        return sizes.input + sizes.blocked_weight
    if not sizes.blocked or (call.strided and call.dilated):
        return sizes.input + max(sizes.input, sizes.columns)
    if (
        call.strided and not sizes.depthwise and (call.taps > 1 or call.output[1] % _run() == 0)
    ):  # by way of channels last, and back
        return max(sizes.blocked_output + sizes.blocked_weight + sizes.input, 3 * sizes.input)
    copies = sizes.blocked_output + sizes.blocked_weight + sizes.blocked_input
    return max(copies, sizes.blocked_input + sizes.input)


def _weight_gradient(call: Convolution, sizes: _Sizes) -> int:
    """Its copies, and those of what it reads."""
    if call.channels_last:
        return sizes.blocked_weight + 2 * sizes.weight
    channels = call.input.shape[1]
    if sizes.depthwise and (call.dilated or call.taps != 9):
        return 2 * sizes.weight
    if not sizes.fully_blocked or (call.dilated and (call.strided or channels < _run())):
        return (1 + SUMS) * sizes.weight + sizes.columns
    if call.groups > 1 or call.taps == 1 or channels > SMALL:
        read, made = sizes.blocked_input, sizes.blocked_weight
    elif channels <= FEW:
        read, made = 0, sizes.weight_of_plain
    else:
        read, made = sizes.of_small(SMALL)
    copies = sizes.blocked_output + read + made + _up(call.output[1], _run()) * call.item
    return max(copies + _transposed(call), made + sizes.weight + 2 * sizes.bias)


def _transposed(call: Convolution) -> int:
    """For bfloat16: one sample of the input and of the gradient, transposed, and the weight's gradient in float32."""
    if call.item != 2:
        return 0
    channels, made = (_up(size, _run()) for size in (call.input.shape[1], call.output[1]))
    padded = [size + 2 * edge for size, edge in zip(call.input.shape[2:], call.padding, strict=True)]
    read = channels * prod(call.input.shape[2:-1]) * padded[-1]
    return 2 * (read + made * prod(call.output[2:])) + 4 * made * channels * call.taps // call.groups


class _Sizes:
    """Bytes of a call's tensors: as they are, and blocked."""

    def __init__(self, call: Convolution) -> None:
        batch, channels = call.input.shape[:2]
        made, places, item = call.output[1], prod(call.input.shape[2:]), call.item
        within = (channels // call.groups, made // call.groups)
        self.depthwise = call.groups > 1 and call.groups == channels == made
        self.call, self.made = call, _up(made, _run())
        alone = call.groups == 1 or self.depthwise
        self.blocked = alone or all(size % GROUP_RUN == 0 for size in within)
        self.fully_blocked = alone or all(size % _run() == 0 for size in within)
        self.input, self.weight, self.bias = call.input.numel() * item, call.weight.numel() * item, made * item
        self.output = prod(call.output) * item
        self.columns = within[0] * call.taps * prod(call.output[2:]) * item
        self.blocked_input = batch * _up(channels, _run()) * places * item
        self.blocked_output = batch * self.made * prod(call.output[2:]) * item
        self.weight_of_plain = self.made * channels * call.taps * item
        self.blocked_weight = self.made * _up(channels, _run()) * call.taps * item
        if call.groups > 1:
            self.blocked_weight = _up(call.groups, _run()) * call.taps * item if self.depthwise else self.weight

    def of_small(self, run: int) -> tuple[int, int]:
        """Input and weight in runs of ``run`` channels."""
        batch, channels, *places = self.call.input.shape
        padded = _up(channels, run) * self.call.item
        return batch * padded * prod(places), self.made * padded * self.call.taps


def _columns_of_torch(call: Convolution) -> int:
    """Unfolded whole batches; where dilated, sample by sample. By groups, from copies of their inputs."""
    within = call.input.shape[1] // call.groups
    moved = call.strided or max(call.dilation) > 1 or any(call.padding)
    if call.transposed:
        elements = call.input.shape[0] * call.weight.shape[1] * call.taps * prod(call.input.shape[2:])
    else:
        samples = 1 if max(call.dilation) > 1 else call.input.shape[0]
        elements = 0 if call.taps == 1 and not moved else samples * within * call.taps * prod(call.output[2:])
    if call.groups == 1:
        return elements * call.item
    return max(elements + call.input.numel() // call.groups, prod(call.output)) * call.item


def _run() -> int:
    return RUNS.get(torch.backends.cpu.get_cpu_capability(), 8)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple
