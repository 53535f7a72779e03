"""What ScaledInt8Tensor is compared with: torchao's two int8 configurations, and two floors of the machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version

import torch
from torch import Tensor, nn

from ...subclasses.interop.quiet import quiet_import
from ..compiler import COMPILED
from ..subjects import Absence, load_subjects
from .accuracy import EIGHT_BITS, FLOAT, Accuracy
from .problems import Problem
from .subjects import Subject, linear

TORCHAO_WEIGHT_ONLY, TORCHAO_DYNAMIC = "torchao weight-only", "torchao dynamic"
INT_MM, READ_FLOAT, READ_INT8 = "floor: _int_mm alone", "floor: read the weight", "floor: read it as int8"


def known_crash(subject: str, problem: Problem, mode: str) -> str | None:
    """Why a peer isn't run here: what would end the process can't be caught. Seen with torch 2.13.0 at K of 1003."""
    crashes = subject == TORCHAO_WEIGHT_ONLY and mode == COMPILED and problem.dtype == "bfloat16"
    if crashes and problem.rows > 1 and problem.inputs % 32:
        return "torch's compiled bfloat16 product with int8 weights crashes for such a K"
    return None


class IntProduct(nn.Module):
    """`torch._int_mm` alone: no quantization of the activations, no scale."""

    columns: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("columns", _to_int8(weight).t())

    def forward(self, activations: Tensor) -> Tensor:
        """The int32 product."""
        return torch._int_mm(activations, self.columns)


class Read(nn.Module):
    """Memory traffic alone: reads as many bytes once, in the fastest way that torch has, a sum of float32."""

    memory: Tensor

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.register_buffer("memory", torch.ones(max(1, nbytes // 4)))

    def forward(self, activations: Tensor) -> Tensor:  # noqa: ARG002  # every module here is given the activations
        """The sum, so that nothing can be left out."""
        return self.memory.sum()


def _to_int8(values: Tensor) -> Tensor:
    return (values * (127 / values.abs().max())).round().to(torch.int8)


def _torchao(name: str, config_name: str, accuracy: Accuracy) -> Callable[[], Subject]:
    def make() -> Subject:
        quantization = quiet_import("torchao.quantization")
        config = getattr(quantization, config_name)

        def build(weight: Tensor) -> nn.Module:
            layer = linear(weight.clone())
            quantization.quantize_(layer, config())
            return layer

        return Subject(name, f"torchao {version('torchao')}", build, accuracy)

    return make


def _floors() -> list[Subject]:
    torch_version = f"torch {torch.__version__}"
    return [
        Subject(INT_MM, torch_version, IntProduct, None, prepare=_to_int8),
        Subject(READ_FLOAT, "this machine", lambda weight: Read(weight.nbytes), None),
        Subject(READ_INT8, "this machine", lambda weight: Read(weight.numel()), None),
    ]


_PEERS = {
    TORCHAO_WEIGHT_ONLY: _torchao(TORCHAO_WEIGHT_ONLY, "Int8WeightOnlyConfig", FLOAT),
    TORCHAO_DYNAMIC: _torchao(TORCHAO_DYNAMIC, "Int8DynamicActivationInt8WeightConfig", EIGHT_BITS),
}


@contextmanager
def quiet_peers() -> Iterator[None]:
    """Without the word that torchao's tensor has no hash of its own for a compiler's cache: it is cached without."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Int8Tensor does not implement _stable_hash_for_caching")
        yield


def load_peers() -> tuple[list[Subject], list[Absence]]:
    """torchao's subjects, where it is installed, and the floors; and the reason for what is missing."""
    subjects, absences = load_subjects(_PEERS)
    return [*subjects, *_floors()], absences
