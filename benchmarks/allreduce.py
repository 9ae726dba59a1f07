"""Collectives over the devices of this node: time of each size, all results verified. See ``_protocol.py``.

Request: ``{"device": "cpu"|"cuda", "ranks", "counts": [2, 4, 8], "ops": ["all_reduce", …],
"judged": {"count", "bytes", "ops"}, "smallest_bytes", "largest_bytes", "blocks", "samples", "sample_s", "warmup_s",
"pause_s", "limit_s", "stall_s", "nvls": true}``. For each of ``counts`` (the first so many ranks) the sizes double
from the smallest to the largest, as far as memory goes; then ``blocks`` blocks of each of ``judged``'s ``ops`` (where
they are left out: all-reduce), in turn and ``pause_s`` apart. ``nvls`` false: without reduction in the switch.

Result: ``{"versions", "device", "devices" (in the order of ranks), "rows": [{"op", "count", "bytes", "block" (null in
the sweep), "calls", "seconds", "busbw", "algbw", "wrong", "started_at", "ended_at"}], "unavailable": {op: {"kind",
…}}, "stopped": {"kind", "detail", "rank", "needs"}, "nvls", "log"}``. ``seconds`` are those of one call, the mean
over the ranks; rates are GB/s: algbw = bytes / time, busbw = algbw · 2(n−1)/n, and (n−1)/n for the others, as
nccl-tests defines them. ``wrong`` counts numbers that are not what they should be, over all ranks. ``log``: what NCCL
said on rank 0; the logs of all ranks stay beside the request.

What makes it honest: each rank's numbers are whole and sum exactly in fp32, so any way to add them gives the same.
An all-reduce in place multiplies its numbers by n with each call: they start so small that all the timed calls stay
finite, and it is the result of the last of them that is verified.
"""

from __future__ import annotations

import math
import os
import sys
from datetime import timedelta

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import _protocol as protocol
import _ranks as ranks

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PERIOD = 1048573  # a prime: a piece that lands in another's place shows
TINY = 2.0**-120
DECADES = 70  # that fp32 has above the largest first sum
MEMORY_SHARE = 0.3  # of what is free on a device, for each of the two buffers
STRIP = 16  # periods compared at a time
MOST_CALLS = 1000
SWEEP_SAMPLES = 3
SWEEP_SHARE = 0.2  # of a judged block's time for each size of the sweep


def measure(request, folder):
    kind = protocol.asked(request, "device", str)
    environment = {
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,P2P,NVLS",
        "NCCL_DEBUG_FILE": os.path.join(folder, "nccl-%p.log"),
    }
    if not protocol.asked(request, "nvls", bool):
        environment["NCCL_NVLS_ENABLE"] = "0"
    count = protocol.asked(request, "ranks", int)
    limit_s, stall_s = protocol.asked(request, "limit_s", float), protocol.asked(request, "stall_s", float)
    said, stopped = ranks.run(__file__, folder, count, limit_s, stall_s, environment)
    started = [next((line for line in one if "device" in line), None) for one in said]
    if not all(started):
        raise stopped.as_unable()
    first = started[0]
    return {
        "device": kind,
        "devices": [{**line["device"], "index": rank} for rank, line in enumerate(started)],
        "versions": first["versions"],
        "rows": merged(said),
        "unavailable": {k: v for line in said[0] for k, v in line.get("unavailable", {}).items()},
        "stopped": stopped.as_json() if stopped else None,
        "nvls": request["nvls"],
        "log": ranks.text(os.path.join(folder, "nccl-%d.log" % first["pid"])),
    }


def merged(said):
    """Rows that all their ranks finished, as one each."""
    found = {}
    for line in (line["row"] for one in said for line in one if "row" in line):
        found.setdefault((line["op"], line["count"], line["bytes"], line["block"]), []).append(line)
    whole = [rows for (_, count, _, _), rows in found.items() if len(rows) == count]
    return [merge(rows) for rows in whole]


