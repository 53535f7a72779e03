"""``WrapperTensor`` as a whole: what C++ would read from memory that isn't there, ``.data``, and compiled code."""

from __future__ import annotations

# ruff: noqa: PLW0108 - each call is written out
import copy
import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from subjects import TESTS, Clear, Doubled, Granularity, Scaled, Sum, Tagged, nest, peeled
from torch._dynamo.testing import CompileCounterWithBackend

from lamina import DataSwapError, Fallback, PlainOnlyError, UnbuiltError, WrapperTensor

F = torch.nn.functional


def plain_of(value: Any) -> torch.Tensor:
    return value.to_plain() if isinstance(value, WrapperTensor) else value


# what would crash


CRASHES: dict[str, str] = {
    "apply_": """
        for w in (Clear(torch.ones(4)), nest(Clear, torch.ones(4), 3), Scaled.from_plain(torch.ones(2, 2))):
            assert w.apply_(lambda v: v + 1) is w
            assert torch.allclose(w.to_plain(), torch.full(w.shape, 2.0))
            try:
                w.clone().requires_grad_().apply_(lambda v: v)
            except RuntimeError as error:
                assert "detach()" in str(error)
            else:
                raise AssertionError("no error")
    """,
    "new of its own storage": """
        for w in (Clear(torch.ones(4)), Scaled.from_plain(torch.ones(2, 2))):
            for storage in (w.untyped_storage(), w._typed_storage()):
                try:
                    w.new(storage).sum()
                except RuntimeError as error:
                    assert "to_plain()" in str(error)
                else:
                    raise AssertionError("no error")
    """,
    "share_memory_": """
        for w in (Clear(torch.ones(4)), nest(Clear, torch.ones(4), 3), Scaled.from_plain(torch.ones(2, 2))):
            assert w.share_memory_() is w
            assert w.is_shared()
            print((w + 1).sum())
    """,
    "module.share_memory": """
        layer = torch.nn.Linear(2, 2)
        layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
        layer.share_memory()
        assert layer.weight.is_shared()
        print(layer(torch.ones(1, 2)).sum())
    """,
    "dlpack": """
        import numpy as np
        for w in (Clear(torch.ones(4)), Doubled(torch.ones(4)), torch.nn.Parameter(Clear(torch.ones(4)))):
            for call in (torch.from_dlpack, np.from_dlpack, torch.utils.dlpack.from_dlpack):
                try:
                    out = call(w)
                except Exception as error:
                    assert "to_plain" in str(error), (call, error)
                else:
                    raise SystemExit(f"{call} gave {out!r}")
    """,
    "data between classes": """
        for other in (torch.zeros(4), Tagged(torch.zeros(4)), Clear(torch.zeros(5)), Clear(torch.zeros(4).double())):
            w = Clear(torch.ones(4))
            try:
                w.data = other
            except DataSwapError as error:
                assert "swap_tensors" in str(error)
            else:
                raise SystemExit(f"accepted {other!r}")
            assert w.tolist() == [1] * 4
            print(w + 1)
        w.data = Clear(torch.zeros(4))
        print((w + 1).tolist())
    """,
    "known limit: plain.data = wrapper": """
        plain = torch.ones(4)
        plain.data = Clear(torch.zeros(4))
        print("reached", type(plain).__name__, flush=True)
        print(plain.sum())
    """,
    "known limit: the old dlpack capsule": """
        capsule = torch.utils.dlpack.to_dlpack(Clear(torch.ones(4)))
        print("reached", flush=True)
        print(torch.utils.dlpack.from_dlpack(capsule))
    """,
    "known limit: sharing the raw storage": """
        storage = Clear(torch.ones(4)).untyped_storage()
        print("reached", flush=True)
        storage.share_memory_()
    """,
    "known limit: plain.set_ of the raw storage": """
        storage = Clear(torch.ones(4)).untyped_storage()
        print("reached", flush=True)
        print(torch.ones(4).set_(storage).sum())
    """,
    "vector_to_parameters": """
        from torch.nn.utils import parameters_to_vector, vector_to_parameters
        for cls in (Clear, Doubled):
            layer = torch.nn.Linear(2, 2)
            layer.weight = torch.nn.Parameter(cls.from_plain(layer.weight.detach()))
            try:
                vector_to_parameters(torch.arange(6.0), layer.parameters())
            except Exception as error:
                assert "swap_tensors" in str(error) or "copy_" in str(error), error
            else:
                assert layer.weight.detach().to_plain().flatten().tolist() == [0, 1, 2, 3], layer.weight
            vector = parameters_to_vector(layer.parameters())
            assert vector.numel() == 6
            print(vector)
    """,
    "reading memory": """
        import pickle, ctypes
        for w in (Clear(torch.ones(4)), nest(Clear, torch.ones(4), 2), Doubled(torch.ones(4))):
            w.tolist(); w.numpy(); w[0].item(); float(w[0]); bool(w[0]); list(w); w.to_plain().numpy()
            assert w.data_ptr() == 0
            str(w); repr(w); len(w)
            torch.tensor(w.tolist()); torch.as_tensor(w); torch.asarray(w)
            w.storage_offset(); w.untyped_storage().nbytes(); w.nbytes; w.element_size()
            memoryview(w.numpy())
            pickle.loads(pickle.dumps(w))
            torch.from_numpy(w.numpy())
            w.is_set_to(w)
            torch.equal(w, w)
            hash(w); id(w)
    """,
    "reading storage": """
        w = Clear(torch.ones(4))
        for call in (
            lambda: w.untyped_storage().tolist(), lambda: w.untyped_storage()[0], lambda: w.storage()[0],
            lambda: bytes(w.untyped_storage()), lambda: w.untyped_storage().data_ptr(),
            lambda: w.untyped_storage().clone(), lambda: torch.tensor(w.untyped_storage()),
            lambda: w.untyped_storage().fill_(0), lambda: w.storage().tolist(),
        ):
            try:
                call()
            except Exception as error:
                print(type(error).__name__, error)
            else:
                raise SystemExit("read what is not there")
    """,
    "multiprocessing reductions": """
        import torch.multiprocessing as mp
        from multiprocessing.reduction import ForkingPickler
        w = Tagged(torch.ones(4), 3)
        data = ForkingPickler.dumps(w)
        back = ForkingPickler.loads(data)
        assert type(back) is Tagged and back.tag == 3
        back.fill_(7)
        assert w.tolist() == [7] * 4, w
    """,
    "torch.tensor and friends": """
        w = Clear(torch.ones(4))
        for call in (
            lambda: torch.tensor(w), lambda: torch.stack([w, w]), lambda: torch.as_tensor([w[0], w[1]]),
            lambda: torch.tensor([w[0], w[1]]), lambda: torch.Tensor(w), lambda: torch.FloatTensor(w),
            lambda: w.new_tensor(w), lambda: torch.asarray(w, copy=True), lambda: w.as_subclass(torch.Tensor) + 1,
            lambda: torch.frombuffer(w.numpy(), dtype=torch.float32),
            lambda: w.type(torch.float64), lambda: w.type_as(torch.ones(1).double()),
            lambda: torch.Tensor._make_subclass(torch.nn.Parameter, w),
        ):
            try:
                out = call()
                text = str(out)
            except Exception as error:
                print(type(error).__name__, str(error)[:80])
    """,
}


