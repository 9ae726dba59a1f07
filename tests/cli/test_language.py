"""What a command about a run is said in: ``--lang``, else the language of the run's contract, else LANG."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from agent.cli.main import cli
from agent.seal import keys
from tests.runs import accept, contract

pytest.importorskip("cryptography")
FACTS = "memory: {size: '>= 100 MB'}\n"
CHINESE = f"version: 1\ncontract: {{language: zh}}\n{FACTS}"
SILENT = f"version: 1\n{FACTS}"
HAN = re.compile(r"[\u4e00-\u9fff]")
# Of each command that has a run, and of what it says when that run is broken.
COMMANDS = (
    ("status", "{run}"),
    ("report", "{run}"),
    ("report", "{run}", "--redact"),
    ("compare", "{run}", "{run}"),
    ("verify", "{run}"),
    ("verify", "{bundle}"),
    ("verify", "{run}", "--digest", "0" * 64),
    ("seal", "{run}"),
    ("seal", "{unsigned}"),
    ("seal", "{run}", "--key", "{key}", "-o", "{bundle}"),
    ("seal", "{bundle}", "--key", "{key}"),
    ("seal", "{bundle}", "--key", "{key}", "--countersign", "-o", "{again}"),
    ("run", "--resume", "{run}"),
)
BROKEN = (
    ("status", "{run}"),
    ("report", "{run}"),
    ("compare", "{run}", "{run}"),
    ("verify", "{run}"),
    ("seal", "{run}"),
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of a Chinese contract and one of a contract that names no language, both made in English; bundles."""
    found = {}
    for name, text in (("zh", CHINESE), ("silent", SILENT)):
        place = tmp_path_factory.mktemp(name)
        said = accept(
            "run", str(contract(place, text)), "--out", "r/one", "--profile", "facts", "--lang", "en", cwd=place
        )
        assert said.code == 0, said.said
        keys.make(place / "key.pem")
        for out, signed in (("bundle.tar.gz", ("--key", "key.pem")), ("unsigned.tar.gz", ())):
            done = accept(
                "seal", "r/one", *signed, "-o", out, cwd=place, env={"XDG_CONFIG_HOME": str(place / "config")}
            )
            assert done.code == 0, done.said
        found[name] = place
    return found


def do(place: Path, *args: str, lang: str = "C.UTF-8") -> str:
    """What the command says; in this process, as there are many."""
    env = {"XDG_CONFIG_HOME": str(place / "config"), "LANG": lang, "LC_ALL": None, "LC_MESSAGES": None}
    return CliRunner().invoke(cli, args, env=env).output


def filled(place: Path, args: tuple[str, ...], run: Path) -> list[str]:
    names = {"run": run, "key": place / "key.pem", "again": place / "again.tar.gz"}
    names.update(bundle=place / "bundle.tar.gz", unsigned=place / "unsigned.tar.gz")
    return [arg.format(**{k: str(v) for k, v in names.items()}) for arg in args]


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_one_rule_for_all_that_have_a_run(places: dict[str, Path], args: tuple[str, ...]) -> None:
    for name, place in places.items():
        command = filled(place, args, place / "r" / "one")
        for lang, option, chinese in (
            ("C.UTF-8", (), name == "zh"),
            ("zh_CN.UTF-8", (), True),
            ("zh_CN.UTF-8", ("--lang", "en"), False),
            ("C.UTF-8", ("--lang", "zh"), True),
        ):
            (place / "again.tar.gz").unlink(missing_ok=True)
            said = do(place, *command, *option, lang=lang)
            assert bool(HAN.search(said)) == chinese, (name, lang, option, said)


@pytest.mark.parametrize("args", BROKEN, ids=" ".join)
def test_also_where_the_result_cannot_be_read(places: dict[str, Path], args: tuple[str, ...], tmp_path: Path) -> None:
    for name, place in places.items():
        broken = tmp_path / name / "one"
        shutil.copytree(place / "r" / "one", broken)
        (broken / "result.json").write_text("{")
        said = do(place, *filled(place, args, broken))
        assert said
        assert bool(HAN.search(said)) == (name == "zh"), said
