#!/usr/bin/env python3
"""Checks weir.lua with tshark: packets written by hand from the specification must be recognised and decoded, other datagrams left alone.

Usage: check.py            needs tshark in PATH; exits 1 on the first difference, 77 when there is no tshark.
The bytes are those of the golden tests of core/wire and of spec/envelopes.md.
"""

import os
import shutil
import struct
import subprocess
import sys
import tempfile

PARAMS = """0c23 1000 00040000 0000100000000000 0000400000000000 19000000 88130000 02 000000
    04 00 b712 0a010203  06 00 b712 fe800000000000000000000000000001"""
OPENING = "01 0300 00000000 8877665544332211 00ffeeddccbbaa99 0807060504030201 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
COOKIE = "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedf"
HEAD = "15 04 03 00 07000000 1817161514131211 9cc908a8 "
MAC = "1c2a2daa800945219d131ee0107d72e4"
RTS = "02030000 0500000000000000 0000010000000000 8877665544332211 07000000"

# (name, UDP payload in hex, fields that tshark must show)
PACKETS = [
    ("INIT", f"10 {OPENING} {'00' * 96} {MAC}", {"weir.kind": "0", "weir.opener": "0x1122334455667788", "weir.features": "0x0003"}),
    ("COOKIE", f"11 00000000000000 0807060504030201 {COOKIE} {MAC}", {"weir.kind": "1", "weir.opener_association": "0x0102030405060708"}),
    ("CONFIRM", f"12 {OPENING} {COOKIE} {PARAMS} {MAC}",
     {"weir.kind": "2", "weir.max_datagram": "8972", "weir.address": "10.1.2.3:4791,[fe80::1]:4791", "weir.peer_timeout_ms": "5000"}),
    ("ACCEPT", f"13 02 0100 00000000 0807060504030201 00ffeeddccbbaa99 1817161514131211 {'b0' * 16} {PARAMS} {MAC}",
     {"weir.kind": "3", "weir.handshake.level": "2", "weir.responder_association": "0x1112131415161718", "weir.streams": "16"}),
    ("REFUSE", f"14 01 000000000000 0807060504030201 00ffeeddccbbaa99 {MAC}",
     {"weir.kind": "4", "weir.refusal": "1", "weir.responder": "0x99aabbccddeeff00"}),
    ("RESET", f"16 00000000000000 1817161514131211 00ffeeddccbbaa99 {MAC}", {"weir.kind": "6", "weir.association": "0x1112131415161718"}),
    ("integrity", HEAD + "01 07000000 00000000 efbeadde00000000",
     {"weir.kind": "5", "weir.level": "0", "weir.number": "7", "weir.frame": "0x01,0x07", "weir.path.data": "0x00000000deadbeef"}),
    ("auth", f"15 05 03 00 07000000 1817161514131211 01 07000000 00000000 efbeadde00000000 {MAC}",
     {"weir.level": "1", "weir.frame": "0x01,0x07", "weir.tag": MAC}),
    ("encrypt", f"15 06 03 00 07000000 1817161514131211 5fee9ece3892d2468329e080f0463e8670 {MAC}",
     {"weir.level": "2", "weir.ciphertext": "5fee9ece3892d2468329e080f0463e8670", "weir.frame": ""}),
    ("LANE", HEAD + "0e 000000 02010000 0403000000000000 01", {"weir.frame": "0x0e,0x01"}),
    ("ACK", HEAD + "02 02 00 00 63000000 02010000 04030000 05000000  0200 0300  5800 0100",
     {"weir.ack.largest": "99", "weir.ack.range": "95-99,90-92,1-1", "weir.ack.delay_ns": "258"}),
    ("CREDIT and GRANT", HEAD + "03 000000 04030201 0807060500000000 04 000000 00000000 0201000000000000 0403000000000000",
     {"weir.credit.msgs_limit": "16909060", "weir.credit.bytes_limit": "84281096", "weir.handle": "0x0000000000000102", "weir.grant.limit": "772"}),
    ("MSG with RTS", HEAD + f"05 00 0201 03000000 04000000 00000000 00000000 0000 20 00 {RTS}",
     {"weir.msg.stream": "258", "weir.msg.mseq": "3", "weir.envelope": "2", "weir.envelope.tag": "0x0000000000000005",
      "weir.envelope.word": "0x0000000000010000,0x1122334455667788", "weir.envelope.data": "0x0000000000000007"}),
    ("MSG with EAGER", HEAD + "05 00 0201 03000000 04000000 00010000 fe000000 0200 04 00 01000000 f1f2",
     {"weir.envelope": "1", "weir.payload": "f1f2", "weir.offset": "254", "weir.msg.total_len": "256"}),
    ("BODY, BODY_ABORT", HEAD + "06 00 0200 00000000 0201000000000000 0403000000000000 f1f2 0b 00 0403 00000000 0201000000000000",
     {"weir.frame": "0x06,0x0b", "weir.offset": "772", "weir.code": "772"}),
    ("PARITY, RECOVERED", HEAD + "0c 83 0200 00000000 0900000000000000 0403000000000000 f1f2 0d 00 0200 00000000 0900000000000000 0403000000000000",
     {"weir.frame": "0x0c,0x0d", "weir.parity.count": "3", "weir.key": "0x0000000000000009,0x0000000000000009"}),
    ("CLOSE, PADDING", HEAD + "0a 00 0201 03 627965 00 ffff", {"weir.frame": "0x0a,0x00", "weir.close.reason": "bye"}),
    ("WRITE with SYNC", HEAD + f"05 01 0000 03000000 00000000 02000000 00000000 0200 1c 00 07080000 {'0100000000000000' * 3} f1f2",
     {"weir.envelope": "7", "weir.envelope.sync": "1", "weir.envelope.word": ",".join(["0x0000000000000001"] * 3), "weir.payload": "f1f2"}),
    ("NOTICED", HEAD + "05 01 0000 03000000 00000000 00000000 00000000 0000 0c 00 0b000000 8877665544332211",
     {"weir.envelope": "11", "weir.envelope.word": "0x1122334455667788"}),
    ("MSG with an envelope of no kind", HEAD + "05 01 0000 03000000 00000000 00000000 00000000 0000 0c 00 05000000 8877665544332211", {"weir.malformed": ""}),
    ("MSG with an envelope cut short", HEAD + "05 00 0000 03000000 04000000 00000000 00000000 0000 08 00 0203000005000000", {"weir.malformed": ""}),
    # Not ours: too short, another version, an unknown frame, a frame that is cut.
    ("foreign: short", "15 04 03", None),
    ("foreign: version 2", "25" + HEAD[2:] + "01", None),
    ("foreign: frame 0x09", HEAD + "09 00 0000 07000000", None),
    ("foreign: frame 0x0e", HEAD + "0e", None),
    ("foreign: cut frame", HEAD + "03 000000", None),
    ("foreign: DNS", "1500 0100 0001 0000 0000 0000 0377 7777 0765 7861 6d70 6c65 0363 6f6d 0000 0100 01", None),
]