_EACH_IN_ITS_OWN_PROCESS = """
import json, os, sys, tempfile, traceback, warnings
warnings.simplefilter("ignore")
import torch
import subjects, lamina
scope = {**vars(subjects), **vars(lamina), "torch": torch}
results = {}
for name, code in json.load(sys.stdin).items():
    with tempfile.TemporaryFile("w+") as log:
        child = os.fork()
        if child == 0:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                exec(code, scope)
                status = 0
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            os._exit(status)
        _, status = os.waitpid(child, 0)
        log.seek(0)
        results[name] = [os.waitstatus_to_exitcode(status), log.read()]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[int, str]]:
    """Exit status (negative: a signal) and output of each piece of code in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _EACH_IN_ITS_OWN_PROCESS],
        input=json.dumps({name: textwrap.dedent(code) for name, code in CRASHES.items()}),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=TESTS,
    )
    results: dict[str, tuple[int, str]] = json.loads(done.stdout)
    return results


@pytest.mark.parametrize("name", [n for n in CRASHES if not n.startswith("known limit")])
def test_what_reads_memory_is_right_or_a_clear_error(name: str, outcomes: dict[str, tuple[int, str]]) -> None:
    status, output = outcomes[name]
    assert status == 0, output[-1500:]


@pytest.mark.parametrize("name", [n for n in CRASHES if n.startswith("known limit")])
def test_what_cpp_does_without_asking_anyone_is_a_known_limit(name: str, outcomes: dict[str, tuple[int, str]]) -> None:
    """README lists them: if one of these starts to work, the list gets shorter."""
    status, output = outcomes[name]
    assert "reached" in output
    assert status != 0


