"""Copies on our own libcuda: rates, the link watched meanwhile, wrong data, pairs of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from agent.bench.device_copies import line_rate
from agent.bench.device_memory import Answer
from agent.bench.p2p_bandwidth import PEER_EFFORT, PeerStep, every_pair
from agent.bench.pcie_bandwidth import COPY_EFFORT, PcieStep
from agent.bench.step import Cost, Look
from agent.evidence import Store
from agent.host import ReplayHost, marked
from agent.model import Result, Taken
from agent.reading import Missing
from agent.text import msg
from tests.bench.fake_gpus import MIB, deliver, slots, small
from tests.fakenode.node import Node

QUICK = replace(COPY_EFFORT["quick"], samples=2, sample_s=0.02, warmup_s=0.06, together_s=0.1, size=4 * MIB)
COPY = dict.fromkeys(COPY_EFFORT, replace(QUICK, blocks=2))
WHOLE = dict.fromkeys(COPY_EFFORT, QUICK)
PEER = dict.fromkeys(PEER_EFFORT, replace(QUICK, warmup_s=0.01))
RATES = "* cuda.rate 400e6 200e6 300e6"  # bytes/s: host to device, device to host, on devices


def copy(
    node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch, look: Optional[Look] = None, **settings: Any
) -> Mapping[str, Result]:
    one = PcieStep(slots(node), **{"effort": COPY, **settings})
    return one.execute(deliver(node, folder, monkeypatch), look or Look())


def taken(results: Mapping[str, Result], key: str) -> Taken:
    found = results[key]
    assert isinstance(found, Taken), found
    return found


def missing(results: Mapping[str, Result], key: str) -> Missing:
    found = results[key]
    assert isinstance(found, Missing), found
    return found


# ---------------------------------------------------------------- line rates


def test_line_rates() -> None:
    known = {(1, 16): 4.0, (2, 16): 8.0, (3, 16): 15.75, (4, 16): 31.51, (5, 16): 63.02, (5, 8): 31.51, (6, 16): 121.0}
    for (generation, width), rate in known.items():
        assert line_rate(generation, width) == pytest.approx(rate, rel=1e-3)


# ---------------------------------------------------------------- host and device


def test_rates_of_each_gpu_and_the_link_under_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering(RATES)
    results = copy(node, tmp_path, monkeypatch, effort=WHOLE)
    assert set(results) == set(PcieStep(slots(node)).keys())
    for slot in slots(node):
        for way, rate in (("h2d", 0.4), ("d2h", 0.2)):
            found = taken(results, f"pcie_bandwidth.{way}@{slot}")
            assert (found.unit, found.subject, found.attempt.correct) == ("GB/s", slot, True)
            assert len(found.attempt.blocks) == 6
            for block in found.attempt.blocks:
                assert len(block.samples) == 2
                assert len(block.warmup) >= 2
                assert 0.5 * rate < block.value <= 1.02 * rate
                assert block.conditions["sm_mhz"] is not None
                assert "foreign" in block.conditions
            assert any("all GPUs at once" in str(n) for n in found.attempt.notes)
        link = taken(results, f"gpu.pcie@{slot}").attempt
        assert link.void is None
        assert {(b.conditions["generation"], b.conditions["width"]) for b in link.blocks} == {(5, 16)}
        for source in ("sysfs", "nvml"):
            assert sum(b.conditions[source]["Gen5 x16"] for b in link.blocks) >= 20


def test_the_gpus_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small()
    results = copy(node, tmp_path, monkeypatch)
    begun = sorted(
        (b.conditions["started_at"], slot)
        for slot in slots(node)
        for b in taken(results, f"pcie_bandwidth.h2d@{slot}").attempt.blocks
    )
    assert [slot for _, slot in begun] == list(slots(node)) * 2


def test_a_replay_gives_the_same_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small()
    first = copy(node, tmp_path, monkeypatch)
    assert PcieStep(slots(node), effort=COPY).execute(ReplayHost(Store(tmp_path / "run")), Look()) == first


def test_data_that_arrives_wrong_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering(f"1 cuda.flip {MIB}:0")
    results = copy(node, tmp_path, monkeypatch)
    right, wrong = (taken(results, f"pcie_bandwidth.d2h@{slot}").attempt for slot in slots(node))
    assert (right.void, right.correct) == (None, True)
    assert wrong.void is not None
    assert wrong.void.code == "wrong-result"


def test_faster_than_the_line_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1)
    results = copy(node, tmp_path, monkeypatch, bound=lambda slot: 0.001)
    void = taken(results, f"pcie_bandwidth.h2d@{slots(node)[0]}").attempt.void
    assert void is not None
    assert void.code == "above-physical-limit"


def test_a_link_too_slow_for_the_copies_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guests are shown links that are not the card's."""
    narrow = small(cards=1, change=lambda c: c.but(pcie_gen_slot=1, pcie_width=1)).answering("* cuda.rate 2e9 1e9 0")
    results = copy(narrow, tmp_path, monkeypatch)
    void = taken(results, f"gpu.pcie@{slots(narrow)[0]}").attempt.void
    assert void is not None
    assert void.code == "not-corroborated"
    assert "Gen1 x1" in str(void.text)


