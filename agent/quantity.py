"""A number with its unit: "80 GB", "3.35 TB/s", "100 Gbit/s", "10 ms", "5 %", "300k".

The unit is kept as it was written (in its canonical spelling); unlike dimensions are never compared. Units are
looked up exactly, in capitals as they stand in the tables below: an ``mb/s`` that could be bits or bytes is an
error that offers both, never a guess.
"""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Optional

from agent.text import Text, msg

_LARGEST = 1e30  # beyond any real promise; keeps conversions finite

# ASCII and full-width digits alike, so that the same pattern serves the JSON Schema.
_DIGIT = "[0-9０-９]"
NUMBER_PATTERN = rf"{_DIGIT}+(?:[,，_]{_DIGIT}{{3}})*(?:[.．]{_DIGIT}+)?(?:[eE][+-]?[0-9]{{1,3}})?"
_QUANTITY = re.compile(rf"({NUMBER_PATTERN})\s*(.*)", re.DOTALL)
_TIMES_MORE = re.compile(r"[x×*]\d")  # the rest of "4×3.84TB"
_DECIMAL_COMMA = re.compile(r"[0-9]+,[0-9]{1,2}(?![0-9])")


class QuantityError(ValueError):
    """Not a quantity of the wanted dimension: ``message`` says why, ``hint`` what to write instead."""

    def __init__(self, message: Text, hint: Optional[Text] = None) -> None:
        super().__init__(f"{message}; {hint}" if hint else str(message))
        self.message = message
        self.hint = hint


@dataclass(frozen=True)
class Dimension:
    """One kind of number.

    ``units`` maps each unit to its factor in ``unit``, the canonical one. ``spellings`` maps what may be typed to
    ``(multiplier, unit)``: the "k" of "300k" operations is ``(1000, "/s")``. ``bare`` is the unit of a number
    without one, None where a unit must be written. ``doubtful`` maps what could mean two things to what to offer.
    """

    name: str
    title: Text
    unit: str
    units: Mapping[str, float]
    spellings: Mapping[str, tuple[float, str]]
    example: str
    bare: Optional[str] = None
    doubtful: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Quantity:
    """``value`` in ``unit``; ordered only within one dimension."""

    value: float
    unit: str

    def to(self, unit: str) -> Quantity:
        """The same quantity in another unit of its dimension; QuantityError otherwise."""
        return Quantity(convert(self.value, self.unit, unit), unit)

    def __str__(self) -> str:
        return format_quantity(self.value, self.unit)


def normal(text: str) -> str:
    """Full-width digits, signs and spaces as ASCII (NFKC), the typographic minus as "-", ends stripped."""
    return unicodedata.normalize("NFKC", text).replace("\u2212", "-").strip()


def _sizes() -> dict[str, tuple[float, str]]:
    table = dict.fromkeys(("B", "byte", "bytes", "Byte", "Bytes", "字节"), (1.0, "B"))
    for prefix in "kMGTP":
        unit, binary = f"{prefix}B", f"{prefix.upper()}iB"
        upper, lower = prefix.upper(), prefix.lower()
        for s in (unit, f"{upper}B", f"{lower}b", upper, lower, f"{upper}Byte", f"{upper}Bytes"):
            table[s] = (1.0, unit)
        for s in (binary, binary.lower(), f"{upper}i", f"{lower}i"):
            table[s] = (1.0, binary)
    return table


_SIZE_FACTORS = {
    "B": 1.0,
    **{f"{p}B": 1000.0**n for n, p in enumerate("kMGTP", 1)},
    **{f"{p}iB": 1024.0**n for n, p in enumerate("KMGTP", 1)},
}
_BITS = {"bit/s": 0.125, **{f"{p}bit/s": 0.125 * 1000.0**n for n, p in enumerate("kMGT", 1)}}


def _rates() -> dict[str, tuple[float, str]]:
    table = dict.fromkeys(("B/s", "Bytes/s", "bytes/s", "字节/s"), (1.0, "B/s"))
    for unit in _SIZE_FACTORS:
        spellings = [unit, unit.replace("k", "K"), f"{unit[:-1]}Byte", f"{unit[:-1]}Bytes"]
        table.update({f"{s}/s": (1.0, f"{unit}/s") for s in spellings})
        table[f"{unit}ps"] = table[f"{unit.replace('k', 'K')}ps"] = (1.0, f"{unit}/s")
    for unit in _BITS:
        prefix = unit[: -len("bit/s")]
        for p in (prefix, prefix.upper(), prefix.lower()):
            table.update({f"{p}{s}": (1.0, unit) for s in ("bit/s", "bits/s", "bps", "bitps", "比特/s")})
    table.update({"Mb/s": (1.0, "Mbit/s"), "Gb/s": (1.0, "Gbit/s"), "Tb/s": (1.0, "Tbit/s")})
    return table


