"""Redacted copies: nothing planted comes out, the same name is the same token, the verdict stays."""

from __future__ import annotations

import html
import ipaddress
import json
import re
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import tools
from agent.checks import families
from agent.evidence import Ledger, sha256, write_manifest
from agent.redact.find import find
from agent.redact.folder import RedactionError, redact, redacted
from agent.redact.replace import Redactor
from agent.report import renderers
from agent.seal import keys
from agent.seal.verify import Trusted, verify_bundle
from tests.fakenode import healthy
from tests.fakenode.card import Process
from tests.fakenode.node import build
from tests.runs import Done, accept

SERIAL = "1650000424242"
SECRETS: Mapping[str, str] = {
    "host": "acme-train-17",
    "fqdn": "acme-train-17.ml.acme-labs.com",
    "jump host": "bastion.acme-labs.com",
    "contract host": "uplink-probe.acme-labs.cn",
    "bare contract host": "jinancore",
    "URL host": "artefacts.acme-labs.io",
    "user": "zhangwei",
    "user of a home": "liuyang",
    "a Chinese user": "\u738b\u5c0f\u660e",
    "user and word": "page",
    "public v4": "203.0.113.77",
    "private v4": "10.31.7.44",
    "v4 in a route": "192.168.222.9",
    "v6": "2a02:6b8:b010:9010::17",
    "private v6": "fd12:3456:789a::7",
    "v6 written out": "2a02:06b8:b010:9010:0000:0000:0000:0099",
    "MAC": "b8:3f:d2:aa:bb:cc",
    "MAC with dashes": "B8-3F-D2-11-22-33",
    "GPU serial": SERIAL,
    "disk serial": "S64HNE0R508517",
    "board serial": "CN7016384A00XZ",
    "DIMM serial": "8C4E1D77",
    "UUID": "4c4c4544-0042-3510-8054-b7c04f4d3933",
    "WWN": "0025384121b5a1c2",
    "token option": "hf_QWERTYuiopASDFghjk123456",
    "token in environment": "wandbKEY0011223344556677889900aabbcc",
    "password": "correct-horse-7",
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhY21lIn0.c2lnbmF0dXJl",
    "proxy password": "pr0xyPassw0rd",
    "presigned": "a8f5f167f44f4964e6c998dee827110c0ffee",
    "AWS key": "AKIAIOSFODNN7EXAMPLE",
    "home path": "secret-merger-model",
    "process": "acme_distill_v3_launcher",
    "arguments": "--dataset=/mnt/merger-2026",
}  # fmt: skip

CONTRACT = """\
version: 1
contract: {id: R-1, vendor: V, customer: C}
access: {kind: bare-metal, root: true}
gpu: {model: H100 SXM5 80GB, count: 8, driver: ">= 550.54", ecc: on}
ping:
  - {host: uplink-probe.acme-labs.cn, latency: "<= 10 ms"}
  - {host: jinancore, latency: "<= 10 ms"}
network: [{name: public, servers: ["203.0.113.77:5201", "[2a02:6b8:b010:9010::17]:5201"], download: ">= 5 Mbit/s"}]
reach: ["https://artefacts.acme-labs.io/simple?sig=a8f5f167f44f4964e6c998dee827110c0ffee"]
cpu: {sockets: 2}
x-note: "ask zhangwei at 10.31.7.44"
"""

KERNEL = (
    "[    0.000000] Linux version 5.15.0-126-generic (gcc 11.4.0) #136-Ubuntu SMP",
    "[    1.000000] systemd[1]: Hostname set to <acme-train-17>.",
    "[    2.000000] mlx5_core 0000:1a:00.0 enxb83fd2aabbcc: renamed from eth0, address b8:3f:d2:aa:bb:cc",
    "[    3.000000] nvme nvme0: serial S64HNE0R508517 model SAMSUNG_MZQL2_S64HNE0R508517",
    '[    4.000000] audit: comm="acme_distill_v3" exe="/home/liuyang/secret-merger-model/run.py" acct="x"',
    "[    5.000000] IPv6: 2a02:6b8:b010:9010::17 duplicate, peer 10.31.7.44 said so",
    "[    6.000000] Command line: root=UUID=4c4c4544-0042-3510-8054-b7c04f4d3933 quiet",
    "[    7.000000] wandb_api_key=wandbKEY0011223344556677889900aabbcc",
)

