"""How each clause's value is written, typed and compared. Pure: text in, :class:`~agent.model.Promise` out.

A kind reads what people type ("≥ 2 GB/s", "不低于 500 Mbit/s", "10 ms 以内", "on", "开", "Gen5 x16") and describes
the same language as JSON Schema. Errors carry what was expected and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, ClassVar, Literal, Optional

from agent.model import Op, Promise
from agent.quantity import (
    DIMENSIONS,
    NUMBER_PATTERN,
    Quantity,
    QuantityError,
    normal,
    parse_quantity,
    unit_pattern,
)
from agent.text import Text, msg

Order = Literal["at_least", "at_most", "equal", "one_of"]
Sign = Literal[">=", "<=", "==", ">", "<"]

AUTO = ("auto", "自动")

# What could hide or reorder text on a terminal or in a report: controls, line separators, bidirectional marks.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


class GrammarError(ValueError):
    """A value its kind cannot read: what was ``expected``, and a ``hint`` about what to write instead."""

    def __init__(self, expected: Text, hint: Optional[Text] = None) -> None:
        super().__init__(f"expected {expected}; {hint}" if hint else f"expected {expected}")
        self.expected = expected
        self.hint = hint


# --- comparisons as people type them; after NFKC, so ＞＝ is already >= -----------------------------------------

_SIGNS: Mapping[str, Sign] = {
    **dict.fromkeys((">=", "> =", "=>", "≥", "⩾", "≧"), ">="),
    **dict.fromkeys(("<=", "< =", "=<", "≤", "⩽", "≦"), "<="),
    **dict.fromkeys(("==", "="), "=="),
    ">": ">",
    "<": "<",
}
_WORDS_BEFORE: Mapping[str, Sign] = {
    **dict.fromkeys(("大于等于", "大于或等于", "不低于", "不小于", "不少于", "至少", "最少", "最低"), ">="),
    **dict.fromkeys(("小于等于", "小于或等于", "不超过", "不高于", "不大于", "不多于", "至多", "最多", "最高"), "<="),
    **dict.fromkeys(("at least", "not less than", "no less than", "minimum", "min"), ">="),
    **dict.fromkeys(("at most", "not more than", "no more than", "up to", "maximum", "max", "within"), "<="),
    **dict.fromkeys(("大于", "高于", "超过", "多于", "more than", "over", "above"), ">"),
    **dict.fromkeys(("小于", "低于", "少于", "less than", "under", "below"), "<"),
    **dict.fromkeys(("等于", "exactly"), "=="),
}
_WORDS_AFTER: Mapping[str, Sign] = {
    **dict.fromkeys(("及以上", "以上", "or more", "起", "+"), ">="),
    **dict.fromkeys(("及以下", "以下", "以内", "之内", "or less", "or fewer"), "<="),
}


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted(words, key=len, reverse=True)


def _alternation(words: Iterable[str]) -> str:
    return "|".join(re.escape(w) for w in _longest_first(words))


_BEFORE = re.compile(
    rf"(?P<sign>{_alternation(_SIGNS)})|(?P<word>{_alternation(_WORDS_BEFORE)})(?![A-Za-z])", re.IGNORECASE
)
_AFTER = re.compile(rf"\s*(?:{_alternation(_WORDS_AFTER)})$", re.IGNORECASE)
_VAGUE = re.compile(r"^(?:~|≈|约|大约|about\b|approx|ca\.)|(?:左右|上下)$", re.IGNORECASE)


def split_sign(text: str) -> tuple[Optional[Sign], str]:
    """``">= 2 GB/s"`` → ``(">=", "2 GB/s")``; no comparison → ``(None, text)``. ``text`` is normalised."""
    match = _BEFORE.match(text)
    if match is not None:
        word = match.group().lower()
        sign = _SIGNS[word] if match.group("sign") else _WORDS_BEFORE[word]
        return sign, text[match.end() :].strip()
    after = _AFTER.search(text)
    if after is not None:
        return _WORDS_AFTER[after.group().strip().lower()], text[: after.start()].strip()
    return None, text


# --- the base ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """How one value is written.

    ``order``: which side of the value keeps the promise, and what a bare value means. ``measured``: a rate that
    a benchmark finds, so that the tolerance applies. ``auto``: "auto" is allowed. ``dimension`` and ``unit``: of
    quantities; ``unit`` is the one of a number without a unit.
    """

    name: str = "text"
    order: Order = "equal"
    measured: bool = False
    auto: bool = False
    dimension: str = ""
    unit: str = ""

    longest: ClassVar[int] = 200  # characters; keeps every pattern's work small

    @property
    def expected(self) -> Text:
        """What to write, as a noun phrase."""
        return msg("a text")

    def parse(self, text: str) -> Promise:
        """The promise that ``text`` makes; GrammarError where it makes none of this kind."""
        written = text.strip()
        if len(written) > self.longest:
            raise GrammarError(self.expected, msg("{n} characters are too many", n=len(written)))
        if _HIDDEN.search(written):
            raise GrammarError(self.expected, msg("it holds a character that cannot be seen"))
        if self.auto and normal(text).lower() in AUTO:
            return Promise("auto", None, self.unit, written)
        if written == "":
            raise GrammarError(self.expected)
        return self._read(written)

    def _read(self, written: str) -> Promise:
        return Promise("==", written, "", written)

    def schema(self) -> dict[str, Any]:
        """JSON Schema (2020-12) of what :meth:`parse` accepts, for YAML scalars of any type."""
        options = list(self._schemas())
        if self.auto:
            options.append({"enum": list(AUTO)})
        body = options[0] if len(options) == 1 else {"anyOf": options}
        return {"description": str(self.expected), **body}

    def _schemas(self) -> Iterable[dict[str, Any]]:
        return [{"type": "string", "pattern": r"\S"}, {"type": "number"}]


# --- quantities --------------------------------------------------------------------------------------------------

_UNIT_PART = r"(?:[^0-9.~–—至到\s-][^0-9~–—至到-]*?)?"
_RANGE = re.compile(
    rf"(?P<low>{NUMBER_PATTERN})\s*(?P<unit>{_UNIT_PART})\s*(?:\.{{2,3}}|~|–|—|-|至|到|to\s)\s*"
    rf"(?P<high>{NUMBER_PATTERN})(?P<last>.*)"
)
_OPS: Mapping[Sign, Op] = {">=": ">=", ">": ">=", "<=": "<=", "<": "<=", "==": "=="}
_KEEPS: Mapping[Order, tuple[Op, tuple[Sign, ...]]] = {
    "at_least": (">=", (">=", ">")),
    "at_most": ("<=", ("<=", "<")),
    "equal": ("==", ("==", ">=", ">")),
    "one_of": ("==", ("==",)),
}


@dataclass(frozen=True)
class QuantityKind(Kind):
    """A number with a unit. ``words`` are accepted instead of one ("default", "unlimited", "all").

    ``also`` are further dimensions ("900 GB/s" or "18 links"); ``whole``: an integer; ``most`` bounds the number;
    ``plain``: one value without a comparison, as settings are. ``such``: the value that messages give as an example,
    where the dimension's own would mislead ("10 ms" for the length of a burn).
    """

    words: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    whole: bool = False
    most: Optional[float] = None
    plain: bool = False
    such: str = ""

    @property
    def example(self) -> str:
        """One value as it may stand in a contract."""
        value = self.such or DIMENSIONS[self.dimension].example
        sign = "" if self.plain else {"at_least": ">= ", "at_most": "<= "}.get(self.order, "")
        return f"{sign}{value}"

    @property
    def expected(self) -> Text:
        title = DIMENSIONS[self.dimension].title
        others = [DIMENSIONS[d].example for d in self.also] + sorted(set(self.words.values()))
        if others:
            return msg("{title} such as {example}, or {others}", title=title, example=self.example, others=others)
        return msg("{title} such as {example}", title=title, example=self.example)

    def _read(self, written: str) -> Promise:
        sign, rest = split_sign(normal(written))
        word = self.words.get(rest.lower())
        if word is not None and sign in (None, "=="):
            return Promise("==", word, "", written)
        if sign is not None and self.plain:
            raise GrammarError(self.expected, msg("this is a setting: one plain value"))
        if _VAGUE.search(rest):
            raise GrammarError(self.expected, msg("an approximate value promises nothing"))
        try:
            quantity = self._quantity(rest)
        except GrammarError:
            match = _RANGE.fullmatch(rest)
            if match is None or self.plain:
                raise
            return self._range(match, sign, written)
        op: Op = "==" if self.plain else self._op(sign, rest)
        if sign == ">" and self.whole:
            quantity = Quantity(quantity.value + 1, quantity.unit)
        if sign == "<" and self.whole:
            quantity = Quantity(quantity.value - 1, quantity.unit)
        self._bounds(quantity)
        return Promise(op, quantity.value, quantity.unit, written)

    def _quantity(self, text: str) -> Quantity:
        errors = []
        for dimension in (self.dimension, *self.also):
            bare = self.unit if self.unit and dimension == self.dimension else None
            try:
                return parse_quantity(text, dimension, bare, self.such if dimension == self.dimension else "")
            except QuantityError as error:
                errors.append(error)
        first = errors[0]
        raise GrammarError(self.expected, _joined(first.message, first.hint))

    def _bounds(self, quantity: Quantity) -> None:
        if self.whole and quantity.value != int(quantity.value):
            raise GrammarError(self.expected, msg("only a whole number can be counted"))
        if self.most is not None and quantity.value > self.most:
            raise GrammarError(self.expected, msg("there is no more than {most}", most=f"{self.most:g}"))
        if self.order != "at_most" and quantity.value <= 0:
            raise GrammarError(self.expected, msg("zero promises nothing"))

    def _op(self, sign: Optional[Sign], rest: str) -> Op:
        default, allowed = _KEEPS[self.order]
        if sign is None:
            return default
        if sign in allowed:
            return _OPS[sign]
        if sign == "==":
            if not self.measured:
                return "=="
            why = msg("a measured value is never exactly equal")
        elif self.order == "at_least":
            why = msg("more is better here, so a limit from above promises nothing")
        elif self.order == "at_most":
            why = msg("less is better here, so a limit from below promises nothing")
        else:
            why = msg("this cannot be limited from above")
        raise GrammarError(self.expected, msg('{why}; write "{fix}"', why=why, fix=_fix(default, rest)))

    def _range(self, match: re.Match[str], sign: Optional[Sign], written: str) -> Promise:
        if sign is not None:
            raise GrammarError(self.expected, msg("a range takes no comparison"))
        unit = match["last"].strip()
        high = self._quantity(match["high"] + unit)
        low = self._quantity(match["low"] + (match["unit"].strip() or unit)).to(high.unit)
        self._bounds(high)
        if self.whole and low.value != int(low.value):
            raise GrammarError(self.expected, msg("only a whole number can be counted"))
        if low.value > high.value:
            raise GrammarError(
                self.expected, msg("the range is upside down: {low} is more than {high}", low=low, high=high)
            )
        return Promise("range", (low.value, high.value), high.unit, written)

    def _schemas(self) -> Iterable[dict[str, Any]]:
        yield {"type": "string", "pattern": rf"^\s*(?:{self._pattern()})\s*$"}
        if self.unit or DIMENSIONS[self.dimension].bare is not None:
            low = {"minimum": 0} if self.order == "at_most" else {"exclusiveMinimum": 0}
            high = {} if self.most is None else {"maximum": self.most}
            yield {"type": "integer" if self.whole else "number", **low, **high}

    def _pattern(self) -> str:
        number = _number_pattern(self.order, self.most, self.whole)
        units = "|".join([unit_pattern(self.dimension, self.unit or None), *(unit_pattern(d) for d in self.also)])
        words = "".join("|" + _any_case(w) for w in _longest_first(self.words))
        if self.plain:
            return rf"{number}\s*(?:{units}){words}"
        before, after = _sign_patterns(self.order, self.measured)
        low = rf"{NUMBER_PATTERN}\s*[^0-9\s]{{0,12}}?\s*(?:[.]{{2,3}}|[-~～–—至到]|to)"
        never_both = rf"(?!(?:{before}|{low}).*(?:{after})\s*$)"
        return rf"{never_both}(?:{before}|{low})?\s*{number}\s*(?:{units})\s*(?:{after})?{words}"


def _joined(message: Text, hint: Optional[Text]) -> Text:
    return msg("{why}; {hint}", why=message, hint=hint) if hint is not None else message


def _fix(op: Op, rest: str) -> str:
    return rest if op == "==" else f"{op} {rest}"


# --- the same language as regular expressions, for the JSON Schema (ECMA 262: no inline flags) -------------------

_WIDE = {">": "[>＞]", "<": "[<＜]", "=": "[=＝]", "+": "[+＋]", " ": r"\s*"}


def _any_case(word: str) -> str:
    """``word`` in capitals or not, with or without its spaces and hyphens."""
    return "".join(_char_pattern(c) for c in word)


def _char_pattern(c: str) -> str:
    if c in " -_":
        return r"[-_\s]*"
    if c.lower() != c.upper():
        return f"[{c.lower()}{c.upper()}]"
    return _WIDE.get(c, re.escape(c))


def _sign_patterns(order: Order, measured: bool) -> tuple[str, str]:
    """What may stand before and behind a value of this order."""
    _, allowed = _KEEPS[order]
    if not measured:
        allowed = (*allowed, "==")
    before = [w for table in (_SIGNS, _WORDS_BEFORE) for w, sign in table.items() if sign in allowed]
    after = [w for w, sign in _WORDS_AFTER.items() if sign in allowed]
    return "|".join(map(_any_case, _longest_first(before))), "|".join(map(_any_case, _longest_first(after)))


_UP_TO: Mapping[float, str] = {
    100: r"(?:[1１][0０]{2}(?:[.．][0０]+)?|[0-9０-９]{1,2}(?:[.．][0-9０-９]+)?)",
    50: r"(?:[5５][0０](?:[.．][0０]+)?|[1-4１-４]?[0-9０-９](?:[.．][0-9０-９]+)?)",
}


_WHOLE = (
    r"(?:[0-9０-９]+(?:[,，_][0-9０-９]{3})*(?:[.．][0０]+)?(?![0-9０-９.．])"
    rf"|{NUMBER_PATTERN}(?=\s*(?:[kKMBbT]|百?万|十?亿)))"
)


def _number_pattern(order: Order, most: Optional[float], whole: bool) -> str:
    number = _WHOLE if whole else NUMBER_PATTERN if most is None else _UP_TO[most]
    not_zero = "" if order == "at_most" else r"(?![0０]+(?:[.．][0０]+)?(?![0-9０-９.．]))"
    return f"{not_zero}{number}"


# --- words -------------------------------------------------------------------------------------------------------


def _fold(text: str) -> str:
    return re.sub(r"(?<=\w)[\s_-]+(?=\w)", "", normal(text)).lower()


@dataclass(frozen=True)
class WordKind(Kind):
    """One of some words. ``values`` maps spellings (any capitals, spaces, hyphens) to what they mean.

    ``ranked``: the words are distances, nearest first, and "<= PXB" means that or nearer.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    ranked: bool = False

    @property
    def expected(self) -> Text:
        if self.name == "flag":
            return msg("on or off")
        words = tuple(str(w) for w in dict.fromkeys(self.values.values()))
        return msg("one of {words}", words=words) if len(words) > 1 else msg("{word}", word=words[0])

    def _read(self, written: str) -> Promise:
        sign, rest = split_sign(normal(written)) if self.ranked else (None, written)
        known = {_fold(w): value for w, value in self.values.items()}
        if _fold(rest) not in known:
            raise GrammarError(self.expected)
        if sign not in (None, "<=", "=="):
            raise GrammarError(self.expected, msg('nearer is better here; write "<= {word}"', word=rest))
        op: Op = "<=" if self.ranked and sign != "==" else "=="
        return Promise(op, known[_fold(rest)], "", written)

    def _schemas(self) -> Iterable[dict[str, Any]]:
        words = "|".join(_any_case(w) for w in _longest_first(self.values))
        before = rf"(?:{'|'.join(map(_any_case, ('<=', '=<', '≤', '不超过', '==', '=')))})?\s*" if self.ranked else ""
        yield {"type": "string", "pattern": rf"^\s*{before}(?:{words})\s*$"}
        if self.name == "flag":
            yield {"type": "boolean"}
        numbers = [int(w) for w in self.values if w.isdecimal()]
        if numbers:
            yield {"enum": numbers}


