"""A server that is not there: ``build(node, folder)`` makes its tools, its libraries and its files.

built = build(healthy.h100(), tmp_path)
subprocess.run([..., "run", contract, "--root", built.root], env=built.environment())
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Optional

from tests.fakenode import machine, smi_texts
from tests.fakenode.card import Card
from tests.fakenode.libs import built as built_libraries
from tests.fakenode.machine import Cpus, Drive, Function, Nic
from tests.fakenode.nvml_answers import cuda_lines, nvml_lines

_NAMESPACE = uuid.UUID("7d0f3d0e-51a6-4d86-8a24-5d2b3a1f9c11")


@dataclass(frozen=True)
class Node:
    """What is delivered. The last fields are what is done to it."""

    name: str
    cards: tuple[Card, ...]
    nics: tuple[Nic, ...] = ()
    drives: tuple[Drive, ...] = ()
    cpus: Cpus = field(default_factory=Cpus)
    memory_gib: int = 2048
    driver: str = "570.133.20"
    cuda: str = "12.8"
    uid: int = 0
    container: bool = False
    vm: bool = False
    fabric_manager: Optional[str] = None
    """``active``, ``inactive``, or None where none is installed."""
    kernel_log: Optional[tuple[str, ...]] = ("[    0.000000] Linux version 5.15.0-126-generic",)
    """None: this user may not read it."""
    given: Optional[tuple[int, ...]] = None
    """Indices of the cards that the driver lists, where that is not all that sits on the PCI bus."""
    off_bus: tuple[int, ...] = ()
    """Indices of cards that the PCI bus does not show."""

    answers: tuple[str, ...] = ()
    """Lines for ``answers.txt`` that come before all others."""
    tools: Mapping[str, Optional[str]] = field(default_factory=dict)
    """Scripts in the place of tools; None: none of the node's, but one of the test's machine shows through."""
    files: Mapping[str, Optional[str]] = field(default_factory=dict)
    """Files of the root that differ; None: not there."""
    smi_says: Optional[tuple[str, int]] = None
    """What nvidia-smi prints and exits with, whatever it is asked."""
    library_version: Optional[str] = None
    """Of libnvidia-ml's file name, where it is not the driver's."""
    has_libraries: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)

    def but(self, **changes: Any) -> Node:
        return replace(self, **changes)

    def card(self, index: int, change: Callable[[Card], Card]) -> Node:
        """The same node with one card changed."""
        return replace(self, cards=tuple(change(c) if c.index == index else c for c in self.cards))

    def every_card(self, change: Callable[[Card], Card]) -> Node:
        return replace(self, cards=tuple(map(change, self.cards)))

    def answering(self, *lines: str) -> Node:
        return replace(self, answers=(*lines, *self.answers))

    def with_tools(self, **tools: Optional[str]) -> Node:
        return replace(self, tools={**self.tools, **{k.replace("_", "-"): v for k, v in tools.items()}})

    def with_files(self, files: Mapping[str, Optional[str]]) -> Node:
        return replace(self, files={**self.files, **files})

    @property
    def listed(self) -> tuple[Card, ...]:
        """The cards that the driver knows."""
        return tuple(card for card in self.cards if self.given is None or card.index in self.given)


@dataclass(frozen=True)
class Built:
    """``path``: the folder; ``root``: for ``accept run --root``; ``env``: PATH and LD_LIBRARY_PATH to run it in."""

    node: Node
    path: Path
    env: Mapping[str, str]
    root: Path

    def environment(self) -> dict[str, str]:
        """This process's environment with the node's in front."""
        return {**os.environ, **self.env}


def identity(card: Card, host: str) -> Card:
    """UUID and serial number, the same at every build."""
    found = uuid.uuid5(_NAMESPACE, f"{host} {card.slot}")
    serial = None if card.geforce else f"165{found.int % 10**10:010d}"
    return card.but(uuid=f"GPU-{found}", serial=serial)


def build(node: Node, folder: Path) -> Built:
    """Write the whole node below ``folder``, which must be empty or absent."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "smi", "root"):
        (folder / name).mkdir()
    _libraries(node, folder / "lib")
    _nvidia_smi(node, folder)
    _answers(node, folder)
    _tools(node, folder / "bin")
    _root(node, folder / "root")
    env = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "LD_LIBRARY_PATH": str(folder / "lib"),
        **node.environment,
    }
    return Built(node, folder, env, folder / "root")


