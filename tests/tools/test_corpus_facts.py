"""The facts of the corpus of real outputs, where it lies beside the checkout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable, Optional

import pytest

from agent.tools import ParseError, dd, dmesg, dmidecode, fio, iperf3, lsblk, lspci, mdstat, ping, smart
from tests.tools.fuzz import CORPUS, read_case

FOLDERS = ("fio", "iperf3", "dd", "ping", "lsblk", "mdstat", "smartctl", "dmi", "lspci", "dmesg")
REFUSED = {
    "fio11_enospc": "enospc",
    "fio12_enospc_layout": "enospc",
    "fio13_open_error": "open_failed",
    "fio14_engine_missing": "engine_missing",
    "fio15_sigint": "interrupted",
    "fio16_sigterm": "interrupted",
    "fio22_readonly_refused": "option",
    "fio24_tmpfs_no_diskutil": "too_short",
    "fio25_truncated": "truncated",
    "ip16_text_no_J": "text_output",
    "ip18_refused_3.1.3": "refused",
    "ip19_refused_3.12_rc0": "refused",
    "ip20_refused_3.16": "refused",
    "ip21_refused_3.21": "refused",
    "ip23_busy_3.1.3": "busy_server",
    "ip27_server_killed_rc0": "connection_lost",
    "ip29_sigkill_empty": "empty",
    "ip30_param_error": "parameter",
    "dd17_open_error": "open_failed",
    "dd18_open_error_zh": "open_failed",
    "dd25_usr1_then_final": "enospc",
    "ping11_dns_error": "name_error",
    "smart12_virtio_unsupported": "unsupported",
    "dmi06_permission": "denied",
}


def rows() -> Iterator[tuple[str, str, Path, str]]:
    """(id, folder, path, expected facts) of every case whose tool is one of this module's."""
    manifest = CORPUS / "MANIFEST.tsv"
    if not manifest.exists():
        return
    for line in manifest.read_text(encoding="utf-8").splitlines()[1:]:
        case, _, file, _, _, facts = line.split("\t")[:6]
        folder = file.split("/")[0]
        if folder in FOLDERS and (CORPUS / file).exists():
            yield case, folder, CORPUS / file, facts


ROWS = list(rows())
READ = [row for row in ROWS if row[0] not in REFUSED]

if not ROWS:
    pytest.skip(f"no corpus at {CORPUS}: 0 facts checked", allow_module_level=True)


def close(value: Optional[float], printed: str) -> bool:
    """Equal in the digits that the facts print."""
    digits = len(printed.partition(".")[2])
    return value is not None and abs(value - float(printed)) <= 0.51 * 10**-digits


@pytest.mark.parametrize("row", [r for r in ROWS if r[0] in REFUSED], ids=lambda r: r[0])
def test_failure_text_is_named(row: tuple[str, str, Path, str]) -> None:
    modules = {"smartctl": smart, "dmi": dmidecode, "fio": fio, "iperf3": iperf3, "dd": dd, "ping": ping}
    with pytest.raises(ParseError) as caught:
        modules[row[1]].parse(read_case(row[2]))
    assert caught.value.kind == REFUSED[row[0]]


@pytest.mark.parametrize("row", READ, ids=lambda r: r[0])
def test_facts(row: tuple[str, str, Path, str]) -> None:
    CHECKS[row[1]](read_case(row[2]), row[3], row[0])


def check_fio(text: str, facts: str, case: str) -> None:
    result = fio.parse(text)
    assert f"version={result.fio_version};" in facts
    stated = re.findall(r"; ([^;]+?): error=(\d+) (read .*?) (write [^;]*)", facts)
    assert [job.name for job in result.jobs] == [name for name, *_ in stated]
    for job, (_, error, read, write) in zip(result.jobs, stated):
        assert job.error == int(error)
        check_direction(job.read, read)
        check_direction(job.write, write)


def check_direction(got: fio.Direction, facts: str) -> None:
    if facts.endswith("none"):
        assert got == fio.NO_IO
        return
    match = re.search(r"bw=(\d+)B/s iops=([\d.]+) p99=(\d+)(ns|us)", facts)
    assert match is not None
    assert got.bytes_per_s == float(match[1])
    assert close(got.iops, match[2])
    assert got.lat_ns_p99 == int(match[3]) * (1000 if match[4] == "us" else 1)