# --- versions, links, texts --------------------------------------------------------------------------------------

_VERSION_PATTERN = r"[vV]?[0-9]+(?:[.][0-9]+)*(?:[.][xX*]|[-+][0-9A-Za-z.+-]*[0-9A-Za-z])?"
_VERSION = re.compile(_VERSION_PATTERN)
_VERSIONS = re.compile(rf"({_VERSION_PATTERN})\s*(?:\.\.|~|至|到|\s-\s|–|—|\sto\s)\s*({_VERSION_PATTERN})")


@dataclass(frozen=True)
class VersionKind(Kind):
    """A version, kept as text: 3.10 is not 3.1. A bare one means ``order``: at least that, or that series."""

    name: str = "version"

    @property
    def expected(self) -> Text:
        return msg("a version such as {example}", example=">= 550.54" if self.order == "at_least" else "3.10")

    def _read(self, written: str) -> Promise:
        sign, rest = split_sign(normal(written))
        span = _VERSIONS.fullmatch(rest)
        if span is not None and sign is None:
            return Promise("range", (_series(span[1]), _series(span[2])), "", written)
        if not _VERSION.fullmatch(rest):
            raise GrammarError(self.expected)
        if sign in (">", "<"):
            raise GrammarError(self.expected, msg('write "{sign}= {version}"', sign=sign, version=rest))
        default: Op = ">=" if self.order == "at_least" else "=="
        return Promise(_SIGN_OPS[sign] if sign else default, _series(rest), "", written)

    def _schemas(self) -> Iterable[dict[str, Any]]:
        allowed = [w for t in (_SIGNS, _WORDS_BEFORE) for w, sign in t.items() if sign in _SIGN_OPS]
        before = "|".join(map(_any_case, _longest_first(allowed)))
        after = "|".join(map(_any_case, _longest_first(_WORDS_AFTER)))
        span = rf"{_VERSION_PATTERN}\s*(?:[.]{{2}}|[~～至到–—]|\s-\s|\sto\s)\s*{_VERSION_PATTERN}"
        yield {"type": "string", "pattern": rf"^\s*(?:(?:{before})?\s*{_VERSION_PATTERN}\s*(?:{after})?|{span})\s*$"}
        yield {"type": "number", "exclusiveMinimum": 0}


