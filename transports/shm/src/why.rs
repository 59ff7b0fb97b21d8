//! Why an endpoint has no shared memory with a peer, or not all of it, one line each: `weir doctor`
//! prints them.

use serde::Serialize;

/// Why there is no association by shared memory, or why it is over. The caller goes by another
/// carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Nobody listens at the peer's name.
    #[error("no such endpoint on this host and in this network namespace")]
    Elsewhere,
    /// The peer, or who took its name, is another user.
    #[error("the peer runs as another user")]
    OtherUser,
    /// The proof does not fit our key.
    #[error("the peer has another job key")]
    WrongKey,
    /// Another version of `spec/shm.md`.
    #[error("the peer's Weir shares memory in another version")]
    OtherVersion,
    /// `memfd_create` or `mmap` failed.
    #[error("the system gives no memory to share (memfd_create, mmap)")]
    NoMemory,
    /// `RLIMIT_FSIZE` is less than the memory has.
    #[error("the limit of file sizes is below the memory to share (ulimit -f)")]
    FileSize,
    /// `F_ADD_SEALS` failed.
    #[error("the system does not seal memory (F_ADD_SEALS)")]
    NoSeals,
    /// The memory passed is not as it must be.
    #[error("the memory passed has another size or other seals than it must have")]
    BadMemory,
    /// Out of descriptors.
    #[error("no file descriptor is free (ulimit -n)")]
    NoDescriptors,
    /// [`Config::max_peers`](crate::Config::max_peers), on either side.
    #[error("one side has as many peers as it takes")]
    TooManyPeers,
    /// [`Config::handshake_ns`](crate::Config::handshake_ns) went by.
    #[error("the peer did not answer in time; it may be stopped")]
    TimedOut,
    /// A message of the handshake was none, or the connection failed in its midst.
    #[error("the peer broke off, or does not keep to the handshake")]
    BadHandshake,
    /// The peer has an association with an endpoint of our id.
    #[error("the peer has an association with this endpoint already")]
    Already,
    /// The peer has closed; what it sent before can be read.
    #[error("the peer has closed")]
    Closed,
    /// The process has ended, or closed its socket without a word; what it published before can be
    /// read.
    #[error("the peer's process has ended")]
    Died,
    /// What the peer wrote into the shared memory cannot be.
    #[error("the peer wrote nonsense into the shared memory")]
    Corrupt,
}

/// Why an endpoint cannot listen at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The abstract name is in use.
    #[error("another socket has this endpoint's name: an id used twice?")]
    NameTaken,
    /// No randomness for nonces.
    #[error("the system's random source failed")]
    Random,
    /// A call failed.
    #[error("{call} failed: {cause}")]
    System {
        /// Which.
        call: &'static str,
        /// The system's answer.
        cause: std::io::Error,
    },
}

/// Why the peer's memory cannot be read directly; large messages go through the ring then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum NoPull {
    /// Not asked for ([`Config::pull`](crate::Config::pull)).
    #[error("reading another process's memory is switched off")]
    Off,
    /// EPERM, and `kernel.yama.ptrace_scope` is above 0.
    #[error(
        "not permitted to read the peer's memory: kernel.yama.ptrace_scope is above 0; sysctl kernel.yama.ptrace_scope=0 permits it"
    )]
    Yama,
    /// EPERM without Yama: a container, other capabilities, a process that may not be dumped.
    #[error("not permitted to read the peer's memory: a container's rules, or a process that cannot be traced")]
    NotPermitted,
    /// The peer has no number in our pid namespace.
    #[error("the peer is in another pid namespace")]
    OtherPidNamespace,
    /// The word read is not the one told: the number is another process's here, or the peer is a
    /// forked copy.
    #[error("the peer's process number leads to another process")]
    OtherProcess,
    /// The call is not there.
    #[error("the system has no process_vm_readv")]
    NoSystemCall,
}
