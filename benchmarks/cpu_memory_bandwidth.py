"""Rate of the host's memory: the triad a = b + s·c on all CPUs, each NUMA node its own. See ``_protocol.py``.

Request: ``{"buffer_bytes", "blocks", "samples", "sample_s", "warmup_s", "pause_s", "limit_s"}``. ``buffer_bytes`` is
the size of each of the three arrays over the whole machine; where four times the last-level caches are more, those.

Result: ``{"versions", "device": "cpu", "devices", "buffer_bytes", "cache_bytes", "nodes": [{"node", "cpus"}],
"stopped", "blocks": [{"samples", "warmup", "seconds", "calls", "started_at", "ended_at", "correct"}]}``. Samples are
GB/s as STREAM counts them: two reads and one write a number. What a cache reads of a line before writing it is not
counted, so the wires carry up to a third more.

One child for each NUMA node, pinned to its CPUs, touches its own arrays first: the kernel then takes the memory next
to those CPUs, whatever the start of the machine's threads. All start a sample together; the rate is all their bytes
over the time from the first start to the last end.
"""

from __future__ import annotations

import glob
import json
import os
import re
import select
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import _protocol as protocol

SCALE = 3.0
CACHE_FACTOR = 4  # STREAM's own rule
MEMORY_SHARE = 0.5  # of what is free
GO_AHEAD_S = 0.01


