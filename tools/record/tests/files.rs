//! Recordings that are cut, changed or made by somebody else: an error, no panic; what reads is what was written.

use proptest::prelude::*;
use weir_record::log::{ANY, Call, Event, Got, LogError, Recording, Site};
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
        let _ = Recording::read(&[b"WEIRREC1\x00\x02".as_slice(), &bytes].concat());
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
}