def test_dlpack_errors_name_the_way() -> None:
    w = Clear(torch.ones(2))
    for call in (lambda: torch.from_dlpack(w), w.__dlpack__, w.__dlpack_device__, lambda: w.__dlpack__(stream=None)):
        with pytest.raises(PlainOnlyError, match=r"dlpack needs memory.*Clear.*to_plain"):
            call()


def test_data_ptr_is_zero_and_size_in_bytes_is_known() -> None:
    w = Clear(torch.ones(4))
    for each in (w, w[1:], w[1:].detach()[2], Clear(w.elem[1:]), torch.nn.Parameter(w)):
        assert each.data_ptr() == 0
    assert w.nbytes == 16
    assert w.untyped_storage().nbytes() == 16


# .data


@pytest.mark.parametrize("cls", [Clear, Tagged, Doubled, Scaled, Sum])
def test_data_is_a_detached_alias(cls: Any) -> None:
    p = torch.nn.Parameter(cls.from_plain(torch.ones(2, 2)))
    data = p.data
    assert type(data) is cls
    assert not data.requires_grad
    assert not isinstance(data, torch.nn.Parameter)
    assert data.untyped_storage()._cdata == p.untyped_storage()._cdata
    data.fill_(4)
    assert torch.allclose(plain_of(p.detach()), torch.full((2, 2), 4.0), atol=0.1)
    p.data.add_(1)
    assert torch.allclose(plain_of(p.detach()), torch.full((2, 2), 5.0), atol=0.1)
    p.data += 1
    assert torch.allclose(plain_of(p.detach()), torch.full((2, 2), 6.0), atol=0.1)
    assert p.requires_grad
    assert isinstance(p, torch.nn.Parameter)


def test_setting_data_takes_over_inner_tensors_context_and_geometry() -> None:
    p: Any = torch.nn.Parameter(Tagged(torch.ones(2, 3), 1, "a"))
    p.note = "kept"
    identity = id(p)
    other = Tagged(torch.arange(6.0).reshape(3, 2).t(), 2, "b")
    p.data = other
    assert p.elem is other.elem
    assert (p.tag, p.label, p.note, id(p)) == (2, "b", "kept", identity)
    assert (p.stride(), p.elem.stride()) == ((1, 2), (1, 2)), "outer and inner agree"
    assert torch.equal(peeled((p + 0).detach()), other.elem)
    assert p.requires_grad
    other.fill_(8)
    assert peeled(p.detach()).sum() == 48


@pytest.mark.parametrize("cls", [Clear, Tagged, Doubled])
def test_setting_data_to_itself_changes_nothing(cls: Any) -> None:
    p = torch.nn.Parameter(cls.from_plain(torch.ones(2, 2)))
    p.data = p.to("cpu")
    assert plain_of(p.detach()).tolist() == [[1, 1], [1, 1]]


def test_setting_data_takes_over_conj_and_neg_bits() -> None:
    values = torch.tensor([1 + 2j])
    for before, after in ((values, values.conj()), (values.conj(), values), (values.imag, values.conj().imag)):
        plain, w = before.clone(), Clear(before.clone())
        plain.data, w.data = after, Clear(after)
        assert (w.is_conj(), w.is_neg()) == (plain.is_conj(), plain.is_neg()) == (after.is_conj(), after.is_neg())
        assert torch.equal(w.resolve_conj().resolve_neg().elem, plain.resolve_conj().resolve_neg())
        assert (w * 1).elem.tolist() == (plain * 1).tolist()


def test_setting_data_of_runs_and_optionals() -> None:
    w = Sum((torch.ones(2), torch.ones(2)), torch.ones(2))
    w.data = Sum((torch.zeros(2),))
    assert len(w.parts) == 1
    assert w.bias is None
    assert w.__tensor_flatten__()[0] == ["parts_0"]
    assert w.to_plain().tolist() == [0, 0]
    w.data = Sum((torch.ones(2), torch.ones(2), torch.ones(2)), torch.ones(2))
    assert w.to_plain().tolist() == [4, 4]


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(2),
        Tagged(torch.zeros(2)),
        Doubled(torch.zeros(2)),
        Clear(torch.zeros(3)),
        Clear(torch.zeros(2, dtype=torch.float64)),
        Clear(torch.zeros(2, device="meta")),
        None,
        3,
    ],
)
def test_setting_data_to_something_else_is_refused_and_changes_nothing(other: Any) -> None:
    p = torch.nn.Parameter(Clear(torch.ones(2)))
    with pytest.raises((DataSwapError, TypeError), match=r"swap_tensors.*copy_"):
        p.data = other
    assert peeled(p.detach()).tolist() == [1, 1]


