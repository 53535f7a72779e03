"""The kit's frame: what a check may do to it, what a class and ``make`` may do, and what a report says."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

import pytest
import torch
from subjects import Clear, Doubled, Scaled, run_python

import lamina
from lamina.conformance import (
    KnownLimit,
    MismatchError,
    NotApplicable,
    Report,
    Result,
    Status,
    Subject,
    check_subclass,
    every_check,
    process,
    run,
)
from lamina.conformance import check as registry
from lamina.conformance.discovery import subject_of
from lamina.conformance.outcome import first_line, shown, text_of

Try = Callable[..., Result]
CHECKS = every_check()  # before a test puts another registry in place


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch) -> Try:
    """Runs a function as a check of Clear: of a registry that holds no other check."""

    def attempt(function: Callable[[Subject], Any], *, seconds: float = 30.0, **options: Any) -> Result:
        function.__doc__ = "For a test."
        monkeypatch.setattr(registry, "REGISTRY", {})
        registry.check("printing", "as reported", seconds=seconds)(function)
        return check_subclass(Clear, only=[function.__name__], **options).results[0]

    return attempt


def children() -> list[int]:
    """Of this thread and process, zombies too."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def is_there(pid: int) -> bool:
    """Whether it is at work: a zombie, which somebody else has to wait for, is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about in 10 s")


# How a check ends


def test_a_check_that_returns_passes(attempt: Try) -> None:
    def holds(subject: Subject) -> None:
        pass

    result = attempt(holds)
    assert (result.status, result.detail, result.id, result.reported) == (
        Status.PASS,
        "",
        "printing/holds",
        "as reported",
    )
    assert result.seconds > 0


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (MismatchError("x + 1", 2, 3), Status.FAIL, "x + 1\n  expected 2\n  got      3"),
        (NotApplicable("no such thing"), Status.NOT_APPLICABLE, "no such thing"),
        (KnownLimit("torch can't"), Status.KNOWN_LIMIT, "torch can't"),
        (ValueError("\n\n  bad \nmore"), Status.FAIL, "ValueError: bad\n  in the check: raise error\n  raised at "),
        (SystemExit(0), Status.FAIL, "SystemExit: 0\n"),
        (GeneratorExit(), Status.FAIL, "GeneratorExit: \n"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_how_a_check_ends(attempt: Try, isolated: bool, error: BaseException, status: Status, detail: str) -> None:
    def ends(subject: Subject) -> None:
        raise error

    result = attempt(ends, isolated=isolated)
    assert result.status is status
    assert result.detail.startswith(detail)


def test_keyboard_interrupt_of_a_check_is_its_failure_in_a_process_of_its_own(attempt: Try) -> None:
    def interrupts(subject: Subject) -> None:
        raise KeyboardInterrupt

    assert attempt(interrupts).detail.startswith("KeyboardInterrupt: ")
    with pytest.raises(KeyboardInterrupt):
        attempt(interrupts, isolated=False)


def test_a_crash_says_where(attempt: Try) -> None:
    def aborts(subject: Subject) -> None:
        print("last words")
        os.abort()

    result = attempt(aborts)
    assert result.status is Status.FAIL
    head, *lines = result.detail.splitlines()
    assert head == "crashes: the process ended with SIGABRT"
    assert "  last words" in lines
    assert any(line.startswith("  at test_conformance.py:") and line.endswith(" in aborts") for line in lines)


def test_a_read_of_no_memory_is_a_crash(attempt: Try) -> None:
    def reads(subject: Subject) -> None:
        ctypes.string_at(0)

    assert attempt(reads).detail.startswith("crashes: the process ended with SIGSEGV\n  at __init__.py:")


def test_an_exit_of_the_process_is_a_crash(attempt: Try) -> None:
    def exits(subject: Subject) -> None:
        os._exit(0)

    assert attempt(exits).detail == "crashes: the process ended with status 0 and no result"


def test_a_real_time_signal_is_named_by_its_number(attempt: Try) -> None:
    def dies(subject: Subject) -> None:
        os.kill(os.getpid(), 40)

    assert attempt(dies).detail.startswith("crashes: the process ended with signal 40")


def test_a_hang_is_cut_off_and_says_where(attempt: Try) -> None:
    def hangs(subject: Subject) -> None:
        threading.Event().wait()

    result = attempt(hangs, seconds=0.5)
    assert result.status is Status.FAIL
    assert result.detail.startswith("hangs: nothing came in 0.5 s\n  at threading.py:")
    assert "  at test_conformance.py:" in result.detail
    assert children() == []


def test_a_hang_that_no_signal_reaches_is_cut_off(attempt: Try) -> None:
    def hangs(subject: Subject) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        time.sleep(1000)

    assert attempt(hangs, seconds=0.5).detail == "hangs: nothing came in 0.5 s"
    assert children() == []


def test_a_hang_whose_parent_is_gone_ends_by_itself(attempt: Try) -> None:
    def tells_its_alarm(subject: Subject) -> None:
        raise NotApplicable(str(signal.getitimer(signal.ITIMER_REAL)[0]))

    assert 30 < float(attempt(tells_its_alarm, seconds=30.0).detail) <= 40


def test_a_note_shows_what_was_at_work(attempt: Try) -> None:
    def notes(subject: Subject) -> None:
        for number in range(3):
            process.note(f"sample {number}")
        os._exit(3)

    assert attempt(notes).detail == "crashes: the process ended with status 3 and no result\n  at work: sample 2"


def test_output_stays_away_from_the_terminal(attempt: Try, capfd: pytest.CaptureFixture[str]) -> None:
    def prints(subject: Subject) -> None:
        for _ in range(50_000):
            print("x" * 50)
        sys.stderr.write("text without an encoding: \udc80\n")
        os.write(1, b"raw bytes \xff\n" * 1000)
        os.system("echo from a child")

    assert attempt(prints).status is Status.PASS
    assert capfd.readouterr() == ("", "")


def test_output_in_this_process_stays_away_too(attempt: Try, capfd: pytest.CaptureFixture[str]) -> None:
    def prints(subject: Subject) -> None:
        print("noise")
        print("noise", file=sys.stderr)

    assert attempt(prints, isolated=False).status is Status.PASS
    assert capfd.readouterr() == ("", "")


def test_only_the_end_of_much_output_is_read(attempt: Try) -> None:
    def prints(subject: Subject) -> None:
        for number in range(100_000):
            print(f"line {number}")
        os._exit(1)

    lines = attempt(prints).detail.splitlines()
    assert lines[1:] == [f"  line {number}" for number in range(99_996, 100_000)]


def test_a_text_larger_than_the_pipe_arrives(attempt: Try) -> None:
    def talks(subject: Subject) -> None:
        raise NotApplicable("x" * 10**6)

    assert attempt(talks).detail == "x" * 10**6


def test_a_long_error_is_cut(attempt: Try) -> None:
    def talks(subject: Subject) -> None:
        raise ValueError("x" * 10**6)

    assert len(attempt(talks).detail) < 1000


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def test_an_error_that_cannot_be_printed(attempt: Try) -> None:
    def fails(subject: Subject) -> None:
        raise UnprintableError

    assert attempt(fails).detail.startswith("UnprintableError: its text can't be had: __str__ raises RuntimeError\n")


def test_an_error_whose_text_cannot_be_sent(attempt: Try) -> None:
    class Text(str):
        __slots__ = ()

    class Odd(NotApplicable):
        def __str__(self) -> str:
            return Text("of a local class")

    def fails(subject: Subject) -> None:
        raise Odd

    assert attempt(fails) == mock.ANY
    assert type(attempt(fails).detail) is str


def test_a_result_that_cannot_be_sent(attempt: Try) -> None:
    def returns(subject: Subject) -> Any:
        return lambda: None

    result = attempt(returns)
    assert result.status is Status.FAIL
    assert result.detail.startswith("the result can't be sent to another process: ")


def test_what_a_check_changes_is_gone(attempt: Try) -> None:
    def changes(subject: Subject) -> None:
        torch.set_default_dtype(torch.float64)
        os.environ["CHANGED_BY_A_CHECK"] = "1"
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    assert attempt(changes).status is Status.PASS
    assert torch.get_default_dtype() is torch.float32
    assert "CHANGED_BY_A_CHECK" not in os.environ
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def test_random_numbers_go_on_as_they_were(attempt: Try) -> None:
    def draws(subject: Subject) -> None:
        torch.randn(3)
        subject.new(4, 8)

    torch.manual_seed(3)
    expected = torch.randn(4)
    for isolated in (True, False):
        torch.manual_seed(3)
        assert attempt(draws, isolated=isolated).status is Status.PASS
        assert torch.equal(torch.randn(4), expected)


def test_every_check_starts_from_the_same_random_numbers(attempt: Try) -> None:
    def draws(subject: Subject) -> None:
        raise NotApplicable(str(torch.randn(3).tolist()))

    torch.manual_seed(5)
    assert attempt(draws).detail == attempt(draws, isolated=False).detail


def test_warnings_of_a_check_are_not_the_callers(attempt: Try) -> None:
    def warns(subject: Subject) -> None:
        warnings.warn("of the check", stacklevel=1)

    assert attempt(warns).status is Status.PASS
    assert attempt(warns, isolated=False).status is Status.PASS


# Processes


def test_what_a_check_starts_ends_with_it(attempt: Try, tmp_path: Path) -> None:
    def starts(subject: Subject) -> None:
        started = subprocess.Popen(["sleep", "1000"])
        (tmp_path / "pid").write_text(str(started.pid))
        threading.Thread(target=time.sleep, args=(1000,)).start()  # and a thread that keeps it from ending

    assert attempt(starts).status is Status.PASS
    wait_until(lambda: not is_there(int((tmp_path / "pid").read_text())))
    assert children() == []


def test_a_crash_is_seen_though_a_child_of_the_process_lives_on(attempt: Try, tmp_path: Path) -> None:
    def forks_and_dies(subject: Subject) -> None:
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        (tmp_path / "pid").write_text(str(pid))
        os._exit(5)

    assert attempt(forks_and_dies).detail == "crashes: the process ended with status 5 and no result"
    wait_until(lambda: not is_there(int((tmp_path / "pid").read_text())))


@pytest.fixture
def six(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry holds six checks. The second takes half a second, the others none."""
    monkeypatch.setattr(registry, "REGISTRY", {})
    for number in range(6):

        def waits(subject: Subject, seconds: float = 0.5 * (number == 1)) -> None:
            """For a test."""
            time.sleep(seconds)

        waits.__name__ = f"check_{number}"
        registry.check("printing", "as reported")(waits)


