"""What a report shows, ready to be laid out: plain strings in the reader's language, nothing left to decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from agent.model import Finding, Outcome, Run, ScopeEntry, Severity
from agent.quantity import format_quantity
from agent.report import looks, numbers, raw, rows, strips
from agent.report.answers import Answer, answers
from agent.report.claims import formulas
from agent.report.clean import one_line, shortened, visible
from agent.report.names import title
from agent.report.phrases import PROFILES
from agent.report.pictures import Pictures, pictures
from agent.text import Text, Translate, msg

# Kinds of measurement that have been run on real GPUs, as names of clause families.
PROVEN_ON_GPUS: tuple[str, ...] = ()

_IN_PARAGRAPH = 5


@dataclass(frozen=True)
class Fact:
    """A label and its value; ``name`` is the label before translation."""

    label: str
    value: str
    name: str = ""


@dataclass(frozen=True)
class Named:
    """A clause that was left out, shortened or is pending, and why."""

    key: str
    title: str
    why: str


@dataclass(frozen=True)
class StepLine:
    """A step as it was executed; ``skipped`` says why it was not."""

    name: str
    started: str
    lasted: str
    end: str
    skipped: str
    command: str


@dataclass(frozen=True)
class Gpu:
    """One GPU of the node; what is not known is ``—``."""

    index: str
    slot: str
    name: str
    uuid: str
    serial: str
    answers: bool = True


@dataclass(frozen=True)
class Summary:
    """A paragraph for somebody who reads nothing else: what was promised, what came, what it means."""

    promised: tuple[str, ...]
    opening: tuple[str, ...]
    broken: tuple[str, ...]
    closing: tuple[str, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*self.promised, *self.opening, *self.broken, *self.closing)


@dataclass(frozen=True)
class Term:
    """A term of the contract that no agent can verify."""

    text: str
    check_by: str


@dataclass(frozen=True)
class View:
    """The whole report. ``counts`` are kept, broken, unverified."""

    language: str
    title: str
    look: looks.Look
    verdict: str
    headline: str
    facts: tuple[Fact, ...]
    summary: Summary
    asked: tuple[str, ...]
    broken: tuple[rows.Row, ...]
    unverified: tuple[rows.Row, ...]
    remarks: tuple[rows.Row, ...]
    kept: tuple[rows.Row, ...]
    fine: tuple[rows.Row, ...]
    not_asked: tuple[rows.Row, ...]
    counts: Mapping[str, int]
    charts: tuple[strips.Chart, ...]
    pictures: Pictures
    answers: tuple[Answer, ...]
    steps: tuple[StepLine, ...]
    full_scope: bool
    partial: tuple[str, ...]
    left_out: tuple[Named, ...]
    shortened: tuple[Named, ...]
    pending: tuple[Named, ...]
    node: tuple[Fact, ...]
    gpus: tuple[Gpu, ...]
    stack: tuple[Fact, ...]
    sessions: tuple[str, ...]
    terms: tuple[Term, ...]
    notes: tuple[str, ...]
    probes: tuple[raw.Probe, ...]
    digest: Optional[str]
    contract_sha256: str
    run_id: str
    server: str
    agent_version: str
    proven: tuple[str, ...]


def view(run: Run, folder: Optional[Path], translate: Translate, language: str) -> View:
    """The report of ``run``; evidence is read from ``folder`` where there is one."""
    parts = _Parts(run)
    probes = raw.probes(folder, _cited(run))
    digest = raw.digest(folder)
    known = rows.Extras(formulas(run, folder), {p.name: p.main for p in probes})
    look = looks.of_verdict(run.verdict if run.complete else None)
    contract = _short(run.contract_id or run.run_id)
    return View(
        language=language,
        title=msg("Acceptance report {contract}", contract=contract).render(translate),
        look=look,
        verdict=look.word.render(translate),
        headline=rows.say(run.headline, translate),
        facts=tuple(_who_and_when(run, translate, language)),
        summary=_summary(run, parts, translate, language),
        asked=tuple(_asked(run, parts, translate, known)),
        broken=rows.rows(run, parts.broken, translate, known),
        unverified=rows.rows(run, parts.unverified, translate, known),
        remarks=rows.rows(run, parts.remarks, translate, known),
        kept=rows.rows(run, parts.kept, translate, known),
        fine=rows.rows(run, parts.fine, translate, known),
        not_asked=rows.rows(run, parts.not_asked, translate, known),
        counts=parts.counts,
        charts=strips.charts(run, translate),
        pictures=pictures(run, folder, translate),
        answers=answers(run, digest, translate),
        steps=tuple(_steps(run, translate, language)),
        full_scope=run.scope.full and run.complete,
        partial=tuple(t.render(translate) for t in partial(run)),
        left_out=_named(run.scope.left_out, translate),
        shortened=_named(run.scope.shortened, translate),
        pending=_named(run.scope.pending_trial, translate),
        node=tuple(_node(run.node, translate)),
        gpus=tuple(_gpus(run.node, translate)),
        stack=tuple(_stack(run.stack, translate)),
        sessions=tuple(_sessions(run, translate)),
        terms=tuple(_terms(run)),
        notes=tuple(rows.say(n, translate) for n in run.notes),
        probes=probes,
        digest=digest,
        contract_sha256=_short(run.contract_sha256),
        run_id=_short(run.run_id),
        server=_short(run.node.get("hostname") or ""),
        agent_version=_short(run.agent_version),
        proven=tuple(title(k, translate) for k in PROVEN_ON_GPUS),
    )


class _Parts:
    """Findings by what a reader does about them."""

    def __init__(self, run: Run) -> None:
        def those(outcome: Outcome, severity: Optional[Severity] = None) -> list[Finding]:
            return [f for f in run.findings if f.outcome == outcome and severity in (None, f.severity)]

        self.broken = those("fail", "breach")
        self.unverified = those("inconclusive", "breach")
        self.remarks = those("fail", "advisory") + those("inconclusive", "advisory")
        self.kept = those("pass", "breach")
        self.fine = those("pass", "advisory")
        self.not_asked = those("not-asked")

    @property
    def counts(self) -> Mapping[str, int]:
        """As the headline counts: each GPU, disk and address by itself, advisory findings apart."""
        return {"kept": len(self.kept), "broken": len(self.broken), "unverified": len(self.unverified)}


def partial(run: Run) -> Iterable[Text]:
    """What the verdict does not cover, in a sentence a kind."""
    scope = run.scope
    if not run.complete or scope.full:
        return
    if scope.left_out:
        yield msg("Parts of the contract were left out of this run.")
    if scope.shortened:
        yield msg("Some tests were shortened: they can show a breach, but prove nothing kept.")
    if scope.pending_trial:
        yield msg("Some promises show only over several days.")


def _short(value: Any) -> str:
    return shortened(one_line(str(value)), 200)


def _who_and_when(run: Run, translate: Translate, language: str) -> Iterable[Fact]:
    def fact(label: Text, value: Any) -> Iterable[Fact]:
        if value not in (None, ""):
            shown = value.render(translate) if isinstance(value, Text) else _short(value)
            yield Fact(label.render(translate), shown, label.template)

    header = run.contract_header
    signed = header.get("signed")
    contract = (
        msg("{id}, signed {date}", id=_short(run.contract_id), date=numbers.day(str(signed), language))
        if signed
        else run.contract_id
    )
    yield from fact(msg("Contract"), contract)
    yield from fact(msg("Vendor"), header.get("vendor"))
    yield from fact(msg("Customer"), header.get("customer"))
    yield from fact(msg("Server"), run.node.get("hostname"))
    yield from fact(msg("GPUs"), _gpu_summary(run.node))
    yield from fact(msg("Site"), header.get("site"))
    yield from fact(msg("Measured on"), numbers.when(run.started_at, language))
    seconds = numbers.seconds_between(run.started_at, run.finished_at)
    yield from fact(msg("Took"), numbers.duration(seconds) if seconds is not None else None)
    yield from fact(msg("Run"), _run_number(run))
    yield from fact(msg("Profile"), PROFILES.get(run.profile, run.profile))


def _gpu_summary(node: Mapping[str, Any]) -> Union[Text, str, None]:
    """The cards that answer, by name; those that are there and do not are named beside them."""
    gpus = [g for g in node.get("gpus") or () if isinstance(g, Mapping)]
    names = [_short(g.get("name")) for g in gpus if g.get("answers") is not False]
    counted = {name: names.count(name) for name in names}
    found = ", ".join(f"{n} × {name}" for name, n in counted.items())
    silent = tuple(_short(g.get("slot")) for g in gpus if g.get("answers") is False)
    if silent and not found:
        return msg("none of {m} GPUs answers", m=len(gpus))
    if silent:
        return msg("{found} ({n} of {m} GPUs answer; silent: {slots})", found=found, n=len(names), m=len(gpus),
                   slots=silent)  # fmt: skip
    return found or None


def _run_number(run: Run) -> Text:
    if run.attempt is None:
        return msg("not numbered: it stands in no ledger")
    ledger = _short(run.attempt.ledger)
    return msg(
        "{n} of {m} of this contract on this machine (all in {ledger})",
        n=run.attempt.number,
        m=run.attempt.of,
        ledger=ledger,
    )


def _summary(run: Run, parts: _Parts, translate: Translate, language: str) -> Summary:
    def said(texts: Iterable[Text]) -> tuple[str, ...]:
        return tuple(t.render(translate) for t in texts)

    broken = rows.rows(run, parts.broken, translate)
    return Summary(
        said(_promised(run, parts, translate, language)),
        said(_opening(run, parts)),
        said(_broken_sentences(broken)),
        said(_closing(parts)),
    )


_MAIN = ("gpu.count", "gpu.model", "gpu.memory", "gemm.bf16", "allreduce.busbw", "cpu.vcpus", "memory.size")


def _promised(run: Run, parts: _Parts, translate: Translate, language: str) -> Iterable[Text]:
    """Who promised what by which contract, in the contract's own figures; the main ones."""
    header = run.contract_header
    first: dict[str, Finding] = {}
    for f in (*parts.kept, *parts.broken, *parts.unverified):
        first.setdefault(f.clause, f)
    main = [first[key] for key in _MAIN if key in first]
    others = [f for f in first.values() if f not in main and f.promised]
    chosen = [*main, *others[: max(_IN_PARAGRAPH - len(main), 0)]]
    if not chosen:
        return
    said = tuple(f"{title(f.clause, translate)} {numbers.promise(f.promised)}" for f in chosen if f.promised)
    who = _short(header["vendor"]) if header.get("vendor") else msg("the vendor")
    signed = header.get("signed")
    when = numbers.day(str(signed), language) if signed else None
    contract = _short(run.contract_id) if run.contract_id else None
    under: Any = msg("the contract")
    if contract:
        under = msg("contract {id} of {date}", id=contract, date=when) if when else msg("contract {id}", id=contract)
    rest = len(first) - len(chosen)
    more = msg("{n} further promises", n=rest) if rest > 0 else None
    yield msg(
        "By {contract}, {vendor} promised: {what}.", contract=under, vendor=who, what=(*said, *([more] if more else []))
    )


