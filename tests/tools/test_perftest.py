"""ib_write_bw's texts: of 5.x and 6.x, in both units, and what it says when it cannot."""

from __future__ import annotations

import pytest

from agent.tools import ParseError, perftest

LINE = "-" * 87
HEAD = f"""\
{LINE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 PCIe relax order: ON
 ibv_wr* API     : ON
 TX depth        : 128
 CQ Moderation   : 100
 Mtu             : 4096[B]
 Link type       : IB
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{LINE}
 local address: LID 0x12 QPN 0x0a31 PSN 0x11b2c4 RKey 0x184c00 VAddr 0x007f2a5c8e1000
 remote address: LID 0x15 QPN 0x0b42 PSN 0x93aa10 RKey 0x185d00 VAddr 0x007f81e2c44000
{LINE}
"""
GBITS = f"""\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      1480102          0.00               388.05\t\t     0.740143
{LINE}
"""
MIB = f"""\
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 2          5000             9.17               9.05\t\t     4.744929
 65536      5000             11520.31           11518.02\t     0.184288
{LINE}
"""


def test_gigabits_with_what_the_head_says() -> None:
    found = perftest.parse(HEAD + GBITS)
    assert (found.bits_per_s, found.message_bytes) == (388.05e9, 65536)
    assert (found.device, found.link_type, found.mtu) == ("mlx5_0", "IB", 4096)


def test_the_largest_message_of_several_and_binary_megabytes() -> None:
    for text in (MIB, MIB.replace("MiB", "MB")):
        found = perftest.parse(HEAD + text)
        assert found.message_bytes == 65536
        assert found.bits_per_s == pytest.approx(11518.02 * 2**20 * 8)


def test_a_warning_beside_it_is_no_failure() -> None:
    warned = "Conflicting CPU frequency values detected: 800.000000 != 3500.000000. CPU Frequency is not max.\n"
    assert perftest.parse(warned + HEAD + GBITS).bits_per_s == 388.05e9


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("IB device mlx5_9 not found\n Unable to find the Infiniband/RoCE device\n", "no_device"),
        ("Couldn't connect to 127.0.0.1:18515\nUnable to open file descriptor for socket connection", "not_connected"),
        (HEAD + "Couldn't allocate MR\n failed to create mr\n", "memory_locked"),
        (" Port number 1 state is Down\n Couldn't set the link layer\n", "link_down"),
        (HEAD + " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n", "transfer"),
        ("ib_write_bw: unrecognized option '--report_gbits'\n", "parameter"),
        ("sh: ib_write_bw: command not found\n", "tool_missing"),
        ("", "empty"),
        (HEAD, "unparsable"),
        (HEAD + GBITS.splitlines()[0] + "\n 65536  14801", "unparsable"),
        ("#bytes #iterations BW peak[furlong] BW average[furlong]\n 65536 5 1.0 2.0 3.0\n", "unparsable"),
    ],
)
def test_what_is_no_result(text: str, kind: str) -> None:
    with pytest.raises(ParseError) as caught:
        perftest.parse(text)
    assert caught.value.kind == kind
