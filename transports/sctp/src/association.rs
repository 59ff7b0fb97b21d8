//! One association: a socket of the library, the packets that it wants moved, what it has received.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::sync::PoisonError;

use crate::library::{Address, Functions, NoSctp, Outbox, Socket, drop_outbox, functions, new_outbox};
use crate::{BUFFER_BYTES, MESSAGE_MAX};

// Of the library's header; those of libc's are the system's.
const AF_CONN: c_int = 123;
const SCTP_RTOINFO: c_int = 0x01;
const SCTP_INITMSG: c_int = 0x03;
const SCTP_NODELAY: c_int = 0x04;
const SCTP_PEER_ADDR_PARAMS: c_int = 0x0a;
const SCTP_DELAYED_SACK: c_int = 0x0f;
const SCTP_EVENT: c_int = 0x1e;
const SCTP_RECVRCVINFO: c_int = 0x1f;
const SCTP_STATUS: c_int = 0x100;
const SCTP_ASSOC_CHANGE: u16 = 1;
const SCTP_COMM_UP: u16 = 1;
const SCTP_RECVV_RCVINFO: c_uint = 1;
const SCTP_SENDV_SNDINFO: c_uint = 1;
const MSG_NOTIFICATION: c_int = 0x2000;
const MSG_EOR: c_int = 0x80;
const SPP_HB_DISABLE: u32 = 2;
const SPP_PMTUD_DISABLE: u32 = 0x10;

/// SCTP's common header, which the library does not count into what a packet may hold.
const COMMON_HEADER_BYTES: u32 = 12;
/// A SACK may wait so long for something to go with it, or for a second packet, ms.
const SACK_DELAY_MS: u32 = 10;
/// The first retransmission timer is at least so long, ms.
const RTO_FIRST_MIN_MS: u32 = 100;
/// The longest is so many times the least: 60 s where that is RFC 9260's second.
const RTO_MAX_TIMES: u32 = 60;

#[repr(C)]
#[derive(Default)]
struct InitMsg {
    out_streams: u16,
    in_streams: u16,
    attempts: u16,
    timeout: u16,
}

#[repr(C)]
#[derive(Default)]
struct RtoInfo {
    association: u32,
    initial: u32,
    max: u32,
    min: u32,
}

#[repr(C)]
#[derive(Default)]
struct SackInfo {
    association: u32,
    delay: u32,
    every: u32,
}

#[repr(C)]
struct Event {
    association: u32,
    kind: u16,
    on: u8,
}

#[repr(C)]
struct PeerAddrParams {
    address: libc::sockaddr_storage,
    association: u32,
    heartbeat_interval: u32,
    path_mtu: u32,
    flags: u32,
    flow_label: u32,
    path_retries: u16,
    dscp: u8,
}

#[repr(C)]
struct Status {
    association: u32,
    state: i32,
    window: u32,
    unacked: u16,
    pending: u16,
    in_streams: u16,
    out_streams: u16,
    fragmentation_point: u32,
    primary: [u64; 19],
}

#[repr(C)]
#[derive(Default)]
struct SndInfo {
    stream: u16,
    flags: u16,
    ppid: u32,
    context: u32,
    association: u32,
}

#[repr(C)]
#[derive(Default)]
struct RcvInfo {
    stream: u16,
    ssn: u16,
    flags: u16,
    ppid: u32,
    tsn: u32,
    cumulative_tsn: u32,
    context: u32,
    association: u32,
}

/// How an association is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Streams wanted each way.
    pub streams: u16,
    /// Least retransmission timer, ms (RFC 9260: 1000).
    pub rto_min_ms: u32,
    /// Longest packet, bytes, SCTP's common header included.
    pub packet_bytes: u16,
}