def test_no_process_outlives_a_run_that_is_given_up(six: None) -> None:
    def interrupted(result: Result, ended: int, total: int) -> None:
        assert len(children()) >= 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check_subclass(Clear, jobs=4, progress=interrupted)
    assert children() == []


def test_no_process_outlives_results_that_are_closed_early(six: None) -> None:
    with closing(run._in_processes(registry.chosen(None, full=True), subject_of(Clear), 3, None)) as results:
        next(results)
        assert len(children()) >= 1
    assert children() == []


def test_no_process_or_file_is_left_behind(six: None) -> None:
    check_subclass(Clear)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert check_subclass(Clear, jobs=2).ok
    assert children() == []
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_a_fork_is_not_lost(six: None, number: signal.Signals) -> None:
    class SignalError(Exception):
        pass

    def handler(*_: Any) -> None:
        raise SignalError

    def fork(original: Callable[[], int] = os.fork) -> int:
        pid = original()
        if pid:
            signal.raise_signal(number)
        return pid

    before = signal.signal(number, handler)
    try:
        with mock.patch.object(os, "fork", fork), pytest.raises(SignalError):
            check_subclass(Clear)
        assert signal.getsignal(number) is handler
    finally:
        signal.signal(number, before)
    assert children() == []


def test_ctrl_c_is_for_the_caller_alone(attempt: Try) -> None:
    def looks(subject: Subject) -> None:
        raise NotApplicable(f"{os.getpgid(0) == os.getpid()} {signal.getsignal(signal.SIGINT).name}")  # type: ignore[union-attr]

    assert attempt(looks).detail == "True SIG_IGN"


