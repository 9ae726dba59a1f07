"""Finding what must not leave the machine: in known places, and by its shape. Pure.

Known places (``hostname`` files, ``--token X``, ``Serial Number: X``, ``/home/X``) give values that are then replaced
wherever else they stand. Each rule's last matching group is the value.
"""

from __future__ import annotations

import html
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Optional

from agent import checks
from agent.redact.words import PLACEHOLDERS, PROGRAM, PUBLIC, TLD

Kind = Literal["host", "user", "serial", "uuid", "secret", "process", "words", "machine"]


@dataclass(frozen=True)
class Found:
    """A value and where it stands in the text."""

    kind: Kind
    value: str
    start: int
    end: int


def _rule(kind: Kind, pattern: str, flags: int = 0) -> tuple[Kind, re.Pattern[str]]:
    return kind, re.compile(pattern, flags)


_M, _I = re.MULTILINE, re.IGNORECASE
_SECRET_WORD = r"(?:token|passw(?:or)?d|passphrase|secret|api[-_]?key|access[-_]?key|private[-_]?key|credentials?)"
# How the tokens of Hugging Face, GitHub, GitLab, OpenAI, Slack, AWS, Aliyun, Tencent, npm and Docker begin.
_ISSUED = "hf_|gh[pousr]_|github_pat_|glpat-|sk-|xox[abposr]-|AKIA|ASIA|LTAI|AKID|npm_|dckr_pat_"
# Every quantifier that another one follows is bounded: a hostile line of 10 MB must not take hours.
_OPTION = rf"(?<![\w-])--?[\w-]{{0,40}}?{_SECRET_WORD}[\w-]{{0,40}}"
_SETTING = rf"(?<![\w-])[\w-]{{0,40}}?{_SECRET_WORD}(?:_\w{{1,40}})?"
# A host behind a user; units of systemd are none (getty@tty1.service).
_UNIT = "".join(rf"(?<!\.{kind})" for kind in "service slice socket timer mount device scope target".split())
_AT = rf"[A-Za-z][\w.-]{{0,252}}{_UNIT}(?=[:\s\"',\\]|\Z)"
# Versions such as 2.4.0.dev are no host names.
_NUMBERED = rf"[\d.]{{1,80}}(?:{TLD})"
_HEX = "[0-9A-Fa-f]"
UUID = re.compile(rf"(?<!{_HEX}){_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?!{_HEX})")
# Ethernet (6), EUI-64 (8) and IPoIB (20 bytes), with colons or dashes.
MAC = re.compile(
    rf"(?<![\w:-]){_HEX}{{2}}(?P<sep>[:-]){_HEX}{{2}}(?:(?P=sep){_HEX}{{2}}){{4}}"
    rf"(?:(?:(?P=sep){_HEX}{{2}}){{2}}(?:(?:(?P=sep){_HEX}{{2}}){{12}})?)?(?![\w:-])"
)
_SLOT = re.compile(rf"{_HEX}{{4,8}}:{_HEX}{{2}}:{_HEX}{{2}}\.\d")
GUID = re.compile(rf"(?<![\w:.]){_HEX}{{4}}(?::{_HEX}{{4}}){{3}}(?![\w:.])")
MAC_IN_NAME = re.compile(rf"(?<![A-Za-z0-9])(?:en|wl|ww)x{_HEX}{{12}}(?![A-Za-z0-9])")
_HOMES = r"/(?:(?:var/|export/)?home|Users)/"
_PATH_END = r"\s\"'\0:;,<>|)(\\`\]}"
# A path in a home folder.
HOME = re.compile(rf"(?<![\w.-])(?:{_HOMES}|/root/)[^{_PATH_END}]+")
HOMES = re.compile(rf"{_HOMES}|/root/")