def test_two_sources_that_tell_different_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1).answering("0 nvmlDeviceGetCurrPcieLinkWidth 8")
    results = copy(node, tmp_path, monkeypatch)
    void = taken(results, f"gpu.pcie@{slots(node)[0]}").attempt.void
    assert void is not None
    assert void.code == "not-corroborated"
    assert "sysfs Gen5 x16 / nvml Gen5 x8" in str(void.text)


def test_one_source_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1).answering("0 nvmlDeviceGetCurrPcieLinkGeneration error NVML_ERROR_NOT_SUPPORTED")
    slot = slots(node)[0]
    attempt = taken(copy(node, tmp_path, monkeypatch), f"gpu.pcie@{slot}").attempt
    assert attempt.void is None
    assert attempt.blocks[0].conditions["source"] == "sysfs"


def test_packets_sent_again_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1)
    key = f"gpu.pcie@{slots(node)[0]}"
    quiet = taken(copy(node, tmp_path, monkeypatch), key).attempt.notes
    monkeypatch.setattr(Answer, "grown", lambda self, where, counter: {"pcie_replay": 7}.get(counter, 0))
    again = PcieStep(slots(node), effort=COPY).execute(ReplayHost(Store(tmp_path / "run")), Look())
    (told,) = set(taken(again, key).attempt.notes) - set(quiet)
    assert "7 packets" in str(told)


def test_no_source_at_all_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1).answering("0 nvmlDeviceGetCurrPcieLinkGeneration error NVML_ERROR_NOT_SUPPORTED")
    slot = slots(node)[0]
    host = deliver(node, tmp_path, monkeypatch)
    (host.root / "sys/bus/pci/devices" / slot / "current_link_speed").write_text("Unknown\n")
    results = PcieStep(slots(node), effort=COPY).execute(host, Look())
    assert missing(results, f"gpu.pcie@{slot}").kind == "unsupported"
    assert "Unknown" in str(missing(results, f"gpu.pcie@{slot}").detail)
    assert taken(results, f"pcie_bandwidth.h2d@{slot}")


def test_a_library_that_hangs_does_not_stop_the_kernels_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = small(cards=1).answering("0 nvmlDeviceGetCurrPcieLinkGeneration hang")
    slot = slots(node)[0]
    attempt = taken(copy(node, tmp_path, monkeypatch), f"gpu.pcie@{slot}").attempt
    assert (attempt.void, attempt.blocks[0].conditions["source"]) == (None, "sysfs")


def test_too_few_samples_decide_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=1)
    effort = dict.fromkeys(COPY_EFFORT, replace(QUICK, blocks=1, samples=1, sample_s=0.001, warmup_s=0.0))
    void = taken(copy(node, tmp_path, monkeypatch, effort=effort), f"gpu.pcie@{slots(node)[0]}").attempt.void
    assert void is not None
    assert void.code == "too-few-samples"


def test_one_gpu_that_fails_leaves_the_other_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering("1 cuMemAlloc error CUDA_ERROR_OUT_OF_MEMORY")
    results = copy(node, tmp_path, monkeypatch)
    first, second = slots(node)
    assert taken(results, f"pcie_bandwidth.h2d@{first}")
    assert missing(results, f"pcie_bandwidth.h2d@{second}").kind == "failed"
    assert "not enough memory" in str(missing(results, f"gpu.pcie@{second}").detail)


def test_a_hang_is_killed_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering("1 cuCtxSynchronize hang")
    monkeypatch.setattr(PcieStep, "cost", lambda self, depth: Cost(-14.9))
    host = deliver(node, tmp_path, monkeypatch)
    results = PcieStep(slots(node), effort=COPY, slack_s=5.0).execute(host, Look())
    assert {r.kind for r in results.values() if isinstance(r, Missing)} == {"timeout"}
    assert len(results) == 6
    assert marked(host.token) == []


