"""The errors of checkpoints."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.errors import LaminaError

MISMATCHED = "The tensors and the metadata are of different checkpoints, or damaged: pass what belongs together."


class CheckpointError(LaminaError, ValueError):
    """A state dict can't be flattened, or what was read can't be made into one. ``entry`` is the name in the state
    dict, None where the whole is concerned."""

    def __init__(self, entry: str | None, problem: str, advice: str) -> None:
        self.entry, self.problem, self.advice = entry, problem, advice
        super().__init__(f"{'' if entry is None else f'{entry!r}: '}{problem}. {advice}")


class MissingTensorsError(CheckpointError):
    """The metadata speak of tensors that are not there: ``missing`` are their names."""

    def __init__(self, missing: Iterable[str], entries: Iterable[str]) -> None:
        self.missing, self.entries = tuple(missing), tuple(entries)
        super().__init__(
            None,
            f"missing tensors {listed(self.missing)}, which make up {listed(self.entries)}",
            "Merge the tensors of all shards first, {**first, **second}, or leave the keys 'lamina:NAME' of those "
            "entries out of the metadata. lamina.split_state_dict makes shards that can be read one by one",
        )


def listed(names: Iterable[str], shown: int = 8) -> str:
    """The first few of ``names``, and how many more."""
    names = list(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(repr(name) for name in names[:shown]) + more
