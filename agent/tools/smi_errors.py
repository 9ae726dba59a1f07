"""Failure texts of nvidia-smi, NVML, the shell and the container runtime, and lost GPUs named in them.

Sources: nvidia-smi prints these on stdout, alone or mixed into its normal output, often with exit status 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from agent.text import Text, msg
from agent.tools import ParseError
from agent.tools._text import first_line


@dataclass(frozen=True)
class Failure:
    """A known failure: its kind, the sentence for the reader, and the line that said it."""

    kind: str
    message: Text
    line: str


@dataclass(frozen=True)
class LostGpu:
    """A GPU that the driver lists and cannot reach; index and PCI bus id as far as the text names them."""

    index: Optional[int]
    pci_bus_id: Optional[str]
    text: str


# First match wins, so the specific texts stand before the general ones.
_TABLE: tuple[tuple[str, Text, str], ...] = (
    (
        "driver_mismatch",
        msg("the NVIDIA library and the loaded kernel driver have different versions"),
        r"driver/library version mismatch|lib_rm_version_mismatch|nvml/rm version mismatch|api mismatch",
    ),
    (
        "gpu_lost",
        msg("a GPU is lost: the driver cannot reach it"),
        r"unable to determine the device handle|gpu is lost|nvml_error_gpu_is_lost|fallen off the bus",
    ),
    ("gpu_requires_reset", msg("a GPU requires a reset"), r"gpu requires reset|nvml_error_reset_required"),
    (
        "driver_too_old",
        msg("the host's driver is too old for this CUDA version"),
        r"requirement error: unsatisfied condition|driver version is insufficient for cuda",
    ),
    (
        "no_driver",
        msg("the NVIDIA driver is not loaded or does not answer"),
        r"couldn't communicate with the nvidia driver|driver[ _]not[ _]loaded|driver is not loaded",
    ),
    (
        "no_library",
        msg("the NVIDIA management library is missing in this environment"),
        r"couldn't find libnvidia-ml|nvml shared library not found|library_not_found"
        r"|(?:libnvidia-ml|libcuda|libnccl|libcudart|libmpi)\.so[\w.]*: cannot open shared object",
    ),
    (
        "no_container_runtime",
        msg("the container was not given the GPUs"),
        r"could not select device driver|nvidia-container-cli: (?:initialization|mount|ldcache|device) error"
        r"|unresolvable cdi devices|nvidia-container-runtime",
    ),
    (
        "no_devices",
        msg("the driver sees no GPU"),
        r"no devices (?:were )?found|no cuda-capable device|no supported gpus? (?:was|were)? ?found",
    ),
    (
        "access_blocked",
        msg("the operating system blocks access to the GPU"),
        r"gpu access blocked by the operating system|operating system has blocked the request",
    ),
    (
        "insufficient_power",
        msg("a GPU lacks its external power cables"),
        r"insufficient external power|insufficient_power",
    ),
    (
        "nvml_unknown_error",
        msg("NVML could not be initialised: unknown error (in containers often lost device permissions)"),
        r"failed to initialize nvml: unknown error|nvml_error_unknown",
    ),
    (
        "mig_mode",
        msg("not available while MIG mode is on"),
        r"\bmig\b.{0,60}\b(?:enabled|mode|not supported)|\b(?:not supported|unable).{0,80}\bmig\b",
    ),
    (
        "invalid_field",
        msg("this version of nvidia-smi does not know a queried field"),
        r"is not a valid field to query",
    ),
    (
        "usage",
        msg("nvidia-smi refused its command line"),
        r"command line argument must be used|invalid combination of input arguments|error: option "
        r"|unrecognized (?:option|argument)|invalid (?:argument|option)|is not a valid (?:option|argument)",
    ),
    (
        "no_permission",
        msg("no permission"),
        r"^sudo: .*(?:password|terminal|tty)|insufficient permissions|no_permission|permission denied"
        r"|operation not permitted|provided lacks permissions|权限不够|拒绝访问|不允许的操作|keine berechtigung"
        r"|permission non accordée",
    ),
    (
        "not_found",
        msg("the tool is not installed or not in PATH"),
        r"command not found|: not found$|not found, but can be installed|未找到命令|未找到指令|没有那个文件或目录"
        r"|找不到指令|nicht gefunden"
        r"|commande introuvable|orden no encontrada|no se encontró la orden|не найден|コマンドが見つかりません"
        r"|comando não encontrado|comando non trovato|명령을 찾을 수 없|unknown command"
        r"|executable file not found|no such file or directory|is not recognized as|不是内部或外部命令",
    ),
    (
        "crashed",
        msg("the tool itself crashed"),
        r"segmentation fault|段错误|核心已转储|core dumped|bus error|speicherzugriffsfehler"
        r"|erreur de segmentation|violación de segmento|ошибка сегментирования|illegal instruction|^aborted"
        r"|terminate called after|^killed$|已杀死",
    ),
    ("timeout", msg("the tool or the driver did not answer in time"), r"nvml: timeout|timed out|timeout was reached"),
    (
        "not_supported",
        msg("not supported here"),
        r"(?:nvml|feature|operation|function|gpu|device)\b.{0,60}\bnot (?:supported|found)"
        r"|does not have or support",
    ),
    ("nvml_error", msg("NVML failed"), r"failed to initialize nvml|^nvml: |nvml_error_|nvml error"),
)
_FAILURES = tuple((kind, message, re.compile(pattern, re.I)) for kind, message, pattern in _TABLE)
_BUS = r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
# "GPU0000:A1:00.0" is a bus id glued to the word, so an index must be followed by a colon and a blank.
_LOST = re.compile(
    rf"device handle for GPU\s{{0,8}}(?:(?P<index>\d{{1,3}})(?=\s{{0,8}}:\s))?\s{{0,8}}:?\s{{0,8}}(?P<bus>{_BUS})?"
    r"\s{0,8}:\s{0,8}(?P<why>\S.*)",
    re.I,
)
_LOOKED_AT = 64 * 1024  # failure texts are short; a long foreign text is not searched to its end


def find_failure(text: str) -> Optional[Failure]:
    """The first known failure in a text, or None. Only for texts that are not the wanted output."""
    for raw in text[:_LOOKED_AT].splitlines():
        line = raw.strip().lstrip("\ufeff")
        for kind, message, pattern in _FAILURES:
            if pattern.search(line):
                return Failure(kind, message, line)
    return None


def refuse(text: str, tool: str) -> ParseError:
    """The error for a text that is not ``tool``'s output: empty, a known failure, or something else."""
    if not text.strip(" \t\r\n\ufeff\x00"):
        return ParseError("empty", msg("no {tool} output: the text is empty", tool=tool))
    failure = find_failure(text)
    if failure is not None:
        return ParseError(failure.kind, failure.message, failure.line)
    first = first_line(text)
    if "ROCm" in text[:_LOOKED_AT]:
        return ParseError("unparsable", msg("AMD ROCm output, not {tool} output", tool=tool), first)
    return ParseError("unparsable", msg("not {tool} output", tool=tool), first)


def lost_gpus(text: str) -> tuple[LostGpu, ...]:
    """Every ``Unable to determine the device handle ...`` line of a text, in order."""
    return tuple(lost for lost in (lost_gpu(line) for line in text.splitlines()) if lost is not None)


def lost_gpu(line: str) -> Optional[LostGpu]:
    """The GPU that one line reports lost, or None."""
    match = _LOST.search(line)
    if match is None:
        return None
    index = int(match["index"]) if match["index"] else None
    return LostGpu(index, match["bus"].upper() if match["bus"] else None, line.strip())