_SIGN_OPS: Mapping[Sign, Op] = {">=": ">=", "<=": "<=", "==": "=="}


def _series(version: str) -> str:
    return re.sub(r"\.[xX*]$", "", version.lstrip("vV"))


_OS_PATTERN = r"[^\s\d><=≥≤＞＜＝][^\d><=≥≤]*[0-9][^><=≥≤]*"


@dataclass(frozen=True)
class OsKind(Kind):
    """A distribution and its release. A bare one is that release with any later point release."""

    name: str = "os_release"

    @property
    def expected(self) -> Text:
        return msg("a distribution and its release such as {example}", example="Ubuntu 22.04")

    def _read(self, written: str) -> Promise:
        sign, rest = split_sign(normal(written))
        if not re.fullmatch(_OS_PATTERN, rest) or sign not in (None, ">=", "=="):
            raise GrammarError(self.expected)
        return Promise(">=" if sign == ">=" else "==", re.sub(r"\s+", " ", rest), "", written)

    def _schemas(self) -> Iterable[dict[str, Any]]:
        before = "|".join(map(_any_case, (">=", "≥", "==", "=", "不低于", "至少", "at least")))
        yield {"type": "string", "pattern": rf"^\s*(?:{before})?\s*{_OS_PATTERN}$"}


