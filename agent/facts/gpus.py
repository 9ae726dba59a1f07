"""The GPUs of this machine, each as every source shows it: NVML, nvidia-smi, PCI, /proc and the CUDA driver.

The sources share as little as can be: NVML and nvidia-smi use one library, CUDA another, sysfs and /proc none.
Nothing here decides who is right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Optional

from agent import probes
from agent.facts import Asked, _nvml, _smi, pci
from agent.facts._read import answer, cited, first_known, parsed, refused, unparsable
from agent.facts._slot import order, slot
from agent.facts._source import Source, first
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading, fmap
from agent.text import msg
from agent.tools import ParseError, cuda, nvidia_proc, smi_xml
from agent.tools._text import mapping, objects, one_document, text_or_none
from agent.tools.cuda import Cuda
from agent.tools.nvml import Nvml, NvmlGpu
from agent.tools.smi_xml import SmiXml

ENV_TIMEOUT_S = 10.0
_PROC = "/proc/driver/nvidia"
_VERSION = f"{_PROC}/version"
SOURCES = ("nvml", "smi", "pci", "proc", "cuda")


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``index`` and ``uuid`` are NVML's, else nvidia-smi's.

    The values of all five sources are named in :mod:`agent.tools._source`. Beside them:

    - ``smi`` has ``throttle_reasons`` (tuple of words such as ``sw_power_cap``), ``fabric_state``, ``fabric_status``,
      ``fabric_health`` (str), ``power_average_w``, ``fan_percent``, ``mig_devices`` (tuple of ``smi_xml.MigDevice``),
      ``lost`` (bool: nvidia-smi lists the card and cannot read it, or names it as unreachable);
    - ``pci`` has what :class:`agent.facts.pci.Device` has: ``pcie_gen_current``, ``pcie_gen_max`` (card and port
      together are not known to sysfs: this is the card's own), ``pcie_width_current``, ``pcie_width_max``,
      ``pci_device_id``, ``pci_subsystem_id``, ``numa_node``, ``driver`` (str: nvidia, vfio-pci, nouveau),
      ``dead`` (bool: its registers read all ones), ``iommu_group`` (int), ``aer_correctable``, ``aer_nonfatal``,
      ``aer_fatal`` (int, totals since boot);
    - ``proc`` (``/proc/driver/nvidia/gpus/*/information``) has ``name``, ``uuid``, ``vbios``, ``minor``, ``slot``,
      ``excluded`` (bool: the driver was told to leave it alone), ``gsp_version``;
    - ``cuda`` has ``ordinal``, ``name``, ``uuid``, ``slot``, ``sm_count``, ``memory_total_mib`` (without
      the driver's reserve, so a little less than NVML's), ``clock_sm_max_mhz``,
      ``clock_mem_max_mhz``, ``bus_width_bits``, ``l2_bytes`` (int), ``compute_capability``, ``ecc_current``,
      ``integrated`` (bool), ``compute_mode``.
    """

    slot: str
    index: Reading[int]
    uuid: Reading[str]
    nvml: Source
    smi: Source
    pci: Source
    proc: Source
    cuda: Source

    def source(self, name: str) -> Source:
        """One of :data:`SOURCES`."""
        return {s.name: s for s in (self.nvml, self.smi, self.pci, self.proc, self.cuda)}[name]

    def any(self, name: str, *order: str) -> Reading[Any]:
        """The first known value of that name, with the evidence of every source asked; else the first reason.

        ``order`` names sources; without it: nvml, smi, cuda, pci, proc.
        """
        return first(name, [self.source(s) for s in order or ("nvml", "smi", "cuda", "pci", "proc")])

    @property
    def seen_by(self) -> tuple[str, ...]:
        """The sources that could read anything of this GPU."""
        return tuple(name for name in SOURCES if self.source(name).there)


@dataclass(frozen=True)
class Program:
    """A program file: ``path`` as found on the PATH, ``real`` behind its links.

    ``kind``: elf, script (begins with ``#!``), other. ``owner`` is the uid; ``writable``: by this user or everybody.
    """

    path: str
    real: str
    kind: str
    interpreter: Optional[str]
    owner: int
    writable: bool
    size: int


