"""What a ledger proves: nothing was taken out of it, this run stands in it, and which others there are. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from agent.text import Text, msg

Entry = dict[str, Any]


@dataclass(frozen=True)
class OtherRun:
    """A run of the same contract on the same machine; ``digest`` is None while it has not ended."""

    number: int
    run_id: str
    folder: str
    verdict: Optional[str]
    digest: Optional[str]


@dataclass(frozen=True)
class Account:
    """``number`` of ``of`` runs; ``previous`` is the run before this one; ``problems`` speak against the ledger."""

    number: Optional[int]
    of: int
    runs: tuple[OtherRun, ...]
    problems: tuple[Text, ...]

    @property
    def previous(self) -> Optional[OtherRun]:
        """The run before this one, where there is one."""
        return self.runs[self.number - 2] if self.number is not None and self.number > 1 else None


def account(data: bytes, run_id: str, digest: str, least: Optional[tuple[int, int]] = None) -> Account:
    """Read ``ledger.jsonl`` for one run.

    ``digest``: the run's own, or of the original where this one is redacted. ``least``: the run's number and the
    count of runs that its result states; the ledger may have grown since, not shrunk.
    """
    entries, problems = _chain(data)
    begun = next((e for e in entries if e.get("event") == "start" and e.get("run_id") == run_id), None)
    if begun is None:
        return Account(None, 0, (), (*problems, msg("this run does not stand in the ledger")))
    same = [
        e for e in entries
        if e.get("event") == "start" and all(e.get(k) == begun.get(k) for k in ("contract", "machine"))
    ]  # fmt: skip
    runs = tuple(_run(n, e, entries) for n, e in enumerate(same, 1))
    number = next(r.number for r in runs if r.run_id == run_id)
    own = runs[number - 1]
    if own.digest != digest:
        problems.append(msg("the ledger has another digest for this run: {digest}", digest=own.digest or "–"))
    if least is not None and (number != least[0] or len(runs) < least[1]):
        problems.append(
            msg("runs are missing from the ledger: the result says run {n} of {of}, the ledger has {m} of {mof}",
                n=least[0], of=least[1], m=number, mof=len(runs))
        )  # fmt: skip
    return Account(number, len(runs), runs, tuple(problems))


def _run(number: int, begun: Entry, entries: Sequence[Entry]) -> OtherRun:
    run_id = begun.get("run_id")
    ends = [e for e in entries if e.get("event") in ("end", "interrupted") and e.get("run_id") == run_id]
    last = ends[-1] if ends else {}
    return OtherRun(number, str(run_id), str(begun.get("folder")), last.get("verdict"), last.get("digest"))


def _chain(data: bytes) -> tuple[list[Entry], list[Text]]:
    entries: list[Entry] = []
    problems: list[Text] = []
    before: Optional[str] = None
    for number, line in enumerate(data.splitlines(), 1):
        entry = _entry(line)
        # A line that a full disk cut off spoils only itself: the next one carries its hash all the same.
        if entry is not None:
            if entry.get("previous") != before:
                problems.append(msg("a line before line {n} of the ledger was changed or taken out", n=number))
            entries.append(entry)
        before = hashlib.sha256(line).hexdigest()
    return entries, problems


def _entry(line: bytes) -> Optional[Entry]:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def chained(entries: Sequence[Entry]) -> bytes:
    """Lines with the chain computed anew, for a ledger whose words had to be replaced."""
    lines: list[bytes] = []
    for entry in entries:
        previous = hashlib.sha256(lines[-1]).hexdigest() if lines else None
        lines.append(json.dumps({**entry, "previous": previous}, ensure_ascii=False).encode())
    return b"".join(line + b"\n" for line in lines)


def entries_of(data: bytes) -> list[Entry]:
    """All whole lines."""
    return _chain(data)[0]
