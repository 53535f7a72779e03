"""What an instance holds, read and mapped: every role of field, at any depth, in the order of the declaration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from subjects import Clear, Granularity, Scaled, Sum, Tagged, nest

from lamina import WrapperTensor, leaf_tensors
from lamina.subclasses.core.fields import (
    context_of,
    field_attributes,
    inner_tensors,
    is_wrapper,
    is_wrapper_class,
    map_inner,
    tensors_in,
)

ONE, TWO, THREE = (torch.full((2,), float(n)) for n in (1, 2, 3))


def test_a_wrapper_is_an_instance_of_a_declared_class() -> None:
    assert is_wrapper(Clear(ONE))
    assert is_wrapper_class(Clear)
    assert not is_wrapper(ONE)
    assert not is_wrapper(Clear)
    assert not is_wrapper_class(WrapperTensor)


@pytest.mark.parametrize(
    ("wrapper", "inner"),
    [
        (Clear(ONE), [ONE]),
        (Scaled(ONE, TWO), [ONE, TWO]),
        (Sum((ONE, TWO)), [ONE, TWO]),
        (Sum((ONE, TWO), THREE), [ONE, TWO, THREE]),
    ],
    ids=["one", "two", "run", "run and optional"],
)
def test_inner_tensors_come_in_the_order_of_the_declaration(wrapper: Any, inner: list[torch.Tensor]) -> None:
    assert [id(t) for t in inner_tensors(wrapper)] == [id(t) for t in inner]
    assert [id(t) for t in leaf_tensors(nest(Clear, wrapper, 2))] == [id(t) for t in inner]


def test_leaves_are_those_of_all_levels_depth_first() -> None:
    inner = Scaled(ONE, TWO)
    assert [id(t) for t in leaf_tensors(Sum((Clear(inner), THREE)))] == [id(t) for t in (ONE, TWO, THREE)]
    assert list(leaf_tensors(ONE)) == [ONE]


@pytest.mark.parametrize("bias", [None, THREE])
def test_mapping_reaches_every_inner_tensor_and_keeps_the_rest(bias: torch.Tensor | None) -> None:
    mapped = map_inner(Sum((ONE, TWO), bias), lambda t: t * 10)
    assert [t.tolist() for t in mapped.parts] == [[10, 10], [20, 20]]
    assert (mapped.bias is None) == (bias is None)
    assert bias is None or mapped.bias.tolist() == [30, 30]
    scaled = map_inner(Scaled(ONE, TWO, Granularity.TENSOR), torch.neg)
    assert context_of(scaled) == {"granularity": Granularity.TENSOR}
    assert scaled.scale.tolist() == [-2, -2]


def test_a_mapped_wrapper_has_the_bits_of_what_it_holds_now() -> None:
    values = torch.tensor([1 + 2j])
    assert map_inner(Clear(values), torch.conj).is_conj()
    assert not map_inner(Clear(values.conj()), torch.conj).is_conj()


def test_context_is_read_by_name() -> None:
    assert context_of(Tagged(ONE, tag=3)) == {"tag": 3, "label": "none"}


def test_attributes_are_those_under_which_fields_are_kept() -> None:
    for wrapper in (Clear(ONE), Tagged(ONE), Scaled(ONE, TWO), Sum((ONE, TWO)), Sum((ONE,), TWO)):
        assert sorted(field_attributes(wrapper)) == sorted(vars(wrapper))


def test_tensors_of_a_call_are_found_in_order_at_any_depth() -> None:
    call = ((ONE, [TWO, (THREE, 1)], None), {"out": [ONE], "alpha": 2})
    assert [id(t) for t in tensors_in(call)] == [id(t) for t in (ONE, TWO, THREE, ONE)]
