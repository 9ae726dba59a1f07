"""Mistakes that people make in their first contract: each message names the fix."""

from __future__ import annotations

import pytest

from agent import contract as contracts
from agent.checks import grammars

MISTAKES = {
    "a product": ("disk: {path: /data, size: 4×3.84TB}", "it is a product; write what it comes to"),
    "words behind the unit": ("memory: {size: 2TB RAM}", "write it like 2 TB"),
    "words behind the unit, Chinese": ("memory: {size: 2T内存}", "write it like 2 T"),
    "a length, not milliseconds": ("burn: {duration: 10, temperature: 85 C}", "write it like 10 min"),
    "an interval, not milliseconds": ("trial: {days: 3, every: 4, availability: 99 %}", "write it like 4 h"),
    "the only unit there is": ("trial: {days: 3, availability: 99.5}", "write it like 99.5 %"),
    "degrees": ("burn: {temperature: 80}", "write it like 80 C"),
    "a network's rate": ("network: {name: wan, servers: a.example.cn, download: 500}", "write it like 500 Mbit/s"),
    "NVLink's rate": ("gpu: {nvlink: 900}", "write it like 900 GB/s"),
    "what a network has": ("network: {name: wan, bandwidth: 1 Gbit/s}", "network[wan].download, network[wan].upload"),
    "in Chinese": ("显卡: {型号: H100}", "the nearest known key is gpu"),
    "in Chinese, below": ("gpu: {型号: H100, 数量: 8, 显存: 80G}", "gpu.model", "gpu.count", "gpu.memory"),
    "a longer key": ("software: {cuda: 12.4}", "software.cuda_toolkit"),
    "another thing of that name": (
        "disk: {path: /data, count: 4}",
        "known here: checkpoint, ",
        "; elsewhere: gpu.count",
    ),
    "at the wrong place": ("availability: 99.5 %", "trial.availability"),
    "a group of thousands": ("memory: {size: 2,000 GB}", "a comma ends a value here"),
    "a word for a mapping": ("access: container", "{kind: container, root: false}"),
    "a price in words": ("contract: {price: 6万/月}", "{amount: 60000, currency: CNY, per: month}"),
    "one column too far": ("gpu:\n  model: H100\n   count: 8", "indent it like the key above it"),
    "a second colon": ("contract: {id: a}\nping:\n  host: a: 1", "put the value in quotes"),
    "no-break spaces": ("gpu:\n\u00a0\u00a0model: H100", "(U+00A0) cannot indent here: use plain spaces"),
    "ideographic spaces": ("gpu:\n\u3000model: H100", "(U+3000) cannot indent here: use plain spaces"),
    "a version that is not there": ("version: 2\ncpu: {vcpus: 1}", 'expected 1, not "2"'),
}


def said(data: bytes) -> str:
    with pytest.raises(contracts.ContractErrors) as error:
        contracts.loads(data, "contract.yaml", grammars())
    return str(error.value)


@pytest.mark.parametrize(("text", "fixes"), [(t, f) for t, *f in MISTAKES.values()], ids=list(MISTAKES))
def test_the_fix_is_named(text: str, fixes: list[str]) -> None:
    message = said(text.encode())
    assert [fix for fix in fixes if fix not in message] == [], message


@pytest.mark.parametrize(
    ("data", "kind"),
    [(b"PK\x03\x04 word/document.xml", "Office/zip"), (b"\xd0\xcf\x11\xe0\xa1\xb1", "Office"), (b"%PDF-1.7\n", "PDF")],
)
def test_a_file_that_is_no_text_is_called_what_it_is(data: bytes, kind: str) -> None:
    assert f"this is a file of {kind}: save it as plain text" in said(data)


def test_an_indented_paragraph_of_a_text_is_no_fault() -> None:
    """Chinese paragraphs begin with two ideographic spaces."""
    text = "terms:\n  - text: |\n      \u3000\u3000故障 30 分钟响应。\n      \u3000\u3000API: 可用。\ncpu: {vcpus: 1}\n"
    assert (
        contracts.loads(text.encode(), "contract.yaml", grammars()).terms[0]["text"].endswith("\u3000\u3000API: 可用。")
    )