/// What an association has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing, for now.
    Nothing,
    /// It is up, with so many streams from here.
    Up {
        /// How many.
        streams: u16,
    },
    /// A user message came; it is in the caller's buffer.
    Message {
        /// By which stream.
        stream: u16,
        /// Payload protocol identifier.
        ppid: u32,
    },
    /// It is over.
    Over(Ended),
}

/// Why an association is over.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The other end has ended it, or SCTP has found it gone.
    #[error("the association was ended by the other end, or lost")]
    Lost,
    /// It could not be made.
    #[error("the association could not be made")]
    NotMade,
    /// A user message was longer than [`MESSAGE_MAX`].
    #[error("a user message was too long")]
    TooLong,
}

/// Why a message was not taken.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no room now.
    Full,
    /// The association is over, or not up.
    Over,
}

/// An association, or one that is being made.
#[derive(Debug)]
pub struct Association {
    functions: Fns,
    /// Null: closed.
    socket: Socket,
    id: usize,
    outbox: Outbox,
    remote_port: u16,
    up: bool,
    over: bool,
    /// What has come of a message that the library hands over in parts.
    partial: Vec<u8>,
    buffer: Box<[u8]>,
}

/// The functions, for `Debug`.
struct Fns(&'static Functions);

impl std::fmt::Debug for Fns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("usrsctp")
    }
}

// SAFETY: the socket is a handle that the library locks itself, whichever thread calls; it belongs
// to this value alone, whose calls take `&mut self`.
unsafe impl Send for Association {}

