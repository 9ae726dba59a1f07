"""For a chat or a ticket: at most 40 lines, what is broken first, what is asked for, the digest last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from agent.model import Run
from agent.report.clean import one_line, shortened
from agent.report.names import pair
from agent.report.rows import Row
from agent.report.view import View, view
from agent.text import Text, Translate, msg

FORMAT = "txt"
EXTENSION = "txt"
LINES = 40
_WIDEST = 240
_MOST_ASKED = 6
_HEAD = frozenset({"Contract", "Vendor", "Server", "Measured on", "Run"})
_FRAME = 3


def render(run: Run, folder: Optional[Path], translate: Translate, language: str) -> str:
    """Plain text without colours."""
    shown = view(run, folder, translate, language)
    head, asked, foot = _head(shown, translate), _asked(shown, translate), _foot(shown, translate)
    room = LINES - len(head) - len(asked) - len(foot)
    lines = [*head, *_rows(shown, room, translate), *asked, *foot]
    return "\n".join(shortened(one_line(line), _WIDEST) for line in lines) + "\n"


def _head(v: View, translate: Translate) -> list[str]:
    # Which cards there are is told where one of them is silent.
    told = _HEAD if all(g.answers for g in v.gpus) else _HEAD | {"GPUs"}
    facts = [pair(f.label, f.value, translate) for f in v.facts if f.name in told]
    return [f"{v.look.sigil} {v.verdict.upper()} — {v.headline}", *v.partial, *facts]


def _rows(v: View, room: int, translate: Translate) -> list[str]:
    blocks = [
        (msg("BROKEN"), [_broken(r, translate) for r in v.broken]),
        (msg("NOT VERIFIED"), _open(v.unverified, translate)),
        (msg("REMARKS"), [_broken(r, translate) for r in v.remarks]),
    ]
    blocks = [block for block in blocks if block[1]]
    # A blank line, the heading and "n more" for each block; the rest is shared out from the top.
    room -= _FRAME * len(blocks)
    lines: list[str] = []
    for later, (heading, entries) in zip(range(len(blocks) - 1, -1, -1), blocks):
        taken = entries[: max(room - later, 1)]
        room -= len(taken)
        count, shown = (sum(entry.count for entry in some) for some in (entries, taken))
        lines += ["", f"{heading.render(translate)} ({count})", *(entry.line for entry in taken)]
        if shown < count:
            lines.append(_more(count - shown, translate))
    return lines


@dataclass(frozen=True)
class _Entry:
    """A line and how many findings it tells of, counted as in the headline: each GPU, disk and address by itself."""

    line: str
    count: int


def _more(n: int, translate: Translate) -> str:
    return msg("{n} more are in the report.", n=n).render(translate)


def _broken(row: Row, translate: Translate) -> _Entry:
    return _Entry(f"{row.look.sigil} {pair(_named(row), row.said, translate)}", len(row.subjects))


def _named(row: Row) -> str:
    return f"{row.name} [{row.ref}]" if row.ref else row.name


def _open(found: Sequence[Row], translate: Translate) -> list[_Entry]:
    """What could not be verified, promises that share a reason together."""
    groups: dict[str, list[Row]] = {}
    for row in found:
        groups.setdefault(row.why, []).append(row)
    return [_for_one_reason(why, group, translate) for why, group in groups.items()]


def _for_one_reason(why: str, group: Sequence[Row], translate: Translate) -> _Entry:
    name, count = _named(group[0]), sum(len(row.subjects) for row in group)
    if len(group) > 1:
        name = msg("{what} and {n} more", what=name, n=count - len(group[0].subjects)).render(translate)
    return _Entry(f"{group[0].look.sigil} {pair(name, why, translate)}", count)


def _asked(v: View, translate: Translate) -> list[str]:
    if not v.asked:
        return []
    heading = msg("WHAT IS ASKED FOR").render(translate)
    more = [_more(len(v.asked) - _MOST_ASKED, translate)] if len(v.asked) > _MOST_ASKED else []
    return ["", heading, *(f"- {line}" for line in v.asked[:_MOST_ASKED]), *more]


def _foot(v: View, translate: Translate) -> list[str]:
    digest: Text = msg("run digest: sha256 {digest}", digest=v.digest) if v.digest else msg(
        "run digest: the sha256 of manifest.json, printed when the run ends"
    )  # fmt: skip
    contract = msg("contract: sha256 {digest}", digest=v.contract_sha256)
    return ["", contract.render(translate), digest.render(translate)]