def check_iperf3(text: str, facts: str, case: str) -> None:
    result = iperf3.parse(text)
    assert f"version={result.version};" in facts
    sent = re.search(r"sum_sent=([\d.]+) Gbit/s(?: retr=(\d+))?", facts)
    received = re.search(r"sum_received=([\d.]+) Gbit/s", facts)
    assert sent is not None
    assert received is not None
    assert result.sent_bits_per_s is not None
    assert close(result.sent_bits_per_s / 1e9, sent[1])
    assert result.retransmits == (int(sent[2]) if sent[2] else None)
    error = re.search(r"ERROR='(.*?)'", facts)
    assert result.error == (error[1] if error else None)
    if float(received[1]) == 0:
        assert result.received_bits_per_s is None
    else:
        assert result.received_bits_per_s is not None
        assert close(result.received_bits_per_s / 1e9, received[1])
    lost = re.search(r"([\d.]+) % lost", facts)
    assert (result.lost_percent is None) == (lost is None)
    assert lost is None or close(result.lost_percent, lost[1])


def check_dd(text: str, facts: str, case: str) -> None:
    result = dd.parse(text)
    if "unknown" in facts:
        assert result == dd.Dd(None, None, None)
        return
    copied, seconds = re.search(r"(\d+) bytes", facts), re.search(r"(\d+\.\d+) s\b", facts)
    assert copied is not None
    assert seconds is not None
    assert result.bytes == int(copied[1])
    assert result.seconds == float(seconds[1])
    rate = re.search(r"([\d.]+) ([kMG])B/s", facts)
    assert rate is not None
    if not result.bytes:
        assert result.bytes_per_s is None
        return
    factor = {"k": 1e3, "M": 1e6, "G": 1e9}[rate[2]]
    assert result.bytes_per_s is not None
    assert close(result.bytes_per_s / factor, rate[1])


def check_ping(text: str, facts: str, case: str) -> None:
    result = ping.parse(text)
    match = re.search(r"tx=(\d+) rx=(\d+) (?:duplicates=\d+ )?loss=([\d.]+)% rtt=([\d./]+)", facts)
    assert match is not None
    assert (result.sent, result.received, result.loss_percent) == (int(match[1]), int(match[2]), float(match[3]))
    rtt = [result.rtt_min_ms, result.rtt_avg_ms, result.rtt_max_ms, result.rtt_mdev_ms]
    stated: list[Optional[float]] = [float(value) for value in match[4].split("/")]
    assert rtt == [*stated, None][:4]


def check_mdstat(text: str, facts: str, case: str) -> None:
    result = mdstat.parse(text)
    if facts == "no arrays":
        assert result.arrays == ()
        return
    for array in result.arrays:
        stated = re.search(rf"{array.name} (.*?)(?:; md\d|$)", facts)
        assert stated is not None
        assert array.level is None or array.level in stated[1]
        assert (array.degraded is True) == bool(re.search(r"\bdegraded \[", facts))
        health = re.search(r"\[(\d+)/(\d+)\]", stated[1])
        assert (array.slots, array.working) == ((int(health[1]), int(health[2])) if health else (None, None))
        assert array.degraded is not None or health is None
        progress = re.search(r"(recovery|reshape|check)(?:, printed)? ([\d.]+)%", stated[1])
        if progress:
            assert (array.action, array.progress_percent) == (progress[1], float(progress[2]))


def check_smart(text: str, facts: str, case: str) -> None:
    result = smart.parse(text)
    stated = dict(re.findall(r"(\w+)=([^;]+)", facts))
    assert result.model == stated["model"]
    assert str(result.passed) == stated["passed"]
    assert result.protocol == stated["protocol"]
    fields = {
        "power_on_hours": result.power_on_hours,
        "percentage_used": result.percentage_used,
        "bytes_written": result.bytes_written,
        "media_errors": result.media_errors,
        "unsafe_shutdowns": result.unsafe_shutdowns,
        "temperature": result.temperature_c,
        "available_spare": result.available_spare,
        "critical_warning": result.critical_warning,
        "capacity": result.capacity_bytes,
    }
    for name, value in fields.items():
        assert value == (int(stated[name].split()[0]) if name in stated else None), name


