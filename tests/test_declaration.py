"""What the body of a class declares, and what is refused while the class is made."""

from __future__ import annotations

# ruff: noqa: ARG005 - signatures are those of schemas and hooks
import dataclasses
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Optional

import pytest
import torch
from subjects import Clear, Doubled, Scaled, Sum, Tagged

from lamina import DeclarationError, Fallback, Gradients, WrapperTensor
from lamina.subclasses.core.declaration import Declaration, Role


def make_class(annotations: dict[str, Any], bases: tuple[type, ...] = (WrapperTensor,), **body: Any) -> type:
    """A class whose annotations are objects, as they are in a module without the __future__ import."""
    return type(bases[0])("Made", bases, {"__annotations__": annotations, "__module__": __name__, **body})


def test_roles_and_order() -> None:
    class Every(WrapperTensor):
        first: torch.Tensor
        run: tuple[torch.Tensor, ...]
        note: str
        maybe: torch.Tensor | None
        level: int = 3

    assert [(f.name, f.role) for f in Every.declaration.fields] == [
        ("first", Role.INNER),
        ("run", Role.RUN),
        ("note", Role.CONTEXT),
        ("maybe", Role.OPTIONAL),
        ("level", Role.CONTEXT),
    ]
    assert [f.required for f in Every.declaration.fields] == [True, True, True, False, False]
    w = Every(torch.ones(2), (torch.zeros(2),), "hello")
    assert (w.note, w.maybe, w.level, len(w.run)) == ("hello", None, 3, 1)


@pytest.mark.parametrize(
    ("annotation", "role"),
    [
        (torch.Tensor, Role.INNER),
        (torch.nn.Parameter, Role.INNER),
        (Clear, Role.INNER),
        (torch.Tensor | None, Role.OPTIONAL),
        (None | torch.Tensor, Role.OPTIONAL),
        (Optional[torch.Tensor], Role.OPTIONAL),  # noqa: UP045 - the older spelling has to work
        (typing.Union[torch.Tensor, None], Role.OPTIONAL),  # noqa: UP007
        (tuple[torch.Tensor, ...], Role.RUN),
        (typing.Tuple[torch.Tensor, ...], Role.RUN),  # noqa: UP006
        (int, Role.CONTEXT),
        (torch.dtype, Role.CONTEXT),
        (tuple[int, ...], Role.CONTEXT),
        (int | None, Role.CONTEXT),
        (Any, Role.CONTEXT),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_each_annotation_has_its_role(annotation: Any, role: Role, as_text: bool) -> None:
    if as_text:
        text = annotation.__name__ if isinstance(annotation, type) and annotation in (Clear, int) else str(annotation)
        text = text.replace("<class '", "").replace("'>", "").removeprefix("subjects.")
        annotation = text
    cls: Any = make_class({"elem": torch.Tensor, "field": annotation})
    assert cls.declaration.fields[1].role is role


@pytest.mark.parametrize("annotation", [ClassVar[int], ClassVar, "ClassVar[int]", "typing.ClassVar[int]"])
def test_class_variables_are_no_fields(annotation: Any) -> None:
    cls: Any = make_class({"elem": torch.Tensor, "limit": annotation}, limit=3)
    assert [f.name for f in cls.declaration.fields] == ["elem"]
    assert cls.limit == 3


def test_an_annotation_that_names_a_local_type_is_context() -> None:
    class Local(Enum):
        A = 1

    class W(WrapperTensor):
        elem: torch.Tensor
        choice: Local = Local.A

    assert W(torch.ones(1)).choice is Local.A


def test_a_local_tensor_name_in_a_string_annotation_is_refused_with_the_way_out() -> None:
    from torch import Tensor as LocalTensor

    with pytest.raises(DeclarationError, match="module level"):

        class W(WrapperTensor):
            elem: LocalTensor  # type: ignore[valid-type]


ATTRIBUTES = [
    *("data", "values", "size", "grad", "shape", "dtype", "device", "layout", "T", "real", "imag", "name", "stride"),
    *(
        "requires_grad",
        "grad_fn",
        "is_leaf",
        "to",
        "add",
        "__dict__",
        "_version",
        "decode",
        "encode",
        "store",
        "around",
    ),
    *("to_plain", "from_plain", "implements", "super_rule", "outer_metadata", "declaration", "_table", "_rules"),
]


@pytest.mark.parametrize("name", ATTRIBUTES)
@pytest.mark.parametrize("annotation", [torch.Tensor, int, torch.Tensor | None, tuple[torch.Tensor, ...]])
def test_a_field_that_hides_an_attribute_is_refused(name: str, annotation: Any) -> None:
    with pytest.raises(DeclarationError, match=rf"'{name}' hides an attribute.*Choose another one"):
        make_class({"elem": torch.Tensor, name: annotation})


@pytest.mark.parametrize("option", ["fallback", "precedence", "gradients"])
def test_options_are_no_fields_annotated_or_not(option: str) -> None:
    value = {"fallback": Fallback.PLAIN, "precedence": 3, "gradients": Gradients.PLAIN}[option]
    annotated: Any = make_class({"elem": torch.Tensor, option: type(value)}, **{option: value})
    bare: Any = make_class({"elem": torch.Tensor}, **{option: value})
    assert getattr(annotated, option) is getattr(bare, option) is value
    assert [f.name for f in annotated.declaration.fields] == ["elem"]


@pytest.mark.parametrize(
    ("option", "value"),
    [("fallback", "plain"), ("fallback", None), ("precedence", "high"), ("precedence", 1.5), ("gradients", True)],
)
def test_an_option_of_another_type_is_refused(option: str, value: Any) -> None:
    with pytest.raises(DeclarationError, match=rf"{option} = .* is no .*Use a "):
        make_class({"elem": torch.Tensor}, **{option: value})


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, bytearray(b"x")])
def test_an_unhashable_default_is_refused(value: Any) -> None:
    with pytest.raises(DeclarationError, match=r"'recipe'.*can't be hashed.*frozen dataclass"):
        make_class({"elem": torch.Tensor, "recipe": Any}, recipe=value)


