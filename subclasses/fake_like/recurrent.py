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


class Call(NamedTuple):
    """The arguments of ``torch.lstm`` and its kin."""

    kind: str
    input: torch.Tensor
    state: Sequence[torch.Tensor]
    params: Sequence[torch.Tensor]
    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    @property
    def projected(self) -> bool:
        return len(self.state) == 2 and self.state[0].size(2) != self.state[1].size(2)

    def weights(self) -> Iterator[Parameters]:
        """Of each direction of each layer."""
        size = 2 + 2 * self.has_biases + self.projected
        for start in range(0, len(self.params), size):
            given = list(self.params[start : start + size])
            biases = given[2:4] if self.has_biases else (None, None)
            yield Parameters(given[0], given[1], biases[0], biases[1], given[-1] if self.projected else None)


# Of the gates of the input at one step, the state before it, and the parameters: the state after it.
Cell = Callable[[torch.Tensor, Tensors, Parameters], Tensors]
# One direction of one layer, of the steps that it is given, the state before it, the parameters, and whether it runs
# backwards: the steps that it gives, and the state after it.
Ran = tuple[torch.Tensor, Tensors]
Direction = Callable[[torch.Tensor, Tensors, Parameters, bool], Ran]


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


def run(call: Call) -> Tensors:
    """What ``torch.lstm`` and its kin give on the CPU: the output, and the last state of each layer.

    Raises:
        UndecidedError: oneDNN would do it, and a layer is too large to ask it what it keeps for the backward.
    """
    output = call.input.transpose(0, 1) if call.batch_first else call.input
    if _is_one_kernel(call):
        return _through_layers(call, output.contiguous(), _selected(call.state), _in_one_kernel(call))
    before = zip(*(each.unbind(0) for each in call.state), strict=True)
    return _through_layers(call, output, before, _step_by_step(CELLS[call.kind]))


def _is_one_kernel(call: Call) -> bool:
    """Whether the CPU gives a layer to oneDNN."""
    if call.kind != "lstm" or call.projected or not mkldnn_enabled() or not call.input.numel():
        return False
    with below_python():  # a question of ours, that no log is to show
        return call.input.dtype is torch.float32 or lowers_precision_in_mkldnn(call.input.dtype)


def _through_layers(call: Call, output: torch.Tensor, before: Iterator[Tensors], direction: Direction) -> Tensors:
    weights = call.weights()
    after: list[Tensors] = []
    for layer in range(call.num_layers):
        outputs = []
        for backwards in (False, True)[: 1 + call.bidirectional]:
            steps, final = direction(output, next(before), next(weights), backwards)
            outputs.append(steps)
            after.append(final)
        output = torch.cat(outputs, outputs[0].dim() - 1) if call.bidirectional else outputs[0]
        if call.dropout and call.train and layer < call.num_layers - 1:
            output = torch.dropout(output, call.dropout, True)
    last = [torch.stack(each, 0) for each in zip(*after, strict=True)]
    if call.batch_first:
        output = output.transpose(0, 1) if call.kind == "lstm" else output.transpose_(0, 1)
    return output, *last


def _step_by_step(cell: Cell) -> Direction:
    def direction(steps: torch.Tensor, state: Tensors, weights: Parameters, backwards: bool) -> Ran:
        given = F.linear(steps, weights.input_weight, weights.input_bias).unbind(0)
        if not given:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        outputs = []
        for gates in reversed(given) if backwards else given:
            state = cell(gates, state, weights)
            outputs.append(state[0])
        return torch.stack(outputs[::-1] if backwards else outputs, 0), state

    return direction


def _in_one_kernel(call: Call) -> Direction:
    def direction(steps: torch.Tensor, state: Tensors, weights: Parameters, backwards: bool) -> Ran:
        _refuse_if_large(steps, weights.hidden_weight)
        own = weights.input_weight, weights.hidden_weight
        biases = weights[2:4] if call.has_biases else [each.new_zeros(each.size()) for each in own]
        outputs, *final, _ = torch.ops.aten.mkldnn_rnn_layer(
            *(steps, *own, *biases, *state, backwards, [], _LSTM_IN_ONEDNN),
            *(weights.hidden_weight.size(1), call.num_layers, call.has_biases),
            *(call.bidirectional, call.batch_first, call.train),
        )
        return outputs, tuple(final)

    return direction


def _selected(state: Sequence[torch.Tensor]) -> Iterator[Tensors]:
    """The state before each direction of each layer."""
    whole = [each.contiguous() for each in state]
    for index in range(len(whole[0])):
        yield tuple(each[index] for each in whole)


def _refuse_if_large(input: torch.Tensor, weight: torch.Tensor) -> None:  # noqa: A002
    products = input.size(0) * input.size(1) * weight.size(0) * (input.size(2) + weight.size(1))
    if products > MOST:
        raise UndecidedError(
            "an LSTM layer on the CPU: oneDNN runs all its steps in one kernel, and what that saves for the backward "
            f"is known to oneDNN alone. It is asked by running it, and {products:.2g} products are too many for that. "
            "Plan it without, torch.backends.mkldnn.enabled = False, and run it so; or a loop over nn.LSTMCell."
        )
