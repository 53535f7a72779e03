"""Between processes: shared memory, queues, and what a DataLoader does with instances."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import multiprocessing as mp
from torch.utils.data import DataLoader, default_collate

from ..check import check
from ..outcome import MismatchError
from ..subject import CPU, VALUED, Subject, leaves_of

_SECONDS = 30.0  # for another process to answer


def _on_cpu(subject: Subject, *, seed: int = 0) -> Any:
    return subject.new(4, 8, seed=seed).cpu()


@check("devices", "share_memory_() crashes the process", kinds=VALUED)
def share_memory_shares_every_leaf(subject: Subject) -> None:
    """``share_memory_`` moves all tensors inside to shared memory, and ``is_shared`` says so. What torch does by itself
    looks for the wrapper's own memory, and crashes."""
    instance = _on_cpu(subject)
    if instance.is_shared():
        raise MismatchError("w.is_shared(), of one that is not", False, True)
    result = instance.share_memory_()
    if result is not instance or not instance.is_shared():
        raise MismatchError("w.share_memory_()", "w itself, shared", result)
    if not all(leaf.is_shared() for leaf in leaves_of(instance)):
        raise MismatchError("w.share_memory_(); is_shared() of all tensors inside", True, False)
    subject.same("w.share_memory_()", instance, subject.reference(subject.plain(4, 8)).cpu())


@check("devices", "module.share_memory() crashes the process", kinds=VALUED)
def a_module_is_shared(subject: Subject) -> None:
    """``module.share_memory()``, by which processes train one model: the weight is shared, and the Parameter that it
    was; what another process writes to it is seen here."""
    layer: Any = subject.layer().to(CPU)
    held = layer.weight
    layer.share_memory()
    if layer.weight is not held or not subject.is_instance(layer.weight):
        raise MismatchError("layer.share_memory().weight", f"the {subject.cls.__name__} that it was", layer.weight)
    if not all(leaf.is_shared() for leaf in leaves_of(layer.weight)):
        raise MismatchError("layer.share_memory(); is_shared() of all tensors inside the weight", True, False)
    child: Any = mp.get_context("fork").Process(target=_zero, args=(layer.weight,))
    child.start()
    child.join(_SECONDS)
    if not _is_zero(layer.weight):
        raise MismatchError("zeros, written to the layer's weight in another process", "zeros inside it", "no zeros")


def _zero(instance: Any) -> None:
    for leaf in leaves_of(instance):
        leaf.detach().zero_()


def _is_zero(instance: Any) -> bool:
    return not any(bool(leaf.count_nonzero()) for leaf in leaves_of(instance))


@check("devices", "a queue between processes loses the class, or copies", kinds=VALUED)
def a_queue_shares_the_instance(subject: Subject) -> None:
    """What a process takes out of a ``torch.multiprocessing`` queue is of the class, with the same values, over the
    same memory: what it writes there is seen here."""
    context = mp.get_context("fork")
    inbox: Any = context.SimpleQueue()
    ours, theirs = context.Pipe()
    instance = _on_cpu(subject)
    expected = subject.reference(subject.plain(4, 8)).cpu()
    child: Any = context.Process(target=_answer, args=(inbox, theirs, subject, expected))
    child.start()
    try:
        inbox.put(instance)
        answer = ours.recv() if ours.poll(_SECONDS) else f"nothing in {_SECONDS:g} s"
    finally:
        child.kill()
        child.join()
    if answer is not None:
        raise MismatchError("queue.put(w), and queue.get() in another process", "w", answer)
    if not _is_zero(instance):
        raise MismatchError("zeros, written to what queue.get() gave in another process", "zeros inside w", "no zeros")


def _answer(inbox: Any, answers: Connection, subject: Subject, expected: torch.Tensor) -> None:
    """The other process: it says what is wrong with what came."""
    try:
        _take(inbox, subject, expected)
    except Exception as error:  # noqa: BLE001 - told to the process that judges it
        answers.send(f"{type(error).__name__}: {error}")
    else:
        answers.send(None)


def _take(inbox: Any, subject: Subject, expected: torch.Tensor) -> None:
    came = inbox.get()
    if type(came) is not subject.cls:
        raise MismatchError("type(queue.get())", subject.cls, type(came))
    subject.same("queue.get()", came, expected)
    _zero(came)


@check("devices", "default collate fails on the class", kinds=VALUED)
def default_collate_stacks_the_values(subject: Subject) -> None:
    """``default_collate`` makes one batch of instances, in nested samples too; of the class or plain, with the values
    that they stand for."""
    items = [{"w": _on_cpu(subject, seed=seed), "label": seed} for seed in range(2)]
    batch = default_collate(items)
    subject.same("default_collate([{'w': w, ...}, ...])['w']", batch["w"], _stacked(subject, range(2)))


def _stacked(subject: Subject, seeds: range) -> torch.Tensor:
    return torch.stack([subject.reference(subject.plain(4, 8, seed=seed)).cpu() for seed in seeds])


@check("devices", "a DataLoader's worker hands over plain tensors, or dies", kinds=VALUED)
def a_worker_hands_over_instances(subject: Subject) -> None:
    """A DataLoader with a worker process gives the samples as they are, of the class, bit by bit; where it pins, pinned
    ones of the class."""
    items = [_on_cpu(subject, seed=seed) for seed in range(3)]
    for item, original in zip(_samples(items, batch_size=None), items, strict=True):
        subject.kept("a sample from DataLoader(items, batch_size=None, num_workers=1)", item, original)
    if subject.device == CPU:
        return
    for item, original in zip(_samples(items, batch_size=None, pin_memory=True), items, strict=True):
        subject.kept("a sample from DataLoader(..., pin_memory=True)", item, original)
        if not all(leaf.is_pinned() for leaf in leaves_of(item)):
            raise MismatchError(
                "a sample from DataLoader(..., pin_memory=True)", "one that is pinned", "one that isn't"
            )


@check("devices", "a DataLoader's worker can't batch the class", kinds=VALUED)
def a_worker_batches_instances(subject: Subject) -> None:
    """A worker collates into shared memory, asking the first sample for its storage: the batch has the values all the
    same."""
    items = [_on_cpu(subject, seed=seed) for seed in range(4)]
    for index, batch in enumerate(_samples(items, batch_size=2)):
        expected = _stacked(subject, range(2 * index, 2 * index + 2))
        subject.same("a batch from DataLoader(items, batch_size=2, num_workers=1)", batch, expected)


def _samples(items: Any, **options: Any) -> list[Any]:
    loader: Any = DataLoader(items, num_workers=1, multiprocessing_context="fork", timeout=_SECONDS, **options)
    try:
        return list(loader)
    except Exception as error:
        last = str(error).strip().splitlines()[-1]  # the first line only says that a worker raised something
        raise MismatchError("list(DataLoader(items, num_workers=1, ...))", "samples", last) from error