def test_a_mutable_dataclass_default_is_refused() -> None:
    @dataclasses.dataclass
    class Recipe:
        bits: int = 8

    with pytest.raises(DeclarationError, match="can't be hashed"):
        make_class({"elem": torch.Tensor, "recipe": Recipe}, recipe=Recipe())


def test_a_tensor_as_default_of_context_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"torch\.Tensor"):
        make_class({"elem": torch.Tensor, "recipe": Any}, recipe=torch.ones(2))


@pytest.mark.parametrize("value", [3, 2.5, "text", (1, 2), None, torch.float32])
def test_a_value_without_annotation_is_refused(value: Any) -> None:
    with pytest.raises(DeclarationError, match=r"level = .* has no annotation.*Write `level: "):
        make_class({"elem": torch.Tensor}, level=value)


@pytest.mark.parametrize(
    "annotation",
    [
        list[torch.Tensor],
        dict[str, torch.Tensor],
        set[torch.Tensor],
        tuple[torch.Tensor, torch.Tensor],
        tuple[torch.Tensor],
        tuple[torch.Tensor, int],
        typing.List[torch.Tensor],  # noqa: UP006
        typing.Sequence[torch.Tensor],
        list[torch.Tensor | None],
        tuple[torch.Tensor | None, ...],
        dict[str, list[torch.Tensor]],
        frozenset[torch.Tensor],
        tuple[torch.Tensor, ...] | None,
        "list[torch.Tensor]",
    ],
    ids=str,
)
def test_a_container_of_tensors_is_refused(annotation: Any) -> None:
    with pytest.raises(DeclarationError, match=r"'field'.*Write `"):
        make_class({"elem": torch.Tensor, "field": annotation})


@pytest.mark.parametrize("annotation", [torch.Tensor | int, torch.Tensor | int | None, "torch.Tensor | float"])
def test_a_union_of_tensor_and_something_else_is_refused(annotation: Any) -> None:
    with pytest.raises(DeclarationError, match=r"mixes a tensor.*torch\.Tensor \| None"):
        make_class({"elem": torch.Tensor, "field": annotation})


@pytest.mark.parametrize("annotation", [torch.Tensor, torch.Tensor | None, tuple[torch.Tensor, ...]])
def test_a_default_of_an_inner_tensor_is_refused(annotation: Any) -> None:
    with pytest.raises(DeclarationError, match=r"'more' has a default.*torch\.Tensor \| None"):
        make_class({"elem": torch.Tensor, "more": annotation}, more=torch.ones(1))


def test_none_is_the_default_of_an_optional_inner_tensor_written_or_not() -> None:
    written: Any = make_class({"elem": torch.Tensor, "more": torch.Tensor | None}, more=None)
    silent: Any = make_class({"elem": torch.Tensor, "more": torch.Tensor | None})
    assert written.declaration == silent.declaration
    assert written(torch.ones(1)).more is None


