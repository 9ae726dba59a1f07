"""For each path that the contract names: what file system it is on, and what device that lies on.

Three sources that share little: the kernel's mounts and ``/sys/class/block`` (read here), one child per path for
what must touch the path itself (a dead NFS server costs that child's deadline, not the run), and ``lsblk``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Optional

from agent import probes
from agent.facts import Asked, btrfs
from agent.facts._read import answer, cited, parsed, whole
from agent.host import Files, Host
from agent.reading import Known, Missing, Reading, fmap
from agent.text import Text, msg
from agent.tools import ParseError, lsblk, mdstat, mountinfo, smart
from agent.tools._text import one_document
from agent.tools.mdstat import Mdstat
from agent.tools.mountinfo import Mount
from agent.tools.smart import Smart

PATH_TIMEOUT_S = 10.0
_BLOCK = "/sys/class/block"

Kind = Literal["nvme", "ssd", "hdd", "network", "overlay", "tmpfs"]

NETWORK_FILESYSTEMS = frozenset(
    "nfs nfs4 cifs smb3 smbfs ceph glusterfs lustre beegfs gpfs 9p virtiofs afs orangefs panfs ocfs2 gfs2 juicefs "
    "fuse.juicefs fuse.s3fs fuse.goofys fuse.rclone fuse.sshfs fuse.glusterfs fuse.ceph fuse.weka wekafs "
    "fuse.mfs fuse.seaweedfs fuse.cpfs alinas".split()
)
MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_NETWORK_NAMES = re.compile(r"^(?:rbd|nbd|drbd)\d")
_NETWORK_MODELS = re.compile(r"elastic block store|cloud (?:disk|essd)|persistentdisk", re.IGNORECASE)
# Emulated disks report whatever the hypervisor was told; so do volumes of a RAID controller.
_EMULATED = re.compile(r"qemu|vmware|virtual|msft|google|bhyve|alibaba|tencent", re.IGNORECASE)
_CONTROLLERS = re.compile(r"perc|megaraid|avago|logical volume|\bmr\d{4}|smart array|adaptec|raid", re.IGNORECASE)
REDUNDANT = frozenset({"1", "5", "6", "10"})
# A partition or volume of at least this share of the device under it stands for the whole device.
WHOLE = 0.9


@dataclass(frozen=True)
class Block:
    """A block device as ``/sys/class/block`` shows it; ``below`` are the devices it is made of.

    ``backing`` is the file that a loop device shows as a disk.
    """

    name: str
    size: Optional[int]
    rotational: Optional[bool]
    model: str
    path: str
    transport: str
    below: tuple[str, ...]
    level: Optional[str]
    backing: Optional[str] = None

    @property
    def emulated(self) -> bool:
        """Whether a hypervisor or a controller stands before the medium, so that its flags prove nothing."""
        virtual = "/virtio" in self.path or self.name.startswith(("vd", "xvd"))
        return virtual or bool(_EMULATED.search(self.model) or _CONTROLLERS.search(self.model))


@dataclass(frozen=True)
class Raid:
    """``level`` is ``0``, ``1``, ``5``, ``6``, ``10``, ``linear`` or ``none``; ``arrays`` are the md names, or btrfs.

    ``one_disk``: the disk on which all members lie, so that the array does not survive its loss.
    """

    level: str
    arrays: tuple[str, ...] = ()
    degraded: Optional[bool] = None
    one_disk: Optional[str] = None


@dataclass(frozen=True)
class Space:
    """Of the file system, in bytes; ``free`` is what this user may still write."""

    total: int
    free: int
    writable: bool


@dataclass(frozen=True)
class Sold:
    """The size that a promise is held against, in bytes, and what it is the size of."""

    size: int
    of: Literal["device", "file system + 7 %"]
    name: str


@dataclass(frozen=True)
class DiskFacts:
    """One path. ``media`` are the devices at the bottom; ``size`` says itself of what."""

    path: str
    real: Reading[str]
    mount: Reading[Mount]
    fstype: Reading[str]
    device: Reading[str]
    media: Reading[tuple[Block, ...]]
    rotational: Reading[bool]
    kind: Reading[Kind]
    raid: Reading[Raid]
    space: Reading[Space]
    size: Reading[Sold]
    read_only: Reading[bool]


@dataclass(frozen=True)
class DisksFacts:
    """``paths`` by the path as the contract writes it; ``tree`` is what ``lsblk`` says of the whole machine.

    ``smart`` holds what the devices at the bottom of those paths say of their own wear, by kernel name.
    """

    paths: Mapping[str, DiskFacts]
    tree: Reading[lsblk.Lsblk]
    arrays: Reading[Mdstat]
    blocks: Reading[Mapping[str, Block]]
    smart: Mapping[str, Reading[Smart]] = field(default_factory=dict)


def collect(host: Host, asked: Asked) -> DisksFacts:
    """Touches only the paths asked for, and writes nothing."""
    files = host.read(
        "disks",
        ["/proc/self/mountinfo", mdstat.PATH, *(f"{_BLOCK}/*/{name}" for name in _FILES), btrfs.MISSING],
        links=[f"{_BLOCK}/*"],
        names=[f"{_BLOCK}/*/slaves/*", btrfs.DEVICES, btrfs.PROFILES],
    )
    tree = answer(host.run("lsblk", lsblk.argv(), lsblk.TIMEOUT_S), lsblk.parse)
    mounts = parsed(files.text("/proc/self/mountinfo"), mountinfo.parse, "/proc/self/mountinfo")
    arrays = _arrays(files)
    blocks = _blocks(files)
    seen = _Seen(mounts, blocks, arrays, tree, files)
    found = {path: _path(host, path, seen) for path in dict.fromkeys(asked.paths)}
    media = {b.name: b for d in found.values() if isinstance(d.media, Known) for b in d.media.value}
    return DisksFacts(found, tree, arrays, blocks, {name: _smart(host, block) for name, block in media.items()})


SMART_GRANT = msg("root, or the output of “smartctl -j -a” from the vendor's root (accept attach)")


def _smart(host: Host, block: Block) -> Reading[Smart]:
    """What the device says of itself. smartctl's exit status is a set of bits about the drive, not a failure."""
    ran = host.run(f"smart {block.name}", smart.argv(f"/dev/{block.name}"), smart.TIMEOUT_S)
    missing = ran.missing()
    if missing is not None:
        return missing
    try:
        return Known(smart.parse(ran.stdout or ran.stderr), ran.cited)
    except ParseError as error:
        detail = msg("smartctl cannot read {name}: {why}", name=block.name, why=str(error))
        if error.kind == "denied":
            return Missing("denied", detail, ran.cited, SMART_GRANT)
        return Missing("unsupported" if block.emulated else "failed", detail, ran.cited)


