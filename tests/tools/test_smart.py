"""smartctl: the argv, what is beyond the fixed shape, and where a number's unit is known."""

from __future__ import annotations

import json
import re
from typing import Optional

import pytest

from agent.tools import ParseError, smart, to_json
from tests.tools.fuzz import FIXTURES


def test_argv_reads_only_and_wakes_nothing() -> None:
    assert smart.argv("/dev/sda") == ["smartctl", "-j", "-a", "-n", "standby", "/dev/sda"]


def test_fields_beyond_the_fixed_shape() -> None:
    result = smart.parse((FIXTURES / "smart--failed_exit_8.txt").read_text())
    assert (result.available_spare, result.critical_warning, result.exit_status) == (3, 4, 8)
    assert "exit_status" not in to_json(smart, result)


def test_capacity_from_the_controller_where_there_is_no_namespace() -> None:
    document = {"smartctl": {"exit_status": 0}, "model_name": "M", "nvme_total_capacity": 3840755982336}
    assert smart.parse(json.dumps(document)).capacity_bytes == 3840755982336


def test_device_statistics_come_before_attributes() -> None:
    document = {
        "smartctl": {"exit_status": 0},
        "model_name": "M",
        "logical_block_size": 4096,
        "ata_device_statistics": {
            "pages": [
                {"table": [{"name": "Logical Sectors Written", "value": 10, "flags": {"valid": True}}]},
                {"table": [{"name": "Percentage Used Endurance Indicator", "value": 7, "flags": {"valid": True}}]},
            ]
        },
    }
    result = smart.parse(json.dumps(document))
    assert (result.bytes_written, result.percentage_used) == (40960, 7)


REPORTS = ("report_nvme_failed", "report_sas_failing", "report_sata_ssd")


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_cut_at_any_line_is_refused_or_says_nothing_wrong(name: str) -> None:
    text = (FIXTURES / f"smart--{name}.txt").read_text()
    whole = to_json(smart, smart.parse(text))
    lines = text.splitlines(keepends=True)
    refused = 0
    for end in range(len(lines)):
        try:
            got = to_json(smart, smart.parse("".join(lines[:end])))
        except ParseError:
            refused += 1
            continue
        assert all(value in (None, whole[key]) for key, value in got.items())
    assert refused > len(lines) // 3


@pytest.mark.parametrize(
    ("attribute", "hours"),
    [
        ("  9 Power_On_Hours          0x0032   096   096   000    Old_age   Always       -       4273 (5 89 0)", 4273),
        ("  9 Power_On_Hours_and_Msec 0x0032   096   096   000    Old_age   Always       -       812h+03m+07.1s", 812),
        ("  9 Power_On_Half_Minutes   0x0032   096   096   000    Old_age   Always       -       77h+30m", 77),
        ("  9 Power_On_Minutes        0x0032   096   096   000    Old_age   Always       -       123456", None),
        ("  9 Unknown_Attribute       0x0032   096   096   000    Old_age   Always       -       123456", None),
    ],
)
def test_hours_only_where_the_unit_is_told(attribute: str, hours: Optional[int]) -> None:
    head = "ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE\n"
    verdict = "SMART overall-health self-assessment test result: PASSED\n\n"
    assert smart.parse(f"{verdict}{head}{attribute}\n\n").power_on_hours == hours


@pytest.mark.parametrize("separator", [",", ".", "'", "\u00a0", " "])
def test_thousands_in_any_language(separator: str) -> None:
    text = (FIXTURES / "smart--report_nvme_failed.txt").read_text()
    text = re.sub(r"(?<=\d),(?=\d{3})", separator, text)
    result = smart.parse(text)
    assert (result.power_on_hours, result.capacity_bytes) == (12345, 1000204886016)
    assert result.bytes_written == 30000001 * 512000


def test_sectors_count_only_in_the_database() -> None:
    text = (FIXTURES / "smart--report_sata_ssd.txt").read_text()
    assert smart.parse(text).bytes_written == 2000000000 * 512
    assert smart.parse(text.replace("In smartctl", "Not in smartctl")).bytes_written is None


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Smartctl open device: /dev/sda failed: Permission denied", "denied"),
        ("Smartctl open device: /dev/nvme9 failed: No such device", "open_failed"),
        ("/dev/sdb: Unknown USB bridge [0x0bda:0x9210 (0xf001)]", "unsupported"),
        ("/dev/sda [megaraid_disk_00]: Device open failed", "open_failed"),
        ("Device is in STANDBY mode, exit(2)", "standby"),
        ("=======> INVALID ARGUMENT TO -d: nvmee", "option"),
        ("Read Device Identity failed: Input/output error", "io_error"),
        ("", "truncated"),
    ],
)
def test_failures_below_the_banner(said: str, kind: str) -> None:
    banner = "smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0-13-amd64] (local build)\nCopyright (C) 2002-22\n\n"
    with pytest.raises(ParseError) as caught:
        smart.parse(f"{banner}{said}\n")
    assert caught.value.kind == kind


def test_two_reports_are_no_result() -> None:
    banner = "smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0] (local build)\n"
    with pytest.raises(ParseError) as caught:
        smart.parse(2 * (banner + "SMART overall-health self-assessment test result: PASSED\n\n"))
    assert caught.value.kind == "several_results"
