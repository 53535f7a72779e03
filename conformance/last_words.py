"""What a process wrote before it died, or was found to hang: the few lines that say why and where."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import IO

_BYTES = 1 << 16  # from the end: a process may have written gigabytes
_LINES = 4
_FRAME = re.compile(r'\s*File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)')


def last_words(output: IO[bytes], check_file: str) -> list[str]:
    """The last lines in ``output``. Where ``faulthandler`` wrote a stack: what came before it, and of the stack the two
    innermost frames, and the innermost one in ``check_file``.
    """
    output.seek(max(0, output.seek(0, os.SEEK_END) - _BYTES))
    lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    stack = next((number for number, line in enumerate(lines) if "most recent call first" in line), None)
    if stack is None:
        return lines[-_LINES:]
    frames = []
    for line in lines[stack + 1 :]:
        if not (frame := _FRAME.match(line)):
            break
        frames.append(frame)
    inner = frames[:2]
    if all(frame["file"] != check_file for frame in inner):
        inner += [frame for frame in frames if frame["file"] == check_file][:1]
    places = [f"at {Path(each['file']).name}:{each['line']} in {each['function']}" for each in inner]
    before = [line for line in lines[:stack] if not line.startswith("Fatal Python error: ")]  # it names the signal
    return before[-_LINES:] + places
