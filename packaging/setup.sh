#!/bin/sh
# What a new machine needs before `make run`: a virtual environment, and the real tools where they may be installed.
#
#   sh packaging/setup.sh python     print the first Python on the PATH that is new enough
#   sh packaging/setup.sh venv DIR   create DIR with it, without installing anything into it
#   sh packaging/setup.sh tools      install fio, iperf3 and ping as root, else say how to get them
set -eu

PATH="$PATH:/usr/sbin:/sbin"
APT_PACKAGES="fio iperf3 iputils-ping"
DNF_PACKAGES="fio iperf3 iputils"

say() { echo "accept: $*" >&2; }

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null
}

python() {
    for candidate in "${PYTHON:-python3}" python3 python3.13 python3.12 python3.11 python3.10 python3.9; do
        if new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    say "Python 3.9 or newer is needed; install it ($(how python3))"
    return 1
}

manager() {
    for candidate in apt-get dnf yum; do
        if command -v "$candidate" >/dev/null 2>&1; then
            echo "$candidate"
            return
        fi
    done
    echo none
}

how() {
    case "$(manager)" in
    apt-get) echo "apt-get install $*" ;;
    dnf) echo "dnf install $*" ;;
    yum) echo "yum install $*" ;;
    *) echo "with this system's packages: $*" ;;
    esac
}

# install PACKAGE…: bounded in time, because a mirror that does not answer must not hold the run up.
install() {
    case "$(manager)" in
    apt-get)
        export DEBIAN_FRONTEND=noninteractive
        timeout 60 apt-get -qq update && timeout 120 apt-get -qq install -y --no-install-recommends "$@"
        ;;
    dnf) timeout 120 dnf -q -y install "$@" ;;
    yum) timeout 120 yum -q -y install "$@" ;;
    *) return 1 ;;
    esac >/dev/null 2>&1 </dev/null
}

root() { [ "$(id -u)" = 0 ]; }

venv() {
    found=$(python)
    if "$found" -m venv "$1" >/dev/null 2>&1; then
        return
    fi
    rm -rf "$1"
    # Debian and Ubuntu keep ensurepip, without which a venv has no pip, in a package of its own.
    package="python$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
    if root && [ "$(manager)" = apt-get ] && install "$package" && "$found" -m venv "$1"; then
        return
    fi
    rm -rf "$1"
    say "$found cannot make a virtual environment; install its venv module ($(how "$package"))"
    say "or run dist/accept.pyz, which needs none"
    return 1
}

tools() {
    missing=""
    for tool in fio iperf3 ping; do
        command -v "$tool" >/dev/null 2>&1 || missing="$missing $tool"
    done
    [ -n "$missing" ] || return 0
    packages=$APT_PACKAGES
    [ "$(manager)" = apt-get ] || packages=$DNF_PACKAGES
    if root; then
        say "installing what is missing:$missing"
        # shellcheck disable=SC2086 # a list of words
        install $packages || say "that failed; by hand: $(how "$packages")"
    else
        say "not installed:$missing; ask root for: $(how "$packages")"
        say "going on without: dd stands in for fio, what nothing can stand in for is left undecided"
    fi
}

"$@"