@dataclass(frozen=True)
class Link:
    """A PCIe link: generation and width, None where the contract doesn't say."""

    generation: Optional[int]
    width: Optional[int]

    def __str__(self) -> str:
        parts = [f"Gen{self.generation}" if self.generation else "", f"x{self.width}" if self.width else ""]
        return " ".join(p for p in parts if p)


_LINK = re.compile(
    r"(?P<pcie>pci[- ]?e(?:xpress)?)?\s*(?:(?P<word>gen\s*)?(?P<gen>[1-7])(?P<point>\.0)?)?"
    r"\s*(?:[x×*]\s*(?P<width>1|2|4|8|12|16|32))?",
    re.IGNORECASE,
)
_LINK_PATTERN = (
    r"(?:[pP][cC][iI][- ]?[eE](?:[xX][pP][rR][eE][sS][sS])?)?\s*"
    r"(?:(?:[gG][eE][nN])?\s*[1-7](?:[.]0)?\s*[xX×*]\s*(?:1|2|4|8|12|16|32)"
    r"|[gG][eE][nN]\s*[1-7](?:[.]0)?|[1-7][.]0|[xX×*]\s*(?:1|2|4|8|12|16|32))"
)


def parse_link(text: str) -> Optional[Link]:
    """``"Gen5 x16"``, ``"PCIe 5.0 x16"``, ``"x16"``, ``"Gen4"`` → :class:`Link`; None for anything else."""
    match = _LINK.fullmatch(normal(text))
    if match is None:
        return None
    generation, width = match["gen"], match["width"]
    if width is None and not (generation and (match["word"] or match["point"] or match["pcie"])):
        return None
    return Link(int(generation) if generation else None, int(width) if width else None)


