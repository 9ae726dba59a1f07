"""What is written into device memory, and how it is compared. See ``device_memory.py``. Standard library only.

Two ways, one idea: every 8-byte word holds a number that belongs to its place and to no other, so that memory which
is not there (addresses that lead to the same cell) shows as surely as a bit that does not hold. Each seed is written
twice, the second time with every bit inverted: each cell holds a 0 and a 1.

``Windows``: made and compared by the host. Window ``k`` of the memory is a random text read from its word
``stride × k`` on. ``Mixer``: made and compared by a kernel of ours; the word is a mix of its number and the seed.
"""

from __future__ import annotations

import ctypes
import hashlib

from _cuda import Kernels
from _protocol import Unable

WORD = 8
PAGE = 4096
MOST_ERRORS = 32  # recorded with their place; all are counted
MOST_WORDS = 4096  # beyond so many wrong words the host counts whole pages
ONES = (1 << 64) - 1

_LIBC = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_LIBC.memcmp.restype = ctypes.c_int


def inverted(number):
    return number % 2 == 1


class Found:
    """What one pass found: ``wrong_bytes``, and the first errors as (offset, expected, found)."""

    def __init__(self):
        self.wrong_bytes = 0
        self.errors = []

    def add(self, offset, expected, found):
        self.wrong_bytes += WORD
        if len(self.errors) < MOST_ERRORS:
            self.errors.append((offset, expected, found))


# ---------------------------------------------------------------- by the host