_FILES = (
    "dev size partition queue/rotational device/model device/vendor device/transport dm/name dm/uuid md/level "
    "loop/backing_file"
).split()


@dataclass(frozen=True)
class _Seen:
    mounts: Reading[tuple[Mount, ...]]
    blocks: Reading[Mapping[str, Block]]
    arrays: Reading[Mdstat]
    tree: Reading[lsblk.Lsblk]
    files: Files


def _arrays(files: Files) -> Reading[Mdstat]:
    text = files.text(mdstat.PATH)
    if isinstance(text, Missing) and text.kind == "not-there":
        return Known(Mdstat(()), files.cited)  # a kernel without software RAID has no arrays
    return parsed(text, mdstat.parse, mdstat.PATH)


def _blocks(files: Files) -> Reading[Mapping[str, Block]]:
    names = [path.rpartition("/")[2] for path in files.match(f"{_BLOCK}/*")]
    if not names:
        return Missing("not-there", msg("{path} shows no block devices", path=_BLOCK), files.cited)
    return Known({name: _block(files, name) for name in names}, files.cited)


def _block(files: Files, name: str) -> Block:
    size = parsed(files.text(f"{_BLOCK}/{name}/size"), whole, "size")
    flag = files.text(f"{_BLOCK}/{name}/queue/rotational")
    path = _text(files.link(f"{_BLOCK}/{name}"))
    below = [p.rpartition("/")[2] for p in files.match(f"{_BLOCK}/{name}/slaves/*")]
    if isinstance(files.text(f"{_BLOCK}/{name}/partition"), Known) and path.count("/"):
        below = [path.split("/")[-2]]
    level = _text(files.text(f"{_BLOCK}/{name}/md/level"))
    return Block(
        name=name,
        size=size.value * 512 if isinstance(size, Known) else None,  # always in units of 512 bytes
        rotational={"0": False, "1": True}.get(_text(flag)),
        model=f"{_text(files.text(f'{_BLOCK}/{name}/device/vendor'))} "
        f"{_text(files.text(f'{_BLOCK}/{name}/device/model'))}".strip(),
        path=path,
        transport=_text(files.text(f"{_BLOCK}/{name}/device/transport")),
        below=tuple(below),
        level=level or None,
        backing=_text(files.text(f"{_BLOCK}/{name}/loop/backing_file")) or None,
    )