def test_setting_data_to_a_tensor_with_a_graph_keeps_the_leaf_a_leaf() -> None:
    p = torch.nn.Parameter(Clear(torch.ones(2)))
    p.data = Clear(torch.zeros(2)).requires_grad_() * 2
    assert p.is_leaf
    assert p.grad_fn is None
    (p * 3).sum().backward()
    assert peeled(p.grad).tolist() == [3, 3]


def test_setting_data_of_a_class_to_that_of_its_child_is_refused_or_right() -> None:
    class Child(Clear):
        pass

    w = Clear(torch.ones(2))
    with pytest.raises(DataSwapError):
        w.data = Child(torch.zeros(2))


def test_loaders_that_rebuild_parameters() -> None:
    w = Tagged(torch.ones(2), 3)
    for p in (torch.nn.Parameter(w), torch.nn.Parameter(w, requires_grad=False)):
        again = torch.nn.Parameter(p, requires_grad=p.requires_grad)
        assert type(again.detach()) is Tagged
        assert isinstance(again, torch.nn.Parameter)
        assert isinstance(again, Tagged)
        assert again.requires_grad is p.requires_grad
        assert again.tag == 3


def test_operations_on_a_parameter_give_the_class_and_no_parameter() -> None:
    p = torch.nn.Parameter(Clear(torch.ones(2, 2)))
    assert isinstance(p, Clear)
    assert isinstance(p, torch.nn.Parameter)
    for out in (p + 1, p.t(), p.detach(), p.clone(), p[0], p.data, p @ p):
        assert type(out) is Clear
        assert not isinstance(out, torch.nn.Parameter)
    buffer = torch.nn.Buffer(Clear(torch.ones(2)))
    assert isinstance(buffer, Clear)


def test_swap_tensors_between_classes() -> None:
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=1.0)
    torch.utils.swap_tensors(p, torch.nn.Parameter(Clear(torch.ones(2))))
    assert type(p.detach()) is Clear
    (p * 3).sum().backward()
    optimizer.step()
    assert peeled(p.detach()).tolist() == [-2, -2]


def test_moving_a_module_with_an_outside_weakref_is_a_known_limit() -> None:
    import weakref

    layer = torch.nn.Linear(2, 2)
    layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
    reference = weakref.ref(layer.weight)
    with pytest.raises(RuntimeError, match=r"swap Linear\.weight") as caught:
        layer.double()
    assert "weakref" in str(caught.value.__cause__)
    assert reference() is layer.weight
    del reference
    layer.double()
    assert layer.weight.dtype is torch.float64


