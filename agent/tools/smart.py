"""smartctl: what a disk says about itself: health, age, wear.

Source command: ``smartctl -j -a DEVICE`` (:func:`argv`), smartctl 7.0 and later. Exit status 8 and the like
say that the *drive* fails; the JSON is whole then. The report for people (without ``-j``) is read too.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Optional

from agent.tools import ParseError, _shell, _smart_text
from agent.tools._text import clean, first_line, integer, mapping, objects, one_document, recognise, text_or_none

KIND = "smart"
# A disk in standby takes seconds to answer; a dying one takes its time-outs.
TIMEOUT_S = 60.0
_SIGN = re.compile(r"smartctl|SMART")

_FIXED = (
    "model", "serial", "protocol", "passed", "power_on_hours", "percentage_used", "bytes_written",
    "media_errors", "unsafe_shutdowns", "temperature_c",
)  # fmt: skip
# NVMe counts "data units" of 1000 blocks of 512 bytes.
_NVME_UNIT = 512_000
# Names that smartctl gives attributes whose unit is in the name.
_WRITTEN_ATTRIBUTES = {"Host_Writes_32MiB": 32 << 20, "Host_Writes_GiB": 1 << 30, "Total_Writes_GiB": 1 << 30}

_FAILURES: tuple[tuple[str, str], ...] = (
    (r"Permission denied|not permitted|requires root|must be root", "denied"),
    (
        r"Unable to detect device type|Unknown USB bridge|specify device type|Try an additional"
        r"|Not supported|unsupported",
        "unsupported",
    ),
    (r"No such device|No such file|open device.{0,300}failed|[Oo]pen failed|not a block", "open_failed"),
    (r"Input/output error", "io_error"),
    (r"unrecognized option|invalid option|INVALID ARGUMENT|UNRECOGNIZED OPTION", "option"),
    (r"STANDBY mode|SLEEP mode", "standby"),
)


@dataclass(frozen=True)
class Smart:
    """One disk; None is "not printed". Bytes, hours, degrees Celsius.

    ``percentage_used`` is the drive's own estimate of its wear (may pass 100), ``passed`` the drive's own
    verdict. ``available_spare`` in percent; ``rotation_rpm`` 0 is an SSD; ``exit_status`` is smartctl's
    bit mask (bits 3-7 are about the drive).
    """

    model: Optional[str]
    serial: Optional[str]
    protocol: Optional[str]
    passed: Optional[bool]
    power_on_hours: Optional[int]
    percentage_used: Optional[int]
    bytes_written: Optional[int]
    media_errors: Optional[int]
    unsafe_shutdowns: Optional[int]
    temperature_c: Optional[int]
    device: Optional[str]
    capacity_bytes: Optional[int]
    available_spare: Optional[int]
    critical_warning: Optional[int]
    rotation_rpm: Optional[int]
    exit_status: Optional[int]


def argv(device: str) -> list[str]:
    """Read only: no self-test is started, a sleeping disk is left asleep."""
    return ["smartctl", "-j", "-a", "-n", "standby", device]


def parse(text: str) -> Smart:
    """One disk's report.

    Raises :class:`ParseError`: ``denied``, ``unsupported`` (a virtual disk, an unknown bridge),
    ``open_failed``, ``truncated``, ``standby``, ``empty``, ``unparsable``.
    """
    recognise(text, "smartctl", _SIGN)
    text = clean(text)
    if not re.search(r"^[^\S\n]*\{", text, re.MULTILINE):
        return _from_report(text)
    document = one_document(text, "smartctl")
    run = document.get("smartctl")
    if not isinstance(run, dict):
        raise ParseError("unparsable", "JSON, but not of smartctl", first_line(text))
    if _says_nothing(document):
        raise _failure(run)
    return _disk(document, run)


def to_json(result: Smart) -> dict[str, Any]:
    """The fixed shape of ``accept parse smart``."""
    whole = asdict(result)
    return {key: whole[key] for key in _FIXED}


def _not_json(text: str) -> ParseError:
    if not text.strip():
        return ParseError("empty", "no smartctl output: the text is empty")
    shell = _shell.failure(text, "smartctl")
    if shell is not None and shell.kind in ("broken_tool", "tool_missing"):
        return shell
    for pattern, kind in _FAILURES:
        line = next((li for li in text.splitlines() if re.search(pattern, li)), None)
        if line is not None:
            return ParseError(kind, f"smartctl failed ({kind})", line.strip())
    if _smart_text.is_report(text):
        return ParseError("truncated", "smartctl's report stops before it says anything of a disk", first_line(text))
    return shell or ParseError("unparsable", "not smartctl output", first_line(text))


def _from_report(text: str) -> Smart:
    """The report for people. What it does not print, or prints in a drive's own unit, stays unknown."""
    if not _smart_text.is_report(text):
        raise _not_json(text)
    report = _smart_text.read(text)
    if not (report.attributes or report.statistics or any(label in report.values for label in _REPORTED)):
        raise _not_json(text)
    vendor, product = report.text("vendor"), report.text("product")
    scsi_name = " ".join(part for part in (vendor, product) if part) or None
    return Smart(
        model=report.text("device model", "model number") or scsi_name,
        serial=report.text("serial number"),
        protocol=report.protocol,
        passed=_reported_verdict(report.text(*_VERDICTS)),
        power_on_hours=_reported_hours(report),
        percentage_used=_first(
            report.count("percentage used", "percentage used endurance indicator"),
            report.statistics.get("Percentage Used Endurance Indicator"),
        ),
        bytes_written=_reported_bytes(report),
        media_errors=report.count("media and data integrity errors"),
        unsafe_shutdowns=report.count("unsafe shutdowns"),
        temperature_c=_reported_temperature(report),
        device=None,
        capacity_bytes=report.count("user capacity", "total nvm capacity", "namespace 1 size/capacity"),
        available_spare=report.count("available spare"),
        critical_warning=_hexadecimal(report.text("critical warning")),
        rotation_rpm=0 if report.text("rotation rate") == "Solid State Device" else report.count("rotation rate"),
        exit_status=None,
    )