RULES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    # Secrets first: what is one is nothing else.
    _rule("secret", r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{1,10000}-----END [A-Z ]{0,30}PRIVATE KEY-----"),
    _rule("secret", rf"{_OPTION}(?:=|\s{{1,20}}|\",\s{{0,20}}\"|\0)[\"']?([^\s\"'\0,\]]{{3,}})", _I),
    _rule("secret", rf"{_SETTING}[\"']?\s{{0,9}}[=:]\s{{0,9}}[\"']?([^\s\"'\0,;}}\[{{(]{{4,}})", _I),
    _rule("secret", r"\b(?:Bearer|Basic)\s+([A-Za-z0-9._~+/=-]{8,})"),
    _rule("secret", r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    _rule("secret", rf"(?<![A-Za-z0-9])(?:{_ISSUED})[A-Za-z0-9_-]{{8,}}"),
    _rule("secret", r"(?<![\w+/=-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*\d)[A-Za-z0-9]{32,}(?![\w+/=-])"),
    _rule("secret", r"(?<=://)[^/\s@\"'<>:]{0,64}:([^/\s@\"'<>]{1,128})@"),
    _rule("user", r"(?<=://)([^/\s@\"'<>:]{1,64})(?::[^/\s@\"'<>]{0,128})?@"),
    _rule("secret", r"(?<=[?&])[\w.%-]{1,64}=([^&\s\"'<>]{6,})"),
    # Hosts.
    _rule("host", r"(?<=://)(?:[^/\s@\"'<>]{1,200}@)?([\w.-]{1,253})"),
    _rule("host", r"\"(?:(?:\w+_)?host(?:name)?|node_?name|server(?:_name)?)\"\s*:\s*\"([^\"\s:/]+)\"", _I),
    _rule("host", r"(?:^[ \t]*|[{,-][ \t]*)host(?:name)?\s*:\s*[\"']?([^\W\d_][\w.-]*)(?=[\s\"',}]|\Z)", _M),
    _rule("host", r"(?<![\w.])(?:--)?host(?:name)?[=\0][\"']?([^\W\d_][\w.-]*)"),
    _rule("host", r"\"uname\"\s*:\s*\[\s*\"Linux\",\s*\"([^\"]+)\""),
    _rule("host", r"\bLinux ([A-Za-z][\w.-]*) \d+\.\d+\S* #"),
    _rule("host", r"(?i:hostname)(?: set to|:)\s+<?\"?([A-Za-z][\w.-]*)"),
    _rule("host", r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d ([\w.-]+) (?:kernel|[\w.()-]+(?:\[\d+\])?):", _M),
    _rule("host", r"^\d{4}-\d\d-\d\dT[\d:.,+Z-]+ ([A-Za-z][\w.-]*) (?:kernel|[\w.()-]+(?:\[\d+\])?):", _M),
    _rule("host", r"^PING (\S+) ?\(", _M),
    _rule("host", r"^--- (\S+) ping statistics", _M),
    _rule("host", r"\bfrom ([A-Za-z][\w.-]*) \([\d:a-f.]+\)"),
    _rule("host", rf"(?<![\w.@-])(?!{_NUMBERED})((?:[A-Za-z0-9_-]{{1,63}}\.){{1,8}}(?:{TLD}))(?![\w-]|\.\w)"),
    # Users.
    _rule("user", rf"{_HOMES}([^/{_PATH_END}]+)"),
    _rule("user", r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER)[\"']?\s*[=:]\s*[\"']?([^\s\"'\0,;}]+)"),
    _rule("user", r"\buser(?:name)?\s*=\s*[\"']?([A-Za-z_][\w.-]*)", _I),
    _rule("user", r"\"(?:user(?:name)?|owner|login)\"\s*:\s*\"([^\"]+)\"", _I),
    _rule("user", r"\b[ug]id=\d+\(([^()\s]{1,64})\)"),
    _rule("user", r"\bopened for user ([A-Za-z_][\w.-]*)"),
    _rule("user", r"\bsudo: +([\w.-]+) :"),
    _rule("user", rf"(?<![\w.+-])([A-Za-z_][\w.+-]{{0,63}})@(?={_AT})"),
    _rule("host", rf"(?<=[A-Za-z0-9_])@({_AT})"),
    # Serial numbers and what else tells one piece of hardware from another.
    _rule("serial", r"serial(?:[ _-]?n(?:umber|o|um))?\.?[\"'>]?[ \t]*[:=>][ \t]*[\"']?([^\s\"'<,;]+)", _I),
    _rule("serial", r"^[ \t]*serial number:[ \t]*(\S[^\n]*?)[ \t]*$", _I | _M),
    _rule("serial", r"asset[ _]tag[\"']?[ \t]*[:=][ \t]*[\"']?([^\n\"']+)", _I),
    _rule("serial", r"\"naa\"\s*:\s*\d+,\s*\"oui\"\s*:\s*\d+,\s*\"id\"\s*:\s*(\d{6,})"),
    _rule("serial", r"\"ext_id\"\s*:\s*(\d{6,})"),
    _rule("serial", r"\b(?:eui|naa|t10)\.([0-9A-Za-z]{8,})", _I),
    _rule("serial", r"(?:WWN Device Id|EUI-64)\s*:\s*([0-9a-f][0-9a-f ]+[0-9a-f])", _I),
    _rule("serial", r"\bww(?:id|n)\b[\"'>]?\s*[:=>-]\s*[\"']?(?:eui\.|naa\.|0x)?([0-9A-Za-z]{8,})", _I),
    _rule("serial", r"\bpdi[\"'>]?\s*[:=>]\s*[\"']?(0x[0-9a-f]{8,16})", _I),
    # Programs that ran beside ours.
    _rule("process", r"<process_name>([^<]+)</process_name>"),
    _rule("process", r"\"(?:process_name|cmdline|command_line)\"\s*:\s*\"([^\"]+)\"", _I),
    _rule("process", r"^\|\s+\d+\s+\S+\s+\S+\s+\d+\s+[CGM+]+\s+(\S[^|]*?)\s+\d+MiB \|", _M),
    _rule("process", r"\bpid='?\d+'?, name=([^,\n]+)"),
    _rule("process", r"\bcomm=\\?\"([\w./:+ -]+?)\\?\""),
    _rule("process", r"\bprocess \d+ \(([^()\n]{1,200})\)"),
    _rule("process", r"\bComm: (\S+)"),
    _rule("process", r"\bKilled process \d+ \(([^()\n]{1,64})\)"),
    _rule("process", r"\boom-kill:[^\n]*,task=([^,\s]+)"),
    _rule("process", r"\bCOMMAND=([^\n]+)"),
)  # fmt: skip
# Files that hold one value and nothing else, by the end of their names.
_WHOLE: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"(?:^|__|/)(?:hostname|domainname|nodename)\Z"), "host"),
    (re.compile(r"(?:^|__|/)(?:machine-id|machine_id)\Z"), "uuid"),
    (re.compile(r"(?:serial|asset_tag|wwid|wwn|serial_number)\Z"), "serial"),
    (re.compile(r"__(?:comm|cmdline)\Z"), "process"),
)
_LISTS = re.compile(r"\b(?:servers|reach)[ \t]*:[ \t]*\[([^\[\]]{0,4000})\]")
_ITEM = re.compile(r"[^\s,\"']+")
_SERIALS = re.compile(r"\bserials[\"']?\s*:\s*[\[{]([^\[\]{}]{0,4000})[\]}]", _I)  # dcgmi diag -j
_SEARCH = re.compile(r"^(?:search|domain)[ \t]+(\S+)", re.MULTILINE)
# The id of a finding: a promise and where it was looked at, which is no user and his host.
_FAMILIES = "|".join(m.name for m in pkgutil.iter_modules(checks.__path__) if not m.name.startswith("_"))
_CLAUSE = re.compile(rf"(?<![\w.+-])(?:{_FAMILIES})(?:\[[^\[\]]{{0,100}}\])?\.\w+\Z")
_PS = re.compile(r"^[ \t]*\d+[ \t]+(?:\d+[ \t]+)?(\S[^\n]*?)[ \t]*$", re.MULTILINE)