def _libraries(node: Node, folder: Path) -> None:
    """As the driver installs them: the version in the file's name, the soname a link to it."""
    if not node.has_libraries:
        return
    for name in ("libnvidia-ml.so", "libcuda.so"):
        version = node.library_version or node.driver
        shutil.copy(built_libraries() / name, folder / f"{name}.{version}")
        (folder / f"{name}.1").symlink_to(f"{name}.{version}")


def _nvidia_smi(node: Node, folder: Path) -> None:
    script = node.tools.get("nvidia-smi", "")
    if script == "" and node.has_libraries:
        shutil.copy(built_libraries() / "nvidia-smi", folder / "bin" / "nvidia-smi")
    places: list[smi_texts.Place] = [(nic.name, nic.parents, nic.numa) for nic in node.nics if nic.rdma]
    cards = node.listed
    texts = {
        "q-x.xml": smi_texts.xml(cards, node.driver, node.cuda),
        "topo-m.txt": smi_texts.topology(cards, places, node.cpus.lists),
        "topo-p2p.txt": smi_texts.peers(cards),
        "nvlink-s.txt": smi_texts.nvlinks(cards),
        "version.txt": smi_texts.version(node.driver, node.cuda),
        "list.txt": smi_texts.listing(cards),
        "table.txt": smi_texts.table(cards, node.driver, node.cuda),
    }
    if node.smi_says is not None:
        texts["says.txt"] = node.smi_says[0] + "\n"
    for name, text in texts.items():
        (folder / "smi" / name).write_text(text, encoding="utf-8")


_SMI = """
- smi+-q+-x 0 smi/q-x.xml
- smi+-x+-q 0 smi/q-x.xml
- smi+topo+-m 0 smi/topo-m.txt
- smi+topo+-p2p* 0 smi/topo-p2p.txt
- smi+nvlink+-s* 0 smi/nvlink-s.txt
- smi+nvlink+--status* 0 smi/nvlink-s.txt
- smi+--version 0 smi/version.txt
- smi+-L 0 smi/list.txt
- smi 0 smi/table.txt
"""


def _answers(node: Node, folder: Path) -> None:
    cards = node.listed
    says = [] if node.smi_says is None else [f"- smi* {node.smi_says[1]} smi/says.txt"]
    lines = [
        *node.answers,
        *says,
        *nvml_lines(cards, node.driver, node.cuda),
        *cuda_lines(cards, node.cuda),
        *_SMI.split("\n"),
        *smi_texts.fields(cards, node.driver),
    ]
    (folder / "answers.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


# --- tools -----------------------------------------------------------------------------------------------


def _tools(node: Node, folder: Path) -> None:
    for name, script in {**_standard_tools(node), **node.tools}.items():
        if name == "nvidia-smi" and script == "":
            continue
        path = folder / name
        path.unlink(missing_ok=True)
        if script is None:
            continue
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)


def _standard_tools(node: Node) -> dict[str, Optional[str]]:
    denied = "dmesg: read kernel buffer failed: Operation not permitted"
    log = None if node.kernel_log is None else "".join(f"{line}\n" for line in node.kernel_log)
    journal = "No journal files were opened due to insufficient permissions."
    virtualization = "docker" if node.container else "kvm" if node.vm else "none"
    return {
        "lspci": prints(machine.lspci(functions(node), root=node.uid == 0 and not node.container)),
        "ps": _ps(node),
        "dmesg": fails(denied, 1) if log is None else prints(log),
        "journalctl": fails(journal, 1) if log is None else prints("-- No entries --\n"),
        "systemctl": _systemctl(node),
        "systemd-detect-virt": prints(f"{virtualization}\n", 0 if virtualization != "none" else 1),
        "nvidia-container-cli": prints("cli-version: 1.17.4\nlib-version: 1.17.4\n") if not node.container else None,
    }