@dataclass(frozen=True)
class LinkKind(Kind):
    """A PCIe generation and width; the promise's value is their normal spelling, to be read by parse_link."""

    name: str = "link"
    order: Order = "at_least"

    @property
    def expected(self) -> Text:
        return msg("a PCIe generation and width such as {example}", example="Gen5 x16")

    def _read(self, written: str) -> Promise:
        sign, rest = split_sign(normal(written))
        link = parse_link(rest)
        if link is None:
            raise GrammarError(self.expected)
        if sign not in (None, ">=", "=="):
            raise GrammarError(self.expected, msg('more is better here; write ">= {fix}"', fix=str(link)))
        return Promise("==" if sign == "==" else ">=", str(link), "", written)

    def _schemas(self) -> Iterable[dict[str, Any]]:
        before = "|".join(map(_any_case, (">=", "≥", "==", "=", "不低于", "至少", "at least")))
        yield {"type": "string", "pattern": rf"^\s*(?:{before})?\s*{_LINK_PATTERN}\s*$"}


@dataclass(frozen=True)
class TextKind(Kind):
    """A text of one shape: ``pattern`` (also for the JSON Schema) and ``title``, what it is.

    ``numeric``: a bare YAML number is also such a text (a model called 4090).
    """

    title: Text = field(default_factory=lambda: msg("a text"))
    pattern: str = r"\S[\s\S]*"
    numeric: bool = False

    longest: ClassVar[int] = 4096

    @property
    def expected(self) -> Text:
        return self.title

    def _read(self, written: str) -> Promise:
        if re.fullmatch(self.pattern, written) is None:
            raise GrammarError(self.expected)
        return Promise("==", written, "", written)

    def _schemas(self) -> Iterable[dict[str, Any]]:
        yield {"type": "string", "pattern": rf"^\s*(?:{self.pattern})\s*$"}
        if self.numeric:
            yield {"type": "number", "minimum": 0}