def _doubtful_rates() -> dict[str, str]:
    table = {}
    for prefix in "kMGT":
        offer = f"{prefix}bit/s or {prefix}B/s"
        upper, lower = prefix.upper(), prefix.lower()
        for s in (upper, lower, f"{upper}/s", f"{lower}/s", f"{lower}b/s", f"{upper}BPS"):
            table[s] = offer
        for s in (f"{upper}b", f"{lower}b", f"{upper}bit", f"{lower}bit"):
            table[s] = f"{prefix}bit/s or {prefix}B/s"
    table.update({"兆": "Mbit/s or MB/s", "兆/s": "Mbit/s or MB/s", "Kb/s": "kbit/s or kB/s"})
    table["b/s"] = "bit/s or B/s"
    return table


_THOUSANDS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "万": 1e4, "百万": 1e6}
_NUMBERS = {**_THOUSANDS, "B": 1e9, "b": 1e9, "T": 1e12, "亿": 1e8, "万亿": 1e12, "十亿": 1e9}
_THINGS = (
    *("", "x", "×", "倍", "个", "块", "张", "卡", "颗", "核", "路", "台", "片", "次", "线程", "节点"),
    *("GPU", "GPUs", "card", "cards", "core", "cores", "vCPU", "vCPUs", "socket", "sockets", "node", "nodes"),
    *("thread", "threads", "device", "devices", "parameter", "parameters", "token", "tokens", "files"),
)
_PER_SECOND = {
    "/s": "/s", "IOPS": "IOPS", "iops": "IOPS", "tokens/s": "tokens/s", "token/s": "tokens/s", "tok/s": "tokens/s",
    "files/s": "files/s", "file/s": "files/s", "个/s": "/s", "次/s": "/s", "文件/s": "files/s", "": "/s",
}  # fmt: skip
_TIMES = {
    "ns": (1e-9, ("ns", "纳秒")),
    "us": (1e-6, ("us", "μs", "µs", "usec", "微秒")),
    "ms": (1e-3, ("ms", "msec", "毫秒")),
    "s": (1.0, ("s", "S", "sec", "secs", "second", "seconds", "秒", "秒钟")),
    "min": (60.0, ("min", "mins", "minute", "minutes", "分", "分钟")),
    "h": (3600.0, ("h", "H", "hr", "hrs", "hour", "hours", "小时", "时", "个小时")),
    "d": (86400.0, ("d", "day", "days", "天", "日")),
    "week": (604800.0, ("week", "weeks", "周", "星期")),
}
_FLOPS = {f"{p}FLOPS": 1000.0**n for n, p in enumerate(("", "k", "M", "G", "T", "P"))}
_OPS = {f"{p}OPS": 1000.0**n for n, p in enumerate(("G", "T", "P"), 3)}


def _flops() -> dict[str, tuple[float, str]]:
    table = {unit: (1.0, unit) for unit in _OPS}
    for unit in _FLOPS:
        p = unit[: -len("FLOPS")]
        for s in (f"{p}FLOPS", f"{p}FLOPs", f"{p}Flops", f"{p}flops", f"{p.lower()}flops"):
            table[s] = (1.0, unit)
        table.update({f"{p}{s}": (1.0, unit) for s in ("FLOP/s", "Flop/s", "flop/s", "FLOPS/s", "FLOPs/s")})
    return table


def _table(*dimensions: Dimension) -> dict[str, Dimension]:
    return {d.name: d for d in dimensions}


