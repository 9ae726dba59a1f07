"""What a shell, sudo, the loader and the kernel say in place of any tool's output, in the languages seen."""

from __future__ import annotations

import re
from typing import Optional

from agent.text import Text, msg
from agent.tools import ParseError

_SHORT = 40  # lines: a failure text is not longer, and a longer text is not searched

# First match wins.
_TABLE: tuple[tuple[str, Text, str], ...] = (
    (
        "broken_tool",
        msg("the tool is there and cannot be loaded"),
        r"error while loading shared libraries|version `\S+' not found|[Ee]xec format error|cannot execute",
    ),
    (
        "denied",
        msg("sudo wants a password or refuses"),
        r"^sudo: .*(?:password|terminal|tty)|not in the sudoers|(?:不在|不是) ?sudoers",
    ),
    (
        "tool_missing",
        msg("the tool is not installed or not in PATH"),
        r"command not found|未找到命令|未找到指令|找不到指令|(?:Kommando|Befehl) (?:wurde )?nicht gefunden"
        r"|commande introuvable|orden no encontrada|no se encontró la orden|не найден|コマンドが見つかりません"
        r"|comando não encontrado|comando non trovato|명령을 찾을 수 없|executable file not found"
        r"|not found, but can be installed"
        r"|failed to run command|is not recognized as|不是内部或外部命令|applet not found"
        r"|^(?:\S*/)?-?(?:ba|da|z|k|a)?sh: .*: (?:not found|inaccessible or not found|No such file or directory"
        r"|没有那个文件或目录)$",
    ),
    (
        "denied",
        msg("no permission"),
        r"Permission denied|Operation not permitted|权限不够|拒绝访问|不允许的操作|Keine Berechtigung|nicht erlaubt"
        r"|Permission non accordée|Opération non permise|Permiso denegado|Operación no permitida|Отказано в доступе"
        r"|Операция не позволена|許可がありません|許可されていない操作|허가 거부|Permissão negada|Permesso negato",
    ),
    (
        "crashed",
        msg("the tool itself crashed or was killed"),
        r"[Ss]egmentation fault|段错误|[Cc]ore dumped|核心已转储|^Bus error|^Illegal instruction|^Aborted"
        r"|^Killed$|^已杀死|Speicherzugriffsfehler|Erreur de segmentation",
    ),
)
_FAILURES = tuple((kind, message, re.compile(pattern)) for kind, message, pattern in _TABLE)


def failure(text: str, tool: str) -> Optional[ParseError]:
    """The failure that a short text speaks of, or None. Only for texts that are not the wanted output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > _SHORT:
        return None
    for line in lines:
        for kind, message, pattern in _FAILURES:
            if pattern.search(line[:400]):
                return ParseError(kind, msg("no {tool} output: {message}", tool=tool, message=message), line)
    return None
