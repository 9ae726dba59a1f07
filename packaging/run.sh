#!/bin/sh
# run.sh ACCEPT CONTRACT: judge this machine. For the host example an iperf3 server on loopback is the far end; it ends
# with the run. Ends with accept's own status.
set -u
accept=$1
contract=$2
pidfile=$(mktemp)

finish() {
    # iperf3 removes the file where the port was taken after all.
    pid=$(cat "$pidfile" 2>/dev/null | tr -d '\0')
    [ -z "$pid" ] || kill "$pid" 2>/dev/null
    rm -f "$pidfile"
}
trap finish EXIT
trap 'exit 130' INT TERM

if grep -q '127\.0\.0\.1:5201' "$contract" && command -v iperf3 >/dev/null; then
    iperf3 --server --bind 127.0.0.1 --port 5201 --daemon --pidfile "$pidfile" ||
        echo "accept: port 5201 of loopback is taken; whoever listens there is the far end" >&2
fi

"$accept" run "$contract" --yes
status=$?
case $status in
1) echo "make run: rejected (accept ended with status 1); make shows that as an error" >&2 ;;
3) echo "make run: inconclusive (accept ended with status 3); make shows that as an error" >&2 ;;
esac
exit $status