DIMENSIONS: Mapping[str, Dimension] = _table(
    Dimension(
        "size",
        msg("a size"),
        "B",
        _SIZE_FACTORS,
        _sizes(),
        "80 GB",
        doubtful={f"{p}{b}": f"{p}B" for p in "kKMGTP" for b in ("b", "bit") if f"{p}{b}" != "kb"},
    ),
    Dimension(
        "rate",
        msg("a rate"),
        "B/s",
        {**{f"{u}/s": f for u, f in _SIZE_FACTORS.items()}, **_BITS},
        _rates(),
        "2 GB/s",
        doubtful=_doubtful_rates(),
    ),
    Dimension(
        "flops",
        msg("a rate of arithmetic"),
        "FLOPS",
        {**_FLOPS, **_OPS},
        _flops(),
        "650 TFLOPS",
        doubtful={"T": "TFLOPS", "P": "PFLOPS", "G": "GFLOPS"},
    ),
    Dimension(
        "per_second",
        msg("a number per second"),
        "/s",
        {"/s": 1.0, "IOPS": 1.0, "tokens/s": 1.0, "files/s": 1.0},
        {m + s: (f, unit) for m, f in _THOUSANDS.items() for s, unit in _PER_SECOND.items()},
        "300k",
        bare="/s",
    ),
    Dimension(
        "time",
        msg("a time"),
        "s",
        {unit: factor for unit, (factor, _) in _TIMES.items()},
        {s: (1.0, unit) for unit, (_, spellings) in _TIMES.items() for s in spellings},
        "10 ms",
        doubtful={"m": "min or ms", "M": "min"},
    ),
    Dimension(
        "percent",
        msg("a percentage"),
        "%",
        {"%": 1.0},
        {"%": (1.0, "%"), "％": (1.0, "%"), "percent": (1.0, "%"), "pct": (1.0, "%")},
        "5 %",
    ),
    Dimension(
        "temperature",
        msg("a temperature"),
        "C",
        {"C": 1.0},
        dict.fromkeys(("C", "c", "°C", "°c", "℃", "度", "摄氏度", "degC", "Celsius", "celsius"), (1.0, "C")),
        "85 C",
        doubtful={"F": "C", "°F": "C", "K": "C", "°": "C"},
    ),
    Dimension(
        "power",
        msg("a power"),
        "W",
        {"W": 1.0, "kW": 1000.0},
        {
            **dict.fromkeys(("W", "w", "watt", "watts", "Watt", "Watts", "瓦"), (1.0, "W")),
            **dict.fromkeys(("kW", "KW", "kw", "千瓦"), (1.0, "kW")),
        },
        "700 W",
    ),
    Dimension(
        "count",
        msg("a number"),
        "",
        {"": 1.0},
        {m + s: (f, "") for m, f in _NUMBERS.items() for s in _THINGS},
        "8",
        bare="",
    ),
    Dimension(
        "links",
        msg("a number of links"),
        "links",
        {"links": 1.0},
        dict.fromkeys(("links", "link", "NVLinks", "条", "条链路"), (1.0, "links")),
        "18 links",
    ),
)

_UNITS = {unit: (d.name, factor) for d in DIMENSIONS.values() for unit, factor in d.units.items()}


def unit_key(text: str) -> str:
    """A unit as it stands in the tables: no inner spaces, "per second" as "/s"."""
    text = re.sub(r"\s+", "", text)
    if text.startswith("每秒"):
        text = text[len("每秒") :] + "/s"
    return re.sub(r"(?:/(?:seconds?|sec|S|秒)|persecond|每秒)$", "/s", text)


def parse_quantity(text: str, dimension: str, bare: Optional[str] = None, example: str = "") -> Quantity:
    """Read ``text`` as a number of ``dimension``; ``bare`` replaces the dimension's unit of a naked number.

    ``example``: what an error offers in the place of the dimension's own.

    Raises QuantityError: no number, a wrong or doubtful unit, another dimension, or not finite.
    """
    wanted = DIMENSIONS[dimension]
    text = normal(text)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise QuantityError(msg("it does not begin with a number"))
    if _DECIMAL_COMMA.match(text):
        raise QuantityError(msg("a comma is not a decimal point"), msg("write the number with a point"))
    value = float(match.group(1).replace(",", "").replace("_", ""))
    unit = unit_key(match.group(2))
    default = wanted.bare if bare is None else bare
    if unit == "" and default is not None:
        return _finite(value, default)
    if unit in wanted.spellings and unit != "":
        factor, canonical = wanted.spellings[unit]
        return _finite(value * factor, canonical)
    raise _wrong_unit(match.group(1), unit, wanted, example or wanted.example)