def test_a_moved_module_after_compile_ema_and_optimizer() -> None:
    layer = torch.nn.Linear(2, 2)
    layer.weight = torch.nn.Parameter(Clear(layer.weight.detach()))
    optimizer = torch.optim.AdamW(layer.parameters())
    average = torch.optim.swa_utils.AveragedModel(layer)
    compiled = torch.compile(layer, backend="aot_eager")
    compiled(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    average.update_parameters(layer)
    layer.zero_grad()
    layer.double()
    assert layer.weight.dtype is layer.weight.elem.dtype is torch.float64
    assert compiled(torch.ones(1, 2).double()).dtype is torch.float64


def test_construction_is_by_wrapping_only() -> None:
    for make in (
        lambda: torch.ones(2).as_subclass(Clear),
        lambda: torch.Tensor._make_subclass(Clear, torch.ones(2)),
    ):
        unbuilt = make()
        for use in (lambda w: w + 1, lambda w: w.elem, lambda w: w.to_plain(), repr, copy.deepcopy):
            with pytest.raises(UnbuiltError, match=r"make it by Clear\(\.\.\.\)"):
                use(unbuilt)


# compiled code


def compiled(
    function: Any, *, dynamic: bool | None = None, backend: str = "aot_eager", fullgraph: bool = True
) -> tuple[Any, Any]:
    torch.compiler.reset()
    counter = CompileCounterWithBackend(backend)
    return torch.compile(function, backend=counter, fullgraph=fullgraph, dynamic=dynamic), counter


def agree(a: Any, b: Any) -> None:
    """The same types, level by level, context and values."""
    if isinstance(b, (tuple, list)):
        for x, y in zip(a, b, strict=True):
            agree(x, y)
        return
    if not isinstance(b, torch.Tensor):
        assert a == b
        return
    assert type(a) is type(b)
    assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
    assert a.requires_grad == b.requires_grad
    if isinstance(b, WrapperTensor):
        (names, context), (expected_names, expected_context) = a.__tensor_flatten__(), b.__tensor_flatten__()
        assert (names, context) == (expected_names, expected_context)
        for name in names:
            agree(getattr(a, name), getattr(b, name))
    else:
        assert torch.allclose(a.detach(), b.detach(), atol=1e-6, equal_nan=True)


def wrapped_model(wrap: Any, bias: bool = False) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    for module in (model[0], model[2]):
        module.weight = torch.nn.Parameter(wrap(module.weight.detach()))
        if bias:
            module.bias = torch.nn.Parameter(wrap(module.bias.detach()))
    return model


MODELS: dict[str, Any] = {
    **{f"{depth} levels": (lambda t, depth=depth: nest(Clear, t, depth)) for depth in range(5)},
    "context": lambda t: Tagged(t, 3, "x"),
    "decoding": Doubled.from_plain,
    "two tensors": Scaled.from_plain,
    "clear around decoding": lambda t: Clear(Doubled.from_plain(t)),
    "clear around two tensors": lambda t: Clear(Scaled.from_plain(t)),
    "context around clear": lambda t: Tagged(Clear(t), 3),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_model_trains_as_the_eager_one(name: str, bias: bool) -> None:
    eager, model = wrapped_model(MODELS[name], bias), wrapped_model(MODELS[name], bias)
    step, counter = compiled(model)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (eager, model)]
    for turn in range(3):
        x = torch.randn(5, 8, generator=torch.Generator().manual_seed(turn))
        outs = []
        for forward, optimizer in ((eager, optimizers[0]), (step, optimizers[1])):
            optimizer.zero_grad()
            out = forward(x)
            plain_of(out).square().sum().backward()
            outs.append(out.detach())
        agree(outs[1], outs[0])
        for p, q in zip(model.parameters(), eager.parameters(), strict=True):
            agree(p.grad, q.grad)
        for optimizer in optimizers:
            optimizer.step()
    assert counter.frame_count == 1, "compiled once"
    for p, q in zip(model.parameters(), eager.parameters(), strict=True):
        assert torch.allclose(plain_of(p.detach()), plain_of(q.detach()), atol=1e-6)


FUNCTIONS: dict[str, Any] = {
    "add": lambda w: w + 1,
    "constructor": lambda w: Clear(w.elem * 2) + 1,
    "constructor keyword": lambda w: Tagged(elem=w.elem, tag=3) + 1,
    "constructor plain": lambda w: w + Tagged(torch.ones(4, 4), 2).elem,
    "from_plain": lambda w: Tagged.from_plain(w.to_plain(), tag=5) * 2,
    "from_plain decoding": lambda w: Doubled.from_plain(w.to_plain()) + 1,
    "to_plain": lambda w: w.to_plain() * 2,
    "attribute": lambda w: w.elem * w.tag,
    "context in a branch": lambda w: w + 1 if w.tag == 3 else w - 1,
    "isinstance": lambda w: w * 2 if isinstance(w, Tagged) else w,
    "type": lambda w: w * 2 if type(w) is Tagged else w,
    "data": lambda w: w.data * 2,
    "detach": lambda w: w.detach() + 1,
    "views": lambda w: (w.view(-1), w.t(), w[1:], w[0]),
    "view of result": lambda w: (w + 1).t()[1:].reshape(-1),
    "split": lambda w: w.split(2),
    "in-place on a copy": lambda w: w.clone().add_(1).t_(),
    "cat": lambda w: torch.cat([w, w.elem]),
    "mixed": lambda w: w + w.elem,
    "matmul": lambda w: w @ w.t(),
    "to": lambda w: w.to(torch.float64),
    "softmax": lambda w: w.softmax(-1),
    "shape": lambda w: w.new_zeros(w.shape[0]) + w.size(1),
    "requires_grad": lambda w: w * 2 if w.requires_grad else w,
    "device": lambda w: torch.ones(4, 4, device=w.device, dtype=w.dtype) * w,
    "self out": lambda w: w,
    "where": lambda w: torch.where(w > 0, w, 0.0),
    "plain out": lambda w: w.elem.sum(),
    "two outputs": lambda w: (w + 1, w.elem + 1),
    "foreach": lambda w: torch._foreach_add([w, w], 1),
    "repr free": lambda w: w.dim() + w.numel() + len(w),
}


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # Dynamo does so itself
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_compiled_function_may_do_with_a_wrapper(name: str) -> None:
    function = FUNCTIONS[name]
    for needs_grad in (False, True):
        w, expected_w = (Tagged(torch.arange(16.0).reshape(4, 4), 3).requires_grad_(needs_grad) for _ in range(2))
        run, counter = compiled(function)
        for _ in range(2):
            out, expected = run(w), function(expected_w)
            agree(out, expected)
        assert counter.frame_count <= 1
        outs = [t for t in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(t, torch.Tensor)]
        wanted = [
            t for t in (expected if isinstance(expected, (tuple, list)) else [expected]) if isinstance(t, torch.Tensor)
        ]
        if needs_grad and wanted and wanted[0].requires_grad and name != "self out":
            plain_of(outs[0]).square().sum().backward()
            plain_of(wanted[0]).square().sum().backward()
            agree(w.grad, expected_w.grad)


# Dynamo takes a geometry change of an input, of plain ones too, as the end of a graph.
GEOMETRY = ("t_", "unsqueeze_", "squeeze_", "transpose_")
MUTATIONS: dict[str, Any] = {
    "add_": lambda w: w.add_(1),
    "mul_ and return": lambda w: (w.mul_(2), w + 1)[1],
    "copy_": lambda w: w.copy_(torch.ones(3, 4)),
    "view add_": lambda w: w[0].add_(1),
    "t_": lambda w: w.t_(),
    "unsqueeze_": lambda w: w.unsqueeze_(0),
    "squeeze_": lambda w: w.unsqueeze_(0).squeeze_(0),
    "transpose_": lambda w: w.transpose_(0, 1),
    "foreach": lambda w: torch._foreach_add_([w], 1),
    "setitem": lambda w: w.__setitem__(0, 5.0),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutated_inputs_of_compiled_functions(name: str) -> None:
    for make in (Clear, lambda t: nest(Clear, t, 2)):
        w, expected_w = make(torch.arange(12.0).reshape(3, 4)), make(torch.arange(12.0).reshape(3, 4))
        run, _ = compiled(MUTATIONS[name], fullgraph=name not in GEOMETRY)
        out, expected = run(w), MUTATIONS[name](expected_w)
        if expected is not None:
            agree(out, expected)
        agree(w, expected_w)
        assert (w.shape, w.stride()) == (peeled(w).shape, peeled(w).stride())


def test_mutated_non_contiguous_inputs() -> None:
    for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:]):
        w, expected_w = Clear(view(torch.arange(12.0).reshape(3, 4))), Clear(view(torch.arange(12.0).reshape(3, 4)))
        run, _ = compiled(lambda w: w.add_(1))
        run(w)
        expected_w.add_(1)
        agree(w, expected_w)


