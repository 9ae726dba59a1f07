"""``nvidia-smi -q -x``: everything the driver says about each GPU.

Drivers moved and renamed elements over the years, and the DTD number does not follow; so a value is taken
from the first of its known places that holds one.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any, Optional, Union

from agent.tools import ParseError
from agent.tools._nvidia import Value, is_error, plain, quantity, version, word
from agent.tools._text import clean, recognise
from agent.tools._xml import Node, parse_xml
from agent.tools.smi_errors import LostGpu, lost_gpu, refuse

KIND = "smi-xml"
ARGV = ("nvidia-smi", "-q", "-x")
TIMEOUT_S = 120.0
_SIGN = re.compile(r"nvidia_smi_log")

Flag = Union[bool, str, None]
"""Yes or No; None where the tool has none; ``"error: <text>"``."""


@dataclass(frozen=True)
class Process:
    """A process on a GPU. In a container the pid is the host's, and ``used_mib`` is often None."""

    pid: Optional[int]
    type: Optional[str]
    name: Optional[str]
    used_mib: Value


@dataclass(frozen=True)
class MigDevice:
    """A slice of a GPU; its memory is part of the card's, never the card's own."""

    index: Value
    gpu_instance: Value
    compute_instance: Value
    memory_total_mib: Value
    memory_used_mib: Value


@dataclass(frozen=True)
class More:
    """What facts need beyond the fixed JSON shape of ``accept parse smi-xml``."""

    architecture: Optional[str] = None
    board_part_number: Optional[str] = None
    gpu_part_number: Optional[str] = None
    minor_number: Value = None
    pci_device_id: Optional[str] = None
    pci_sub_system_id: Optional[str] = None
    persistence_mode: Optional[str] = None
    compute_mode: Optional[str] = None
    memory_free_mib: Value = None
    memory_reserved_mib: Value = None
    bar1_total_mib: Value = None
    pcie_gen_device_max: Value = None
    pcie_gen_host_max: Value = None
    pcie_replays: Value = None
    fan_percent: Value = None
    performance_state: Optional[str] = None
    gpu_util_percent: Value = None
    memory_util_percent: Value = None
    power_draw_average_w: Value = None
    power_min_limit_w: Value = None
    sm_clock_mhz: Value = None
    sm_clock_max_mhz: Value = None
    memory_clock_mhz: Value = None
    memory_clock_max_mhz: Value = None
    memory_temperature_c: Value = None
    throttle_reasons: Optional[tuple[str, ...]] = None
    """The active reasons without prefix (``sw_power_cap``); None where the driver does not say."""
    mig_mode_pending: Optional[str] = None
    ecc_mode_pending: Optional[str] = None
    ecc_uncorrected_volatile: Value = None
    ecc_corrected_aggregate: Value = None
    remapped_rows_uncorrectable: Value = None
    remapped_rows_correctable: Value = None
    retirement_pending: Flag = None
    fabric_state: Optional[str] = None
    fabric_status: Optional[str] = None
    fabric_health: Optional[str] = None
    license_status: Optional[str] = None
    mig_devices: tuple[MigDevice, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """One ``<gpu>``: MiB, W, degrees C. None is what the text does not say; see :data:`Value`."""

    product_name: Optional[str]
    uuid: Optional[str]
    pci_bus_id: Optional[str]
    serial: Optional[str]
    vbios_version: Optional[str]
    memory_total_mib: Value
    memory_used_mib: Value
    power_limit_w: Value
    power_default_limit_w: Value
    power_max_limit_w: Value
    power_draw_w: Value
    temperature_c: Value
    pcie_gen_current: Value
    pcie_gen_max: Value
    pcie_width_current: Value
    pcie_width_max: Value
    ecc_mode: Optional[str]
    mig_mode: Optional[str]
    ecc_uncorrected_aggregate: Value
    """All uncorrected errors the card counts, summed over the memories that it counts."""
    remapped_rows_pending: Flag
    remapped_rows_failure: Flag
    retired_pages: Value
    virtualization_mode: Optional[str]
    processes: Optional[tuple[Process, ...]]
    more: More = field(default_factory=More)

    @property
    def lost(self) -> bool:
        """Whether the driver lists this GPU and cannot read it any more."""
        return "GPU is lost" in str(self.memory_total_mib) + str(self.temperature_c)


@dataclass(frozen=True)
class SmiXml:
    """The whole document. ``attached_gpus`` is the driver's own count and may differ from ``gpus``."""

    driver_version: Optional[str]
    cuda_version: Optional[str]
    attached_gpus: Optional[int]
    gpus: tuple[Gpu, ...]
    lost: tuple[LostGpu, ...]
    """GPUs that text around the document reports unreachable; they have no ``<gpu>``."""
    notes: tuple[str, ...]
    """Other lines around the document, such as infoROM warnings."""


def parse(text: str) -> SmiXml:
    """One ``nvidia-smi -q -x`` document, with or without text around it."""
    recognise(text, "nvidia-smi -q -x", _SIGN)
    before, document, after = _document(clean(text))
    root = _root(document)
    around = [line.strip() for line in (before + "\n" + after).splitlines() if line.strip()]
    lost = tuple(found for found in map(lost_gpu, around) if found)
    attached = quantity(root.find("attached_gpus"))
    return SmiXml(
        driver_version=version(root.find("kmd_version")) or version(root.find("driver_version")),
        cuda_version=version(root.find("cuda_umd_version")) or version(root.find("cuda_version")),
        attached_gpus=attached if isinstance(attached, int) else None,
        gpus=tuple(_gpu(node) for node in root.all("gpu")),
        lost=lost,
        notes=tuple(line for line in around if not lost_gpu(line)),
    )


def to_json(result: SmiXml) -> dict[str, Any]:
    """The fixed shape of ``accept parse smi-xml``."""
    gpus = [{key: value for key, value in asdict(gpu).items() if key != "more"} for gpu in result.gpus]
    for gpu in gpus:
        gpu["processes"] = None if gpu["processes"] is None else list(gpu["processes"])
    return {
        "driver_version": result.driver_version,
        "cuda_version": result.cuda_version,
        "attached_gpus": result.attached_gpus,
        "gpus": gpus,
    }


# --- the document --------------------------------------------------------------------------------------

_START = re.compile(r"<\?xml|<!DOCTYPE\s+nvidia_smi_log|<nvidia_smi_log")
_END = "</nvidia_smi_log>"
_NAME = re.compile(r"(<process_name>)(.*?)(</process_name>)", re.S)
_BARE = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9A-Fa-f]{1,6});)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def _document(text: str) -> tuple[str, str, str]:
    """The text before the document, the document, and the text behind it."""
    start = _START.search(text)
    if start is None:
        raise refuse(text, "nvidia-smi -q -x")
    if "<!ENTITY" in text:
        raise ParseError("unparsable", "XML that declares entities is refused", "<!ENTITY")
    end = text.find(_END, start.start())
    if end < 0:
        return text[: start.start()], text[start.start() :], ""
    end += len(_END)
    if "<nvidia_smi_log" in text[end:]:
        raise ParseError("several_results", "more than one nvidia-smi document; give one at a time")
    return text[: start.start()], text[start.start() : end], text[end:]


