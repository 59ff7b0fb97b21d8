//! Recordings of MPI calls: any bytes read or are refused; a run made from them becomes a model
//! that repeats it.

use weir_record::cli::of;
use weir_record::log::{Call, Event, Got, MAGIC, Recording};

/// Reads bytes as a file, and as the calls of two processes; whether a model came of these.
pub fn run(data: &[u8]) -> bool {
    for bytes in [data.to_vec(), [MAGIC.as_slice(), &[0, 2], data].concat()] {
        if let Ok(read) = Recording::read(&bytes) {
            assert_eq!(Recording::read(&read.written()).as_ref(), Ok(&read), "written otherwise than read");
        }
    }
    let run: Vec<Recording> = (0..2).map(|rank| made(rank, data)).collect();
    match of(vec![run], "fuzzed") {
        Ok(_) => true,
        // That a model differs from its recording is a fault of the maker.
        Err(weir_record::Error::Differs(what)) => panic!("{what}"),
        Err(_) => false,
    }
}

/// Calls from bytes, the same for both processes where a bit says so.
fn made(rank: u64, data: &[u8]) -> Recording {
    let mut out = Recording { rank, size: 2, ..Recording::default() };
    let mut open = 0;
    for byte in data {
        if byte & 128 != 0 && u64::from(byte >> 6 & 1) != rank {
            continue;
        }
        let (peer, bytes) = ((1 - rank).cast_signed(), u64::from(byte >> 3 & 7) * 100);
        let got = Got { source: peer, tag: 0, bytes };
        let call = match byte & 7 {
            0 => Call::Send { kind: 0, to: peer, tag: 0, bytes, comm: 0, request: None },
            1 => {
                Call::Recv { from: if bytes > 400 { -2 } else { peer }, tag: 0, comm: 0, request: None, got: Some(got) }
            }
            2 | 3 => {
                open += 1;
                Call::Send { kind: 4, to: peer, tag: 0, bytes, comm: 0, request: Some(open - 1) }
            }
            4 if open > 0 => {
                open -= 1;
                Call::Wait { all: false, any: false, done: vec![(open, None)] }
            }
            5 if open > 0 => {
                Call::Wait { all: true, any: false, done: (0..std::mem::take(&mut open)).map(|r| (r, None)).collect() }
            }
            _ => Call::Collective {
                kind: byte & 15,
                bytes,
                root: if [1, 2, 3, 4, 5, 10].contains(&(byte & 15)) { 0 } else { -1 },
                comm: 0,
                request: None,
            },
        };
        out.events.push(Event { site: 0, before_ns: 0, inside_ns: 0, call });
    }
    out.events.push(Event { site: 0, before_ns: 0, inside_ns: 0, call: Call::Finalize });
    out
}