def test_handlers_of_the_caller_do_not_run_in_a_check(attempt: Try) -> None:
    def looks(subject: Subject) -> None:
        raise NotApplicable(str({signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)}))

    before = [signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGALRM)]
    try:
        assert attempt(looks).detail == str({signal.SIG_DFL})
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


def test_a_caller_that_waits_for_all_children_itself(attempt: Try) -> None:
    def holds(subject: Subject) -> None:
        pass

    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets them, and their status
    try:
        assert attempt(holds).status is Status.PASS
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_runs_in_several_threads_at_once(six: None) -> None:
    reports: list[Report] = []
    threads = [threading.Thread(target=lambda: reports.append(check_subclass(Clear, jobs=2))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [report.counts()["pass"] for report in reports] == [6] * 4
    assert children() == []


def test_a_check_may_run_the_kit(attempt: Try) -> None:
    def nests(subject: Subject) -> None:
        registry.REGISTRY.clear()

        def inner(subject: Subject) -> None:
            """Holds."""

        registry.check("printing", "as reported")(inner)
        raise NotApplicable(check_subclass(Doubled, only=["inner"]).results[0].status.value)

    assert attempt(nests).detail == "pass"


def test_a_process_that_ran_a_backward_beside_a_gpu_runs_the_checks_itself(attempt: Try) -> None:
    def looks(subject: Subject) -> None:
        raise NotApplicable(str(os.getpid()))

    text = "Unable to handle autograd's threading in combination with fork-based multiprocessing."
    with mock.patch.object(torch.Tensor, "backward", side_effect=RuntimeError(text)):
        assert attempt(looks).detail == str(os.getpid())
    assert attempt(looks).detail != str(os.getpid())


def test_the_callers_fault_handler_is_left_alone(attempt: Try) -> None:
    def holds(subject: Subject) -> None:
        pass

    before = faulthandler.is_enabled()
    attempt(holds)
    assert faulthandler.is_enabled() is before


def test_each_check_compiles_as_if_it_were_the_first(attempt: Try) -> None:
    function = torch.compile(lambda x: x + 1, backend="eager")
    for size in range(2, 8):
        function(torch.ones(size))

    def compiles(subject: Subject) -> None:
        counter = torch.compile(lambda x: x + 1, backend=lambda graph, _: seen.append(1) or graph)
        seen: list[int] = []
        counter(torch.ones(3))
        raise NotApplicable(str(len(seen)))

    assert attempt(compiles).detail == "1"


# What can't be checked


class Raw(torch.Tensor):
    """Written by hand, and without a flatten protocol."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls: Any, inner: torch.Tensor) -> Raw:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        made.inner = inner
        return made  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class Refuses(Raw):
    """Its every operator fails, and every function with it."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError("not even that")


class Empty(Raw):
    @staticmethod
    def __new__(cls: Any, inner: torch.Tensor) -> Empty:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined, no-any-return]


class Unflattenable(Raw):
    def __tensor_flatten__(self) -> Any:
        raise ValueError("no way")


class Unread(Doubled):
    def decode(self) -> torch.Tensor:
        raise ValueError("no values")


class Misread(Doubled):
    def to_plain(self) -> torch.Tensor:
        return self.elem[0]


def hang(plain: torch.Tensor) -> torch.Tensor:
    while True:
        pass


def leave(plain: torch.Tensor) -> torch.Tensor:
    raise SystemExit(3)


def interrupt(plain: torch.Tensor) -> torch.Tensor:
    raise KeyboardInterrupt


def refuse(plain: torch.Tensor) -> torch.Tensor:
    raise ValueError("not today")


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("cls", "make", "text"),
    [
        (3, None, "3 is no subclass of torch.Tensor"),
        ("lamina:LoggingTensor", None, "lamina:LoggingTensor is no subclass of torch.Tensor"),
        (Rude(), None, "a Rude, whose repr raises RuntimeError is no subclass of torch.Tensor"),
        (torch.Tensor, None, "Tensor is no subclass of torch.Tensor"),
        (torch.nn.Linear, None, "Linear is no subclass of torch.Tensor"),
        (Clear(torch.ones(3)), None, "Clear float32[3] is no subclass of torch.Tensor"),
        (Raw, None, "Raw has no from_plain: pass make, a function from a plain tensor to one"),
        (Scaled, Scaled, "for a float32 tensor of shape (4, 8) make raises: TypeError: "),
        (Clear, refuse, "for a float32 tensor of shape (4, 8) make raises: ValueError: not today"),
        (Clear, leave, "for a float32 tensor of shape (4, 8) make raises: SystemExit: 3"),
        (Clear, interrupt, "to make an instance and to read it: KeyboardInterrupt: "),
        (Clear, lambda _: os.abort(), "to make an instance and to read it: crashes: the process ended with SIGABRT"),
        (Clear, Doubled, "make returned a Doubled, no Clear"),
        (Clear, torch.clone, "make returned a Tensor, no Clear"),
        (Clear, lambda _: None, "make returned a NoneType, no Clear"),
        (Clear, lambda plain: Clear(plain[0]), "make returned an instance of shape (8,) for a tensor of shape (4, 8)"),
        (Unflattenable, Unflattenable, "of a Unflattenable its shape and inner tensors can't be asked for: ValueError"),
        (Refuses, Refuses, "of a Refuses its shape and inner tensors can't be asked for: RuntimeError: not even that"),
        (Empty, Empty, "Empty has no inner tensor that can be found"),
        (Unread, Unread, "the values of a Unread can't be read; pass decode if there is a way to: "),
        (Misread, Misread, "the values of a Misread are Tensor float32[8], not a plain tensor of shape (4, 8): pass"),
    ],
)
def test_what_cannot_be_checked_is_reported(cls: Any, make: Any, text: str) -> None:
    report = check_subclass(cls, make, only=["printing"])
    assert not report.ok
    (result,) = report.results
    assert (result.id, result.status) == ("declaration/can_be_checked", Status.FAIL)
    assert text in result.detail
    assert len(report.summary().splitlines()) < 10