ATTACHED = """\
Oct  3 10:22:31 acme-train-17 sshd[811]: Accepted publickey for zhangwei from 203.0.113.77 port 52114
session opened for user page by (uid=0)
$ ssh -J zhangwei@bastion.acme-labs.com page@acme-train-17.ml.acme-labs.com
uid=1004(liuyang) gid=1004(liuyang) groups=1004(liuyang),27(sudo)
python train.py --hf-token hf_QWERTYuiopASDFghjk123456 --password=correct-horse-7
WANDB_API_KEY=wandbKEY0011223344556677889900aabbcc AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE USER=zhangwei
Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhY21lIn0.c2lnbmF0dXJl
http_proxy=http://liuyang:pr0xyPassw0rd@bastion.acme-labs.com:3128
GET https://artefacts.acme-labs.io/w/ckpt?X-Sig=a8f5f167f44f4964e6c998dee827110c0ffee
/home/\u738b\u5c0f\u660e/data /home/liuyang/secret-merger-model/weights.safetensors
link/ether b8:3f:d2:aa:bb:cc, neighbour B8-3F-D2-11-22-33 at fd12:3456:789a::7
GID 2a02:06b8:b010:9010:0000:0000:0000:0099, gateway 192.168.222.9
\tSerial Number: CN7016384A00XZ
\tUUID: 4c4c4544-0042-3510-8054-b7c04f4d3933
\tSerial Number: 8C4E1D77
wwn-0x0025384121b5a1c2 -> ../../nvme0n1
Serial Number:                      S64HNE0R508517
"""


def spellings(secret: str) -> set[str]:
    """All ways in which an output could hold it."""
    forms = {secret, secret.upper(), secret.lower(), html.escape(secret), quote(secret), json.dumps(secret)[1:-1]}
    if re.fullmatch(r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}", secret):
        forms |= {re.sub("[:-]", s, secret.lower()) for s in ("", ":", "-")}
    if ":" in secret and "." not in secret and "=" not in secret and len(secret) > 17:
        address = ipaddress.ip_address(secret)
        forms |= {str(address), address.exploded, address.packed.hex()}
    elif re.fullmatch(r"[\d.]+", secret) and "." in secret:
        forms.add(ipaddress.ip_address(secret).packed[::-1].hex().upper())
    return forms


def leaks(texts: Mapping[str, bytes], words: bool = True) -> list[str]:
    """``what: where`` of every secret that stands in one of the texts. A word of a sentence is no leak of a name."""
    found = []
    for what, secret in SECRETS.items():
        for form in spellings(secret):
            for name, data in texts.items():
                hit = re.search(rb"(?<![A-Za-z])" + re.escape(form.encode()) + rb"(?![A-Za-z])", data)
                if hit and not (secret == "page" and not words):
                    found.append(f"{what}: {name}: {data[max(0, hit.start() - 40) : hit.end() + 40]!r}")
    return found


def contents(folder: Path) -> dict[str, bytes]:
    """All files and their names."""
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    # Our own scripts, as they ship, speak of pages.
    return {**{f"name of {n}": n.encode() for n in files}, **{n: d for n, d in files.items() if not n.endswith(".py")}}


