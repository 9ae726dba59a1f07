"""Bundles as archives: the same files give the same bytes, every change is seen, nothing unsafe is unpacked."""

from __future__ import annotations

import gzip
import hashlib
import io
import random
import shutil
import struct
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.seal import archive
from agent.seal.archive import ArchiveError, unpack, write

FILES: dict[str, archive.Source] = {
    "run/manifest.json": b"{}\n",
    "run/evidence/0001-identity/stdout": b"x" * 5000,
    "run/evidence/0001-identity/stderr": b"",
    f"run/evidence/0002-long/files/{'a' * 180}": b"long names",
    "run/evidence/0003-\u672c\u673a/meta.json": "\u4e2d\u6587".encode(),
}


def made(folder: Path, files: dict[str, archive.Source] = FILES) -> Path:
    path = folder / "b.tar.gz"
    write(path, files)
    return path


def packed(tar: bytes, path: Path) -> Path:
    """Any tar behind the header and with the checksum of a bundle: what an opponent can make."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflate.compress(tar) + deflate.flush() + struct.pack("<II", zlib.crc32(tar), len(tar) & 0xFFFFFFFF)
    path.write_bytes(archive._FIXED + hashlib.sha256(body).hexdigest().encode() + b"\0" + body)
    return path


def tar_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def plain(name: str, data: bytes = b"x", kind: bytes = b"0") -> bytes:
    """One member as our writer would write it, but with any name and kind."""
    return archive._header(name.encode(), len(data), kind) + data + b"\0" * (-len(data) % 512)


END = b"\0" * 1024


def refused(path: Path, into: Path) -> str:
    into.mkdir()
    before = sorted(p for p in into.parent.rglob("*") if into not in p.parents)
    with pytest.raises(ArchiveError) as error:
        unpack(path, into)
    assert sorted(p for p in into.parent.rglob("*") if into not in p.parents) == before
    return str(error.value)


def test_the_files_come_back(tmp_path: Path) -> None:
    names = unpack(made(tmp_path), tmp_path / "out")
    assert names == sorted(FILES)
    assert {n: (tmp_path / "out" / n).read_bytes() for n in names} == FILES


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    backwards = dict(reversed(FILES.items()))
    write(tmp_path / "a", FILES)
    write(tmp_path / "b", backwards)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_files_from_disk_are_as_from_memory(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"z" * 70000)
    write(tmp_path / "a", {"one": tmp_path / "one"})
    write(tmp_path / "b", {"one": b"z" * 70000})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.skipif(shutil.which("tar") is None, reason="no tar")
def test_any_tar_opens_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = subprocess.run(["tar", "xzf", made(tmp_path), "-C", tmp_path / "out"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert {n: (tmp_path / "out" / n).read_bytes() for n in FILES} == FILES
    with tarfile.open(made(tmp_path)) as tar:
        assert sorted(tar.getnames()) == sorted(FILES)
    gzip.decompress(made(tmp_path).read_bytes())


def test_every_single_bit_counts(tmp_path: Path) -> None:
    """All 8 flips of a byte at 300 places, the whole header and trailer among them."""
    whole = made(tmp_path).read_bytes()
    draw = random.Random(6)
    places = {*range(100), *range(len(whole) - 20, len(whole)), *draw.sample(range(len(whole)), 180)}
    broken = tmp_path / "broken"
    for place in sorted(places):
        for bit in range(8):
            broken.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            with pytest.raises(ArchiveError):
                unpack(broken, tmp_path / "out")
            assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("cut", [0, 5, 60, 99, 100, 200, -1, -8])
def test_a_part_of_it_is_refused(tmp_path: Path, cut: int) -> None:
    path = made(tmp_path)
    path.write_bytes(path.read_bytes()[:cut])
    refused(path, tmp_path / "out")


def test_bytes_behind_it_are_refused(tmp_path: Path) -> None:
    path = made(tmp_path)
    path.write_bytes(path.read_bytes() + b"\0")
    refused(path, tmp_path / "out")


UNSAFE = [
    "../up", "a/../../up", "/etc/passwd", "a//b", "./a", "a/.", "a/..", "", "a\\b", "a\nb", "a\x00b", "a\x1b[2J", "C:x",
    "a/",
]  # fmt: skip


@pytest.mark.parametrize("name", UNSAFE, ids=ascii)
def test_unsafe_names_are_neither_written_nor_unpacked(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError):
        write(tmp_path / "never", {name: b""})
    assert not list(tmp_path.iterdir())
    refused(packed(plain(name) + END, tmp_path / "b"), tmp_path / "out")


@pytest.mark.parametrize("name", ["a" * 256, "/".join(["a" * 200] * 25), "a\ud800"])
def test_names_that_no_file_system_takes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArchiveError):
        write(tmp_path / "never", {name: b""})


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "A"), ("a/b", "A/c"), ("a", "a/b"), ("a/b", "A"), ("caf\u00e9", "cafe\u0301"), ("stra\u00dfe", "strasse")],
)
def test_names_that_meet_on_some_systems_are_refused(tmp_path: Path, one: str, other: str) -> None:
    with pytest.raises(ArchiveError):
        write(tmp_path / "never", {one: b"", other: b""})
    first, second = sorted((one, other))
    tar = archive._headers(first, 0) + archive._headers(second, 0) + END
    refused(packed(tar, tmp_path / "b"), tmp_path / "out")


KINDS = [b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"g", b"L", b"K", b"S", b"V", b"\0", b"X"]


@pytest.mark.parametrize("kind", KINDS, ids=ascii)
def test_only_regular_files(tmp_path: Path, kind: bytes) -> None:
    refused(packed(plain("a", b"", kind) + END, tmp_path / "b"), tmp_path / "out")


@pytest.mark.parametrize("field", ["linkname", "mode", "uid", "mtime", "uname", "prefix"])
def test_headers_of_others_are_refused(tmp_path: Path, field: str) -> None:
    info = tarfile.TarInfo("a" if field != "prefix" else f"{'b' * 60}/{'a' * 60}")
    info.mode, info.mtime = 0o644, 0
    if field != "prefix":
        setattr(info, field, {"mode": 0o777, "uid": 1, "mtime": 1}.get(field, "x"))
    refused(packed(tar_of((info, b"x")), tmp_path / "b"), tmp_path / "out")


def test_names_twice_or_out_of_order_are_refused(tmp_path: Path) -> None:
    refused(packed(plain("a") + plain("a") + END, tmp_path / "b"), tmp_path / "out")
    refused(packed(plain("b") + plain("a") + END, tmp_path / "b"), tmp_path / "out2")


def test_odd_padding_ends_and_extended_headers_are_refused(tmp_path: Path) -> None:
    good = plain("a")
    for number, tar in enumerate((
        good[:-1] + b"x" + END,  # a byte hidden in the padding
        good + b"\0" * 512,  # one block at the end
        good + END + b"\0" * 512,
        good + b"\0" * 512 + plain("b") + END,
        archive._header(b"PaxHeader", 12, b"x") + b"12 path=abc\n".ljust(512, b"\0") + good + END,
        archive._header(b"PaxHeader", 1 << 20, b"x") + b"\0" * (1 << 20) + END,
        tar_of((tarfile.TarInfo("n" * 200), b"x"), form=tarfile.GNU_FORMAT),
        tar_of((tarfile.TarInfo("n" * 200), b"x"), form=tarfile.PAX_FORMAT),
    )):  # fmt: skip
        refused(packed(tar, tmp_path / "b"), tmp_path / f"out{number}")


def test_a_bomb_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "RATIO_FROM", 1 << 20)
    bomb = packed(plain("zeros", b"\0" * (8 << 20)) + END, tmp_path / "b")
    assert bomb.stat().st_size < 20000
    assert "far more" in refused(bomb, tmp_path / "out")
    written = sum(p.stat().st_size for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert written < 6 << 20
    with pytest.raises(ArchiveError):
        write(tmp_path / "never", {"zeros": b"\0" * (8 << 20)})


def test_sizes_and_counts_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    huge = archive._header(b"a", archive.MOST_OF_ONE + 1, b"0")
    assert "larger" in refused(packed(huge + END, tmp_path / "b"), tmp_path / "out")
    monkeypatch.setattr(archive, "MOST_FILES", 2)
    tar = plain("a") + plain("b") + plain("c") + END
    assert "too many" in refused(packed(tar, tmp_path / "b"), tmp_path / "o3")
    monkeypatch.setattr(archive, "MOST_BYTES", 4000)
    many = plain("a", b"x" * 2500) + plain("b", b"x" * 2500) + END
    assert refused(packed(many, tmp_path / "b"), tmp_path / "o2")
    with pytest.raises(ArchiveError, match="larger"):
        write(tmp_path / "never", {"a": b"x" * 2500, "b": b"x" * 2500})


def test_what_is_there_already_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "target").write_text("mine")
    (tmp_path / "out" / "a").symlink_to(tmp_path / "target")
    write(tmp_path / "b", {"a": b"theirs"})
    with pytest.raises(FileExistsError):
        unpack(tmp_path / "b", tmp_path / "out")
    assert (tmp_path / "target").read_text() == "mine"


NAMES = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FFF, exclude_characters="\\\x7f"), min_size=1, max_size=120
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.dictionaries(NAMES, st.binary(max_size=2000), max_size=6))
def test_whatever_is_written_comes_back_or_is_refused_at_writing(
    tmp_path: Path, files: dict[str, archive.Source]
) -> None:
    path, out = tmp_path / "p", tmp_path / "o"
    shutil.rmtree(out, ignore_errors=True)
    try:
        write(path, files)
    except ArchiveError:
        return
    names = unpack(path, out)
    assert {n: (out / n).read_bytes() for n in names} == files
    inside = [p for p in out.rglob("*") if p.is_file()] if out.exists() else []
    assert len(inside) == len(files)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_tar_never_unpacks(tmp_path: Path, data: st.DataObject) -> None:
    """Any edit of the tar inside, with a checksum that fits again: other contents, or refused."""
    tar = b"".join(archive._tar([(n, FILES[n]) for n in sorted(FILES)]))
    place = data.draw(st.integers(0, len(tar) - 1))
    changed = bytearray(tar)
    changed[place] ^= data.draw(st.integers(1, 255))
    out = tmp_path / "o"
    shutil.rmtree(out, ignore_errors=True)
    try:
        names = unpack(packed(bytes(changed), tmp_path / "p"), out)
    except ArchiveError:
        return
    assert {n: (out / n).read_bytes() for n in names} != FILES
    assert all(out in (out / n).resolve().parents for n in names)