@dataclass(frozen=True)
class GpusFacts:
    """``gpus`` is the union over all sources, ordered by slot.

    - ``sources``: by source, the slots it lists, or why it lists none. A GPU that NVML counts and cannot open has no
      slot there; see ``unopened``.
    - ``counted``: how many GPUs NVML counts; ``unopened``: index and NVML's error of each that it could not open or
      place.
    - ``driver``: kernel and library versions by source: ``nvml``, ``smi``, ``proc`` (the loaded kernel module).
    - ``cuda_version``: the newest CUDA that the driver can run, by source: ``nvml``, ``smi``, ``cuda`` (``12.4``).
    - ``smi``: the parsed ``nvidia-smi -q -x``; ``nvidia_smi``: all of that name on the PATH, first one first;
      ``smi_is_script``: whether the first is a script, or not the ELF program that NVIDIA delivers.
    - ``library``: path of the NVML library that answered, from the child's own memory map, and ``libraries``: all
      that was mapped as code there; ``library_matches``: whether the version in its file name is that of the loaded
      kernel driver.
    - ``environment``: variables of the agent's own environment that steer GPUs, slices or preloading.
    - ``kernel_module``: ``open`` or ``proprietary``. ``fabric_manager``: systemd's word for its service (active,
      inactive, failed, unknown); without systemd, as in containers, Missing: then each GPU's ``fabric`` tells.
    - ``nodes``: minors of ``/dev/nvidia<minor>``.
    - ``p2p``: NVML's answer by pair of slots (lower first) and capability: ``{("…", "…"): {"read": "OK"}}``.
    - ``pci``: everything on the bus, for distances.
    - ``hidden``: slots that the bus shows, that a driver on the host holds, and that this environment was not given
      (other tenants' cards beside a container); they are not in ``gpus``.
    """

    gpus: tuple[Gpu, ...]
    sources: Mapping[str, Reading[tuple[str, ...]]]
    counted: Reading[int]
    unopened: tuple[tuple[int, str], ...]
    driver: Mapping[str, Reading[str]]
    cuda_version: Mapping[str, Reading[str]]
    smi: Reading[SmiXml]
    nvidia_smi: Reading[tuple[Program, ...]]
    smi_is_script: Reading[bool]
    environment: Reading[Mapping[str, str]]
    library: Reading[str]
    libraries: tuple[str, ...]
    library_matches: Reading[bool]
    kernel_module: Reading[str]
    fabric_manager: Reading[str]
    nodes: Reading[tuple[int, ...]]
    p2p: Mapping[tuple[str, str], Mapping[str, str]]
    pci: pci.PciFacts
    hidden: tuple[str, ...]

    def of(self, slot: str) -> Optional[Gpu]:
        """The GPU in that slot."""
        return next((gpu for gpu in self.gpus if gpu.slot == slot), None)

    def stack(self) -> dict[str, Optional[str]]:
        """Versions for the result: the loaded driver's, and the newest CUDA that it runs."""
        return {
            "driver": _value(first_known([self.driver[n] for n in ("nvml", "smi", "proc")])),
            "cuda_driver": _value(first_known([self.cuda_version[n] for n in ("cuda", "nvml", "smi")])),
        }

    def answers(self, gpu: Gpu) -> bool:
        """Whether NVML could read anything of it; where NVML answers for no card at all, nvidia-smi.

        nvidia-smi still prints the name of a card that is lost; what NVML says of the others counts more. A card that
        our own child did not come to has not been asked by NVML at all: then nvidia-smi's word stands.
        """
        not_read = gpu.nvml.absent is not None and gpu.nvml.absent.kind == "interrupted"
        if any(other.nvml.there for other in self.gpus) and not not_read:
            return gpu.nvml.there
        lost = gpu.smi.get("lost")
        return gpu.smi.there and not (isinstance(lost, Known) and lost.value)

    def inventory(self) -> list[dict[str, Any]]:
        """The cards for the result, as NVIDIA's library names them; None for what it does not tell.

        ``answers`` stands only where it is False: the card is there and tells nothing.
        """
        return [
            {
                "slot": gpu.slot,
                "uuid": _value(gpu.uuid),
                "index": _value(gpu.index),
                "serial": _value(gpu.any("serial", "nvml", "smi")),
                "name": _value(gpu.any("name", "nvml", "smi", "proc", "cuda")),
                **({} if self.answers(gpu) else {"answers": False}),
            }
            for gpu in self.gpus
        ]