def check_dmi(text: str, facts: str, case: str) -> None:
    result = dmidecode.parse(text)
    system = re.search(r"system=(.*?) / (.*?);", facts)
    assert system is not None
    assert result.system is not None
    assert (result.system.manufacturer, result.system.product) == (system[1], system[2])
    slots = re.search(r"(\d+) memory device sections, ONE populated: (\d+) MB", facts)
    if slots is None:
        assert result.memory is None
        assert "memory unknown" in facts
        return
    assert result.memory is not None
    assert result.memory.slots == int(slots[1])
    assert [module.size_bytes for module in result.memory.modules] == [int(slots[2]) << 20]
    assert result.memory.total_bytes == int(slots[2]) << 20
    assert result.processors is not None
    assert result.processors.sockets == 128
    assert sum(processor.enabled for processor in result.processors.populated) == 1


def check_lspci(text: str, facts: str, case: str) -> None:
    devices = {device.slot: device for device in lspci.parse(text).devices}
    if case == "lspci11_rev_ff_fallen":
        assert devices["5f:00.0"].dead
        assert devices["5f:00.0"].link_sta is None
        return
    if case == "lspci12_vm_no_linkspeed":
        assert devices["00:06.0"].link_sta == lspci.Link(None, None)
        assert devices["00:06.0"].downgraded is None
        return
    if case == "lspci13_acs_on":
        acs = devices["00:03.1"].acs
        assert acs is not None
        assert acs.redirects
        assert {"SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"} == set(acs.enabled)
        return
    stated = re.findall(r"(\w\w:\w\w\.\w) cap ([\d.]+)GT/s/x(\d+) sta ([\d.]+)GT/s \((\w+)\)/x(\d+) \((\w+)\)", facts)
    assert stated
    for slot, cap_speed, cap_width, speed, speed_mark, width, width_mark in stated:
        device = devices[slot]
        assert device.link_cap == lspci.Link(float(cap_speed), int(cap_width))
        assert device.link_sta == lspci.Link(float(speed), int(width), speed_mark, width_mark)
        assert device.downgraded == ("downgraded" in (speed_mark, width_mark))


def check_dmesg(text: str, facts: str, case: str) -> None:
    result = dmesg.parse(text)
    stated = [
        (int(number), slot)
        for number, slot in re.findall(r"(?<![\w/])(?:Xid )?(\d+) (?:on |@)([\da-f]{4}:[\da-f:]+)", facts)
    ]
    if case == "dmesg16_journal_prefix":
        stated = [(48, "0000:a1:00"), (64, "0000:a1:00")]
        assert {xid.class_ for xid in result.xids} == {"hardware"}
    assert [(xid.xid, xid.pci) for xid in result.xids] == stated
    lines = re.search(r"(\d+) lines(?: in all)?", facts)
    if lines and "peermem" not in facts:
        assert result.lines == int(lines[1])
    kinds = [event.kind for event in result.events]
    assert kinds.count("segfault") == (2 if "2 segfault lines" in facts else 0)
    assert kinds.count("peermem") == (7 if "peermem" in facts else 0)
    fallen = [event.pci for event in result.events if event.kind == "fallen_off_bus"]
    assert fallen == (["0000:b3:00"] if "lost at probe" in facts else [])


def check_lsblk(text: str, facts: str, case: str) -> None:
    result = lsblk.parse(text)
    disks = lsblk.disks(result)
    stated = re.search(r"(\d+) disks?:?", facts)
    assert stated is not None
    empty = [device for device in result.devices if device.type == "disk" and device.size_bytes == 0]
    assert len(disks) + len(empty) == int(stated[1])
    loops = re.search(r"(\d+) loop", facts)
    assert loops is None or sum(device.type == "loop" for device in result.devices) == int(loops[1])
    names = [device.name for device in result.devices]
    assert len(names) == len(set(names))
    sizes = {device.size_bytes for device in disks if device.size_exact}
    assert sizes <= {int(size) for size in re.findall(r"(\d{9,}) B", facts)} | (
        {1920383410176, 15360950534144, 7681501126656} if case == "lsblk06_lvm" else set()
    )
    printed = {device.size_text for device in disks if not device.size_exact}
    assert printed <= set(re.findall(r'"([\d.]+[BMGT])"', facts)) | {None}
    if "rota not in the text" in facts or "rota false" in facts:
        want = None if "rota not in the text" in facts else False
        assert {device.rotational for device in disks} == {want}


CHECKS: dict[str, Callable[[str, str, str], Any]] = {
    "fio": check_fio,
    "iperf3": check_iperf3,
    "dd": check_dd,
    "ping": check_ping,
    "mdstat": check_mdstat,
    "smartctl": check_smart,
    "dmi": check_dmi,
    "lspci": check_lspci,
    "dmesg": check_dmesg,
    "lsblk": check_lsblk,
}