@pytest.mark.parametrize("late", [torch.Tensor, int, tuple[torch.Tensor, ...]])
def test_a_required_field_after_a_default_is_refused(late: Any) -> None:
    with pytest.raises(DeclarationError, match=r"'late' has no default and follows 'early'.*declare it earlier"):
        make_class({"elem": torch.Tensor, "early": int, "late": late}, early=3)
    with pytest.raises(DeclarationError, match="'late' has no default and follows 'maybe'"):
        make_class({"elem": torch.Tensor, "maybe": torch.Tensor | None, "late": late})


@pytest.mark.parametrize("slots", [("elem",), ("other",), "elem", ["a", "b"]])
def test_slots_are_refused(slots: Any) -> None:
    with pytest.raises(DeclarationError, match="__slots__"):
        make_class({"elem": torch.Tensor}, __slots__=slots)


def test_no_inner_tensor_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"no inner tensor.*elem: torch\.Tensor"):
        make_class({})
    with pytest.raises(DeclarationError, match="no inner tensor"):
        make_class({"level": int})


@pytest.mark.parametrize(
    "annotations",
    [
        {"a": torch.Tensor, "b": torch.Tensor},
        {"a": torch.Tensor, "b": torch.Tensor | None},
        {"a": tuple[torch.Tensor, ...]},
        {"level": int, "a": tuple[torch.Tensor, ...]},
    ],
)
def test_unwrap_with_more_or_less_than_one_inner_tensor_is_refused(annotations: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=r"UNWRAP.*Use Fallback\.PLAIN"):
        make_class(annotations, fallback=Fallback.UNWRAP)


def test_only_optional_inner_tensors_are_refused() -> None:
    """Nothing would say what shape the instance without any has."""
    with pytest.raises(DeclarationError, match="first"):
        make_class({"maybe": torch.Tensor | None})


def test_ambiguous_bases_are_refused() -> None:
    class Left(WrapperTensor):
        left: torch.Tensor

    class Right(WrapperTensor):
        right: torch.Tensor

    with pytest.raises(DeclarationError, match=r"Left and Right declare different fields.*Inherit from one"):

        class Both(Left, Right):
            pass


def test_bases_that_differ_in_order_or_default_are_refused() -> None:
    class One(WrapperTensor):
        a: torch.Tensor
        b: torch.Tensor

    class Two(WrapperTensor):
        b: torch.Tensor
        a: torch.Tensor

    with pytest.raises(DeclarationError, match="One and Two"):

        class Both(One, Two):
            pass


def test_a_diamond_is_one_declaration() -> None:
    class Base(WrapperTensor):
        elem: torch.Tensor

    class Left(Base):
        left: int = 1

    class Right(Base):
        pass

    class Both(Left, Right):
        pass

    assert [f.name for f in Both.declaration.fields] == ["elem", "left"]


def test_a_mixin_without_fields_may_stand_anywhere() -> None:
    class Mixin:
        def twice(self) -> Any:
            return 2 * self  # type: ignore[operator]

    class First(Mixin, Clear):
        pass

    class Last(Clear, Mixin):
        pass

    assert First.declaration == Last.declaration == Clear.declaration
    assert isinstance(Last(torch.ones(1)).twice(), Last)


def test_inheritance_adds_fields_and_may_change_a_default() -> None:
    class Child(Tagged):
        tag: int = 7
        extra: torch.Tensor | None
        fallback = Fallback.PLAIN

    assert [f.name for f in Child.declaration.fields] == ["elem", "tag", "label", "extra"]
    w = Child(torch.ones(2))
    assert (w.tag, w.label, w.extra) == (7, "none", None)
    assert Tagged(torch.ones(2)).tag == 0


def test_a_child_cannot_turn_an_inner_tensor_into_context() -> None:
    with pytest.raises(DeclarationError, match="'elem'"):
        make_class({"elem": int}, bases=(Clear,))


def test_a_method_of_a_child_cannot_hide_an_inherited_field() -> None:
    with pytest.raises(DeclarationError, match="'elem'"):
        make_class({}, bases=(Clear,), elem=lambda self: 3)


def test_a_child_without_body_keeps_the_declaration() -> None:
    class Child(Scaled):
        pass

    assert Child.declaration == Scaled.declaration
    w = Child.from_plain(torch.ones(2, 2))
    assert type(w) is Child
    assert type(w.detach()) is Child


def test_declarations_are_compared_by_value() -> None:
    one: Any = make_class({"elem": torch.Tensor, "level": int}, level=3)
    same: Any = make_class({"elem": torch.Tensor, "level": int}, level=3)
    other: Any = make_class({"elem": torch.Tensor, "level": int}, level=4)
    assert one.declaration == same.declaration
    assert hash(one.declaration) == hash(same.declaration)
    assert one.declaration != other.declaration
    assert isinstance(one.declaration, Declaration)