def find(text: str, name: str = "", *, ps: bool = False) -> Iterator[Found]:
    """Values in known places. ``name`` is the file's; ``ps``: it is a list of processes."""
    for pattern, kind in _WHOLE:
        stripped = text.strip()
        if pattern.search(name) and stripped:
            start = text.index(stripped)
            yield from _kept_out(kind, stripped, start)
    for kind, rule in RULES:
        for match in rule.finditer(text):
            group = match.lastindex or 0
            at = text.find("@", match.start(), match.end() + 1)
            if at >= 0 and _CLAUSE.search(text, max(0, at - 200), at):
                continue
            yield from _kept_out(kind, match[group], match.start(group))
    for listed in _LISTS.finditer(text):
        for item in _ITEM.finditer(listed[1]):
            host = re.sub(r"^[a-z0-9+]+://", "", item[0]).split("/")[0].rpartition("@")[2]
            host = re.sub(r":\d+\Z", "", host)
            if re.search(r"[^\W\d_]", host) and ":" not in host:
                yield from _kept_out("host", host, listed.start(1) + item.start() + item[0].index(host))
    for listed in _SERIALS.finditer(text):
        for item in _ITEM.finditer(listed[1]):
            yield from _kept_out("serial", item[0], listed.start(1) + item.start())
    if name.endswith("resolv.conf"):
        for line in _SEARCH.finditer(text):
            yield from _kept_out("host", line[1], line.start(1))
    if ps:
        for line in _PS.finditer(text):
            yield from _kept_out("process", line[1], line.start(1))
    yield from _serial_column(text)


