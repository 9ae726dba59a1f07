"""What the boxed table must say beyond the fixtures, and the facts of the corpus."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools import ParseError, smi_table
from tests.tools.nvidia import attempt, corpus, cut_readings, fixture, survives

ONE = fixture("smi-table--5090-other-tenant")


def test_damaged_text_is_read_or_refused() -> None:
    survives(smi_table)


@given(st.text(alphabet="|+-= 0123456789NAnvidOfMiBW/%C:.\n", max_size=300), st.integers(0, len(ONE)))
def test_arbitrary_text_inside_is_read_or_refused(text: str, at: int) -> None:
    got = attempt(smi_table.parse, ONE[:at] + text + ONE[at:])
    assert got is None or (got.gpus)


def test_a_cut_table_is_read_only_at_the_end_of_a_box() -> None:
    """Without the process table nobody can tell whether more GPUs followed: ``processes`` is then None."""
    for cut, got in cut_readings(smi_table, fixture("smi-table--lost-gpu-gap"), count=3000):
        assert got["processes"] is None
        assert re.search(r"\+[-+]+\+\s*$", cut), cut[-60:]
    for _, got in cut_readings(smi_table, ONE, count=3000):
        assert got["gpus"][0]["memory_used_mib"] == 26358


def test_memory_held_without_a_visible_process() -> None:
    got = smi_table.parse(ONE)
    assert (got.gpus[0].memory_used_mib, got.processes) == (26358, ())


def test_old_tables_without_process_box_do_not_claim_that_there_is_none() -> None:
    assert smi_table.parse(fixture("smi-table--v340-mkii-no-cuda")).processes is None


def test_every_corpus_table() -> None:
    read = 0
    for case, (facts, text) in corpus("smi_table").items():
        got = smi_table.parse(text)
        driver = re.search(r"driver(?:\(KMD\))?=([\d.]+)", facts)
        assert driver is None or got.driver_version == driver[1], case
        memory = re.search(r"(\d+)/(\d+) MiB", facts)
        if memory:
            gpu = got.gpus[0]
            assert (gpu.memory_used_mib, gpu.memory_total_mib) == (int(memory[1]), int(memory[2])), case
        power = re.search(r"(\d+)/(\d+) W", facts)
        if power:
            assert (got.gpus[0].power_draw_w, got.gpus[0].power_limit_w) == (int(power[1]), int(power[2])), case
        count = re.search(r"\bgpus=(\d+)|(\d) GPU rows|\b(1) GPU\b", facts)
        if count:
            assert len(got.gpus) == int(next(g for g in count.groups() if g)), case
        processes = re.search(r"(\d+) processes", facts)
        assert processes is None or len(got.processes or ()) == int(processes[1]), case
        mig = re.search(r"(\d+) MIG devices", facts)
        assert len(got.mig_devices) == (int(mig[1]) if mig else 0), case
        assert got.gpus[0].name_truncated == bool(re.search(r"truncated", facts, re.I)), case
        read += 1
    assert read >= 10


def test_the_mig_table_counts_only_where_the_process_table_follows() -> None:
    text = fixture("smi-table--mig-devices")
    assert len(smi_table.parse(text).mig_devices) == 1
    with pytest.raises(ParseError) as caught:
        smi_table.parse(text[: text.index("| Processes:")])
    assert caught.value.kind == "truncated"
