"""Keys, seals, timestamps, countersignatures: an intact bundle verifies anywhere, every change of it is seen."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.checks import families
from agent.evidence import sha256, write_manifest
from agent.seal import archive, bundle, keys, ledgers, timestamp
from agent.seal.verify import Trusted, Verification, verify_bundle, verify_folder
from tests import authority
from tests.authority import Authority
from tests.runs import FACTS_ONLY, Done, accept, contract

pytest.importorskip("cryptography")
pytest.importorskip("rfc3161_client")
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
SEALED = Path(__file__).parents[1] / "agent" / "seal"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one contract, keys of the renter and the vendor, a bundle of the second run."""
    place = tmp_path_factory.mktemp("seal")
    path = contract(place, FACTS_ONLY)
    for name in ("one", "two"):
        done = accept("run", str(path), "--out", str(place / "runs" / name), "--profile", "facts", cwd=place)
        assert done.code == 0, done.said
    for name in ("renter", "vendor"):
        keys.make(place / f"{name}.pem")
    done = do(place, "seal", "runs/two", "--key", "renter.pem", "-o", "sealed.tar.gz")
    assert done.code == 0, done.said
    return place


def do(place: Path, *args: str) -> Done:
    """The command with a home of its own, so that no key of the developer plays a part."""
    return accept(*args, cwd=place, env={"XDG_CONFIG_HOME": str(place / "config")})


def check(path: Path, *named: Path, **brought: Any) -> Verification:
    fingerprints = frozenset(keys.load_fingerprint(str(n)) for n in named)
    trusted = Trusted(fingerprints, **brought)
    return (verify_folder if path.is_dir() else verify_bundle)(path, trusted, families())


def words(found: Verification) -> str:
    return "\n".join(map(str, (*found.problems, *found.notes)))


def copied(place: Path, tmp_path: Path) -> Path:
    """The second run and its ledger, to be spoilt."""
    shutil.copytree(place / "runs", tmp_path / "runs")
    return tmp_path / "runs" / "two"


# --- keys


def test_a_key_pair_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    done = do(tmp_path, "key", "--out", "mine/key.pem")
    private, public = tmp_path / "mine" / "key.pem", tmp_path / "mine" / "key.pub"
    assert done.code == 0
    assert "own machine" in done.out
    assert keys.fingerprint(keys.load_private(private).public) in done.out
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    before = private.read_bytes(), public.read_bytes()
    again = do(tmp_path, "key", "--out", "mine/key.pem")
    assert again.code == 2
    assert "not overwritten" in again.err
    public.unlink()
    assert do(tmp_path, "key", "--out", "mine/key.pem").code == 2
    assert private.read_bytes() == before[0]
    assert not public.exists()


@needs_openssl
def test_openssl_reads_the_keys(place: Path) -> None:
    for option in (["-in", "renter.pem"], ["-pubin", "-in", "renter.pub"]):
        done = subprocess.run(
            ["openssl", "pkey", "-noout", "-text", *option], cwd=place, capture_output=True, text=True
        )
        assert "ED25519" in done.stdout


def test_a_key_is_named_by_file_or_fingerprint(place: Path) -> None:
    fingerprint = keys.load_fingerprint(str(place / "renter.pub"))
    assert keys.load_fingerprint(str(place / "renter.pem")) == fingerprint
    assert keys.load_fingerprint(fingerprint) == fingerprint