# Dimensions whose spellings are a multiplier and a thing; patterns are shorter in these two parts.
_PARTS: Mapping[str, tuple[Iterable[str], Iterable[str]]] = {
    "count": (_NUMBERS, _THINGS),
    "per_second": (_THOUSANDS, _PER_SECOND),
}
_PER = r"(?:/\s*(?:seconds?|sec|s|S|秒)|每秒)"


def unit_pattern(dimension: str, bare: Optional[str] = None) -> str:
    """The units of ``dimension`` as a regular expression (ECMA 262 and Python alike), for the JSON Schema."""
    wanted = DIMENSIONS[dimension]
    if dimension in _PARTS:
        multipliers, things = (_any_of(words) for words in _PARTS[dimension])
        return rf"(?:{multipliers})?\s*(?:{things})?"
    timed = {s[: -len("/s")] for s in wanted.spellings if s.endswith("/s")}
    plain = [s for s in wanted.spellings if s and not s.endswith("/s")]
    options = ([rf"(?:{_any_of(timed)})\s*{_PER}"] if timed else []) + [_any_of(plain)]
    return f"(?:{'|'.join(options)})" + ("?" if bare is not None or wanted.bare is not None else "")


def _any_of(words: Iterable[str]) -> str:
    longest_first = sorted((w for w in words if w), key=lambda w: (-len(w), w))
    return "|".join(_PER if w == "/s" else re.escape(w).replace("/s", _PER) for w in longest_first)


def _finite(value: float, unit: str) -> Quantity:
    if not math.isfinite(value) or value > _LARGEST:
        raise QuantityError(msg("the number is too large"))
    return Quantity(value, unit)


def _wrong_unit(number: str, unit: str, wanted: Dimension, example: str) -> QuantityError:
    """Why ``unit`` will not do, and the nearest thing that would."""
    if unit == "":
        value = float(number.replace(",", "").replace("_", ""))
        if wanted.name == "percent" and 0 < value < 1:
            return QuantityError(
                msg("it has no unit"), msg("write {offers}", offers=_or((f"{value:g} %", f"{100 * value:g} %")))
            )
        only = f"{number} {wanted.unit}" if len(wanted.units) == 1 else example
        return QuantityError(msg("it has no unit"), msg("write it like {example}", example=only))
    if _TIMES_MORE.match(unit):
        return QuantityError(
            msg("it is a product"), msg("write what it comes to (a RAID leaves less), like {example}", example=example)
        )
    if unit in wanted.doubtful:
        offers = [f"{number} {offer}" for offer in wanted.doubtful[unit].split(" or ")]
        return QuantityError(msg("{unit} is not clear here", unit=unit), msg("write {offers}", offers=_or(offers)))
    for other in DIMENSIONS.values():
        if unit in other.spellings and other is not wanted and other.name != "count":
            return QuantityError(
                msg("{unit} is {other}, not {wanted}", unit=unit, other=other.title, wanted=wanted.title),
                msg("write it like {example}", example=_offer(number, unit, wanted)),
            )
    more = next((unit[:n] for n in range(len(unit) - 1, 0, -1) if unit[:n] in wanted.spellings), None)
    return QuantityError(
        msg("{unit} is not a unit of {wanted}", unit=shown(unit), wanted=wanted.title),
        msg("write it like {example}", example=f"{number} {more}" if more else example),  # "2 TB RAM" is 2 TB
    )


def _offer(number: str, unit: str, wanted: Dimension) -> str:
    """``80 GB`` for a rate is offered as ``80 GB/s``, ``80 GB/s`` for a size as ``80 GB``."""
    for changed in (f"{unit}/s", unit[:-2] if unit.endswith("/s") else unit):
        if changed in wanted.spellings:
            return f"{number} {wanted.spellings[changed][1]}"
    return wanted.example


def _or(offers: Iterable[str]) -> Text:
    first, *rest = offers
    return msg("{a} or {b}", a=first, b=rest[0]) if rest else msg("{a}", a=first)


def shown(text: str, longest: int = 60) -> str:
    """``text`` made safe for a terminal line: unprintable characters escaped, long text cut."""
    cut = text if len(text) <= longest else text[:longest] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def dimension_of(unit: str) -> str:
    """The name of the dimension that a canonical unit belongs to; QuantityError for an unknown unit."""
    if unit not in _UNITS:
        raise QuantityError(msg("{unit} is not a unit", unit=shown(unit)))
    return _UNITS[unit][0]


