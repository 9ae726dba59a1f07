"""Ten objections, each answered from the run's own data; where there are none, that is said instead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent import resources
from agent.model import Limit, Origin, Run, RunNumber
from agent.report.answers import answers
from agent.text import translator
from tests.report.evidence import CONTRACT_SHA256
from tests.report.samples import sample_run

KEYS = ("contract", "picked", "own-load", "uplink", "software", "spread", "warm", "lanes", "tool", "edited")


def said(run: Run, digest: str = "d" * 64, language: str = "en") -> dict[str, str]:
    found = answers(run, digest, translator(language, resources.locale_dir()))
    return {a.key: " ".join(a.sentences) for a in found}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("contract", ("17 of the 17", "Annex A 3.2", "5\u202f%", CONTRACT_SHA256)),
        ("picked", ("run 3 of 4", "18 with 103 blocks", "1 of 16 broken rates")),
        ("own-load", ("0.4 % of the CPU", "1.2 MB/s", "disturbed them: 1")),
        ("uplink", ("jinan.example.cn", "other 16 broken")),
        ("software", ("torch 2.6.0+cu124", "2 of 2 attempts", "512.5", "7 other GPUs", "703")),
        ("spread", ("509.8 – 513.7", "617.5", "701.2 – 705.2", "13 others")),
        ("warm", ("12 of 12 blocks", "1,290 MHz", "61 °C", "452", "power limit reached 97")),
        ("lanes", ("8 of 8 links",)),
        ("tool", ("dcgmproftester12", "nvbandwidth", "--filename=/data/accept.fio", "mtr -rwbc 100 jinan.example.cn")),
        ("edited", ("d" * 64, "accept judge contract.yaml 20261130T120411Z-gpu-node-17", "accept seal")),
    ],
)
def test_each_objection_has_the_data_of_this_run(key: str, words: tuple[str, ...]) -> None:
    found = said(sample_run("rejected"))
    assert tuple(found) == KEYS
    for word in words:
        assert word in found[key]


def test_in_chinese() -> None:
    found = said(sample_run("rejected"), language="zh")
    assert "第 3 次运行，共 4 次" in found["picked"]
    assert all(any("\u4e00" <= c <= "\u9fff" for c in text) for text in found.values())


def test_where_nothing_is_broken_nothing_is_answered() -> None:
    assert said(sample_run("accepted")) == {}
    assert said(sample_run("inconclusive")) == {}


def test_facts_alone_claim_no_measurement() -> None:
    """A wrong card: no load, no network, no torch, no spread; and no sentence that says otherwise."""
    run = sample_run("rejected")
    model = next(f for f in run.findings if f.clause == "gpu.model")
    run = replace(run, findings=(replace(model, outcome="fail"),), measurements=(), attempt=None)
    found = said(run)
    assert "no ledger" in found["picked"]
    assert "facts, read and not chosen" in found["picked"]
    assert "not recorded" in found["own-load"]
    assert "goes over the network" in found["uplink"]
    assert "was measured with torch" in found["software"]
    assert "no spread" in found["spread"]
    assert "no lane count" in found["lanes"].lower()
    assert "two attempts" not in found["picked"]


def test_a_broken_link_is_answered_by_the_links_that_kept() -> None:
    run = sample_run("rejected")
    findings = tuple(
        replace(f, outcome="fail", measured="Gen5 x8") if f.id == "gpu.pcie@0000:ab:00.0" else f for f in run.findings
    )
    text = said(replace(run, findings=findings))["lanes"]
    assert "promises Gen5 x16" in text
    assert "1 GPUs ran at Gen5 x8, 7 others as promised" in text


def test_a_limit_that_is_not_the_contracts_is_said_to_be_so() -> None:
    run = sample_run("rejected")
    slow = next(f for f in run.findings if f.clause == "gemm.bf16" and f.outcome == "fail")
    auto = replace(slow, limit=Limit(">=", 617.5, "TFLOPS", 0.05, Origin("catalogue", "measured: two sources")))
    text = said(replace(run, findings=(auto,)))["contract"]
    assert "own figure" not in text
    assert "measured: two sources" in text
    assert "agreed: true" in text


def test_the_only_run_is_called_the_only_one() -> None:
    assert "only this one run" in said(replace(sample_run("rejected"), attempt=RunNumber(1, 1, "l")))["picked"]


def test_without_a_manifest_none_is_claimed() -> None:
    found = answers(sample_run("rejected"), None, str)
    edited = " ".join(found[-1].sentences)
    assert "will hold" in edited
    assert "was printed" not in edited
