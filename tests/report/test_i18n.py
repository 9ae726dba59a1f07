"""Chinese: no sentence of the product is missing, and what is compiled is what was translated."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from agent import resources
from agent.report.phrases import phrase
from agent.text import msg, translator
from tests import tools_i18n

ZH = translator("zh", resources.locale_dir())
_WORD = re.compile(r"[A-Za-z]{2}")
_CHINESE = re.compile("[\u4e00-\u9fff]")
# Names that are the same in Chinese.
_SAME = frozenset(
    {
        "CPU",
        "Docker",
        "ECC",
        "GPU",
        "GPUs",
        "GPUDirect RDMA",
        "GPUDirect Storage",
        "MIG",
        "NCCL",
        "NVLink",
        "PCIe",
        "VBIOS",
        "gpu.memory",
        "gpu.model",
        "NVIDIA Container Toolkit",
        "PyTorch",
        "Python",
    }
)


def test_extraction_finds_python_and_templates() -> None:
    found = set(tools_i18n.extracted())
    assert {"Rejected", "What could not be verified", "To be granted or installed", "{n} kept"} <= found
    assert len(found) > 400


def test_no_translation_is_missing() -> None:
    assert tools_i18n.missing(tools_i18n.merged("zh")) == []


def test_no_sentence_is_built_before_it_is_translated() -> None:
    """``msg(f"…")`` and ``msg("…" + x)`` cannot be looked up in a catalogue."""
    wrong = []
    for path in (tools_i18n.ROOT / "agent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "msg":
                first = node.args[0]
                if isinstance(first, (ast.JoinedStr, ast.BinOp, ast.IfExp)):
                    wrong.append(f"{path.name}:{node.lineno}")
            # Inside an f-string the extraction sees no calls.
            inside = ast.walk(node) if isinstance(node, ast.JoinedStr) else ()
            wrong += [
                f"{path.name}:{call.lineno}"
                for call in inside
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "msg"
            ]
    assert wrong == []


def test_the_compiled_catalogue_is_the_written_one() -> None:
    written = {str(m.id): m.string for m in tools_i18n.read("zh") if m.id and m.string}
    compiled = {str(m.id): m.string for m in tools_i18n.read_compiled("zh") if m.id}
    assert compiled == written


def test_translations_have_the_arguments_of_their_sentences() -> None:
    wrong = [
        m.id
        for m in tools_i18n.read("zh")
        if m.id and m.string and tools_i18n.placeholders(str(m.id)) != tools_i18n.placeholders(str(m.string))
    ]
    assert wrong == []


def test_translations_are_chinese() -> None:
    plain = {
        str(m.id): str(m.string)
        for m in tools_i18n.read("zh")
        if m.id and m.string and _WORD.search(re.sub(r"\{[^}]*\}", "", str(m.id))) and str(m.id) not in _SAME
    }
    # What has no word of English prose but only names and arguments may stay as it is.
    plain = {
        k: v
        for k, v in plain.items()
        if not re.fullmatch(r"(\W|\{\w+\}|ping|torch|CUDA|cuBLAS|NVML|nvidia-smi|MiB|Xid|dcgmi diag -r 1)+", k)
    }
    assert [k for k, v in plain.items() if not _CHINESE.search(v)] == []


def test_a_sentence_in_a_sentence_is_translated_too() -> None:
    inner = msg("{n} kept", n=3)
    assert msg("not finished; so far: {headline}", headline=inner).render(ZH) == "尚未完成；目前：3 项达标"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("min–max of 6 blocks, 96.9 %", "6 个分段的最小–最大值，96.9\u202f%"),
        ("2nd lowest–2nd highest of 11 repetitions, 98.8 %", "11 次重复中第 2 低至第 2 高，98.8\u202f%"),
        ("median of block medians", "各分段中位数的中位数"),
        ("a rule that nobody has heard of", "a rule that nobody has heard of"),
    ],
)
def test_phrases_of_the_statistics(text: str, expected: str) -> None:
    assert phrase(text, ZH) == expected


def test_the_tool_sees_a_missing_translation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_i18n, "LOCALES", tmp_path)
    assert tools_i18n.main([]) == 1
    assert tools_i18n.main(["--check"]) == 1
