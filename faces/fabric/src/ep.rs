//! The endpoint object, as the data transfer calls (`msg`, `tagged`, `rma`, `atomic`) need it. It
//! is made, bound and set by `ep_calls`.

use crate::abi::*;
use crate::av::Av;
use crate::cntr::Cntr;
use crate::cq::Cq;
use crate::domain::Domain;
use crate::ep_core::EpCore;
use crate::handle::{Begins, Handle};
use crate::table::NONE;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use weir_engine::SendMode;

/// The endpoint object.
#[repr(C)]
pub struct EpObj {
    /// The handle.
    pub fid: FidEp,
    /// What is shared with the queues.
    pub core: Arc<EpCore>,
    /// Enabled: operations may be posted.
    pub enabled: bool,
    /// Asked for with `FI_ATOMIC`.
    pub atomic: bool,
    /// The source address of receives counts (`FI_DIRECTED_RECV`).
    pub directed: bool,
    /// Sends and remote operations complete only as their flags say.
    pub tx_selective: bool,
    /// Receives complete only as their flags say.
    pub rx_selective: bool,
    /// Default flags of sends and receives. These and the options below may be set while other
    /// threads send and receive.
    pub tx_flags: AtomicU64,
    pub rx_flags: AtomicU64,
    pub min_multi_recv: AtomicUsize,
    pub inject_size: AtomicUsize,
    pub max_msg_size: AtomicUsize,
    pub av: Option<Arc<Av>>,
    pub tx_cq: Option<Arc<Cq>>,
    /// Receives complete there.
    pub rx_cq: Option<Arc<Cq>>,
    pub cntrs: Vec<Arc<Cntr>>,
    /// The kinds of operations that these count.
    pub counted: u64,
    pub domain: Arc<Domain>,
}

// SAFETY: `repr(C)`, the handle first; `open` gives it its class.
unsafe impl Begins for FidEp {
    type Object = EpObj;
    const CLASS: usize = FI_CLASS_EP;
}

impl EpObj {
    /// The object, for calls that need an enabled endpoint.
    ///
    /// # Errors
    /// `FI_EINVAL` for null, `FI_EOPBADSTATE` before `fi_enable`.
    #[inline]
    pub fn ready(fid: &Handle<FidEp>) -> Result<&EpObj, i32> {
        let ep = fid.get()?;
        if ep.enabled { Ok(ep) } else { Err(FI_EOPBADSTATE) }
    }

    /// The same, for calls that need an endpoint that was asked for with `FI_ATOMIC`.
    ///
    /// # Errors
    /// The same, and `FI_ENOSYS` for other endpoints.
    pub fn atomic(fid: &Handle<FidEp>) -> Result<&EpObj, i32> {
        let ep = EpObj::ready(fid)?;
        if ep.atomic { Ok(ep) } else { Err(FI_ENOSYS) }
    }

    /// The engine's peer for a destination.
    ///
    /// # Errors
    /// `FI_EINVAL` when there is no such address.
    #[inline]
    pub fn peer(&self, address: u64) -> Result<u32, i32> {
        match self.core.forward.get(address) {
            NONE => Err(FI_EINVAL),
            peer => Ok(peer as u32),
        }
    }

    /// The engine's peer for a receive, if the source counts at all.
    ///
    /// # Errors
    /// As for [`EpObj::peer`].
    #[inline]
    pub fn source(&self, address: u64) -> Result<Option<u32>, i32> {
        if !self.directed || address == FI_ADDR_UNSPEC { Ok(None) } else { self.peer(address).map(Some) }
    }

    /// Whether a send with these flags reports success.
    #[inline]
    pub fn tx_reports(&self, flags: u64) -> bool {
        !self.tx_selective || flags & FI_COMPLETION != 0
    }

    /// Whether a receive with these flags reports success.
    #[inline]
    pub fn rx_reports(&self, flags: u64) -> bool {
        !self.rx_selective || flags & FI_COMPLETION != 0
    }

    /// Default flags of sends.
    #[inline]
    pub fn tx_flags(&self) -> u64 {
        self.tx_flags.load(Relaxed)
    }

    /// Default flags of receives.
    #[inline]
    pub fn rx_flags(&self) -> u64 {
        self.rx_flags.load(Relaxed)
    }

    /// Report success of sends and remote operations without flags.
    #[inline]
    pub fn tx_report(&self) -> bool {
        self.tx_reports(self.tx_flags())
    }

    /// Report success of receives without flags.
    #[inline]
    pub fn rx_report(&self) -> bool {
        self.rx_reports(self.rx_flags())
    }

    /// Least room in a multi-receive buffer, bytes.
    #[inline]
    pub fn min_multi_recv(&self) -> usize {
        self.min_multi_recv.load(Relaxed)
    }

    /// Largest injected message, bytes.
    #[inline]
    pub fn inject_size(&self) -> usize {
        self.inject_size.load(Relaxed)
    }

    /// Largest message, bytes.
    #[inline]
    pub fn max_msg_size(&self) -> usize {
        self.max_msg_size.load(Relaxed)
    }
}

/// The engine's notion of when a send is complete.
///
/// Without a level, and with `FI_INJECT_COMPLETE`, reusable memory is enough.
/// `FI_TRANSMIT_COMPLETE` promises that the send no longer depends on this side, which only an
/// acknowledgement does. `FI_INJECT` says what becomes of the memory, not when the send completes,
/// so a level beside it counts.
#[inline]
pub fn mode_of(flags: u64) -> SendMode {
    if flags & FI_MATCH_COMPLETE != 0 {
        SendMode::Match
    } else if flags & FI_DELIVERY_COMPLETE != 0 {
        SendMode::Delivery
    } else if flags & FI_TRANSMIT_COMPLETE != 0 {
        SendMode::Acknowledged
    } else if flags & FI_INJECT != 0 {
        SendMode::Inject
    } else {
        SendMode::Transmit
    }
}