def test_a_decoding_wrapper_is_mutated_in_compiled_code() -> None:
    for cls in (Doubled, Scaled):
        w, expected_w = cls.from_plain(torch.ones(4, 4)), cls.from_plain(torch.ones(4, 4))
        run, _ = compiled(lambda w: w.add_(1))
        run(w)
        expected_w.add_(1)
        agree(w, expected_w)


def test_a_change_of_context_recompiles_and_an_equal_one_does_not() -> None:
    run, counter = compiled(lambda w: w * w.tag)
    t = torch.ones(2)
    assert peeled(run(Tagged(t, 2))).tolist() == [2, 2]
    assert peeled(run(Tagged(t * 3, 2))).tolist() == [6, 6]
    assert peeled(run(Tagged(t, 1 + 1, "no" + "ne"))).tolist() == [2, 2]
    assert counter.frame_count == 1
    assert peeled(run(Tagged(t, 5))).tolist() == [5, 5]
    assert counter.frame_count == 2
    run(Tagged(t, 5, "other"))
    assert counter.frame_count == 3
    run(Tagged(t, 2))
    assert counter.frame_count == 3


def test_a_change_of_class_or_depth_recompiles() -> None:
    run, counter = compiled(lambda w: w * 2)
    t = torch.ones(2)
    for w in (Clear(t), nest(Clear, t, 2), Tagged(t), t):
        agree(run(w), w * 2)
    assert counter.frame_count == 4


def test_an_enum_in_the_context_is_guarded() -> None:
    run, counter = compiled(lambda w: w + 1)
    for granularity in (Granularity.ROW, Granularity.TENSOR, Granularity.ROW):
        w = Scaled.from_plain(torch.ones(2, 2), granularity=granularity)
        agree(run(w), w + 1)
    assert counter.frame_count == 2


def test_an_optional_inner_tensor_appears_and_vanishes() -> None:
    run, counter = compiled(lambda w: w * 2)
    t = torch.ones(2)
    for w in (Sum((t,)), Sum((t,), t), Sum((t, t)), Sum((t,))):
        assert torch.equal(run(w), w * 2)
    assert counter.frame_count == 3


