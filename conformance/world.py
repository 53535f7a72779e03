"""A process group over gloo for one check: this process alone, or it and a fork. They meet at a file, not a port."""

from __future__ import annotations

import multiprocessing as mp
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from .outcome import MismatchError, NotApplicable
from .subject import Subject

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# What each process of a world does: it gets its rank and the mesh of all.
Body = Callable[[int, "DeviceMesh"], None]

_GRACE = 2.0  # seconds in which the other one may say what went wrong there
_PATIENCE = timedelta(seconds=25)  # for another process that died: a check has 60 s


@contextmanager
def world_of_one(subject: Subject) -> Iterator[DeviceMesh]:
    """A process group of this process, and its mesh.

    Raises:
        NotApplicable: there is none for this subject or machine.
    """
    _check_possible(subject)
    with tempfile.TemporaryDirectory() as folder, _joined(0, 1, Path(folder)) as mesh:
        yield mesh


def in_world_of_two(subject: Subject, body: Body) -> None:
    """Runs ``body`` here, as rank 0, and in a fork, as rank 1. It raises what either did, a mismatch before others.

    Raises:
        NotApplicable: there is no process group for this subject or machine, or this process is not a check's own: one
            that has used collectives before can't be forked.
    """
    _check_possible(subject)
    if mp.parent_process() is None:
        raise NotApplicable("two ranks are forks of a fresh process: run it isolated")
    context = mp.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        other = context.Process(target=_second, args=(body, folder, sender))
        other.start()
        sender.close()
        errors: list[Exception] = []
        try:
            with _joined(0, 2, folder) as mesh:
                body(0, mesh)
        except Exception as error:  # noqa: BLE001 - raised below, unless the other's says more
            errors.append(error)
        if errors and not receiver.poll(_GRACE):
            other.kill()  # it waits for this process
            other.join()
            raise errors[0]
        try:
            theirs: Exception | None = receiver.recv()
        except EOFError:
            other.join()
            theirs = MismatchError("rank 1 of 2", "the end of the check", f"exit code {other.exitcode}")
        other.join()
    errors += [theirs] if theirs is not None else []
    if errors:
        raise next((error for error in errors if isinstance(error, (MismatchError, NotApplicable))), errors[0])


def _second(body: Body, folder: Path, sender: Connection) -> None:
    torch.set_num_threads(1)
    try:
        with _joined(1, 2, folder) as mesh:
            body(1, mesh)
    except (MismatchError, NotApplicable) as error:
        sender.send(_sendable(error))
    except Exception as error:  # noqa: BLE001 - raised by the first process
        sender.send(RuntimeError(f"rank 1: {type(error).__name__}: {error}"))
    else:
        sender.send(None)
    sender.close()
    os._exit(0)  # without the parent's exit handlers


def _sendable(error: MismatchError | NotApplicable) -> Exception:
    if isinstance(error, NotApplicable):
        return NotApplicable(str(error))
    return RankError(f"{error.call} (on rank 1)", error.expected, error.got)


class RankError(MismatchError):
    """A mismatch that can be sent between processes."""

    def __reduce__(self) -> tuple[type[RankError], tuple[str, str, str]]:
        return type(self), (self.call, self.expected, self.got)


@contextmanager
def _joined(rank: int, size: int, folder: Path) -> Iterator[DeviceMesh]:
    from torch.distributed.device_mesh import init_device_mesh

    store = (folder / "store").as_uri()
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=_PATIENCE)
    try:
        yield init_device_mesh("cpu", (size,))
    finally:
        dist.destroy_process_group()


def _check_possible(subject: Subject) -> None:
    if not dist.is_available() or not dist.is_gloo_available():
        raise NotApplicable("this build of torch has no gloo")
    if subject.device.type != "cpu":
        raise NotApplicable("checked on a CPU, over gloo")
    if dist.is_initialized():
        raise NotApplicable("this process is in a process group already: run it isolated")
