from __future__ import annotations

import pytest

from agent.facts import Asked, system
from agent.facts.system import Docker, Rlimit, SystemFacts, release
from agent.reading import Missing
from tests.facts.node import HANG, Node, missing, value

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max processes             4096                 unlimited            processes
Max open files            1024                 1048576              files
Max locked memory         unlimited            unlimited            bytes
"""
STATUS = "Name:\tpython\nUid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000400\nCpus_allowed_list:\t0\n"


def read(node: Node) -> SystemFacts:
    return system.collect(node.host(), Asked())


def os_release(name: str, version: str, **more: str) -> str:
    return "".join(f'{k}="{v}"\n' for k, v in {"NAME": name, "ID": name.lower(), "VERSION_ID": version, **more}.items())


@pytest.mark.parametrize(
    ("text", "debian", "version"),
    [
        (os_release("Ubuntu", "22.04", VERSION="22.04.5 LTS (Jammy Jellyfish)"), "bookworm/sid", "22.04.5"),
        (os_release("Debian", "12", PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"), "12.5", "12.5"),
        (os_release("Rocky", "9.4"), "", "9.4"),
        ("ID=arch\nNAME='Arch Linux'\n", "", None),
    ],
)
def test_os(text: str, debian: str, version: str | None) -> None:
    assert release(text, debian).version == version


def test_limits_and_identity(node: Node) -> None:
    found = read(
        node.write(
            {
                "/proc/self/limits": LIMITS,
                "/proc/self/status": STATUS,
                "/proc/uptime": "12.5 3.0\n",
                "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
            }
        )
    )
    assert value(found.memlock) == Rlimit(None, None)
    assert value(found.nofile) == Rlimit(1024, 1048576)
    assert value(found.nproc) == Rlimit(4096, None)
    assert value(found.uid) == 1000
    assert value(found.capabilities) == 0x400
    assert value(found.uptime_s) == 12.5
    assert "0123456789abcdef" not in value(found.machine)


def test_machine_id_of_an_image_is_none(node: Node) -> None:
    missing(read(node.write({"/etc/machine-id": "uninitialized\n"})).machine, "not-there")


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"/.dockerenv": ""}, "docker"),
        ({"/run/.containerenv": ""}, "podman"),
        ({"/var/run/secrets/kubernetes.io/x": "", "/.dockerenv": ""}, "kubernetes"),
        ({"/proc/1/cgroup": "0::/kubepods.slice/x\n"}, "kubernetes"),
        ({"/proc/self/cgroup": "4:memory:/docker/abc\n"}, "docker"),
        ({"/run/systemd/container": "lxc\n"}, "lxc"),
        ({"/proc/self/mountinfo": "27 1 0:55 / / rw - overlay overlay rw\n", "/proc/1/cgroup": "0::/\n"}, "container"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, "none"),
    ],
)
def test_container(node: Node, files: dict[str, str], kind: str) -> None:
    assert value(read(node.write(files)).container) == kind


def test_container_that_nothing_tells(node: Node) -> None:
    missing(read(node.write({"/proc/1/cgroup": "0::/\n"})).container, "no-tool")


@pytest.mark.parametrize(
    ("script", "files", "kind"),
    [
        ("echo kvm", {}, "kvm"),
        ("echo none; exit 1", {}, "none"),
        ("exit 3", {"/sys/class/dmi/id/sys_vendor": "QEMU\n"}, "kvm"),
        ("exit 3", {"/sys/class/dmi/id/product_name": "VMware7,1\n"}, "vmware"),
        ("exit 3", {"/proc/cpuinfo": "flags\t: fpu hypervisor\n"}, "unknown hypervisor"),
        ("exit 3", {"/proc/cpuinfo": "flags\t: fpu\n"}, "none"),
    ],
)
def test_virtualisation(node: Node, script: str, files: dict[str, str], kind: str) -> None:
    assert value(read(node.write(files).tool("systemd-detect-virt", script)).virtualisation) == kind


def test_detection_that_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "TOOL_TIMEOUT_S", 0.5)
    found = read(node.tool("systemd-detect-virt", HANG))
    missing(found.virtualisation, "timeout")
    missing(found.container, "timeout")


DOCKER = """echo '{"Client": {"Version": "28.2.2"}, "Server": %s}'"""


def test_docker_that_works(node: Node) -> None:
    found = value(read(node.tool("docker", DOCKER % '{"Version": "27.0.1"}')).docker)
    assert isinstance(found, Docker)
    assert (found.client, value(found.server)) == ("28.2.2", "27.0.1")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "denied"),
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "failed"),
    ],
)
def test_docker_whose_daemon_refuses(node: Node, said: str, kind: str) -> None:
    found = value(read(node.tool("docker", f"{DOCKER % 'null'}; echo '{said}' >&2; exit 1")).docker)
    assert found.client == "28.2.2"
    refused = missing(found.server, kind)
    assert (refused.grant is not None) is (kind == "denied")


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ("echo garbage", "unparsable"),
        ("echo garbage; exit 1", "failed"),
        ("true", "unparsable"),
        ("echo '[]'", "unparsable"),
        ("kill -SEGV $$", "failed"),
        (f"echo '{'[' * 50_000}'", "unparsable"),
        (HANG, "timeout"),
    ],
)
def test_docker_that_does_not_help(node: Node, script: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "DOCKER_TIMEOUT_S", 0.5)
    missing(read(node.tool("docker", script)).docker, kind)


CTK = "echo 'NVIDIA Container Toolkit CLI version 1.17.8'; echo 'commit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d'"
CLI = "echo 'cli-version: 1.14.3'; echo 'lib-version: 1.14.3'; echo 'build date: 2023-10-19T11:32+0000'"


@pytest.mark.parametrize(
    ("tool", "script", "version"), [("nvidia-ctk", CTK, "1.17.8"), ("nvidia-container-cli", CLI, "1.14.3")]
)
def test_container_toolkit(node: Node, tool: str, script: str, version: str) -> None:
    assert value(read(node.tool(tool, script)).container_toolkit) == version


NVCC = "echo 'Cuda compilation tools, release 12.4, V12.4.131'"


def test_cuda_toolkit_on_the_path(node: Node) -> None:
    node.write({"/usr/local/cuda/version.json": '{"cuda": {"name": "CUDA SDK", "version": "11.8.0"}}'})
    assert value(read(node.tool("nvcc", NVCC)).cuda_toolkit) == "12.4.131"


def test_python_on_the_path(node: Node) -> None:
    assert value(read(node.tool("python3", "echo Python 3.10.12")).python) == "3.10.12"


def test_nothing_there(node: Node) -> None:
    found = read(node)
    named = "os kernel hostname machine boot_id uptime_s container virtualisation product uid memlock nofile".split()
    for name in (*named, "docker", "container_toolkit", "python"):
        assert isinstance(getattr(found, name), Missing), name
    missing(found.docker, "not-there")
    missing(found.container_toolkit, "not-there")
    missing(found.nvidia_driver, "not-there")


def test_driver(node: Node) -> None:
    assert value(read(node.write({"/proc/self/status": STATUS})).nvidia_driver) is False


def test_driver_that_is_loaded(node: Node) -> None:
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15\n"
    assert value(read(node.write({"/proc/driver/nvidia/version": text})).nvidia_driver) is True


@pytest.mark.parametrize(("text", "limit"), [("max\n", None), ("512\n", 512)])
def test_pids(node: Node, text: str, limit: int | None) -> None:
    node.write(
        {
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
            "/sys/fs/cgroup/pids.max": text,
        }
    )
    assert value(read(node).pids) == limit


def test_clock_and_shm_of_this_machine(node: Node) -> None:
    found = read(node)
    assert value(found.time_sync).max_error_s >= 0
    assert value(found.shm) > 0


@pytest.mark.parametrize("said", ["", "garbage", "{}", '{"clock": null, "exists": true}'])
def test_probes_that_say_garbage(node: Node, said: str) -> None:
    found = read(node.tool("probe", f"echo '{said}'"))
    missing(found.time_sync, "unparsable")
    assert isinstance(found.shm, Missing)


def test_replay_gives_the_same_facts(node: Node) -> None:
    live = read(node.write({"/proc/self/limits": LIMITS, "/proc/self/status": STATUS}).tool("docker", DOCKER % "null"))
    assert system.collect(node.replay(), Asked()) == live
