"""The families of clauses: one module each, named like its key in the contract."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from agent.grammar import Section


def families() -> dict[str, ModuleType]:
    """All modules in this folder by name, sorted; those whose name begins with "_" are helpers."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def grammars() -> dict[str, Section]:
    """``GRAMMAR`` of each family, as :func:`agent.contract.load` wants it."""
    return {name: module.GRAMMAR for name, module in families().items() if hasattr(module, "GRAMMAR")}
