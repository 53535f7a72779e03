"""What was promised of lamina as a whole: a budget that no bench measured is still a line of the report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..budget import Budget
from ..budgets import AT_MOST_GROWTH, AT_MOST_HAND_WRITTEN, ONE_LAYER_OPS
from ..fake.budgets import STEP_FASTER
from ..int8.budgets import AT_LEAST_FASTER
from ..int8.subjects import ours
from ..ours import LOGGING, TRANSPARENT
from ..peers import HAND_WRITTEN


@dataclass(frozen=True)
class Promise:
    """A budget of one bench, and the pattern by which that bench's own line for it is known."""

    bench: str
    budget: Budget
    pattern: str

    def is_among(self, texts: Iterable[str]) -> bool:
        """Whether a bench has a line for it, measured or not."""
        return any(re.search(self.pattern, text) for text in texts)


def _promise(bench: str, text: str, pattern: str | None = None, **bound: float) -> Promise:
    return Promise(bench, Budget(text, None, **bound), pattern or re.escape(text))


def _of_layers() -> Iterator[Promise]:
    for subject in (TRANSPARENT, LOGGING):
        for op in ONE_LAYER_OPS:
            text = f"{subject}, {op}, one layer / {HAND_WRITTEN}"
            yield _promise("layers", text, at_most=AT_MOST_HAND_WRITTEN)
            yield _promise("layers", f"{subject}, {op}, a further layer / the first", at_most=AT_MOST_GROWTH)


def _of_int8() -> Iterator[Promise]:
    for mode in ("eager", "compiled"):
        for activation, by_rows in AT_LEAST_FASTER.items():
            for rows, at_least in by_rows.items():
                text = f"float32 2048x2048 M={rows}, {mode}: {ours(activation, packed=True)}, times as fast as plain"
                yield _promise("int8", text, at_least=at_least)


def _of_the_step() -> Iterator[Promise]:
    per_layer = "µs a parameter and layer, compiled, 64 wrapped parameters"
    yield _promise("step", f"forward: {per_layer}", r"^forward\b(?!\+).*64", at_most=1.0)
    yield _promise("step", f"forward+backward: {per_layer}", r"^forward\+backward\b.*64", at_most=12.0)
    text = "compiled step, hidden size 1024, batch 256: one layer of LoggingTensor / plain"
    yield _promise("step", text, r"1024.*256", at_most=1.02)


def _of_fakes() -> Iterator[Promise]:
    text = "µs an operator, add, lamina FakeLikeMode, its signature seen before"
    yield _promise("fake", text, r"µs an operator, add, .*FakeLikeMode", at_most=8.0)
    for model, at_least in STEP_FASTER.items():
        text = f"training step, {model}: lamina FakeLikeMode, times as fast as torch FakeTensorMode"
        yield _promise("fake", text, rf"training step, {model}.*FakeLike.*FakeTensor", at_least=at_least)


PROMISES = (*_of_layers(), *_of_the_step(), *_of_fakes(), *_of_int8())


def all_budgets(
    benches: Mapping[str, Mapping[str, Any]], promises: Iterable[Promise] = PROMISES
) -> list[dict[str, Any]]:
    """The lines of all benches as plain data, bench by bench, with those that were promised and that none has."""
    texts = {name: [each["text"] for each in data.get("budgets", ())] for name, data in benches.items()}
    missing = [each for each in promises if not each.is_among(texts.get(each.bench, ()))]
    names = dict.fromkeys([*benches, *(each.bench for each in missing)])
    return [
        {"bench": name, **line}
        for name in names
        for line in (
            *benches.get(name, {}).get("budgets", ()),
            *(each.budget.to_json() for each in missing if each.bench == name),
        )
    ]
