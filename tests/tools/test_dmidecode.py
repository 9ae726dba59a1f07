"""dmidecode: slots against modules, sizes, fillers."""

from __future__ import annotations

import pytest

from agent.tools import dmidecode
from tests.tools.fuzz import FIXTURES

SERVER = (FIXTURES / "dmidecode--server.txt").read_text()


def test_slots_are_not_modules() -> None:
    memory = dmidecode.parse(SERVER).memory
    assert memory is not None
    assert memory.slots == 3
    assert [module.locator for module in memory.modules] == ["DIMMA1", "DIMMB1"]
    assert memory.total_bytes == 128 << 30


def test_firmware_flash_is_no_memory() -> None:
    flash = (
        "Handle 0x1103, DMI type 17, 84 bytes\nMemory Device\n\tArray Handle: 0x1001\n\tSize: 32 MB\n"
        "\tLocator: BIOS\n\tType: Flash\n\nHandle 0xFEFF"
    )
    assert dmidecode.parse(SERVER.replace("Handle 0xFEFF", flash)).memory == dmidecode.parse(SERVER).memory


def test_a_populated_slot_of_unknown_size_leaves_the_total_open() -> None:
    memory = dmidecode.parse(SERVER.replace("Size: 65536 MB", "Size: Unknown")).memory
    assert memory is not None
    assert (memory.unknown_sizes, memory.total_bytes) == (1, None)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("64 GB", 64 << 30),
        ("4096 MB", 4 << 30),
        ("512 kB", 512 << 10),
        ("64 bytes", 64),
        ("64", None),
        ("Unknown", None),
    ],
)
def test_size_bytes(text: str, want: object) -> None:
    assert dmidecode.size_bytes(text) == want


@pytest.mark.parametrize("text", ["To Be Filled By O.E.M.", "Not Specified", " ", "None", "Default string", "0"])
def test_fillers_say_nothing(text: str) -> None:
    assert dmidecode.said(text) is None


def test_the_old_form_with_the_handle_on_a_line_of_its_own() -> None:
    text = (
        "# dmidecode 2.2\nSMBIOS 2.4 present.\n"
        "Handle 0x0100\n\tDMI type 1, 27 bytes.\n\tSystem Information\n\t\tManufacturer: Acme\n"
        "\t\tProduct Name: Blade 7\n\t\tVersion: Not Specified\n\t\tSerial Number: AC-17\n\t\tUUID: 0\n"
        "Handle 0x7F00\n\tDMI type 127, 4 bytes.\n\tEnd Of Table\n"
    )
    result = dmidecode.parse(text)
    assert result.system is not None
    assert (result.system.product, result.system.serial, result.complete) == ("Blade 7", "AC-17", True)


def test_a_running_machine_whose_slots_all_claim_to_be_empty_tells_nothing() -> None:
    slot = "Handle 0x0020, DMI type 17, 40 bytes\nMemory Device\n\tSize: No Module Installed\n\tLocator: DIMM 0\n\n"
    memory = dmidecode.parse(slot + "Handle 0x007F, DMI type 127, 4 bytes\nEnd Of Table\n").memory
    assert memory is not None
    assert (memory.slots, memory.modules, memory.total_bytes) == (1, (), None)
