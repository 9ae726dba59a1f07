"""dd: sequential copy rates where fio is absent, from the statistics it prints on stderr.

Source command: ``dd if=… of=… bs=… count=…`` (:func:`read_argv`, :func:`write_argv`). Read in any
language: the numbers and their order are the same, the words are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from agent.tools import ParseError, _shell
from agent.tools._text import clean, first_line, recognise

KIND = "dd"
# Beyond bytes over the slowest acceptable rate: the final flush.
TIMEOUT_S = 120.0
_SIGN = re.compile(r"\d\+\d|\d\s?\S{1,12}/s\b|\bdd: ")

_FULL_WIDTH = str.maketrans({"（": "(", "）": ")", "，": ",", "、": ","})
_NUMBER = r"\d+(?:[.,]\d+)?(?:[eE][+-]?\d+)?"
_RECORDS = re.compile(r"^[^\d+]{0,40}?(\d+)\+(\d+)(?!\d)")
# "N bytes (sizes) copied, T s, R unit/s"; old BSD: "N bytes transferred in T secs (R bytes/sec)"
_SUMMARY = re.compile(
    rf"^[^\d(]{{0,40}}?(?P<bytes>\d+)\s*[^\d(]*?(?:\([^)]*\))?[^\d()]*?"
    rf"(?P<seconds>{_NUMBER})\s*[^\d\s,(/]+\.?\s*[,(]\s*(?P<rate>{_NUMBER}|[Ii]nf\w*)\s*[^\d\s/]+/[^\s)]+\)?\s*$"
)
# conv=block: input lines that were longer than a block; said between the counts and the statistics.
_TRUNCATED = re.compile(r"^\d+ truncated records?$|^\d+ \S*(?:截断|tronqu|abgeschnitten)\S*.*$")
_LONGEST_SUMMARY = 300
_BUSYBOX_NO_RATE = re.compile(rf"^(?P<bytes>\d+) bytes \([^)]*\) copied, (?P<seconds>{_NUMBER}) seconds\s*$")
_STARTED = re.compile(r"^\d+\s*(?:bytes?\b|字节|바이트|バイト|octets|Bytes)")

_FAILURES: tuple[tuple[str, str], ...] = (
    (
        r"No space left|没有空间|空间不足|kein Speicherplatz|Aucun espace|No queda espacio"
        r"|не осталось (?:свободного )?места|空き領域|남은 공간이 없|Não há espaço|Spazio esaurito"
        r"|Disk quota|超出磁盘限额",
        "enospc",
    ),
    (
        r"Permission denied|权限不够|拒绝访问|Keine Berechtigung|Permission non accordée|Permiso denegado"
        r"|Отказано в доступе|許可がありません|허가 거부|Permissão negada|Operation not permitted|不允许的操作",
        "denied",
    ),
    (r"Read-only file system|只读文件系统", "read_only"),
    (r"Invalid argument|无效的参数|无效的自变量|Ungültiges Argument|Argument invalide", "invalid_argument"),
    (r"Input/output error|输入/输出错误|Eingabe-/Ausgabefehler|Erreur d'entrée/sortie", "io_error"),
    (r"unrecognized operand|invalid number|invalid (?:input|output|conversion|status)|unknown operand", "option"),
    (r"[Rr]esource busy|设备或资源忙", "busy"),
    (r"memory exhausted|Cannot allocate memory|无法分配内存", "out_of_memory"),
    (r"File too large|文件过大", "file_too_large"),
    (
        r"open|No such file|打开|没有那个文件|Öffnen|öffnen|ouvrir|abrir|открыть|열 ?수|開け|開く|Is a directory",
        "open_failed",
    ),
)
_WARNING = re.compile(r"warning|警告|Warnung|avertissement|suggest iflag|предупреждение|경고", re.IGNORECASE)


@dataclass(frozen=True)
class Dd:
    """What one dd copied; the rate is bytes over seconds, not dd's rounded figure.

    All None for a dd told to print nothing (``status=none``) or only its record counts.
    """

    bytes: Optional[int]
    seconds: Optional[float]
    bytes_per_s: Optional[float]


def write_argv(*, file: str, block_bytes: int, count: int, direct: bool) -> list[str]:
    """Write what comes on standard input; without O_DIRECT the flush is part of the time, else the page cache is
    measured. Not /dev/zero: what compresses or keeps no zeros would store next to nothing.
    """
    flags = ["oflag=direct"] if direct else ["conv=fdatasync"]
    return ["dd", f"of={file}", f"bs={block_bytes}", f"count={count}", "iflag=fullblock", *flags]


def read_argv(*, file: str, block_bytes: int, count: int, direct: bool) -> list[str]:
    """Read a file and drop it."""
    flags = ["iflag=direct"] if direct else []
    return ["dd", f"if={file}", "of=/dev/null", f"bs={block_bytes}", f"count={count}", *flags]


def parse(text: str) -> Dd:
    """The last final statistics of a dd: bytes, seconds, bytes a second (None for no bytes or no time).

    Progress lines and USR1 statistics before the last are not results. Raises :class:`ParseError`:
    ``enospc``, ``denied``, ``open_failed``, ``invalid_argument`` (often O_DIRECT refused), ``io_error``,
    ``truncated``, ``unparsable``.
    """
    recognise(text, "dd", _SIGN)
    text = clean(text).translate(_FULL_WIDTH)
    if not text.strip():
        return Dd(None, None, None)
    _raise_on_message(text)
    lines = [line.rstrip() for line in text.split("\n")]
    records = [at for at, line in enumerate(lines) if _RECORDS.match(line)]
    if records:
        return _after_records(lines, records)
    return _summary_alone(text, lines)


def _raise_on_message(text: str) -> None:
    for line in re.split(r"[\r\n]", text):
        if not re.match(r"^(?:\S*/)?(?:dd|busybox|sudo|-?\w*sh)(?: \w+)?: ", line) or _WARNING.search(line):
            continue
        kind = next((kind for pattern, kind in _FAILURES if re.search(pattern, line)), "failed")
        shell = _shell.failure(line, "dd")
        if shell is not None and (kind == "failed" or shell.kind in ("tool_missing", "broken_tool")):
            raise shell
        raise ParseError(kind, f"dd failed ({kind})", line)


def _after_records(lines: list[str], records: list[int]) -> Dd:
    """The statistics behind the last pair of record counts."""
    last = records[-1]
    if len(records) % 2 or last == len(lines) - 1:
        raise ParseError("truncated", "dd's record counts are cut off", lines[last])
    rest = [line for line in lines[last + 1 :] if line.strip() and not _TRUNCATED.match(line)]
    if not rest:
        return Dd(None, None, None)
    summary = _summary(rest[0])
    if summary is not None:
        return summary
    if rest[0][0].isdigit():
        raise ParseError("truncated", "dd's statistics are cut off", rest[0])
    return Dd(None, None, None)


def _summary_alone(text: str, lines: list[str]) -> Dd:
    """One line of statistics without its record counts, as ``| tail -1`` leaves it."""
    found = [summary for line in re.split(r"[\r\n]", text) if (summary := _summary(line)) is not None]
    if not found:
        started = next((line for line in lines if _STARTED.match(line)), None)
        if started is not None:
            raise ParseError("truncated", "dd's statistics are cut off", started)
        raise _shell.failure(text, "dd") or ParseError("unparsable", "not dd statistics", first_line(text))
    # Progress ends in no line end and counts whole seconds; the final line has both.
    unfinished = not text.endswith("\n") and found[0].seconds == int(found[0].seconds or 0)
    if len(found) > 1 or "\r" in text or unfinished:
        raise ParseError("truncated", "progress of a dd that did not finish", lines[-1])
    return found[0]


def _summary(line: str) -> Optional[Dd]:
    if len(line) > _LONGEST_SUMMARY:
        return None
    match = _SUMMARY.match(line) or _BUSYBOX_NO_RATE.match(line)
    if match is None:
        return None
    copied = int(match["bytes"])
    seconds = float(match["seconds"].replace(",", "."))
    return Dd(copied, seconds, copied / seconds if copied and seconds > 0 else None)