def _root(document: str) -> Node:
    try:
        root = parse_xml(document)
    except ParseError as error:
        mended = _NAME.sub(_mend_name, document)
        if mended == document:
            raise _cut(document, error) from error
        root = _again(mended, error)
    if root.tag != "nvidia_smi_log":
        raise ParseError("unparsable", "not nvidia-smi -q -x output", f"<{root.tag}>")
    return root


def _again(mended: str, error: ParseError) -> Node:
    try:
        return parse_xml(mended)
    except ParseError as again:
        raise _cut(mended, again) from error


def _cut(document: str, error: ParseError) -> ParseError:
    """A document without its end tag is cut off, wherever the parser stumbled first."""
    if error.kind == "unparsable" and not document.rstrip().endswith(_END) and "ntit" not in str(error.message):
        return ParseError("truncated", f"the document has no {_END}; {error.message}", error.line)
    return error


def _mend_name(match: re.Match[str]) -> str:
    """A command line put into the document as it is may hold ``&``, ``<`` and control characters."""
    name = _BARE.sub("&amp;", match[2]).replace("<", "&lt;")
    return match[1] + _CONTROL.sub("\ufffd", name) + match[3]


# --- one GPU -------------------------------------------------------------------------------------------


def _gpu(node: Node) -> Gpu:
    limits = _power_limits(node)
    return Gpu(
        product_name=word(node.find("product_name")),
        uuid=word(node.find("uuid")),
        pci_bus_id=word(node.find("pci/pci_bus_id") or node.attributes.get("id")),
        serial=word(node.find("serial")),
        vbios_version=word(node.find("vbios_version")),
        memory_total_mib=quantity(node.find("fb_memory_usage/total"), "MiB"),
        memory_used_mib=quantity(node.find("fb_memory_usage/used"), "MiB"),
        power_limit_w=_first(limits, "W", "current_power_limit", "power_limit", "enforced_power_limit"),
        power_default_limit_w=_first(limits, "W", "default_power_limit"),
        power_max_limit_w=_first(limits, "W", "max_power_limit"),
        power_draw_w=_first([_power(node)], "W", "instant_power_draw", "power_draw", "average_power_draw"),
        temperature_c=quantity(node.find("temperature/gpu_temp"), "C"),
        pcie_gen_current=quantity(_link(node, "pcie_gen/current_link_gen")),
        pcie_gen_max=quantity(_link(node, "pcie_gen/max_link_gen")),
        pcie_width_current=quantity(_link(node, "link_widths/current_link_width"), "x"),
        pcie_width_max=quantity(_link(node, "link_widths/max_link_width"), "x"),
        ecc_mode=word(node.find("ecc_mode/current_ecc")),
        mig_mode=word(node.find("mig_mode/current_mig")),
        ecc_uncorrected_aggregate=_ecc(node, "aggregate", "uncorrectable", "double_bit"),
        remapped_rows_pending=_flag(node.find("remapped_rows/remapped_row_pending")),
        remapped_rows_failure=_flag(node.find("remapped_rows/remapped_row_failure")),
        retired_pages=_sum(
            node.find("retired_pages/multiple_single_bit_retirement/retired_count"),
            node.find("retired_pages/double_bit_retirement/retired_count"),
        ),
        virtualization_mode=word(node.find("gpu_virtualization_mode/virtualization_mode")),
        processes=_processes(node.child("processes")),
        more=_more(node, limits),
    )


