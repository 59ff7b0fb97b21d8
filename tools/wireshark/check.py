#!/usr/bin/env python3
"""Checks weir.lua with tshark: packets written by hand from the specification, its own examples, packets of SCTP, and the bytes of bulk connections in TCP
segments of all sizes must be recognised and decoded, other datagrams and connections left alone.

Usage: check.py            needs tshark in PATH; exits 1 on the first difference, 77 when there is no tshark.
The bytes are those of the golden tests of core/wire and of spec/envelopes.md.
"""

import itertools
import os
import re
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
     {"weir.kind": "2", "weir.max_datagram": "8972", "weir.bulk_connections": "0", "weir.address": "10.1.2.3:4791,[fe80::1]:4791", "weir.peer_timeout_ms": "5000"}),
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
    ("BULK", HEAD + "0e 000000 02010000 0403000000000000 01", {"weir.frame": "0x0e,0x01", "weir.bulk": "258", "weir.bulk.read": "772"}),
    ("ACK", HEAD + "02 02 00 00 63000000 02010000 04030000 05000000  0200 0300  5800 0100",
     {"weir.ack.largest": "99", "weir.ack.range": "95-99,90-92,1-1", "weir.ack.delay_ns": "258"}),
    ("CREDIT and GRANT", HEAD + "03 000000 04030201 0807060500000000 04 000000 00000000 0201000000000000 0403000000000000",
     {"weir.credit.msgs_limit": "16909060", "weir.credit.bytes_limit": "84281096", "weir.handle": "0x0000000000000102", "weir.grant.limit": "772"}),
    ("MSG with RTS", HEAD + f"05 00 0201 03000000 04000000 00000000 00000000 0000 20 00 {RTS}",
     {"weir.msg.stream": "258", "weir.msg.mseq": "3", "weir.envelope": "2", "weir.envelope.tag": "0x0000000000000005",
      "weir.envelope.word": "0x0000000000010000,0x1122334455667788", "weir.envelope.data": "0x0000000000000007"}),
    ("MSG with EAGER", HEAD + "05 00 0201 03000000 04000000 00010000 fe000000 0200 04 00 01000000 f1f2",
     {"weir.envelope": "1", "weir.payload": "f1f2", "weir.offset": "254", "weir.msg.total_len": "256"}),
    ("RNDV, RNDV_ABORT", HEAD + "06 00 0200 00000000 0201000000000000 0403000000000000 f1f2 0b 00 0403 00000000 0201000000000000",
     {"weir.frame": "0x06,0x0b", "weir.offset": "772", "weir.code": "772"}),
    ("PARITY, RECOVERED", HEAD + "0c 83 0200 02000000 0900000000000000 0403000000000000 f1f2 0d 00 0200 00000000 0900000000000000 0403000000000000",
     {"weir.frame": "0x0c,0x0d", "weir.parity.count": "3", "weir.parity.row": "2", "weir.key": "0x0000000000000009,0x0000000000000009"}),
    ("CLOSE, PADDING", HEAD + "0a 00 0201 03 627965 00 ffff", {"weir.frame": "0x0a,0x00", "weir.close.reason": "bye"}),
    ("WRITE with SYNC", HEAD + f"05 01 0000 03000000 00000000 02000000 00000000 0200 1c 00 07080000 {'0100000000000000' * 3} f1f2",
     {"weir.envelope": "7", "weir.envelope.sync": "1", "weir.envelope.word": ",".join(["0x0000000000000001"] * 3), "weir.payload": "f1f2"}),
    ("NOTICED", HEAD + "05 01 0000 03000000 00000000 00000000 00000000 0000 0c 00 0b000000 8877665544332211",
     {"weir.envelope": "11", "weir.envelope.word": "0x1122334455667788"}),
    ("ATOMIC", HEAD + "05 01 0000 03000000 00000000 00000000 00000000 0000 24 00 0c200206 0100000000000000 0800000000000000 8877665544332211 0500000000000000",
     {"weir.envelope": "12", "weir.envelope.fetch": "1", "weir.envelope.atomic": "2", "weir.envelope.type": "6",
      "weir.envelope.word": "0x0000000000000001,0x0000000000000008,0x1122334455667788,0x0000000000000005"}),
    ("ATOMIC that compares", HEAD + f"05 01 0000 03000000 00000000 00000000 00000000 0000 2c 00 0c200c08 {'0100000000000000' * 5}",
     {"weir.envelope.atomic": "12", "weir.envelope.word": ",".join(["0x0000000000000001"] * 5)}),
    ("ATOMIC cut short", HEAD + f"05 01 0000 03000000 00000000 00000000 00000000 0000 24 00 0c200c08 {'0100000000000000' * 4}", {"weir.malformed": ""}),
    ("ATOMIC_DONE", HEAD + "05 01 0000 03000000 00000000 00000000 00000000 0000 14 00 0d200000 0300000000000000 0400000000000000",
     {"weir.envelope": "13", "weir.envelope.code": "0", "weir.envelope.word": "0x0000000000000003,0x0000000000000004"}),
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