def _text(reading: Reading[str]) -> str:
    return reading.value.strip() if isinstance(reading, Known) else ""


def _path(host: Host, path: str, seen: _Seen) -> DiskFacts:
    ran = probes.ask(host, f"path {path}", "path_probe", [path], PATH_TIMEOUT_S)
    touched = answer(ran, lambda text: one_document(text, "path_probe"))
    real = parsed(touched, _realpath, path)
    space = _there(path, touched)
    # A path that is not there lies on no disk; one that only does not answer is judged by its mount.
    mount = _mount(path, real, seen.mounts)
    if isinstance(space, Missing) and space.kind == "not-there":
        mount = space
    device = _device(mount, seen)
    pool = _pool(mount, device, seen)
    media = _media(device, seen, pool)
    device = _one_of(device, pool)
    kind = _kind(mount, media, seen)
    return DiskFacts(
        path=path,
        real=real,
        mount=mount,
        fstype=fmap(lambda m: m.fstype, mount),
        device=device,
        media=media,
        rotational=_rotational(media),
        kind=kind,
        raid=_raid(mount, device, media, seen) if pool is None else _pool_raid(pool, media, seen),
        space=space,
        size=_sold(device, space, seen),
        read_only=fmap(lambda m: m.read_only, mount),
    )


def _realpath(answered: Mapping[str, Any]) -> str:
    real = answered.get("realpath")
    if not isinstance(real, str):
        raise ParseError("unparsable", "the probe names no path")
    return real


def _there(path: str, touched: Reading[dict[str, Any]]) -> Reading[Space]:
    if isinstance(touched, Missing):
        return touched
    found = touched.value
    if not found.get("exists"):
        grant = msg("create {path}, or correct the contract", path=path)
        return Missing("not-there", msg("{path} does not exist", path=path), touched.evidence, grant)
    if found.get("error"):
        kind: Literal["denied", "failed"] = "denied" if found["error"] in ("EACCES", "EPERM") else "failed"
        detail = msg("{path} cannot be looked at: {error}", path=path, error=found["error"])
        grant = msg("let this user read {path}", path=path)
        return Missing(kind, detail, touched.evidence, grant if kind == "denied" else None)
    return parsed(touched, _space, path)


def _space(found: Mapping[str, Any]) -> Space:
    total, free = found.get("total_bytes"), found.get("free_bytes")
    if not isinstance(total, int) or not isinstance(free, int):
        raise ParseError("unparsable", "the probe names no space")
    return Space(total, free, bool(found.get("writable")) and not found.get("read_only"))


def _mount(path: str, real: Reading[str], mounts: Reading[tuple[Mount, ...]]) -> Reading[Mount]:
    """The mount of the resolved path; of the path as written where nobody could resolve it in time."""
    if isinstance(mounts, Missing):
        return mounts
    asked = real.value if isinstance(real, Known) else path
    found = mountinfo.under(mounts.value, asked)
    if found is None:
        return Missing("not-there", msg("{path} is on no mount", path=path), cited(real, mounts))
    return Known(found, cited(real, mounts))


