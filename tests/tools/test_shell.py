"""What stands in place of every tool's output: one failure kind each, whatever the tool and the language."""

from __future__ import annotations

import pytest

from agent.tools import ParseError, _shell, parsers

TOOLS = {
    **dict.fromkeys(("topo", "smi-xml", "smi-csv", "smi-table", "nvlink"), "nvidia-smi"),
    **{kind: kind for kind in ("fio", "iperf3", "dd", "ping", "dmesg", "lspci", "lsblk", "dmidecode")},
    "smart": "smartctl",
    "nccl-tests": "all_reduce_perf",
    "mdstat": "cat",
}
# NVIDIA's parsers have their own table, older than this one, with their own word for a missing tool.
MISSING = {"tool_missing", "not_found"}
DENIED = {"denied", "no_permission"}
SAID = [
    ("bash: {tool}: command not found", MISSING),
    ("sh: 1: {tool}: not found", MISSING),
    ("zsh: command not found: {tool}", MISSING),
    ("-bash: {tool}：未找到命令", MISSING),
    ("bash: {tool}: Kommando nicht gefunden.", MISSING),
    ("bash: {tool} : commande introuvable", MISSING),
    ("/bin/sh: {tool}: No such file or directory", MISSING),
    ("Command '{tool}' not found, but can be installed with:\napt install some-package", MISSING),
    ("timeout: failed to run command '{tool}': No such file or directory", MISSING),
    ("sudo: {tool}: command not found", MISSING),
    ("bash: /usr/bin/{tool}: Permission denied", DENIED),
    ("bash: /usr/bin/{tool}: 权限不够", DENIED),
    ("sudo: a password is required", DENIED),
    ("Segmentation fault (core dumped)", {"crashed"}),
    ("段错误 (核心已转储)", {"crashed"}),
    ("Killed", {"crashed"}),
]


def test_every_kind_is_here() -> None:
    assert set(TOOLS) == set(parsers())


@pytest.mark.parametrize("kind", sorted(TOOLS))
@pytest.mark.parametrize(("said", "kinds"), SAID, ids=[said for said, _ in SAID])
def test_every_kind_names_what_the_shell_says(kind: str, said: str, kinds: set[str]) -> None:
    for end in ("", "\n", "\r\n"):
        with pytest.raises(ParseError) as caught:
            parsers()[kind].parse(said.format(tool=TOOLS[kind]) + end)
        assert caught.value.kind in kinds
        assert caught.value.line


def test_a_long_text_is_not_searched() -> None:
    assert _shell.failure("line\n" * 100 + "Killed\n", "fio") is None
    assert _shell.failure("all is well\n", "fio") is None


@pytest.mark.parametrize(
    ("kind", "said", "expected"),
    [
        ("fio", "fio: connect: Connection refused", "refused"),
        ("fio", "fio: pid=4211, got signal=9", "interrupted"),
        ("fio", "fio: command not found", "tool_missing"),
        ("iperf3", "iperf3: error - unable to resolve host: far.example", "name_error"),
        ("iperf3", "iperf3: error while loading shared libraries: libiperf.so.0: cannot open", "broken_tool"),
        ("dd", "dd: unrecognized operand 'iflags=direct'", "option"),
        ("dd", "dd: /dev/disk4: Resource busy", "busy"),
        ("dd", "dd: memory exhausted by input buffer of size 1099511627776 bytes (1.0 TiB)", "out_of_memory"),
        ("dd", "dd: 写入 '/data/t' 出错: 设备上没有空间", "enospc"),
        ("ping", "ping: usage error: Destination address required", "option"),
        ("ping", "ping: unknown iface eth7: No such device", "option"),
        ("dmesg", "dmesg: Lesen des Kernelpuffers ist fehlgeschlagen: Die Operation ist nicht erlaubt", "denied"),
        ("dmesg", "cat: /var/log/kern.log: Permission denied", "denied"),
        ("dmesg", "dmesg: unrecognized option '--since'", "option"),
        ("smart", "Probable ATA device behind a SAT layer\nTry an additional '-d ata' argument.", "unsupported"),
        ("mdstat", "cat: /proc/mdstat: 没有那个文件或目录", "absent"),
        ("lsblk", "lsblk: 未知列: PATH", "option"),
        ("dmidecode", "/dev/mem: 权限不够", "denied"),
        ("smi-table", "sudo: a password is required", "no_permission"),
    ],
)
def test_failures_of_one_tool(kind: str, said: str, expected: str) -> None:
    with pytest.raises(ParseError) as caught:
        parsers()[kind].parse(said + "\n")
    assert caught.value.kind == expected


def test_what_another_command_was_denied_does_not_void_dd() -> None:
    text = "rm: cannot remove '/data/old': Operation not permitted\n1+0 records in\n1+0 records out\n"
    text += "1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.5 s, 2.1 MB/s\n"
    assert parsers()["dd"].parse(text).bytes_per_s == 2097152