def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def sctp_packet(chunks, ports=(0xC001, 0xC002)):
    """A packet of SCTP with its checksum."""
    head = struct.pack(">HHI", *ports, 0x01020304)
    return head + struct.pack("<I", crc32c(head + bytes(4) + chunks)) + chunks


TSNS = itertools.count(7)


def sctp_data(kind, text, stream=3):
    """One DATA chunk, a message that is whole."""
    message = bytes.fromhex("".join(text.split()))
    # (With a number of its own, or it would be taken for one that came again.)
    chunk = struct.pack(">BBHIHHI", 0, 3, 16 + len(message), next(TSNS), stream, 0, 0x57450000 + kind) + message
    return chunk + bytes(-len(chunk) % 4)


SACK = struct.pack(">BBHIIHH", 3, 0, 16, 7, 65536, 0, 0)
TOLD = "0901000000000000 0100000000000000 "
EAGER = "01010000 0500000000000000"
# (name, UDP payload, fields that tshark must show; None where it is not ours)
SCTP = [
    ("SCTP: INIT", sctp_packet(struct.pack(">BBHIIHHI", 1, 0, 20, 7, 65536, 9, 9, 1)), {"sctp.chunk_type": "1", "sctp.srcport": "49153", "sctp.dstport": "49154"}),
    ("SCTP: HELLO", sctp_packet(sctp_data(1, f"{b'WEIRSCTP'.hex()} 01 {'00' * 7} 1817161514131211 {MAC}", 0)),
     {"sctp.chunk_type": "0", "weirsctp.kind": "1", "weirsctp.version": "1", "weirsctp.association": "0x1112131415161718", "weirsctp.mac": MAC}),
    ("SCTP: SACK and WHOLE", sctp_packet(SACK + sctp_data(2, TOLD + f"0200 0c00 03000000 04000000 {EAGER} f1f2f3")),
     {"sctp.chunk_type": "3,0", "weirsctp.kind": "2", "weirsctp.read": "265", "weirsctp.tell": "1", "weirsctp.stream": "2", "weirsctp.sseq": "3", "weirsctp.mseq": "4",
      "weir.envelope": "1", "weir.envelope.tag": "0x0000000000000005", "weirsctp.payload": "f1f2f3"}),
    ("SCTP: CONTROL", sctp_packet(sctp_data(3, TOLD + f"04000000 1c00 0000 {RTS}")), {"weirsctp.kind": "3", "weirsctp.mseq": "4", "weir.envelope": "2"}),
    ("SCTP: MESSAGE", sctp_packet(sctp_data(4, TOLD + f"0200 0c00 03000000 0400000000000000 00010000 10000000 02000000 00000000 {EAGER} f1f2")),
     {"weirsctp.kind": "4", "weirsctp.total_len": "256", "weirsctp.offset": "16", "weir.envelope": "1", "weirsctp.payload": "f1f2"}),
    ("SCTP: RNDV", sctp_packet(sctp_data(5, TOLD + "0201000000000000 0403000000000000 0200000000000000 f1f2")),
     {"weirsctp.kind": "5", "weirsctp.handle": "0x0000000000000102", "weirsctp.offset": "772", "weirsctp.payload": "f1f2"}),
    ("SCTP: CREDIT, GRANT", sctp_packet(sctp_data(8, TOLD + "0500000000000000 0600000000000000") + sctp_data(9, TOLD + "0700000000000000 0800000000000000")),
     {"weirsctp.kind": "8,9", "weirsctp.msgs_limit": "5", "weirsctp.bytes_limit": "6", "weirsctp.handle": "0x0000000000000007", "weirsctp.limit": "8"}),
    ("SCTP: ACK", sctp_packet(sctp_data(12, TOLD + "0300000000000000 0500000000000000 0400000000000000 0600000000000000", 0)),
     {"weirsctp.kind": "12", "weirsctp.ack.stream": "3,4", "weirsctp.ack.read": "5,6"}),
    ("SCTP: a reserved bit", sctp_packet(sctp_data(8, "0901000000000000 0102000000000000 0500000000000000 0600000000000000")), {"weirsctp.kind": "8", "weirsctp.malformed": ""}),
    ("SCTP: a record that is cut", sctp_packet(sctp_data(9, TOLD + "0500000000000000 06000000")), {"weirsctp.kind": "9", "weirsctp.malformed": ""}),
    ("SCTP: an envelope longer than its record", sctp_packet(sctp_data(2, TOLD + "0200 0c00 03000000 04000000 0101")), {"weirsctp.kind": "2", "weirsctp.malformed": ""}),
    ("foreign: ports of others", sctp_packet(SACK, (5000, 0xC002)), None),
    ("foreign: chunks that do not fill it", sctp_packet(SACK + bytes(4)), None),
]