def test_make_that_hangs_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MAKE_SECONDS", 0.5)
    detail = check_subclass(Clear, hang).results[0].detail
    assert "hangs: nothing came in 0.5 s" in detail
    assert " in hang" in detail


def test_make_that_fails_in_this_process() -> None:
    assert "make raises: ValueError: not today" in check_subclass(Clear, refuse, isolated=False).results[0].detail


def test_make_that_moves_to_another_device() -> None:
    class Elsewhere(Clear):
        pass

    inner = mock.Mock(device=torch.device("cuda", 0), is_meta=False)
    with mock.patch("lamina.conformance.discovery.leaves_of", return_value=[inner]):
        report = check_subclass(Elsewhere, isolated=False)
    assert report.results[0].detail == "make returned an instance on cuda for a tensor on cpu: pass device"


def test_a_device_that_is_not_there() -> None:
    device = "xla" if torch.accelerator.is_available() else "cuda"
    detail = check_subclass(Clear, device=device).results[0].detail
    assert detail.startswith("there is no tensor to make one of: ")


def test_a_class_whose_every_operator_fails_is_reported() -> None:
    report = check_subclass(Raw, Raw, decode=lambda raw: raw.inner, only=["printing", "views"])
    assert report.kind == "transparent"
    assert len(report.of(Status.FAIL)) > len(report.results) / 2
    assert "can_be_checked" not in report.summary()