@pytest.mark.parametrize("text", ["", "no key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_what_is_no_key_is_one_line(place: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "k").write_text(text)
    for args in (["seal", "runs/two", "--key"], ["verify", "sealed.tar.gz", "--key"]):
        done = do(place, *args, str(tmp_path / "k"))
        assert done.code == 2
        assert len(done.err.splitlines()) == 1


# --- seal and verify


def test_a_sealed_run_is_intact_and_says_who_when_and_what(place: Path) -> None:
    found = check(place / "sealed.tar.gz", place / "renter.pub")
    assert (found.state, found.problems, found.notes) == ("intact", (), ())
    assert found.signature is not None
    assert found.signature.fingerprint == keys.load_fingerprint(str(place / "renter.pub"))
    assert found.judged is not None
    assert (found.judged.claimed, found.judged.found) == ("accepted", "accepted")
    assert found.account is not None
    assert (found.account.number, found.account.of) == (2, 2)
    first = json.loads((place / "runs" / "one" / "result.json").read_text())["run_id"]
    assert found.account.runs[0].run_id == first
    assert all(f.state == "intact" for f in found.files)


def test_the_statement_links_to_the_run_before(place: Path, tmp_path: Path) -> None:
    archive.unpack(place / "sealed.tar.gz", tmp_path / "out")
    stated = json.loads((tmp_path / "out" / bundle.STATEMENT).read_text())
    runs = [json.loads((place / "runs" / n / "result.json").read_text())["run_id"] for n in ("one", "two")]
    assert stated["run_id"] == runs[1]
    assert stated["ledger"]["previous_run"]["run_id"] == runs[0]
    assert (stated["ledger"]["number"], stated["ledger"]["of"]) == (2, 2)


def test_the_exit_status_says_it_too(place: Path) -> None:
    known = do(place, "verify", "sealed.tar.gz", "--key", "renter.pub")
    unknown = do(place, "verify", "sealed.tar.gz")
    other = do(place, "verify", "sealed.tar.gz", "--key", "vendor.pub")
    assert (known.code, unknown.code, other.code) == (0, 3, 3)
    assert keys.load_fingerprint(str(place / "renter.pub")) in unknown.out
    for args in (["verify", "nothing.tar.gz"], ["verify", "sealed.tar.gz", "--digest", "abc"], ["seal", "config"]):
        assert do(place, *args).code == 2
    data = json.loads(do(place, "verify", "sealed.tar.gz", "--key", "renter.pub", "--format", "json").out)
    assert (data["state"], data["judged"]["same"], data["account"]["of"]) == ("intact", True, 2)


def test_it_verifies_with_no_network_no_gpu_and_starts_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*_args: Any, **_kwargs: Any) -> Any:
        raise AssertionError("verifying started or connected something")

    monkeypatch.setattr("subprocess.Popen", forbid)
    monkeypatch.setattr("socket.socket.connect", forbid)
    assert check(place / "sealed.tar.gz", place / "renter.pub").state == "intact"


def test_sealing_twice_differs_only_in_the_seal(place: Path, tmp_path: Path) -> None:
    done = do(place, "seal", "runs/two", "--key", "renter.pem", "-o", str(tmp_path / "again"))
    assert done.code == 0
    archive.unpack(place / "sealed.tar.gz", tmp_path / "a")
    archive.unpack(tmp_path / "again", tmp_path / "b")
    different = [
        str(p.relative_to(tmp_path / "a")) for p in sorted((tmp_path / "a").rglob("*"))
        if p.is_file() and p.read_bytes() != (tmp_path / "b" / p.relative_to(tmp_path / "a")).read_bytes()
    ]  # fmt: skip
    assert different == [bundle.SIGNATURE, bundle.STATEMENT]


def test_nothing_is_overwritten(place: Path) -> None:
    before = (place / "sealed.tar.gz").read_bytes()
    assert do(place, "seal", "runs/two", "--key", "renter.pem", "-o", "sealed.tar.gz").code == 2
    assert (place / "sealed.tar.gz").read_bytes() == before


def test_without_a_key_only_the_digest_and_where_to_sign(place: Path) -> None:
    before = sorted(p.name for p in place.iterdir())
    done = do(place, "seal", "runs/two")
    digest = sha256(place / "runs" / "two" / "manifest.json")
    assert done.code == 0
    assert digest in done.out
    assert "own machine" in done.out
    assert sorted(p.name for p in place.iterdir()) == before


def test_an_unsigned_bundle_is_signed_elsewhere(place: Path, tmp_path: Path) -> None:
    assert do(place, "seal", "runs/two", "-o", str(tmp_path / "unsigned")).code == 0
    found = check(tmp_path / "unsigned", place / "renter.pub")
    assert (found.state, found.signature) == ("signature unknown", None)
    signed = do(place, "seal", str(tmp_path / "unsigned"), "--key", "renter.pem", "-o", str(tmp_path / "signed"))
    assert signed.code == 0, signed.said
    assert check(tmp_path / "signed", place / "renter.pub").state == "intact"
    again = do(place, "seal", str(tmp_path / "signed"), "--key", "vendor.pem", "-o", str(tmp_path / "never"))
    assert again.code == 2
    assert not (tmp_path / "never").exists()


def test_a_digest_sent_earlier_vouches_for_an_unsigned_run(place: Path) -> None:
    digest = sha256(place / "runs" / "two" / "manifest.json")
    assert do(place, "verify", "runs/two").code == 3
    assert do(place, "verify", "runs/two", "--digest", digest).code == 0
    assert do(place, "verify", "runs/two", "--digest", "0" * 64).code == 1


def test_a_changed_run_is_not_sealed(place: Path, tmp_path: Path) -> None:
    run = copied(place, tmp_path)
    (run / "report.md").write_text("all is well")
    done = do(place, "seal", str(run), "--key", "renter.pem", "-o", str(tmp_path / "b"))
    assert done.code == 2
    assert "report.md" in done.err
    assert not (tmp_path / "b").exists()


def test_the_vendor_countersigns(place: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    done = do(place, "seal", "--countersign", "sealed.tar.gz", "--key", "vendor.pem", "-o", str(both))
    assert done.code == 0, done.said
    found = check(both, place / "renter.pub", place / "vendor.pub")
    assert found.state == "intact"
    assert found.countersignature is not None
    assert (found.countersignature.good, found.countersignature.known) == (True, True)
    again = do(place, "seal", "--countersign", str(both), "--key", "vendor.pem", "-o", str(tmp_path / "never"))
    assert again.code == 2
    unsigned = tmp_path / "unsigned"
    do(place, "seal", "runs/two", "-o", str(unsigned))
    assert do(place, "seal", "--countersign", str(unsigned), "--key", "vendor.pem").code == 2


# --- changes


def test_two_hundred_flipped_bytes_are_all_seen(place: Path, tmp_path: Path) -> None:
    whole = (place / "sealed.tar.gz").read_bytes()
    draw = random.Random(20261130)
    for place_, value in [(draw.randrange(len(whole)), draw.randrange(1, 256)) for _ in range(200)]:
        broken = tmp_path / "broken"
        broken.write_bytes(whole[:place_] + bytes([whole[place_] ^ value]) + whole[place_ + 1 :])
        assert check(broken, place / "renter.pub").state == "not intact", (place_, value)


Files = dict[str, bytes]
Edit = Callable[[Files, random.Random], None]
MANIFEST = "run/manifest.json"


def evidence(files: Files, draw: random.Random) -> str:
    return draw.choice(sorted(n for n in files if n.startswith("run/evidence/") and files[n].strip()))


def remove(files: Files, draw: random.Random) -> None:
    del files[evidence(files, draw)]


def add(files: Files, draw: random.Random) -> None:
    files[f"run/evidence/0001-identity.1/{draw.randrange(10**6)}"] = b"1"


def rename(files: Files, draw: random.Random) -> None:
    name = evidence(files, draw)
    files[name + "x"] = files.pop(name)


def swap(files: Files, draw: random.Random) -> None:
    one, other = draw.sample(sorted(n for n in files if "meta.json" in n), 2)
    files[one], files[other] = files[other], files[one]


def edit(files: Files, draw: random.Random) -> None:
    files[evidence(files, draw)] += b" "


def edit_and_list(files: Files, draw: random.Random) -> None:
    edit(files, draw)
    relist(files)


def remove_and_list(files: Files, draw: random.Random) -> None:
    remove(files, draw)
    relist(files)


def whiten(files: Files, draw: random.Random) -> None:
    files["run/result.json"] = files["run/result.json"].replace(b'"accepted"', b'"rejected"')
    relist(files)


def another_contract(files: Files, draw: random.Random) -> None:
    files["run/contract.yaml"] = b"version: 1\ncpu: {vcpus: '>= 2'}\n"
    relist(files)


def shorten_ledger(files: Files, draw: random.Random) -> None:
    lines = files[bundle.LEDGER_NAME].splitlines(keepends=True)
    del lines[draw.randrange(len(lines))]
    files[bundle.LEDGER_NAME] = b"".join(lines)


def restate(**changes: Any) -> Edit:
    def change(files: Files, draw: random.Random) -> None:
        stated = json.loads(files[bundle.STATEMENT])
        files[bundle.STATEMENT] = bundle.dumps({**stated, **changes})

    change.__name__ = "restate_" + "_".join(changes)
    return change


def sign_for_another(files: Files, draw: random.Random) -> None:
    signed = json.loads(files[bundle.SIGNATURE])
    files[bundle.SIGNATURE] = bundle.dumps({**signed, "signature": signed["signature"][:-8] + "AAAAAA=="})


def unsign(files: Files, draw: random.Random) -> None:
    del files[bundle.SIGNATURE]


def no_ledger(files: Files, draw: random.Random) -> None:
    del files[bundle.LEDGER_NAME]


def no_statement(files: Files, draw: random.Random) -> None:
    del files[bundle.STATEMENT]


def no_manifest(files: Files, draw: random.Random) -> None:
    del files[MANIFEST]


def stray(files: Files, draw: random.Random) -> None:
    files["seal/readme.txt"] = b"trust me"


def respell(files: Files, draw: random.Random) -> None:
    name = draw.choice([bundle.STATEMENT, bundle.SIGNATURE])
    files[name] = json.dumps(json.loads(files[name])).encode()


def stamp_of_nobody(files: Files, draw: random.Random) -> None:
    files[bundle.STAMP] = b"\x30\x03\x02\x01\x00"


def relist(files: Files) -> None:
    """A manifest that fits again, as whoever edits a file would make it."""
    listed = {n[4:]: hashlib.sha256(d).hexdigest() for n, d in files.items() if n.startswith("run/") and n != MANIFEST}
    files[MANIFEST] = (
        json.dumps({"schema": "accept.manifest/1", "files": dict(sorted(listed.items()))}, indent=1) + "\n"
    ).encode()


EDITS: list[Edit] = [
    *([remove, add, rename, swap, edit, edit_and_list, remove_and_list] * 4), shorten_ledger, shorten_ledger, whiten,
    another_contract, restate(digest="0" * 64), restate(verdict="rejected"), restate(run_id="other"),
    restate(sealed_at="2020-01-01T00:00:00.000Z"), restate(signer=None), restate(ledger=None), restate(extra=1),
    restate(original_digest="1" * 64), restate(contract_sha256="2" * 64), restate(timestamp={"sha256": "3" * 64}),
    restate(schema="accept.seal/2"), sign_for_another, unsign, no_ledger, no_statement, no_manifest, stray, respell,
    respell, stamp_of_nobody,
]  # fmt: skip


def test_there_are_fifty_edits() -> None:
    assert len(EDITS) >= 50


@pytest.mark.parametrize(("number", "change"), enumerate(EDITS), ids=[f"{n}-{e.__name__}" for n, e in enumerate(EDITS)])
def test_structural_edits_are_all_seen(place: Path, tmp_path: Path, number: int, change: Edit) -> None:
    names = archive.unpack(place / "sealed.tar.gz", tmp_path / "out")
    files = {n: (tmp_path / "out" / n).read_bytes() for n in names}
    change(files, random.Random(number))
    archive.write(tmp_path / "edited", dict(files))
    found = check(tmp_path / "edited", place / "renter.pub")
    assert found.state == "not intact"
    assert found.problems


def test_a_run_signed_by_somebody_else_is_not_ours(place: Path, tmp_path: Path) -> None:
    """The forger edits, lists anew and signs with a key of his own: intact in itself, and nobody's we know."""
    run = copied(place, tmp_path)
    (run / "evidence" / "0999-forged").mkdir()
    (run / "evidence" / "0999-forged" / "stdout").write_text("1")
    write_manifest(run)
    forger = keys.load_private(place / "vendor.pem")
    bundle.seal(bundle.sealable(run, None), tmp_path / "forged", forger, None, None)
    found = check(tmp_path / "forged", place / "renter.pub")
    assert found.state == "signature unknown"
    assert "you have not named the key" in words(found)


# --- recordings of an opponent


def test_evidence_that_judges_otherwise_is_told(place: Path, tmp_path: Path) -> None:
    run = copied(place, tmp_path)
    result = run / "result.json"
    result.write_text(result.read_text().replace('"verdict": "accepted"', '"verdict": "rejected"'))
    write_manifest(run)
    found = check(run)
    assert found.state == "not intact"
    assert "judges to accepted, the result says rejected" in words(found)


@pytest.mark.parametrize("target", ["/dev/zero", "../../../../../../etc/passwd", "/etc/passwd", "nothing"])
def test_a_recording_cannot_name_a_file_outside(place: Path, tmp_path: Path, target: str) -> None:
    run = copied(place, tmp_path)
    meta = run / "evidence" / "0001-identity.1" / "meta.json"
    data = json.loads(meta.read_text())
    data["files"] = dict.fromkeys(data["files"], target)
    meta.write_text(json.dumps(data))
    write_manifest(run)
    found = check(run)
    assert found.state == "not intact"
    assert "not in its folder" in words(found)


def test_links_in_a_run_folder_are_not_followed(place: Path, tmp_path: Path) -> None:
    run = copied(place, tmp_path)
    name = run / "report.md"
    elsewhere = tmp_path / "elsewhere"
    name.rename(elsewhere)
    name.symlink_to(elsewhere)
    (run / "evidence" / "link").symlink_to("/etc")
    found = check(run)
    assert {(f.name, f.state) for f in found.files if f.state != "intact"} == {
        ("report.md", "changed"), ("evidence/link", "not listed"),
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"files": []}', '{"files": {"../../x": "0"}}', "[" * 100000, '{"files": {"a": 1e999}}']
)
def test_hostile_manifests_are_not_intact(place: Path, tmp_path: Path, text: str) -> None:
    run = copied(place, tmp_path)
    (run / "manifest.json").write_text(text)
    assert check(run).state == "not intact"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"verdict": []}', "[" * 100000])