def examples():
    """The examples of the specification: name, bytes."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(folder, "spec/protocol.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```hex (.*)\n((?:.*\n)*?)```$", file.read(), re.MULTILINE)
    return {name: bytes.fromhex("".join(line.split("  ")[0] for line in lines.splitlines())) for name, lines in blocks}


EXAMPLES = examples()
GREETING, ANSWER = EXAMPLES["greeting"], EXAMPLES["answer"]
LARGE = 100_000


def record(kind, envelope="", key=5, offset=0, total=LARGE, length=LARGE, tell=0):
    """A record whose CRC nobody can verify."""
    envelope = bytes.fromhex(envelope)
    head = struct.pack("<BBHIQQQIIQQII", kind, len(envelope), 0, 0, key, offset, total, length, 7, 8, 9, tell, 0xC0FFEE)
    return head + envelope + bytes(length)


# (name, bytes each way, lengths of the segments in turn, what tshark must show of the connection, or None where it is not ours)
CONNECTIONS = [
    ("bulk connection: the specification's examples", GREETING + EXAMPLES["record of a message"], ANSWER + EXAMPLES["record of a rendezvous transfer"], [1448],
     {"weirbulk.bulk": "1,1", "weirbulk.association": "0x1112131415161718,0x0102030405060708", "weirbulk.kind": "1,2", "weirbulk.stream": "7,0",
      "weirbulk.mseq": "4", "weirbulk.handle": "0x0000000100000002", "weirbulk.len": "8,4", "weirbulk.tell": "1,0", "weirbulk.read": "0,84",
      "weirbulk.payload": "e1e2e3e4e5e6e7e8,f1f2f3f4", "weir.envelope.tag": "0x0000000000000005"}),
    ("bulk connection: greetings and heads in pieces", GREETING + EXAMPLES["record of a message"] * 3, ANSWER + EXAMPLES["record of a rendezvous transfer"] * 2, [9, 30, 2, 61, 1, 3, 17],
     {"weirbulk.bulk": "1,1", "weirbulk.kind": "1,1,1,2,2", "weirbulk.len": "8,8,8,4,4", "weirbulk.crc": None}),
    ("bulk connection: large records, then several in a segment", GREETING + record(2, total=0) + EXAMPLES["record of a message"] * 5, ANSWER, [1448],
     {"weirbulk.kind": "2" + ",1" * 5, "weirbulk.handle": "0x0000000000000005", "weirbulk.len": "100000" + ",8" * 5}),
    ("bulk connection: a record of 1 MiB", GREETING + record(1, "01010000 0500000000000000", total=2 << 20, offset=1 << 20, length=1 << 20, tell=1), ANSWER, [65483],
     {"weirbulk.kind": "1", "weirbulk.offset": "1048576", "weirbulk.len": "1048576", "weirbulk.tell": "1", "weir.envelope": "1"}),
    ("bulk connection: a kind that is none", GREETING + record(9, length=50), ANSWER, [1448], {"weirbulk.bulk": "1,1", "weirbulk.kind": "", "weirbulk.malformed": ""}),
    ("bulk connection: beyond its message", GREETING + record(1, total=99), ANSWER, [1448], {"weirbulk.kind": "1", "weirbulk.malformed": ""}),
    ("bulk connection: an empty record", GREETING + record(2, total=0, length=0), ANSWER, [1448], {"weirbulk.kind": "", "weirbulk.malformed": ""}),
    ("bulk connection: a rendezvous transfer with a length", GREETING + record(2), ANSWER, [1448], {"weirbulk.kind": "2", "weirbulk.malformed": ""}),
    ("foreign: HTTP", b"GET / HTTP/1.0\r\n\r\n" + bytes(100), b"HTTP/1.0 200 OK\r\n\r\n", [1448], None),
    ("foreign: nearly a greeting", b"WEIRLAME" + bytes(32), bytes(40), [1448], None),
]


def record(number, protocol, header, payload):
    """A record of a capture of raw IPv4 packets; host 1 sends where the number's lowest bit is 0."""
    ends = [bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])]
    source, target = ends[number & 1], ends[1 - (number & 1)]
    data = header + payload
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(data), 0, 0x4000, 64, protocol, 0, source, target) + data
    return struct.pack("<IIII", number, 0, len(ip), len(ip)) + ip


