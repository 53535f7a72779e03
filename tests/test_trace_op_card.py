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
    assert card.autocast["AutocastCUDA"].startswith("casts to the dtype of autocast")
    assert card.autocast["AutocastCPU"].startswith("has a kernel")
    assert "torch.Tensor.addmm" in card.bridges
    assert card.types["ScaledInt8Tensor"].startswith("exact rule addmm (products.py:")
    assert card.types["LoggingTensor"].startswith("fallback UNWRAP")


def test_other_operators() -> None:
    linear, exp, own = op_card("aten::linear"), op_card("aten::exp"), op_card("lamina::int8_mm")
    assert linear.decomposition.startswith("composite")
    assert linear.bridges == ["torch._C._nn.linear"]
    assert exp.autocast == {
        "AutocastCPU": "passed over: no cast",
        "AutocastCUDA": next(text for text in exp.autocast.values() if "float32" in text),
    }
    assert exp.decomposition == "a Python one, for compilers"
    assert exp.derivatives["self"] == "grad * result.conj()"
    assert (own.kernels, own.derivatives, own.decomposition) == ({}, {}, "none")
    assert op_card("aten::add.Tensor").name == "aten::add.Tensor"


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