def test_a_gpu_that_hangs_leaves_the_other_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.bench.device_copies.HANG_S", 1.5)
    node = small().answering("0 cuMemcpyDtoH hang")
    host = deliver(node, tmp_path, monkeypatch)
    results = PcieStep(slots(node), effort=COPY).execute(host, Look())
    first, second = slots(node)
    assert missing(results, f"pcie_bandwidth.h2d@{first}").kind == "timeout"
    assert "did not come back in 2 s" in str(missing(results, f"gpu.pcie@{first}").detail)
    assert len(taken(results, f"pcie_bandwidth.h2d@{second}").attempt.blocks) == 2
    assert marked(host.token) == []


def test_a_peer_that_hangs_leaves_the_others_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.bench.device_copies.HANG_S", 1.5)
    node = small(cards=3).answering("2 cuMemcpyDtoD hang")  # whoever sends to the third
    results = send(node, tmp_path, monkeypatch)
    a, b, c = slots(node)
    assert {k for k, r in results.items() if isinstance(r, Missing)} == {f"p2p_bandwidth@{s}>{c}" for s in (a, b)}


def test_only_the_gpu_that_is_wanted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small()
    second = slots(node)[1]
    results = copy(node, tmp_path, monkeypatch, Look(2, keys=frozenset({f"gpu.pcie@{second}"})))
    assert {k.partition("@")[2] for k in results} == {second}


def test_without_gpus_there_is_a_reason_for_each_clause() -> None:
    why = Missing("not-there", msg("no NVIDIA GPU is to be seen"))
    found = PcieStep(why).execute(ReplayHost.__new__(ReplayHost), Look())
    assert found == dict.fromkeys(("pcie_bandwidth.h2d", "pcie_bandwidth.d2h", "gpu.pcie"), why)
    assert PcieStep(why).cost("standard").seconds == 0


def test_the_plan_of_eight_gpus() -> None:
    eight = tuple(f"0000:{n:02x}:00.0" for n in range(8))
    assert PcieStep(eight).cost("quick").seconds < 40
    assert PcieStep(eight).cost("standard").seconds < 120
    assert PeerStep(every_pair(eight)).cost("quick").seconds < 40
    assert PeerStep(every_pair(eight)).cost("standard").seconds < 120


# ---------------------------------------------------------------- between GPUs


def send(
    node: Node, folder: Path, monkeypatch: pytest.MonkeyPatch, look: Optional[Look] = None, **settings: Any
) -> Mapping[str, Result]:
    one = PeerStep(every_pair(slots(node)), **{"effort": PEER, **settings})
    return one.execute(deliver(node, folder, monkeypatch), look or Look())


def test_every_pair_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=3).answering("2 cuda.rate 0 0 100e6", RATES)
    results = send(node, tmp_path, monkeypatch)
    assert len(results) == 6
    for a in slots(node):
        for b in slots(node):
            if a != b:
                attempt = taken(results, f"p2p_bandwidth@{a}>{b}").attempt
                assert len(attempt.blocks) == 6
                assert (attempt.correct, attempt.notes) == (True, ())
                rate = 0.1 if b == slots(node)[2] else 0.3
                assert all(0.5 * rate < block.value <= 1.02 * rate for block in attempt.blocks)


def test_without_access_the_driver_goes_through_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering("* cuDeviceCanAccessPeer* 0")
    for found in send(node, tmp_path, monkeypatch).values():
        assert isinstance(found, Taken)
        assert "through host memory" in str(found.attempt.notes[0])


def test_what_arrives_wrong_at_a_peer_is_void(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small().answering(f"1 cuda.flip {5 * MIB}:7")  # where the second card receives
    results = send(node, tmp_path, monkeypatch)
    first, second = slots(node)
    into = taken(results, f"p2p_bandwidth@{first}>{second}").attempt
    assert into.void is not None
    assert into.void.code == "wrong-result"
    assert taken(results, f"p2p_bandwidth@{second}>{first}").attempt.void is None


def test_a_pair_with_a_broken_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=3).answering("1 cuMemAlloc error CUDA_ERROR_ECC_UNCORRECTABLE")
    results = send(node, tmp_path, monkeypatch)
    a, b, c = slots(node)
    assert taken(results, f"p2p_bandwidth@{a}>{c}")
    assert "ECC" in str(missing(results, f"p2p_bandwidth@{a}>{b}").detail)
    assert "ECC" in str(missing(results, f"p2p_bandwidth@{b}>{c}").detail)


def test_only_the_pairs_wanted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = small(cards=3)
    key = f"p2p_bandwidth@{slots(node)[2]}>{slots(node)[0]}"
    assert list(send(node, tmp_path, monkeypatch, Look(2, keys=frozenset({key})))) == [key]


def test_one_gpu_has_no_pair() -> None:
    alone = every_pair(("0000:1b:00.0",))
    assert isinstance(alone, Missing)
    assert alone.kind == "not-there"
    assert PeerStep(alone).step().keys == ("p2p_bandwidth",)
