"""``accept contract check`` also says what is no contradiction, and still hardly meant."""

from __future__ import annotations

from pathlib import Path

from tests.runs import accept, contract


def checked(folder: Path, text: str) -> list[str]:
    """Its lines; status 0, because nothing contradicts anything."""
    contract(folder, f"version: 1\n{text}")
    done = accept("contract", "check", "contract.yaml", "--lang", "en", cwd=folder)
    assert done.code == 0, done.said
    return done.out.splitlines()


def test_a_model_that_is_misspelled(tmp_path: Path) -> None:
    note, sound = checked(tmp_path, "gpu: {model: H100 SMX5 80GB, count: 8}\n")
    assert note.startswith("contract.yaml:2: gpu.model: the catalogue has no “H100 SMX5 80GB”")
    assert "the nearest are H100 SXM5 80GB" in note
    assert sound.startswith("sound")


def test_a_model_that_nobody_knows_has_no_nearest(tmp_path: Path) -> None:
    note, _ = checked(tmp_path, "gpu: {model: 昇腾910B}\n")
    assert note.endswith("so only the name can be compared")


def test_a_model_that_is_known_is_not_talked_about(tmp_path: Path) -> None:
    assert len(checked(tmp_path, "gpu: {model: H100 SXM 80G, count: 8}\n")) == 1


def test_a_network_without_a_far_end(tmp_path: Path) -> None:
    note, _ = checked(tmp_path, "network: {name: wan, download: 1 Gbps, dedicated: yes}\n")
    assert note.startswith("contract.yaml:2: network[wan].download: cannot be measured without a far end of yours")


def test_the_nearest_models_by_their_names_too(tmp_path: Path) -> None:
    done = accept("gpus", "H100 SMX", "--lang", "en", cwd=tmp_path)
    assert done.code == 2
    assert "the nearest are h100-sxm5-80gb, " in done.err
