//! Recordings that are cut, changed or made by somebody else: an error, no panic; what reads is
//! what was written.

use proptest::prelude::*;
use weir_record::log::{ANY, Call, Event, Got, LogError, MAGIC, MOST_CALLS, Recording, Room, Site};
use weir_record::record::whole;

const SIZE: u64 = 4;

fn got() -> impl Strategy<Value = Got> {
    (-1i64..4, -1i64..100, any::<u32>()).prop_map(|(source, tag, bytes)| Got { source, tag, bytes: bytes.into() })
}

fn call() -> impl Strategy<Value = Call> {
    let (peer, tag, bytes, comm) = (-1i64..4, 0i64..1000, 0u64..1 << 40, prop_oneof![Just(0u64), Just(7)]);
    let wanted = prop_oneof![Just(ANY), 0i64..4];
    prop_oneof![
        (0u8..8, peer.clone(), tag.clone(), bytes.clone(), comm.clone(), 0u64..9).prop_map(
            |(kind, to, tag, bytes, comm, r)| Call::Send {
                kind,
                to,
                tag,
                bytes,
                comm,
                request: (kind >= 4).then_some(r)
            }
        ),
        (wanted.clone(), tag.clone(), comm.clone(), got()).prop_map(|(from, tag, comm, got)| Call::Recv {
            from,
            tag,
            comm,
            request: None,
            got: Some(got)
        }),
        (wanted.clone(), tag.clone(), comm.clone(), got()).prop_map(|(from, tag, comm, got)| Call::Probe {
            from,
            tag,
            comm,
            got
        }),
        (peer, tag.clone(), bytes.clone(), wanted, tag, got()).prop_map(|(to, tag, bytes, from, recvtag, got)| {
            Call::Sendrecv { to, tag, bytes, from, recvtag, comm: 0, got }
        }),
        prop::collection::vec((0u64..50, prop::option::of(got())), 1..5).prop_map(|done| Call::Wait {
            all: true,
            any: false,
            done
        }),
        (0u64..50).prop_map(|request| Call::Free { request }),
        (0u8..16, bytes, -1i64..4, comm, prop::option::of(0u64..9))
            .prop_map(|(kind, bytes, root, comm, request)| Call::Collective { kind, bytes, root, comm, request }),
    ]
}