def _opening(run: Run, parts: _Parts) -> Iterable[Text]:
    counts = parts.counts
    if not run.complete:
        yield msg("The run did not reach its end, so there is no verdict. What was found until then is below.")
    yield msg(
        "{n} points were judged, each GPU, disk and address by itself: "
        "{kept} kept, {broken} broken, {open} not verified.",
        n=counts["kept"] + counts["broken"] + counts["unverified"], kept=counts["kept"],
        broken=counts["broken"], open=counts["unverified"],
    )  # fmt: skip


def _broken_sentences(broken: tuple[rows.Row, ...]) -> Iterable[Text]:
    yield from (_broken_sentence(row) for row in broken[:_IN_PARAGRAPH])
    if len(broken) > _IN_PARAGRAPH:
        yield msg("{n} more are in the table.", n=len(broken) - _IN_PARAGRAPH)


def _closing(parts: _Parts) -> Iterable[Text]:
    if parts.unverified:
        yield msg("A promise that could not be measured does not count as kept.")


def _broken_sentence(row: rows.Row) -> Text:
    return msg("{name}: {what}.", name=row.name, what=row.said)


# Reasons for which a second run of ours is the answer, and nothing of the vendor's.
_OURS = frozenset({"shortened", "left-out", "needs-load", "interrupted"})