_VERDICTS = ("smart overall-health self-assessment test result", "smart health status")
_REPORTED = (*_VERDICTS, "device model", "model number", "product", "serial number", "critical warning")


def _reported_verdict(said: Optional[str]) -> Optional[bool]:
    """A SCSI disk that fails prints why in place of OK."""
    if said is None or said.upper().startswith("UNKNOWN"):
        return None
    return said in ("PASSED", "OK")


def _reported_hours(report: _smart_text.Report) -> Optional[int]:
    """Whole hours; attribute 9 counts minutes or seconds on some drives and then prints ``1234h+05m``."""
    raw = report.raw(9, "Power_On_Hours") or ""
    timed = re.match(r"(\d{1,9})h\+", raw or report.raw(9, "Power_On_") or "")
    plain = re.match(r"(\d{1,9})(?=$| )", raw)
    found = timed or plain
    return _first(report.count("power on hours"), int(found[1]) if found else None)


def _reported_temperature(report: _smart_text.Report) -> Optional[int]:
    printed = report.text("temperature", "current drive temperature", "current temperature")
    raw = report.raw(194, "Temperature_Celsius") or report.raw(190, "Airflow_Temperature")
    match = re.match(r"(-?\d{1,3})(?=$| )", printed or raw or "")
    return int(match[1]) if match else None


def _reported_bytes(report: _smart_text.Report) -> Optional[int]:
    """As :func:`_bytes_written`, from the same places."""
    units = report.count("data units written")
    if units is not None:
        return units * _NVME_UNIT
    sizes = re.match(r"(\d{3,5}) bytes", report.text("sector size", "sector sizes", "logical block size") or "")
    block = int(sizes[1]) if sizes else None
    sectors = report.statistics.get("Logical Sectors Written")
    if sectors is not None and block is not None:
        return sectors * block
    factors = dict(_WRITTEN_ATTRIBUTES)
    if (report.text("device is") or "").startswith("In smartctl database") and block is not None:
        factors["Total_LBAs_Written"] = block
    for (_, name), raw in report.attributes.items():
        if name in factors and re.fullmatch(r"\d{1,15}", raw):
            return int(raw) * factors[name]
    return None


def _hexadecimal(said: Optional[str]) -> Optional[int]:
    return int(said, 16) if said is not None and re.fullmatch(r"0x[0-9a-fA-F]{1,4}", said) else None


