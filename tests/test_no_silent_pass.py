"""No promise is kept by silence: every clause of the grammar, on hosts that answer nothing, or nothing of use.

The contracts come out of the grammar itself, with each value that a clause may have ("off" and "none" too, which
an unread machine would keep most easily), so that a new check is held to this without a line here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

import pytest

from agent.checks import families, grammars
from agent.contract import loads
from agent.course import Course
from agent.grammar import GrammarError, Kind, ListKind, QuantityKind, Section, WordKind
from agent.host import Files, Host, Ran, Scratch
from agent.model import Contract, Finding
from agent.plan import Options
from agent.reading import Missing
from agent.text import msg

# --- contracts out of the grammar --------------------------------------------------------------------------------

# What the kinds that are no quantity and no list of words read; the first that a kind takes is written.
WRITTEN = (
    "H100 SXM5 80GB",
    "Xeon Platinum 8468",
    "Gen5 x16",
    "Ubuntu 22.04",
    ">= 3.10",
    "12.4",
    "198.51.100.7:5201",
    "198.51.100.7",
    "https://198.51.100.7/file",
    "s3://bucket/path",
    "198.51.100.7",
    "eth1",
    "2026-11-20",
    "19:00-23:00",
    "Asia/Shanghai",
    "/data",
    "data",
    "8",
)
NAMED = {"path": "/data", "host": "198.51.100.7", "url": "https://198.51.100.7/file", "name": "lan"}
# Settings without which a clause has nothing to measure.
SETTINGS = {"network": {"interface": "eth1", "servers": "198.51.100.7:5201"}}


def values(kind: Kind) -> list[str]:
    """Everything that this kind may be promised as: each word, and one number from either side of the usual."""
    if isinstance(kind, ListKind):
        return values(kind.item)
    if isinstance(kind, WordKind):
        meanings = {repr(meaning): word for word, meaning in kind.values.items()}
        return list(meanings.values())
    if isinstance(kind, QuantityKind):
        sign = "" if kind.plain else {"at_least": ">= ", "at_most": "<= "}.get(kind.order, "")
        found = [kind.example, *dict.fromkeys(kind.words.values())]
        number = kind.example.removeprefix(sign).lstrip("0123456789.,")
        found += [f"{sign}1{number}"] + ([f"{sign}0{number}"] if kind.order == "at_most" else [])
        return [v for v in found if readable(kind, v)] + (["auto"] if kind.auto else [])
    found = [v for v in WRITTEN if readable(kind, v)]
    assert found, f"no value for {kind}"
    return found[:2] + (["auto"] if kind.auto else [])


def readable(kind: Kind, value: str) -> bool:
    try:
        kind.parse(value)
    except GrammarError:
        return False
    return True


def nested(names: Mapping[str, str]) -> dict[str, Any]:
    """``{"allreduce.busbw": v}`` → ``{"allreduce": {"busbw": v}}``."""
    tree: dict[str, Any] = {}
    for name, value in names.items():
        *above, last = name.split(".")
        place = tree
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return tree


def entry(key: str, section: Section, turn: int) -> Any:
    chosen = {n: values(k)[turn % len(values(k))] for n, k in section.clauses.items()}
    if section.bare is not None and (section.each or section.many is None):
        return [chosen[section.bare]] if section.each else chosen[section.bare]
    settings = {n: NAMED[n] for n in (section.many,) if n}
    return [nested({**settings, **SETTINGS.get(key, {}), **chosen})] if section.many else nested(chosen)


def everything(turn: int) -> Contract:
    """Every clause of the grammar, each at its ``turn``-th value, decisive and agreed where it can be."""
    lines = ["version: 1"]
    for key, section in grammars().items():
        lines.append(f"{key}: {yaml(entry(key, section, turn))}")
    return loads("\n".join(lines).encode(), "every-clause.yaml", grammars())


def yaml(value: Any) -> str:
    """Flow style, every scalar quoted; decisive where a clause is written as a mapping."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {yaml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml, value)) + "]"
    return '"' + str(value) + '"'


TURNS = max(len(values(k)) for s in grammars().values() for k in s.clauses.values())


# --- hosts that answer nothing, or nothing of use ----------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What every program and every file says."""

    ran: Mapping[str, Any]
    stdout: bytes = b""
    stderr: bytes = b""
    error: str = "ENOENT"
    text: Optional[str] = None


GARBAGE = "\x00\ufffd{]<>;=,0x 12 %%s \t|--- 日本 N/A\n" * 40
ANSWERS: Mapping[str, Answer] = {
    "nothing there": Answer({"start_error": "ENOENT"}),
    "nothing allowed": Answer({"start_error": "EACCES"}, error="EACCES"),
    "everything hangs": Answer({"timed_out": True}, error="EIO"),
    "everything stuck in the kernel": Answer({"abandoned": True}, error="EIO"),
    "everything killed": Answer({"signal": 9}, error="EIO"),
    "everything floods": Answer({"over_limit": True}, error="EFBIG"),
    "exit 1 and a text": Answer({"exit": 1}, b"", b"error: something went wrong\n", "EIO"),
    "exit 1 in another language": Answer({"exit": 1}, "错误：未知错误\n".encode(), "エラー\n".encode(), "EIO"),
    "exit 127 of a shell": Answer({"exit": 127}, b"", b"sh: 1: tool: not found\n"),
    "exit 0 and empty": Answer({"exit": 0}, text=""),
    "exit 0 and a newline": Answer({"exit": 0}, b"\n", text="\n"),
    "exit 0 and garbage": Answer({"exit": 0}, GARBAGE.encode(), text=GARBAGE),
    "exit 0 and a page of a portal": Answer({"exit": 0}, b"<html><body>Login</body></html>", text="<html>"),
    "exit 0 and empty JSON": Answer({"exit": 0}, b"{}", text="{}"),
    "exit 0 and other JSON": Answer({"exit": 0}, b'{"unrelated": 1}', text='{"unrelated": 1}'),
    "exit 0 and an empty list": Answer({"exit": 0}, b"[]", text="[]"),
    "exit 0 and null": Answer({"exit": 0}, b"null", text="null"),
    "exit 0 and zero": Answer({"exit": 0}, b"0\n", text="0"),
    "exit 0 and N/A": Answer({"exit": 0}, b"N/A\n", text="[N/A]"),
}