def _device(mount: Reading[Mount], seen: _Seen) -> Reading[str]:
    """Kernel name of the block device under the mount (``nvme0n1p2``, ``dm-0``)."""
    if isinstance(mount, Missing):
        return mount
    if isinstance(seen.blocks, Missing):
        return seen.blocks
    evidence = cited(mount, seen.blocks)
    numbered = _numbered(mount.value.device, seen)
    if numbered is not None:
        return Known(numbered, evidence)
    source = mount.value.source
    if source.startswith("/dev/"):  # btrfs and zfs number their own devices
        by_name = {_text(seen.files.text(f"{_BLOCK}/{n}/dm/name")): n for n in seen.blocks.value}
        short = source.rpartition("/")[2]
        name = by_name.get(short) if source.startswith("/dev/mapper/") else short
        if name in seen.blocks.value:
            return Known(str(name), evidence)
    detail = msg("{fs} at {point} lies on no block device seen here", fs=mount.value.fstype, point=mount.value.point)
    return Missing("unsupported", detail, evidence)


def _pool(mount: Reading[Mount], device: Reading[str], seen: _Seen) -> Optional[btrfs.Pool]:
    if isinstance(mount, Missing) or isinstance(device, Missing) or mount.value.fstype != "btrfs":
        return None
    return btrfs.pool(seen.files, device.value)


def _one_of(device: Reading[str], pool: Optional[btrfs.Pool]) -> Reading[str]:
    """What lies on several devices has no one device whose size or counters would be its own."""
    if pool is None or len(pool.devices) + pool.missing < 2 or isinstance(device, Missing):
        return device
    names = ", ".join(pool.devices)
    return Missing("unsupported", msg("btrfs lies on several devices: {names}", names=names), device.evidence)


def _numbered(number: str, seen: _Seen) -> Optional[str]:
    """The device of a number such as ``8:1``."""
    names = seen.blocks.value if isinstance(seen.blocks, Known) else ()
    return next((n for n in names if _text(seen.files.text(f"{_BLOCK}/{n}/dev")) == number), None)


def _media(device: Reading[str], seen: _Seen, pool: Optional[btrfs.Pool]) -> Reading[tuple[Block, ...]]:
    if isinstance(device, Missing):
        return device
    if isinstance(seen.blocks, Missing):
        return seen.blocks
    names = pool.devices if pool is not None else (device.value,)
    found = [block for name in names for block in _bottom(name, seen.blocks.value)]
    return Known(tuple(dict.fromkeys(found)), cited(device, seen.blocks))


def _bottom(name: str, blocks: Mapping[str, Block], depth: int = 0) -> Sequence[Block]:
    block = blocks.get(name)
    if block is None or depth > 8:
        return ()
    if not block.below:
        return (block,)
    found = [b for below in block.below for b in _bottom(below, blocks, depth + 1)]
    return tuple(dict.fromkeys(found))


def _rotational(media: Reading[tuple[Block, ...]]) -> Reading[bool]:
    if isinstance(media, Missing):
        return media
    if not media.value or any(b.emulated or b.rotational is None for b in media.value):
        return Missing("unsupported", _hidden(media.value), media.evidence)
    return Known(any(b.rotational for b in media.value), media.evidence)


def _hidden(media: Sequence[Block]) -> Text:
    names = ", ".join(b.name for b in media) or "?"
    return msg("{names} is shown by a hypervisor or a controller, which hides what it is made of", names=names)


def _kind(mount: Reading[Mount], media: Reading[tuple[Block, ...]], seen: _Seen) -> Reading[Kind]:
    if isinstance(mount, Missing):
        return mount
    by_filesystem = _in_memory(upper_layer(mount.value), seen) or filesystem_kind(mount.value)
    if by_filesystem is not None:
        return Known(by_filesystem, mount.evidence)
    if isinstance(media, Missing):
        return media
    backed = next((k for k in (_in_memory(block.backing, seen) for block in media.value) if k), None)
    if backed is not None:
        return Known(backed, cited(mount, media))
    if isinstance(seen.tree, Missing) and seen.tree.kind == "timeout":
        return seen.tree  # a device that does not answer has not shown what it is
    kinds = {medium_kind(block) for block in media.value}
    evidence = cited(mount, media, seen.tree)
    if None in kinds or not kinds:
        return Missing("unsupported", _hidden(media.value), evidence)
    return Known(_slowest(kinds), evidence)