def _more(node: Node, limits: list[Node]) -> More:
    return More(
        architecture=word(node.find("product_architecture")),
        board_part_number=word(node.find("board_part_number")),
        gpu_part_number=word(node.find("gpu_part_number")),
        minor_number=quantity(node.find("minor_number")),
        pci_device_id=word(node.find("pci/pci_device_id")),
        pci_sub_system_id=word(node.find("pci/pci_sub_system_id")),
        persistence_mode=word(node.find("persistence_mode")),
        compute_mode=word(node.find("compute_mode")),
        memory_free_mib=quantity(node.find("fb_memory_usage/free"), "MiB"),
        memory_reserved_mib=quantity(node.find("fb_memory_usage/reserved"), "MiB"),
        bar1_total_mib=quantity(node.find("bar1_memory_usage/total"), "MiB"),
        pcie_gen_device_max=quantity(_link(node, "pcie_gen/max_device_link_gen")),
        pcie_gen_host_max=quantity(_link(node, "pcie_gen/max_host_link_gen")),
        pcie_replays=quantity(node.find("pci/replay_counter")),
        fan_percent=quantity(node.find("fan_speed"), "%"),
        performance_state=word(node.find("performance_state")),
        gpu_util_percent=quantity(node.find("utilization/gpu_util"), "%"),
        memory_util_percent=quantity(node.find("utilization/memory_util"), "%"),
        power_draw_average_w=_first([_power(node)], "W", "average_power_draw"),
        power_min_limit_w=_first(limits, "W", "min_power_limit"),
        sm_clock_mhz=quantity(node.find("clocks/sm_clock"), "MHz"),
        sm_clock_max_mhz=quantity(node.find("max_clocks/sm_clock"), "MHz"),
        memory_clock_mhz=quantity(node.find("clocks/mem_clock"), "MHz"),
        memory_clock_max_mhz=quantity(node.find("max_clocks/mem_clock"), "MHz"),
        memory_temperature_c=quantity(node.find("temperature/memory_temp"), "C"),
        throttle_reasons=_throttle_reasons(node),
        mig_mode_pending=word(node.find("mig_mode/pending_mig")),
        ecc_mode_pending=word(node.find("ecc_mode/pending_ecc")),
        ecc_uncorrected_volatile=_ecc(node, "volatile", "uncorrectable", "double_bit"),
        ecc_corrected_aggregate=_ecc(node, "aggregate", "correctable", "single_bit"),
        remapped_rows_uncorrectable=quantity(node.find("remapped_rows/remapped_row_unc")),
        remapped_rows_correctable=quantity(node.find("remapped_rows/remapped_row_corr")),
        retirement_pending=_flag(node.find("retired_pages/pending_retirement")),
        fabric_state=word(node.find("fabric/state")),
        fabric_status=word(node.find("fabric/status")),
        fabric_health=word(node.find("fabric/health/summary")),
        license_status=word(node.find("vgpu_software_licensed_product/license_status")),
        mig_devices=_mig_devices(node.child("mig_devices")),
    )


