"""Recurrent layers, as the CPU does them: an LSTM layer by oneDNN, layer for layer, and the others, and all without
oneDNN, with the gates of all steps at once for the input, and step by step for the hidden state. C++ asks where the
input is, and would do neither for a carrier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch.nn import functional as F

from ..core.private import below_python, lowers_precision_in_mkldnn, mkldnn_enabled
from .errors import UndecidedError

Tensors = tuple[torch.Tensor, ...]
MOST = 10**10  # products in a layer that is run to see what it keeps: some 0.3 s
_LSTM_IN_ONEDNN = 2


class Parameters(NamedTuple):
    """Those of one direction of one layer."""

    input_weight: torch.Tensor
    hidden_weight: torch.Tensor
    input_bias: torch.Tensor | None
    hidden_bias: torch.Tensor | None
    projection: torch.Tensor | None


# Of the gates of the input at one step, the state before it, and the parameters: the state after it.
Cell = Callable[[torch.Tensor, Tensors, Parameters], Tensors]


def _simple(nonlinearity: Callable[[torch.Tensor], torch.Tensor]) -> Cell:
    def cell(gates: torch.Tensor, state: Tensors, weights: Parameters) -> Tensors:
        return (nonlinearity(F.linear(state[0], weights.hidden_weight, weights.hidden_bias).add_(gates)),)

    return cell


def _lstm(gates: torch.Tensor, state: Tensors, weights: Parameters) -> Tensors:
    hidden, memory = state
    chunks = F.linear(hidden, weights.hidden_weight, weights.hidden_bias).add_(gates).unsafe_chunk(4, 1)
    enters, stays, new, leaves = chunks[0].sigmoid_(), chunks[1].sigmoid_(), chunks[2].tanh_(), chunks[3].sigmoid_()
    memory = (stays * memory).add_(enters * new)
    hidden = leaves * memory.tanh()
    if weights.projection is not None:
        hidden = hidden.matmul(weights.projection.t())
    return hidden, memory


def _gru(gates: torch.Tensor, state: Tensors, weights: Parameters) -> Tensors:
    (hidden,) = state
    given = gates.unsafe_chunk(3, 1)
    kept = F.linear(hidden, weights.hidden_weight, weights.hidden_bias).unsafe_chunk(3, 1)
    reset = kept[0].add_(given[0]).sigmoid_()
    update = kept[1].add_(given[1]).sigmoid_()
    new = given[2].add(kept[2].mul_(reset)).tanh_()
    return ((hidden - new).mul_(update).add_(new),)


CELLS: dict[str, Cell] = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _simple(torch.tanh), "rnn_relu": _simple(torch.relu)}


def is_one_kernel(kind: str, input: torch.Tensor, state: Sequence[torch.Tensor]) -> bool:  # noqa: A002
    """Whether the CPU gives a layer to oneDNN."""
    projected = len(state) == 2 and state[0].size(2) != state[1].size(2)
    if kind != "lstm" or projected or not mkldnn_enabled() or not input.numel():
        return False
    with below_python():  # a question of ours, that no log is to show
        return input.dtype is torch.float32 or lowers_precision_in_mkldnn(input.dtype)


def run_on_cpu(
    kind: str,
    input: torch.Tensor,  # noqa: A002
    state: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tensors:
    """What ``torch.lstm`` and its kin give, without oneDNN: the output, and the last state of each layer."""
    cell, directions = CELLS[kind], 1 + bidirectional
    output = input.transpose(0, 1) if batch_first else input
    projected = len(state) == 2 and state[0].size(2) != state[1].size(2)
    weights = _gathered(params, has_biases, projected)
    before = list(zip(*(each.unbind(0) for each in state), strict=True))
    after: list[Tensors] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            steps, final = _direction(cell, output, before[layer * directions + direction], next(weights), direction)
            outputs.append(steps)
            after.append(final)
        output = torch.cat(outputs, outputs[0].dim() - 1) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            output = torch.dropout(output, dropout, train)
    last = [torch.stack(each, 0) for each in zip(*after, strict=True)]
    if batch_first:
        output = output.transpose(0, 1) if kind == "lstm" else output.transpose_(0, 1)
    return output, *last


def run_by_onednn(
    input: torch.Tensor,  # noqa: A002
    state: Sequence[torch.Tensor],
    params: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tensors:
    """What ``torch.lstm`` gives, by oneDNN.

    Raises:
        UndecidedError: a layer is too large to ask oneDNN what it keeps for the backward.
    """
    output = (input.transpose(0, 1) if batch_first else input).contiguous()
    before = [each.contiguous() for each in state]
    after: list[Tensors] = []
    weights = enumerate(_gathered(params, has_biases, False))
    for layer in range(num_layers):
        outputs = []
        for backwards in (False, True)[: 1 + bidirectional]:
            index, given = next(weights)
            _refuse_if_large(output, given.hidden_weight)
            states = [each[index] for each in before]
            own = [given.input_weight, given.hidden_weight]
            biases = given[2:4] if has_biases else [each.new_zeros(each.size()) for each in own]
            steps, *final, _ = torch.ops.aten.mkldnn_rnn_layer(
                *(output, *own, *biases, *states, backwards, [], _LSTM_IN_ONEDNN),
                *(given.hidden_weight.size(1), num_layers, has_biases, bidirectional, batch_first, train),
            )
            outputs.append(steps)
            after.append(tuple(final))
        output = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and layer < num_layers - 1:
            output = torch.dropout(output, dropout, True)
    last = [torch.stack(each, 0) for each in zip(*after, strict=True)]
    return output.transpose(0, 1) if batch_first else output, *last


def _refuse_if_large(input: torch.Tensor, weight: torch.Tensor) -> None:  # noqa: A002
    products = input.size(0) * input.size(1) * weight.size(0) * (input.size(2) + weight.size(1))
    if products > MOST:
        raise UndecidedError(
            "an LSTM layer on the CPU: oneDNN runs all its steps in one kernel, and what that saves for the backward "
            f"is known to oneDNN alone. It is asked by running it, and {products:.2g} products are too many for that. "
            "Plan it without, torch.backends.mkldnn.enabled = False, and run it so; or a loop over nn.LSTMCell."
        )


def _gathered(params: Sequence[torch.Tensor], has_biases: bool, projected: bool) -> Iterator[Parameters]:
    size = 2 + 2 * has_biases + projected
    for start in range(0, len(params), size):
        given = list(params[start : start + size])
        biases = given[2:4] if has_biases else (None, None)
        yield Parameters(given[0], given[1], biases[0], biases[1], given[-1] if projected else None)


def _direction(
    cell: Cell,
    input: torch.Tensor,  # noqa: A002
    state: Tensors,
    weights: Parameters,
    backwards: int,
) -> tuple[torch.Tensor, Tensors]:
    steps = F.linear(input, weights.input_weight, weights.input_bias).unbind(0)
    if not steps:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    outputs = []
    for gates in reversed(steps) if backwards else steps:
        state = cell(gates, state, weights)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs, 0), state