@dataclass(frozen=True)
class ModelKind(TextKind):
    """The name of a product; spaces and full-width characters are made plain, the catalogue does the rest."""

    name: str = "model_name"
    order: Order = "one_of"

    def _read(self, written: str) -> Promise:
        value = re.sub(r"\s+", " ", normal(written))
        return Promise("==", super()._read(value).value, "", written)


@dataclass(frozen=True)
class DateKind(TextKind):
    """A calendar day; the value is ISO 8601."""

    def _read(self, written: str) -> Promise:
        match = re.fullmatch(self.pattern, normal(written))
        try:
            if match is None:
                raise GrammarError(self.expected)
            year, month, day = (int(n) for n in re.findall(r"\d+", normal(written)))
            return Promise("==", date(year, month, day).isoformat(), "", written)
        except ValueError as error:
            raise GrammarError(self.expected, msg("there is no such day")) from error


@dataclass(frozen=True)
class ListKind(Kind):
    """One or several of ``item``; the value is a tuple."""

    name: str = "list"
    item: Kind = field(default_factory=Kind)

    @property
    def expected(self) -> Text:
        return msg("a list, each {item}", item=self.item.expected)

    def _read(self, written: str) -> Promise:
        return self.parse_items([written])

    def parse_items(self, texts: Sequence[str]) -> Promise:
        """The promise of several values; GrammarError at the first that is none."""
        values = tuple(self.item.parse(t).value for t in texts)
        return Promise("one_of", values, "", ", ".join(t.strip() for t in texts))

    def _schemas(self) -> Iterable[dict[str, Any]]:
        item = self.item.schema()
        return [item, {"type": "array", "items": item, "minItems": 1}]


