"""What the page draws, laid out: plain data with places in percent or on the canvas, and each picture in words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tick:
    """``at`` in percent from the left or from the bottom."""

    at: float
    label: str


@dataclass(frozen=True)
class Curve:
    """``d`` is an SVG path on the canvas; ``kind`` a CSS class: one of ours, never a word of the machine."""

    d: str
    kind: str
    label: str = ""


@dataclass(frozen=True)
class Mark:
    """A named moment or level: ``at`` in percent of its axis."""

    at: float
    label: str
    kind: str = "mark"


@dataclass(frozen=True)
class Band:
    """A stretch of a state in a row of bands: percent from the left."""

    at: float
    width: float
    kind: str


@dataclass(frozen=True)
class Row:
    """One subject's bands."""

    label: str
    bands: tuple[Band, ...]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: curves, levels across it (limits), marks along it (steps)."""

    title: str
    y: tuple[Tick, ...]
    curves: tuple[Curve, ...]
    levels: tuple[Mark, ...] = ()
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class Key:
    """One entry of a legend."""

    kind: str
    label: str


@dataclass(frozen=True)
class Table:
    """The same picture as numbers; the first cell of each row is its heading."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Plot:
    """Panels one below the other over a common axis. ``says`` is the picture in words."""

    title: str
    code: str
    says: str
    panels: tuple[Panel, ...]
    x: tuple[Tick, ...]
    x_title: str
    keys: tuple[Key, ...] = ()
    rows: tuple[Row, ...] = ()
    rows_title: str = ""
    table: Table = Table((), ())
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cell:
    """One cell of a matrix: ``heat`` 0 (least) to 6 (most), or a tone word for what is broken."""

    text: str
    heat: str


@dataclass(frozen=True)
class Matrix:
    """Who reaches whom, and how: a table with shaded cells."""

    title: str
    corner: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...] = ()

    @property
    def dense(self) -> bool:
        """More columns than fit at the usual size."""
        return len(self.heads) > 12


@dataclass(frozen=True)
class Box:
    """A box of the graph, in its own units."""

    x: int
    y: int
    w: int
    h: int
    label: str
    under: str
    kind: str


@dataclass(frozen=True)
class Line:
    """A link of the graph: an SVG path with an optional word in its middle."""

    d: str
    kind: str
    label: str = ""
    x: int = 0
    y: int = 0


@dataclass(frozen=True)
class Graph:
    """The machine as a drawing of ``w`` × ``h``."""

    title: str
    says: str
    w: int
    h: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