def test_fields_of_runs_and_optionals_are_readable_in_compiled_code() -> None:
    t = torch.ones(2)
    run, _ = compiled(lambda w: w.parts[0] + w.parts[1] * 2 if w.bias is None else w.bias)
    assert run(Sum((t, t))).tolist() == [3, 3]
    assert run(Sum((t, t), t * 7)).tolist() == [7, 7]


@pytest.mark.parametrize(
    "make", [Clear, lambda t: nest(Clear, t, 2), Doubled, lambda t: Scaled.from_plain(t), lambda t: Sum((t,))]
)
def test_dynamic_batches_compile_once(make: Any) -> None:
    run, counter = compiled(lambda w, x: F.linear(w, x).relu() + 1, dynamic=True)
    x = torch.randn(3, 4)
    for batch in (5, 6, 7, 8):
        w = make(torch.randn(batch, 4))
        agree(run(w, x), F.linear(w, x).relu() + 1)
    assert counter.frame_count == 1


def test_marked_dynamic_batches_compile_once_forward_and_backward() -> None:
    model = wrapped_model(Clear)
    run, counter = compiled(model)
    for batch in (5, 6, 7):
        x = torch.randn(batch, 8)
        torch._dynamo.mark_dynamic(x, 0)
        plain_of(run(x)).sum().backward()
    assert counter.frame_count == 1


def test_automatic_dynamic_shapes() -> None:
    run, counter = compiled(lambda w: w @ w.t())
    for batch in (5, 6, 7, 8):
        agree(run(Clear(torch.ones(batch, 3))), Clear(torch.ones(batch, 3)) @ Clear(torch.ones(batch, 3)).t())
    assert counter.frame_count == 2


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("cls", [Clear, Tagged])
def test_two_outputs_and_backward_through_one(cls: Any, which: int) -> None:
    w, expected_w = cls(torch.ones(2, 2)).requires_grad_(), cls(torch.ones(2, 2)).requires_grad_()
    run, _ = compiled(lambda w: (w * 2, w * 3))
    run(w)[which].sum().backward()
    ((expected_w * 2), (expected_w * 3))[which].sum().backward()
    agree(w.grad, expected_w.grad)


def test_a_plain_tangent_where_a_wrapper_was_traced() -> None:
    w = Clear(torch.ones(2, 2)).requires_grad_()
    run, _ = compiled(lambda w: w * 2)
    try:
        run(w).backward(torch.ones(2, 2))
    except RuntimeError as error:
        assert "tangent" in str(error) or "subclass" in str(error)  # noqa: PT017 - right or a clear error
    else:
        assert torch.equal(plain_of(w.grad), torch.full((2, 2), 2.0))


def test_a_wrapped_tangent_where_a_plain_one_was_traced() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    run, _ = compiled(lambda x: x * 2)
    run(x).backward(Clear(torch.ones(2, 2)))
    assert type(x.grad) is torch.Tensor
    assert torch.equal(x.grad, torch.full((2, 2), 2.0))


def test_a_plain_leaf_beside_a_wrapped_one_in_compiled_code() -> None:
    results = []
    for use in (lambda f: f, lambda f: compiled(f)[0]):
        w, b = Clear(torch.ones(3, 4)).requires_grad_(), torch.ones(3, requires_grad=True)
        e = torch.ones(2, 4, requires_grad=True)
        out = use(lambda e, w, b: F.linear(torch.relu(e * 2), w, b))(e, w, b)
        out.sum().backward()
        assert [type(t.grad) for t in (e, w, b)] == [torch.Tensor, Clear, torch.Tensor]
        results.append([plain_of(t.grad) for t in (e, w, b)])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_a_partly_wrapped_model_trains_recompiles_and_trains_on() -> None:
    eager, model = wrapped_model(Clear), wrapped_model(Clear)
    run, counter = compiled(model)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1) for m in (eager, model)]
    for batch in (5, 5, 7, 9):
        x = torch.randn(batch, 8, generator=torch.Generator().manual_seed(batch))
        for forward, optimizer in ((eager, optimizers[0]), (run, optimizers[1])):
            optimizer.zero_grad()
            plain_of(forward(x)).square().mean().backward()
            optimizer.step()
        for p, q in zip(model.parameters(), eager.parameters(), strict=True):
            agree(p.grad, q.grad)
            assert torch.allclose(plain_of(p.detach()), plain_of(q.detach()), atol=1e-5)
    assert counter.frame_count >= 2


