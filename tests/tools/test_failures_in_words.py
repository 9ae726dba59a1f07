"""A tool's failure is said in the reader's language, and its own line stays as it was."""

from __future__ import annotations

import pytest

from agent.text import Text, text_from_json, text_to_json
from agent.tools import ParseError, _shell, dmesg
from agent.tools.smi_errors import refuse

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
DENIED = "dmesg: read kernel buffer failed: Operation not permitted"


def denied() -> ParseError:
    with pytest.raises(ParseError) as error:
        dmesg.parse(f"{DENIED}\n")
    return error.value


def from_the_shell() -> ParseError:
    found = _shell.failure("bash: fio: command not found", "fio")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("error", "english", "own"),
    [
        (refuse(MISMATCH, "nvidia-smi"), "have different versions", MISMATCH),
        (denied(), "no permission to read the kernel log", DENIED),
        (from_the_shell(), "the tool is not installed or not in PATH", "bash: fio: command not found"),
    ],
)
def test_every_sentence_of_it_can_be_translated(error: ParseError, english: str, own: str) -> None:
    assert str(error.why) == str(error)
    assert english in str(error)
    kept = text_from_json(text_to_json(error.why))  # as a run keeps it
    assert isinstance(kept, Text)
    said = kept.render(lambda template: "".join("译" if c.isalpha() and "{" not in template else c for c in template))
    assert english not in said
    assert "译" in said
    assert repr(own) in said
