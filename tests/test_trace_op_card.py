"""The card of an operator, against what torch says elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from lamina import LoggingTensor, ScaledInt8Tensor
from lamina.commands import app
from lamina.modes.trace import MissingSourcesError, UnknownOperatorError, op_card, packaged


def test_addmm() -> None:
    card = op_card("aten::addmm", (LoggingTensor, ScaledInt8Tensor))
    assert card.schema == str(torch.ops.aten.addmm.default._schema)
    assert set(card.overloads) >= {"aten::addmm", "aten::addmm.out"}
    assert card.variants == ["function", "method"]
    assert "core" in card.tags
    assert card.structured == "addmm.out"
    assert card.kernels["CPU"] == "addmm_out_cpu"
    assert card.kernels["SparseCPU"] == "addmm_sparse_dense_cpu"  # its own, before that of the overload it delegates to
    assert card.derivatives["self"] == "maybe_multiply(grad, beta.conj())"
    assert card.autocast["AutocastCPU"].startswith("lower_precision_fp: casts to the dtype of autocast, now torch.bf")
    assert card.autocast["AutocastCUDA"].startswith("lower_precision_fp: casts to the dtype of autocast, now torch.fl")
    assert card.decomposition.startswith(
        "in Python, for compilers: torch._decomp.decompositions.addmm (decompositions."
    )
    assert "torch.Tensor.addmm" in card.bridges
    assert card.types["ScaledInt8Tensor"].startswith("exact rule addmm (products.py:")
    assert card.types["LoggingTensor"].startswith("fallback UNWRAP")


def test_a_composite_operator() -> None:
    linear, attention = op_card("aten::linear"), op_card("aten::scaled_dot_product_attention")
    assert linear.decomposition.startswith(
        "composite: its kernel is made of other operators (RegisterCompositeImplicit"
    )
    assert linear.bridges == ["torch._C._nn.linear"]
    assert "linear_backward" in linear.derivatives["input, weight, bias"]  # for backends with a kernel of their own
    assert linear.derivatives["composite"].startswith("those of the operators")
    assert attention.kernels == {"CompositeImplicitAutograd": "scaled_dot_product_attention"}
    assert list(attention.derivatives) == ["composite"]


def test_an_in_place_operator_has_the_formulas_of_its_twin_and_kernels_of_the_shared_loop() -> None:
    card = op_card("aten::add_.Tensor")
    assert card.derivatives == op_card("aten::add.Tensor").derivatives
    assert set(card.derivatives) == {"self", "other", "result"}
    assert (card.structured, card.kernels["CPU"]) == ("add.out", "generated around ufunc::add")
    assert card.kernels["SparseCPU"] == "add_sparse_"  # its own, before that of the overload it delegates to
    assert card.bridges == ["torch.Tensor.add_"]


def test_the_ways_from_python() -> None:
    assert op_card("aten::stft").bridges == [
        "torch._C._VariableFunctions.stft",
        "torch._VF.stft",
        "torch.Tensor.stft",
        "torch.stft (in Python)",
    ]
    assert op_card("aten::layer_norm").bridges[-1] == "torch.nn.functional.layer_norm (in Python)"
    assert "in Python" not in "".join(op_card("aten::mm").bridges)


def test_operators_from_elsewhere() -> None:
    own = op_card("lamina::int8_mm", (ScaledInt8Tensor,))
    assert {"CPU", "CUDA", "Meta"} <= set(own.kernels)
    assert own.kernels["CPU"].startswith("(library.py:")
    assert own.derivatives["all"].startswith("by the autograd kernel (library.py:")
    assert (own.variants, own.bridges, own.decomposition) == ([], [], "none")
    assert (
        op_card("aten::native_dropout.out")
        .kernels["CompositeExplicitAutograd"]
        .startswith("(RegisterCompositeExplicit")
    )
    library = torch.library.Library("lamina_card", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeExplicitAutograd")
    card = op_card("lamina_card::twice")
    assert list(card.kernels) == ["CompositeExplicitAutograd"]
    assert card.kernels["CompositeExplicitAutograd"].startswith("(test_trace_op_card.py:")
    assert card.derivatives == {}
    library._destroy()


def test_every_operator_of_torch_has_a_card() -> None:
    """A sample: each hundredth."""
    names = sorted(torch._C._dispatch_get_all_op_names())[::100]
    assert len(names) > 20
    for name in names:
        card = op_card(name.removesuffix(".default") if name.endswith(".default") else name)
        assert str(card).startswith(card.schema)
        assert json.loads(json.dumps(card.to_json()))["name"] == card.name


def test_unknown_names() -> None:
    with pytest.raises(UnknownOperatorError, match="aten::addmm"):
        op_card("aten::admm")


def test_a_build_without_the_declarations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packaged._by_name.cache_clear()
    spec = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr("importlib.util.find_spec", lambda _: spec)
    with pytest.raises(MissingSourcesError, match=r"no torchgen/packaged/ATen/native/native_functions\.yaml"):
        op_card("aten::addmm")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingSourcesError, match="no package torchgen"):
        op_card("aten::addmm")


def test_the_command() -> None:
    run = CliRunner().invoke(app, ["op", "aten::addmm", "--table"])
    assert run.exit_code == 0
    assert "mm_mat1_backward" in run.output
    assert "alias CompositeExplicitAutograd" in run.output
    found = json.loads(CliRunner().invoke(app, ["op", "addmm", "--json", "--table"]).output)
    assert found["table"]["CPU"].startswith("backend kernel")
    wrong = CliRunner().invoke(app, ["op", "aten::admm"])
    assert wrong.exit_code == 2
    assert "aten::addmm" in wrong.output