def test_a_model_trained_eagerly_first_compiles_afterwards() -> None:
    """A plain Parameter that held a wrapper gradient could not be made fake."""
    model = wrapped_model(Clear)
    plain_of(model(torch.ones(5, 8))).sum().backward()
    run, _ = compiled(model)
    plain_of(run(torch.ones(5, 8))).sum().backward()
    assert all(type(p.grad) is (Clear if isinstance(p, Clear) else torch.Tensor) for p in model.parameters())


def test_asymmetric_nests() -> None:
    class Pair(WrapperTensor):
        left: torch.Tensor
        right: torch.Tensor
        fallback = Fallback.PLAIN

        def decode(self) -> torch.Tensor:
            return self.left.to_plain() + self.right  # type: ignore[attr-defined]

    w = Pair(Clear(Tagged(torch.ones(2), 3)), torch.full((2,), 2.0))
    run, _ = compiled(lambda w: (w * 2, w.left, w.right))
    out = run(w)
    assert out[0].tolist() == [6, 6]
    agree(out[1], w.left)
    w.requires_grad_()
    run, _ = compiled(lambda w: w * 2)
    run(w).sum().backward()
    assert plain_of(w.grad).tolist() == [2, 2]


def test_known_limit_compiled_code_takes_two_wrappers_of_one_inner_tensor_for_independent() -> None:
    """AOTAutograd compares the outer storages of its inputs. Eagerly they share; the same wrapper twice is seen too."""

    def work(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    shared = torch.ones(2)
    assert peeled(work(Clear(shared), Clear(shared))).tolist() == [4, 4]
    run, _ = compiled(work)
    shared = torch.ones(2)
    assert peeled(run(Clear(shared), Clear(shared))).tolist() == [2, 2]
    same = Clear(torch.ones(2))
    run, _ = compiled(work)
    assert peeled(run(same, same)).tolist() == [4, 4]


def test_inference_mode_and_no_grad_inside_a_module() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Buffer(Clear(torch.arange(12.0).reshape(4, 3)))

        @torch.inference_mode()
        def forward(self, x: Any) -> Any:
            return F.linear(x, self.table[1:])

    layer = Layer()
    expected = layer(torch.ones(2, 3))
    out = torch.compile(layer, backend="aot_eager")(torch.ones(2, 3))
    assert torch.equal(plain_of(out), plain_of(expected))
    run, _ = compiled(lambda w: w[1:] * 2)
    with torch.no_grad():
        agree(run(layer.table), layer.table[1:] * 2)
    with torch.inference_mode():
        assert torch.equal(plain_of(run(layer.table)), plain_of(layer.table[1:] * 2))


def test_a_compiled_optimizer_step() -> None:
    p = torch.nn.Parameter(Clear(torch.ones(2)))
    q = torch.nn.Parameter(torch.ones(2))
    for parameter in (p, q):
        parameter.grad = Clear(torch.ones(2)) if parameter is p else torch.ones(2)
        optimizer = torch.optim.SGD([parameter], lr=0.5)
        torch.compile(optimizer.step, backend="aot_eager")()
    assert torch.equal(plain_of(p.detach()), q.detach())


def test_rules_are_traced_and_a_late_rule_is_seen_by_the_next_compilation() -> None:
    cls: Any = type("Late", (Clear,), {})

    @cls.implements(torch.ops.aten.mul.Tensor)
    def mul(op: Any, self: Any, other: Any) -> Any:
        return cls(self.elem * 10)

    run, _ = compiled(lambda w: w * 2)
    assert peeled(run(cls(torch.ones(1)))).tolist() == [10]


def test_compile_keeps_working_after_deepcopy_of_a_compiled_model() -> None:
    model = wrapped_model(Clear)
    run, _ = compiled(model)
    x = torch.ones(5, 8)
    run(x)
    twin = copy.deepcopy(model)
    agree(compiled(twin)[0](x).detach(), model(x).detach())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2 levels", "two tensors"])
def test_inductor_agrees_with_eager(name: str) -> None:
    eager, model = wrapped_model(MODELS[name]), wrapped_model(MODELS[name])
    run, _ = compiled(model, backend="inductor")
    x = torch.randn(5, 8)
    for forward in (eager, run):
        plain_of(forward(x)).square().sum().backward()
    for p, q in zip(model.parameters(), eager.parameters(), strict=True):
        assert type(p.grad) is type(q.grad)
        assert torch.allclose(plain_of(p.grad), plain_of(q.grad), atol=1e-4)
