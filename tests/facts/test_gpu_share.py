from __future__ import annotations

from typing import Any, Optional

import pytest

from agent.facts import Asked, gpu_share, gpus
from agent.facts._source import Process, Source
from agent.facts.gpu_share import Sign
from agent.facts.gpus import Gpu
from agent.reading import Known, Missing, Reading
from agent.text import msg
from agent.tools import ParseError
from tests.facts.fake import Start
from tests.facts.node import Node, missing, value
from tests.fakenode import healthy, wrong
from tests.fakenode.node import Node as FakeNode

NONE = Missing("unsupported", msg("not told"))


def signs(start: Start, node: FakeNode) -> tuple[Sign, ...]:
    host = start(node)
    found = gpus.collect(host, Asked())
    return gpu_share.signs(gpu_share.collect(host, Asked()), found)


def test_a_whole_card_shows_no_sign(start: Start) -> None:
    assert signs(start, healthy.h100()) == ()


def test_a_hami_slice_shows_itself(start: Start) -> None:
    found = signs(start, wrong.hami(healthy.h100()))
    assert {s.kind for s in found} == {"hami"}
    assert all(s.evidence and str(s.what) for s in found)


@pytest.mark.parametrize(
    ("name", "setting", "kind"),
    [
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "8000m", "hami"),
        ("ALIYUN_COM_GPU_MEM_CONTAINER", "8", "cgpu"),
        ("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50", "mps"),
        ("LD_PRELOAD", "/opt/x.so:/usr/local/vgpu/libvgpu.so.v1", "hami"),
    ],
)
def test_settings_of_the_environment(name: str, setting: str, kind: str, start: Start) -> None:
    found = gpus.collect(start(healthy.vm()), Asked())
    told = gpu_share._settings({name: setting, "CUDA_VISIBLE_DEVICES": "0"}, found.library.evidence)
    assert [s.kind for s in told] == [kind]


def test_preloaded_files(node: Node) -> None:
    host = node.write({"/etc/ld.so.preload": "# a comment\n/usr/lib/one.so /usr/lib/two.so\n"}).host()
    assert value(gpu_share.collect(host, Asked()).preload) == ("/usr/lib/one.so", "/usr/lib/two.so")


def test_no_such_file_is_no_preloading(node: Node) -> None:
    facts = gpu_share.collect(node.host(), Asked())
    assert value(facts.preload) == ()
    assert value(facts.marks) == {}
    missing(facts.daemons, "no-tool")
    missing(gpu_share.collect(Node.replay(node), Asked()).daemons, "no-tool")


def test_not_recorded(node: Node) -> None:
    facts = gpu_share.collect(node.replay(), Asked())
    for reading in (facts.preload, facts.marks, facts.daemons, facts.persistenced):
        missing(reading, "not-recorded")


def test_daemons() -> None:
    """The kernel cuts names to 15 characters."""
    found = gpu_share.daemons("    1 systemd\n 4242 nvidia-cuda-mps\n 4243 nv-fabricmanage\n")
    assert found["nv-fabricmanager"]
    assert found["nvidia-cuda-mps"]
    assert not found["nvidia-persistenced"]
    with pytest.raises(ParseError):
        gpu_share.daemons("ps: unrecognized option: e\n")


def card(used: Reading[Any], processes: Reading[Any]) -> Gpu:
    source = Source("nvml", {"memory_used_mib": used, "processes": processes})
    empty = Source("smi", {}, NONE)
    return Gpu("0000:01:00.0", NONE, NONE, source, empty, empty, empty, empty)


def known(*used: Optional[float]) -> Known[tuple[Process, ...]]:
    return Known(tuple(Process(n, "compute", mib) for n, mib in enumerate(used)), ("evidence/1",))


def test_memory_without_an_owner() -> None:
    assert value(gpu_share.unowned(card(Known(1000.0, ("evidence/1",)), known(600.0, 300.0)))) == 100
    assert value(gpu_share.unowned(card(Known(1000.0, ("evidence/1",)), known()))) == 1000
    assert value(gpu_share.unowned(card(Known(10.0, ("evidence/1",)), known(12.0)))) == 0
    missing(gpu_share.unowned(card(Known(1000.0), known(None))), "unsupported")
    missing(gpu_share.unowned(card(NONE, known())), "unsupported")


def test_memory_without_an_owner_on_the_fake_node(start: Start) -> None:
    node = wrong.memory_without_owner(healthy.h100(), 4)
    found = gpus.collect(start(node), Asked())
    silent = [g.slot for g in found.gpus if value(gpu_share.unowned(g)) > gpu_share.FIRMWARE_MIB]
    assert silent == [node.cards[4].slot]


def test_firmware_memory_is_nobodys(start: Start) -> None:
    found = gpus.collect(start(wrong.firmware_memory(healthy.h100())), Asked())
    assert all(0 < value(gpu_share.unowned(g)) < gpu_share.FIRMWARE_MIB for g in found.gpus)


def test_somebodys_process(start: Start) -> None:
    node = wrong.occupied(healthy.h100(), 4)
    found = gpus.collect(start(node), Asked())
    busy = [g.slot for g in found.gpus if value(g.nvml.get("processes"))]
    assert busy == [node.cards[4].slot]
    assert value(gpu_share.unowned(found.gpus[4])) < gpu_share.FIRMWARE_MIB
