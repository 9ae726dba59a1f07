"""The words of the product as frozen data: clause, limit, measurement, finding, step, run. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Optional, Union

from agent.reading import Missing
from agent.text import Text, msg

Op = Literal[">=", "<=", "==", "one_of", "range", "auto"]
Outcome = Literal["pass", "fail", "inconclusive", "not-asked"]
Severity = Literal["breach", "advisory"]
Verdict = Literal["accepted", "rejected", "inconclusive"]
Again = Literal["repeat", "deeper"]
Depth = Literal["quick", "standard", "deeper"]
Profile = Literal["facts", "quick", "standard", "full"]
# How an attempt's blocks become its value and interval (see agent.stats): "share" and "time-share" blocks are one
# block whose conditions hold ``count`` and ``trials``, or one block per stretch of time.
Statistic = Literal[
    "median of block medians",
    "median of repetitions",
    "percentile per repetition",
    "share of trials",
    "share of time",
    "share of packets",
]


@dataclass(frozen=True)
class Promise:
    """What a clause's value says, typed.

    ``value`` is a float in ``unit`` for quantities, a tuple of floats for ``range``, a str, bool, int or
    tuple of str for the other kinds; ``written`` is the contract's own spelling.
    """

    op: Op
    value: Any
    unit: str
    written: str


@dataclass(frozen=True)
class Clause:
    """One promise with one key.

    ``tolerance`` is a fraction and 0 for anything that is not a measured rate. ``settings`` are the entry's
    own parameters (``path``, ``servers``, ``duration`` …), already typed.
    """

    key: str
    family: str
    name: str
    promise: Promise
    line: int
    column: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    tolerance: float = 0.0
    severity: Severity = "breach"
    if_unreadable: Literal["inconclusive", "advisory"] = "inconclusive"
    agreed: bool = False
    ref: Optional[str] = None
    text: Optional[str] = None
    remedy: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class Access:
    """What the contract says the renter is given."""

    kind: Optional[Literal["container", "vm", "bare-metal"]] = None
    root: Optional[bool] = None


@dataclass(frozen=True)
class Contract:
    """A contract as read: ``sha256`` is of ``source``, the bytes of the file."""

    clauses: tuple[Clause, ...]
    source: bytes
    sha256: str
    header: Mapping[str, Any] = field(default_factory=dict)
    access: Access = Access()
    tolerance: float = 0.05
    language: Optional[str] = None
    trial: Mapping[str, Any] = field(default_factory=dict)
    terms: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where a limit comes from: ``contract``, ``catalogue``, ``topology`` or ``agent`` (integrity rules)."""

    kind: Literal["contract", "catalogue", "topology", "agent"]
    detail: Optional[str] = None


@dataclass(frozen=True)
class Limit:
    """What the value was held against: the tolerance is already applied to ``value``."""

    op: str
    value: Any
    unit: str
    tolerance: float = 0.0
    origin: Origin = Origin("contract")


@dataclass(frozen=True)
class Block:
    """One launch or repetition: ``value`` in the measurement's unit, raw ``samples`` and warm-ups apart."""

    value: float
    samples: tuple[float, ...] = ()
    warmup: tuple[float, ...] = ()
    conditions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Void:
    """Why an attempt does not count: ``code`` is a reason code such as ``above-physical-limit``."""

    code: str
    text: Text


@dataclass(frozen=True)
class Attempt:
    """One execution of a measurement: ``depth`` quick blocks may fail a clause but never pass it."""

    blocks: tuple[Block, ...]
    depth: Depth
    started_at: str
    evidence: tuple[str, ...] = ()
    void: Optional[Void] = None
    # Why this attempt may keep a promise but not break it: dd at queue depth 1, a far end not shown capable.
    weak: Optional[Void] = None
    correct: Optional[bool] = None
    notes: tuple[Text, ...] = ()
    reproduce: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """All attempts at one number. ``key`` is the clause's key, with ``@subject`` where there are several."""

    key: str
    unit: str
    statistic: Statistic
    attempts: tuple[Attempt, ...]
    subject: Optional[str] = None


# A step's outcome for one key: an attempt with its unit and statistic, or why there is none.
@dataclass(frozen=True)
class Taken:
    """What one execution of a step yields for one key."""

    attempt: Attempt
    unit: str
    statistic: Statistic
    subject: Optional[str] = None


Result = Union[Taken, Missing]
Measured = Mapping[str, Union[Measurement, Missing]]


# The reason of a clause whose check is not built yet.
UNBUILT = msg("unsupported in this version of accept")


@dataclass(frozen=True)
class Finding:
    """One clause judged on one subject. ``again`` asks the runner for another attempt and is not recorded."""

    id: str
    clause: str
    outcome: Outcome
    severity: Severity
    promised: str
    reason_code: str
    reason: Text
    subject: Optional[str] = None
    measured: Any = None
    unit: str = ""
    interval: Optional[tuple[float, float]] = None
    interval_rule: Optional[str] = None
    limit: Optional[Limit] = None
    grant: Optional[Text] = None
    remedy: Optional[str] = None
    ref: Optional[str] = None
    quote: Optional[str] = None
    measurements: tuple[str, ...] = ()
    depth: Optional[str] = None
    reproduce: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    notes: tuple[Text, ...] = ()
    again: Optional[Again] = None


@dataclass(frozen=True)
class StepRecord:
    """A step as it was executed, for the result."""

    name: str
    argv: tuple[str, ...] = ()
    started_at: Optional[str] = None
    seconds: Optional[float] = None
    exit: Optional[int] = None
    skipped: Optional[Text] = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class ScopeEntry:
    """A clause key (or ``integrity``) that was left out, shortened or waits for the trial, and why."""

    key: str
    why: Text


@dataclass(frozen=True)
class Scope:
    left_out: tuple[ScopeEntry, ...] = ()
    shortened: tuple[ScopeEntry, ...] = ()
    pending_trial: tuple[ScopeEntry, ...] = ()

    @property
    def full(self) -> bool:
        return not (self.left_out or self.shortened or self.pending_trial)


@dataclass(frozen=True)
class Session:
    """One start of the agent in this run folder (a resumed run has several)."""

    boot_id: Optional[str]
    argv: tuple[str, ...]
    uid: int
    container: Optional[str]
    clock_offset_s: Optional[float] = None
    simulated_root: Optional[str] = None


@dataclass(frozen=True)
class RunNumber:
    """This run's number in the ledger of this contract on this machine."""

    number: int
    of: int
    ledger: str


@dataclass(frozen=True)
class Run:
    """All that ``result.json`` holds."""

    run_id: str
    agent_version: str
    complete: bool
    started_at: str
    finished_at: Optional[str]
    contract_id: Optional[str]
    contract_sha256: str
    contract_header: Mapping[str, Any]
    attempt: Optional[RunNumber]
    sessions: tuple[Session, ...]
    stack: Mapping[str, Optional[str]]
    node: Mapping[str, Any]
    scope: Scope
    verdict: Optional[Verdict]
    headline: Text
    findings: tuple[Finding, ...]
    measurements: tuple[Measurement, ...]
    steps: tuple[StepRecord, ...]
    profile: Profile
    language: str = "en"
    terms: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[Text, ...] = ()