def _value(reading: Reading[Any]) -> Any:
    return reading.value if isinstance(reading, Known) else None


def collect(host: Host, asked: Asked) -> GpusFacts:
    """Asks every source; none of them is needed. NVML comes first: it is the baseline before any load of ours."""
    by_nvml = _nvml.ask(host)
    smi = _smi.ask(host, "nvidia-smi-xml", smi_xml.ARGV, smi_xml.parse)
    devices = pci.collect(host, asked)
    driver = _driver_files(host)
    by_cuda = _cuda(host)
    surroundings = answer(probes.ask(host, "gpu-env", "gpu_env_probe", [], ENV_TIMEOUT_S), _surroundings)
    programs = fmap(lambda found: found.programs, surroundings)
    module = parsed(driver.text(_VERSION), nvidia_proc.version, _VERSION)
    listed = {
        "nvml": _nvml.slots(by_nvml),
        "smi": fmap(lambda found: tuple(sorted(_smi.slots(found), key=order)), smi),
        "pci": devices.gpus,
        "proc": _proc_slots(driver),
        "cuda": _cuda_slots(by_cuda),
    }
    nodes = _nodes(driver)
    hidden = _hidden(listed, devices, driver, nodes)
    opened = _match(by_nvml, listed, hidden)
    every = sorted({s for r in listed.values() if isinstance(r, Known) for s in r.value} | set(opened), key=order)
    return GpusFacts(
        gpus=tuple(_gpu(s, opened.get(s), listed, smi, devices, driver, by_cuda) for s in every if s not in hidden),
        sources=listed,
        counted=_nvml.count(by_nvml),
        unopened=_nvml.unopened(by_nvml),
        driver={
            "nvml": by_nvml.driver if isinstance(by_nvml, Nvml) else by_nvml,
            "smi": _stated(fmap(lambda found: found.driver_version, smi), "nvidia-smi"),
            "proc": fmap(lambda found: found.version, module),
        },
        cuda_version={
            "nvml": by_nvml.cuda_driver if isinstance(by_nvml, Nvml) else by_nvml,
            "smi": _stated(fmap(lambda found: found.cuda_version, smi), "nvidia-smi"),
            "cuda": by_cuda.value.driver_version if isinstance(by_cuda, Known) else by_cuda,
        },
        smi=smi,
        nvidia_smi=programs,
        smi_is_script=_is_script(programs),
        environment=_environment(surroundings),
        library=by_nvml.library if isinstance(by_nvml, Nvml) else by_nvml,
        libraries=by_nvml.libraries if isinstance(by_nvml, Nvml) else (),
        library_matches=library_matches(by_nvml.library if isinstance(by_nvml, Nvml) else by_nvml, module),
        kernel_module=fmap(lambda found: found.flavour, module),
        fabric_manager=_fabric_manager(host),
        nodes=nodes,
        p2p=_nvml.peers(by_nvml, opened),
        pci=devices,
        hidden=hidden,
    )


# --- what each source lists ----------------------------------------------------------------------------


def _driver_files(host: Host) -> Files:
    return host.read(
        "nvidia-driver",
        [_VERSION, f"{_PROC}/gpus/*/information"],
        names=[f"{_PROC}/gpus/*", "/dev/nvidia[0-9]*"],
    )


def _information(driver: Files) -> dict[str, Reading[Mapping[str, Reading[Any]]]]:
    """By slot: the information of each GPU that the kernel driver holds, or why it cannot be read."""
    return {
        where: parsed(driver.text(f"{path}/information"), partial(nvidia_proc.information, evidence=driver.cited), path)
        for path in driver.match(f"{_PROC}/gpus/*")
        if (where := slot(path.rpartition("/")[2])) is not None
    }


def _proc_slots(driver: Files) -> Reading[tuple[str, ...]]:
    loaded = driver.text(_VERSION)
    found = sorted(_information(driver), key=order)
    if not found and isinstance(loaded, Missing):
        return loaded
    return Known(tuple(found), driver.cited)


