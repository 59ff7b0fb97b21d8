//! Cost of posting and arriving. Each figure is for one receive posted and one message arrived.

#![allow(missing_docs, reason = "criterion_group! makes an undocumented public function")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use weir_match::{Arrival, Class, Match, Matcher, Posted, Source, StreamBits, stream_of};

const STREAM_BITS: StreamBits = StreamBits(0x0007_fffc_ffff_ffff);
const STREAMS: u16 = 64;

/// Numbers messages as the protocol does.
struct Sender {
    mseq: u64,
    sseq: [u32; STREAMS as usize],
}

impl Sender {
    fn new() -> Self {
        Sender { mseq: 0, sseq: [0; STREAMS as usize] }
    }

    #[inline]
    fn send(&mut self, class: Class, tag: u64) -> Arrival {
        let stream = stream_of(tag, class, STREAMS, STREAM_BITS);
        let sseq = &mut self.sseq[usize::from(stream)];
        let a = Arrival { peer: 1, class, mseq: self.mseq, stream, sseq: *sseq, tag, len: 8, msg: self.mseq };
        self.mseq += 1;
        *sseq = sseq.wrapping_add(1);
        a
    }
}

fn receive(source: Source, tag: u64, ignore: u64) -> Posted {
    Posted { class: Class::Tagged, source, tag, ignore, op: tag, multi: None }
}

#[derive(Copy, Clone)]
struct Mix {
    name: &'static str,
    source: Source,
    ignore: u64,
    same_tag: bool,
}

/// What receives of MPICH that name a tag ignore.
const MPICH: u64 = 0xc0 << 48;

const MIXES: [Mix; 7] = [
    Mix { name: "directed, one tag", source: Source::Peer(1), ignore: 0, same_tag: true },
    Mix { name: "directed, distinct tags", source: Source::Peer(1), ignore: 0, same_tag: false },
    Mix { name: "any source, distinct tags", source: Source::Any, ignore: 0, same_tag: false },
    Mix { name: "MPICH, one tag", source: Source::Peer(1), ignore: MPICH, same_tag: true },
    Mix { name: "MPICH, distinct tags", source: Source::Peer(1), ignore: MPICH, same_tag: false },
    Mix { name: "any tag", source: Source::Peer(1), ignore: 0xffff_ffff, same_tag: true },
    Mix { name: "any source, any tag", source: Source::Any, ignore: 0xffff_ffff, same_tag: true },
];

fn tag(mix: &Mix, i: u64) -> u64 {
    if mix.same_tag { 5 } else { i }
}

fn expected(c: &mut Criterion) {
    let mut g = c.benchmark_group("expected");
    for mix in MIXES {
        for depth in [1u64, 64, 1024, 8192] {
            g.throughput(Throughput::Elements(depth));
            g.bench_function(BenchmarkId::new(mix.name, depth), |b| {
                let (mut m, mut s, mut out) = (Matcher::new(STREAM_BITS), Sender::new(), Vec::<Match>::new());
                b.iter(|| {
                    for i in 0..depth {
                        m.post(receive(mix.source, tag(&mix, i), mix.ignore), &mut out);
                    }
                    for i in 0..depth {
                        m.arrive(s.send(Class::Tagged, tag(&mix, i)), &mut out);
                    }
                    assert_eq!(out.len() as u64, depth);
                    black_box(&out);
                    out.clear();
                });
            });
        }
    }
    g.finish();
}

fn unexpected(c: &mut Criterion) {
    let mut g = c.benchmark_group("unexpected");
    for mix in MIXES {
        for depth in [1u64, 64, 1024, 8192] {
            g.throughput(Throughput::Elements(depth));
            g.bench_function(BenchmarkId::new(mix.name, depth), |b| {
                let (mut m, mut s, mut out) = (Matcher::new(STREAM_BITS), Sender::new(), Vec::<Match>::new());
                b.iter(|| {
                    for i in 0..depth {
                        m.arrive(s.send(Class::Tagged, tag(&mix, i)), &mut out);
                    }
                    for i in 0..depth {
                        m.post(receive(mix.source, tag(&mix, i), mix.ignore), &mut out);
                    }
                    assert_eq!(out.len() as u64, depth);
                    black_box(&out);
                    out.clear();
                });
            });
        }
    }
    g.finish();
}

/// Exact and wildcard receives posted in turn; the first of each window of 64 messages arrives
/// last.
fn disordered(c: &mut Criterion) {
    let mut g = c.benchmark_group("first of 64 arrives last");
    g.throughput(Throughput::Elements(64));
    for (name, every, ignore) in [("exact", 0, 0), ("MPICH", 0, MPICH), ("every 4th any tag", 4, 0), ("any tag", 1, 0)]
    {
        g.bench_function(name, |b| {
            let (mut m, mut s, mut out) = (Matcher::new(STREAM_BITS), Sender::new(), Vec::<Match>::new());
            b.iter_batched_ref(
                || (0..64).map(|i| s.send(Class::Tagged, i)).collect::<Vec<_>>(),
                |sent| {
                    for i in 0..64 {
                        let wild = every != 0 && i % every == 0;
                        m.post(receive(Source::Peer(1), i, if wild { u64::MAX } else { ignore }), &mut out);
                    }
                    sent.rotate_left(1);
                    for a in sent.drain(..) {
                        m.arrive(a, &mut out);
                    }
                    // Wildcards may take what an exact receive wanted: what is left over is
                    // cleared.
                    for a in out.drain(..) {
                        black_box(a);
                    }
                    while m.claim(Class::Tagged, Source::Any, 0, u64::MAX).is_some() {}
                    if m.stats().posted != 0 {
                        (0..64).for_each(|i| {
                            m.cancel(i, &mut out);
                        });
                    }
                },
                BatchSize::PerIteration,
            );
        });
    }
    g.finish();
}

/// Waiting messages taken by receives that name their tag, the last first: no walk over the others
/// is paid for.
fn unexpected_reversed(c: &mut Criterion) {
    let mut g = c.benchmark_group("unexpected, last first");
    for (name, source, ignore) in
        [("directed", Source::Peer(1), 0), ("MPICH", Source::Peer(1), MPICH), ("MPICH, any source", Source::Any, MPICH)]
    {
        for depth in [64u64, 1024] {
            g.throughput(Throughput::Elements(depth));
            g.bench_function(BenchmarkId::new(name, depth), |b| {
                let (mut m, mut s, mut out) = (Matcher::new(STREAM_BITS), Sender::new(), Vec::<Match>::new());
                b.iter(|| {
                    for i in 0..depth {
                        m.arrive(s.send(Class::Tagged, i), &mut out);
                    }
                    for i in (0..depth).rev() {
                        m.post(receive(source, i, ignore), &mut out);
                    }
                    assert_eq!(out.len() as u64, depth);
                    black_box(&out);
                    out.clear();
                });
            });
        }
    }
    g.finish();
}

criterion_group!(benches, expected, unexpected, unexpected_reversed, disordered);
criterion_main!(benches);
