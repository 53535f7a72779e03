"""The import of torch's operator database leaves the process as it was."""

from __future__ import annotations

from subjects import run_python


def test_the_import_changes_nothing_in_the_process() -> None:
    code = """
    import hypothesis, torch
    from lamina.conformance.sweep import operators
    hypothesis.settings.register_profile("mine", max_examples=7)
    hypothesis.settings.load_profile("mine")
    call, state = torch._C.ScriptFunction.__call__, torch.get_rng_state()
    assert len(operators()) > 600
    assert hypothesis.settings().max_examples == 7
    assert torch._C.ScriptFunction.__call__ is call
    assert torch.equal(torch.get_rng_state(), state)
    torch.backends.cudnn.benchmark = False
    """
    ran = run_python(code)
    assert ran.returncode == 0, ran.stderr