# Reasons that lie in the measurement: the vendor cannot say more of them than we.
_AGAIN = frozenset({"above-physical-limit", "wrong-result", "unstable", "too-close", "fail-not-repeated", "disturbed"})


def _asked(run: Run, parts: _Parts, translate: Translate, known: rows.Extras) -> Iterable[str]:
    """What the vendor is asked to do, each thing once; last what is ours to do."""
    broken = rows.rows(run, parts.broken, translate, known)
    unverified = rows.rows(run, parts.unverified, translate)
    asked = [r.remedy for r in broken if r.remedy]
    bare = _titles(r for r in broken if not r.remedy)
    if bare:
        asked.append(msg("Put right and let us measure again: {what}.", what=bare).render(translate))
    asked += [
        msg("By the contract's own formula, for {what}: {money}.", what=r.title, money=r.claim).render(translate)
        for r in broken
        if r.claim
    ]
    granted: dict[str, list[rows.Row]] = {}
    for r in unverified:
        granted.setdefault(r.grant, []).append(r)
    asked += [
        msg("To verify {what}: {grant}", what=_titles(group), grant=grant).render(translate)
        for grant, group in granted.items()
        if grant
    ]
    mute = granted.get("", [])
    theirs, ours, again = (
        _titles(r for r in mute if (r.code in _OURS, r.code in _AGAIN) == whose)
        for whose in ((False, False), (True, False), (False, True))
    )
    if theirs:
        asked.append(
            msg("Say why this could not be measured, and make it measurable: {what}.", what=theirs).render(translate)
        )
    if ours:
        asked.append(msg("Ours to do: measure in full ({what}).", what=ours).render(translate))
    if again:
        asked.append(msg("Ours to do: measure again ({what}).", what=again).render(translate))
    return dict.fromkeys(asked)


