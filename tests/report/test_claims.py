"""Money stands in a report only where the contract itself says how to count it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent import report
from agent.checks import grammars
from agent.contract import ContractErrors, loads
from agent.report.claims import Formula, claim, formulas
from tests.report import evidence
from tests.report.samples import sample_run

PRICE = {"price": {"amount": "24,000", "currency": "CNY", "per": "month"}}


@pytest.mark.parametrize(
    ("per", "most", "short", "share"),
    [(0.01, 0.30, 0.212, 0.212), (0.02, 0.30, 0.212, 0.30), (0.5, 1.0, 0.01, 0.5), (0.01, 1.0, 0.0, 0.0)],
)
def test_the_credit_grows_to_its_cap(per: float, most: float, short: float, share: float) -> None:
    assert Formula(per, most).credit(short) == pytest.approx(share)


def test_a_claim_in_words() -> None:
    text = str(claim(Formula(0.01, 0.3), 0.2, PRICE))
    assert text.startswith("4,800 CNY per month (20\u202f% of the price")


@pytest.mark.parametrize(
    "header",
    [{}, {"price": None}, {"price": {"currency": "CNY"}}, {"price": {"amount": "ask"}}, {"price": {"amount": 0}}],
)
def test_without_a_price_there_is_no_claim(header: dict[str, object]) -> None:
    assert claim(Formula(0.01, 0.3), 0.2, header) is None


def test_the_report_claims_by_the_contract_in_the_folder(tmp_path: Path) -> None:
    evidence.write(tmp_path, -1)
    run = sample_run("rejected")
    assert formulas(run, tmp_path) == {"gemm.bf16": Formula(0.01, 0.3)}
    page = report.render(run, "html", tmp_path, "en")
    # 512.5 of 650 is 21.2 % short; of 24,000 a month.
    assert "5,077 CNY per month" in page
    assert page.count("By the contract&#39;s formula") == 1


@pytest.mark.parametrize("why", ["none", "another", "not a contract", "link"])
def test_another_contract_claims_nothing(why: str, tmp_path: Path) -> None:
    run = sample_run("rejected")
    path = tmp_path / "contract.yaml"
    if why == "another":
        path.write_bytes(evidence.CONTRACT + b"# changed\n")
    elif why == "not a contract":
        path.write_bytes(b"per_percent: [")
        import hashlib

        run = replace(run, contract_sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    elif why == "link":
        (tmp_path / "real").write_bytes(evidence.CONTRACT)
        path.symlink_to(tmp_path / "real")
    assert formulas(run, tmp_path) == {}
    assert "CNY per month" not in report.render(run, "html", tmp_path, "en")


def test_a_kept_promise_has_no_claim(tmp_path: Path) -> None:
    evidence.write(tmp_path, -1)
    assert "CNY per month" not in report.render(sample_run("accepted"), "html", tmp_path, "en")


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("per_percent: 2", "2:44: cpu.vcpus.remedy.per_percent: “2” is no share of the price"),
        ("per_percent: 0 %", "2:44: cpu.vcpus.remedy.per_percent: “0 %” is no share of the price"),
        ("per_percent: -2 %", "2:44: cpu.vcpus.remedy.per_percent: “-2 %” is no share of the price"),
        ("per_percent: 2 %, at_most: 300 %", "2:58: cpu.vcpus.remedy.at_most: “300 %” is no share of the price"),
        ("at_most: 30 %", "2:30: cpu.vcpus.remedy: at_most caps a formula, and there is no per_percent"),
    ],
)
def test_a_formula_that_is_none_is_an_error_of_the_contract(formula: str, said: str) -> None:
    written = f"version: 1\ncpu: {{vcpus: {{is: 4, remedy: {{{formula}}}}}}}\n"
    with pytest.raises(ContractErrors) as caught:
        loads(written.encode(), "contract.yaml", grammars())
    (problem,) = caught.value.problems
    assert f"{problem.line}:{problem.column}: {problem.message}".startswith(said)


def test_a_formula_written_as_people_write_is_one() -> None:
    written = "version: 1\ncpu: {vcpus: {is: 4, remedy: {text: 按价格退, per_percent: 2.5％, at_most: 30%}}}\n"
    (clause,) = loads(written.encode(), "contract.yaml", grammars()).clauses
    assert clause.remedy == {"text": "按价格退", "per_percent": "2.5％", "at_most": "30%"}
