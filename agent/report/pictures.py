"""Every picture for which this run has data; the rest is not drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from agent.model import Run
from agent.report import courses, links
from agent.report.figures import Graph, Matrix, Plot
from agent.report.timelines import timelines
from agent.text import Translate


@dataclass(frozen=True)
class Pictures:
    """``graph`` and ``links`` from nvidia-smi, ``copies`` and ``sweeps`` measured, the rest over time."""

    graph: Optional[Graph] = None
    links: Optional[Matrix] = None
    copies: Optional[Matrix] = None
    sweeps: tuple[Plot, ...] = ()
    timelines: tuple[Plot, ...] = ()
    series: tuple[Plot, ...] = ()

    @property
    def connections(self) -> bool:
        """Whether there is anything about how the parts are connected."""
        return bool(self.graph or self.links or self.copies or self.sweeps)


def pictures(run: Run, folder: Optional[Path], translate: Translate) -> Pictures:
    """Read from the result and, where there is a run folder, from its evidence."""
    topology = links.topology(folder)
    return Pictures(
        graph=links.graph(topology, run, translate) if topology else None,
        links=links.matrix(topology, translate) if topology else None,
        copies=links.copies(run, translate),
        sweeps=courses.sweeps(run, folder, translate),
        timelines=timelines(run, folder, translate),
        series=courses.series(run, translate),
    )