@pytest.mark.parametrize("cls", [Clear, Tagged, Doubled, Scaled, Sum])
def test_single_is_the_one_inner_tensor_that_is_always_there(cls: Any) -> None:
    expected = {Clear: "elem", Tagged: "elem", Doubled: "elem"}.get(cls)
    assert (cls.declaration.single.name if cls.declaration.single else None) == expected


@pytest.mark.parametrize("name", ["__private", "__dunder__"])
def test_names_that_python_mangles_are_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match=name):
        make_class({"elem": torch.Tensor, name: int})


@pytest.mark.parametrize("name", ["like", "cls", "self", "context", "outer_size", "first", "strided", "make_wrapper"])
@pytest.mark.parametrize("role", [torch.Tensor, int, torch.Tensor | None, tuple[torch.Tensor, ...]])
def test_field_names_that_the_generated_code_uses_work_or_are_refused(name: str, role: Any) -> None:
    try:
        cls: Any = make_class({"elem": torch.Tensor, name: role})
    except DeclarationError as refused:
        assert f"'{name}'" in refused.problem  # noqa: PT017 - one of two right answers
        return
    value = {torch.Tensor: torch.zeros(2), int: 5}.get(role, (torch.zeros(2),) if "tuple" in str(role) else None)
    w = cls(torch.ones(2), **{name: value})
    back = cls.__tensor_unflatten__(
        {n: getattr(w, n) for n in w.__tensor_flatten__()[0]}, w.__tensor_flatten__()[1], w.size(), w.stride()
    )
    for result in (back, w.detach()):
        assert type(result) is cls
        assert torch.equal(result.elem, torch.ones(2))
        assert str(getattr(result, name)) == str(value)


def test_names_of_one_run_do_not_meet_another_field() -> None:
    with pytest.raises(DeclarationError, match="parts"):
        make_class({"parts": tuple[torch.Tensor, ...], "parts_0": torch.Tensor})
    with pytest.raises(DeclarationError, match="parts"):
        make_class({"parts": tuple[torch.Tensor, ...], "parts_count": int})


def test_the_base_class_itself_is_no_type() -> None:
    with pytest.raises(DeclarationError, match=r"Subclass it"):
        WrapperTensor(torch.ones(1))


def test_init_subclass_of_an_author_runs() -> None:
    seen: list[Callable[..., Any]] = []

    class Parent(WrapperTensor):
        elem: torch.Tensor

        def __init_subclass__(cls, mark: Callable[..., Any] | None = None, **options: Any) -> None:
            super().__init_subclass__(**options)
            if mark is not None:
                seen.append(mark)

    class Child(Parent, mark=len):
        pass

    assert seen == [len]
    assert Child(torch.ones(1)).elem is not None


def test_an_error_carries_its_parts() -> None:
    with pytest.raises(DeclarationError) as caught:
        make_class({"data": torch.Tensor})
    assert caught.value.cls_name == "Made"
    assert "'data'" in caught.value.problem
    assert "Choose" in caught.value.advice
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "name", ["__torch_function__", "__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__"]
)
def test_a_protocol_method_of_the_author_is_refused_and_the_way_named(name: str) -> None:
    """The base makes them: an own one would be overwritten, or would bypass the guarded path."""

    def own(*args: Any, **kwargs: Any) -> Any: ...

    with pytest.raises(DeclarationError, match=name):
        make_class({"elem": torch.Tensor}, **{name: classmethod(own)})


@pytest.mark.parametrize("name", ["outer_metadata", "encode"])
def test_a_classmethod_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(DeclarationError, match=f"{name} is no classmethod.*@classmethod"):
        type("Made", (WrapperTensor,), {"__annotations__": {"elem": torch.Tensor}, name: lambda self, values: values})


@pytest.mark.parametrize("annotation", [list, dict[str, int], set])
def test_a_context_that_can_never_be_hashed_is_refused(annotation: Any) -> None:
    with pytest.raises(DeclarationError, match=r"'items' is a .* can't be hashed"):
        type("Made", (WrapperTensor,), {"__annotations__": {"elem": torch.Tensor, "items": annotation}})


def test_a_misspelt_tensor_annotation_is_refused() -> None:
    with pytest.raises(DeclarationError, match="'other' can't be evaluated"):
        type(
            "Made",
            (WrapperTensor,),
            {"__annotations__": {"elem": torch.Tensor, "other": "torch.Tensr"}, "__module__": __name__},
        )