def merge(rows):
    seconds = [sum(each) / len(rows) for each in zip(*(r["seconds"] for r in rows))]
    first = rows[0]
    algbw = [first["bytes"] / s / 1e9 for s in seconds]
    factor = bus_factor(first["op"], first["count"])
    return {
        **{k: first[k] for k in ("op", "count", "bytes", "block", "calls", "started_at", "ended_at")},
        "seconds": seconds,
        "algbw": algbw,
        "busbw": [a * factor for a in algbw],
        "wrong": sum(r["wrong"] for r in rows),
    }


def bus_factor(op, count):
    return (2.0 if op == "all_reduce" else 1.0) * (count - 1) / count


# ---------------------------------------------------------------- one rank


def one_rank(request, rank):
    torch = protocol.import_torch()
    if not torch.distributed.is_available():
        raise protocol.Unable("needs-torch", "this torch is built without torch.distributed", "2.0")
    with protocol.Guard():
        Node(torch, request, rank).run()


class Node:
    """This rank among the others."""

    def __init__(self, torch, request, rank):
        self.torch, self.dist, self.request, self.rank = torch, torch.distributed, request, rank
        self.kind = protocol.asked(request, "device", str)
        self.world = protocol.asked(request, "ranks", int)
        self.device = "cpu"
        if self.kind == "cuda":
            self.device = "cuda:%d" % rank.number
            torch.cuda.set_device(rank.number)
        else:
            torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self.world))
        self.sync = protocol.synchronise(torch, self.kind, rank.number)
        found = protocol.devices(torch, self.kind)
        mine = found[rank.number if self.kind == "cuda" else 0]
        rank.say({"device": mine, "versions": protocol.versions(torch, self.kind), "pid": os.getpid(), "at": "joining"})

    def run(self):
        if self.kind == "cuda" and not self.dist.is_nccl_available():
            raise protocol.Unable("needs-nccl", "torch %s is built without NCCL" % self.torch.__version__)
        wait = timedelta(seconds=protocol.asked(self.request, "limit_s", float))
        self.store = self.dist.FileStore(os.path.join(self.rank.meet, "store"), self.world)
        self.store.set_timeout(wait)
        self.dist.init_process_group(
            "nccl" if self.kind == "cuda" else "gloo",
            store=self.dist.PrefixStore("group", self.store),
            rank=self.rank.number,
            world_size=self.world,
            timeout=wait,
        )
        largest = self.largest()
        for count in protocol.asked(self.request, "counts", list):
            group = self.dist.new_group(list(range(count)), timeout=wait)
            if self.rank.number < count:
                self.count(group, count, largest)
                self.agree("done-%d" % count, lambda: 1)
            else:
                # Waiting in a file, not in a collective: an idle device must stay idle.
                self.rank.say({"at": "waiting for the ranks that measure"})
                self.store.wait(["done-%d" % count], wait)

    def largest(self):
        """The largest size that fits everywhere."""
        mine = self.free()
        self.store.set("free-%d" % self.rank.number, str(mine))
        least = min(int(self.store.get("free-%d" % rank)) for rank in range(self.world))
        return min(protocol.asked(self.request, "largest_bytes", int), int(least * MEMORY_SHARE))

    def free(self):
        if self.kind == "cuda":
            return self.torch.cuda.mem_get_info(self.rank.number)[0]
        found = protocol.available_memory()
        if found is None:
            raise protocol.Unable("refused", "the kernel does not tell what memory is available")
        return found // self.world

    def agree(self, key, decide):
        """What rank 0 decides, for all: ranks that make different numbers of calls would wait for each other."""
        if self.rank.number == 0:
            self.store.set(key, str(decide()))
        return int(self.store.get(key))

    def count(self, group, count, largest):
        judged = protocol.asked(self.request, "judged", dict)
        smallest = protocol.asked(self.request, "smallest_bytes", int)
        sizes = [smallest << k for k in range(64) if smallest << k <= largest]
        able = []
        for op in protocol.asked(self.request, "ops", list):
            missing = self.missing(op, group, count)
            if missing is not None:
                self.rank.say({"unavailable": {op: missing}})
                continue
            able.append(op)
            for size in sizes:
                if op == "all_reduce" or size >= 4 * count:
                    self.row(group, count, op, size, None)
        wanted = [op for op in judged.get("ops") or ["all_reduce"] if op in able]
        if count == judged["count"] and wanted:
            self.blocks(group, count, wanted, judged["bytes"], largest)

    def blocks(self, group, count, ops, size, largest):
        if size > largest:
            fits = "%d bytes of memory for a buffer, %d asked" % (largest, size)
            raise protocol.Unable("out-of-memory", fits)
        pause_s = protocol.asked(self.request, "pause_s", float)
        clock = protocol.Clock(protocol.asked(self.request, "limit_s", float))
        number = protocol.asked(self.request, "blocks", int)
        protocol.interleaved(ops, number, pause_s, clock, lambda op, b: self.row(group, count, op, size, b))

    def missing(self, op, group, count):
        """Why this torch or this backend cannot do the collective; null where it can. Found out by calling."""
        if op not in OPS:
            raise protocol.Unable("bad-request", "ops: unknown %r" % (op,))
        try:
            Collective(self, group, count, op, 4 * count).call()
            self.sync()
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            if op == "all_reduce":
                raise
            # gloo has not all of them for a CPU's memory; NCCL has, so what it says is its own refusal.
            kind = "needs-nccl" if self.kind == "cpu" else "refused"
            return protocol.Unable(kind, "%s: %s" % (op, protocol.first_line(error))).as_json()
        return None

    def row(self, group, count, op, size, block):
        self.rank.say({"at": "%s of %d bytes among %d" % (op, size, count)})
        share = 1.0 if block is not None else SWEEP_SHARE
        sample_s = share * protocol.asked(self.request, "sample_s", float)
        warmup_s = share * protocol.asked(self.request, "warmup_s", float)
        samples = protocol.asked(self.request, "samples", int) if block is not None else SWEEP_SAMPLES
        work = Collective(self, group, count, op, size)
        begun = protocol.utc_now()
        work.sample(1)
        one = work.sample(2)
        key = "%s-%d-%d-%s" % (op, count, size, block)
        warm = self.agree("warm-" + key, lambda: -(-protocol.calls_for(warmup_s, one) // work.most))
        for _ in range(warm):
            one = work.sample(work.most if warm > 1 else 1)
        calls = self.agree("calls-" + key, lambda: min(work.most, protocol.calls_for(sample_s, one)))
        seconds = [work.sample(calls) for _ in range(samples)]
        row = {"op": op, "count": count, "bytes": size, "block": block, "calls": calls, "seconds": seconds}
        row.update(started_at=begun, ended_at=protocol.utc_now(), wrong=work.wrong(calls))
        self.rank.say({"row": row, "at": "the end of %s of %d bytes" % (op, size)})


class Collective:
    """One collective of one size: its buffers, its call, what must come out.

    ``size`` is what nccl-tests calls so: of all-gather the gathered, of reduce-scatter the whole before it is spread.
    """

    def __init__(self, node, group, count, op, size):
        self.node, self.group, self.ranks, self.op = node, group, count, op
        self.torch, self.dist = node.torch, node.dist
        self.bits = 24 - max(1, math.ceil(math.log2(count)))  # sums of `count` such numbers are exact in fp32
        whole = max(1, size // 4)
        self.piece = whole // count
        sends, gets = {
            "all_reduce": (whole, 0),
            "all_gather": (self.piece, self.piece * count),
            "reduce_scatter": (self.piece * count, self.piece),
            "all_to_all": (self.piece * count, self.piece * count),
        }[op]
        self.sent = self.torch.empty(sends, device=node.device)
        self.got = self.torch.full((gets,), float("nan"), device=node.device) if gets else self.sent
        self.tiny = self.torch.zeros(1, device=node.device)
        # In place, each call multiplies by the number of ranks.
        self.most = 1 + int(DECADES / math.log10(count)) if op == "all_reduce" else MOST_CALLS
        self.own = self.pattern(node.rank.number)
        self.fill()

    def pattern(self, rank):
        """The numbers of one rank for one period, whole and below 2^bits."""
        i = self.torch.arange(min(PERIOD, self.sent.numel()), dtype=self.torch.int64, device=self.node.device)
        return (((i + 7 * rank + 1) * (2654435761 + 2 * rank)) >> 7) % (1 << self.bits)

    def fill(self):
        values = self.own.to(self.torch.float32) * TINY
        period = values.numel()
        rows = self.sent.numel() // period
        self.sent[: rows * period].view(rows, period).copy_(values.expand(rows, period))
        self.sent[rows * period :].copy_(values[: self.sent.numel() - rows * period])

    def call(self):
        if self.op == "all_reduce":
            self.dist.all_reduce(self.sent, group=self.group)
        elif self.op == "all_gather":
            self.dist.all_gather_into_tensor(self.got, self.sent, group=self.group)
        elif self.op == "reduce_scatter":
            self.dist.reduce_scatter_tensor(self.got, self.sent, group=self.group)
        else:
            self.dist.all_to_all_single(self.got, self.sent, group=self.group)

    def sample(self, calls):
        """Seconds of one call; all ranks begin together."""
        if self.op == "all_reduce":
            self.fill()
        else:
            self.got.fill_(float("nan"))  # what an earlier call brought proves nothing of these
        self.node.sync()
        self.dist.all_reduce(self.tiny, group=self.group)
        return protocol.timed(self.call, self.node.sync, calls)

    # -------------------------------------------------- what must come out

    def wrong(self, calls):
        """How many numbers of this rank's result are not right after a sample of so many calls."""
        if self.op == "all_reduce":
            return self.differing(self.sent, self.summed(), 0, float(self.ranks) ** (calls - 1), calls)
        mine = self.node.rank.number
        if self.op == "reduce_scatter":
            return self.differing(self.got, self.summed(), mine * self.piece, 1.0, 1)
        offset = 0 if self.op == "all_gather" else mine * self.piece
        parts = (self.got[r * self.piece : (r + 1) * self.piece] for r in range(self.ranks))
        return sum(self.differing(part, self.pattern(r), offset, 1.0, 1) for r, part in enumerate(parts))

    def summed(self):
        total = self.pattern(0)
        for rank in range(1, self.ranks):
            total += self.pattern(rank)
        return total

    def differing(self, got, period, offset, factor, calls):
        """Numbers of ``got`` that are not those of the period from ``offset`` on.

        Exact where the ranks are a power of two; else each call may round each of its additions.
        """
        expected = period.to(self.torch.float64) * (TINY * factor)
        rounding = 0.0 if self.ranks & (self.ranks - 1) == 0 else calls * self.ranks * 2.0**-23
        found, at, length = 0, 0, period.numel()
        while at < got.numel():
            begin = (offset + at) % length
            rows = min(STRIP, (got.numel() - at) // length) if begin == 0 else 0
            if rows:
                part, wanted = got[at : at + rows * length].view(rows, length), expected.expand(rows, length)
            else:
                part = got[at : at + length - begin]
                wanted = expected[begin : begin + part.numel()]
            # Not a number differs from everything.
            right = (part.to(self.torch.float64) - wanted).abs() <= rounding * wanted
            found += right.numel() - int(right.sum())
            at += part.numel()
        return found


if __name__ == "__main__":
    sys.exit(ranks.main("allreduce", measure, one_rank))
