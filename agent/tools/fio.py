"""fio: sequential and random disk jobs through their JSON output.

Source command: ``fio --output-format=json …`` (:func:`job_argv`). fio writes notes and errors to the
same stream before the JSON, so they are read too.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from agent.tools import ParseError, _shell
from agent.tools._text import (
    clean,
    first_line,
    integer,
    json_documents,
    mapping,
    number,
    objects,
    recognise,
    text_or_none,
)

KIND = "fio"
# Beyond a job's own runtime: laying out the file, and a kernel that flushes late.
TIMEOUT_S = 120.0
_SIGN = re.compile(r'"fio version"|"jobname"|\bfio[-:]|bw=')
# A rate over less than this covers a cache or a few requests, not a disk.
SHORTEST_MS = 100
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
_ETA_UNKNOWN = 2**31 - 1

# fio prints C's spelling where it divided by nothing; JSON has no word for it.
_NOT_A_NUMBER = re.compile(r'(" : )[-+]?(?:nan|inf)\b')

_ERRNO_KINDS = {
    errno.ENOSPC: "enospc",
    errno.EDQUOT: "enospc",
    errno.ENOENT: "open_failed",
    errno.EISDIR: "open_failed",
    errno.EROFS: "read_only",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.EINVAL: "invalid_argument",
    errno.EOPNOTSUPP: "invalid_argument",
    errno.EIO: "io_error",
}

NO_SPACE = r"ENOSPC|No space left|err=\s*28\b|Disk quota exceeded|err=\s*122\b"
# Said beside a whole JSON document, these still void it: it covers only the part before.
_VOIDING: tuple[tuple[str, str], ...] = (
    (r"terminating on signal|received signal|user interrupt", "interrupted"),
    (NO_SPACE, "enospc"),
    (r"err=\s*5\b", "io_error"),
    (r"err=\s*[1-9]", "failed"),
)
# Read only where there is no JSON: some are harmless notes otherwise (cache not droppable without root).
_FAILURES: tuple[tuple[str, str], ...] = (
    (r"does not support (?:direct|O_DIRECT)|O_DIRECT.{0,300}not support", "direct_unsupported"),
    (r"func=dlopen|engine \S+ not loadable|failed to load engine|unknown ioengine", "engine_missing"),
    (r"valid values:|Bad option|bad option|unrecognized option|failed parsing|unknown option", "option"),
    (r"connect: Connection refused", "refused"),
    (r"got signal=", "interrupted"),
    (r"job startup hung", "timeout"),
    (r"Permission denied|Operation not permitted|err=\s*13\b", "denied"),
    (r"Read-only file system|err=\s*30\b", "read_only"),
    (r"failed opening|unable to open|open.{0,300}No such file|err=\s*2\b", "open_failed"),
    (r"Input/output error|err=\s*5\b", "io_error"),
    (r"Cannot allocate memory|out of memory|failed to setup shm", "out_of_memory"),
)


@dataclass(frozen=True)
class Direction:
    """One direction of one job; all None where the job did no I/O in it."""

    bytes_per_s: Optional[float]
    iops: Optional[float]
    lat_ns_mean: Optional[float]
    lat_ns_p99: Optional[float]
    # Not part of ``accept parse``: how long fio moved data in this direction, and the median latency.
    seconds: Optional[float] = None
    lat_ns_p50: Optional[float] = None


@dataclass(frozen=True)
class Job:
    """One job; ``error`` is fio's errno, always 0 here because a failed job raises."""

    name: str
    error: int
    read: Direction
    write: Direction


@dataclass(frozen=True)
class Fio:
    """``fio_version`` as printed (``fio-3.33``), one entry a job (or a group with group_reporting)."""

    fio_version: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class LogSample:
    """One line of a bandwidth log: milliseconds since the start, bytes a second, read/write/trim."""

    at_ms: int
    bytes_per_s: float
    direction: str


NO_IO = Direction(None, None, None, None)


