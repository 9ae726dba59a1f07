"""A real training step of a GPT over all devices: tokens a second, memory, falling loss. See ``_gpt.py``.

Request: ``{"device": "cpu"|"cuda", "ranks", "shapes": [{"name", "layers", "width", "heads", "vocabulary",
"sequence"}], "batch", "sharded": null|true|false, "blocks", "block_s", "warmup_steps", "limit_s", "stall_s", "seed"}``.
Of several shapes the first that fits is trained. ``batch``: sequences a step on each device, fewer where memory is
short. ``sharded`` null: weights and optimizer are spread over the devices (FSDP) only where they would not fit on each.

Result: ``{"versions", "device", "devices" (in the order of ranks), "model": {…, "parameters",
"operations_per_token"}, "batch", "parallel": "one"|"ddp"|"fsdp", "blocks": [{"started_at", "ended_at", "seconds",
"tokens_per_second"}], "losses", "memory_bytes", "stopped"}``. ``seconds`` are those of one step, the mean over ranks;
tokens a second are of all devices together. ``losses``: of every step on rank 0, warm-up included.

bf16 by autocast, fp32 weights, AdamW, gradients clipped. The text is arithmetic progressions: easy, so that the loss of
a training that works falls within its first steps, and never repeated.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from datetime import timedelta

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import _gpt
import _protocol as protocol
import _ranks as ranks

MEMORY_SHARE = 0.85  # of what is free: the estimate is rough and fragments are lost
RATE = 0.4  # over the width: 5e-4 for 125 M parameters, 2e-4 for 1.3 G, as the GPT-3 paper has them
HIGHEST_RATE = 3e-3
RAMP = 5  # steps until the full learning rate
WORDS = 512  # of the vocabulary, in the text
STRIDES = 4


def measure(request, folder):
    count = protocol.asked(request, "ranks", int)
    limit_s, stall_s = protocol.asked(request, "limit_s", float), protocol.asked(request, "stall_s", float)
    environment = {"GLOO_SOCKET_IFNAME": "lo"}
    said, stopped = ranks.run(__file__, folder, count, limit_s, stall_s, environment)
    started = [next((line for line in one if "device" in line), None) for one in said]
    plan = next((line["plan"] for line in said[0] if "plan" in line), None)
    if not all(started) or plan is None:
        raise stopped.as_unable()
    return {
        "device": request["device"],
        "devices": [{**line["device"], "index": rank} for rank, line in enumerate(started)],
        "versions": started[0]["versions"],
        **plan,
        "blocks": merged(said, plan),
        "losses": [loss for line in said[0] for loss in line.get("losses", ())],
        "memory_bytes": most_memory(said),
        "stopped": stopped.as_json() if stopped else None,
    }


def most_memory(said):
    """Of any rank; null where none tells."""
    found = [line["memory_bytes"] for one in said for line in one if line.get("memory_bytes") is not None]
    return max(found, default=None)


def merged(said, plan):
    """Blocks that all ranks finished."""
    by_rank = [[line["block"] for line in one if "block" in line] for one in said]
    tokens = plan["batch"] * plan["model"]["sequence"] * len(said)
    found = []
    for blocks in zip(*by_rank):
        seconds = [sum(each) / len(blocks) for each in zip(*(b["seconds"] for b in blocks))]
        first = blocks[0]
        rates = [tokens / s for s in seconds]
        found.append({**first, "seconds": seconds, "tokens_per_second": rates})
    return found


# ---------------------------------------------------------------- one rank


def one_rank(request, rank):
    torch = protocol.import_torch()
    with protocol.Guard():
        Training(torch, request, rank).run()


class Training:
    """This rank's model, text and optimizer."""

    def __init__(self, torch, request, rank):
        self.torch, self.request, self.rank = torch, request, rank
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
        rank.say({"device": mine, "versions": protocol.versions(torch, self.kind), "at": "joining"})
        torch.manual_seed(protocol.asked(request, "seed", int))
        self.text = torch.Generator(device=self.device).manual_seed(1000 + rank.number)
        self.steps = 0

    def run(self):
        self.join()
        self.plan()
        self.prepare()
        warmup = [self.timed_step() for _ in range(protocol.asked(self.request, "warmup_steps", int))]
        self.rank.say({"losses": self.losses(), "at": "the end of the warm-up"})
        block_s = protocol.asked(self.request, "block_s", float)
        count = self.agree("steps", lambda: max(1, math.ceil(block_s / min(warmup))))
        for number in range(protocol.asked(self.request, "blocks", int)):
            begun = protocol.utc_now()
            seconds = [self.timed_step() for _ in range(count)]
            block = {"started_at": begun, "ended_at": protocol.utc_now(), "seconds": seconds}
            self.rank.say({"block": block, "losses": self.losses(), "at": "the end of block %d" % number})
        self.rank.say({"memory_bytes": self.peak()})

    # -------------------------------------------------- together

    def join(self):
        dist = self.torch.distributed
        wait = timedelta(seconds=protocol.asked(self.request, "limit_s", float))
        self.store = dist.FileStore(os.path.join(self.rank.meet, "store"), self.world)
        self.store.set_timeout(wait)
        if self.world > 1:
            dist.init_process_group(
                "nccl" if self.kind == "cuda" else "gloo",
                store=dist.PrefixStore("group", self.store),
                rank=self.rank.number,
                world_size=self.world,
                timeout=wait,
            )

    def agree(self, key, decide):
        """What rank 0 decides, for all."""
        if self.rank.number == 0:
            self.store.set(key, str(decide()))
        return int(self.store.get(key))

    def least_free(self):
        if self.kind == "cuda":
            mine = self.torch.cuda.mem_get_info(self.rank.number)[0]
        else:
            mine = (protocol.available_memory() or 0) // self.world
        self.store.set("free-%d" % self.rank.number, str(mine))
        return MEMORY_SHARE * min(int(self.store.get("free-%d" % r)) for r in range(self.world))

    def plan(self):
        """The first shape that fits, how much of a batch, and whether its state must be spread."""
        free = self.least_free()
        shapes = protocol.asked(self.request, "shapes", list)
        for shape in shapes:
            for shards in self.ways():
                batch = protocol.asked(self.request, "batch", int)
                while batch > 1 and _gpt.memory(shape, batch, shards) > free:
                    batch //= 2
                if _gpt.memory(shape, batch, shards) <= free:
                    self.say_plan(shape, batch, shards)
                    return
        least = min(_gpt.memory(shape, 1, self.world) for shape in shapes)
        raise protocol.Unable("out-of-memory", "%d bytes needed on each device, %d can be used" % (least, free))

    def ways(self):
        """Over how many devices the state is spread; whole on each device first, for that is faster."""
        sharded = self.request.get("sharded")
        if self.world == 1:
            return [1]
        return [1, self.world] if sharded is None else [self.world if sharded else 1]

    def say_plan(self, shape, batch, shards):
        self.shape, self.batch = shape, batch
        self.parallel = "one" if self.world == 1 else "fsdp" if shards > 1 else "ddp"
        told = {"parameters": _gpt.parameters(shape), "operations_per_token": _gpt.operations(shape)}
        self.rank.say(
            {"plan": {"model": {**shape, **told}, "batch": batch, "parallel": self.parallel}, "at": "building"}
        )

    def prepare(self):
        torch = self.torch
        # Each rank draws the same weights: DDP sends rank 0's all the same, FSDP needs them to agree.
        model, block = _gpt.build(torch, self.shape)
        if self.parallel == "fsdp":
            self.model = self.sharded(model, block)
        else:
            self.model = model.to(self.device)
            if self.parallel == "ddp":
                own = [self.rank.number] if self.kind == "cuda" else None
                wrap = torch.nn.parallel.DistributedDataParallel
                self.model = wrap(self.model, device_ids=own, gradient_as_bucket_view=True)
        fused = {"fused": True} if self.kind == "cuda" else {}
        weights = self.model.parameters()
        self.optimizer = torch.optim.AdamW(weights, lr=self.rate(), betas=(0.9, 0.95), weight_decay=0.1, **fused)
        self.lost = []

    def sharded(self, model, block):
        try:
            from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
            from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        except ImportError as error:
            raise protocol.Unable("needs-torch", "FSDP: %s" % error, "2.0") from error
        bf16 = self.torch.bfloat16
        return FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy({block}),
            mixed_precision=MixedPrecision(param_dtype=bf16, reduce_dtype=self.torch.float32, buffer_dtype=bf16),
            device_id=self.torch.device(self.device),
            use_orig_params=True,
        )

    # -------------------------------------------------- a step

    def tokens(self):
        """Sequences start, start + stride, start + 2·stride …, and so on around the words."""
        torch, count = self.torch, self.batch
        words = min(WORDS, self.shape["vocabulary"])
        start = torch.randint(0, words, (count, 1), generator=self.text, device=self.device)
        stride = torch.randint(1, STRIDES + 1, (count, 1), generator=self.text, device=self.device)
        return (start + stride * torch.arange(self.shape["sequence"] + 1, device=self.device)) % words

    def timed_step(self):
        start = time.perf_counter()
        self.step()
        self.sync()
        self.rank.say({"at": "step %d" % self.steps})
        return time.perf_counter() - start

    def step(self):
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate() * min(1.0, self.steps / RAMP)
        self.optimizer.zero_grad(set_to_none=True)
        with self.narrow():
            loss = self.model(self.tokens())
        loss.backward()
        if self.parallel == "fsdp":
            self.model.clip_grad_norm_(1.0)
        else:
            self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.lost.append(loss.detach())

    def rate(self):
        return min(HIGHEST_RATE, RATE / self.shape["width"])

    def narrow(self):
        """FSDP casts by itself."""
        if self.parallel == "fsdp":
            return contextlib.nullcontext()
        return self.torch.autocast(self.kind, dtype=self.torch.bfloat16)

    def losses(self):
        """Since the last time; null where one is not finite."""
        found = [float(loss) for loss in self.lost]
        self.lost = []
        return [loss if math.isfinite(loss) else None for loss in found]

    def peak(self):
        """Most bytes that were ever allocated on the device; null on a CPU."""
        return self.torch.cuda.max_memory_allocated(self.rank.number) if self.kind == "cuda" else None


if __name__ == "__main__":
    sys.exit(ranks.main("training", measure, one_rank))