def test_a_class_that_is_plain_memory_with_a_name_can_be_checked_by_its_decode() -> None:
    class Named(torch.Tensor):
        pass

    def make(plain: torch.Tensor) -> Named:
        return plain.as_subclass(Named)

    report = check_subclass(
        Named, make, kind="transparent", decode=lambda n: n.as_subclass(torch.Tensor), only=["repr_is_short"]
    )
    assert report.results[0].name == "repr_is_short"


# What is found out about a class


def test_a_local_class_and_a_lambda() -> None:
    class Local(lamina.WrapperTensor):
        elem: torch.Tensor
        fallback = lamina.Fallback.UNWRAP

    report = check_subclass(Local, lambda plain: Local(plain), only=["repr_is_short"])  # noqa: PLW0108 - a lambda
    assert report.ok
    assert report.subject.endswith("Local")


@pytest.mark.parametrize(
    ("cls", "make", "kind"),
    [
        (Clear, None, "transparent"),
        (Doubled, None, "representation"),
        (lamina.LoggingTensor, None, "transparent"),
        (lamina.ScaledInt8Tensor, None, "representation"),
        (lamina.LoggingTensor, lambda plain: lamina.LoggingTensor(Doubled.from_plain(plain)), "representation"),
        (Raw, Raw, "transparent"),
    ],
)
def test_kind_is_found_out(cls: Any, make: Any, kind: str) -> None:
    assert check_subclass(cls, make, only=["repr_is_short"]).kind == kind


