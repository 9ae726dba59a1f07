"""Words that are nobody's: what is kept although it stands where a name could stand."""

from __future__ import annotations

import re

# Host and user names that every other machine has; also words that, replaced everywhere, would spoil the recording.
ORDINARY = frozenset(
    "localhost localdomain root nobody daemon admin administrator user users guest default none null unknown test "
    "ubuntu debian rocky almalinux centos redhat fedora alpine opensuse linux kernel docker podman container host "
    "node server client gpu cpu nvidia cuda nccl torch python python3 data disk nvme eth0 home work workspace "
    "name value true false this that with from local system service memory network device devices driver pass fail "
    "master worker main base opt usr bin lib etc dev proc sys run tmp var mnt media srv boot".split()
)
# What fills a serial number that nobody set (dmidecode, smartctl, nvidia-smi).
PLACEHOLDERS = re.compile(
    r"(?i)(?:n/?a|\[?n/a\]?|none|null|no|not|unknown|unspecified|default|system|chassis|base|to|0+|1234567(?:89?0?)?|x+"
    r"|\?+|-+|\[.*|\(.*|error.*|err!|8250.*)"
)
# Parts of a path below a home folder that say nothing about its owner.
PATH_PART = re.compile(
    r"\.{1,2}|s?bin|lib\d*|share|include|src|etc|\.local|\.cache|\.config|\.conda|(?:mini|ana)conda\d?|miniforge\d?"
    r"|mambaforge|envs|(?:site|dist)-packages|\.pyenv|versions|shims|plugins|pyenv-virtualenv|\.cargo|\.?venv"
    r"|accept(?:-runs)?|evidence|files|runs|contract|python[\d.]*|pip[\d.]*|[\d.]+|lib[\w+-]+\.so[\w.]*"
)
PATH_ENDING = re.compile(r"\.(?:py|sh|so|yaml|yml|json|txt|log|md|toml|cfg|conf|pem|bin|pt|safetensors|zip|pyz)\Z")
# Programs of the system and of the trade, as ps(1) and nvidia-smi name them.
PROGRAM = re.compile(
    r"(?x) k[a-z]+d(?:/.*)? | kworker.* | .*/\d+(?::.*)? | k?thread.* | rcu_.* | migration.* | cpuhp.* | idle_inject.*"
    r"| irq/.* | scsi_.* | nvme-.* | jbd2.* | xfs.* | ext4.* | md\d*.* | raid.* | mlx5.* | nvidia.* | nv[-_].* | nv_.*"
    r"| dcgm.* | nvsm.* | systemd.* | \(sd-pam\) | dbus.* | sshd?.* | (?:ba|z|da|fi)?sh | init | tini"
    r"| dumb-init"
    r"| cron[d]? | atd | agetty | login | su(?:do)? | ps | id | sleep | tmux.* | screen | rsyslogd? | chronyd | ntpd"
    r"| udevd | polkitd | containerd.* | dockerd | docker-.* | runc | kubelet | kube-.* | python[\d.]* | pt_main_thread"
    r"| Xorg | X | gnome.* | gdm.* | Xwayland | fio | iperf3 | ping | accept | node | java | perl | ruby | snapd"
    r"| irqbalance | multipathd | unattended-upgr | networkd.* | NetworkManager | auditd | lvmetad | mdadm | opensm"
    r"| hwrng | watchdogd | kdamond.* | kdevtmpfs | kcompactd.* | kswapd.* | ksoftirqd.* | memfd:.* | time | timeout"
    r"| nohup | tail | head | cat | less | top | htop | nvtop | vim? | nano | make | git | curl | wget | tar | dd | rm"
    r"| rsync | scp | sftp-server | grep | find | watch | sort | xz | gzip | lsblk | lspci | smartctl | nvme | dmesg"
    r"| dmidecode | iostat | sar | stress.* | iperf | nc | rclone | uv | conda | mamba | pip[\d.]* | jupyter.* | ray"
    r"| raylet | torchrun"
    r"| ib_.* | rdma.* | infiniband.* | pool_workqueue.* | oom_reaper | .*_wq | process_api | \[Not\ Found\] | N/A | - "
)
# Ends of host names; not those that are also ends of file names (.sh, .py, .so, .rs, .md).
TLD = (
    "com|cn|net|org|io|ai|dev|cloud|local|lan|internal|intra|corp|edu|gov|hk|tw|jp|kr|de|fr|uk|eu|sg|ru|example|invalid"
    "|localdomain|xyz|tech|biz"
)
PUBLIC = re.compile(
    r"(?i)(?:.*\.)?(?:nvidia\.com|kernel\.org|ubuntu\.com|debian\.org|launchpad\.net|gnu\.org|pytorch\.org|redhat\.com"
    r"|github\.com|centos\.org|rockylinux\.org|almalinux\.org|docker\.com|python\.org|freedesktop\.org|w3\.org"
    r"|smartmontools\.org|json-schema\.org)"
)


def plain(word: str) -> bool:
    """Whether a name could be a word of a sentence: sentences of ours may hold it."""
    return word.isalpha() and word.islower()


def distinctive(name: str) -> bool:
    """Whether a name may be replaced wherever it stands, and not only where it is known to be a name."""
    return len(name) >= 4 and name.lower() not in ORDINARY