# --- what the families are made of -------------------------------------------------------------------------------


def _quantity(dimension: str, order: Order, measured: bool = False, auto: bool = False, **more: Any) -> QuantityKind:
    words = {w.lower(): value for w, value in more.pop("words", {}).items()}
    return QuantityKind(more.pop("name", dimension), order, measured, auto, dimension, words=words, **more)


def rate(order: Order = "at_least", measured: bool = True, auto: bool = False, **more: Any) -> QuantityKind:
    """Bytes or bits per second."""
    return _quantity("rate", order, measured, auto, **more)


def flops(auto: bool = True) -> QuantityKind:
    """A measured rate of arithmetic."""
    return _quantity("flops", "at_least", True, auto)


def per_second(measured: bool = True) -> QuantityKind:
    """Operations, files or tokens per second."""
    return _quantity("per_second", "at_least", measured)


def size(order: Order = "at_least", **more: Any) -> QuantityKind:
    """A size in bytes: a capacity, so without tolerance."""
    return _quantity("size", order, **more)


def count(order: Order = "equal", **more: Any) -> QuantityKind:
    """A whole number of things."""
    return _quantity("count", order, whole=True, **more)


def ratio(order: Order = "at_least") -> QuantityKind:
    """A number without a unit."""
    return _quantity("count", order, name="ratio")


def duration(order: Order = "at_most", unit: str = "", **more: Any) -> QuantityKind:
    """A time; ``unit`` is the one of a bare number, none by default."""
    return _quantity("time", order, name="duration", unit=unit, **more)


def percent(order: Order = "at_most", most: float = 100, **more: Any) -> QuantityKind:
    """A share of a whole, never with tolerance."""
    such = "95 %" if order == "at_least" else ""
    return _quantity("percent", order, most=most, **{"such": such, **more})


def temperature() -> QuantityKind:
    """Degrees Celsius, at most."""
    return _quantity("temperature", "at_most")


def power(order: Order = "at_least", **more: Any) -> QuantityKind:
    """Watts."""
    return _quantity("power", order, **more)


def version(order: Order = "at_least") -> VersionKind:
    """``at_least``: a bare version or a later one; ``equal``: that series (12.4 is kept by 12.4.1)."""
    return VersionKind(order=order)


def os_release() -> OsKind:
    """A distribution with its release."""
    return OsKind(order="at_least")


def flag() -> WordKind:
    """True or false, as YAML 1.1, English and Chinese say it."""
    yes = ("on", "true", "yes", "enabled", "enable", "是", "开", "开启", "打开", "启用", "有", "支持")
    no = ("off", "false", "no", "disabled", "disable", "否", "关", "关闭", "禁用", "无", "不支持")
    return WordKind("flag", values={**dict.fromkeys(yes, True), **dict.fromkeys(no, False)})


def one_of(*words: str, aliases: Optional[Mapping[str, str]] = None, order: Order = "equal") -> WordKind:
    """One of ``words``; ``aliases`` maps further spellings to them."""
    return WordKind("mode", order, values={**{w: w for w in words}, **(aliases or {})})


def distance(*extra: str) -> WordKind:
    """How far two devices are apart, in nvidia-smi's words: that or nearer. ``extra`` are nearer still."""
    words = (*extra, "PIX", "PXB", "PHB", "NODE", "SYS")
    return WordKind("distance", "at_most", values={w: w for w in words}, ranked=True)


def link() -> LinkKind:
    """PCIe generation and width."""
    return LinkKind()


