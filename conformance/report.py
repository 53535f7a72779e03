"""What a run found: one result a check, as text, JSON or JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from xml.etree import ElementTree as ET

from .outcome import Coverage, total


class Status(str, Enum):
    """How a check ended."""

    PASS = "pass"
    FAIL = "fail"
    KNOWN_LIMIT = "known limit"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Result:
    """One check's end. ``detail``: the call that failed, what was expected and what came; or the reason.

    ``coverage``: of operator samples, how many were equal.
    """

    name: str
    group: str
    status: Status
    detail: str = ""
    seconds: float = 0.0
    reported: str = ""
    coverage: Coverage | None = None

    @property
    def id(self) -> str:
        """Group and name."""
        return f"{self.group}/{self.name}"


@dataclass
class Report:
    """The results of one class, in the order of the checks. ``complete``: the run was not interrupted."""

    subject: str
    kind: str
    results: list[Result] = field(default_factory=list)
    complete: bool = True

    @property
    def ok(self) -> bool:
        """Whether something ran, all of it, and nothing failed."""
        return self.complete and bool(self.results) and not self.of(Status.FAIL)

    def of(self, status: Status | str) -> list[Result]:
        """The results with that status."""
        return [each for each in self.results if each.status == status]

    def __getitem__(self, name: str) -> Result:
        """The result of a check, by its name or ``group/name``."""
        for each in self.results:
            if name in (each.name, each.id):
                return each
        raise KeyError(f"check {name!r} did not run; there are {', '.join(each.name for each in self.results)}")

    def counts(self) -> dict[str, int]:
        """How many ended how."""
        found = Counter(each.status.value for each in self.results)
        return {status.value: found[status.value] for status in Status}

    @property
    def coverage(self) -> Coverage | None:
        """How many operator samples were equal, in all checks together; None where none were compared."""
        return total(each.coverage for each in self.results)

    def headline(self) -> str:
        """One line: the class, its kind, and how many checks ended how."""
        ends = ", ".join(f"{number} {status}" for status, number in self.counts().items())
        return f"{self.subject} ({self.kind}): {ends}{'' if self.complete else '; interrupted'}"

    def summary(self) -> str:
        """The headline, the coverage of operator samples, each failure with its detail, each known limit with its
        reason.
        """
        lines = [self.headline()]
        if self.coverage is not None:
            lines.append(f"operator samples: {self.coverage}")
        for status in (Status.FAIL, Status.KNOWN_LIMIT):
            for each in self.of(status):
                lines.append(f"{status.value.upper():<11} {each.id}  ({each.reported})")
                lines += [f"    {line}" for line in each.detail.splitlines()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()

    def to_json(self) -> str:
        """All of it, for other programs."""
        results = [{**asdict(each), "status": each.status.value} for each in self.results]
        head = {"subject": self.subject, "kind": self.kind, "ok": self.ok, "complete": self.complete}
        coverage = None if self.coverage is None else asdict(self.coverage)
        return json.dumps({**head, "counts": self.counts(), "coverage": coverage, "results": results}, indent=1)

    def to_junit(self) -> str:
        """As JUnit XML, which build servers show. A known limit and a check that does not apply are skipped there."""
        suite = ET.Element("testsuite", _attributes(self))
        for each in self.results:
            group = f"{printable(self.subject)}.{each.group}"
            case = {"classname": group, "name": each.name, "time": f"{each.seconds:.3f}"}
            element = ET.SubElement(suite, "testcase", case)
            if each.status is Status.FAIL:
                failure = ET.SubElement(element, "failure", {"message": printable(each.reported)})
                failure.text = printable(each.detail)
            elif each.status is not Status.PASS:
                reason = printable(f"{each.status.value}: {each.detail}")
                ET.SubElement(element, "skipped", {"message": reason})
        content: bytes = ET.tostring(suite, encoding="utf-8", xml_declaration=True)
        return content.decode()


def _attributes(report: Report) -> dict[str, str]:
    failures = len(report.of(Status.FAIL))
    skipped = len(report.of(Status.KNOWN_LIMIT)) + len(report.of(Status.NOT_APPLICABLE))
    return {
        "name": printable(report.subject),
        "tests": str(len(report.results)),
        "failures": str(failures),
        "skipped": str(skipped),
        "time": f"{_seconds(report.results):.3f}",
    }


def _seconds(results: Iterable[Result]) -> float:
    return sum(each.seconds for each in results)


def printable(text: str) -> str:
    """Terminals and XML have no place for most control characters; an error's text may have some."""
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in text)
