"""From a contract to a finished run folder, and back: execute, survive, resume, judge again.

The folder is whole after every step: ``result.json`` says ``complete: false`` until the verdict stands.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Optional

from agent import __version__, inventory, report
from agent import contract as contracts
from agent.course import Course, Observer
from agent.evidence import (
    EVIDENCE,
    LOCK,
    LOG,
    RESULT,
    Ledger,
    Store,
    is_locked,
    read_json,
    write_atomic,
    write_json,
    write_manifest,
)
from agent.host import Host, LiveHost, ReplayHost, beside_token, end_marked, sweep_scratch, utc_now
from agent.model import Contract, Run, RunNumber, Session
from agent.plan import Options, folded
from agent.quantity import format_quantity
from agent.reading import Known
from agent.result import dumps, from_json, to_json
from agent.text import Text, msg
from agent.verdict import Exit, exit_status, fold, headline, scope_of

JOB = "run.json"
CONTRACT = "contract.yaml"
FAULTS = "agent-faults.txt"
ROOM_BYTES = 32 << 20  # a run of an 8-GPU node leaves some 20 MB
REPORTS = ("html", "md", "junit")
REPORT_NAMES = {"html": "report.html", "md": "report.md", "junit": "junit.xml"}
IDENTITY_FILES = ("/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname")
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")


class RunError(Exception):
    """A run folder that cannot be used, in one sentence."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


@dataclass
class Job:
    """One run: what was asked, and by which starts of the agent it was worked on."""

    folder: Path
    contract: Contract
    options: Options
    language: str
    run_id: str
    started_at: str
    root: str = "/"
    machine: str = ""
    sessions: list[Session] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    def save(self) -> None:
        """Write ``run.json``, from which the run can be resumed and judged again."""
        options = {**asdict(self.options), "recheck": _listed(self.options.recheck)}
        write_json(
            self.folder / JOB,
            {
                "schema": "accept.job/1",
                "run_id": self.run_id,
                "agent_version": __version__,
                "started_at": self.started_at,
                "language": self.language,
                "root": self.root,
                "machine": self.machine,
                "options": options,
                "contract_sha256": self.contract.sha256,
                "sessions": [asdict(s) for s in self.sessions],
                "tokens": self.tokens,
            },
        )


def _listed(keys: Optional[frozenset[str]]) -> Optional[list[str]]:
    return None if keys is None else sorted(keys)


def default_folder(runs: Path, hostname: str) -> Path:
    """``accept-runs/<UTC time>-<host>``, new, and free of characters that a shell or a file system would mind.

    It is made at once, so that two runs that begin in the same second have two folders.
    """
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    host = re.sub(r"[^A-Za-z0-9.-]+", "-", hostname).strip("-.")[:40] or "host"
    folder = runs / f"{stamp}-{host}"
    number = 2
    while not _made(folder):
        folder = runs / f"{stamp}-{host}-{number}"
        number += 1
    return folder