def _says_nothing(document: dict[str, Any]) -> bool:
    known = ("model_name", "scsi_model_name", "product", "serial_number", "smart_status", "user_capacity")
    return not any(key in document for key in known)


def _failure(run: dict[str, Any]) -> ParseError:
    messages = [str(message.get("string")) for message in objects(run.get("messages"))]
    said = "; ".join(messages) or f"exit status {run.get('exit_status')}"
    kind = next((kind for pattern, kind in _FAILURES if re.search(pattern, said)), "failed")
    return ParseError(kind, "smartctl read nothing from the device", said)


def _disk(document: dict[str, Any], run: dict[str, Any]) -> Smart:
    nvme = mapping(document.get("nvme_smart_health_information_log"))
    device = mapping(document.get("device"))
    passed = mapping(document.get("smart_status")).get("passed")
    return Smart(
        model=_model(document),
        serial=text_or_none(document.get("serial_number")),
        protocol=text_or_none(device.get("protocol")),
        passed=passed if isinstance(passed, bool) else None,
        power_on_hours=_first(mapping(document.get("power_on_time")).get("hours"), nvme.get("power_on_hours")),
        percentage_used=_percentage_used(document, nvme),
        bytes_written=_bytes_written(document, nvme),
        media_errors=integer(nvme.get("media_errors")),
        unsafe_shutdowns=integer(nvme.get("unsafe_shutdowns")),
        temperature_c=_first(mapping(document.get("temperature")).get("current"), nvme.get("temperature")),
        device=text_or_none(device.get("name")),
        capacity_bytes=_capacity(document),
        available_spare=integer(nvme.get("available_spare")),
        critical_warning=integer(nvme.get("critical_warning")),
        rotation_rpm=integer(document.get("rotation_rate")),
        exit_status=integer(run.get("exit_status")),
    )


def _first(*values: Any) -> Optional[int]:
    return next((found for value in values if (found := integer(value)) is not None), None)


def _model(document: dict[str, Any]) -> Optional[str]:
    names = (document.get(key) for key in ("model_name", "scsi_model_name", "product"))
    return next((name for value in names if (name := text_or_none(value))), None)


def _capacity(document: dict[str, Any]) -> Optional[int]:
    """Data-centre NVMe with many namespaces print only the controller's total."""
    return _first(
        mapping(document.get("user_capacity")).get("bytes"),
        document.get("nvme_total_capacity"),
    )


def _percentage_used(document: dict[str, Any], nvme: dict[str, Any]) -> Optional[int]:
    return _first(
        nvme.get("percentage_used"),
        mapping(document.get("endurance_used")).get("current_percent"),
        document.get("scsi_percentage_used_endurance_indicator"),
        _statistic(document, "Percentage Used Endurance Indicator"),
    )


def _bytes_written(document: dict[str, Any], nvme: dict[str, Any]) -> Optional[int]:
    """From NVMe units, the standard ATA statistics, or an attribute whose name states its unit.

    ``Total_LBAs_Written`` is read only for drives in smartctl's database: on others the name is a guess
    and the unit with it.
    """
    units = integer(nvme.get("data_units_written"))
    if units is not None:
        return units * _NVME_UNIT
    block = integer(document.get("logical_block_size"))
    sectors = _statistic(document, "Logical Sectors Written")
    if sectors is not None and block is not None:
        return sectors * block
    factors = dict(_WRITTEN_ATTRIBUTES)
    if document.get("in_smartctl_database") is True and block is not None:
        factors["Total_LBAs_Written"] = block
    for attribute in objects(mapping(document.get("ata_smart_attributes")).get("table")):
        factor = factors.get(str(attribute.get("name")))
        raw = integer(mapping(attribute.get("raw")).get("value"))
        if factor is not None and raw is not None:
            return raw * factor
    return None


def _statistic(document: dict[str, Any], name: str) -> Optional[int]:
    """A value of the ATA device statistics log (``-x`` or ``-l devstat``)."""
    for page in objects(mapping(document.get("ata_device_statistics")).get("pages")):
        for row in objects(page.get("table")):
            if row.get("name") == name and mapping(row.get("flags")).get("valid", True):
                return integer(row.get("value"))
    return None