@pytest.mark.parametrize("name", ["result.json", "run.json", "contract.yaml", "evidence/0001-identity.1/meta.json"])
def test_hostile_runs_are_answered_not_crashed_on(place: Path, tmp_path: Path, name: str, text: str) -> None:
    run = copied(place, tmp_path)
    (run / name).write_text(text)
    write_manifest(run)
    found = check(run)
    assert found.state == "not intact"
    # A probe without a readable note counts as not recorded: the ledger's digest then tells of the change.
    assert ("judged again" if "meta" not in name else "") in words(found)
    assert found.problems


# --- the ledger


def test_a_run_taken_out_of_the_ledger_is_missed(place: Path, tmp_path: Path) -> None:
    run = copied(place, tmp_path)
    book = run.parent / "ledger.jsonl"
    entries = ledgers.entries_of(book.read_bytes())
    lines = book.read_bytes().splitlines(keepends=True)
    book.write_bytes(b"".join(lines[2:]))
    assert "changed or taken out" in words(check(run))
    # Whoever also makes the chain anew still meets the number that the result states.
    book.write_bytes(ledgers.chained(entries[2:]))
    assert "runs are missing from the ledger: the result says run 2 of 2" in words(check(run))
    book.write_bytes(ledgers.chained(entries[:-2]))
    assert "does not stand in the ledger" in words(check(run)) or check(run).account is None


