"""What is read from operator schemas: kinds, written and aliased arguments, results, and calls written by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lamina.subclasses.core.schema import Kind, as_dispatched, facts_of, value_of

aten = torch.ops.aten

KINDS: dict[str, set[Kind]] = {
    "add.Tensor": {Kind.POINTWISE},
    "add_.Tensor": {Kind.INPLACE, Kind.POINTWISE},
    "add.out": {Kind.OUT, Kind.POINTWISE},
    "_foreach_add_.List": {Kind.LIST_MUTATING},
    "_foreach_add.List": set(),
    "_foreach_add.List_out": {Kind.OUT, Kind.LIST_MUTATING},
    "_fused_adam_.default": {Kind.LIST_MUTATING},
    "view.default": {Kind.VIEW},
    "t.default": {Kind.VIEW},
    "detach.default": {Kind.VIEW},
    "split.Tensor": {Kind.VIEW},
    "unbind.int": {Kind.VIEW},
    "t_.default": {Kind.INPLACE},
    "squeeze_.dim": {Kind.INPLACE},
    "copy_.default": {Kind.INPLACE},
    "zeros_like.default": {Kind.FACTORY},
    "new_zeros.default": {Kind.FACTORY},
    "rand_like.default": {Kind.FACTORY},
    "empty_like.default": {Kind.FACTORY},
    "new_empty_strided.default": {Kind.FACTORY},
    "mm.default": set(),
    "mm.out": {Kind.OUT},
    "sum.dim_IntList": set(),
    "eq.Scalar": {Kind.POINTWISE},
    "native_batch_norm.default": {Kind.INPLACE},
    "zeros.default": set(),
    "slice_scatter.default": set(),
}


def overload(name: str) -> Any:
    packet, _, member = name.partition(".")
    return getattr(getattr(aten, packet), member)


@pytest.mark.parametrize("name", KINDS)
def test_kinds_come_from_schema_and_tags(name: str) -> None:
    assert set(facts_of(overload(name)).kinds) == KINDS[name]


def test_collectives_are_a_kind() -> None:
    torch.distributed  # noqa: B018 - registers the operators where the build has them
    if not hasattr(torch.ops._c10d_functional, "all_reduce"):
        pytest.skip("this build has no distributed operators")
    assert Kind.COLLECTIVE in facts_of(torch.ops._c10d_functional.all_reduce.default).kinds
    assert Kind.COLLECTIVE not in facts_of(aten.add.Tensor).kinds


WRITTEN: dict[str, list[str]] = {
    "add.Tensor": [],
    "add_.Tensor": ["self"],
    "add.out": ["out"],
    "_foreach_lerp_.List": ["self"],
    "_foreach_addcdiv_.Scalar": ["self"],
    "sort.values": ["values", "indices"],
    "_fused_adamw_.default": ["self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"],
    "copy_.default": ["self"],
    "native_batch_norm.default": ["running_mean", "running_var"],
    "_native_batch_norm_legit.default": ["running_mean", "running_var"],
    "lu_unpack.out": ["P", "L", "U"],
    "resize_.default": ["self"],
    "set_.source_Tensor": ["self"],
    "index_put_.default": ["self"],
    "view.default": [],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written_arguments_are_known_lists_and_hidden_ones_included(name: str) -> None:
    assert [a.name for a in facts_of(overload(name)).written] == WRITTEN[name]


RESULTS: dict[str, list[tuple[str | None, str | None, bool]]] = {
    "add.Tensor": [(None, None, False)],
    "add_.Tensor": [("self", None, False)],
    "add.out": [("out", None, False)],
    "view.default": [(None, "self", False)],
    "split.Tensor": [(None, "self", True)],
    "unbind.int": [(None, "self", True)],
    "chunk.default": [(None, "self", True)],
    "sort.values": [("values", None, False), ("indices", None, False)],
    "_foreach_add.List": [(None, None, True)],
    "_foreach_add_.List": [],
    "expand_as.default": [(None, "self", False)],
    "transpose.int": [(None, "self", False)],
    "detach_.default": [("self", None, False)],
    "real.default": [(None, "self", False)],
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_know_whether_they_are_an_argument_a_view_or_new(name: str) -> None:
    def nameof(argument: Any) -> str | None:
        return None if argument is None else argument.name

    found = [(nameof(r.same_as), nameof(r.view_of), r.listed) for r in facts_of(overload(name)).results]
    assert found == RESULTS[name]


def test_every_written_result_of_torch_is_matched_to_an_argument() -> None:
    """A whole-library check: no op returns a written alias that the facts can't attribute."""
    missed = []
    for packet_name in dir(aten):
        packet = getattr(aten, packet_name)
        if not hasattr(packet, "overloads"):
            continue
        for name in packet.overloads():
            op = getattr(packet, name)
            if any("Dict[" in str(argument.type) for argument in op._schema.arguments):
                continue  # TorchScript's own, which is never dispatched; in dir(aten) once some test has looked it up
            for result, schema in zip(facts_of(op).results, op._schema.returns, strict=True):
                if schema.alias_info is None or "Tensor" not in str(schema.type):
                    continue
                if (result.same_as if schema.alias_info.is_write else result.view_of) is None:
                    missed.append(str(op))
    assert missed == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linear.default", True),
        ("matmul.default", True),
        ("reshape.default", True),
        ("contiguous.default", True),
        ("add.Tensor", False),
        ("mm.default", False),
        ("t.default", False),
        ("detach.default", False),
        ("silu.default", False),
        ("_to_copy.default", False),
        ("native_layer_norm.default", False),
    ],
)
def test_composite_ops_are_those_that_torch_takes_apart(name: str, expected: bool) -> None:
    assert facts_of(overload(name)).composite is expected


def test_a_value_is_found_by_position_keyword_or_default() -> None:
    argument = {a.name: a for a in facts_of(aten.add.Tensor).arguments}
    assert value_of(argument["other"], (1, 2), {}) == 2
    assert value_of(argument["other"], (1,), {"other": 3}) == 3
    assert value_of(argument["alpha"], (1, 2), {}) == 1
    assert value_of(argument["alpha"], (1, 2), {"alpha": 5}) == 5
    out = {a.name: a for a in facts_of(aten.add.out).arguments}["out"]
    assert value_of(out, (1, 2), {"out": 9}) == 9


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "expected"),
    [
        ("add.Tensor", (1, 2), {}, ((1, 2), {})),
        ("add.Tensor", (1,), {"other": 2}, ((1, 2), {})),
        ("add.Tensor", (), {"other": 2, "self": 1}, ((1, 2), {})),
        ("add.Tensor", (), {"other": 2, "self": 1, "alpha": 3}, ((1, 2), {"alpha": 3})),
        ("slice.Tensor", (1,), {"step": 2}, ((1, 0, None, None, 2), {})),
        ("slice.Tensor", (1, 1), {"end": 4}, ((1, 1, None, 4), {})),
        ("slice.Tensor", (), {"self": 1}, ((1,), {})),
        ("add.out", (1,), {"other": 2, "out": 3}, ((1, 2), {"out": 3})),
        ("mm.default", (), {"mat2": 2, "self": 1}, ((1, 2), {})),
    ],
)
def test_a_call_by_hand_gets_the_form_that_dispatch_has(name: str, args: Any, kwargs: Any, expected: Any) -> None:
    assert as_dispatched(facts_of(overload(name)), args, kwargs) == expected
    assert set(kwargs) == set(dict(kwargs)), "the caller's dictionary stays"


def test_facts_are_computed_once() -> None:
    assert facts_of(aten.add.Tensor) is facts_of(aten.add.Tensor)