class Windows:
    """The texts of all passes, in page-locked memory of ``gpu`` that all GPUs can read.

    ``size``: bytes of a window; ``count``: windows of the largest memory.
    """

    def __init__(self, gpu, size, count, passes):
        self.size = size
        self.addresses = []
        for number in range(passes):
            length = size + WORD * self.stride(number) * count
            text = hashlib.shake_128(b"accept device memory %d" % (number // 2)).digest(length)
            if inverted(number):
                text = text.translate(bytes(255 - b for b in range(256)))
            address = gpu.pin(length)
            ctypes.memmove(address, text, length)
            self.addresses.append(address)

    @staticmethod
    def stride(number):
        """In words, odd and different for each seed: what a wrong address line hides in one pass shows in another."""
        return 2 * (number // 2) + 1

    def at(self, number, window):
        """Host address of what belongs into that window in that pass."""
        return self.addresses[number] + WORD * self.stride(number) * window

    def fill(self, number, host, size):
        """Put windows 0, 1, … into host memory."""
        for window in range(0, size, self.size):
            length = min(self.size, size - window)
            ctypes.memmove(host + window, self.at(number, window // self.size), length)

    def compare(self, number, window, host, size, offset, found, inside=0):
        """Add to ``found`` what in ``size`` bytes at ``host`` is not window ``window`` from its byte ``inside`` on.

        They lie at ``offset``.
        """
        expected = self.at(number, window) + inside
        if _LIBC.memcmp(host, expected, size) == 0:
            return
        for page in range(0, size, PAGE):
            length = min(PAGE, size - page)
            if _LIBC.memcmp(host + page, expected + page, length) == 0:
                continue
            if found.wrong_bytes >= WORD * MOST_WORDS:
                found.wrong_bytes += length
                continue
            words = zip(_words(expected + page, length), _words(host + page, length))
            for place, (wanted, have) in enumerate(words):
                if wanted != have:
                    found.add(offset + page + WORD * place, wanted, have)

    def compare_all(self, number, host, size):
        """``Found`` of host memory that :meth:`fill` should have filled."""
        found = Found()
        for start in range(0, size, self.size):
            self.compare(number, start // self.size, host + start, min(self.size, size - start), start, found)
        return found


def _words(address, size):
    return memoryview((ctypes.c_uint64 * (size // WORD)).from_address(address)).cast("B").cast("Q")


# ---------------------------------------------------------------- by a kernel

# splitmix64's finaliser of (number of the word) × golden ratio + seed, then inverted or not.
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MIX = """
    mad.lo.u64  %value, %number, 0x9E3779B97F4A7C15, %seed;
    shr.u64     %half, %value, 30;
    xor.b64     %value, %value, %half;
    mul.lo.u64  %value, %value, 0xBF58476D1CE4E5B9;
    shr.u64     %half, %value, 27;
    xor.b64     %value, %value, %half;
    mul.lo.u64  %value, %value, 0x94D049BB133111EB;
    shr.u64     %half, %value, 31;
    xor.b64     %value, %value, %half;
    xor.b64     %value, %value, %mask;
"""
# Each thread takes every (threads of the grid)-th word: neighbours touch neighbouring words.
_BEGIN = """
    .reg .pred  %done, %same;
    .reg .b32   %x, %size, %group, %groups;
    .reg .b64   %memory, %words, %first, %seed, %mask, %report, %most;
    .reg .b64   %word, %step, %number, %value, %half, %place, %have, %at;
    ld.param.u64 %memory, [memory];
    ld.param.u64 %words, [words];
    ld.param.u64 %first, [first];
    ld.param.u64 %seed, [seed];
    ld.param.u64 %mask, [mask];
    cvta.to.global.u64 %memory, %memory;
    mov.u32     %x, %tid.x;
    mov.u32     %size, %ntid.x;
    mov.u32     %group, %ctaid.x;
    mov.u32     %groups, %nctaid.x;
    mul.wide.u32 %word, %group, %size;
    cvt.u64.u32 %half, %x;
    add.u64     %word, %word, %half;
    mul.wide.u32 %step, %groups, %size;
"""
_PARAMETERS = ".param .u64 memory, .param .u64 words, .param .u64 first, .param .u64 seed, .param .u64 mask"
PTX = """.version 6.0
.target sm_50
.address_size 64

.visible .entry accept_write(%s)
{%s
next:
    setp.ge.u64 %%done, %%word, %%words;
    @%%done bra  end;
    add.u64     %%number, %%first, %%word;%s
    shl.b64     %%place, %%word, 3;
    add.u64     %%place, %%memory, %%place;
    st.global.u64 [%%place], %%value;
    add.u64     %%word, %%word, %%step;
    bra         next;
end:
    ret;
}

.visible .entry accept_verify(%s, .param .u64 report, .param .u64 most)
{%s
    ld.param.u64 %%report, [report];
    ld.param.u64 %%most, [most];
    cvta.to.global.u64 %%report, %%report;
next:
    setp.ge.u64 %%done, %%word, %%words;
    @%%done bra  end;
    add.u64     %%number, %%first, %%word;%s
    shl.b64     %%place, %%word, 3;
    add.u64     %%place, %%memory, %%place;
    ld.volatile.global.u64 %%have, [%%place];
    setp.eq.u64 %%same, %%have, %%value;
    @%%same bra  right;
    atom.global.add.u64 %%at, [%%report], 1;
    setp.ge.u64 %%same, %%at, %%most;
    @%%same bra  right;
    shl.b64     %%at, %%at, 4;
    add.u64     %%at, %%report, %%at;
    st.global.u64 [%%at+8], %%number;
    st.global.u64 [%%at+16], %%have;
right:
    add.u64     %%word, %%word, %%step;
    bra         next;
end:
    ret;
}
""" % (_PARAMETERS, _BEGIN, _MIX, _PARAMETERS, _BEGIN, _MIX)
GROUPS, THREADS = 8192, 256
TRIAL_WORDS = 1 << 16


class Mixer:
    """The kernels on one GPU, tried out before they are trusted; Unable where they cannot run or do wrong."""

    def __init__(self, gpu):
        self.gpu = gpu
        self.kernels = Kernels(gpu, PTX, ("accept_write", "accept_verify"))
        self.report = gpu.allocate(WORD * (1 + 2 * MOST_ERRORS))
        self._try()

    @staticmethod
    def word(number, of_pass):
        """What the kernel writes into word ``number``."""
        value = (number * GOLDEN + Mixer.seed(of_pass)) & ONES
        value = ((value ^ value >> 30) * FIRST) & ONES
        value = ((value ^ value >> 27) * SECOND) & ONES
        return value ^ value >> 31 ^ Mixer.mask(of_pass)

    @staticmethod
    def seed(of_pass):
        return 0x6163636570740000 + of_pass // 2

    @staticmethod
    def mask(of_pass):
        return ONES if inverted(of_pass) else 0

    def write(self, address, size, offset, of_pass):
        self._launch("accept_write", address, size, offset, of_pass)

    def verify(self, address, size, offset, of_pass, found):
        """Add to ``found`` what in ``size`` bytes of device memory at ``address`` is not what was written."""
        self.gpu.fill(self.report, 0, WORD)
        self._launch("accept_verify", address, size, offset, of_pass, self.report, MOST_ERRORS)
        counted = self._words(self.report, 1)[0]
        found.wrong_bytes += WORD * counted
        kept = self._words(self.report + WORD, 2 * min(counted, MOST_ERRORS)) if counted else ()
        errors = sorted(zip(kept[::2], kept[1::2]))
        room = MOST_ERRORS - len(found.errors)
        found.errors += [(WORD * n, self.word(n, of_pass), have) for n, have in errors[:room]]

    def spot(self, address, size, offset, of_pass):
        """Whether the first and last word are right as the host reads them: the kernel does not judge itself."""
        places = (0, size - WORD)
        return all(self._words(address + p, 1)[0] == self.word((offset + p) // WORD, of_pass) for p in places)

    def _launch(self, name, address, size, offset, of_pass, *more):
        words, first = size // WORD, offset // WORD
        groups = max(1, min(GROUPS, words // THREADS))
        self.kernels.launch(name, groups, THREADS, address, words, first, self.seed(of_pass), self.mask(of_pass), *more)

    def _words(self, address, count):
        out = (ctypes.c_uint64 * count)()
        self.gpu.read(ctypes.cast(out, ctypes.c_void_p), address, WORD * count)
        return list(out)

    def _try(self):
        """It must write what the host computes, and find two planted errors and nothing else."""
        first = WORD << 30  # beyond 4 GiB: 32-bit arithmetic would show
        address = self.gpu.allocate(WORD * TRIAL_WORDS)
        for of_pass in (0, 1):
            self.write(address, WORD * TRIAL_WORDS, first, of_pass)
            expected = [self.word((first // WORD) + n, of_pass) for n in range(TRIAL_WORDS)]
            if self._words(address, TRIAL_WORDS) != expected:
                raise Unable("refused", "the kernel does not write what it should")
            self._plant(address, expected, first, of_pass)
        self.gpu.free(address)

    def _plant(self, address, expected, first, of_pass):
        wrong = {5: expected[5] ^ 1, TRIAL_WORDS - 1: expected[-1] ^ 1 << 63}
        for place, value in wrong.items():
            self.gpu.write(address + WORD * place, ctypes.byref(ctypes.c_uint64(value)), WORD)
        found = Found()
        self.verify(address, WORD * TRIAL_WORDS, first, of_pass, found)
        wanted = [(first + WORD * place, expected[place], value) for place, value in wrong.items()]
        if found.wrong_bytes != WORD * len(wanted) or found.errors != wanted:
            raise Unable("refused", "the kernel does not find what is planted")