def test_a_line_that_a_full_disk_cut_off_is_no_forgery(tmp_path: Path) -> None:
    from agent.evidence import Ledger

    ledger = Ledger(tmp_path)
    start = {"event": "start", "run_id": "a", "contract": "c", "machine": "m"}
    ledger.add(start)
    with ledger.path.open("ab") as out:
        out.write(b'{"event": "sta')
    ledger.add({"event": "end", "run_id": "a", "digest": "d", "verdict": "accepted"})
    told = ledgers.account(ledger.path.read_bytes(), "a", "d")
    assert (told.number, told.of, told.problems) == (1, 1, ())


# --- timestamps


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    place = tmp_path_factory.mktemp("authorities")
    return authority.make(place / "one", "First"), authority.make(place / "two", "Second")


@needs_openssl
def test_an_authority_attests_the_time(place: Path, tmp_path: Path, authorities: tuple[Authority, Authority]) -> None:
    first, second = authorities
    path = tmp_path / "stamped"
    with first.serving() as url:
        done = do(place, "seal", "runs/two", "--key", "renter.pem", "--timestamp", url, "-o", str(path))
    assert done.code == 0, done.said
    found = check(path, place / "renter.pub", roots=timestamp.load_roots(first.root))
    assert found.state == "intact"
    assert found.stamp is not None
    assert found.stamp.anchored
    assert found.stamp.authority == "CN=First Time"
    assert found.stamp.at.startswith("20")
    without = check(path, place / "renter.pub")
    assert without.state == "intact"
    assert without.stamp is not None
    assert not without.stamp.anchored
    assert "--authority" in words(without)
    other = check(path, place / "renter.pub", roots=timestamp.load_roots(second.root))
    assert other.state == "not intact"
    assert "timestamp does not hold" in words(other)
    archive.unpack(path, tmp_path / "out")
    done_ = subprocess.run(
        ["openssl", "ts", "-verify", "-data", "run/manifest.json", "-in", "seal/timestamp.tsr", "-CAfile", first.root],
        cwd=tmp_path / "out", capture_output=True, text=True,
    )  # fmt: skip
    assert "Verification: OK" in done_.stdout