def do(place: Path, *args: str) -> Done:
    return accept(*args, cwd=place, env={"XDG_CONFIG_HOME": str(place / "config")})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an 8-GPU node that is full of secrets, in every kind of file, with its ledger and a key."""
    place = tmp_path_factory.mktemp("redact")
    command = f"/home/liuyang/bin/{SECRETS['process']} {SECRETS['arguments']} --token {SECRETS['token option']}"
    node = healthy.h100().but(name=SECRETS["host"], kernel_log=KERNEL)
    node = node.card(3, lambda c: c.but(processes=(Process(4242, 900, command),)))
    node = node.with_files({
        "/proc/net/route": "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
                           "eth0\t00000000\t09DEA8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
        "/etc/resolv.conf": "nameserver 10.31.7.44\nsearch ml.acme-labs.com\n",
    })  # fmt: skip
    built = build(node, place / "node")
    (place / "contract.yaml").write_text(CONTRACT, encoding="utf-8")
    run = place / "runs" / f"20261130T101010Z-{SECRETS['host']}"
    done = accept(
        "run", "contract.yaml", "--yes", "--profile", "facts", "--root", str(built.root), "--out", str(run),
        cwd=place, env=built.environment(),
    )  # fmt: skip
    assert (run / "result.json").exists(), done.said
    plant(run)
    keys.make(place / "key.pem")
    return place


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    return next((place / "runs").glob("2026*"))


def plant(run: Path) -> None:
    """What the fake node has no place for: an attached file, a command line of ours, the kernel's and tools' JSON."""
    attached = run / "evidence" / "0999-attached-acme-train-17"
    attached.mkdir()
    meta = {
        "probe": "attached /home/liuyang/secret-merger-model/vendor.txt on acme-train-17", "kind": "run",
        "argv": ["ssh", "zhangwei@bastion.acme-labs.com", "--token", SECRETS["token option"]], "cwd": "/home/liuyang",
        "env": {"LD_PRELOAD": "/home/\u738b\u5c0f\u660e/lib.so", "https_proxy": "http://liuyang:pr0xyPassw0rd@10.31.7.44:3128"},
        "path": "/home/liuyang/bin:/usr/bin", "started_at": "2026-11-30T10:00:00.000Z", "seconds": 1.0, "exit": 0,
    }  # fmt: skip
    (attached / "meta.json").write_text(json.dumps(meta))
    (attached / "stdout").write_text(ATTACHED)
    (attached / "stderr").write_text("ssh: connect to host acme-train-17.ml.acme-labs.com: refused\n")
    (attached / "acme-train-17.json").write_text(
        json.dumps({"hostname": SECRETS["host"], "owner": SECRETS["a Chinese user"], "serial": SERIAL,
                    "peer": SECRETS["v6"], "password": SECRETS["password"]})
    )  # fmt: skip
    (run / "agent.log").write_text("started by zhangwei on acme-train-17 as page@acme-train-17.ml.acme-labs.com\n")
    for name in ("run.json", "result.json"):
        text = (run / name).read_text()
        data = json.loads(text)
        data["sessions"][0]["argv"] += ["--out", "/home/liuyang/secret-merger-model", "--token", SECRETS["JWT"]]
        if name == "result.json":
            data["node"]["gpus"][0]["serial"] = SERIAL
            data["notes_text"].append(
                {"template": "each page of {who}", "args": {"who": "/home/page/secret-merger-model"}}
            )
            data["notes"].append("each page of /home/page/secret-merger-model")
        (run / name).write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n")
    digest = write_manifest(run)
    run_id = json.loads((run / "run.json").read_text())["run_id"]
    Ledger(run.parent).add({"event": "end", "run_id": run_id, "verdict": "inconclusive", "digest": digest, "at": "x"})


def test_thirty_secrets_are_planted_in_every_kind_of_file(run: Path) -> None:
    assert len(SECRETS) >= 30
    texts = contents(run)
    missing = [
        what
        for what, secret in SECRETS.items()
        if not any(f.encode() in d for f in spellings(secret) for d in texts.values())
    ]
    assert missing == []
    for file in ("result.json", "run.json", "contract.yaml", "report.html", "agent.log"):
        assert leaks({file: texts[file]}), file


@pytest.fixture(scope="module")
def copy(run: Path, place: Path) -> Path:
    return redact(run, place / "copy", families()).folder


def test_none_of_them_is_in_the_copy(copy: Path) -> None:
    files = contents(copy)
    reports = {n: d for n, d in files.items() if n.startswith(("report.", "junit", "result.json"))}
    assert leaks({n: d for n, d in files.items() if n not in reports}) == []
    assert leaks(reports, words=False) == []


def test_a_name_that_is_a_word_leaves_our_sentences_alone(copy: Path) -> None:
    notes = json.loads((copy / "result.json").read_text())["notes"]
    assert any(re.fullmatch(r"each page of /home/user-\d+/path-\d+", n) for n in notes)


@pytest.mark.parametrize("name", sorted(renderers()))
def test_none_of_them_is_in_a_redacted_report(run: Path, place: Path, name: str) -> None:
    done = do(place, "report", str(run), "--format", name, "--redact", "-o", f"out.{name}")
    assert done.code == 0, done.said
    assert leaks({name: (place / f"out.{name}").read_bytes(), "said": done.said.encode()}, words=False) == []


def test_a_redacted_bundle_verifies_and_holds_none_of_them(run: Path, place: Path, tmp_path: Path) -> None:
    done = do(place, "seal", str(run), "--redact", "--key", "key.pem", "-o", str(tmp_path / "b.tar.gz"))
    assert done.code == 0, done.said
    with tarfile.open(tmp_path / "b.tar.gz") as tar:
        tar.extractall(tmp_path / "out", filter="data")
    files = contents(tmp_path / "out")
    rendered = {n: d for n, d in files.items() if n.startswith(("run/report.", "run/junit", "run/result.json"))}
    assert leaks({n: d for n, d in files.items() if n not in rendered}) == []
    assert leaks(rendered, words=False) == []
    found = verify_bundle(
        tmp_path / "b.tar.gz", Trusted(frozenset({keys.load_fingerprint(str(place / "key.pub"))})), families()
    )
    assert (found.state, found.problems) == ("intact", ())
    assert found.original_digest == sha256(run / "manifest.json")
    assert found.digest != found.original_digest
    assert found.account is not None
    assert (found.account.number, found.account.of) == (1, 1)


def test_the_copy_judges_as_the_original(run: Path, copy: Path) -> None:
    def judged(folder: Path) -> list[tuple[str, str, str]]:
        from agent import contract as contracts
        from agent.checks import grammars
        from agent.runner import judge_again

        _, again = judge_again(folder, contracts.load(folder / "contract.yaml", grammars()), families())
        return [(f.outcome, f.severity, f.reason_code) for f in again.findings]

    assert judged(copy) == judged(run)
    outcomes = {o for o, _, _ in judged(copy)}
    assert outcomes >= {"pass", "inconclusive"}


def test_the_same_name_is_the_same_token(copy: Path) -> None:
    hosts = {
        (copy / name).read_text().strip()
        for name in ("evidence/0001-identity.1/files/proc__sys__kernel__hostname",)
    }  # fmt: skip
    (host,) = hosts
    assert json.loads((copy / "result.json").read_text())["node"]["hostname"] == host
    assert f"Hostname set to <{host}>" in next(copy.glob("evidence/*kernel-log/stdout")).read_text()
    attached = next(copy.glob("evidence/0999*/stdout")).read_text()
    assert re.search(rf"^Oct  3 10:22:31 {host} sshd", attached)
    user = re.search(r"uid=1004\((user-\d+)\)", attached)
    assert user
    assert f"/home/{user[1]}/" in attached


def test_replacements_keep_their_form(copy: Path) -> None:
    gpu = json.loads((copy / "result.json").read_text())["node"]["gpus"][3]
    assert re.fullmatch(r"GPU-00000000(-0000){3}-[0-9a-f]{12}", gpu["uuid"])
    assert re.fullmatch(r"9\d{12}", gpu["serial"])
    attached = next(copy.glob("evidence/0999*/stdout")).read_text()
    assert re.search(r"link/ether (02(:[0-9a-f]{2}){5}), neighbour (02(-[0-9a-f]{2}){5}) at fd00", attached)
    assert next(
        copy.glob("evidence/0999*")
    ).name == "0999-attached-home-user-3-path-1-path-2.txt-on-host-1" or re.match(
        r"0999-attached-home-user-\d+-path-\d+-path-\d+\.txt-on-host-\d+", next(copy.glob("evidence/0999*")).name
    )


def test_what_cannot_be_searched_stays_behind(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "evidence" / "0999-attached-acme-train-17" / "core.gz").write_bytes(b"\x1f\x8bzhangwei")
    write_manifest(tmp_path / "run")
    copy = redact(tmp_path / "run", tmp_path / "copy", families()).folder
    assert not list(copy.rglob("*.gz"))
    assert json.loads((copy / "redaction.json").read_text())["removed"][0].endswith("core.gz")


def test_further_words_are_taken_out_too(run: Path) -> None:
    with redacted(run, families(), also=("SAMSUNG",)) as copy:
        assert not any(b"SAMSUNG" in d for n, d in contents(copy.folder).items())
    assert not copy.folder.exists()


def test_a_run_that_would_be_judged_differently_is_refused(run: Path, tmp_path: Path) -> None:
    """The renter asks for a word to go that a clause rests on."""
    with pytest.raises(RedactionError) as error:
        redact(run, tmp_path / "copy", families(), also=("NVIDIA",))
    assert "nothing was written" in str(error.value) or "cannot be redacted" in str(error.value)


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RedactionError, match="no finished run"):
        redact(tmp_path, tmp_path / "copy", families())


# --- the parts


def replaced(text: str, name: str = "", **kinds: Any) -> str:
    return Redactor(find(text, name, **kinds), [text]).text(text, name, **kinds)


HARMLESS = [
    "0000:1b:00.0 00000000:1B:00.0", "CUDA 12.4, driver 570.133.20", '"cublas": "12.4.5.8"', "libffi.so.8.1.2",
    "VBIOS 96.00.74.00.1A", "12:34:56 up 3 days", "127.0.0.1 ::1 0.0.0.0 255.255.255.0 169.254.169.254",
    "std::vector<c10::Half>", "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff", "/usr/bin/python3 /dev/nvidia0 /data",
    "HOME_URL=https://www.ubuntu.com/", "serial: N/A", "Serial Number: Not Specified",
    "ClusterUUID : 00000000-0000-0000-0000-000000000000", "Serial: 8250/16550 driver, 32 ports, IRQ sharing enabled",
    "usb: SerialNumber: 0000:00:14.0",
    "training: {tokens_per_second: '>= 300000'}", "/root/.pyenv/versions/3.11.7/bin/python3.11",
    "d2b1f4e0a9c8b7a6d5e4f3c2b1a09f8e7d6c5b4a3f2e1d0c9b8a7f6e5d4c3b2a",  # a sha256
    "Memory Encryption Features active: Intel TME",
    "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen",
]  # fmt: skip


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_nobodys_stays(text: str) -> None:
    assert replaced(text) == text


# The few networks that IANA has divided into private and public parts cannot keep both properties.
# Link-local addresses are all of one link.
DIVIDED = [
    ipaddress.ip_network(n)
    for n in (
        "192.0.0.0/16 198.51.0.0/16 203.0.0.0/16 169.254.0.0/16 2001::/22 64:ff9b::/32 100::/32 2002::/16 ::/32 "
        "3fff::/16 fe80::/10"
    ).split()
]


def undivided(address: Any) -> bool:
    return not any(address in n for n in DIVIDED)


CORPUS = Path(__file__).parents[1].parent / "shared" / "corpus"
# What says which piece of hardware or whose program it is; everything else a parser reads must stay.
IDENTITY = ("serial", "uuid", "name", "mountpoint", "text", "argv", "host", "wwn", "fstype")


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, (*path, str(key)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from leaves(inner, (*path, "[]"))
    else:
        yield path, value


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real outputs is not beside this checkout")
def test_parsers_read_redacted_outputs_of_real_tools() -> None:
    read = 0
    for file in sorted(p for p in CORPUS.rglob("*") if p.is_file() and p.parent != CORPUS):
        text = file.read_bytes().decode("utf-8", "replace")
        clean = replaced(text)
        for module in tools.parsers().values():
            try:
                before = list(leaves(tools.to_json(module, module.parse(text))))
            except tools.ParseError:
                continue
            read += 1
            after = list(leaves(tools.to_json(module, module.parse(clean))))
            assert [p for p, _ in before] == [p for p, _ in after], file
            changed = {p for (p, x), (_, y) in zip(before, after) if x != y}
            assert not {p for p in changed if not any(i in part.lower() for i in IDENTITY for part in p[-2:])}, file
    assert read > 100


ADDRESSES: st.SearchStrategy[Any] = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).filter(undivided)


@settings(deadline=None)
@given(st.lists(ADDRESSES, min_size=1, max_size=12, unique=True))
def test_addresses_keep_what_a_judgement_asks_of_them(addresses: list[Any]) -> None:
    from agent.bench.endpoints import metered, network_of

    text = "\n".join(f"address {a} end" for a in addresses)
    new = [line.split()[1] for line in replaced(text).splitlines()]
    old = [str(a) for a in addresses]
    assert len(set(new)) == len(new)
    for before, after in zip(old, new):
        assert metered(before) == metered(after), (before, after)
    for i in range(len(old)):
        for j in range(i):
            same = network_of(old[i]) == network_of(old[j])
            assert same == (network_of(new[i]) == network_of(new[j])), (old[i], old[j], new[i], new[j])


def test_a_replacement_is_never_somebody_elses_address() -> None:
    text = "a 10.0.0.1 b 10.0.0.2 c 10.0.0.3 d 02:00:00:00:00:01 e 02:00:00:00:00:02 host=host-2 host=gpu-x1"
    before = set(re.findall(r"[\w.:-]*\d[\w.:-]*", text))
    after = set(re.findall(r"[\w.:-]*\d[\w.:-]*", replaced(text)))
    assert not before & after
    assert len(before) == len(after)


@settings(deadline=None, max_examples=60)
@given(st.text(max_size=200))
def test_any_text_is_taken(text: str) -> None:
    replaced(text)
    replaced(text, "resolv.conf")
    replaced(text, "x/stdout", ps=True)


def test_a_long_text_takes_seconds_not_minutes() -> None:
    line = (
        "[ 1.0] node acme-train-17 10.1.2.3 b8:3f:d2:aa:bb:cc GPU-4c4c4544-0042-3510-8054-b7c04f4d3933 /home/zw/x y z\n"
    )
    text = "Hostname: acme-train-17\n" + line * 20000
    begun = time.process_time()
    assert "acme" not in replaced(text)
    assert time.process_time() - begun < 20


ATOMS = [
    "a", "A", "1", "-", "_", ".", "a.", "a-", "a_", "A_", "://", "a://a?", "a://a@", "a://a:", "/", ":", "a:", "0:",
    "1.", "ssh a", "eyJa-", "eyJa.", "token", "--token", "token-", "token=", '\\"', " ", "\t", "\n", " \n", "host: ",
    'comm="', "PING a", "from a ", "serial ", "serial number: a ", "-----BEGIN PRIVATE KEY-----",
    "|  1 ", "<process_name>",
    "pid=1, name=", "/home/", "user=", "a@", "a@a.", "uid=1(", "servers: [", "00:", "00-", "0000:", "0.0.0.", "\0",
    "process 1 (", "oom-kill:", "WWN Device Id: 0 ", "Oct  3 10:22:31 a ", "?a=",
]  # fmt: skip


@pytest.mark.parametrize("atom", ATOMS, ids=ascii)
def test_a_hostile_line_takes_no_longer_than_another(atom: str) -> None:
    """Patterns that go over the rest of the line from each of its places would take minutes here."""
    text = (atom * 100_000)[:100_000]
    begun = time.process_time()
    replaced(text)
    assert time.process_time() - begun < 8


def test_the_id_of_a_finding_is_no_address() -> None:
    ids = "rdma.rate@mlx5_0 disk[/data].read@nvme0n1 integrity.steal@vm1 network[lan].speed@eth1"
    assert list(find(ids)) == []
    assert {f.value for f in find("mail first.last@gpu-host.acme.cn")} == {"first.last", "gpu-host.acme.cn"}


def test_a_redacted_copy_is_not_redacted_again(copy: Path, place: Path) -> None:
    """Its tokens look like names; the copy is what may leave the machine."""
    for command in (("report", str(copy), "--redact"), ("seal", str(copy), "--redact", "-o", "twice.tar.gz")):
        done = do(place, *command)
        assert done.code == 2
        assert "is a redacted copy already" in done.err
    assert not (place / "twice.tar.gz").exists()


def test_serials_in_a_list_of_nvidias_diagnostics() -> None:
    text = '{"DCGM GPU Diagnostic": {"GPU Device Serials": {"0": "1423923001498", "1": "1423923001533"}}}'
    assert [(f.kind, f.value) for f in find(text)] == [("serial", "1423923001498"), ("serial", "1423923001533")]
    fourth = '{"entities": [{"device_id": "2330", "entity_id": 0, "serial_num" : "1654922006517"}]}'
    assert [(f.kind, f.value) for f in find(fourth)] == [("serial", "1654922006517")]