def raid() -> WordKind:
    """A RAID level as text, "none" for none; RAID 10 also keeps a promise of RAID 1."""
    levels = {s: n for n in ("0", "1", "5", "6", "10") for s in (n, f"raid {n}")}
    levels.update({"1+0": "10", "raid 1+0": "10", "none": "none", "无": "none"})
    return WordKind("raid", "one_of", values=levels)


def model_name() -> ModelKind:
    """A product name or a catalogue id."""
    return ModelKind(title=msg("a product name"), pattern=r"[^\s<>＜＞=＝≥≤-].*", numeric=True)


def text(title: Optional[Text] = None, pattern: str = r"\S[\s\S]*", numeric: bool = False) -> TextKind:
    """A text; ``pattern`` must match the whole of it."""
    return TextKind(title=title or msg("a text"), pattern=pattern, numeric=numeric)


def label() -> TextKind:
    """A name or number of the user's own."""
    return text(msg("a name"), numeric=True)


# A leading "-" would be an option to the tools that get these as arguments.
_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s/:@\[\]\-][^\s/:@\[\]]{0,252})"
_PORT = r"(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})"
_URL = r"[A-Za-z][A-Za-z0-9+.-]{0,31}://\S+"


def host() -> TextKind:
    """A host name or address."""
    return text(msg("a host name or address"), rf"(?:{_HOST}|[0-9A-Fa-f]{{0,4}}(?::[0-9A-Fa-f.]{{0,15}}){{2,7}})")


def server() -> TextKind:
    """A host with an optional port."""
    return text(msg("a server such as {example}", example="203.0.113.9:5201"), rf"{_HOST}(?::{_PORT})?")


def url() -> TextKind:
    """An address with its scheme."""
    return text(msg("an address such as {example}", example="https://example.cn/file"), _URL)


def endpoint() -> TextKind:
    """A URL, or a host with an optional port."""
    examples = ("https://mirror.example.cn/simple", "registry.example.cn:443")
    return text(msg("an address such as {a} or {b}", a=examples[0], b=examples[1]), rf"(?:{_URL}|{_HOST}(?::{_PORT})?)")


def interface() -> TextKind:
    """The name of a network interface."""
    return text(msg("a network interface such as {example}", example="eth1"), r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,31}")


def day() -> DateKind:
    """A calendar day."""
    shape = r"[0-9]{4}(?:-[0-9]{1,2}-[0-9]{1,2}|/[0-9]{1,2}/[0-9]{1,2}|年[0-9]{1,2}月[0-9]{1,2}日)"
    return DateKind("day", title=msg("a date such as {example}", example="2026-11-20"), pattern=shape)


def hours_of_day() -> TextKind:
    """A stretch of the day; it may cross midnight."""
    time = r"(?:[01]?[0-9]|2[0-3])[:：][0-5][0-9]"
    title = msg("hours of the day such as {example}", example="19:00-23:00")
    return text(title, rf"{time}\s*[-~–—至到]\s*(?:{time}|24[:：]00)")


def list_of(item: Kind) -> ListKind:
    """One or several values."""
    return ListKind(item=item)


def plain(kind: Kind) -> Kind:
    """``kind`` as a setting: one value, no comparison, no range."""
    if isinstance(kind, QuantityKind):
        return replace(kind, plain=True)
    return replace(kind, item=plain(kind.item)) if isinstance(kind, ListKind) else kind


@dataclass(frozen=True)
class Section:
    """The grammar of one family, that is one key at the top of the contract.

    ``many``: the field that names an entry where the family is a list of them (a mapping is a list of one).
    ``bare``: the clause that the family's own value is (``memory_bandwidth: 2.6 TB/s``). ``each``: the family is a
    list of values of ``bare``, each a clause of its own (``reach``). ``advisory``: clauses that don't decide unless
    the contract says so. ``quiet``: settings alone are enough, no clause is demanded (``trial``). A dot in a clause
    or setting is a nested mapping (``allreduce.busbw``).
    """

    clauses: Mapping[str, Kind]
    settings: Mapping[str, Kind] = field(default_factory=dict)
    many: Optional[str] = None
    bare: Optional[str] = None
    each: bool = False
    advisory: frozenset[str] = frozenset()
    quiet: bool = False