def _titles(found: Iterable[rows.Row]) -> tuple[Any, ...]:
    """The promises of rows by name, each once; the first few where there are many."""
    titles = list(dict.fromkeys(r.title for r in found))
    if len(titles) <= _IN_PARAGRAPH + 1:
        return tuple(titles)
    return (*titles[:_IN_PARAGRAPH], msg("{n} more", n=len(titles) - _IN_PARAGRAPH))


def _steps(run: Run, translate: Translate, language: str) -> Iterable[StepLine]:
    for s in run.steps:
        yield StepLine(
            name=_short(s.name),
            started=numbers.when(s.started_at, language),
            lasted=numbers.duration(s.seconds).render(translate),
            end=numbers.NONE if s.exit is None else str(s.exit),
            skipped=rows.say(s.skipped, translate) if s.skipped else "",
            command=rows.command(s.argv),
        )


def _named(entries: tuple[ScopeEntry, ...], translate: Translate) -> tuple[Named, ...]:
    return tuple(Named(_short(e.key), _short(title(e.key, translate)), rows.say(e.why, translate)) for e in entries)


_NODE: dict[str, Text] = {
    "hostname": msg("Host name"),
    "identity": msg("Identity"),
    "cpu": msg("CPU"),
    "memory": msg("Main memory"),
    "os": msg("Operating system"),
    "kernel": msg("Linux kernel"),
    "product": msg("Product"),
    "virtualization": msg("Virtualization"),
    "container": msg("Container"),
    "counters": msg("Error counters"),
    "disks": msg("Disks"),
    "network": msg("Network"),
}


