//! The frames between a rank and the local launcher (`spec/launch.md` 3): bytes to values and back,
//! nothing else.

use std::fmt;

/// Version of the frames; launcher and library of one installation have the same.
pub const VERSION: u16 = 1;
/// Longest piece of data that a rank gives to an exchange.
pub const BLOB_MAX_BYTES: usize = 4096;
/// Longest text in a frame: a job's name, a reason, what a rank says when it aborts. Longer ones
/// are cut.
pub const TEXT_MAX_BYTES: usize = 1024;
/// Most ranks the local launcher starts.
pub const RANKS_MAX: usize = 4096;
/// Longest frame to the launcher.
pub const REQUEST_MAX_BYTES: usize = BLOB_MAX_BYTES + 64;
/// Longest frame to a rank: an exchange's data of all of them.
pub const REPLY_MAX_BYTES: usize = RANKS_MAX * (BLOB_MAX_BYTES + 4) + 64;

/// What a rank says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first frame.
    Join {
        /// [`VERSION`] of the library.
        version: u16,
    },
    /// This rank's part of exchange number `round`.
    Exchange {
        /// Exchanges and fences are counted together, from 0.
        round: u32,
        /// At most [`BLOB_MAX_BYTES`].
        data: Vec<u8>,
    },
    /// This rank has come to fence number `round`.
    Fence {
        /// As in [`Request::Exchange`].
        round: u32,
    },
    /// The whole job is to end.
    Abort {
        /// Exit code of the job.
        code: i32,
        /// For people.
        message: String,
    },
    /// This rank is done, and may end when it likes.
    Finalize,
}

/// What the launcher says.
#[derive(Clone, PartialEq, Eq)]
pub enum Reply {
    /// Answer to [`Request::Join`].
    Welcome {
        /// This process's number.
        rank: u32,
        /// How many there are.
        size: u32,
        /// The job's key.
        key: [u8; crate::KEY_BYTES],
        /// The job's name.
        id: String,
    },
    /// The data of all ranks, by rank.
    All {
        /// The exchange.
        round: u32,
        /// One each.
        data: Vec<Vec<u8>>,
    },
    /// All have come to the fence.
    Passed {
        /// The fence.
        round: u32,
    },
    /// Answer to [`Request::Finalize`].
    Bye,
}

impl fmt::Debug for Reply {
    /// Without the key, which would end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Welcome { rank, size, id, .. } => write!(f, "Welcome({rank} of {size}, {id})"),
            Reply::All { round, data } => write!(f, "All({round}, {} ranks)", data.len()),
            Reply::Passed { round } => write!(f, "Passed({round})"),
            Reply::Bye => f.write_str("Bye"),
        }
    }
}

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is beyond what such a frame may have.
    #[error("a frame of {0} bytes")]
    Length(u64),
    /// No such frame.
    #[error("a frame of kind {0}")]
    Kind(u8),
    /// It ends too early, or too late, or a part of it is out of bounds.
    #[error("a damaged frame of kind {0}")]
    Damaged(u8),
}

/// Length in front of each frame.
pub const HEAD_BYTES: usize = 4;

/// Takes the first frame's body off `bytes`, and says how many bytes it and its head have; `None`:
/// more is to come.
///
/// # Errors
/// If it says to be longer than `max_bytes`.
pub fn split(bytes: &[u8], max_bytes: usize) -> Result<Option<(&[u8], usize)>, FrameError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    if length == 0 || length > max_bytes {
        return Err(FrameError::Length(length as u64));
    }
    Ok(rest.get(..length).map(|body| (body, HEAD_BYTES + length)))
}

impl Request {
    /// The frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Request::Join { version } => frame(1, |out| out.extend(version.to_le_bytes())),
            Request::Exchange { round, data } => frame(2, |out| {
                out.extend(round.to_le_bytes());
                out.extend(data.get(..BLOB_MAX_BYTES).unwrap_or(data));
            }),
            Request::Fence { round } => frame(3, |out| out.extend(round.to_le_bytes())),
            Request::Abort { code, message } => frame(4, |out| {
                out.extend(code.to_le_bytes());
                out.extend(cut(message).bytes());
            }),
            Request::Finalize => frame(5, |_| {}),
        }
    }

    /// From a frame's body.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(body: &[u8]) -> Result<Self, FrameError> {
        let (kind, mut rest) = Rest::of(body)?;
        let request = match kind {
            1 => Request::Join { version: u16::from_le_bytes(rest.take()?) },
            2 => Request::Exchange { round: rest.u32()?, data: rest.all(BLOB_MAX_BYTES)?.to_vec() },
            3 => Request::Fence { round: rest.u32()? },
            4 => Request::Abort { code: i32::from_le_bytes(rest.take()?), message: rest.text()? },
            5 => Request::Finalize,
            other => return Err(FrameError::Kind(other)),
        };
        rest.end().map(|()| request)
    }
}