def job_argv(
    *,
    file: str,
    rw: str,
    bs: str,
    iodepth: int,
    size: int,
    runtime_s: int,
    engine: str,
    direct: bool,
    name: str = "accept",
    numjobs: int = 1,
    ramp_s: int = 0,
    bw_log: Optional[str] = None,
    extra: Sequence[str] = (),
) -> list[str]:
    """The argv of one job. ``size`` in bytes; ``runtime_s`` 0 means once over the size instead of by time.

    ``bw_log`` is a path prefix: fio writes one ``PREFIX_bw.N.log`` a job, averaged per second
    (:func:`parse_bw_log`).
    """
    argv = [
        "fio",
        f"--name={name}",
        f"--filename={file}",
        f"--rw={rw}",
        f"--bs={bs}",
        f"--iodepth={iodepth}",
        f"--size={size}",
        f"--ioengine={engine}",
        f"--direct={int(direct)}",
        f"--numjobs={numjobs}",
        "--group_reporting",
        "--output-format=json",
    ]
    if runtime_s:
        argv += ["--time_based", f"--runtime={runtime_s}"]
    if ramp_s:
        argv.append(f"--ramp_time={ramp_s}")
    if bw_log is not None:
        argv += [f"--write_bw_log={bw_log}", "--log_avg_msec=1000"]
    return [*argv, *extra]


def parse(text: str) -> Fio:
    """The jobs of a fio JSON output; rates in bytes a second, latencies in nanoseconds.

    Raises :class:`ParseError`: the failure's kind for a job that failed or was cut short, ``too_short``
    under 0.1 s of I/O, ``truncated``, ``text_output`` for fio's report for people.
    """
    recognise(text, "fio", _SIGN)
    text = _NOT_A_NUMBER.sub(r"\1null", clean(text))
    if not text.strip():
        raise ParseError("empty", "no fio output: the text is empty")
    documents, around = json_documents(text)
    if not documents:
        _raise_on_message(around, (*_FAILURES, *_VOIDING))
        raise _not_json(text)
    _raise_on_message(around, _VOIDING)
    document = _last_of_one_run(documents)
    version = text_or_none(document.get("fio version"))
    entries = _entries(document)
    if version is None or not entries:
        raise ParseError("unparsable", "JSON, but not of fio: no version or no jobs", first_line(text))
    shared = mapping(document.get("global options"))
    return Fio(version, tuple(_job(entry, shared) for entry in entries))


def to_json(result: Fio) -> Any:
    """The fixed shape of ``accept parse fio``."""
    value = asdict(result)
    for job in value["jobs"]:
        for direction in (job["read"], job["write"]):
            del direction["seconds"], direction["lat_ns_p50"]
    return value


def parse_bw_log(text: str) -> tuple[LogSample, ...]:
    """The samples of a ``_bw.N.log`` file: ``ms, KiB/s, direction, block size, …`` a line.

    fio 3 logs KiB a second. A last line cut short is an error, not a smaller number.
    """
    text = clean(text)
    if text and not text.endswith("\n"):
        raise ParseError("truncated", "bandwidth log cut off in its last line", text.splitlines()[-1])
    return tuple(_log_sample(line) for line in text.splitlines() if line.strip())


def per_second(samples: Sequence[LogSample], seconds: float) -> tuple[float, ...]:
    """The rate of each whole second of a job that was to end after ``seconds``.

    fio logs nothing for a second in which nothing was completed: that is a zero, not a gap. Past its time a job
    only waits for what is in flight, which is counted late and all at once.
    """
    found: dict[int, float] = {}
    for sample in samples:
        number = round(sample.at_ms / 1000)
        if number <= seconds:
            found[number] = sample.bytes_per_s
    return tuple(found.get(number, 0.0) for number in range(1, max(found, default=0) + 1))


def _log_sample(line: str) -> LogSample:
    match = re.match(r"\s*(\d+),\s*(\d+),\s*([012])(?:,|\s*$)", line)
    if match is None:
        raise ParseError("unparsable", "not a line of a fio bandwidth log", line)
    return LogSample(int(match[1]), int(match[2]) * 1024.0, ("read", "write", "trim")[int(match[3])])


def _raise_on_message(around: str, messages: tuple[tuple[str, str], ...]) -> None:
    lines = around.splitlines()
    for pattern, kind in messages:
        for line in lines:
            if re.search(pattern, line):
                raise ParseError(kind, f"fio failed ({kind})", line.strip())


def _not_json(text: str) -> ParseError:
    if re.search(r"\b(?:READ|WRITE): (?:bw|io)=|^fio-\d|\(groupid=\d+", text, re.MULTILINE):
        return ParseError("text_output", "fio's report for people; run it with --output-format=json")
    shell = _shell.failure(text, "fio")
    if shell is None and re.search(r"^fio:", text, re.MULTILINE):
        return ParseError("failed", "fio failed", first_line(text))
    return shell or ParseError("unparsable", "not fio JSON", first_line(text))