def _node(node: Mapping[str, Any], translate: Translate) -> Iterable[Fact]:
    for key, value in node.items():
        if key != "gpus":
            label = _NODE[key].render(translate) if key in _NODE else _short(key)
            yield Fact(label, _flat(value))


_STACK: dict[str, Text] = {
    "driver": msg("NVIDIA driver"),
    "cuda_driver": msg("CUDA version of the driver"),
    "torch": msg("PyTorch"),
    "cuda": msg("CUDA of PyTorch"),
    "cublas": msg("cuBLAS"),
    "nccl": msg("NCCL"),
    "python": msg("Python"),
}


def _stack(stack: Mapping[str, Optional[str]], translate: Translate) -> Iterable[Fact]:
    """Nothing where nothing is known: a machine without GPUs was measured with none of it."""
    for key, value in stack.items() if any(stack.values()) else ():
        label = _STACK[key].render(translate) if key in _STACK else _short(key)
        yield Fact(label, _short(value) if value else numbers.NONE)


def _flat(value: Any) -> str:
    if value is None:
        return numbers.NONE
    if isinstance(value, Mapping):
        rest = {k: v for k, v in value.items() if k != "name"}
        inner = "; ".join(_part(k, v) for k, v in rest.items())
        return shortened(f"{_flat(value['name'])} ({inner})" if "name" in value and inner else inner, 600)
    if isinstance(value, (list, tuple)):
        return shortened(", ".join(_flat(v) for v in value), 600)
    return shortened(one_line(str(value)), 600)


def _part(key: Any, value: Any) -> str:
    if key == "bytes" and numbers.is_number(value):
        return format_quantity(float(value), "B")
    return f"{_short(key)}: {_flat(value)}"


def _gpus(node: Mapping[str, Any], translate: Translate) -> Iterable[Gpu]:
    for g in node.get("gpus") or ():
        if isinstance(g, Mapping):
            index, slot, name, uuid, serial = (_flat(g.get(k)) for k in ("index", "slot", "name", "uuid", "serial"))
            answers = g.get("answers") is not False
            if not answers:
                name = msg("{name}: does not answer", name=name).render(translate)
            yield Gpu(index, slot, name, uuid, serial, answers)


def _sessions(run: Run, translate: Translate) -> Iterable[str]:
    for s in run.sessions:
        line = msg(
            "boot {boot}, user id {uid}, {place}: {command}",
            boot=_short(s.boot_id) if s.boot_id else numbers.NONE, uid=s.uid,
            place=msg("container: {name}", name=_short(s.container)) if s.container else msg("no container"),
            command=rows.command(s.argv),
        )  # fmt: skip
        clock = f" · {_clock(s.clock_offset_s).render(translate)}" if s.clock_offset_s is not None else ""
        fake = msg("facts read below {root}, not from the machine itself", root=_short(s.simulated_root))
        simulated = f" · {fake.render(translate)}" if s.simulated_root else ""
        yield line.render(translate) + clock + simulated


def _clock(offset: float) -> Text:
    return msg("clock off by {s} s", s=numbers.number(offset, 2))


def _terms(run: Run) -> Iterable[Term]:
    for t in run.terms:
        by = t.get("check_by")
        yield Term(shortened(visible(str(t.get("text", numbers.NONE))), 1500), _short(by) if by else "")


def _cited(run: Run) -> frozenset[str]:
    return frozenset(link.probe for f in run.findings if f.outcome != "pass" for link in rows.links(f.evidence))
