//! What is offered, as a caller sees it.

use super::*;
use crate::params::MAX_INJECT;

/// A caller's hints on the stack.
struct Asked {
    tx: FiTxAttr,
    rx: FiRxAttr,
    ep: FiEpAttr,
    domain: FiDomainAttr,
    caps: u64,
    mode: u64,
    addr_format: u32,
}

impl Asked {
    fn nothing() -> Asked {
        // SAFETY: zeros are valid in all of these plain structures.
        unsafe { std::mem::zeroed() }
    }

    /// What MPICH 5.0 asks for in its second call.
    fn like_mpich() -> Asked {
        let mut a = Asked::nothing();
        a.caps = CAPS;
        a.mode = (1 << 59) | (1 << 52) | (1 << 57) | (1 << 56);
        a.ep.ep_type = FI_EP_RDM;
        a.ep.mem_tag_format = 0xF800_0000_0000_0000;
        a.domain.threading = FI_THREAD_DOMAIN;
        a.domain.data_progress = FI_PROGRESS_MANUAL;
        a.domain.control_progress = FI_PROGRESS_MANUAL;
        a.domain.resource_mgmt = FI_RM_ENABLED;
        a.domain.av_type = FI_AV_TABLE;
        a.domain.cq_data_size = 4;
        a.tx.op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
        a.tx.msg_order = FI_ORDER_SAS;
        a.rx.op_flags = FI_COMPLETION;
        a.rx.msg_order = FI_ORDER_SAS;
        a
    }

    fn ask(&mut self, version: u32) -> Result<Answer, i32> {
        let hints = FiInfo {
            next: ptr::null_mut(),
            caps: self.caps,
            mode: self.mode,
            addr_format: self.addr_format,
            src_addrlen: 0,
            dest_addrlen: 0,
            src_addr: ptr::null_mut(),
            dest_addr: ptr::null_mut(),
            handle: ptr::null_mut(),
            tx_attr: &raw mut self.tx,
            rx_attr: &raw mut self.rx,
            ep_attr: &raw mut self.ep,
            domain_attr: &raw mut self.domain,
            fabric_attr: ptr::null_mut(),
            nic: ptr::null_mut(),
        };
        Answer::get(version, ptr::null(), ptr::null(), 0, &raw const hints)
    }
}

/// An answer, released when dropped.
struct Answer(*mut FiInfo);

impl Answer {
    fn get(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const FiInfo,
    ) -> Result<Answer, i32> {
        let mut out = ptr::null_mut();
        // SAFETY: texts are null or literals, hints null or complete.
        match unsafe { getinfo(version, node, service, flags, hints, &raw mut out) } {
            0 => Ok(Answer(out)),
            code => Err(-code),
        }
    }

    fn info(&self) -> &FiInfo {
        // SAFETY: getinfo succeeded.
        unsafe { &*self.0 }
    }

    fn domain(&self) -> &FiDomainAttr {
        // SAFETY: complete answers have all parts.
        unsafe { &*self.info().domain_attr }
    }

    fn tx(&self) -> &FiTxAttr {
        // SAFETY: as above.
        unsafe { &*self.info().tx_attr }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: made by getinfo.
        unsafe { release(self.0) };
    }
}

const V2: u32 = fi_version(2, 5);

#[test]
fn atomic_operations_are_for_who_asks() {
    // What Open MPI's btl/ofi asks for.
    let mut a = Asked::nothing();
    a.caps = FI_RMA | FI_ATOMIC;
    a.mode = (1 << 59) | (1 << 52);
    a.ep.ep_type = FI_EP_RDM;
    a.domain.mr_mode = (1 << 2) | (1 << 5) | (1 << 6) | (1 << 10);
    a.tx.iov_limit = 1;
    a.rx.iov_limit = 1;
    a.tx.op_flags = FI_DELIVERY_COMPLETE;
    let answer = a.ask(fi_version(1, 18)).expect("offered");
    assert_eq!(answer.info().caps & (FI_RMA | FI_ATOMIC), FI_RMA | FI_ATOMIC);
    assert_eq!(answer.info().caps & DIRECTIONS_RMA, DIRECTIONS_RMA);
    assert_eq!((answer.domain().mr_mode, answer.tx().op_flags), (0, FI_DELIVERY_COMPLETE));
    assert_eq!(answer.tx().caps & FI_ATOMIC, FI_ATOMIC);
    // Alone, they have all directions too.
    a.caps = FI_ATOMIC;
    assert_eq!(a.ask(V2).expect("offered").info().caps & DIRECTIONS_RMA, DIRECTIONS_RMA);
    // MPICH asks for what it was given without hints.
    assert_eq!(Asked::like_mpich().ask(V2).expect("offered").info().caps & FI_ATOMIC, 0);
}

