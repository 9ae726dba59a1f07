"""Enough of PTX to run the kernels of ``benchmarks/_pattern.py`` thread by thread: no GPU compiles them here.

Registers are Python ints; memory is a dictionary of 8-byte words by address. What is not used there is not here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

ONES = (1 << 64) - 1


def entry(ptx: str, name: str) -> tuple[list[str], list[str]]:
    """Parameter names and instructions (labels among them) of one ``.entry``."""
    found = re.search(rf"\.entry {name}\((?P<parameters>[^)]*)\)\s*\{{(?P<body>[^}}]*)\}}", ptx)
    assert found is not None, name
    parameters = [p.split()[-1] for p in found["parameters"].split(",")]
    lines = [line.strip() for part in found["body"].split("\n") for line in part.split(";")]
    return parameters, [line for line in lines if line and not line.startswith(".reg")]


def declared(ptx: str, name: str) -> dict[str, int]:
    """Width in bits of every register of one ``.entry``; predicates have 1."""
    found = re.search(rf"\.entry {name}\([^)]*\)\s*\{{(?P<body>[^}}]*)\}}", ptx)
    assert found is not None
    registers: dict[str, int] = {}
    for kind, names in re.findall(r"\.reg \.(\w+)\s+([^;]+);", found["body"]):
        width = 1 if kind == "pred" else int(kind[1:])
        registers.update({n.strip(): width for n in names.split(",")})
    return registers


def launch(
    ptx: str, name: str, grid: tuple[int, int], arguments: Sequence[int], memory: dict[int, int], steps: int = 10**7
) -> None:
    """Run every thread of ``grid`` = (groups, threads a group), one after the other."""
    parameters, body = entry(ptx, name)
    widths = declared(ptx, name)
    assert len(parameters) == len(arguments)
    given = dict(zip(parameters, arguments))
    labels = {line[:-1]: at for at, line in enumerate(body) if line.endswith(":")}
    for group in range(grid[0]):
        for thread in range(grid[1]):
            place = {"%tid.x": thread, "%ntid.x": grid[1], "%ctaid.x": group, "%nctaid.x": grid[0]}
            _thread(body, labels, widths, given, place, memory, steps)


def _thread(
    body: Sequence[str],
    labels: Mapping[str, int],
    widths: Mapping[str, int],
    given: Mapping[str, int],
    place: Mapping[str, int],
    memory: dict[int, int],
    steps: int,
) -> None:
    registers: dict[str, int] = dict(place)

    def value(text: str) -> int:
        return registers[text] if text.startswith("%") else int(text, 0)

    at = 0
    for _ in range(steps):
        line = body[at]
        at += 1
        if line.endswith(":"):
            continue
        guard = re.match(r"@(%\w+)\s+", line)
        if guard:
            line = line[guard.end() :]
            if not registers[guard[1]]:
                continue
        operation, _, rest = line.partition(" ")
        operands = [o.strip() for o in rest.split(",")] if rest.strip() else []
        if operation == "ret":
            return
        if operation == "bra":
            at = labels[operands[0]]
            continue
        if operation.startswith("st."):
            memory[_address(operands[0], registers)] = value(operands[1])
            continue
        result = _result(operation, operands, value, given, registers, memory)
        width = widths[operands[0]]
        assert 0 <= result < 1 << width, (line, result)
        registers[operands[0]] = result
    raise AssertionError("the kernel does not end")


def _address(text: str, registers: Mapping[str, int]) -> int:
    found = re.fullmatch(r"\[(%\w+)(?:\+(\d+))?\]", text)
    assert found is not None, text
    address = registers[found[1]] + int(found[2] or 0)
    assert address % 8 == 0
    return address


def _result(
    operation: str,
    operands: Sequence[str],
    value: Callable[[str], int],
    given: Mapping[str, int],
    registers: Mapping[str, int],
    memory: dict[int, int],
) -> int:
    if operation == "ld.param.u64":
        return given[operands[1].strip("[]")]
    if operation == "ld.volatile.global.u64":
        return memory[_address(operands[1], registers)]
    if operation == "atom.global.add.u64":
        address = _address(operands[1], registers)
        before = memory[address]
        memory[address] = (before + value(operands[2])) & ONES
        return before
    one = [value(o) for o in operands[1:]]
    if operation in ("mov.u32", "cvt.u64.u32", "cvta.to.global.u64"):
        return one[0]
    if operation == "mul.wide.u32":
        return one[0] * one[1]
    if operation == "setp.ge.u64":
        return int(one[0] >= one[1])
    if operation == "setp.eq.u64":
        return int(one[0] == one[1])
    known = {
        "add.u64": lambda: one[0] + one[1],
        "mul.lo.u64": lambda: one[0] * one[1],
        "mad.lo.u64": lambda: one[0] * one[1] + one[2],
        "shr.u64": lambda: one[0] >> one[1],
        "shl.b64": lambda: one[0] << one[1],
        "xor.b64": lambda: one[0] ^ one[1],
    }
    return known[operation]() & ONES
