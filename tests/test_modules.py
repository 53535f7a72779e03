"""Wrappers where torch's own modules and tools meet them: layers, mixed models, threads, processes, export."""

from __future__ import annotations

# ruff: noqa: PLW0108 - each call is written out
import copy
import threading
from typing import Any

import pytest
import torch
from subjects import Clear, Doubled, Scaled, Tagged, nest, run_python

from lamina import Gradients, LayoutError, WrapperTensor

F = torch.nn.functional


def plain_of(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [plain_of(v) for v in value]
    return value.to_plain() if isinstance(value, WrapperTensor) else value


def wrap_all(module: torch.nn.Module, wrap: Any) -> Any:
    """Each parameter and floating buffer of a copy of ``module``, wrapped."""
    module = copy.deepcopy(module)
    for part in module.modules():
        for name, p in list(part.named_parameters(recurse=False)):
            setattr(part, name, torch.nn.Parameter(wrap(p.detach())))
        for name, b in list(part.named_buffers(recurse=False)):
            if b.is_floating_point():
                setattr(part, name, torch.nn.Buffer(wrap(b)))
    return module


LAYERS: dict[str, tuple[Any, Any]] = {
    "linear": (lambda: torch.nn.Linear(4, 3), lambda: (torch.randn(2, 4),)),
    "bilinear": (lambda: torch.nn.Bilinear(4, 3, 2), lambda: (torch.randn(2, 4), torch.randn(2, 3))),
    "conv1d": (lambda: torch.nn.Conv1d(2, 3, 2), lambda: (torch.randn(1, 2, 5),)),
    "conv2d": (lambda: torch.nn.Conv2d(2, 4, 3, groups=2, padding="same"), lambda: (torch.randn(1, 2, 5, 5),)),
    "transposed conv": (lambda: torch.nn.ConvTranspose2d(2, 3, 2), lambda: (torch.randn(1, 2, 4, 4),)),
    "batch norm": (lambda: torch.nn.BatchNorm1d(4), lambda: (torch.randn(8, 4),)),
    "layer norm": (lambda: torch.nn.LayerNorm(4), lambda: (torch.randn(2, 4),)),
    "group norm": (lambda: torch.nn.GroupNorm(2, 4), lambda: (torch.randn(2, 4, 3),)),
    "rms norm": (lambda: torch.nn.RMSNorm(4), lambda: (torch.randn(2, 4),)),
    "embedding": (lambda: torch.nn.Embedding(5, 3, padding_idx=0), lambda: (torch.tensor([[0, 1], [4, 1]]),)),
    "embedding bag": (lambda: torch.nn.EmbeddingBag(5, 3), lambda: (torch.tensor([[0, 1], [4, 1]]),)),
    "lstm": (lambda: torch.nn.LSTM(3, 4, num_layers=2), lambda: (torch.randn(5, 2, 3),)),
    "gru": (lambda: torch.nn.GRU(3, 4, bidirectional=True), lambda: (torch.randn(5, 2, 3),)),
    "rnn cell": (lambda: torch.nn.RNNCell(3, 4), lambda: (torch.randn(2, 3),)),
    "attention": (lambda: torch.nn.MultiheadAttention(4, 2, batch_first=True), lambda: (torch.randn(2, 3, 4),) * 3),
    "encoder": (
        lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True),
        lambda: (torch.randn(2, 3, 4),),
    ),
    "decoder": (
        lambda: torch.nn.TransformerDecoderLayer(4, 2, 8, 0.0),
        lambda: (torch.randn(3, 2, 4), torch.randn(3, 2, 4)),
    ),
    "prelu": (lambda: torch.nn.PReLU(3), lambda: (torch.randn(2, 3),)),
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_of_wrapped_parameters_is_the_plain_one(layer: str, training: bool) -> None:
    make, inputs = LAYERS[layer]
    plain = make().train(training)
    args = inputs()
    for wrap in (Clear, lambda t: nest(Clear, t, 2), Doubled.from_plain):
        twin, reference = wrap_all(plain, wrap), copy.deepcopy(plain)
        outs = []
        for module in (reference, twin):
            torch.manual_seed(0)
            out = module(*args)
            outs.append(out[0] if isinstance(out, tuple) else out)
        assert torch.allclose(plain_of(outs[1]), outs[0], atol=1e-5)
        for out in outs:
            plain_of(out).square().sum().backward()
        for (name, p), q in zip(reference.named_parameters(), twin.parameters(), strict=True):
            assert (q.grad is None) == (p.grad is None), name
            if p.grad is not None:
                assert isinstance(q.grad, WrapperTensor) is (q.gradients is Gradients.SAME), name
                assert torch.allclose(plain_of(q.grad), p.grad, atol=1e-4), name
        for (name, b), c in zip(reference.named_buffers(), twin.buffers(), strict=True):
            assert torch.allclose(plain_of(c), b, atol=1e-5), name


@pytest.mark.parametrize("layer", ["encoder", "attention", "lstm", "linear", "embedding"])
def test_a_layer_of_wrapped_parameters_under_inference_mode(layer: str) -> None:
    make, inputs = LAYERS[layer]
    plain, args = make().eval(), inputs()
    for wrap in (Clear, Doubled.from_plain):
        twin = wrap_all(plain, wrap)
        with torch.inference_mode():
            expected, out = plain(*args), twin(*args)
        expected, out = (o[0] if isinstance(o, tuple) else o for o in (expected, out))
        assert torch.allclose(plain_of(out), expected, atol=1e-5)


def mixed_model() -> list[Any]:
    """Plain, transparent, nested and decoding parameters of one dtype and device: one list for a foreach kernel."""
    torch.manual_seed(0)
    values = [torch.randn(2, 3) for _ in range(5)]
    wraps = [lambda t: t, Clear, lambda t: nest(Clear, t, 2), Doubled.from_plain, lambda t: Tagged(t, 3)]
    return [torch.nn.Parameter(wrap(v.clone())) for wrap, v in zip(wraps, values, strict=True)]


@pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": True}], ids=str)
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop"])
def test_an_optimizer_over_mixed_parameters_is_the_plain_one(name: str, options: dict[str, bool]) -> None:
    if name == "RMSprop" and "fused" in options:
        pytest.skip("RMSprop has no fused form")
    mixed = mixed_model()
    plain = [torch.nn.Parameter(plain_of(p.detach()).clone()) for p in mixed]
    optimizers = [
        getattr(torch.optim, name)(parameters, lr=0.1, weight_decay=0.1, **options) for parameters in (plain, mixed)
    ]
    for step in range(3):
        for parameters, optimizer in zip((plain, mixed), optimizers, strict=True):
            optimizer.zero_grad()
            sum(plain_of((p * (step + 1)).square().sum()) for p in parameters).backward()
            torch.nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
    for p, q in zip(plain, mixed, strict=True):
        assert torch.allclose(plain_of(q.detach()), p, atol=1e-5), type(q)


def test_lists_of_mixed_classes_are_written_each() -> None:
    for order in (1, -1):
        tensors = [
            Clear(torch.ones(2)),
            Doubled.from_plain(torch.ones(2)),
            torch.ones(2),
            Scaled.from_plain(torch.ones(2)),
        ]
        tensors = tensors[::order]
        torch._foreach_add_(tensors, 1)
        torch._foreach_mul_(tensors, [torch.full((2,), 2.0) for _ in tensors])
        torch._foreach_add_(tensors, [t.clone() for t in tensors])
        for t in tensors:
            assert torch.allclose(plain_of(t), torch.full((2,), 8.0), atol=0.1), type(t)
        assert torch.allclose(plain_of(torch.cat([plain_of(t) for t in tensors])), torch.full((8,), 8.0), atol=0.1)


def test_random_ops_draw_what_plain_ones_draw() -> None:
    calls: list[Any] = [
        lambda x: F.dropout(x, 0.5),
        lambda x: torch.rand_like(x),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: x.clone().normal_(),
        lambda x: x.clone().uniform_(),
        lambda x: torch.multinomial(x.softmax(-1), 2),
        lambda x: torch.normal(x, 1.0),
        lambda x: torch.nn.init.kaiming_uniform_(x.clone()),
        lambda x: torch.nn.init.orthogonal_(x.clone()),
        lambda x: F.gumbel_softmax(x),
    ]
    plain = torch.randn(3, 4)
    for call in calls:
        for make in (Clear, Doubled.from_plain):
            torch.manual_seed(1)
            expected = call(plain)
            torch.manual_seed(1)
            assert torch.allclose(plain_of(call(make(plain))), expected, atol=1e-6)


def test_defaults_of_the_process_are_followed() -> None:
    try:
        torch.set_default_dtype(torch.float64)
        w = Clear(torch.ones(2))
        assert (w / 2).dtype is torch.float64
        assert (Clear(torch.arange(2)) / 2).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_queries_about_tensors() -> None:
    w = Scaled.from_plain(torch.ones(2, 3))
    assert torch.is_tensor(w)
    assert torch.is_floating_point(w)
    assert torch.numel(w) == 6
    assert not torch.is_complex(w)
    assert torch.result_type(w, 1) is torch.float32
    assert torch.result_type(Clear(torch.ones(2, dtype=torch.int64)), 1.5) is torch.float32
    assert w.is_cpu
    assert not w.is_meta
    assert (w.ndim, w.size(), w.layout) == (2, (2, 3), torch.strided)
    assert w.get_device() == -1


def test_batched_gradients_and_anomaly_mode() -> None:
    w = Clear(torch.ones(2)).requires_grad_()
    (rows,) = torch.autograd.grad(w * 2, w, Clear(torch.eye(2)), is_grads_batched=True)
    assert plain_of(rows).tolist() == [[2, 0], [0, 2]]
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():  # noqa: PT031 - one scope
        (Clear(torch.ones(1)).requires_grad_() * 2).sum().backward()
        with pytest.raises(RuntimeError, match="nan"), pytest.warns(UserWarning, match="Error detected"):
            (Clear(torch.zeros(1)).requires_grad_() / 0 * 0).sum().backward()


def test_sparse_gradients_are_refused_clearly() -> None:
    weight = torch.nn.Parameter(Clear(torch.ones(3, 2)))
    with pytest.raises(LayoutError, match="sparse"):
        F.embedding(torch.tensor([0, 1]), weight, sparse=True).sum().backward()


def test_functional_call_and_stacked_modules() -> None:
    layer = torch.nn.Linear(3, 2)
    x = torch.randn(4, 3)
    state = {name: Clear(p.detach()) for name, p in layer.named_parameters()}
    assert torch.allclose(plain_of(torch.func.functional_call(layer, state, x)), layer(x))
    stacked = {name: torch.stack([p, p]) for name, p in state.items()}
    assert all(type(p) is Clear for p in stacked.values())


@pytest.mark.parametrize("workers", [0, 1])
def test_collating_and_loading_data(workers: int) -> None:
    items = [Tagged(torch.full((2,), float(i)), 3) for i in range(4)]
    batch = torch.utils.data.default_collate(items)
    assert (type(batch), batch.tag, batch.shape) == (Tagged, 3, (4, 2))
    loader: Any = torch.utils.data.DataLoader(items, batch_size=2, num_workers=workers)
    batches = list(loader)
    assert [(type(b), b.tag) for b in batches] == [(Tagged, 3), (Tagged, 3)]
    assert [b.elem.tolist() for b in batches] == [[[0, 0], [1, 1]], [[2, 2], [3, 3]]]
    assert batches[0].is_shared() is (workers > 0)


def test_a_decoding_class_is_collated_to_its_values() -> None:
    items = [Scaled.from_plain(torch.full((2, 2), float(i))) for i in range(2)]
    for workers in (0, 1):
        loader: Any = torch.utils.data.DataLoader(items, batch_size=2, num_workers=workers)
        assert torch.allclose(plain_of(next(iter(loader))), torch.stack([t.to_plain() for t in items]))


def test_a_queue_between_processes_keeps_the_class_and_shares_the_payload() -> None:
    done = run_python("""
        import torch, torch.multiprocessing as mp
        from subjects import Scaled, Tagged

        def work(inbox, outbox):
            w, q = inbox.get()
            w.add_(1)
            outbox.put((type(w).__name__, w.tag, type(q).__name__, tuple(q.shape)))
            inbox.get()

        if __name__ == "__main__":
            context = mp.get_context("fork")
            inbox, outbox = context.Queue(), context.Queue()
            child = context.Process(target=work, args=(inbox, outbox))
            child.start()
            w, q = Tagged(torch.zeros(3), 5), Scaled.from_plain(torch.ones(2, 2))
            w.share_memory_()
            inbox.put((w, q))
            print(outbox.get(timeout=60), w.tolist())
            inbox.put(None)
            child.join(60)
    """)
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout.strip() == "('Tagged', 5, 'Scaled', (2, 2)) [1.0, 1.0, 1.0]"


def test_threads_train_their_own_models_with_one_class() -> None:
    start = wrap_all(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)), Clear)

    def train(results: list[Any]) -> None:
        model = copy.deepcopy(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            plain_of(model(torch.ones(3, 4))).square().sum().backward()
            optimizer.step()
        results.append([plain_of(p.detach()) for p in model.parameters()])

    alone: list[Any] = []
    together: list[Any] = []
    train(alone)
    threads = [threading.Thread(target=train, args=(together,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(together) == 3
    for parameters in together:
        assert all(torch.equal(p, q) for p, q in zip(parameters, alone[0], strict=True))


def test_one_wrapper_used_by_many_threads() -> None:
    w, b, out = Clear(torch.ones(4, 4)).requires_grad_(), torch.ones(4, requires_grad=True), []

    def work() -> None:
        out.extend(F.linear(torch.ones(2, 4), w, b).sum() for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sum(out).backward()
    assert len(b._backward_hooks) == 1
    assert type(b.grad) is torch.Tensor
    assert b.grad.tolist() == [160] * 4


class Layer(torch.nn.Module):
    def __init__(self, wrap: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(wrap(torch.randn(3, 4)))

    def forward(self, x: torch.Tensor) -> Any:
        return plain_of(F.linear(x, self.weight).relu() + 1)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("wrap", [Clear, lambda t: nest(Clear, t, 2), Doubled.from_plain, Scaled.from_plain])
def test_a_model_of_wrapped_parameters_is_exported(wrap: Any, strict: bool) -> None:
    layer, x = Layer(wrap), torch.randn(2, 4)
    program = torch.export.export(layer, (x,), strict=strict)
    assert torch.allclose(program.module()(x), layer(x), atol=1e-5)


def test_a_profiler_around_wrapped_ops() -> None:
    with torch.profiler.profile(acc_events=True) as profile:
        Clear(torch.ones(2)) + 1
    assert any("add" in event.key for event in profile.key_averages())


def test_modules_are_initialized_emptied_and_moved() -> None:
    layer = wrap_all(torch.nn.Linear(3, 2), Clear)
    layer.reset_parameters()
    assert float(plain_of(layer.weight.detach()).abs().sum()) > 0
    layer.to("meta").to_empty(device="cpu")
    assert type(layer.weight.detach()) is Clear
    assert layer.weight.device.type == "cpu"
    layer.requires_grad_(False)
    assert not layer.weight.requires_grad
    assert sum(p.numel() for p in layer.parameters()) == 8


def test_python_operators_and_builtins() -> None:
    plain = torch.tensor([1.0, 2.0, 4.0])
    calls: list[Any] = [
        lambda x: max(x[0], x[1]),
        lambda x: sum([x, x]),
        lambda x: abs(-x),
        lambda x: 2**x,
        lambda x: x**2,
        lambda x: 5 % x,
        lambda x: 7 // x,
        lambda x: round(float(x[1])),
        lambda x: x[0] < 3 < x[2],
        lambda x: sorted(float(v) for v in x),
        lambda x: [1, 2, 3][x[1].long()],
        lambda x: float(x[0]) + int(x[1]) + complex(x[2]),
        lambda x: list(reversed(x)),
        lambda x: 2.0 in x,
        lambda x: ~(x > 1),
        lambda x: (x > 1) & (x < 3) | (x == 4),
        lambda x: x.__index__() if x.dim() == 0 else len(x),
        lambda x: x @ x,
        lambda x: x[..., None] @ x[None],
        lambda x: bool(x[0]) and not bool(x[0] - 1),
        lambda x: [float(a * b) for a, b in zip(x, x, strict=True)],
    ]
    for call in calls:
        for make in (Clear, Doubled.from_plain):
            out, expected = plain_of(call(make(plain))), call(plain)
            if isinstance(expected, torch.Tensor):
                assert torch.equal(out, expected)
            else:
                assert [plain_of(v) for v in out] == expected if isinstance(expected, list) else out == expected


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept")  # of torch's own method, for plain tensors too
def test_numpy_beside_a_wrapper_behaves_as_beside_a_tensor() -> None:
    import numpy as np

    for make in (Clear, Doubled.from_plain):
        w = make(torch.ones(2))
        assert plain_of(np.add(w, 1)).tolist() == [2, 2]
        assert plain_of(np.float32(2) * w).tolist() == [2, 2]
        assert plain_of(w * np.float32(2)).tolist() == [2, 2]
        assert plain_of(w == np.ones(2)).tolist() == [True, True]
        assert np.stack([w, w]).tolist() == [[1, 1], [1, 1]]
        assert plain_of(np.sin(w)).tolist() == np.sin(torch.ones(2)).tolist()
