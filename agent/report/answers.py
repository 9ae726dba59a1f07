"""What a vendor objects, each answered from this run's own data; where there are no data, that is said.

Only a report with broken promises has them. Every answer is a list of sentences; nothing is claimed that the result
does not hold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Optional

from agent.model import Attempt, Block, Finding, Measurement, Run
from agent.report import byhand, industry, numbers
from agent.report.clean import one_line, shortened
from agent.report.names import split, title
from agent.report.rows import gpu_labels, label_of
from agent.text import Text, Translate, msg

_SHOWN = 4
_NETWORK = ("network", "ping", "download", "backup", "reach")
_TORCH = ("gemm", "memory_bandwidth", "allreduce", "collectives", "burn", "training", "workload")


@dataclass(frozen=True)
class Answer:
    """``key`` names the objection in tests and links."""

    key: str
    objection: str
    sentences: tuple[str, ...]


class _Case:
    """The broken promises of a run and the measurements they rest on."""

    def __init__(self, run: Run, digest: Optional[str], translate: Translate) -> None:
        self.run = run
        self.digest = digest
        self.translate = translate
        self.broken = [f for f in run.findings if f.outcome == "fail" and f.severity == "breach"]
        self.taken = {m.key: m for m in run.measurements}
        self.labels = gpu_labels(run)

    def of(self, finding: Finding) -> list[Measurement]:
        return [self.taken[key] for key in finding.measurements if key in self.taken]

    @property
    def measured(self) -> list[Finding]:
        """Broken promises that rest on a measurement rather than on a fact."""
        return [f for f in self.broken if self.of(f)]

    def attempts(self, findings: Iterable[Finding]) -> list[Attempt]:
        return [a for f in findings for m in self.of(f) for a in m.attempts]

    def blocks(self, findings: Iterable[Finding]) -> list[Block]:
        return [b for a in self.attempts(findings) if a.void is None for b in a.blocks]

    def family(self, names: Sequence[str]) -> list[Finding]:
        return [f for f in self.broken if _family(f) in names]

    def named(self, finding: Finding) -> str:
        where = label_of(finding.subject, self.labels)
        name = title(finding.clause, self.translate)
        text = msg("{title} ({where})", title=name, where=where).render(self.translate) if where else name
        return shortened(one_line(text), 120)


def answers(run: Run, digest: Optional[str], translate: Translate) -> tuple[Answer, ...]:
    """All objections with their answers; none where nothing is broken."""
    case = _Case(run, digest, translate)
    if not case.broken:
        return ()
    found = (
        ("contract", msg("“That limit is not in our contract.”"), _contract(case)),
        ("picked", msg("“You picked the worst run.”"), _picked(case)),
        ("own-load", msg("“Your own job slowed it down.”"), _own_load(case)),
        ("uplink", msg("“It is your uplink, not our network.”"), _uplink(case)),
        ("software", msg("“It is your torch, not our hardware.”"), _software(case)),
        ("spread", msg("“That is the normal spread.”"), _spread(case)),
        ("warm", msg("“It was not warmed up”, or: “it was only hot at that moment.”"), _warm(case)),
        ("lanes", msg("“This slot is x8 by design.”"), _lanes(case)),
        ("tool", msg("“Nobody knows your tool.”"), _tool(case)),
        ("edited", msg("“You could have edited the numbers.”"), _edited(case)),
    )
    return tuple(Answer(key, o.render(translate), _said(texts, translate)) for key, o, texts in found)


def _said(texts: Iterable[Text], translate: Translate) -> tuple[str, ...]:
    return tuple(shortened(t.render(translate), 900) for t in texts)


def _family(finding: Finding) -> str:
    return split(finding.clause)[0].partition(".")[0]


def _listed(words: Iterable[str]) -> tuple[str, ...]:
    found = list(dict.fromkeys(words))
    return (*found[:_SHOWN], *(["…"] if len(found) > _SHOWN else []))


# ---------------------------------------------------------------- the contract


def _contract(case: _Case) -> Iterable[Text]:
    own = [f for f in case.broken if f.limit is None or f.limit.origin.kind == "contract"]
    other = [f for f in case.broken if f not in own]
    if own:
        yield msg(
            "{n} of the {m} broken promises are held to the contract's own figure, quoted in each line.",
            n=len(own), m=len(case.broken),
        )  # fmt: skip
    refs = _listed(one_line(f.ref) for f in own if f.ref)
    if refs:
        yield msg("It stands there under: {refs}.", refs=refs)
    for f in other[:_SHOWN]:
        if f.limit is not None and f.limit.origin.kind != "agent":
            yield msg(
                "{what}: the contract says “auto” and “agreed: true”; the limit comes from {origin}.",
                what=case.named(f), origin=one_line(f.limit.origin.detail or f.limit.origin.kind),
            )  # fmt: skip
        else:
            yield msg("{what}: a machine that shows itself falsely is no contract's promise.", what=case.named(f))
    shares = {f.limit.tolerance for f in own if f.limit is not None and f.limit.tolerance}
    if shares:
        yield msg(
            "A tolerance of {share} was given on measured rates, in the vendor's favour.",
            share=numbers.percent(max(shares)),
        )
    yield msg("The contract file that was judged has the sha256 {digest}.", digest=one_line(case.run.contract_sha256))


# ---------------------------------------------------------------- which run, which attempt


def _picked(case: _Case) -> Iterable[Text]:
    number = case.run.attempt
    if number is None:
        yield msg("This run stands in no ledger, so other runs cannot be counted.")
    elif number.of == 1:
        yield msg("There is only this one run of this contract on this machine in the ledger.")
    else:
        yield msg(
            "This is run {n} of {m} of this contract on this machine; the ledger names all of them, and none can be "
            "left out without breaking its chain of hashes.", n=number.number, m=number.of,
        )  # fmt: skip
    attempts = case.attempts(case.measured)
    if not attempts:
        yield msg("Nothing that is broken was measured under load: these are facts, read and not chosen.")
        return
    void = [a for a in attempts if a.void is not None]
    yield msg(
        "All attempts at the broken rates are shown under “Measurements”: {n} with {blocks} blocks, of which {void} do "
        "not count, each with its reason.",
        n=len(attempts), blocks=sum(len(a.blocks) for a in attempts), void=len(void),
    )  # fmt: skip
    twice = [f for f in case.measured if sum(a.void is None for m in case.of(f) for a in m.attempts) > 1]
    yield msg(
        "A rate is the median of its blocks, never the lowest; {n} of {m} broken rates showed in two attempts.",
        n=len(twice), m=len(case.measured),
    )  # fmt: skip


# ---------------------------------------------------------------- other load


def _own_load(case: _Case) -> Iterable[Text]:
    blocks = case.blocks(case.measured)
    cpu = _highest(blocks, "cpu_percent")
    if cpu is not None:
        yield msg(
            "While the broken rates were measured, other programs used at most {cpu} % of the CPU.",
            cpu=numbers.number(cpu, 3),
        )
    disk, net = _highest(blocks, "disk_mb_s"), _highest(blocks, "network_mb_s")
    if disk is not None or net is not None:
        yield msg(
            "Disk traffic was at most {disk} MB/s and network traffic at most {net} MB/s, our own included.",
            disk=_or_none(disk), net=_or_none(net),
        )  # fmt: skip
    if cpu is None and disk is None and net is None:
        yield msg("What else ran beside the broken measurements was not recorded block by block in this run.")
    disturbed = [a for a in case.attempts(case.measured) if a.void is not None and a.void.code.startswith("disturbed")]
    if disturbed:
        yield msg("Attempts set aside because the renter's own work disturbed them: {n}.", n=len(disturbed))
    for f in case.run.findings:
        if f.clause == "integrity.foreign_process" and f.outcome == "pass":
            yield msg("No program of anybody else was on the GPUs.")
            break


def _highest(blocks: Sequence[Block], name: str) -> Optional[float]:
    found = (b.conditions.get("foreign") for b in blocks)
    values = [f[name] for f in found if isinstance(f, Mapping) and isinstance(f.get(name), (int, float))]
    return max(values) if values else None


def _or_none(value: Optional[float]) -> str:
    return numbers.NONE if value is None else numbers.number(value, 3)


# ---------------------------------------------------------------- uplink


def _uplink(case: _Case) -> Iterable[Text]:
    broken = case.family(_NETWORK)
    if not broken:
        yield msg("None of the broken promises goes over the network.")
        return
    for f in broken[:_SHOWN]:
        blocks = case.blocks([f])
        servers = _listed(one_line(str(b.conditions["server"])) for b in blocks if b.conditions.get("server"))
        networks = {str(b.conditions["network"]) for b in blocks if b.conditions.get("network")}
        if servers:
            yield msg(
                "{what}: measured against {servers}, in {n} networks; a far end counts only once it was shown capable "
                "within the hour.", what=case.named(f), servers=servers, n=max(len(networks), 1),
            )  # fmt: skip
        else:
            place = split(f.clause)[1]
            yield msg("{what}: the far end is the one that the contract names: {place}.", what=case.named(f),
                      place=one_line(place) if place else numbers.NONE)  # fmt: skip
    rest = len(case.broken) - len(broken)
    if rest:
        yield msg("The other {n} broken promises do not go over the network.", n=rest)


# ---------------------------------------------------------------- software


def _software(case: _Case) -> Iterable[Text]:
    broken = [f for f in case.family(_TORCH) if case.of(f)]
    if not broken:
        yield msg("None of the broken promises was measured with torch.")
        return
    stack = [
        f"{name} {case.run.stack[name]}" for name in ("torch", "cuda", "cublas", "nccl") if case.run.stack.get(name)
    ]
    if stack:
        yield msg("It was measured with the delivered environment: {stack}.", stack=tuple(one_line(s) for s in stack))
    checked = [a for a in case.attempts(broken) if a.correct is not None]
    if checked:
        yield msg(
            "The arithmetic was right in {n} of {m} attempts.",
            n=sum(a.correct is True for a in checked),
            m=len(checked),
        )
    for f in _one_a_clause(broken):
        yield from _beside(case, f)


def _one_a_clause(findings: Sequence[Finding]) -> list[Finding]:
    first: dict[str, Finding] = {}
    for f in findings:
        first.setdefault(f.clause, f)
    return list(first.values())[:_SHOWN]


def _beside(case: _Case, finding: Finding) -> Iterable[Text]:
    """The other GPUs of the same machine with the same software."""
    kept = [f for f in case.run.findings if f.clause == finding.clause and f.outcome == "pass" and _number(f.measured)]
    if kept and _number(finding.measured):
        yield msg(
            "{what} reached {value}; {n} other GPUs of this machine reached {others} with the same software.",
            what=case.named(finding), value=_value(case, finding, finding.measured), n=len(kept),
            others=_value(case, finding, median(f.measured for f in kept)),
        )  # fmt: skip


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _value(case: _Case, finding: Finding, value: float) -> str:
    return numbers.quantity(value, finding.unit, case.translate, numbers.ends(finding.limit, finding.unit))


# ---------------------------------------------------------------- spread


def _spread(case: _Case) -> Iterable[Text]:
    judged = [f for f in case.broken if f.interval is not None and f.limit is not None and _number(f.limit.value)]
    if not judged:
        yield msg("What is broken are facts and counts, which have no spread.")
        return
    for f in _one_a_clause(judged):
        yield from _apart(case, f, sum(o.clause == f.clause for o in judged))


def _apart(case: _Case, f: Finding, alike: int) -> Iterable[Text]:
    """The interval against the limit, and where those lie that kept the same promise."""
    if f.interval is None or f.limit is None:
        return
    yield msg(
        "{what}: the whole interval {interval} lies on the wrong side of {sign} {limit}.",
        what=case.named(f), interval=numbers.interval(*f.interval, f.unit, numbers.ends(f.limit, f.unit)),
        sign=numbers.promise(f.limit.op), limit=numbers.quantity(f.limit.value, f.unit, case.translate, f.interval),
    )  # fmt: skip
    if alike > 1:
        yield msg("So it is with {n} others of the same promise.", n=alike - 1)
    kept = [o for o in case.run.findings if o.clause == f.clause and o.outcome == "pass" and _number(o.measured)]
    if len(kept) > 1:
        low, high = min(o.measured for o in kept), max(o.measured for o in kept)
        limit = numbers.ends(f.limit, f.unit)
        yield msg(
            "The {n} that kept it lie between {span}.", n=len(kept), span=numbers.interval(low, high, f.unit, limit)
        )


# ---------------------------------------------------------------- temperature


def _warm(case: _Case) -> Iterable[Text]:
    gpus = [f for f in case.measured if f.subject in case.labels]
    blocks = case.blocks(gpus)
    if not blocks:
        yield msg("None of the broken promises is a GPU's rate under load.")
        return
    warm = sum(bool(b.warmup) for b in blocks)
    if warm:
        yield msg(
            "Warm-ups are kept apart and count for nothing: {n} of {m} blocks began with one.", n=warm, m=len(blocks)
        )
    clocks, hot, power = (_known(blocks, name) for name in ("sm_mhz", "temp_c", "power_w"))
    if clocks and hot:
        yield msg(
            "In the blocks that count the clock was {mhz} MHz, the temperature at most {temp} °C, the power {power} W.",
            mhz=_range(clocks), temp=numbers.number(max(hot), 3), power=_range(power) if power else numbers.NONE,
        )  # fmt: skip
    else:
        yield msg("Clock and temperature were not recorded beside these blocks.")
    causes = _causes(blocks, case.translate)
    if causes:
        yield msg("Clocks were held down by: {causes}.", causes=causes)


def _known(blocks: Sequence[Block], name: str) -> list[float]:
    found = (b.conditions.get(name) for b in blocks)
    return [float(v) for v in found if isinstance(v, (int, float)) and _number(v)]


def _range(values: Sequence[float]) -> str:
    low, high = numbers.number(min(values)), numbers.number(max(values))
    return low if low == high else f"{low}–{high}"


# Words for agent.tools.telemetry.REASONS.
_CAUSES: Mapping[str, Text] = {
    "sw_power_cap": msg("power limit reached"),
    "sw_thermal": msg("software thermal slowdown"),
    "hw_thermal": msg("hardware thermal slowdown"),
    "power_brake": msg("external power brake, mostly the power supply's"),
}


def _causes(blocks: Sequence[Block], translate: Translate) -> tuple[str, ...]:
    shares: dict[str, float] = {}
    for b in blocks:
        found = b.conditions.get("throttle")
        for name, share in found.items() if isinstance(found, Mapping) else ():
            if _number(share) and share > 0:
                shares[str(name)] = max(shares.get(str(name), 0.0), share)
    words = {name: _CAUSES[name].render(translate) if name in _CAUSES else one_line(name) for name in shares}
    return tuple(f"{words[name]} {numbers.percent(share)}" for name, share in shares.items())


# ---------------------------------------------------------------- lanes


def _lanes(case: _Case) -> Iterable[Text]:
    links = [f for f in case.run.findings if f.clause == "gpu.pcie"]
    broken = [f for f in links if f in case.broken]
    if broken:
        f = broken[0]
        kept = sum(o.outcome == "pass" for o in links)
        yield msg(
            "The contract promises {promised}, whatever the slot was designed for; under load {n} GPUs ran at "
            "{measured}, {kept} others as promised.",
            promised=numbers.promise(f.promised), n=len(broken),
            measured=_listed(_value(case, o, o.measured) for o in broken), kept=kept,
        )  # fmt: skip
    elif links:
        kept = sum(o.outcome == "pass" for o in links)
        yield msg(
            "No lane count is among the broken promises: {n} of {m} links were judged and kept.", n=kept, m=len(links)
        )
    else:
        yield msg("The contract promises no lane count, and nothing here is judged by one.")


# ---------------------------------------------------------------- tool, integrity of the evidence


def _tool(case: _Case) -> Iterable[Text]:
    yield msg("Where a number can be had by hand, its line says how. With the trade's own tools:")
    shown = 0
    for f in _one_a_clause(case.broken):
        tool = industry.command(f, case.run) or byhand.command(f, case.run)
        if tool:
            shown += 1
            yield msg("{what}: {command}", what=title(f.clause, case.translate), command=tool)
    if not shown:
        yield msg("The trade has no tool of its own for what is broken here; the raw output is enclosed.")


def _edited(case: _Case) -> Iterable[Text]:
    if case.digest:
        yield msg(
            "manifest.json holds the sha256 of every file; its own, {digest}, was printed when the run ended, to be "
            "sent to you at once.", digest=case.digest,
        )  # fmt: skip
    else:
        yield msg(
            "manifest.json will hold the sha256 of every file; its own is printed when the run ends, to be sent to you."
        )
    yield msg("Anybody can judge the same bytes again, without this machine: accept judge contract.yaml {run}",
              run=one_line(case.run.run_id))  # fmt: skip
    yield msg(
        "A sealed bundle (accept seal) carries signature and time of a third party; accept verify shows any change."
    )
