"""The ``gpu`` clauses: identity, state and condition of the cards."""

from __future__ import annotations

from agent.grammar import Section, count, flag, link, model_name, one_of, power, rate, size, version

GRAMMAR = Section(
    clauses={
        "model": model_name(),
        "count": count(),
        "memory": size(),
        "driver": version(),
        "cuda": version(),
        "ecc": flag(),
        "mig": flag(),
        "whole_card": flag(),
        "power_limit": power(words={"default": "default", "默认": "default"}),
        "clocks": one_of("unlocked", aliases={"未锁": "unlocked", "不锁频": "unlocked"}),
        "pcie": link(),
        "nvlink": rate(measured=False, also=("links",), words={"none": "none", "无": "none"}),
        "p2p": flag(),
        "condition": one_of("new", aliases={"全新": "new"}),
        "xid": one_of("none", aliases={"无": "none", "0": "none"}),
    },
)