#[test]
fn without_hints_everything_is_offered() {
    let a = Answer::get(V2, ptr::null(), ptr::null(), 0, ptr::null()).expect("offered");
    let i = a.info();
    assert_eq!(i.caps, CAPS);
    assert!(i.next.is_null() && i.dest_addr.is_null());
    assert_eq!(i.src_addrlen, weir_engine::NAME_BYTES);
    assert_eq!((i.mode, a.domain().mr_mode), (0, 0));
    assert_eq!(a.domain().resource_mgmt, FI_RM_ENABLED);
    // SAFETY: complete.
    assert!(unsafe { (*i.ep_attr).mem_tag_format } >> 63 == 1, "all tag bits may be used");
}

#[test]
fn the_kind_of_address_vector_is_the_callers_choice() {
    for kind in [FI_AV_UNSPEC, FI_AV_MAP, FI_AV_TABLE] {
        let mut asked = Asked::nothing();
        asked.domain.av_type = kind;
        assert_eq!(asked.ask(V2).expect("offered").domain().av_type, kind);
    }
}

#[test]
fn mpich_gets_what_it_never_gives_up() {
    let mut asked = Asked::like_mpich();
    let a = asked.ask(V2).expect("offered");
    assert_eq!(a.domain().threading, FI_THREAD_DOMAIN, "MPICH refuses a provider that answers otherwise");
    assert_eq!(a.domain().data_progress, FI_PROGRESS_MANUAL);
    assert_eq!(a.domain().av_type, FI_AV_TABLE);
    assert_eq!(a.tx().op_flags, FI_COMPLETION | FI_DELIVERY_COMPLETE);
    assert!(a.domain().cq_data_size >= 4);
}

#[test]
fn more_than_is_offered_is_refused() {
    let refusals: [fn(&mut Asked); 16] = [
        |a| a.caps = FI_COLLECTIVE,
        |a| a.ep.ep_type = 1,
        |a| a.ep.protocol = 5,
        |a| a.ep.max_msg_size = usize::MAX,
        |a| a.ep.tx_ctx_cnt = usize::MAX,
        |a| a.tx.msg_order = FI_ORDER_SAS | (1 << 36),
        |a| a.tx.op_flags = FI_COMMIT_COMPLETE,
        |a| a.tx.inject_size = MAX_INJECT + 1,
        |a| a.tx.iov_limit = IOV_LIMIT + 1,
        |a| a.rx.msg_order = 1,
        |a| a.domain.threading = 77,
        |a| a.domain.cq_data_size = 16,
        |a| a.domain.max_ep_srx_ctx = 1,
        |a| a.domain.av_type = -1,
        |a| a.addr_format = 2,
        |a| a.domain.auth_key_size = 8,
    ];
    for (i, change) in refusals.into_iter().enumerate() {
        let mut asked = Asked::like_mpich();
        change(&mut asked);
        assert_eq!(asked.ask(V2).err(), Some(FI_ENODATA), "case {i}");
    }
}

#[test]
fn capabilities_asked_for_bring_their_directions() {
    assert_eq!(granted(FI_TAGGED), FI_TAGGED | DIRECTIONS_MSG | FREE_CAPS);
    assert_eq!(granted(FI_MSG | FI_SEND), FI_MSG | FI_SEND | FREE_CAPS);
    assert_eq!(granted(FI_MSG | FI_SEND) & FI_SOURCE, 0, "costs something, so only when asked for");
    assert_eq!(granted(FI_RMA | FI_SOURCE), FI_RMA | FI_SOURCE | DIRECTIONS_RMA | FREE_CAPS);
}

#[test]
fn old_registration_modes_are_honoured() {
    assert_eq!(mr_mode(V2, 0), 0);
    assert_eq!(mr_mode(V2, 1 << 9), 0, "no requirement is taken up");
    assert_eq!(mr_mode(fi_version(1, 4), 0), FI_MR_SCALABLE);
    assert_eq!(mr_mode(fi_version(1, 4), FI_MR_BASIC), FI_MR_BASIC);
    assert_eq!(mr_mode(fi_version(1, 5), FI_MR_BASIC | FI_MR_SCALABLE), FI_MR_SCALABLE);
}

#[test]
fn a_node_becomes_a_destination_and_a_service_a_source() {
    let a = Answer::get(V2, c"127.0.0.1".as_ptr(), c"5000".as_ptr(), FI_NUMERICHOST, ptr::null()).expect("resolves");
    assert_eq!((a.info().dest_addrlen, a.info().src_addrlen), (weir_engine::NAME_BYTES, weir_engine::NAME_BYTES));
    let a = Answer::get(V2, ptr::null(), c"5000".as_ptr(), FI_SOURCE, ptr::null()).expect("resolves");
    assert_eq!((a.info().dest_addrlen, a.info().src_addrlen), (0, weir_engine::NAME_BYTES));
    assert_eq!(
        Answer::get(V2, c"no such host".as_ptr(), ptr::null(), FI_NUMERICHOST, ptr::null()).err(),
        Some(FI_ENODATA)
    );
}

#[test]
fn nowhere_to_put_the_answer_is_an_error() {
    // SAFETY: nulls are allowed.
    assert_eq!(unsafe { getinfo(V2, ptr::null(), ptr::null(), 0, ptr::null(), ptr::null_mut()) }, -FI_EINVAL);
}