def test_kind_and_decode_can_be_given() -> None:
    subject = subject_of(Raw, Raw, kind="representation", decode=lambda raw: raw.inner * 2)
    assert torch.equal(subject.decode(Raw(torch.ones(2))), torch.full((2,), 2.0))
    assert subject.kind.value == "representation"


# Which checks run


def test_everything_quick_runs_without_only() -> None:
    chosen = registry.chosen(None, full=False)
    assert chosen == [each for each in every_check() if each.quick]
    assert registry.chosen(None, full=True) == every_check()


def test_only_takes_names_groups_and_both() -> None:
    for only in ("repr_is_short", ["repr_is_short"], ["printing/repr_is_short"], iter(["repr_is_short"])):
        assert [each.name for each in registry.chosen(only, full=False)] == ["repr_is_short"]
    group = registry.chosen(["views"], full=True)
    assert {each.group for each in group} == {"views"}
    assert registry.chosen(["repr_is_short", "views"], full=True) == [
        *group,
        *registry.chosen("repr_is_short", full=True),
    ]


def test_a_slow_check_runs_in_a_full_run_or_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRY", {})

    @registry.check("views", "as reported", quick=False)
    def slow(subject: Subject) -> None:
        """Takes its time."""

    assert [registry.chosen(only, full=False) for only in (None, ["views"])] == [[], []]
    assert len(registry.chosen(["views"], full=True)) == len(registry.chosen(["slow"], full=False)) == 1


@pytest.mark.parametrize("argument", ["only", "skip", "limits"])
def test_a_wrong_name_is_refused_with_near_ones(argument: str) -> None:
    for name in ("repr_is_shrot", "printing/repr_is_shrot"):
        names = [name] if argument == "only" else {name: "a reason"}
        with pytest.raises(ValueError, match=rf"no check or group '{name}'; near: repr_is_short"):
            check_subclass(Clear, **{argument: names})
    with pytest.raises(ValueError, match="near: views"):
        registry.chosen(["view"], full=False)
    with pytest.raises(ValueError, match="see lamina check --list"):
        registry.chosen(["§§§§"], full=False)


def test_other_bad_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="skip has to be a mapping from the name of a check to the reason, got"):
        check_subclass(Clear, skip=["repr_is_short"])  # type: ignore[arg-type]
    for jobs in (0, -1):
        with pytest.raises(ValueError, match="jobs has to be 1 or more"):
            check_subclass(Clear, jobs=jobs)
    with pytest.raises(ValueError, match="'opaque' is not a valid Kind"):
        check_subclass(Clear, kind="opaque")


def test_no_check_at_all_is_not_ok() -> None:
    report = check_subclass(Clear, only=[])
    assert report.results == []
    assert not report.ok


@pytest.mark.parametrize("name", ["repr_is_short", "printing/repr_is_short", "printing"])
@pytest.mark.parametrize("reason", ["it is known", ""])
def test_skipped_checks_do_not_run(name: str, reason: str) -> None:
    report = check_subclass(Clear, only=["repr_is_short"], skip={name: reason})
    (result,) = report.results
    assert (result.status, result.detail) == (Status.NOT_APPLICABLE, f"left out: {reason}")
    assert report.ok


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(registry, "REGISTRY", {})

    @registry.check("printing", "as reported")
    def fails(subject: Subject) -> None:
        """Always."""
        raise ValueError("found")

    return "fails"