def _link(node: Node, path: str) -> Optional[str]:
    return node.find(f"pci/pci_gpu_link_info/{path}")


def _power(node: Node) -> Node:
    """The card's own readings; ``module_power_readings`` is the whole superchip's."""
    return node.child("gpu_power_readings") or node.child("power_readings") or Node("")


def _power_limits(node: Node) -> list[Node]:
    """Where limits may stand: since 610 the current ones are inside a container of their own."""
    power = _power(node)
    return [power] + [inner for inner in power.children if "limit" in inner.tag and inner.children]


def _first(nodes: list[Node], unit: str, *tags: str) -> Value:
    """The first number among the tags, else the first failure, else None."""
    values: list[Value] = []
    for tag in tags:
        values += [quantity(node.find(tag), unit) for node in nodes]
    values += [quantity(node.text, unit) for node in nodes if not node.children and node.text.strip()]
    numbers = [float(value) for value in values if isinstance(value, (int, float))]
    return numbers[0] if numbers else next((value for value in values if value is not None), None)


def _ecc(node: Node, span: str, kind: str, old_kind: str) -> Value:
    """One sum over the memories that the card counts; the old form has a total of its own."""
    below = node.child("ecc_errors")
    counts = below.child(span) if below is not None else None
    if below is None or counts is None:
        return _sum(below.text) if below is not None and not below.children else None
    old = counts.find(f"{old_kind}/total")
    if old is not None:
        return _sum(old)
    if not counts.children:
        return _sum(counts.text)
    ending = re.compile(rf"[a-z]+_{kind}(_parity|_secded)?")
    return _sum(*(entry.text for entry in counts.children if ending.fullmatch(entry.tag)))


def _sum(*texts: Optional[str]) -> Value:
    """The sum of what is counted; a failure to read one part is a failure of the sum."""
    values = [quantity(text) for text in texts]
    failed = next((value for value in values if is_error(value)), None)
    if failed is not None:
        return failed
    counted = [value for value in values if isinstance(value, int)]
    return sum(counted) if counted else None


def _flag(text: Optional[str]) -> Flag:
    value = plain(text)
    if value is None:
        return None
    known = {"yes": True, "no": False}.get(value.lower())
    return f"error: {value}" if known is None else known


def _throttle_reasons(node: Node) -> Optional[tuple[str, ...]]:
    """Active reasons under either of the element's two names."""
    reasons = node.child("clocks_event_reasons") or node.child("clocks_throttle_reasons")
    if reasons is None or not reasons.children:
        return None
    prefix = re.compile(r"clocks_(?:event|throttle)_reasons?_")
    return tuple(prefix.sub("", r.tag) for r in reasons.children if r.text.strip() == "Active")


def _processes(node: Optional[Node]) -> Optional[tuple[Process, ...]]:
    """The listed processes; None where the list is absent or not available."""
    if node is None or (not node.children and node.text.strip()):
        return None
    return tuple(_process(entry) for entry in node.all("process_info"))


def _process(node: Node) -> Process:
    pid = quantity(node.find("pid"))
    return Process(
        pid=pid if isinstance(pid, int) else None,
        type=plain(node.find("type")),
        name=plain(node.find("process_name")),
        used_mib=quantity(node.find("used_memory"), "MiB"),
    )


def _mig_devices(node: Optional[Node]) -> tuple[MigDevice, ...]:
    return tuple(_mig_device(entry) for entry in node.all("mig_device")) if node is not None else ()


def _mig_device(node: Node) -> MigDevice:
    return MigDevice(
        index=quantity(node.find("index")),
        gpu_instance=quantity(node.find("gpu_instance_id")),
        compute_instance=quantity(node.find("compute_instance_id")),
        memory_total_mib=quantity(node.find("fb_memory_usage/total"), "MiB"),
        memory_used_mib=quantity(node.find("fb_memory_usage/used"), "MiB"),
    )
