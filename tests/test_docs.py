"""What the documents promise is so: contracts in them load, commands and targets that they name exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest

from agent.checks import families, grammars
from agent.cli.main import cli
from agent.contract import contradictions, load

ROOT = Path(__file__).resolve().parents[1]
READMES = ("README.md", "README.zh-CN.md")
DOCUMENTS = (*READMES, "CONTRIBUTING.md", "CHANGELOG.md")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", READMES)
def test_the_contract_in_the_readme_is_sound(name: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", text_of(name), re.DOTALL)
    path = tmp_path / "contract.yaml"
    path.write_text(block, encoding="utf-8")
    assert len(block.splitlines()) <= 20
    assert contradictions(load(path, grammars())) == ()


@pytest.mark.parametrize(("name", "before"), [("README.md", "Not judged yet"), ("README.zh-CN.md", "尚不判定")])
def test_the_readme_says_what_is_not_judged_yet(name: str, before: str) -> None:
    paragraph = text_of(name).split(before, 1)[1].split("\n\n", 1)[0]
    unjudged = {key for key, module in families().items() if not hasattr(module, "judge")}
    assert set(re.findall(r"`([a-z_]+)`", paragraph)) == unjudged


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_and_targets_exist(name: str) -> None:
    text = text_of(name)
    known = set(cli.list_commands(click.Context(cli)))
    assert set(re.findall(r"`accept ([a-z]+)", text)) <= known
    targets = set(re.findall(r"^([a-z0-9-]+):", text_of("Makefile"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z0-9-]+)", text)) <= targets


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_are_linked_are_there(name: str) -> None:
    links = re.findall(r"\]\(((?!http)[^)#]+)\)", text_of(name))
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_contributing_maps_every_module() -> None:
    text = text_of("CONTRIBUTING.md")
    inside = [p for p in (ROOT / "agent").iterdir() if not p.name.startswith(("_", "."))]
    modules = {p.stem if p.is_file() else p.name for p in inside}
    unnamed = {m for m in modules - {"data"} if not re.search(rf"\b{m}(\.py|/)", text)}
    assert {m for m in unnamed if not m.startswith("contract")} == set()


def test_make_alone_lists_the_targets() -> None:
    listed = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert names == {"help", "dev", "run", "demo", "fmt", "lint", "types", "test", "perf", "i18n", "gpu-check", "dist"}
