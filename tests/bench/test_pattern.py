"""What the memory test writes: every word belongs to its place, and host and kernel agree on it."""

from __future__ import annotations

import ctypes
import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.bench import ptx

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BASE, REPORT = 1 << 40, 1 << 41


@pytest.fixture(scope="module")
def pattern() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("_pattern")
    sys.path.remove(str(BENCHMARKS))


class Pinned:
    """Page-locked memory that is not."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def pin(self, size: int) -> int:
        self.kept.append(ctypes.create_string_buffer(size + 8))
        return (ctypes.addressof(self.kept[-1]) + 7) // 8 * 8


SIZE, COUNT = 1 << 16, 64


def windows(pattern: ModuleType, pinned: Pinned, number: int) -> list[bytes]:
    made = pattern.Windows(pinned, SIZE, COUNT, 4)
    return [ctypes.string_at(made.at(number, k), SIZE) for k in range(COUNT)]


@pytest.mark.parametrize("number", range(4))
def test_no_word_of_the_host_is_right_in_another_window_at_its_place(pattern: ModuleType, number: int) -> None:
    found = windows(pattern, Pinned(), number)
    places = [{text[at : at + 8] for text in found} for at in range(0, SIZE, 4096)]
    assert all(len(words) == COUNT for words in places)
    assert len({found[0][at : at + 8] for at in range(0, SIZE, 8)}) == SIZE // 8


def test_every_second_pass_of_the_host_is_the_inverse_and_seeds_differ(pattern: ModuleType) -> None:
    first, second, third, fourth = (windows(pattern, Pinned(), n)[5] for n in range(4))
    assert all(a ^ b == 255 for a, b in zip(first, second))
    assert all(a ^ b == 255 for a, b in zip(third, fourth))
    assert sum(a == b for a, b in zip(first, third)) < SIZE / 100


def test_the_host_names_each_wrong_word(pattern: ModuleType) -> None:
    pinned = Pinned()
    made = pattern.Windows(pinned, SIZE, COUNT, 1)
    buffer = pinned.pin(3 * SIZE)
    made.fill(0, buffer, 3 * SIZE)
    assert made.compare_all(0, buffer, 3 * SIZE).wrong_bytes == 0
    word = ctypes.c_uint64.from_address(buffer + SIZE + 4104)
    right = word.value
    word.value ^= 1 << 9
    last = ctypes.c_uint64.from_address(buffer + 3 * SIZE - 8)
    expected = last.value
    last.value = 0
    found = made.compare_all(0, buffer, 3 * SIZE)
    assert found.wrong_bytes == 16
    assert found.errors == [(SIZE + 4104, right, right ^ 1 << 9), (3 * SIZE - 8, expected, 0)]


def test_the_kernels_write_and_find_what_the_host_computes(pattern: ModuleType) -> None:
    words, first = 1000, 1 << 33
    for number in range(4):
        memory: dict[int, int] = {}
        settings = (pattern.Mixer.seed(number), pattern.Mixer.mask(number))
        ptx.launch(pattern.PTX, "accept_write", (3, 32), (BASE, words, first, *settings), memory)
        assert memory == {BASE + 8 * n: pattern.Mixer.word(first + n, number) for n in range(words)}
        memory[BASE + 8 * 7] ^= 1
        memory[BASE + 8 * 999] ^= 1 << 63
        memory[REPORT] = 0
        ptx.launch(pattern.PTX, "accept_verify", (3, 32), (BASE, words, first, *settings, REPORT, 32), memory)
        count = memory.pop(REPORT)
        found = sorted((memory[REPORT + 8 + 16 * n], memory[REPORT + 16 + 16 * n]) for n in range(count))
        assert found == [(first + n, memory[BASE + 8 * n]) for n in (7, 999)]


def test_the_kernel_counts_more_than_it_records(pattern: ModuleType) -> None:
    memory = {BASE + 8 * n: 0 for n in range(100)}
    memory[REPORT] = 0
    ptx.launch(pattern.PTX, "accept_verify", (1, 32), (BASE, 100, 0, 1, 0, REPORT, 4), memory)
    assert memory[REPORT] == 100
    assert max(a for a in memory if a >= REPORT) == REPORT + 16 * 4


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_nvidias_assembler_takes_the_kernels(pattern: ModuleType, tmp_path: Path, architecture: str) -> None:
    if shutil.which("ptxas") is None:
        pytest.skip("needs ptxas of the CUDA toolkit")
    (tmp_path / "kernels.ptx").write_text(pattern.PTX)
    argv = ["ptxas", f"-arch={architecture}", "kernels.ptx", "-o", "kernels.cubin"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_words_of_the_kernel_are_all_different(pattern: ModuleType) -> None:
    for number in (0, 2):
        assert len({pattern.Mixer.word(n, number) for n in range(100_000)}) == 100_000
        assert all(
            pattern.Mixer.word(n, number) ^ pattern.Mixer.word(n, number + 1) == pattern.ONES for n in range(100)
        )
