//! Cost of the checks, and of the whole path of an 8-byte message through this crate.

#![allow(missing_docs, reason = "the macros of criterion make undocumented functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir_wire::frame::{self, Frame, Frames, MsgHead};
use weir_wire::seal::Role;
use weir_wire::{Header, Level, SessionKeys, crc32c_append};

const SIZES: [usize; 4] = [8, 64, 1472, 65536];

fn crc(c: &mut Criterion) {
    let mut group = c.benchmark_group("crc32c");
    for size in SIZES {
        let bytes = vec![0x5a; size];
        group.throughput(Throughput::Bytes(size as u64));
        group.bench_function(format!("ours/{size}"), |b| b.iter(|| crc32c_append(black_box(7), black_box(&bytes))));
        group.bench_function(format!("crate crc32c/{size}"), |b| {
            b.iter(|| crc32c::crc32c_append(black_box(7), black_box(&bytes)));
        });
    }
    group.finish();
}

fn keys(level: Level) -> (SessionKeys, SessionKeys) {
    let derive = |role| SessionKeys::derive(&[1; 32], level, role, &[2; 16], &[3; 16], 4, 5);
    (derive(Role::Opener), derive(Role::Responder))
}

fn header(level: Level) -> Header {
    Header { level, ack_now: false, path: 0, number: 77, association: 99 }
}

fn seal(c: &mut Criterion) {
    let mut group = c.benchmark_group("seal and open");
    for level in [Level::Integrity, Level::Auth, Level::Encrypt] {
        let (ours, theirs) = keys(level);
        for size in [72, 1472, 8972] {
            group.throughput(Throughput::Bytes(size as u64));
            let mut packet = Vec::with_capacity(10_000);
            group.bench_function(format!("{level:?}/{size}"), |b| {
                b.iter(|| {
                    header(level).write(&mut packet);
                    packet.resize(size - level.trailer_len(), 0);
                    ours.send.seal(black_box(77), &mut packet);
                    theirs.recv.open(level, 77, &mut packet).expect("sealed with the same keys")
                });
            });
        }
    }
    group.finish();
}

/// Header, ACK and one MSG of 8 bytes with an envelope of 20.
fn write_small(packet: &mut Vec<u8>, ours: &SessionKeys) {
    header(Level::Integrity).write(packet);
    frame::write_ack([90..=100, 3..=50], frame::AckTimes::default(), 100, packet);
    let head = MsgHead { control: false, stream: 3, mseq: 9, sseq: 4, total_len: 8, offset: 0, len: 8 };
    frame::write_msg_head(&head, &[6; 20], packet);
    packet.extend_from_slice(&[7; 8]);
    ours.send.seal(77, packet);
}

fn small_message(c: &mut Criterion) {
    let (ours, theirs) = keys(Level::Integrity);
    let mut packet = Vec::with_capacity(2000);
    let mut group = c.benchmark_group("8-byte message");
    group.bench_function("write", |b| b.iter(|| write_small(black_box(&mut packet), &ours)));
    group.bench_function("read", |b| {
        b.iter(|| {
            let head = Header::parse(black_box(&packet)).expect("our own");
            let range = theirs.recv.open(head.level, u64::from(head.number), &mut packet).expect("our own");
            let frames = Frames::parse(&packet, range).expect("our own");
            let mut sum = 0usize;
            for f in &frames {
                sum += match f {
                    Frame::Ack(ack) => ack.ranges(101).expect("our own").map(|r| *r.end() as usize).sum(),
                    Frame::Msg(msg) => msg.payload.len() + msg.envelope.len(),
                    _ => 0,
                };
            }
            sum
        });
    });
    group.finish();
}

criterion_group!(benches, crc, seal, small_message);
criterion_main!(benches);