prop_compose! {
    fn recording()(calls in prop::collection::vec((0u32..3, any::<u32>(), any::<u32>(), call()), 0..40), rank in 0..SIZE) -> Recording {
        let mut events: Vec<Event> = calls
            .into_iter()
            .map(|(site, before, inside, call)| Event { site, before_ns: before.into(), inside_ns: inside.into(), call })
            .collect();
        events.push(Event { site: 0, before_ns: 0, inside_ns: 0, call: Call::Finalize });
        let site = |offset| Site { object: "/bin/program".into(), offset };
        Recording {
            rank,
            size: SIZE,
            run: 77,
            sites: vec![site(1), site(2)],
            comms: [(7, vec![3, 0])].into(),
            events,
            unseen: vec!["MPI_Win_create".into()],
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(recording in recording()) {
        let read = Recording::read(&recording.written());
        prop_assert_eq!(read.as_ref(), Ok(&recording));
    }

    #[test]
    // Whatever a file says, a model comes of it or an error that is no fault of ours.
    #[test]
    fn what_is_read_makes_a_model_or_is_refused(run in prop::collection::vec(recording(), SIZE as usize), times: [u64; 4]) {
        let mut run = run;
        for ((rank, recording), time) in (0..).zip(&mut run).zip(times) {
            (recording.rank, recording.unseen) = (rank, Vec::new());
            recording.events.iter_mut().for_each(|e| e.before_ns = time);
            prop_assert!(Recording::read(&recording.written()).is_ok());
        }
        if let Err(error) = weir_record::cli::of(vec![run], "hostile") {
            prop_assert!(matches!(error, weir_record::Error::Refused(_)), "{error}");
        }
    }

    #[test]
    fn what_is_cut_is_told(recording in recording(), cut in any::<prop::sample::Index>()) {
        let bytes = recording.written();
        let cut = cut.index(bytes.len());
        let error = Recording::read(&bytes[..cut]).unwrap_err();
        prop_assert!(matches!(error, LogError::Short(_) | LogError::Foreign), "{error} at {cut}");
    }

    #[test]
    fn what_is_changed_makes_no_panic(recording in recording(), at in any::<prop::sample::Index>(), to: u8) {
        let mut bytes = recording.written();
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Ok(read) = Recording::read(&bytes) {
            let again = Recording::read(&read.written());
            prop_assert_eq!(again.as_ref(), Ok(&read));
        }
    }

    #[test]
    fn any_bytes_make_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Recording::read(&bytes);
        let _ = Recording::read(&[MAGIC.as_slice(), b"\x00\x02\x00", &bytes].concat());
    }
}

#[test]
fn a_run_is_whole_or_says_what_it_lacks() {
    let one = |rank, size| Recording { rank, size, ..Recording::default() };
    assert_eq!(whole(vec![one(1, 2), one(0, 2)]).unwrap()[0].rank, 0);
    assert_eq!(whole(vec![one(0, 3), one(2, 3)]).unwrap_err(), "no recording of process 1 of 3");
    assert_eq!(whole(vec![one(0, 3), one(1, 3)]).unwrap_err(), "no recording of process 2 of 3");
    assert_eq!(whole(vec![one(0, 2), one(0, 2)]).unwrap_err(), "two recordings of process 0");
    assert!(whole(vec![one(0, 2), one(1, 3)]).unwrap_err().contains("different runs"));
    let of = |rank, run| Recording { rank, size: 2, run, ..Recording::default() };
    assert_eq!(
        whole(vec![of(1, 6), of(0, 5)]).unwrap_err(),
        "recordings of different runs: those of processes 0 and 1"
    );
}

/// A number as the files have it.
fn leb(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value > 127 {
        out.push((value & 127) as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
    out
}

fn zigzag(value: i64) -> Vec<u8> {
    leb((value << 1 ^ value >> 63).cast_unsigned())
}

/// A file of process 0 of `size` with one record of a call: its number, then what follows its
/// times.
fn file(size: u64, op: u64, rest: &[Vec<u8>]) -> Vec<u8> {
    let body = [leb(op), leb(0), leb(u64::MAX), leb(0), rest.concat()].concat();
    [MAGIC.to_vec(), leb(0), leb(size), leb(1), vec![3], leb(body.len() as u64), body].concat()
}

#[test]
fn numbers_that_nothing_has_are_refused_with_their_byte() {
    let send = |to: i64, tag: i64, bytes: u64| file(4, 0, &[zigzag(to), zigzag(tag), leb(bytes), leb(0)]);
    let why = |bytes: &[u8]| Recording::read(bytes).unwrap_err().to_string();
    // This one is whole, but for what follows it.
    assert!(why(&send(3, 7, 100)).starts_with("ends early"), "{}", why(&send(3, 7, 100)));
    for (file, what) in [
        (send(4, 7, 100), "no process has this number"),
        (send(i64::MAX, 7, 100), "no process has this number"),
        (send(i64::MIN, 7, 100), "no process has this number"),
        (send(-2, 7, 100), "no process has this number"),
        (send(3, -1, 100), "no tag is like this"),
        (send(3, 1 << 31, 100), "no tag is like this"),
        (send(3, 7, 1 << 62), "a message longer than any memory"),
        (send(3, 7, u64::MAX), "a message longer than any memory"),
        (
            file(4, 4, &[zigzag(3), zigzag(7), leb(8), leb(0), leb(1 << 31)]),
            "no communicator or request has this number",
        ),
        (file(4, 0, &[zigzag(3), zigzag(7), leb(8), leb(1)]), "no communicator has this number"),
        (file(4, 12, &[leb(1), leb(0)]), "a wait for no request"),
        (file(4, 99, &[]), "no call has this number"),
        (file(4, u64::MAX, &[]), "no call has this number"),
        (file(0, 13, &[]), "this process cannot be one of so many"),
        (file(1 << 40, 13, &[]), "this process cannot be one of so many"),
    ] {
        let said = why(&file);
        assert!(said.contains(what) && said.contains("at byte"), "{said}: {what} was meant");
    }
    let beyond = [MAGIC.to_vec(), vec![255; 11]].concat();
    assert!(why(&beyond).contains("a number beyond 64 bits"), "{}", why(&beyond));
}

#[test]
fn what_has_hardly_begun_ends_early() {
    for cut in 0..MAGIC.len() {
        assert_eq!(Recording::read(&MAGIC[..cut]), Err(LogError::Short(cut)));
    }
    assert_eq!(Recording::read(b"WEIRREC1"), Err(LogError::Foreign));
}

#[test]
fn all_files_together_have_a_bound() {
    let barrier = Call::Collective { kind: 0, bytes: 0, root: -1, comm: 0, request: None };
    let event = |call| Event { site: 0, before_ns: 0, inside_ns: 0, call };
    let mut events = vec![event(barrier); MOST_CALLS / 4];
    events.push(event(Call::Finalize));
    let long = Recording { rank: 0, size: 8, events, ..Recording::default() }.written();
    let mut room = Room::default();
    // Three fit, the fourth does not: each by itself would.
    for _ in 0..3 {
        assert!(Recording::read_within(&long, &mut room).is_ok());
    }
    let error = Recording::read_within(&long, &mut room).unwrap_err();
    assert!(error.to_string().contains("more than 4000000 calls in all recordings together"), "{error}");
}