def capture(payloads):
    """A classic pcap file of raw IPv4 packets."""
    out = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
    for i, p in enumerate(payloads):
        udp = struct.pack(">HHHH", 40000, 40001, len(p) + 8, 0) + p
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0, bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])) + udp
        out += struct.pack("<IIII", i, 0, len(ip), len(ip)) + ip
    return out


def tshark(path, *args):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "weir.lua")
    done = subprocess.run(["tshark", "-X", f"lua_script:{script}", "-r", path, *args], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0 or "Lua Error" in done.stdout or "lua:" in done.stderr.lower():
        sys.exit(f"tshark failed: {done.stderr}{done.stdout}")
    return done.stdout.splitlines()


def main():
    if shutil.which("tshark") is None:
        print("skipped: no tshark here", file=sys.stderr)
        return 77
    fields = sorted({name for _, _, want in PACKETS for name in (want or {})})
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(capture([bytes.fromhex("".join(text.split())) for _, text, _ in PACKETS]))
        file.flush()
        args = ["-T", "fields", "-E", "separator=|", "-e", "_ws.col.Protocol"]
        for name in fields:
            args += ["-e", name]
        rows = tshark(file.name, *args)
        verbose = "\n".join(tshark(file.name, "-V"))
    if "Lua Error" in verbose:
        sys.exit(verbose)
    failed = len(rows) != len(PACKETS)
    for (name, _, want), row in zip(PACKETS, rows):
        protocol, *values = row.split("|")
        got = dict(zip(fields, values))
        if want is None:
            bad = {"protocol": protocol} if protocol == "Weir" else {}
        else:
            bad = {k: f"{got[k]!r}, not {v!r}" for k, v in want.items() if k != "weir.malformed" and got[k] != v}
            if protocol != "Weir":
                bad["protocol"] = protocol
            if ("weir.malformed" in want) != bool(got["weir.malformed"]):
                bad["weir.malformed"] = got["weir.malformed"]
        print(f"{'FAILED' if bad else 'ok':7}{name} {bad or ''}")
        failed = failed or bool(bad)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