def convert(value: float, from_unit: str, to_unit: str) -> float:
    """``value`` in another unit of the same dimension (bits and bytes per second are one: 1 B/s = 8 bit/s).

    Raises QuantityError for unlike dimensions or unknown units.
    """
    source, target = dimension_of(from_unit), dimension_of(to_unit)
    if source != target:
        raise QuantityError(
            msg(
                "{a} is {one}, {b} is {other}: they cannot be compared",
                a=from_unit,
                b=to_unit,
                one=DIMENSIONS[source].title,
                other=DIMENSIONS[target].title,
            )
        )
    if from_unit == to_unit:
        return value
    return value * _UNITS[from_unit][1] / _UNITS[to_unit][1]


def compare(a: Quantity, b: Quantity) -> int:
    """-1, 0 or 1 as ``a`` is less than, equal to or more than ``b``; QuantityError for unlike dimensions."""
    other = convert(b.value, b.unit, a.unit)
    return (a.value > other) - (a.value < other)


# Units that a number is shown in, smallest first; a unit stays in its family (GiB never becomes GB).
_FAMILIES = (
    ("B", "kB", "MB", "GB", "TB", "PB"),
    ("KiB", "MiB", "GiB", "TiB", "PiB"),
    ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"),
    ("KiB/s", "MiB/s", "GiB/s", "TiB/s", "PiB/s"),
    ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"),
    ("FLOPS", "kFLOPS", "MFLOPS", "GFLOPS", "TFLOPS", "PFLOPS"),
    ("GOPS", "TOPS", "POPS"),
    ("ns", "us", "ms", "s", "min", "h", "d"),
    ("W", "kW"),
)


DIGITS = 4  # significant ones that a number is shown with, where nothing asks for more


def format_quantity(value: float, unit: str, beside: Iterable[float] = (), least: int = DIGITS) -> str:
    """Readable, with four significant digits (``least``): ``3.35 TB/s``, ``512.3 TFLOPS``, ``10 min``, ``5 %``, ``8``.

    With more digits where four would not tell it from the numbers ``beside``, which are in the same unit: 617.49 GB/s
    that had to be 617.5 GB/s is not written 617.5 GB/s.
    """
    shown = _best_unit(value, unit)
    factor = convert(1.0, unit, shown) if shown != unit else 1.0
    scaled = convert(value, unit, shown) if shown != unit else value
    others = [other * factor for other in beside]
    digits = digits_apart(lambda number, n: float(_digits(number, n)), scaled, others, least)
    return f"{_digits(scaled, digits)} {shown}".rstrip()


def _best_unit(value: float, unit: str) -> str:
    family = next((f for f in _FAMILIES if unit in f), None)
    if family is None or not math.isfinite(value) or value == 0:
        return unit
    best = family[0]
    for candidate in family:
        # "100 s" reads better than "1.667 min": the larger units of time begin at two
        least = 2.0 if candidate in ("min", "h", "d") else 0.99995
        if abs(convert(value, unit, candidate)) >= least:
            best = candidate
    return best


_MOST_DIGITS = 17  # a double has no more
SAME = 1e-12  # numbers that differ by less, as a share, are one number that was calculated in two ways


def digits_apart(
    rounded: Callable[[float, int], float], value: float, beside: Iterable[float], least: int = DIGITS
) -> int:
    """How many significant digits show on which side of each number ``beside`` the value lies.

    ``rounded(number, digits)`` is what a reader reads. The error of rounding stays below half of each distance, so
    that two numbers that are rounded by this rule against each other are never shown equal or the other way round; a
    value that lies on one of them is shown whole.
    """
    others = [other for other in beside if math.isfinite(value) and math.isfinite(other)]
    error = min((_room(value, other) for other in others), default=math.inf)
    enough = (n for n in range(least, _MOST_DIGITS) if abs(rounded(value, n) - value) < error)
    return next(enough, _MOST_DIGITS) if others else least


def _room(value: float, other: float) -> float:
    same = math.isclose(value, other, rel_tol=SAME)
    return SAME * abs(value) + sys.float_info.min if same else abs(value - other) / 2


def _digits(value: float, digits: int = DIGITS) -> str:
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 10**digits:
        return str(round(value))
    return format(Decimal(f"{value:.{digits}g}"), "f")