impl Association {
    /// Begins to make an association between two ports, both chosen by the caller. Both ends do
    /// this at once: the collision of their INITs makes one association (RFC 9260, 5.2).
    ///
    /// # Errors
    /// There is no library; or what it refused.
    pub fn open(local_port: u16, remote_port: u16, config: &Config) -> io::Result<Association> {
        let functions = functions().map_err(|error: NoSctp| io::Error::new(io::ErrorKind::NotFound, error))?;
        let (id, outbox) = new_outbox();
        let mut association = Association {
            functions: Fns(functions),
            socket: std::ptr::null_mut(),
            id,
            outbox,
            remote_port,
            up: false,
            over: false,
            partial: Vec::new(),
            buffer: vec![0; MESSAGE_MAX].into(),
        };
        // SAFETY: the id is no pointer to the library, only compared.
        unsafe { (functions.register)(id as *mut c_void) };
        // SAFETY: no callbacks are given.
        association.socket = unsafe {
            let none = std::ptr::null();
            (functions.open)(AF_CONN, libc::SOCK_STREAM, libc::IPPROTO_SCTP, none, none, 0, std::ptr::null_mut())
        };
        if association.socket.is_null() {
            return Err(io::Error::last_os_error());
        }
        association.configure(config)?;
        let mut local = association.address(local_port);
        let mut remote = association.address(remote_port);
        let len = size_of::<Address>() as libc::socklen_t;
        // SAFETY: both addresses are valid for their length; the socket is open and does not block.
        let result = unsafe {
            match (functions.bind)(association.socket, &raw mut local, len) {
                0 => (functions.connect)(association.socket, &raw mut remote, len),
                error => error,
            }
        };
        let error = io::Error::last_os_error();
        if result != 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
            return Err(error);
        }
        association.set_packet_bytes(config.packet_bytes)?;
        Ok(association)
    }

    fn address(&self, port: u16) -> Address {
        Address { family: AF_CONN as u16, port: port.to_be(), id: self.id as *mut c_void }
    }

    fn configure(&self, config: &Config) -> io::Result<()> {
        // SAFETY: the socket is open.
        if unsafe { (self.functions.0.non_blocking)(self.socket, 1) } < 0 {
            return Err(io::Error::last_os_error());
        }
        for buffer in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
            self.set(libc::SOL_SOCKET, buffer, &(BUFFER_BYTES as c_int))?;
        }
        // To close is to abort: what is not known to have arrived is the caller's to send again.
        self.set(libc::SOL_SOCKET, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 })?;
        let sctp = libc::IPPROTO_SCTP;
        let init = InitMsg { out_streams: config.streams, in_streams: config.streams.max(65), ..InitMsg::default() };
        self.set(sctp, SCTP_INITMSG, &init)?;
        self.set(sctp, SCTP_NODELAY, &1 as &c_int)?;
        self.set(sctp, SCTP_RECVRCVINFO, &1 as &c_int)?;
        self.set(sctp, SCTP_EVENT, &Event { association: 0, kind: SCTP_ASSOC_CHANGE, on: 1 })?;
        self.set(sctp, SCTP_DELAYED_SACK, &SackInfo { association: 0, delay: SACK_DELAY_MS, every: 2 })?;
        let min = config.rto_min_ms;
        let rto =
            RtoInfo { association: 0, initial: min.max(RTO_FIRST_MIN_MS), max: min.saturating_mul(RTO_MAX_TIMES), min };
        self.set(sctp, SCTP_RTOINFO, &rto)
    }

    /// Longest packet from now on, bytes, SCTP's common header included.
    ///
    /// # Errors
    /// What the library refused.
    pub fn set_packet_bytes(&self, bytes: u16) -> io::Result<()> {
        // SAFETY: plain bytes, all of which may be zero.
        let mut params: PeerAddrParams = unsafe { std::mem::zeroed() };
        let address = self.address(self.remote_port);
        // SAFETY: `sockaddr_storage` has room for every address, and is aligned for it.
        unsafe { (&raw mut params.address).cast::<Address>().write(address) };
        params.path_mtu = u32::from(bytes).saturating_sub(COMMON_HEADER_BYTES);
        params.flags = SPP_PMTUD_DISABLE | SPP_HB_DISABLE;
        self.set(libc::IPPROTO_SCTP, SCTP_PEER_ADDR_PARAMS, &params)
    }

    fn set<T>(&self, level: c_int, name: c_int, value: &T) -> io::Result<()> {
        if self.socket.is_null() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let len = size_of::<T>() as libc::socklen_t;
        // SAFETY: the socket is open; `value` is as long as said, and of the option's type.
        let result =
            unsafe { (self.functions.0.set_option)(self.socket, level, name, (&raw const *value).cast(), len) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// A packet came for it.
    pub fn packet(&mut self, packet: &[u8]) {
        // SAFETY: the bytes are copied; the id is registered as long as this value lives.
        unsafe { (self.functions.0.input)(self.id as *mut c_void, packet.as_ptr().cast(), packet.len(), 0) };
    }

    /// The next packet that is to go, if there is one.
    pub fn next_packet(&mut self) -> Option<Vec<u8>> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Whether there is one.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        !self.outbox.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Sends a user message.
    ///
    /// # Errors
    /// Why it was not taken; nothing of it was then.
    pub fn send(&mut self, stream: u16, ppid: u32, message: &[u8]) -> Result<(), SendError> {
        if self.socket.is_null() || !self.up || self.over {
            return Err(SendError::Over);
        }
        let mut info = SndInfo { stream, ppid: ppid.to_be(), ..SndInfo::default() };
        // SAFETY: the socket is open; the message is copied; `info` is of the type that is named.
        let sent = unsafe {
            (self.functions.0.sendv)(
                self.socket,
                message.as_ptr().cast(),
                message.len(),
                std::ptr::null(),
                0,
                (&raw mut info).cast(),
                size_of::<SndInfo>() as libc::socklen_t,
                SCTP_SENDV_SNDINFO,
                0,
            )
        };
        if sent >= 0 {
            return Ok(());
        }
        let full =
            matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM));
        Err(if full { SendError::Full } else { SendError::Over })
    }

    /// What it has to tell; a message is put into `message`, in place of what was there. Call until
    /// there is nothing.
    pub fn receive(&mut self, message: &mut Vec<u8>) -> Received {
        loop {
            if self.socket.is_null() || self.over {
                return Received::Nothing;
            }
            let mut info = RcvInfo::default();
            let mut info_len = size_of::<RcvInfo>() as libc::socklen_t;
            let (mut kind, mut flags): (c_uint, c_int) = (0, 0);
            // SAFETY: the socket is open; every buffer is as long as said.
            let read = unsafe {
                (self.functions.0.recvv)(
                    self.socket,
                    self.buffer.as_mut_ptr().cast(),
                    self.buffer.len(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    (&raw mut info).cast(),
                    &raw mut info_len,
                    &raw mut kind,
                    &raw mut flags,
                )
            };
            if read < 0 {
                let again = match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => true,
                    Some(libc::ENOTCONN) => !self.up,
                    _ => false,
                };
                return if again { Received::Nothing } else { self.ends(self.why()) };
            }
            if read == 0 {
                return self.ends(self.why());
            }
            let part = &self.buffer[..read as usize];
            if flags & MSG_NOTIFICATION != 0 {
                match told(part) {
                    Some(Told::Up(streams)) => {
                        self.up = true;
                        return Received::Up { streams };
                    }
                    Some(Told::Over) => return self.ends(self.why()),
                    None => continue,
                }
            }
            if self.partial.len() + part.len() > MESSAGE_MAX || kind != SCTP_RECVV_RCVINFO {
                return self.ends(Ended::TooLong);
            }
            self.partial.extend_from_slice(part);
            if flags & MSG_EOR != 0 {
                std::mem::swap(&mut self.partial, message);
                self.partial.clear();
                return Received::Message { stream: info.stream, ppid: u32::from_be(info.ppid) };
            }
        }
    }

    fn why(&self) -> Ended {
        if self.up { Ended::Lost } else { Ended::NotMade }
    }

    fn ends(&mut self, why: Ended) -> Received {
        self.over = true;
        Received::Over(why)
    }

    /// DATA chunks that wait to be sent, or for a SACK.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        if self.socket.is_null() || !self.up || self.over {
            return 0;
        }
        // SAFETY: plain numbers, all of which may be zero.
        let mut status: Status = unsafe { std::mem::zeroed() };
        let mut len = size_of::<Status>() as libc::socklen_t;
        // SAFETY: the socket is open; `status` is as long as said.
        let result = unsafe {
            let to = (&raw mut status).cast();
            (self.functions.0.get_option)(self.socket, libc::IPPROTO_SCTP, SCTP_STATUS, to, &raw mut len)
        };
        if result < 0 { 0 } else { u32::from(status.unacked) + u32::from(status.pending) }
    }

    /// Ends it: the other end is told by an ABORT, which is among the packets that are to go.
    /// In a child made by fork(2) nothing is done: it is its parent's.
    pub fn close(&mut self) {
        let socket = std::mem::replace(&mut self.socket, std::ptr::null_mut());
        if !socket.is_null() && functions().is_ok() {
            // SAFETY: it is open, and named nowhere any more.
            unsafe { (self.functions.0.close)(socket) };
        }
    }
}

impl Drop for Association {
    fn drop(&mut self) {
        self.close();
        if functions().is_ok() {
            // SAFETY: it was registered, once.
            unsafe { (self.functions.0.deregister)(self.id as *mut c_void) };
            drop_outbox(self.id);
        }
    }
}

/// What a notification says.
enum Told {
    Up(u16),
    Over,
}

/// `struct sctp_assoc_change`.
fn told(notification: &[u8]) -> Option<Told> {
    let word = |at: usize| notification.get(at..at + 2).map(|b| u16::from_ne_bytes([b[0], b[1]]));
    if word(0)? != SCTP_ASSOC_CHANGE {
        return None;
    }
    // (A restart is another association to the other end: what it had of this one is gone.)
    Some(if word(8)? == SCTP_COMM_UP { Told::Up(word(12)?) } else { Told::Over })
}