def _last_of_one_run(documents: list[Any]) -> dict[str, Any]:
    """With ``--status-interval`` one run prints several documents; the last covers the whole run."""
    names = [[_name(entry) for entry in _entries(mapping(d))] for d in documents]
    if any(other != names[-1] for other in names):
        raise ParseError("several_results", f"{len(documents)} fio outputs of different jobs; give one at a time")
    return mapping(documents[-1])


def _entries(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Jobs, or the clients of ``--client`` without their sum."""
    jobs = objects(document.get("jobs"))
    if jobs:
        return jobs
    clients = objects(document.get("client_stats"))
    single = [entry for entry in clients if _name(entry) != "All clients"]
    return single or clients


def _name(entry: dict[str, Any]) -> Optional[str]:
    return text_or_none(entry.get("jobname"))


def _job(entry: dict[str, Any], shared: dict[str, Any]) -> Job:
    name = _name(entry)
    error = integer(entry.get("error"))
    if name is None or error is None:
        raise ParseError("unparsable", "a fio job without a name or an error code")
    if error:
        kind = _ERRNO_KINDS.get(error, "failed")
        raise ParseError(kind, f"fio job {name} failed with errno {error} ({errno.errorcode.get(error, '?')})")
    if _still_running(entry, shared):
        raise ParseError("interrupted", f"fio job {name} was not finished: an interim status, not a result")
    if "mixed" in entry and "read" not in entry:
        raise ParseError("unsupported", f"fio job {name} reports both directions as one (unified_rw_reporting)")
    if not isinstance(entry.get("read"), dict) or not isinstance(entry.get("write"), dict):
        raise ParseError("unparsable", f"fio job {name} without a read or a write part")
    return Job(name, error, _direction(name, entry["read"]), _direction(name, entry["write"]))


def _still_running(entry: dict[str, Any], shared: dict[str, Any]) -> bool:
    """An interim document of ``--status-interval``: time left, or a timed job under 90 % of its time.

    A job that was told to stop once its rate is steady may end before its time.
    """
    if 0 < (integer(entry.get("eta")) or 0) < _ETA_UNKNOWN:
        return True
    options = {**shared, **mapping(entry.get("job options"))}
    ran_ms, asked = number(entry.get("job_runtime")), re.fullmatch(r"(\d{1,9})([smhd]?)", str(options.get("runtime")))
    if options.get("time_based", "0") == "0" or ran_ms is None or asked is None or "steadystate" in entry:
        return False
    return ran_ms < 900 * int(asked[1]) * _SECONDS[asked[2]]


def _direction(job: str, part: dict[str, Any]) -> Direction:
    if not number(part.get("io_bytes")):
        return NO_IO
    runtime_ms = number(part.get("runtime"))
    if runtime_ms is not None and runtime_ms < SHORTEST_MS:
        raise ParseError("too_short", f"fio job {job} did I/O for {runtime_ms:g} ms only: no rate")
    rate = _bytes_per_s(part)
    if not rate:
        raise ParseError("unparsable", f"fio job {job} moved bytes but states no rate")
    seconds = runtime_ms / 1000 if runtime_ms is not None else None
    mean, p99, p50 = _latency(part)
    return Direction(rate, number(part.get("iops")) or None, mean, p99, seconds, p50)


def _bytes_per_s(part: dict[str, Any]) -> Optional[float]:
    """fio 3 has ``bw_bytes``; before it only ``bw`` in KiB a second."""
    exact = number(part.get("bw_bytes"))
    if exact is not None:
        return exact
    kib = number(part.get("bw"))
    return kib * 1024 if kib is not None else None


def _latency(part: dict[str, Any]) -> tuple[Optional[float], Optional[float], Optional[float]]:
    """Mean of the whole latency, 99th and 50th percentile of the completion (or whole) latency, in ns.

    fio 3 prints ``*_ns``; fio 2 prints the same names without suffix in microseconds. Zero means that
    fio did not time the requests (``gtod_reduce``).
    """
    for suffix, to_ns in (("_ns", 1.0), ("", 1000.0)):
        total, completion = mapping(part.get(f"lat{suffix}")), mapping(part.get(f"clat{suffix}"))
        if total or completion:
            ranks = [_percentile(completion, p) or _percentile(total, p) for p in ("99", "50")]
            mean = number(total.get("mean"))
            p99, p50 = (value * to_ns if value else None for value in ranks)
            return (mean * to_ns if mean else None), p99, p50
    return None, None, None


def _percentile(latency: dict[str, Any], rank: str) -> Optional[float]:
    for key, value in mapping(latency.get("percentile")).items():
        if re.fullmatch(rf"{rank}(?:\.0+)?", key):
            return number(value)
    return None