def _kept_out(kind: Kind, value: str, start: int) -> Iterator[Found]:
    value = value.rstrip(".") if kind == "host" else value.rstrip()
    if not value or _harmless(kind, value):
        return
    yield Found(kind, value, start, start + len(value))


def _harmless(kind: Kind, value: str) -> bool:
    if kind == "host":
        return bool(PUBLIC.fullmatch(value)) or not re.search(r"[^\W\d_]", value) or value.lower() == "localhost"
    if kind == "serial":
        # The kernel gives its own USB hubs the PCI address of their controller as a serial number.
        filled = PLACEHOLDERS.fullmatch(value) or _SLOT.fullmatch(value)
        return len(value) < 4 or not re.search(r"\d", value) or bool(filled)
    if kind == "process":
        return " " not in value and bool(PROGRAM.fullmatch(value) or PROGRAM.fullmatch(program(value)))
    if kind == "user":
        return value in ("root", "nobody") or not re.search(r"[^\W\d_]", value)
    return value.lower() in ("none", "null", "true", "false", "required", "optional")


def program(command: str) -> str:
    """The program's own name in a command line."""
    return html.unescape(command).split(" ")[0].rpartition("/")[2]


def _serial_column(text: str) -> Iterator[Found]:
    """``nvidia-smi --format=csv`` with a header."""
    head, _, rest = text.partition("\n")
    names = [n.strip() for n in head.split(",")]
    if len(names) < 2 or "serial" not in names:
        return
    column, at = names.index("serial"), len(head) + 1
    for line in rest.splitlines(keepends=True):
        cells = line.split(",")
        if len(cells) == len(names):
            value = cells[column].strip()
            start = at + len(",".join(cells[:column])) + (1 if column else 0)
            yield from _kept_out("serial", value, start + cells[column].index(value) if value else start)
        at += len(line)


def machine(job: str) -> Optional[str]:
    """The pseudonym of the machine in ``run.json``."""
    found = re.search(r"\"machine\"\s*:\s*\"([0-9a-f]{16})\"", job)
    return found[1] if found else None