@pytest.mark.parametrize("name", ["fails", "printing/fails", "printing"])
def test_a_failure_can_be_accepted(failing: str, name: str) -> None:
    report = check_subclass(Clear, limits={name: "issue 7"})
    assert [(each.status, each.detail) for each in report.results] == [(Status.KNOWN_LIMIT, "issue 7")]
    assert report.ok


def test_a_check_can_say_that_torch_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRY", {})

    @registry.check("printing", "as reported")
    def limited(subject: Subject) -> None:
        """Never holds."""
        raise KnownLimit("issue 7")

    for isolated in (True, False):
        report = check_subclass(Clear, isolated=isolated)
        assert [(each.status, each.detail) for each in report.results] == [(Status.KNOWN_LIMIT, "issue 7")]
        assert report.ok


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("kind", ["representation", "transparent"])
@pytest.mark.parametrize("text", ["start and end have to be multiples of 2", "no such slice"])
def test_a_cut_off_the_grid_may_be_refused_with_the_step(
    text: str, kind: str, isolated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a class whose values share something; a transparent one has no grid."""
    monkeypatch.setattr(registry, "REGISTRY", {})

    @registry.check("printing", "as reported")
    def cuts(subject: Subject) -> None:
        """Never holds."""
        raise ValueError(text)

    (result,) = check_subclass(Clear, kind=kind, isolated=isolated).results
    refused = kind == "representation" and "multiples of 2" in text
    assert result.status is (Status.NOT_APPLICABLE if refused else Status.FAIL)
    assert text in result.detail


def test_a_limit_does_not_hide_a_pass() -> None:
    assert check_subclass(Clear, only=["repr_is_short"], limits={"repr_is_short": "?"}).counts()["pass"] == 1


def test_checks_of_other_kinds_do_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRY", {})

    @registry.check("printing", "as reported", kinds=(lamina.conformance.Kind.FAKE,))
    def fake_only(subject: Subject) -> None:
        """Holds."""

    for isolated in (True, False):
        result = check_subclass(Clear, isolated=isolated)["fake_only"]
        assert (result.status, result.detail) == (Status.NOT_APPLICABLE, "not for transparent classes")


@pytest.mark.parametrize("isolated", [True, False])
def test_progress_hears_of_every_check(isolated: bool) -> None:
    begun, ended = [], []
    report = check_subclass(
        Clear,
        only=["printing"],
        isolated=isolated,
        jobs=2,
        skip={"repr_is_short": "?"},
        progress=lambda *heard: ended.append(heard),
        started=lambda check: begun.append(check.name),
    )
    names = [each.name for each in report.results]
    assert sorted(result.name for result, _, _ in ended) == sorted(names)
    assert [done for _, done, _ in ended] == list(range(1, len(names) + 1))
    assert {total for _, _, total in ended} == {len(names)}
    ran = [each.name for each in report.results if not each.detail.startswith(("left out: ", "not for "))]
    assert sorted(begun) == sorted(ran)
    assert "repr_is_short" not in begun
    assert names == [each.name for each in registry.chosen(["printing"], full=False)]


# The list of checks


def test_every_check_says_what_it_checks() -> None:
    for each in every_check():
        assert each.text
        assert each.reported
        assert each.name == each.name.lower()


@pytest.mark.parametrize(
    ("group", "name", "text", "message"),
    [
        ("nowhere", "one", "Doc.", "check one: there is no group 'nowhere'; groups are declaration, "),
        ("views", "taken", "Doc.", "check taken exists already, in group 'printing'"),
        ("views", "one", None, "check one has no docstring"),
    ],
)
def test_a_bad_check_is_refused(
    monkeypatch: pytest.MonkeyPatch, group: str, name: str, text: str | None, message: str
) -> None:
    monkeypatch.setattr(registry, "REGISTRY", {})

    def taken(subject: Subject) -> None:
        """Doc."""

    registry.check("printing", "as reported")(taken)

    def function(subject: Subject) -> None:
        pass

    function.__name__, function.__doc__ = name, text
    with pytest.raises(ValueError, match=message):
        registry.check(group, "as reported")(function)


# Texts


class RaisesInRepr:
    def __repr__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("text", "text"),
        (ValueError("\nfirst\nsecond"), "ValueError: first"),
        (torch.ones(2), "Tensor float32[2] = [1.0, 1.0]"),
        (torch.ones(3, 4), "Tensor float32[3, 4]"),
        (Clear(torch.ones(2)), "Clear float32[2]"),
        ([torch.ones(7), 3], "[Tensor float32[7], 3]"),
        (Clear, "Clear"),
        (None, "None"),
        (RaisesInRepr(), "a RaisesInRepr, whose repr raises ValueError"),
        ("x" * 1000, "x" * 239 + "…"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_shown_in_one_short_line(value: Any, text: str) -> None:
    assert shown(value) == text


def test_texts_of_errors() -> None:
    assert text_of(ValueError("one\ntwo")) == "one\ntwo"
    assert first_line(ValueError("  \n one \ntwo")) == "one"
    assert first_line(ValueError()) == ""


RESULTS = [
    Result("a", "views", Status.PASS, "", 0.25, "seen"),
    Result("b", "views", Status.FAIL, "x\n  got <&>\x1b[0m \ud800", 1.0, "lost"),
    Result("c", "life", Status.KNOWN_LIMIT, "issue 7", 0.0, "slow"),
    Result("d", "life", Status.NOT_APPLICABLE, "no", 0.0, "odd"),
]
REPORT = Report("f.<locals>.T", "transparent", RESULTS)


def test_report_as_text() -> None:
    assert REPORT.summary().splitlines() == [
        "f.<locals>.T (transparent): 1 pass, 1 fail, 1 known limit, 1 not applicable",
        "FAIL        views/b  (lost)",
        "    x",
        "      got <&>\x1b[0m \ud800",
        "KNOWN LIMIT life/c  (slow)",
        "    issue 7",
    ]
    assert str(REPORT) == REPORT.summary()
    assert not REPORT.ok
    assert Report("T", "transparent", RESULTS[:1]).ok


def test_report_finds_results() -> None:
    assert REPORT["b"] is REPORT["views/b"] is RESULTS[1]
    assert REPORT.of("fail") == REPORT.of(Status.FAIL) == [RESULTS[1]]
    with pytest.raises(KeyError, match="'nope' did not run; there are a, b, c, d"):
        REPORT["nope"]


def test_report_as_json() -> None:
    data = json.loads(REPORT.to_json().encode("ascii"))
    assert (data["subject"], data["kind"], data["ok"], data["complete"]) == ("f.<locals>.T", "transparent", False, True)
    assert data["counts"] == {"pass": 1, "fail": 1, "known limit": 1, "not applicable": 1}
    assert data["results"][1]["detail"] == RESULTS[1].detail
    assert [each["status"] for each in data["results"]] == ["pass", "fail", "known limit", "not applicable"]


def test_report_as_junit() -> None:
    suite = ET.fromstring(REPORT.to_junit().encode())
    assert suite.attrib == {"name": "f.<locals>.T", "tests": "4", "failures": "1", "skipped": "2", "time": "1.250"}
    assert [case.attrib["name"] for case in suite] == ["a", "b", "c", "d"]
    assert suite[1].attrib["classname"] == "f.<locals>.T.views"
    assert suite[1][0].attrib == {"message": "lost"}
    assert suite[1][0].text == "x\n  got <&>?[0m ?"
    assert [case[0].attrib["message"] for case in suite[2:]] == ["known limit: issue 7", "not applicable: no"]
    assert list(suite[0]) == []


def test_a_report_that_is_not_complete_is_not_ok() -> None:
    report = Report("T", "transparent", RESULTS[:1], complete=False)
    assert not report.ok
    assert report.summary().endswith("; interrupted")
    assert json.loads(report.to_json())["complete"] is False


def test_running_the_kit_leaves_no_trace_at_the_end_of_a_process() -> None:
    ran = run_python(
        """
        import torch
        from subjects import Clear
        from lamina.conformance import check_subclass
        assert check_subclass(Clear, only=["repr_is_short"]).ok
        print("done")
        """
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "done\n", "")