def upper_layer(mount: Mount) -> Optional[str]:
    """Where an overlay puts what is written to it. Inside a container this is a path of the host."""
    found = [o.partition("=")[2] for o in mount.super_options if o.startswith("upperdir=")]
    return found[0] if found and mount.fstype == "overlay" else None


def _in_memory(path: Optional[str], seen: _Seen) -> Optional[Kind]:
    """``tmpfs`` for a path of this mount namespace that lies in memory."""
    if path is None or isinstance(seen.mounts, Missing):
        return None
    mount = mountinfo.under(seen.mounts.value, path)
    return "tmpfs" if mount is not None and mount.fstype in MEMORY_FILESYSTEMS else None


def filesystem_kind(mount: Mount) -> Optional[Kind]:
    """What the file system alone says: memory, network, overlay; None where its device decides."""
    if mount.fstype in MEMORY_FILESYSTEMS:
        return "tmpfs"
    if mount.fstype in NETWORK_FILESYSTEMS:
        return "network"
    return "overlay" if mount.fstype in ("overlay", "aufs", "fuse.fuse-overlayfs") else None


def medium_kind(block: Block) -> Optional[Kind]:
    """What a device at the bottom is; None where nothing reliable tells."""
    if block.transport in ("tcp", "rdma", "fc") or "/session" in block.path:  # NVMe over fabrics, iSCSI
        return "network"
    if _NETWORK_NAMES.match(block.name) or _NETWORK_MODELS.search(block.model):
        return "network"
    if re.match(r"(?:zram|ram)\d", block.name):
        return "tmpfs"
    if block.emulated or block.rotational is None or block.name.startswith("loop"):
        return None
    if block.name.startswith("nvme"):
        return "nvme"
    return "hdd" if block.rotational else "ssd"


def _slowest(kinds: set[Optional[Kind]]) -> Kind:
    order: tuple[Kind, ...] = ("network", "hdd", "ssd", "nvme", "tmpfs", "overlay")
    return next(kind for kind in order if kind in kinds)


def _raid(mount: Reading[Mount], device: Reading[str], media: Reading[tuple[Block, ...]], seen: _Seen) -> Reading[Raid]:
    if isinstance(device, Missing):
        return device
    if isinstance(media, Missing):
        return media
    if isinstance(seen.blocks, Missing):
        return seen.blocks
    arrays = _arrays_under(device.value, seen.blocks.value)
    evidence = cited(device, seen.blocks, seen.arrays)
    if arrays:
        return _md_raid(arrays, seen, evidence)
    if any(b.emulated or b.rotational is None for b in media.value):
        return Missing("unsupported", _hidden(media.value), evidence)
    if isinstance(mount, Known) and mount.value.fstype in ("btrfs", "zfs", "bcachefs"):
        detail = msg("{fs} does its own RAID, which is not read yet", fs=mount.value.fstype)
        return Missing("unsupported", detail, evidence)
    if any(_mirrored(seen, name) for name in _chain(device.value, seen.blocks.value)):
        return Missing("unsupported", msg("LVM or device mapper RAID is not read yet"), evidence)
    return Known(Raid("none"), evidence)


def _mirrored(seen: _Seen, name: str) -> bool:
    """A device-mapper volume on several devices may be striped, mirrored or joined."""
    blocks = seen.blocks.value if isinstance(seen.blocks, Known) else {}
    return name.startswith("dm-") and len(blocks[name].below) > 1


def _chain(name: str, blocks: Mapping[str, Block], depth: int = 0) -> list[str]:
    block = blocks.get(name)
    if block is None or depth > 8:
        return []
    return [name, *(n for below in block.below for n in _chain(below, blocks, depth + 1))]


def _arrays_under(name: str, blocks: Mapping[str, Block]) -> list[Block]:
    return [blocks[n] for n in dict.fromkeys(_chain(name, blocks)) if blocks[n].level is not None]


