"""torch.export of models with int8 weights: strict or not, any batch, saved, decomposed, packaged."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from int8_recipes import RECIPES, quantize_weights, quantized
from torch import nn
from torch.export import Dim, ExportedProgram, export

# torch's own: when it decomposes, and when it exports any LSTM.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings(r"ignore:The tensor attributes self\._flat_weights:UserWarning"),
]
STRICT = [pytest.param(True, id="strict"), pytest.param(False, id="non-strict")]
MODULES: dict[str, tuple[Any, torch.Tensor]] = {
    "Embedding": (lambda: nn.Embedding(12, 8), torch.tensor([1, 2])),
    "Conv1d": (lambda: nn.Conv1d(4, 8, 4), torch.ones(2, 4, 9)),
    "LSTM": (lambda: nn.LSTM(8, 16), torch.ones(5, 3, 8)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), torch.ones(2, 3, 16)),
}


def make(recipe: str, *, frozen: bool = False) -> nn.Module:
    model = quantize_weights(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), recipe)
    return model.requires_grad_(not frozen)  # type: ignore[no-any-return]


def exported(model: nn.Module, strict: bool) -> ExportedProgram:
    return export(model, (torch.randn(3, 8),), strict=strict, dynamic_shapes=({0: Dim("batch")},))


def assert_same_outputs(program: ExportedProgram, model: nn.Module) -> None:
    for batch in (3, 7):
        x = torch.randn(batch, 8)
        torch.testing.assert_close(program.module()(x), model(x))


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # torch 2.11, of its archives
def test_exported_saved_and_loaded_for_any_batch(recipe: str, frozen: bool, strict: bool) -> None:
    model = make(recipe, frozen=frozen)
    program = exported(model, strict)
    assert_same_outputs(program, model)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    assert_same_outputs(torch.export.load(file), model)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("decompositions", [None, {}])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_frozen_model_decomposes(recipe: str, decompositions: Any, strict: bool) -> None:
    model = make(recipe, frozen=True)
    program = exported(model, strict).run_decompositions(decompositions)
    assert_same_outputs(program, model)
    assert {type(t) for t in program.state_dict.values()} <= {torch.Tensor, nn.Parameter}
    assert any(t.dtype is torch.int8 for t in program.state_dict.values())  # the payload, not the values


def test_known_limit_a_trainable_model_does_not_decompose() -> None:
    """torch makes a Parameter of each inner tensor, with the ``requires_grad`` of the whole: one of int8 can't be."""
    program = exported(make("row"), strict=False)
    with pytest.raises(RuntimeError, match="floating point and complex dtype can require gradients"):
        program.run_decompositions()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", MODULES)
def test_other_modules_export(name: str, recipe: str) -> None:
    make_module, x = MODULES[name]
    model = quantize_weights(make_module(), recipe).requires_grad_(False)
    program = export(model, (x,))
    torch.testing.assert_close(program.module()(x), model(x))
    torch.testing.assert_close(program.run_decompositions().module()(x), model(x))


class Cutting(nn.Module):
    """Views of a weight, a buffer of the class, and decoded values."""

    def __init__(self, recipe: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(quantized(torch.randn(8, 8), recipe), requires_grad=False)
        self.register_buffer("table", quantized(torch.randn(4, 8), recipe))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.weight.chunk(2)
        table: Any = self.table
        return (
            F.linear(x, first) + F.linear(x, second) + F.linear(x, self.weight[2:6]) + F.linear(x, table.dequantize())
        )


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("recipe", RECIPES)
def test_views_and_buffers_export(recipe: str, strict: bool) -> None:
    model = Cutting(recipe)
    program = exported(model, strict)
    assert_same_outputs(program, model)
    assert_same_outputs(program.run_decompositions(), model)


@pytest.mark.slow
def test_packaged_ahead_of_time(tmp_path: Path) -> None:
    model = make("group asymmetric", frozen=True)
    program = export(model, (torch.randn(3, 8),), dynamic_shapes=({0: Dim("batch", min=2, max=64)},))
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))
    run = torch._inductor.aoti_load_package(path)
    for batch in (3, 9):
        x = torch.randn(batch, 8)
        torch.testing.assert_close(run(x), model(x))
