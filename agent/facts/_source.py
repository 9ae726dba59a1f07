"""What one source says of one GPU; the names and units of its values stand in :mod:`agent.tools._source`."""

from __future__ import annotations

from agent.tools._source import Fabric, NvLink, Process, Source, first

__all__ = ["Fabric", "NvLink", "Process", "Source", "first"]