def _md_raid(arrays: Sequence[Block], seen: _Seen, evidence: tuple[str, ...]) -> Reading[Raid]:
    levels = {str(b.level).replace("raid", "") for b in arrays}
    if len(levels) > 1:
        detail = msg("arrays of different levels on one another: {names}", names=", ".join(b.name for b in arrays))
        return Missing("unsupported", detail, evidence)
    if isinstance(seen.arrays, Missing):
        return seen.arrays
    states = [a.degraded for a in seen.arrays.value.arrays if a.name in {b.name for b in arrays}]
    level = levels.pop()
    degraded = True if True in states else None if None in states or not states else False
    if degraded is None and level in REDUNDANT:
        return Missing("unsupported", msg("whether all members of the array work is not to be seen"), evidence)
    one_disk = next((d for d in (_one_disk(a.below, seen) for a in arrays) if d is not None), None)
    return Known(Raid(level, tuple(b.name for b in arrays), degraded, one_disk), evidence)


def _pool_raid(pool: btrfs.Pool, media: Reading[tuple[Block, ...]], seen: _Seen) -> Reading[Raid]:
    """btrfs keeps data and metadata each in a way of its own; the loss of either loses the files."""
    if isinstance(media, Missing):
        return media
    data, metadata = pool.level("data"), pool.level("metadata")
    if data is None or metadata is None:
        detail = msg("btrfs keeps its data in more than one way, or does not show in which")
        return Missing("unsupported", detail, media.evidence)
    if data not in ("none", "0") and data != metadata:
        detail = msg("btrfs keeps data as RAID {data} and metadata as RAID {metadata}", data=data, metadata=metadata)
        return Missing("unsupported", detail, media.evidence)
    if data == "none" and any(b.emulated or b.rotational is None for b in media.value):
        return Missing("unsupported", _hidden(media.value), media.evidence)
    one_disk = _one_disk(pool.devices, seen) if data != "none" else None
    return Known(Raid(data, ("btrfs",), pool.missing > 0, one_disk), media.evidence)


def _one_disk(members: Sequence[str], seen: _Seen) -> Optional[str]:
    """The disk on which all of several members lie, where it is seen that they do; None where they don't."""
    blocks = seen.blocks.value if isinstance(seen.blocks, Known) else {}
    under = {_disk_under(block, seen) for name in members for block in _bottom(name, blocks)}
    return under.pop() if len(members) > 1 and len(under) == 1 else None


def _disk_under(block: Block, seen: _Seen) -> str:
    """A loop device's file lies on a disk as well, where its file system is seen from here."""
    if block.backing is None or isinstance(seen.mounts, Missing) or isinstance(seen.blocks, Missing):
        return block.name
    mount = mountinfo.under(seen.mounts.value, block.backing)
    name = _numbered(mount.device, seen) if mount is not None else None
    found = _bottom(name, seen.blocks.value) if name is not None else ()
    return found[0].name if len(found) == 1 and found[0].backing is None else block.name


def _sold(device: Reading[str], space: Reading[Space], seen: _Seen) -> Reading[Sold]:
    """The device, where the file system fills it; else the file system + 7 % for what it keeps for itself.

    A partition, volume or quota that is much smaller than the device is all that the renter got of it.
    """
    if isinstance(space, Missing):
        return space
    filesystem = Sold(round(space.value.total * 1.07), "file system + 7 %", "")
    if isinstance(device, Missing) or isinstance(seen.blocks, Missing):
        return Known(filesystem, space.evidence)
    block = _whole_device(device.value, seen.blocks.value)
    evidence = cited(space, device)
    if not block.size or filesystem.size < WHOLE * block.size:
        return Known(filesystem, evidence)
    return Known(Sold(block.size, "device", block.name), evidence)


def _whole_device(name: str, blocks: Mapping[str, Block]) -> Block:
    block = blocks[name]
    for _ in range(8):
        under = blocks.get(block.below[0]) if len(block.below) == 1 else None
        if under is None or not under.size or not block.size or block.size < WHOLE * under.size:
            return block
        block = under
    return block