def capture(records):
    """A classic pcap file."""
    return struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 1 << 18, 101) + b"".join(records)


def datagram(payload):
    return record(0, 17, struct.pack(">HHHH", 40000, 40001, len(payload) + 8, 0), payload)


def connection(port, there, back, lengths):
    """The packets of a TCP connection: who connects sends its first segment, the other all of its own, then the rest goes."""
    sent = [0, 0]

    def segment(side, flags, payload=b""):
        ports = (port, 40001) if side == 0 else (40001, port)
        header = struct.pack(">HHIIBBHHH", *ports, sent[side], sent[1 - side], 5 << 4, flags, 65535, 0, 0)
        sent[side] += len(payload) + (flags & 2) // 2
        return record(side, 6, header, payload)

    def cut(data):
        turn = 0
        while data:
            yield data[:lengths[turn % len(lengths)]]
            data, turn = data[lengths[turn % len(lengths)]:], turn + 1

    out = [segment(0, 0x02), segment(1, 0x12), segment(0, 0x10)]
    first, *rest = cut(there)
    out.append(segment(0, 0x18, first))
    out += [segment(1, 0x18, piece) for piece in cut(back)]
    return out + [segment(0, 0x18, piece) for piece in rest]


def tshark(path, *args):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "weir.lua")
    done = subprocess.run(["tshark", "-X", f"lua_script:{script}", "-r", path, *args], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0 or "Lua Error" in done.stdout or "lua:" in done.stderr.lower():
        sys.exit(f"tshark failed: {done.stderr}{done.stdout}")
    return done.stdout.splitlines()


def decoded(records, fields):
    """Protocol and fields of each packet."""
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        file.write(capture(records))
        file.flush()
        args = ["-T", "fields", "-E", "separator=|", "-e", "_ws.col.Protocol"]
        for name in fields:
            args += ["-e", name]
        rows = [row.split("|") for row in tshark(file.name, *args)]
        verbose = "\n".join(tshark(file.name, "-V"))
    if "Lua Error" in verbose:
        sys.exit(verbose)
    if len(rows) != len(records):
        sys.exit(f"{len(rows)} packets instead of {len(records)}")
    return [(protocol, dict(zip(fields, values))) for protocol, *values in rows]


def told(name, bad):
    print(f"{'FAILED' if bad else 'ok':7}{name} {bad or ''}")
    return bool(bad)


def differences(got, want, malformed):
    """What of the fields is not as it must be; of the one named `malformed` only whether it is there."""
    bad = {k: f"{got[k]!r}, not {v!r}" for k, v in want.items() if v is not None and k != malformed and got[k] != v}
    if (malformed in want) != bool(got[malformed]):
        bad[malformed] = got[malformed]
    return bad


def fields_of(checks, malformed):
    return sorted({name for want in checks for name in (want or {})} | {malformed})


def check_packets():
    """Whether any datagram is not decoded as it must be."""
    fields = fields_of([want for _, _, want in PACKETS], "weir.malformed")
    packets = [bytes.fromhex("".join(text.split())) for _, text, _ in PACKETS]
    failed = False
    for (name, _, want), (protocol, got) in zip(PACKETS, decoded([datagram(p) for p in packets], fields)):
        if want is None:
            bad = {"protocol": protocol} if protocol == "Weir" else {}
        else:
            bad = differences(got, want, "weir.malformed")
            if protocol != "Weir":
                bad["protocol"] = protocol
        failed = told(name, bad) or failed
    return failed


def check_sctp():
    """Whether any packet of SCTP is not decoded as it must be."""
    fields = fields_of([want for *_, want in SCTP], "weirsctp.malformed")
    failed = False
    for (name, _, want), (_, got) in zip(SCTP, decoded([datagram(packet) for _, packet, _ in SCTP], fields)):
        if want is None:
            bad = {"sctp.chunk_type": got["sctp.chunk_type"]} if got["sctp.chunk_type"] else {}
        else:
            bad = differences(got, want, "weirsctp.malformed")
        failed = told(name, bad) or failed
    return failed


def check_examples():
    """The specification's packets: each is one, and nothing of it is malformed."""
    packets = {name: data for name, data in EXAMPLES.items() if 0x10 <= data[0] <= 0x16 and name != "name"}
    failed = told("examples of the specification", {} if len(packets) > 15 else {"packets": len(packets)})
    rows = decoded([datagram(p) for p in packets.values()], ["weir.malformed", "weir.kind"])
    for (name, data), (protocol, got) in zip(packets.items(), rows):
        wrong = protocol != "Weir" or got["weir.malformed"] or got["weir.kind"] != str(data[0] & 15)
        failed = told(f"example: {name}", {"decoded": (protocol, got)} if wrong else {}) or failed
    return failed


def check_connections():
    """Whether any connection is not decoded as it must be. What its packets show is taken together, of one way first and then of the other."""
    fields = ["ip.src", "tcp.stream", *fields_of([want for *_, want in CONNECTIONS], "weirbulk.malformed")]
    records = [r for port, (_, there, back, lengths, _) in enumerate(CONNECTIONS, 50000) for r in connection(port, there, back, lengths)]
    packets = sorted(decoded(records, fields), key=lambda row: row[1]["ip.src"])
    failed = False
    for stream, (name, *_, want) in enumerate(CONNECTIONS):
        rows = [row for row in packets if row[1]["tcp.stream"] == str(stream)]
        got = {field: ",".join(row[field] for _, row in rows if row[field]) for field in fields}
        ours = any(protocol == "Weir bulk connection" for protocol, _ in rows)
        if want is None:
            bad = {"protocol": "Weir bulk connection"} if ours else {}
        else:
            bad = differences(got, want, "weirbulk.malformed")
            if not ours:
                bad["protocol"] = "not recognised"
        failed = told(name, bad) or failed
    return failed


def main():
    if shutil.which("tshark") is None:
        print("skipped: no tshark here", file=sys.stderr)
        return 77
    failed = [check_packets(), check_examples(), check_connections(), check_sctp()]
    return 1 if any(failed) else 0


if __name__ == "__main__":
    sys.exit(main())