impl Reply {
    /// The frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Reply::Welcome { rank, size, key, id } => frame(129, |out| {
                out.extend(rank.to_le_bytes());
                out.extend(size.to_le_bytes());
                out.extend(key);
                out.extend(cut(id).bytes());
            }),
            Reply::All { round, data } => frame(130, |out| {
                out.extend(round.to_le_bytes());
                for one in data {
                    let one = one.get(..BLOB_MAX_BYTES).unwrap_or(one);
                    out.extend(u32::try_from(one.len()).unwrap_or(0).to_le_bytes());
                    out.extend(one);
                }
            }),
            Reply::Passed { round } => frame(131, |out| out.extend(round.to_le_bytes())),
            Reply::Bye => frame(132, |_| {}),
        }
    }

    /// From a frame's body.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(body: &[u8]) -> Result<Self, FrameError> {
        let (kind, mut rest) = Rest::of(body)?;
        let reply = match kind {
            129 => Reply::Welcome { rank: rest.u32()?, size: rest.u32()?, key: rest.take()?, id: rest.text()? },
            130 => Reply::All { round: rest.u32()?, data: rest.blobs()? },
            131 => Reply::Passed { round: rest.u32()? },
            132 => Reply::Bye,
            other => return Err(FrameError::Kind(other)),
        };
        rest.end().map(|()| reply)
    }
}

/// What is left of a body.
struct Rest<'a> {
    kind: u8,
    bytes: &'a [u8],
}

impl<'a> Rest<'a> {
    fn of(body: &'a [u8]) -> Result<(u8, Self), FrameError> {
        let (kind, bytes) = body.split_first().ok_or(FrameError::Length(0))?;
        Ok((*kind, Rest { kind: *kind, bytes }))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (first, rest) = self.bytes.split_first_chunk().ok_or(FrameError::Damaged(self.kind))?;
        self.bytes = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn all(&mut self, max_bytes: usize) -> Result<&'a [u8], FrameError> {
        if self.bytes.len() > max_bytes {
            return Err(FrameError::Damaged(self.kind));
        }
        Ok(std::mem::take(&mut self.bytes))
    }

    fn text(&mut self) -> Result<String, FrameError> {
        Ok(String::from_utf8_lossy(self.all(TEXT_MAX_BYTES)?).into_owned())
    }

    fn blobs(&mut self) -> Result<Vec<Vec<u8>>, FrameError> {
        let mut all = Vec::new();
        while !self.bytes.is_empty() {
            let length = self.u32()? as usize;
            if length > BLOB_MAX_BYTES || length > self.bytes.len() || all.len() == RANKS_MAX {
                return Err(FrameError::Damaged(self.kind));
            }
            let (one, rest) = self.bytes.split_at(length);
            all.push(one.to_vec());
            self.bytes = rest;
        }
        Ok(all)
    }

    fn end(self) -> Result<(), FrameError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(FrameError::Damaged(self.kind)) }
    }
}

fn frame(kind: u8, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 0, kind];
    fill(&mut out);
    let length = u32::try_from(out.len() - HEAD_BYTES).unwrap_or(u32::MAX);
    out[..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    out
}

/// As much of a text as a frame holds.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> impl Strategy<Value = Request> {
        prop_oneof![
            any::<u16>().prop_map(|version| Request::Join { version }),
            (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..100))
                .prop_map(|(round, data)| Request::Exchange { round, data }),
            any::<u32>().prop_map(|round| Request::Fence { round }),
            (any::<i32>(), ".{0,50}").prop_map(|(code, message)| Request::Abort { code, message }),
            Just(Request::Finalize),
        ]
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let blobs = proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..20);
        prop_oneof![
            (any::<u32>(), any::<u32>(), any::<[u8; 32]>(), ".{0,50}")
                .prop_map(|(rank, size, key, id)| Reply::Welcome { rank, size, key, id }),
            (any::<u32>(), blobs).prop_map(|(round, data)| Reply::All { round, data }),
            any::<u32>().prop_map(|round| Reply::Passed { round }),
            Just(Reply::Bye),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(request in requests(), reply in replies()) {
            let bytes = request.to_bytes();
            let (body, used) = split(&bytes, REQUEST_MAX_BYTES).unwrap().unwrap();
            prop_assert_eq!((Request::parse(body).unwrap(), used), (request, bytes.len()));
            let bytes = reply.to_bytes();
            let (body, used) = split(&bytes, REPLY_MAX_BYTES).unwrap().unwrap();
            prop_assert_eq!((Reply::parse(body).unwrap(), used), (reply, bytes.len()));
        }

        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(request) = Request::parse(&bytes) {
                prop_assert_eq!(Request::parse(&request.to_bytes()[HEAD_BYTES..]).unwrap(), request);
            }
            if let Ok(reply) = Reply::parse(&bytes) {
                prop_assert_eq!(Reply::parse(&reply.to_bytes()[HEAD_BYTES..]).unwrap(), reply);
            }
            if let Ok(Some((body, used))) = split(&bytes, 100) {
                prop_assert!(body.len() <= 100 && used <= bytes.len());
            }
        }

        #[test]
        fn a_frame_that_is_cut_is_waited_for(request in requests(), part in 0.0..1.0) {
            let bytes = request.to_bytes();
            let cut = ((bytes.len() as f64) * part) as usize;
            prop_assert_eq!(split(&bytes[..cut], REQUEST_MAX_BYTES).unwrap(), None);
        }
    }

    #[test]
    fn what_is_too_long_is_cut_or_refused() {
        let long = Request::Abort { code: 1, message: "ü".repeat(TEXT_MAX_BYTES) }.to_bytes();
        assert!(long.len() < REQUEST_MAX_BYTES && Request::parse(&long[HEAD_BYTES..]).is_ok());
        assert_eq!(split(&u32::MAX.to_le_bytes(), REPLY_MAX_BYTES), Err(FrameError::Length(u32::MAX.into())));
        assert_eq!(split(&[0; 4], REPLY_MAX_BYTES), Err(FrameError::Length(0)));
    }
}
