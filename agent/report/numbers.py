"""Numbers, shares, durations and times as a reader of the language expects them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Optional

from agent.model import Finding, Limit
from agent.quantity import DIGITS, digits_apart, format_quantity
from agent.report.clean import one_line
from agent.report.phrases import phrase
from agent.text import Text, Translate, msg

NONE = "—"
_NARROW = "\u202f"  # narrow no-break space: a number and its unit stay on one line
# Units so small that a number in them is hard to read.
_LONG = frozenset({"B", "B/s", "bit/s"})
_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


# From the larger to the smaller, by thousands: 0.02528 TB is 25.28 GB.
_LADDERS = (("TB", "GB", "MB"), ("TB/s", "GB/s", "MB/s"), ("Gbit/s", "Mbit/s"), ("s", "ms", "us"))
_READABLE = 0.1


def readable(largest: float, unit: str) -> tuple[float, str]:
    """A factor and the unit in which ``largest`` is no small fraction; values beside it take the same."""
    factor, found = 1.0, unit
    ladder = next((units for units in _LADDERS if unit in units), ())
    for smaller in ladder[ladder.index(unit) + 1 :] if ladder else ():
        if not 0 < abs(largest) * factor < _READABLE:
            break
        factor, found = factor * 1000, smaller
    return factor, found


def number(value: float, digits: int = DIGITS) -> str:
    """``digits`` significant digits, thousands grouped; ``—`` for what is not finite.

    Whole numbers keep all their digits: a count is never rounded.
    """
    if not math.isfinite(value):
        return NONE
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return _trimmed(f"{value:,.{max(digits - 1 - exponent, 0)}f}")


def read(text: str) -> float:
    """What a reader takes :func:`number` for."""
    return math.nan if text == NONE else float(text.replace(",", ""))


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _rounded(value: float, digits: int) -> float:
    return read(number(value, digits))


def quantity(value: Any, unit: str, translate: Translate, beside: Iterable[float] = ()) -> str:
    """A measured value of any kind with its unit: number, word, yes or no, list; None is ``—``.

    A number has as many digits as tell it from the numbers ``beside``, which are in the same unit.
    """
    if value is None:
        return NONE
    if isinstance(value, bool):
        return (msg("yes") if value else msg("no")).render(translate)
    if isinstance(value, (list, tuple)):
        return ", ".join(quantity(v, unit, translate) for v in value)
    if not is_number(value):
        return NONE if isinstance(value, float) else phrase(str(value), translate)
    if unit in _LONG and abs(value) >= 1000:
        return format_quantity(value, unit, beside).replace(" ", _NARROW)
    factor, unit = readable(value, unit)
    value = value * factor if factor != 1 else value
    shown = number(value, digits_apart(_rounded, value, [other * factor for other in beside]))
    return f"{shown}{_NARROW}{one_line(_unit(unit))}" if unit else shown


def is_number(value: Any) -> bool:
    """A finite number; True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def ends(limit: Optional[Limit], unit: str) -> tuple[float, ...]:
    """The numbers of a limit in the unit of what is held against it: one, two of a range, none of a word."""
    if limit is None or limit.unit != unit:
        return ()
    values = limit.value if isinstance(limit.value, (list, tuple)) else (limit.value,)
    return tuple(float(v) for v in values if is_number(v))


def measured(f: Finding, translate: Translate) -> str:
    """What was measured for a finding, on the side of its limit where it lies: 617.49 never as 617.5 beside 617.5."""
    return quantity(f.measured, f.unit, translate, ends(f.limit, f.unit))


def aligned(value: float, low: float, high: float, unit: str, beside: Iterable[float] = ()) -> str:
    """``value`` with as many decimals as its :func:`interval` has: 703.0 beside 698.6 – 705.1."""
    if not all(map(math.isfinite, (value, low, high))):
        return NONE
    factor, unit = readable(high, unit)
    others = [other * factor for other in beside]
    value, low, high = value * factor, low * factor, high * factor
    shown = f"{value:,.{max(_places(v, others) for v in (value, low, high))}f}"
    return f"{shown}{_NARROW}{one_line(_unit(unit))}" if unit else shown


def interval(low: float, high: float, unit: str, beside: Iterable[float] = ()) -> str:
    """``508.9 – 515.0 TFLOPS``, both ends with the same number of decimals, told from the numbers ``beside``."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return NONE
    factor, unit = readable(high, unit)
    others = [other * factor for other in beside]
    low, high = low * factor, high * factor
    places = max(_places(low, others), _places(high, others))
    shown = f"{low:,.{places}f} – {high:,.{places}f}"
    return f"{shown}{_NARROW}{one_line(_unit(unit))}" if unit else shown


def _places(value: float, beside: Iterable[float] = ()) -> int:
    text = number(value, digits_apart(_rounded, value, beside))
    mantissa, _, exponent = text.partition("e")
    return max(len(mantissa.partition(".")[2]) - int(exponent or 0), 0)


def _unit(unit: str) -> str:
    return {"C": "°C", "us": "µs"}.get(unit, unit)


def percent(fraction: float, digits: int = 3) -> str:
    """0.2118 → ``21.2 %``."""
    return f"{number(fraction * 100, digits)}{_NARROW}%"


def signed(fraction: float) -> str:
    """0.079 → ``+7.9 %``, −0.212 → ``−21.2 %``."""
    return ("+" if fraction >= 0 else "−") + percent(abs(fraction))


def promise(written: str) -> str:
    """A contract's spelling with the comparison signs of print: ``>= 650`` → ``≥ 650``."""
    return one_line(written).replace(">=", "≥").replace("<=", "≤").replace("==", "=")


def duration(seconds: Optional[float]) -> Text:
    """``1 h 03 min``, ``4 min 10 s``, ``12.3 s``."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return Text(NONE)
    if seconds < 60:
        return msg("{s} s", s=number(seconds, 3))
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return msg("{m} min {s} s", m=minutes, s=rest)
    return msg("{h} h {m} min", h=minutes // 60, m=minutes % 60)


def parsed(stamp: Optional[str]) -> Optional[datetime]:
    """An ISO 8601 time of the result; None if it is none."""
    if not stamp:
        return None
    try:
        return datetime.fromisoformat(re.sub(r"\.\d+", "", stamp).replace("Z", "+00:00"))
    except ValueError:
        return None


def when(stamp: Optional[str], language: str) -> str:
    """``30 Nov 2026, 20:46 UTC`` or ``2026年11月30日 20:46 UTC``; as written if it is no time."""
    time = parsed(stamp)
    if time is None:
        return one_line(stamp) if stamp else NONE
    zone = time.strftime("%Z") or "UTC"
    if language.startswith("zh"):
        return f"{time.year}年{time.month}月{time.day}日 {time:%H:%M} {zone}"
    return f"{time.day} {_MONTHS[time.month - 1]} {time.year}, {time:%H:%M} {zone}"


def day(written: str, language: str) -> str:
    """``2026-11-20`` as ``20 Nov 2026`` or ``2026年11月20日``; as written if it is no date."""
    time = parsed(f"{written}T00:00:00Z" if len(written) == 10 else None)
    if time is None:
        return one_line(written)
    if language.startswith("zh"):
        return f"{time.year}年{time.month}月{time.day}日"
    return f"{time.day} {_MONTHS[time.month - 1]} {time.year}"


def seconds_between(start: Optional[str], end: Optional[str]) -> Optional[float]:
    """Seconds from one time of the result to another; None if either is missing or the clock was set back meanwhile."""
    first, last = parsed(start), parsed(end)
    return (last - first).total_seconds() if first and last and last >= first else None