# Where being there or not is itself what is asked: a client that is not installed, a file that only the module makes.
PROVEN: Mapping[str, tuple[str, ...]] = {
    "nothing there": ("software.docker", "software.nvidia_container_toolkit"),
    **{n: ("storage_path.gpudirect",) for n, a in ANSWERS.items() if a.text is not None},
}
# Our own probes never print these; what then breaks in a step is "accept itself failed", and no promise is kept.
NEVER_OURS = ("exit 0 and empty JSON", "exit 0 and other JSON")


@dataclass
class Mute(Host):
    """A host on which everything gives the same answer."""

    answer: Answer
    folder: Path
    live = False
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def run(self, probe: str, argv: Sequence[str], timeout_s: float, **_: Any) -> Ran:
        place = self.folder / f"{len(self.asked):04d}"
        place.mkdir()
        (place / "stdout").write_bytes(self.answer.stdout)
        (place / "stderr").write_bytes(self.answer.stderr)
        self.asked.append(probe)
        started = "2026-11-30T08:00:00.000Z"
        return self._logged(
            Ran(probe, tuple(argv), started, 1.0, evidence=f"evidence/{probe}", folder=place, **self.answer.ran)
        )

    def read(
        self, probe: str, files: Sequence[str] = (), links: Sequence[str] = (), names: Sequence[str] = ()
    ) -> Files:
        paths = [p.replace("*", "0") for p in files]
        texts = {p: self.answer.text for p in paths if self.answer.text is not None}
        errors = dict.fromkeys([*paths, *links], self.answer.error) if self.answer.text is None else {}
        return self._noted(Files(probe, texts, {}, frozenset(), errors, f"evidence/{probe}"))

    def scratch(self, probe: str, where: str) -> Union[Scratch, Missing]:
        grant = msg("let this user write to {path}", path=where)
        return Missing(
            "denied", msg("no test file may be written to {path}", path=where), (f"evidence/{probe}",), grant
        )

    def clear(self, scratch: Scratch) -> None:
        raise AssertionError("nothing was made")

    def sleep(self, seconds: float) -> None:
        return

    def stop_all(self) -> None:
        return


def judged(contract: Contract, answer: Answer, folder: Path) -> tuple[Course, tuple[Finding, ...]]:
    """The whole course, with all its looks."""
    course = Course(contract, Options("full"), families(), Mute(answer, folder))
    course.read_facts()
    course.make_plan()
    course.measure()
    return course, course.findings()


def promised(findings: Sequence[Finding]) -> Iterator[Finding]:
    return (f for f in findings if not f.clause.startswith("integrity."))


@pytest.mark.parametrize("name", list(ANSWERS))
def test_silence_keeps_no_promise_and_breaks_none(name: str, tmp_path: Path) -> None:
    decided: dict[str, str] = {}
    for turn in range(TURNS):
        contract = everything(turn)
        folder = tmp_path / str(turn)
        folder.mkdir()
        course, findings = judged(contract, ANSWERS[name], folder)
        assert name in NEVER_OURS or not course.faults, course.faults[0]
        assert {c.key for c in contract.clauses} <= {f.clause for f in findings}
        written = {c.key: c.promise.written for c in contract.clauses}
        for found in promised(findings):
            assert str(found.reason), found.id
            if found.outcome != "inconclusive" and found.clause not in PROVEN.get(name, ()):
                decided[f"{found.id}: {written[found.clause]}"] = f"{found.outcome}, {found.reason}"
        broken = [f.id for f in findings if f.outcome == "fail" and f.clause not in PROVEN.get(name, ())]
        assert not broken
        unknown = [f for f in findings if f.outcome == "inconclusive" and f.severity == "breach"]
        assert unknown
    assert not decided


def test_every_clause_of_the_grammar_is_asked_for() -> None:
    """Each key of the design's contract, and each way of saying no, is somewhere among the contracts."""
    asked = {(c.family, c.name) for turn in range(TURNS) for c in everything(turn).clauses}
    assert asked == {(family, name) for family, section in grammars().items() for name in section.clauses}
    off = {c.key for turn in range(TURNS) for c in everything(turn).clauses if c.promise.value is False}
    assert {"gpu.mig", "gpu.p2p", "rdma.gpudirect", "software.docker"} <= off


@pytest.mark.parametrize("name", list(ANSWERS))
def test_what_is_missing_says_what_to_do(name: str, tmp_path: Path) -> None:
    """A tool that is not there or not allowed is named with its remedy: a grant wherever the answer is of that kind."""
    _, findings = judged(everything(0), ANSWERS[name], tmp_path)
    helpless = [f.id for f in promised(findings) if f.reason_code in ("no-tool", "denied") and not str(f.grant or "")]
    assert not helpless