def _nodes(driver: Files) -> Reading[tuple[int, ...]]:
    if not driver.recorded:
        return Missing("not-recorded", msg("the recording holds no “{probe}”", probe=driver.probe))
    minors = [path.rpartition("nvidia")[2] for path in driver.match("/dev/nvidia[0-9]*")]
    found = sorted(int(m) for m in minors if m.isdigit())
    if not found:
        return Missing("not-there", msg("there are no device files /dev/nvidia0 …"), driver.cited)
    return Known(tuple(found), driver.cited)


def _cuda(host: Host) -> Reading[Cuda]:
    ran = probes.ask(host, "cuda", "cuda_probe", [], cuda.TIMEOUT_S)
    try:
        return Known(cuda.parse(ran.stdout, ran.cited), ran.cited)
    except ParseError as error:
        return ran.missing() or refused(ran) or unparsable("cuda_probe", str(error), ran.cited)


def _cuda_slots(found: Reading[Cuda]) -> Reading[tuple[str, ...]]:
    if isinstance(found, Missing):
        return found
    if isinstance(found.value.count, Missing):
        return found.value.count
    listed = {gpu.slot for gpu in found.value.gpus if gpu.slot is not None}
    return Known(tuple(sorted(listed, key=order)), found.evidence)


def _hidden(
    listed: Mapping[str, Reading[tuple[str, ...]]],
    devices: pci.PciFacts,
    driver: Files,
    nodes: Reading[tuple[int, ...]],
) -> tuple[str, ...]:
    """Cards of the host that a container sees on the bus and was not given.

    A driver on the host holds them, but this environment's view of the driver, or its device files, leaves them out.
    A card that the driver could not start has no driver and is not hidden: it is broken.
    """
    if isinstance(devices.gpus, Missing):
        return ()
    usable = {s for n in ("nvml", "smi", "cuda") if isinstance(r := listed[n], Known) for s in r.value}
    information = _information(driver)
    return tuple(
        where
        for where in devices.gpus.value
        if where not in usable
        and isinstance(devices.devices[where].source.get("driver"), Known)
        and _left_out(where, information, nodes)
    )


def _left_out(
    where: str, information: Mapping[str, Reading[Mapping[str, Reading[Any]]]], nodes: Reading[tuple[int, ...]]
) -> bool:
    told = information.get(where)
    if told is None:
        return bool(information)
    minor = told.value["minor"] if isinstance(told, Known) else told
    return isinstance(minor, Known) and isinstance(nodes, Known) and minor.value not in nodes.value


def _match(
    found: _nvml.Answer, listed: Mapping[str, Reading[tuple[str, ...]]], hidden: tuple[str, ...]
) -> dict[str, NvmlGpu]:
    elsewhere = {s for n in ("smi", "pci", "proc") if isinstance(r := listed[n], Known) for s in r.value}
    return _nvml.by_slot(found, sorted(elsewhere - set(hidden)))


# --- one GPU -------------------------------------------------------------------------------------------


def _gpu(
    where: str,
    opened: Optional[NvmlGpu],
    listed: Mapping[str, Reading[tuple[str, ...]]],
    smi: Reading[SmiXml],
    devices: pci.PciFacts,
    driver: Files,
    by_cuda: Reading[Cuda],
) -> Gpu:
    nvml = opened.source if opened is not None else _unlisted("nvml", where, listed)
    by_smi = _smi_source(where, smi, listed)
    found = {gpu.slot: gpu.source for gpu in by_cuda.value.gpus} if isinstance(by_cuda, Known) else {}
    device = devices.devices.get(where)
    identity = [nvml.get("uuid"), by_smi.get("uuid")]
    return Gpu(
        slot=where,
        index=Known(opened.index, nvml.evidence) if opened is not None else _absent("nvml", where, listed),
        uuid=first_known(identity),
        nvml=nvml,
        smi=by_smi,
        pci=device.source if device is not None and device.kind == "gpu" else _unlisted("pci", where, listed),
        proc=_proc_source(where, driver, listed),
        cuda=found.get(where) or _unlisted("cuda", where, listed),
    )