def measure(request):
    clock = protocol.Clock(protocol.asked(request, "limit_s", float))
    nodes = numa_nodes(os.sched_getaffinity(0))
    cache = cache_bytes()
    size = max(protocol.asked(request, "buffer_bytes", int), CACHE_FACTOR * cache)
    free = protocol.available_memory()
    if free is not None and 3 * size > MEMORY_SHARE * free:
        detail = "three arrays of %d bytes do not fit into half of the %d bytes that are free" % (size, free)
        raise protocol.Unable("out-of-memory", detail)
    children = [Child(node, cpus, size // len(nodes)) for node, cpus in nodes]
    try:
        ready = [child.answer(clock) for child in children]
        blocks, stopped = run_blocks(children, request, clock)
    finally:
        for child in children:
            child.end()
    return {
        "device": "cpu",
        "devices": [{"index": 0, "name": protocol.cpu_name(), "uuid": None, "slot": None}],
        "versions": ready[0]["versions"],
        "buffer_bytes": size,
        "cache_bytes": cache,
        "nodes": [{"node": node, "cpus": len(cpus)} for node, cpus in nodes],
        "stopped": stopped,
        "blocks": blocks,
    }


def run_blocks(children, request, clock):
    blocks = []

    def one(_index, _block):
        blocks.append(block(children, request, clock))

    count, pause_s = protocol.asked(request, "blocks", int), protocol.asked(request, "pause_s", float)
    return blocks, protocol.interleaved([0], count, pause_s, clock, one)


def block(children, request, clock):
    """Warm-up, then samples of as many calls as fill ``sample_s``."""
    sample_s = protocol.asked(request, "sample_s", float)
    begun = protocol.utc_now()
    warmup = [sample(children, 1, clock), sample(children, 1, clock)]
    end = time.monotonic() + protocol.asked(request, "warmup_s", float)
    while time.monotonic() < end:
        warmup.append(sample(children, protocol.calls_for(sample_s, warmup[-1][0]), clock))
    calls = protocol.calls_for(sample_s, min(seconds for seconds, _ in warmup))
    timed = [sample(children, calls, clock) for _ in range(protocol.asked(request, "samples", int))]
    correct = all(child.ask({"check": True}, clock)["correct"] for child in children)
    return {
        "started_at": begun,
        "ended_at": protocol.utc_now(),
        "calls": calls,
        "seconds": [seconds for seconds, _ in timed],
        "samples": [moved / seconds / 1e9 for seconds, moved in timed],
        "warmup": [moved / seconds / 1e9 for seconds, moved in warmup],
        "correct": correct,
    }


def sample(children, calls, clock):
    """(seconds a call, bytes a call over all children)."""
    at = time.monotonic() + GO_AHEAD_S
    for child in children:
        child.say({"calls": calls, "at": at})
    answers = [child.answer(clock) for child in children]
    elapsed = max(a["ended"] for a in answers) - min(a["began"] for a in answers)
    return elapsed / calls, sum(a["bytes"] for a in answers)


# ---------------------------------------------------------------- what the machine has


def numa_nodes(allowed):
    """(node, its CPUs that this process may use), nodes without any left out; all as one where sysfs tells none."""
    found = []
    for path in glob.glob("/sys/devices/system/node/node[0-9]*/cpulist"):
        cpus = cpu_list(protocol.text_of(path)) & allowed
        if cpus:
            found.append((int(re.search(r"node(\d+)/", path).group(1)), sorted(cpus)))
    return sorted(found) or [(0, sorted(allowed))]


def cpu_list(text):
    """``0-3,8`` gives {0, 1, 2, 3, 8}."""
    cpus = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def cache_bytes():
    """All last-level caches together; 0 where sysfs tells none."""
    found = {}
    for folder in glob.glob("/sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*"):
        size = re.fullmatch(r"(\d+)([KM])", protocol.text_of(folder + "/size").strip())
        level = protocol.text_of(folder + "/level").strip()
        if size and level.isdigit():
            shared = protocol.text_of(folder + "/shared_cpu_list").strip()
            found[int(level), shared] = int(size.group(1)) << {"K": 10, "M": 20}[size.group(2)]
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last)


# ---------------------------------------------------------------- one child a NUMA node


class Child:
    """A process on one node's CPUs, asked over a pipe in lines of JSON."""

    def __init__(self, node, cpus, size):
        # Forked before anything imports torch: its threads would not survive the fork.
        down, up = os.pipe(), os.pipe()
        self.node = node
        self.pid = os.fork()
        if self.pid == 0:
            os.close(down[1])
            os.close(up[0])
            serve(cpus, size, down[0], up[1])
        os.close(down[0])
        os.close(up[1])
        self.down, self.up = down[1], up[0]

    def say(self, question):
        send(self.down, question)

    def ask(self, question, clock):
        self.say(question)
        return self.answer(clock)

    def answer(self, clock):
        found = receive(self.up, clock)
        if found is None:
            raise protocol.Unable("refused", "the test's process on NUMA node %d ended or gave no answer" % self.node)
        if "error" in found:
            raise protocol.Unable(**found["error"])
        return found

    def end(self):
        os.close(self.down)
        os.close(self.up)
        os.kill(self.pid, signal.SIGKILL)  # still ours: nobody has waited for it
        os.waitpid(self.pid, 0)


def send(pipe, value):
    body = json.dumps(value).encode()
    os.write(pipe, struct.pack("<I", len(body)) + body)


def receive(pipe, clock):
    """The next message; null at the end of the pipe or of the time."""
    head = exactly(pipe, 4, clock)
    body = exactly(pipe, struct.unpack("<I", head)[0], clock) if head else None
    return json.loads(body) if body else None


def exactly(pipe, count, clock):
    got = b""
    while len(got) < count:
        readable = select.select([pipe], [], [], max(0.0, clock.left()))[0] if clock else [pipe]
        more = os.read(pipe, count - len(got)) if readable else b""
        if not more:
            return None
        got += more
    return got


def serve(cpus, size, questions, answers):
    """The child: never returns."""
    status = 1
    try:
        os.sched_setaffinity(0, cpus)
        try:
            torch = protocol.import_torch()
            torch.set_num_threads(len(cpus))
            with protocol.Guard():
                work = Work(torch, size)
            send(answers, {"versions": protocol.versions(torch, "cpu")})
            question = receive(questions, None)
            while question is not None:
                send(answers, work.check() if "check" in question else work.run(question["calls"], question["at"]))
                question = receive(questions, None)
            status = 0
        except protocol.Unable as unable:
            send(answers, {"error": unable.as_json()})
    finally:
        sys.stderr.flush()
        os._exit(status)


class Work:
    """Three arrays of this node."""

    def __init__(self, torch, size):
        self.torch = torch
        count = size // 4
        # The first to write a page decides where it lies, so all three are written by the threads that use them.
        self.a = torch.empty(count).fill_(float("nan"))
        self.b = torch.empty(count).fill_(0.0)
        self.c = torch.empty(count).fill_(0.0)
        step = torch.arange(1 << 20, dtype=torch.float32)
        for start in range(0, count, 1 << 20):
            part = slice(start, min(start + (1 << 20), count))
            length = part.stop - part.start
            self.b[part] = step[:length] * 0.5 + start % 1021
            self.c[part] = step[:length] * 0.25 + start % 509

    def run(self, calls, at):
        time.sleep(max(0.0, at - time.monotonic()))
        began = time.monotonic()
        for _ in range(calls):
            self.torch.add(self.b, self.c, alpha=SCALE, out=self.a)
        return {"began": began, "ended": time.monotonic(), "bytes": 3 * 4 * self.a.numel()}

    def check(self):
        """The numbers are multiples of a quarter below 2^21: fp32 holds every sum exactly, whatever way it is made."""
        for start in range(0, self.a.numel(), 1 << 20):
            a, b, c = (t[start : start + (1 << 20)] for t in (self.a, self.b, self.c))
            if not self.torch.equal(a.double(), c.double() * SCALE + b.double()):
                return {"correct": False}
        self.a.fill_(float("nan"))
        return {"correct": True}


if __name__ == "__main__":
    sys.exit(protocol.main("cpu_memory_bandwidth", measure))
