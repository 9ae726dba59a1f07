"""What every parser must survive: cut, garbled and foreign text gives a result or a ``ParseError``."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import ModuleType
from typing import Any, Optional

from agent.tools import ParseError, to_json

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tools"
CORPUS = Path(__file__).parents[2].parent / "shared" / "corpus"


def cases(kind: str = "*") -> list[Path]:
    """The fixture texts of a kind, in a stable order."""
    return sorted(FIXTURES.glob(f"{kind}--*.txt"))


def read_case(path: Path) -> str:
    """The text as the agent gets it: bytes decoded, line ends and CR kept."""
    return path.read_bytes().decode("utf-8", errors="replace")


def outcome(module: ModuleType, text: str) -> Optional[Any]:
    """The parser's JSON for a text, or None where it refused; any other exception fails the test."""
    try:
        result = module.parse(text)
    except ParseError as error:
        _check_refusal(error)
        return None
    got = to_json(module, result)
    json.dumps(got, allow_nan=False)
    return got


def _check_refusal(error: ParseError) -> None:
    """A refusal names its kind and says something; the line it shows stays short."""
    assert error.kind
    assert error.message
    assert len(str(error)) < 1500


def mutations(text: str, seed: int, count: int) -> list[str]:
    """Seeded damage to a text: bytes flipped, dropped, doubled, lines removed or swapped."""
    rng = random.Random(seed)
    return [_damage(text, rng) for _ in range(count)]


def _damage(text: str, rng: random.Random) -> str:
    raw = bytearray(text.encode("utf-8"))
    for _ in range(rng.randint(1, 4)):
        if not raw:
            break
        at = rng.randrange(len(raw))
        span = rng.randint(1, 40)
        action = rng.randrange(4)
        if action == 0:
            raw[at] = rng.randrange(256)
        elif action == 1:
            del raw[at : at + span]
        elif action == 2:
            raw[at:at] = raw[at : at + span]
        else:
            raw = raw[:at] + raw[at:].replace(b"\n", b"\r\n" if rng.random() < 0.5 else b"", 1)
    return raw.decode("utf-8", errors="replace")


def truncations(text: str, seed: int, count: int) -> list[str]:
    """The text cut at ``count`` seeded places, the last hundred characters always among them."""
    rng = random.Random(seed)
    cuts = {rng.randrange(len(text)) for _ in range(count)} if text else set()
    cuts |= set(range(max(0, len(text) - 100), len(text)))
    return [text[:cut] for cut in sorted(cuts)]


def numbers(value: Any) -> set[float]:
    """All numbers in a JSON value, booleans apart."""
    if isinstance(value, bool):
        return set()
    if isinstance(value, (int, float)):
        return {float(value)}
    if isinstance(value, dict):
        return set().union(*(numbers(v) for v in value.values())) if value else set()
    if isinstance(value, list):
        return set().union(*(numbers(v) for v in value)) if value else set()
    return set()


def foreign_numbers(module: ModuleType, text: str, seed: int = 1, count: int = 60) -> list[tuple[int, set[float]]]:
    """Cuts of a valid text whose reading holds a number that the whole text's reading does not."""
    whole = numbers(outcome(module, text))
    wrong = []
    for cut in truncations(text, seed, count):
        extra = numbers(outcome(module, cut)) - whole
        if extra:
            wrong.append((len(cut), extra))
    return wrong