def _absent(name: str, where: str, listed: Mapping[str, Reading[tuple[str, ...]]]) -> Missing:
    """Why a source says nothing of this slot: it lists none at all, or others."""
    source = listed[name]
    if isinstance(source, Missing):
        return source
    label = {"nvml": "NVML", "smi": "nvidia-smi", "pci": "PCI", "proc": _PROC, "cuda": "CUDA"}[name]
    return Missing("not-there", msg("{source} does not list {slot}", source=label, slot=where), source.evidence)


def _unlisted(name: str, where: str, listed: Mapping[str, Reading[tuple[str, ...]]]) -> Source:
    return Source(name, {}, _absent(name, where, listed))


def _smi_source(where: str, smi: Reading[SmiXml], listed: Mapping[str, Reading[tuple[str, ...]]]) -> Source:
    if isinstance(smi, Known) and where in (found := _smi.slots(smi.value)):
        return _smi.source(found[where], smi.evidence)
    return _unlisted("smi", where, listed)


def _proc_source(where: str, driver: Files, listed: Mapping[str, Reading[tuple[str, ...]]]) -> Source:
    told = _information(driver).get(where)
    if told is None:
        return _unlisted("proc", where, listed)
    return Source("proc", {}, told) if isinstance(told, Missing) else Source("proc", told.value)


# --- the tools themselves ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Surroundings:
    programs: tuple[Program, ...]
    environment: Mapping[str, str]


def _surroundings(text: str) -> _Surroundings:
    told = one_document(text, "gpu_env_probe")
    rows = [row for row in objects(told.get("programs")) if "error" not in row]
    environment = mapping(mapping(told.get("environment")).get("agent"))
    return _Surroundings(tuple(map(_program, rows)), {k: str(v) for k, v in environment.items()})


def _environment(found: Reading[_Surroundings]) -> Reading[Mapping[str, str]]:
    if isinstance(found, Known) and (error := found.value.environment.get("error")):
        return Missing("failed", msg("the environment cannot be read: {error}", error=error), found.evidence)
    return fmap(lambda told: told.environment, found)


def _program(row: Mapping[str, Any]) -> Program:
    return Program(
        path=str(row["path"]),
        real=str(row["real"]),
        kind=str(row["kind"]),
        interpreter=text_or_none(row.get("interpreter")),
        owner=int(row["owner"]),
        writable=row["writable"] is True,
        size=int(row["size"]),
    )


def _fabric_manager(host: Host) -> Reading[str]:
    """``systemctl is-active`` says it in one word, with a status of its own for each."""
    ran = host.run("fabric-manager", ["systemctl", "is-active", "nvidia-fabricmanager"], ENV_TIMEOUT_S)
    missing = ran.missing()
    if missing is not None:
        return missing
    word = ran.stdout.strip()
    if not re.fullmatch(r"[a-z]+", word):
        return refused(ran) or unparsable("systemctl", word, ran.cited)
    return Known(word, ran.cited)


def _is_script(programs: Reading[tuple[Program, ...]]) -> Reading[bool]:
    """Of the nvidia-smi that is started; NVIDIA delivers an ELF program."""
    if isinstance(programs, Known) and not programs.value:
        grant = msg("install {tool}", tool="nvidia-smi")
        return Missing("no-tool", msg("{tool} is not installed", tool="nvidia-smi"), programs.evidence, grant)
    return fmap(lambda found: found[0].kind != "elf", programs)


def library_matches(library: Reading[str], module: Reading[nvidia_proc.KernelModule]) -> Reading[bool]:
    """Whether ``libnvidia-ml.so.550.54.15`` is of the loaded driver's version."""
    if isinstance(library, Missing):
        return library
    if isinstance(module, Missing):
        return module
    evidence = cited(library, module)
    found = re.search(r"\.so\.(\d{3}(?:\.\d+)+)$", library.value)
    if found is None:
        return Missing("unsupported", msg("{path} names no version", path=library.value), evidence)
    return Known(found[1] == module.value.version, evidence)


def _stated(reading: Reading[Optional[str]], tool: str) -> Reading[str]:
    if isinstance(reading, Missing):
        return reading
    if reading.value is None:
        return Missing("unsupported", msg("{tool} does not say", tool=tool), reading.evidence)
    return Known(reading.value, reading.evidence)
