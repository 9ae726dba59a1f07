"""smartctl: the argv, what is beyond the fixed shape, and where a number's unit is known."""

from __future__ import annotations

import json

from agent.tools import smart, to_json
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