def _ps(node: Node) -> str:
    """What runs here, by pid, owner and the name as the kernel cuts it; a container sees its own alone."""
    rows = [(1, 0, "bash")] if node.container else [(1, 0, "systemd"), (812, 0, "sshd"), (951, 0, "nvidia-persiste")]
    rows += [(977, 0, "nv-fabricmanage")] if node.fabric_manager == "active" else []
    rows += [(4100, node.uid, "ps")]
    with_owner = "\n".join(f"{pid:7} {uid:5} {name}" for pid, uid, name in rows)
    without = "\n".join(f"{pid:7} {name}" for pid, _, name in rows)
    return f"#!/bin/sh\ncase \"$*\" in\n*uid=*) echo '{with_owner}';;\n*) echo '{without}';;\nesac\n"


def _systemctl(node: Node) -> str:
    state = node.fabric_manager
    answer = f"echo {state}; exit {0 if state == 'active' else 3}" if state else "echo inactive; exit 4"
    if node.container:
        return fails("System has not been booted with systemd as init system (PID 1). Can't operate.", 1)
    return f'#!/bin/sh\ncase "$*" in\n*fabricmanager*) {answer};;\n*) echo inactive; exit 3;;\nesac\n'


def prints(text: str, code: int = 0) -> str:
    """A script that prints a text whatever it is asked."""
    return f"#!/bin/sh\ncat <<'THE-END'\n{text.rstrip(chr(10))}\nTHE-END\nexit {code}\n"


def fails(text: str, code: int) -> str:
    """A script that complains."""
    return f"#!/bin/sh\ncat >&2 <<'THE-END'\n{text}\nTHE-END\nexit {code}\n"


# --- the root ----------------------------------------------------------------------------------------------


def functions(node: Node) -> list[Function]:
    """All PCI functions but the bridges."""
    lists = node.cpus.lists
    found = [
        # The driver gives up a card that is dead when it is loaded.
        replace(machine.of_card(card, lists), driver="" if card.lost and card not in node.listed else "nvidia")
        for card in node.cards
        if card.index not in node.off_bus
    ]
    found += [
        Function(
            n.slot, n.parents, (0x020700, 0x15B3, 0x1021, 0x0041_15B3), n.numa, 5, 5, 16, 16, "mlx5_core", lists[n.numa]
        )
        for n in node.nics
    ]
    found += [
        Function(d.slot, d.parents, (0x010802, 0x144D, 0xA80A, 0xA813_144D), d.numa, 4, 4, 4, 4, "nvme", lists[d.numa])
        for d in node.drives
    ]
    found += [
        Function(slot, parents, machine.NVSWITCH, 0, 4, 4, 2, 2, "nvidia-nvswitch", lists[0])
        for slot, parents in (machine.SWITCHES if any(card.fabric for card in node.cards) else ())
    ]
    return found


def _root(node: Node, root: Path) -> None:
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    for more_files, more_links in (
        machine.pci(functions(node)),
        machine.rdma(node.nics),
        machine.drives(node.drives),
    ):
        files.update(more_files)
        links.update(more_links)
    threads = 2 * node.cpus.sockets * node.cpus.cores
    files.update(machine.processors(node.cpus))
    files.update(machine.memory(node.memory_gib, node.cpus.sockets))
    files.update(machine.system(node.name, uid=node.uid, container=node.container, vm=node.vm, cpus=f"0-{threads - 1}"))
    if node.has_libraries:
        switched = any(card.fabric for card in node.cards)
        files.update(machine.driver(node.listed, node.driver, peermem=bool(node.nics), nvswitches=switched))
    for path, text in node.files.items():
        files.pop(path, None)
        if text is not None:
            files[path] = text
    machine.write(root, files, links)
