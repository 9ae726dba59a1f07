"""The fake node itself: its C builds clean, real pynvml reads it, every way to fail works, its files are sysfs's."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from agent import contract
from agent.checks import grammars
from tests.fakenode import healthy, wrong
from tests.fakenode.children import cuda, nvml, smi
from tests.fakenode.libs import HERE, PRODUCTS, compile_one
from tests.fakenode.node import Built, Node, build

MIB = 1 << 20
PYNVML = import_module("pynvml")  # has no types
CODES: dict[str, int] = {k: v for k, v in vars(PYNVML).items() if k.startswith("NVML_ERROR_") and isinstance(v, int)}
Make = Callable[[Node], Built]


@pytest.fixture(scope="module")
def h100(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(healthy.h100(), tmp_path_factory.mktemp("h100") / "node")


@pytest.fixture
def made(tmp_path: Path) -> Make:
    return lambda node: build(node, tmp_path / "node")


# --- C ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("product", sorted(PRODUCTS))
def test_c_builds_without_a_warning(product: str, tmp_path: Path) -> None:
    compile_one(HERE / PRODUCTS[product], tmp_path / product)
    assert (tmp_path / product).read_bytes().startswith(b"\x7fELF")


def test_a_warning_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "unused.c"
    source.write_text("int main(void) { int unused; return 0; }\n")
    with pytest.raises(RuntimeError, match="unused"):
        compile_one(source, tmp_path / "unused.so")


def test_nothing_that_changes_a_card_can_be_called(h100: Built) -> None:
    calls = ("SetPowerManagementLimit", "SetMigMode", "ClearEccErrorCounts", "SetGpuLockedClocks", "SetEccMode")
    symbols = [f"nvmlDevice{call}" for call in calls]
    found = nvml(h100, f"[hasattr(n.nvmlLib, s) for s in {symbols!r}]")
    assert found["gpus"][0] == [False] * len(symbols)


# --- NVML ------------------------------------------------------------------------------------------------


def test_the_agents_probe_reads_eight_gpus_in_time(h100: Built) -> None:
    probe = HERE.parents[1] / "agent" / "probes" / "nvml_probe.py"
    argv = [sys.executable, "-I", str(probe), str(Path(str(PYNVML.__file__)).parent), "5"]
    begun = time.monotonic()
    done = subprocess.run(argv, env=h100.environment(), capture_output=True, text=True, timeout=20, check=True)
    assert time.monotonic() - begun < 1.5
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    gpus = [line for line in lines if "gpu" in line]
    assert lines[-1] == {"done": True}
    assert [gpu["name"] for gpu in gpus] == ["NVIDIA H100 80GB HBM3"] * 8
    assert [gpu["uuid"] for gpu in gpus] == [card.uuid for card in h100.node.cards]
    refused = {name: v["error"] for name, v in gpus[0].items() if isinstance(v, dict) and "error" in v}
    unsupported = {"retired_pages", "retired_pending", "vgpu_license"}
    assert refused == dict.fromkeys(unsupported, "NVML_ERROR_NOT_SUPPORTED")


@pytest.mark.parametrize("name", sorted(CODES))
def test_every_error_by_its_name(name: str, made: Make) -> None:
    built = made(healthy.vm().answering(f"0 nvmlDeviceGetName error {name}"))
    found = nvml(built, "tried(n.nvmlDeviceGetName, h)")["gpus"][0]
    assert found["error"] == CODES[name]
    assert found["text"] != ""


def test_one_call_of_one_card_sleeps(made: Make) -> None:
    built = made(healthy.vm().answering("0 nvmlDeviceGetPowerUsage sleep 300 5000"))
    begun = time.monotonic()
    assert nvml(built, "n.nvmlDeviceGetPowerUsage(h)")["gpus"] == [5000]
    assert time.monotonic() - begun >= 0.3


def test_one_call_hangs_and_what_came_before_is_there(made: Make) -> None:
    built = made(wrong.nvml_hangs(healthy.h100()))
    with pytest.raises(subprocess.TimeoutExpired) as error:
        nvml(built, "n.nvmlDeviceGetPowerUsage(h)", timeout_s=3)
    assert (error.value.stderr or b"").count(b"\n") == 3
    assert len(nvml(built, "n.nvmlDeviceGetName(h)")["gpus"]) == 8


def test_a_library_that_cannot_start(made: Make) -> None:
    found = nvml(made(wrong.mismatch(healthy.h100())), "None")
    assert found["init"]["error"] == CODES["NVML_ERROR_LIB_RM_VERSION_MISMATCH"]


def test_a_lost_card_leaves_seven(made: Make) -> None:
    found = nvml(made(wrong.lost(healthy.h100())), "n.nvmlDeviceGetUUID(h)")["gpus"]
    assert found[3]["error"] == CODES["NVML_ERROR_GPU_IS_LOST"]
    assert sum(isinstance(uuid, str) for uuid in found) == 7


def test_the_first_line_that_fits_counts(made: Make) -> None:
    node = healthy.h100().answering("2 nvmlDeviceGetName first", "* nvmlDeviceGetN* error NVML_ERROR_UNKNOWN")
    found = nvml(made(node), "tried(n.nvmlDeviceGetName, h)")["gpus"]
    assert found[2] == "first"
    assert found[1]["error"] == CODES["NVML_ERROR_UNKNOWN"]


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "NO_PERMISSION", "UNKNOWN"])
def test_a_mute_card_opens_and_says_nothing(error: str, made: Make) -> None:
    built = made(wrong.mute(healthy.vm(), error))
    calls = "(n.nvmlDeviceGetName, n.nvmlDeviceGetMemoryInfo, n.nvmlDeviceGetPciInfo, n.nvmlDeviceGetEccMode)"
    found = nvml(built, f"[tried(call, h)['error'] for call in {calls}]")["gpus"][0]
    assert found == [CODES[f"NVML_ERROR_{error}"]] * 4


STRUCTURES = {
    "memory, version 1 counts the reserve as used": (
        "(lambda m: [m.total, m.free, m.used])(n.nvmlDeviceGetMemoryInfo(h))",
        [81559 * MIB, 81079 * MIB, 480 * MIB],
    ),
    "memory, version 2": (
        "(lambda m: [m.total, m.reserved, m.free, m.used])(n.nvmlDeviceGetMemoryInfo(h, n.nvmlMemory_v2))",
        [81559 * MIB, 480 * MIB, 81079 * MIB, 0],
    ),
    "memory, a version to come": (
        "tried(n.nvmlDeviceGetMemoryInfo, h, 0x03000030)['error']",
        CODES["NVML_ERROR_ARGUMENT_VERSION_MISMATCH"],
    ),
    "slot": (
        "(lambda p: [p.busId, p.busIdLegacy, p.bus, p.pciDeviceId, p.pciSubSystemId])(n.nvmlDeviceGetPciInfo(h))",
        ["00000000:1B:00.0", "0000:1B:00.0", 0x1B, 0x2330_10DE, 0x16C1_10DE],
    ),
    "handle by slot": ("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId('00000000:43:00.0'))", 1),
    "handle by UUID": ("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h)))", 0),
    "no such card": ("tried(n.nvmlDeviceGetHandleByIndex, 8)['error']", CODES["NVML_ERROR_INVALID_ARGUMENT"]),
    "remapped rows": ("n.nvmlDeviceGetRemappedRows(h)", [0, 0, 0, 0]),
    "recovery action": ("n.nvmlDeviceGetFieldValues(h, [230])[0].value.uiVal", 0),
    "an unknown field": ("n.nvmlDeviceGetFieldValues(h, [9])[0].nvmlReturn", CODES["NVML_ERROR_NOT_SUPPORTED"]),
    "fabric, version 3": (
        "(lambda f: (n.nvmlDeviceGetGpuFabricInfoV(h, byref(f)), f.state, f.status, f.healthSummary))"
        "(n.c_nvmlGpuFabricInfo_v3_t())",
        [0, 3, 0, 1],
    ),
    "fabric, version 2": (
        "(lambda f: (n.nvmlDeviceGetGpuFabricInfoV(h, byref(f)), f.state))(n.c_nvmlGpuFabricInfo_v2_t())",
        [0, 3],
    ),
    "links": ("[n.nvmlDeviceGetNvLinkState(h, link) for link in range(18)]", [1] * 18),
    "a link too many": ("tried(n.nvmlDeviceGetNvLinkState, h, 18)['error']", CODES["NVML_ERROR_INVALID_ARGUMENT"]),
    "what is at the end of a link": (
        "(n.nvmlDeviceGetNvLinkRemoteDeviceType(h, 5), n.nvmlDeviceGetNvLinkRemotePciInfo(h, 5).pciDeviceId)",
        [2, 0x22A3_10DE],
    ),
    "link errors": ("[n.nvmlDeviceGetNvLinkErrorCounter(h, 0, c) for c in range(5)]", [0] * 5),
    "peers": ("n.nvmlDeviceGetP2PStatus(h, n.nvmlDeviceGetHandleByIndex((i + 1) % 8), 0)", 0),
    "both names of the reasons": (
        "(n.nvmlDeviceGetCurrentClocksEventReasons(h), n.nvmlDeviceGetCurrentClocksThrottleReasons(h))",
        [1, 1],
    ),
    "nearest NUMA node": ("list(n.nvmlDeviceGetMemoryAffinity(h, 1, 0))", [1]),
    "nobody": ("n.nvmlDeviceGetComputeRunningProcesses(h)", []),
    "infoROM": ("n.nvmlDeviceValidateInforom(h)", None),
    "root only": (
        "tried(n.nvmlDeviceGetSramEccErrorStatus, h, None)['error']",
        CODES["NVML_ERROR_NO_PERMISSION"],
    ),
}


def test_calls_with_structures_of_their_own(h100: Built) -> None:
    asked = ", ".join(f"{name!r}: {expression}" for name, (expression, _) in STRUCTURES.items())
    first = nvml(h100, f"{{{asked}}}")["gpus"][0]
    assert first == {name: expected for name, (_, expected) in STRUCTURES.items()}


def test_processes_and_pages(made: Make) -> None:
    node = wrong.occupied(healthy.h100()).answering(
        "0 nvmlDeviceGetComputeRunningProcesses 7:- 8:512", "0 nvmlDeviceGetRetiredPages.1 0x1000 0x2000"
    )
    processes = "[[p.pid, p.usedGpuMemory] for p in n.nvmlDeviceGetComputeRunningProcesses(h)]"
    pages = "tried(n.nvmlDeviceGetRetiredPages, h, 1)"
    found = nvml(made(node), f"[{processes}, {pages}, [n.nvmlSystemGetProcessName(31415)]]")["gpus"]
    assert found[0] == [[[7, None], [8, 512 * MIB]], [0x1000, 0x2000], ["/opt/conda/bin/python3"]]
    assert found[4][0] == [[31415, 60210 * MIB]]


def test_events_come_once(made: Make) -> None:
    node = healthy.vm().answering("- nvmlEventSetWait 0 79")
    code = (
        "(lambda s: [(lambda e: [e.eventType, e.eventData])(n.nvmlEventSetWait(s, 10)),"
        " tried(n.nvmlEventSetWait, s, 10)['error']])(n.nvmlEventSetCreate())"
    )
    assert nvml(made(node), code)["gpus"][0] == [[8, 79], CODES["NVML_ERROR_TIMEOUT"]]


@pytest.mark.parametrize("licensed", [True, False])
def test_a_guests_licence(licensed: bool, made: Make) -> None:
    built = made(wrong.vgpu(healthy.vm(), licensed=licensed))
    asked = "n.nvmlDeviceGetGridLicensableFeatures(h).gridLicensableFeatures[0]"
    found = nvml(built, f"(lambda f: [f.featureState, f.productName])({asked})")["gpus"][0]
    assert found == [int(licensed), "NVIDIA Virtual Compute Server"]
    assert nvml(built, "tried(n.nvmlDeviceGetEnforcedPowerLimit, h)['error']")["gpus"] == [3]


# --- CUDA ------------------------------------------------------------------------------------------------


def test_cuda_says_who_is_there(h100: Built) -> None:
    body = (
        "(c.cuInit(0), number('cuDeviceGetCount'), number('cuDeviceGetAttribute', 16, 7), number('cuDriverGetVersion'))"
    )
    assert cuda(h100, body) == [0, 8, 132, 12080]


@pytest.mark.parametrize(("wanted", "count"), [("1,3", 2), ("", 0), ("0,99,1", 1), ("GPU-7", 1)])
def test_visible_devices(h100: Built, wanted: str, count: int) -> None:
    found = cuda(h100, "(c.cuInit(0), number('cuDeviceGetCount'))", CUDA_VISIBLE_DEVICES=wanted)
    assert found == [0 if count else 100, count or {"error": 3}]


def test_a_lost_card_is_none_for_cuda(made: Make) -> None:
    assert cuda(made(wrong.lost(healthy.h100())), "(c.cuInit(0), number('cuDeviceGetCount'))") == [0, 7]


def test_cuda_without_a_fabric(made: Make) -> None:
    assert cuda(made(wrong.no_fabric_manager(healthy.h100())), "c.cuInit(0)") == 802


def test_memory_holds_what_was_written(h100: Built) -> None:
    body = (
        "(context(), [(lambda code, a: (code, write(a, b'abcd' * 1000), read(a + 4, 8).decode(),"
        " c.cuMemsetD32_v2(a, 0x41414141, 1000), read(a, 4).decode(), c.cuMemFree_v2(a), c.cuMemFree_v2(a)))"
        "(*allocate(4000))])[1][0]"
    )
    assert cuda(h100, body) == [0, 0, "abcdabcd", 0, "AAAA", 0, 1]


def test_memory_ends_where_the_card_says(made: Make) -> None:
    built = made(healthy.vm().answering(f"0 cuDeviceTotalMem {64 * MIB}"))
    body = f"(context(), allocate({40 * MIB})[0], allocate({40 * MIB})[0], allocate({20 * MIB})[0])[1:]"
    assert cuda(built, body) == [0, 2, 0]


def test_a_bit_that_flips(made: Make) -> None:
    node = healthy.vm().answering("0 cuda.flip 100:3 101:0")
    body = "(context(), (lambda a: (write(a, bytes(256)), list(read(a + 99, 4))))(allocate(4096)[1]))[1]"
    assert cuda(made(node), body) == [0, [0, 8, 1, 0]]


def test_memory_that_is_not_there_wraps_around(made: Make) -> None:
    node = healthy.vm().answering(f"0 cuDeviceTotalMem {64 * MIB}", f"0 cuda.capacity {16 * MIB}")
    body = (
        f"(context(), (lambda a: (write(a, b'one.'), write(a + {16 * MIB}, b'two.'), read(a, 4).decode()))"
        f"(allocate({40 * MIB})[1]))[1]"
    )
    assert cuda(made(node), body) == [0, 0, "two."]


def test_copies_take_their_time(made: Make) -> None:
    built = made(healthy.vm().answering(f"0 cuda.rate {8 * MIB} 0 0"))
    body = f"(context(), (lambda a: write(a, bytes({4 * MIB})))(allocate({4 * MIB})[1]))[1]"
    begun = time.monotonic()
    assert cuda(built, body) == 0
    assert time.monotonic() - begun >= 0.5


def test_strange_addresses_are_refused(h100: Built) -> None:
    body = "(context(), write(0, b'x'), write(1 << 45, b'x'), c.cuMemFree_v2(7))[1:]"
    assert cuda(h100, body) == [1, 1, 1]


# --- nvidia-smi --------------------------------------------------------------------------------------------


def test_nvidia_smi_is_a_program(h100: Built) -> None:
    assert (h100.path / "bin" / "nvidia-smi").read_bytes().startswith(b"\x7fELF")
    assert smi(h100, "-L").stdout.startswith("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-")


def test_fields_as_asked(h100: Built) -> None:
    asked = smi(h100, "--query-gpu=index,memory.total,power.limit", "--format=csv")
    assert asked.stdout.splitlines()[:2] == ["index, memory.total [MiB], power.limit [W]", "0, 81559 MiB, 700.00 W"]
    bare = smi(h100, "--query-gpu=index,memory.total", "--format=csv,noheader,nounits")
    assert bare.stdout.splitlines()[7] == "7, 81559"


def test_fields_and_options_that_do_not_exist(h100: Built) -> None:
    field = smi(h100, "--query-gpu=index,taste", "--format=csv")
    assert (field.returncode, field.stdout.splitlines()[0]) == (2, 'Field "taste" is not a valid field to query.')
    option = smi(h100, "--taste")
    assert option.returncode == 2
    assert "--taste" in option.stderr


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (wrong.mismatch, 18, "Driver/library version mismatch"),
        (wrong.denied, 4, "Insufficient Permissions"),
        (wrong.lost_silently, 255, "Unable to determine the device handle"),
        (wrong.smi_garbage, 0, "81559"),
    ],
)
def test_nvidia_smi_fails_as_it_does(change: Callable[[Node], Node], code: int, text: str, made: Make) -> None:
    done = smi(made(change(healthy.h100())), "-q", "-x")
    assert done.returncode == code
    assert text in done.stdout


def test_without_a_driver_there_is_no_nvidia_smi(made: Make) -> None:
    built = made(wrong.no_driver(healthy.h100()))
    assert shutil.which("nvidia-smi", path=str(built.path / "bin")) is None
    assert nvml(built, "None")["init"]["error"] == CODES["NVML_ERROR_LIBRARY_NOT_FOUND"]


def test_nvidia_smi_hangs(made: Make) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        smi(made(wrong.smi_hangs(healthy.vm())), "-q", "-x", timeout_s=0.5)


# --- files -------------------------------------------------------------------------------------------------


def test_sysfs_hangs_together(h100: Built) -> None:
    for card in h100.node.cards:
        device = h100.root / "sys/bus/pci/devices" / card.slot
        assert device.resolve().parent.name == card.parents[-1]
        assert (device / "device").read_text() == "0x2330\n"
        assert (device / "numa_node").read_text() == f"{card.numa}\n"
    for nic in h100.node.nics:
        assert nic.slot in str((h100.root / "sys/class/infiniband" / nic.name).resolve())
        assert (h100.root / "sys/class/infiniband" / nic.name / "device").resolve().name == nic.slot
    for drive in h100.node.drives:
        assert drive.slot in str((h100.root / "sys/class/block" / f"{drive.name}n1").resolve())


@pytest.mark.parametrize("name", sorted(healthy.ALL))
def test_every_healthy_node_builds_and_is_one_machine(name: str, tmp_path: Path) -> None:
    built = build(healthy.ALL[name](), tmp_path / "node")
    cards = built.node.listed
    found = nvml(built, "[n.nvmlDeviceGetName(h), n.nvmlDeviceGetUUID(h)]")["gpus"]
    assert found == [[card.name, card.uuid] for card in cards]
    assert cuda(built, "(c.cuInit(0), number('cuDeviceGetCount'))") == [0, len(cards)]
    assert len(smi(built, "-L").stdout.splitlines()) == len(cards)
    slots = {path.name for path in (built.root / "proc/driver/nvidia/gpus").iterdir()}
    assert slots == {card.slot for card in cards}
    on_bus = {path.name for path in (built.root / "sys/bus/pci/devices").iterdir()}
    assert {card.slot for card in built.node.cards} <= on_bus


def test_a_folder_can_move_with_its_answers(tmp_path: Path) -> None:
    built = build(healthy.vm(), tmp_path / "node")
    (tmp_path / "node").rename(tmp_path / "elsewhere")
    environment = {**built.env, "LD_LIBRARY_PATH": str(tmp_path / "elsewhere" / "lib")}
    moved = Built(built.node, tmp_path / "elsewhere", environment, tmp_path / "elsewhere" / "root")
    assert nvml(moved, "n.nvmlDeviceGetName(h)")["gpus"] == ["NVIDIA A100 80GB PCIe"]


@pytest.mark.parametrize("name", sorted(wrong.CASES))
def test_every_case_has_a_contract_that_can_be_read(name: str) -> None:
    path = HERE / "contracts" / wrong.CASES[name].contract
    assert contract.load(path, grammars()).clauses