def _made(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return folder.parent.is_file()  # there create() says what is wrong
    except OSError:
        return True  # likewise
    return True


def create(
    folder: Path, contract: Contract, options: Options, language: str, root: str = "/", option: str = "--out"
) -> Job:
    """A new run folder. Raises RunError when the folder holds something already or cannot be written.

    ``option``: that of the command line which names the place.
    """
    try:
        if (run := inside(folder)) is not None:
            raise RunError(
                msg("{folder} lies in the run folder {run}: name another place with {option}",
                    folder=str(folder), run=str(run), option=option)
            )  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        if any(p.name not in (LOCK, LOG) for p in folder.iterdir()):
            raise RunError(msg("{folder} is not empty: name a new folder, or --resume it", folder=str(folder)))
        free = shutil.disk_usage(folder).free
        if free < ROOM_BYTES:
            raise RunError(
                msg(
                    "only {size} are free at {folder}: name another place with {option}",
                    size=format_quantity(float(free), "B"),
                    folder=str(folder),
                    option=option,
                )
            )
        write_atomic(folder / CONTRACT, contract.source)
    except OSError as error:
        raise RunError(_unwritable(folder, error, option)) from error
    run_id = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
    job = Job(folder, contract, options, language, run_id, utc_now(), root)
    job.save()
    return job


def inside(folder: Path) -> Optional[Path]:
    """The run folder in which a place lies, None where it lies in none: what is added there is no part of that run."""
    return next((p for p in folder.resolve().parents if (p / JOB).is_file()), None)


def _unwritable(folder: Path, error: OSError, option: str) -> Text:
    return msg(
        "{folder} cannot be written ({error}): name another with {option}",
        folder=str(folder),
        error=error.strerror or str(error),
        option=option,
    )


def load(folder: Path, families: Mapping[str, ModuleType]) -> Job:
    """The job of an existing run folder. Raises RunError when it is none."""
    try:
        data = read_json(folder / JOB)
        options = data["options"]
        recheck = options.pop("recheck")
        for name in ("only", "skip"):
            options[name] = tuple(options[name])
        contract = contracts.load(
            folder / CONTRACT, {n: m.GRAMMAR for n, m in families.items() if hasattr(m, "GRAMMAR")}
        )
        sessions = [Session(**{**s, "argv": tuple(s["argv"])}) for s in data["sessions"]]
        return Job(
            folder,
            contract,
            Options(**options, recheck=None if recheck is None else frozenset(recheck)),
            data["language"],
            data["run_id"],
            data["started_at"],
            data["root"],
            data["machine"],
            sessions,
            data["tokens"],
        )
    except FileNotFoundError as error:
        raise RunError(msg("{folder} is not a run folder: it has no {file}", folder=str(folder), file=JOB)) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(msg("{file} of this run cannot be read: {error}", file=JOB, error=str(error))) from error


def live_host(job: Job) -> LiveHost:
    """The host of a fresh or resumed run: a resumed one answers finished steps from their evidence."""
    store = Store(job.folder)
    finished = {p: f for p, f in store.recorded().items() if store.name(f) in _finished(job.folder)}
    host = LiveHost(store, Path(job.root), finished)
    for token in job.tokens:
        end_marked(token)
        end_marked(beside_token(token))
    for clause in job.contract.clauses:
        if "path" in clause.settings:
            sweep_scratch(Path(str(clause.settings["path"])))
    job.tokens.append(host.token)
    return host


def _finished(folder: Path) -> frozenset[str]:
    """Evidence of the steps that had ended when the run was last saved."""
    path = folder / RESULT
    try:
        return frozenset(e for s in read_json(path)["steps"] for e in s.get("evidence", ()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return frozenset()  # what cannot be read says of nothing that it was finished: it is done again


def begin_session(job: Job, host: Host, argv: Sequence[str]) -> Session:
    """Who runs where, before anything else is asked of the machine."""
    # Never answered from a recording: a resumed run must see whether the machine was rebooted.
    read = host.read(f"identity.{len(job.sessions) + 1}", IDENTITY_FILES, names=CONTAINER_MARKS)
    texts = [read.text(p) for p in IDENTITY_FILES]
    machine, boot, name = (t.value.strip() if isinstance(t, Known) and t.value.strip() else None for t in texts)
    container = next((p for p in CONTAINER_MARKS if read.exists(p)), None)
    session = Session(
        boot_id=boot,
        argv=tuple(argv),
        uid=os.getuid(),
        container=container,
        simulated_root=None if job.root == "/" else job.root,
    )
    job.machine = hashlib.sha256(f"accept:{machine or name}".encode()).hexdigest()[:16]
    job.sessions.append(session)
    job.save()
    return session


def same_machine(job: Job) -> bool:
    """Whether the last two sessions of a job saw the same boot of the same machine."""
    boots = {s.boot_id for s in job.sessions[-2:]}
    return len(boots) == 1


def ledger(job: Job) -> Ledger:
    """The ledger beside the run folder."""
    return Ledger(job.folder.resolve().parent)


def enter(job: Job) -> None:
    """Number this run in the ledger, before it is known how it ends."""
    ledger(job).add(
        {
            "event": "start",
            "run_id": job.run_id,
            "folder": job.folder.name,
            "contract": job.contract.sha256,
            "machine": job.machine,
            "at": job.started_at,
        }
    )


def assemble(job: Job, course: Course, complete: bool, finished_at: Optional[str] = None) -> Run:
    """The run as it stands; without a verdict while it is not complete."""
    findings = course.findings()
    plan = course.plan
    shortened = folded(e for e in plan.shortened if any(e.key in (f.clause, *f.measurements) for f in findings))
    left = (*course.selection.left_out, *folded(plan.left_out))
    verdict = fold(findings) if complete else None
    scope = scope_of(findings, left, shortened)
    said = headline(findings)
    return Run(
        run_id=job.run_id,
        agent_version=__version__,
        complete=complete,
        started_at=job.started_at,
        finished_at=finished_at,
        contract_id=_maybe(job.contract.header.get("id")),
        contract_sha256=job.contract.sha256,
        contract_header=job.contract.header,
        attempt=_number(job),
        sessions=tuple(job.sessions),
        stack=course.tried("versions of the software", lambda: _stack(course.facts)) or {},
        node=course.tried("inventory", lambda: inventory.node(job.machine, course.facts))
        or inventory.unread(job.machine),
        scope=scope,
        verdict=verdict,
        headline=said if complete else msg("not finished; so far: {headline}", headline=said),
        findings=findings,
        measurements=course.measurements(),
        steps=tuple(course.steps),
        profile=job.options.profile,
        language=job.language,
        terms=job.contract.terms,
        notes=_notes(job, course),
    )


def _maybe(value: Any) -> Optional[str]:
    return None if value is None else str(value)


def _number(job: Job) -> Optional[RunNumber]:
    return ledger(job).number(job.run_id, job.contract.sha256, job.machine)


def _stack(facts: Mapping[str, Any]) -> dict[str, Optional[str]]:
    stack: dict[str, Optional[str]] = {}
    for name in sorted(facts):
        versions = getattr(facts[name], "stack", None)
        if versions is not None:
            stack.update(versions())
    return stack


def _notes(job: Job, course: Course) -> tuple[Text, ...]:
    notes = []
    if job.root != "/":
        notes.append(msg("simulated machine: files below {root} were read in place of /", root=job.root))
    if course.faults:
        notes.append(msg("accept met {n} faults of its own, kept in {file}", n=len(course.faults), file=FAULTS))
    return tuple(notes)


def save(job: Job, course: Course, run: Run) -> None:
    """``result.json`` whole or as it was before; on a full disk the run goes on with what it has in memory."""
    try:
        write_atomic(job.folder / RESULT, dumps(to_json(run)).encode())
        if course.faults:
            write_atomic(job.folder / FAULTS, "\n".join(course.faults).encode())
    except OSError as error:
        text = f"result.json could not be written: {error}"
        if text not in course.faults:
            course.faults.append(text)


def execute(
    job: Job,
    host: Host,
    families: Mapping[str, ModuleType],
    observer: Observer,
    adapt: Optional[Callable[[Mapping[str, Any], Options], Options]] = None,
) -> Run:
    """Facts, plan, loads, verdict. The observer's ``planned`` may raise to decline.

    ``adapt`` may choose another profile once the facts are known (a trial loads no card that is in use).
    """
    course = Course(job.contract, job.options, families, host, observer)
    try:
        course.read_facts()
        if adapt is not None:
            job.options = course.options = adapt(course.facts, job.options)
            job.save()
        course.make_plan()
        save(job, course, assemble(job, course, complete=False))
        course.measure(lambda: save(job, course, assemble(job, course, complete=False)))
    except KeyboardInterrupt:
        save(job, course, assemble(job, course, complete=False, finished_at=utc_now()))
        raise
    run = assemble(job, course, complete=True, finished_at=utc_now())
    save(job, course, run)
    return run


def finish(job: Job, run: Run) -> str:
    """Reports and manifest; returns the run's digest. Raises OSError when the folder cannot be written.

    Where a report cannot be made, through a fault of ours, that is raised once the rest is whole: it can be made later.
    """
    fault: Optional[Exception] = None
    for name in REPORTS:
        try:
            text = report.render(run, name, job.folder, job.language)
        except Exception as error:  # noqa: BLE001 - rule 12: what was measured is kept and numbered all the same
            fault = error
            continue
        write_atomic(job.folder / REPORT_NAMES[name], text.encode("utf-8", "backslashreplace"))
    digest = write_manifest(job.folder)
    event = "end" if run.complete else "interrupted"
    ledger(job).add({"event": event, "run_id": job.run_id, "verdict": run.verdict, "digest": digest, "at": utc_now()})
    if fault is not None:
        raise fault
    return digest


def judge_again(folder: Path, contract: Contract, families: Mapping[str, ModuleType]) -> tuple[Job, Run]:
    """The same course over the recorded evidence, with this contract; starts no process."""
    recorded = load(folder, families)
    job = replace(recorded, contract=contract)
    try:
        store = Store(folder)
    except OSError as error:
        raise RunError(msg("{file} of this run cannot be read: {error}", file=EVIDENCE, error=str(error))) from error
    course = Course(contract, job.options, families, ReplayHost(store))
    course.read_facts()
    course.make_plan()
    course.measure()
    before = read_result(folder)
    run = assemble(job, course, complete=before.complete, finished_at=before.finished_at)
    return job, run


def read_result(folder: Path) -> Run:
    """``result.json`` of a run folder as a run. Raises RunError when there is none."""
    try:
        return from_json(read_json(folder / RESULT))
    except FileNotFoundError as error:
        raise RunError(
            msg("{folder} is not a run folder: it has no {file}", folder=str(folder), file=RESULT)
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(msg("{file} of this run cannot be read: {error}", file=RESULT, error=str(error))) from error


def status(folder: Path) -> tuple[Run, Optional[int]]:
    """How far a run is, and the pid of the agent that works on it."""
    return read_result(folder), is_locked(folder)


def status_of(run: Run) -> Exit:
    """The exit status of ``run`` and ``judge`` for this run."""
    return exit_status(run.verdict, run.scope)
