//! What a driver of connections is lent: streams of bytes, and the messages that use them.

use core::net::SocketAddr;

use weir_link::{BulkNews, BulkRecord, Endpoint, GREETING_LEN, PeerId, RecordIn, Time};

/// The connection is over, whoever ended it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Broken;

/// Why there is no connection. `W`: what the system says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NotMade<W> {
    /// Something is lacking here, which says nothing of the network.
    Lacking,
    /// The network or the peer did not have it.
    Refused(W),
}

/// What is waited for on a stream.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Interest {
    /// That it can be written to, or has failed: it is being made.
    Made,
    /// That there is something to read.
    Read,
    /// That, or room to write.
    ReadOrRoom,
}

/// What reading brought.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// So many bytes of payload, and behind it so many in the stage; perhaps none.
    Bytes {
        /// Of the payload, in its place or thrown away.
        payload: usize,
        /// In the stage: none before all of the payload.
        staged: usize,
        /// Another call may find more, or the end. False where what was offered was not filled, and
        /// what comes later, the end too, is told as new: a call is spared.
        more: bool,
    },
    /// The peer will write nothing more.
    End,
}

/// What the head of a record, which has come, says.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Head {
    /// It is none, or against the rules.
    Wrong,
    /// The record may begin.
    Good,
    /// The same; and something sent here is complete by it. Who waited for that may want to post a
    /// receive first.
    Answers,
}

/// Streams of bytes to peers, and the messages of the endpoint that has them.
///
/// The methods that have a body here do what every user does; who keeps books does more.
pub trait Surroundings {
    /// One connection.
    type Stream;
    /// What the system says when a connection is not to be had.
    type Why: Copy;

    // Streams.

    /// The next connection that somebody made, if there is one.
    fn accept(&mut self, now: Time) -> Option<Self::Stream>;

    /// Begins to connect; see [`Surroundings::is_connected`].
    ///
    /// # Errors
    /// Why not.
    fn connect(&mut self, news: &BulkNews) -> Result<Self::Stream, NotMade<Self::Why>>;

    /// Whether it stands by now.
    ///
    /// # Errors
    /// Why it never will.
    fn is_connected(&mut self, stream: &mut Self::Stream) -> Result<bool, Self::Why>;

    /// Ends it both ways.
    fn close(&mut self, stream: Self::Stream);

    /// Begins to watch a stream under this key. False: that is not to be had.
    fn watch(&mut self, _stream: &Self::Stream, _key: u64, _interest: Interest) -> bool {
        true
    }

    /// Something else is waited for on a stream that is watched.
    fn watch_for(&mut self, _stream: &Self::Stream, _key: u64, _interest: Interest) {}

    /// Tells the keys of those that have what is waited for; not necessarily all. False: nobody
    /// knows, and each is to be tried.
    fn ready(&mut self, _found: impl FnMut(u64)) -> bool {
        false
    }

    /// Where the peer's end is. None: not connected (any more).
    fn remote(&self, stream: &Self::Stream) -> Option<SocketAddr>;

    /// Segments that the network lost since the stream was made, as far as the system tells.
    ///
    /// # Errors
    /// It is over.
    fn lost_segments(&self, stream: &Self::Stream) -> Result<u32, Broken>;

    /// Writes what there is room for: `head`, and behind it the record's payload from its byte
    /// `done` on. 0: no room.
    ///
    /// # Errors
    /// It is over; or the payload is not there any more, for its send was given up.
    fn write(
        &mut self,
        stream: &mut Self::Stream,
        head: &[u8],
        payload: Option<(&BulkRecord, u32)>,
    ) -> Result<usize, Broken>;

    /// Appends the payload of a record to `bytes`.
    ///
    /// # Errors
    /// It is not there any more, for its send was given up.
    fn payload(&mut self, record: &BulkRecord, bytes: &mut alloc::vec::Vec<u8>) -> Result<(), Broken>;

    /// Reads what is there: the rest of a peer's record, from its byte `done` on, into its place,
    /// and what is behind it into the stage. A part of the payload that nobody wants is thrown
    /// away.
    ///
    /// # Errors
    /// It is over.
    fn read(
        &mut self,
        stream: &mut Self::Stream,
        payload: Option<(PeerId, &RecordIn, u32)>,
        stage: &mut [u8],
    ) -> Result<Read, Broken>;

    // What is above.

    /// The associations.
    fn endpoint(&self) -> &Endpoint;

    /// The same.
    fn endpoint_mut(&mut self) -> &mut Endpoint;

    /// What is read of connections is about to be taken (true), or was (false).
    fn takes(&mut self, _begins: bool) {}

    /// A head has come on this bulk connection of the peer's.
    fn record_tells(&mut self, now: Time, peer: PeerId, bulk: u32, head: &[u8]) -> Head;

    /// The record begins. None: it may not.
    fn record_begins(&mut self, now: Time, peer: PeerId, bulk: u32, head: &[u8]) -> Option<RecordIn>;

    /// A message has come in one record, its payload with it: the record begins and ends. False: it
    /// may not.
    fn record_whole(&mut self, now: Time, peer: PeerId, bulk: u32, bytes: &[u8], head_len: usize) -> bool;

    /// Puts a part of its payload in place, from its byte `done` on.
    fn put(&mut self, peer: PeerId, record: &RecordIn, done: u32, bytes: &[u8]);

    /// All of it is in its place.
    fn record_ends(&mut self, now: Time, peer: PeerId, bulk: u32, record: &RecordIn);

    /// What goes next by this bulk connection, its head appended to `head`, in which the records
    /// that go before it may stand.
    fn next_record(
        &mut self,
        now: Time,
        peer: PeerId,
        bulk: u32,
        head: &mut alloc::vec::Vec<u8>,
    ) -> Option<BulkRecord> {
        self.endpoint_mut().bulk_next(now, peer, bulk, head)
    }

    // The life of a bulk connection.

    /// What to greet this peer with, and the new bulk connection's number. None: it is not wanted
    /// any more.
    fn greeting(&mut self, peer: PeerId) -> Option<(u32, [u8; GREETING_LEN])> {
        self.endpoint_mut().bulk_greeting(peer)
    }

    /// Somebody greets: who, the bulk connection's number, and what to answer. None: nobody who
    /// may.
    fn greeted(&mut self, now: Time, bytes: &[u8; GREETING_LEN]) -> Option<(PeerId, u32, [u8; GREETING_LEN])> {
        self.endpoint_mut().bulk_greeted(now, bytes)
    }

    /// The peer's bulk connection is up.
    fn is_up(&mut self, _peer: PeerId, _bulk: u32) {}

    /// The peer's bulk connection, up or greeted with, is over.
    fn is_over(&mut self, now: Time, peer: PeerId, bulk: u32) {
        self.endpoint_mut().bulk_over(now, peer, bulk);
    }

    /// A connection to this peer was made.
    fn answers_tcp(&mut self, _peer: PeerId) {}

    /// This peer, who answers packets, does not answer TCP there. `why`: none if it was silent.
    fn no_tcp(&mut self, _peer: PeerId, _to: SocketAddr, _why: Option<Self::Why>) {}
}