@needs_openssl
def test_a_stamp_of_other_data_does_not_hold(
    place: Path, tmp_path: Path, authorities: tuple[Authority, Authority]
) -> None:
    first, _ = authorities
    run = bundle.sealable(place / "runs" / "two", place / "runs" / "ledger.jsonl")
    stamp = first.answer(timestamp.query(b"\x07" * 32))
    with pytest.raises(timestamp.NoTimestamp, match="does not hold"):
        timestamp.check(stamp, bytes.fromhex(run.digest), ())
    bundle.seal(run, tmp_path / "b", keys.load_private(place / "renter.pem"), stamp, "http://first")
    found = check(tmp_path / "b", place / "renter.pub", roots=timestamp.load_roots(first.root))
    assert found.state == "not intact"


@needs_openssl
def test_an_authority_that_answers_for_other_data_or_nonsense_is_refused(
    place: Path, tmp_path: Path, authorities: tuple[Authority, Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = authorities
    wrong = first.answer(timestamp.query(b"\x07" * 32))
    for body in (wrong, b"", b"<html>", wrong[:-5], b"\x30\x05\x30\x03\x02\x01\x02"):
        monkeypatch.setattr(Authority, "answer", lambda self, query, body=body: body)
        with first.serving() as url, pytest.raises(timestamp.NoTimestamp):
            timestamp.fetch(url, b"\x08" * 32)
    for url in ("http://127.0.0.1:9/", "file:///etc/passwd", "ftp://x"):
        with pytest.raises(timestamp.NoTimestamp):
            timestamp.fetch(url, b"\x08" * 32)


@needs_openssl
@pytest.mark.parametrize("nonce", [0, 1, 127, 128, 255, 256, (1 << 63) - 1])
def test_the_request_is_what_openssl_reads(tmp_path: Path, nonce: int) -> None:
    (tmp_path / "q").write_bytes(timestamp.query(bytes(range(32)), nonce))
    done = subprocess.run(
        ["openssl", "ts", "-query", "-in", "q", "-text"], cwd=tmp_path, capture_output=True, text=True
    )
    assert "Hash Algorithm: sha256" in done.stdout
    assert "Certificate required: yes" in done.stdout
    assert int(done.stdout.split("Nonce: ")[1].split()[0], 16) == nonce


# --- without the libraries

HIDDEN = """
import sys
for name in ("cryptography", "rfc3161_client"):
    sys.modules[name] = None
from agent.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("args", [["key", "--out", "k.pem"], ["seal", "runs/two", "--key", "renter.pem", "-o", "x"]])
def test_without_the_library_one_line_says_what_to_install(place: Path, tmp_path: Path, args: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", HIDDEN, *args], cwd=place, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.strip() == "accept: this needs the library “cryptography”: pip install 'gpu-accept[seal]'"


def test_without_the_library_files_are_still_checked(place: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN, "verify", "sealed.tar.gz"], cwd=place, capture_output=True, text=True
    )
    assert done.returncode == 3
    assert "intact" in done.stdout
    assert "gpu-accept[seal]" in done.stdout


def test_only_the_seal_imports_the_library() -> None:
    code = "import sys, agent.cli.commands.seal, agent.cli.commands.verify, agent.cli.commands.key; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"cryptography", "rfc3161_client"} & set(loaded)
    users = [p for p in SEALED.parents[0].rglob("*.py") if "cryptography" in p.read_text() and SEALED not in p.parents]
    assert users == []
