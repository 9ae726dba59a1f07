"""What the XML must say beyond the fixed JSON, and the facts of the corpus."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError, smi_xml, to_json
from agent.tools._nvidia import Value
from tests.tools.nvidia import attempt, corpus, cut_readings, fixture, survives

WHOLE = fixture("smi-xml--h100-instant-draw-only")


def test_damaged_text_is_read_or_refused() -> None:
    survives(smi_xml)


@given(st.text(max_size=200), st.integers(0, len(WHOLE)))
def test_arbitrary_text_inside_is_read_or_refused(text: str, at: int) -> None:
    attempt(smi_xml.parse, WHOLE[:at] + text + WHOLE[at:])


def test_no_cut_is_read_unless_the_document_is_whole() -> None:
    want = to_json(smi_xml, smi_xml.parse(WHOLE))
    for cut, got in cut_readings(smi_xml, WHOLE, count=3000):
        assert cut.endswith("</nvidia_smi_log>")
        assert got == want


def test_a_cut_is_called_a_cut() -> None:
    for at in range(WHOLE.index("<timestamp>"), len(WHOLE) - 25, 17):
        with pytest.raises(ParseError) as caught:
            smi_xml.parse(WHOLE[:at])
        assert caught.value.kind == "truncated", WHOLE[at - 40 : at]


def test_values_beyond_the_fixed_shape() -> None:
    more = smi_xml.parse(WHOLE).gpus[0].more
    assert more.throttle_reasons == ("sw_power_cap",)
    assert (more.memory_free_mib, more.memory_temperature_c, more.power_draw_average_w) == (80079, 41, None)
    assert (more.pcie_gen_device_max, more.pcie_gen_host_max, more.pci_device_id) == (5, None, "233010DE")
    old = smi_xml.parse(fixture("smi-xml--old-tags-mig-and-errors")).gpus[0]
    assert old.more.throttle_reasons == ("gpu_idle",)
    assert [m.memory_total_mib for m in old.more.mig_devices] == [19968]
    assert old.more.ecc_corrected_aggregate == 3


def test_text_around_the_document_is_kept() -> None:
    got = smi_xml.parse(fixture("smi-xml--warning-around-document"))
    assert got.notes == ("WARNING: infoROM is corrupted at gpu 0000:3B:00.0",)
    assert [lost.pci_bus_id for lost in got.lost] == ["0000:5E:00.0"]


def test_a_lost_gpu_says_so() -> None:
    assert smi_xml.parse(fixture("smi-xml--lost-gpu-text-for-branches")).gpus[0].lost
    assert not smi_xml.parse(WHOLE).gpus[0].lost


@pytest.mark.parametrize(
    "hostile",
    [
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "x">]><nvidia_smi_log>&a;</nvidia_smi_log>\n',
        '<!DOCTYPE nvidia_smi_log [<!ENTITY % a SYSTEM "file:///etc/passwd">%a;]><nvidia_smi_log></nvidia_smi_log>\n',
        "<nvidia_smi_log>" + "<a>" * 5000 + "</a>" * 5000 + "</nvidia_smi_log>\n",
    ],
)
def test_hostile_documents_are_refused(hostile: str) -> None:
    with pytest.raises(ParseError) as caught:
        smi_xml.parse(hostile)
    assert caught.value.kind == "unparsable"


def test_a_document_of_several_megabytes_is_read_in_time() -> None:
    start, end = WHOLE.index("\t<gpu id"), WHOLE.index("</gpu>") + len("</gpu>\n")
    big = WHOLE[:start] + WHOLE[start:end] * 1500 + WHOLE[end:]
    assert len(big) > 5_000_000
    began = time.monotonic()
    assert len(smi_xml.parse(big).gpus) == 1500
    assert time.monotonic() - began < 20


def _number(text: str) -> Value:
    return None if text == "N/A" else float(text.split()[0].rstrip("x"))


def _check_facts(case: str, facts: str, got: smi_xml.SmiXml) -> None:
    gpu = got.gpus[0]
    head = re.match(r"driver=(\S+) cuda=(\S+) attached_gpus=(\d+) gpu_elements=(\d+)", facts)
    assert head, case
    assert (got.driver_version, got.cuda_version) == (head[1], head[2]), case
    assert (got.attached_gpus, len(got.gpus)) == (int(head[3]), int(head[4])), case
    values = {
        r"name=([^;]+)": gpu.product_name,
        r"ecc=(\S+)": gpu.ecc_mode,
        r"mig=(\S+)": gpu.mig_mode,
        r"virt=(\S+)": gpu.virtualization_mode,
    }
    for pattern, value in values.items():
        match = re.search(pattern, facts)
        assert match, (case, pattern)
        assert value == (None if match[1] == "N/A" else match[1]), (case, pattern)
    numbers = {
        r"fb_total=(\S+ \w+)": gpu.memory_total_mib,
        r" used=(\S+ \w+)": gpu.memory_used_mib,
        r" default=(\S+)": gpu.power_default_limit_w,
        r" limit=(\S+)": gpu.power_limit_w,
        r" max=(\S+)": gpu.power_max_limit_w,
        r" draw=([^ ;]+)": gpu.power_draw_w,
        r"pcie gen cur/max=(N/A|\d+)/": gpu.pcie_gen_current,
        r"pcie gen cur/max=(?:N/A|\d+)/(N/A|\d+)": gpu.pcie_gen_max,
        r"width cur/max=(N/A|\d+x)/": gpu.pcie_width_current,
        r"width cur/max=(?:N/A|\d+x)/(N/A|\d+x)": gpu.pcie_width_max,
        r" temp=(\S+)": gpu.temperature_c,
    }
    for pattern, found in numbers.items():
        match = re.search(pattern, facts)
        assert match, (case, pattern)
        if case == "xml38_hami_shared_slice" and re.search(r"limit|default|max", pattern):
            continue  # the manifest lists the card it was derived from, the file another limit and link
        assert found == _number(match[1]), (case, pattern)


def test_every_corpus_document() -> None:
    read = 0
    for case, (facts, text) in corpus("smi_xml").items():
        if not facts.startswith("driver=") or "attached_gpus" not in facts:
            continue
        _check_facts(case, facts, smi_xml.parse(text))
        read += 1
    assert read > 20


def test_corpus_documents_with_a_story() -> None:
    texts = {case: text for case, (_, text) in corpus("smi_xml").items()}
    healthy, lost = smi_xml.parse(texts["xml08_gb200_gpu_lost"]).gpus
    assert (healthy.ecc_uncorrected_aggregate, healthy.remapped_rows_failure) == (8, True)
    assert lost.lost
    assert lost.remapped_rows_failure == "error: GPU is lost"
    assert lost.power_limit_w == 1000.0
    unknown = smi_xml.parse(texts["xml39_unknown_error_fields"]).gpus[1]
    assert (unknown.temperature_c, unknown.memory_total_mib) == ("error: Unknown Error", 81559)
    windows = smi_xml.parse(texts["xml28_rtx2080_win_516"]).gpus[0].processes
    assert windows is not None
    assert len(windows) == 26
    assert {p.used_mib for p in windows} == {None}
    assert sum(p.name is None for p in windows) == 5
    shared = smi_xml.parse(texts["xml38_hami_shared_slice"]).gpus[0]
    assert (shared.memory_total_mib, shared.more.memory_free_mib) == (1000, 30837)
    assert smi_xml.parse(texts["xml37_vgpu_guest_unlicensed"]).gpus[0].more.license_status == "Unlicensed (Restricted)"
    assert len(smi_xml.parse(texts["xml16_a100_80g_535_mig"]).gpus[0].more.mig_devices) == 4
    assert len(smi_xml.parse(texts["xml41_warning_before_prolog"]).notes) == 1
    with pytest.raises(ParseError) as caught:
        smi_xml.parse(texts["xml42_empty"])
    assert caught.value.kind == "empty"
