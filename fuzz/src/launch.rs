//! What launchers and ranks say to each other: frames of the local launcher, commands of PMI, the
//! launcher's books.

use arbitrary::{Arbitrary, Unstructured};
use weir_job::launch::local::frame::{HEAD_BYTES, REPLY_MAX_BYTES, REQUEST_MAX_BYTES, Reply, Request, split};
use weir_job::launch::pmi::wire::{Command, Version};
use weir_job::ranks::{Hub, To};

/// Bytes as each of them: no panic, and what is read writes back as the same.
pub fn parsers(data: &[u8]) {
    if let Ok(Some((body, used))) = split(data, REQUEST_MAX_BYTES) {
        assert!(used <= data.len() && body.len() + HEAD_BYTES == used);
    }
    let _ = split(data, REPLY_MAX_BYTES);
    if let Ok(request) = Request::parse(data) {
        assert_eq!(Request::parse(&request.to_bytes()[HEAD_BYTES..]), Ok(request));
    }
    if let Ok(reply) = Reply::parse(data) {
        assert_eq!(Reply::parse(&reply.to_bytes()[HEAD_BYTES..]), Ok(reply));
    }
    for version in [Version::V1, Version::V2] {
        let Ok(Some((command, used))) = Command::take(data, version) else { continue };
        assert!(used <= data.len() && !command.name.is_empty());
        // An empty value reads back as a flag without one, which is the same; blanks in front are
        // not kept.
        let again = Command::take(&command.to_bytes(version), version);
        assert_eq!(again.map(|found| found.map(|(command, _)| command)), Ok(Some(command)));
    }
}

/// Ranks that ask anything in any order.
#[derive(Debug, Arbitrary)]
pub struct Asked {
    ranks: u8,
    steps: Vec<(u8, Step)>,
}

#[derive(Debug, Arbitrary)]
enum Step {
    Bytes(Vec<u8>),
    Join,
    Exchange(u8, Vec<u8>),
    Fence(u8),
    Finalize,
    Ended,
}

/// Runs until the books end the job or the steps are over; returns how many rounds were completed.
/// Of a completed round each rank gets what each gave; nobody is answered who did not ask.
pub fn books(asked: &Asked) -> u64 {
    let size = u32::from(asked.ranks % 8) + 1;
    let mut hub = Hub::new("job".into(), [1; 32], size);
    let mut given = vec![None; size as usize];
    let mut rounds = 0;
    for (rank, step) in &asked.steps {
        let rank = u32::from(*rank) % size;
        let request = match step {
            Step::Bytes(bytes) => match Request::parse(bytes) {
                Ok(request) => request,
                Err(_) => continue,
            },
            Step::Join => Request::Join { version: 1 },
            Step::Exchange(number, data) => Request::Exchange { round: round(*number, rounds), data: data.clone() },
            Step::Fence(number) => Request::Fence { round: round(*number, rounds) },
            Step::Finalize => Request::Finalize,
            Step::Ended => match hub.ended(rank) {
                Ok(()) => continue,
                Err(fault) => return end(&fault, rounds),
            },
        };
        let exchanged = if let Request::Exchange { data, .. } = &request { Some(data.clone()) } else { None };
        match hub.request(rank, request) {
            Ok(None) => given[rank as usize] = exchanged,
            Ok(Some(answer)) => match (answer.to, answer.reply) {
                (To::All, Reply::All { data, .. }) => {
                    given[rank as usize] = exchanged;
                    let all: Vec<Vec<u8>> = given.iter_mut().map(|one| one.take().expect("each has given")).collect();
                    assert_eq!(all, data);
                    rounds += 1;
                }
                (To::All, Reply::Passed { .. }) => {
                    given.fill(None);
                    rounds += 1;
                }
                (To::One(to), Reply::Welcome { rank: told, .. }) => assert_eq!((to, told), (rank, rank)),
                (To::One(to), Reply::Bye) => assert_eq!(to, rank),
                (to, reply) => panic!("{reply:?} to {to:?}"),
            },
            Err(fault) => return end(&fault, rounds),
        }
    }
    rounds
}

/// Mostly the round that is due: of others the books end the job.
fn round(number: u8, due: u64) -> u32 {
    if number.is_multiple_of(8) { u32::from(number) } else { u32::try_from(due).unwrap_or(u32::MAX) }
}

fn end(fault: &weir_job::ranks::Fault, rounds: u64) -> u64 {
    assert!(fault.code != 0 && !fault.reason.chars().any(char::is_control), "{fault:?}");
    rounds
}

/// Both, from one input.
pub fn run(data: &[u8]) {
    parsers(data);
    if let Ok(asked) = Asked::arbitrary_take_rest(Unstructured::new(data)) {
        books(&asked);
    }
}
