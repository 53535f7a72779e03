"""The path of the module that runs, such as ``encoder.0.linear``: read off the Python stack, so nothing is installed.

``torch.utils.module_tracker.ModuleTracker`` was tried first. A module that raises stays in its set, the set is one for
all threads, and with its global hooks ``torch.compile(module, fullgraph=True)`` fails; any global hook makes a
compiled module warn. Walking the stack costs some 2 us for each recorded operator, and nothing where none is recorded.

In backward there is no module on the stack. Autograd numbers its nodes as it makes them: the operator that made a node
told its module then, and the running node's number finds it again. The same thread must run forward and call backward.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import weakref
from types import FrameType

from torch import nn

from ..core.private import (
    backward_context,
    backward_id,
    engine_code,
    module_call_code,
    next_sequence_number,
    running_sequence_number,
)

_MODULE_CALL = module_call_code()
_ENGINE = engine_code()
_MOST_NODES = 1 << 17  # of which the path is remembered: some 10 MB


class _Nodes:
    """Which module made which autograd node of one thread, by the node's number."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.paths: dict[int, str | None] = {}

    def remember(self, path: str | None) -> None:
        """Below autograd, in an operator's forward, its node is the last that was made. Later operators that make no
        node find the number taken."""
        if len(self.paths) >= _MOST_NODES:
            for number in list(self.paths)[: _MOST_NODES // 2]:
                del self.paths[number]
        self.paths.setdefault(next_sequence_number() - 1, path)


class _Names(threading.local):
    """The names of the modules in the root that ran last, by id; a weak reference tells a module from its successor."""

    def __init__(self) -> None:
        self.root: weakref.ref[nn.Module] | None = None
        self.known: dict[int, tuple[weakref.ref[nn.Module], str]] = {}

    def find(self, root: nn.Module, module: nn.Module) -> str | None:
        """The name of a module in a root. A miss looks again: modules may have been added since."""
        known = self.known.get(id(module)) if self.root is not None and self.root() is root else None
        if known is None or known[0]() is not module:
            self.root = weakref.ref(root)
            self.known = {id(child): (weakref.ref(child), name) for name, child in root.named_modules()}
            known = self.known.get(id(module))
        return None if known is None else known[1]


_nodes: contextvars.ContextVar[_Nodes | None] = contextvars.ContextVar("lamina.nodes", default=None)
_names = _Names()


def module_path(*, makes_nodes: bool) -> str | None:
    """The path, from the outermost running module, of the innermost one; the outermost itself shows by its class.

    ``makes_nodes``: the caller is an operator below autograd, so the last node is its own. None: no module runs.
    """
    modules = _running_modules()
    path = _path(modules) if modules else None
    if path is None and backward_id() != -1:
        path = _path_of_running_node()
    if makes_nodes:
        _own_nodes().remember(path)
    return path


def forget_nodes() -> None:
    """Frees what this thread remembers of its autograd nodes."""
    _nodes.set(None)


def _running_modules() -> list[nn.Module]:
    """Innermost first, up to the autograd engine: what waits for a backward to end does not run."""
    modules: list[nn.Module] = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code is _ENGINE:
            break
        if code is _MODULE_CALL:
            module = frame.f_locals["self"]
            if not type(module).__module__.startswith("torch._dynamo"):  # torch.compile's wrapper adds no level
                modules.append(module)
        frame = frame.f_back
    return modules


def _path(modules: list[nn.Module]) -> str:
    inner, root = modules[0], modules[-1]
    if inner is root:
        return type(root).__name__
    name = _names.find(root, inner)
    return f"{_path(modules[1:])}.{type(inner).__name__}" if name is None else name


def _own_nodes() -> _Nodes:
    nodes = _nodes.get()
    if nodes is None or nodes.thread != threading.get_ident():  # a copied context is another thread's
        nodes = _Nodes()
        _nodes.set(nodes)
    return nodes


def _path_of_running_node() -> str | None:
    """In a device thread of autograd, the nodes are those of the thread that called backward."""
    number, context = running_sequence_number(), backward_context()
    nodes = context.get(_nodes) if context is not None else _nodes.get()
    return None if number is None or nodes is None else nodes.paths.get(number)
