//! Compares the hand-written types with what libfabric's headers were recorded to say.
//! `tests/headers.rs` compares the record with headers installed.

use super::*;
use std::collections::BTreeMap;
use std::mem::offset_of;

fn parsed(text: &str) -> BTreeMap<String, u64> {
    text.lines()
        .map(|line| {
            let (key, value) = line.rsplit_once(' ').expect("a key and a value");
            (key.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

macro_rules! sizes { ($($c:literal $t:ty),* $(,)?) => { vec![$((concat!("size ", $c).to_owned(), size_of::<$t>() as u64)),*] } }
macro_rules! fields { ($($c:literal $t:ty, $f:ident);* $(;)?) => { vec![$((concat!("field ", $c).to_owned(), offset_of!($t, $f) as u64)),*] } }
macro_rules! values { ($($v:ident),* $(,)?) => { vec![$((concat!("value ", stringify!($v)).to_owned(), $v as u64)),*] } }

fn ours() -> BTreeMap<String, u64> {
    let sizes = sizes! {
        "fi_provider" FiProvider, "fi_info" FiInfo, "fi_tx_attr" FiTxAttr, "fi_rx_attr" FiRxAttr, "fi_fabric_attr" FiFabricAttr, "fi_av_attr" FiAvAttr, "fi_eq_attr" FiEqAttr,
        "fi_msg" FiMsg, "fi_msg_tagged" FiMsgTagged, "fi_msg_rma" FiMsgRma, "fi_rma_iov" FiRmaIov, "fi_cq_tagged_entry" FiCqTaggedEntry, "fi_eq_entry" FiEqEntry,
        "fi_eq_err_entry" FiEqErrEntry, "fid" Fid, "fid_fabric" FidFabric, "fid_domain" FidDomain, "fid_av" FidAv, "fid_cq" FidCq, "fid_cntr" FidCntr, "fid_ep" FidEp, "fid_eq" FidEq,
        "fid_mr" FidMr, "fi_ops_msg" FiOpsMsg, "fi_ops_tagged" FiOpsTagged, "fi_ops_rma" FiOpsRma, "fi_ops_cm" FiOpsCm, "fi_ops_eq" FiOpsEq, "fi_ops_mr" FiOpsMr,
        "fi_ops_fabric" FiOpsFabric, "fi_ops_atomic" FiOpsAtomic, "fi_ops_collective" FiOpsCollective, "fi_ioc" FiIoc, "fi_rma_ioc" FiRmaIoc, "fi_msg_atomic" FiMsgAtomic, "fi_atomic_attr" FiAtomicAttr,
    };
    let fields = fields! {
        "fi_provider.name" FiProvider, name; "fi_provider.getinfo" FiProvider, getinfo; "fi_provider.cleanup" FiProvider, cleanup;
        "fi_info.src_addr" FiInfo, src_addr; "fi_info.handle" FiInfo, handle; "fi_info.nic" FiInfo, nic;
        "fi_tx_attr.inject_size" FiTxAttr, inject_size; "fi_tx_attr.tclass" FiTxAttr, tclass; "fi_rx_attr.iov_limit" FiRxAttr, iov_limit;
        "fi_ep_attr.max_msg_size" FiEpAttr, max_msg_size; "fi_ep_attr.mem_tag_format" FiEpAttr, mem_tag_format; "fi_ep_attr.auth_key" FiEpAttr, auth_key;
        "fi_domain_attr.data_progress" FiDomainAttr, data_progress; "fi_domain_attr.mr_mode" FiDomainAttr, mr_mode; "fi_domain_attr.mr_iov_limit" FiDomainAttr, mr_iov_limit;
        "fi_domain_attr.mr_cnt" FiDomainAttr, mr_cnt; "fi_domain_attr.tclass" FiDomainAttr, tclass;
        "fi_cq_attr.format" FiCqAttr, format; "fi_cq_attr.wait_cond" FiCqAttr, wait_cond; "fi_cntr_attr.flags" FiCntrAttr, flags; "fi_mr_attr.context" FiMrAttr, context;
        "fi_mr_attr.auth_key_size" FiMrAttr, auth_key_size; "fi_mr_attr.iface" FiMrAttr, iface; "fi_mr_attr.device" FiMrAttr, device;
        "fi_cq_err_entry.olen" FiCqErrEntry, olen; "fi_cq_err_entry.err_data" FiCqErrEntry, err_data; "fi_cq_err_entry.err_data_size" FiCqErrEntry, err_data_size;
        "fi_ops_domain.endpoint" FiOpsDomain, endpoint; "fi_ops_domain.cntr_open" FiOpsDomain, cntr_open; "fi_ops_domain.endpoint2" FiOpsDomain, endpoint2;
        "fi_ops_av.straddr" FiOpsAv, straddr; "fi_ops_cq.strerror" FiOpsCq, strerror; "fi_ops_cntr.seterr" FiOpsCntr, seterr;
        "fi_msg_atomic.rma_iov" FiMsgAtomic, rma_iov; "fi_msg_atomic.op" FiMsgAtomic, op; "fi_msg_atomic.context" FiMsgAtomic, context;
        "fi_ops_atomic.inject" FiOpsAtomic, inject; "fi_ops_atomic.compwrite" FiOpsAtomic, compwrite; "fi_ops_atomic.compwritevalid" FiOpsAtomic, compwritevalid;
        "fi_ops_domain.query_atomic" FiOpsDomain, query_atomic; "fi_ops_ep.setopt" FiOpsEp, setopt; "fi_ops_ep.tx_size_left" FiOpsEp, tx_size_left;
    };
    let values = values![
        FI_CLASS_CNTR,
        FI_CLASS_AV,
        FI_ENABLE,
        FI_GETWAIT,
        FI_GETWAITOBJ,
        FI_ETRUNC,
        FI_EAVAIL,
        FI_ENOAV,
        FI_THREAD_DOMAIN,
        FI_THREAD_ENDPOINT,
        FI_CQ_FORMAT_TAGGED,
        FI_WAIT_FD,
        FI_WAIT_YIELD,
        FI_PROGRESS_MANUAL,
        FI_DIRECTED_RECV,
        FI_SELECTIVE_COMPLETION,
        FI_MATCH_COMPLETE,
        FI_ENOEQ,
        FI_RMA_EVENT,
        FI_ATOMIC,
        FI_FETCH_ATOMIC,
        FI_COMPARE_ATOMIC,
        FI_UINT64,
        FI_DOUBLE,
        FI_BXOR,
        FI_ATOMIC_WRITE,
        FI_CSWAP,
        FI_MSWAP,
    ];
    sizes.into_iter().chain(fields).chain(values).collect()
}

/// What `measure.c` said with the headers of libfabric 1.17 and 2.6, which agree on all of it.
const RECORDED: &str = include_str!("recorded.txt");

#[test]
fn the_layouts_are_those_recorded() {
    assert_eq!(parsed(RECORDED), ours());
}

/// What differs between the releases looked at, and so is not in the record, as in the newest; and
/// the rest once more.
#[test]
fn the_sizes_are_those_recorded() {
    assert_eq!(
        (size_of::<FiInfo>(), size_of::<FiTxAttr>(), size_of::<FiRxAttr>(), size_of::<FiEpAttr>()),
        (120, 80, 64, 96)
    );
    assert_eq!((size_of::<FiDomainAttr>(), size_of::<FiFabricAttr>(), size_of::<FiProvider>()), (224, 32, 72));
    assert_eq!(
        (
            size_of::<FiOpsEp>(),
            size_of::<FiOpsCm>(),
            size_of::<FiOpsMsg>(),
            size_of::<FiOpsTagged>(),
            size_of::<FiOpsRma>()
        ),
        (64, 80, 80, 80, 80)
    );
    assert_eq!(
        (
            size_of::<FiOpsAv>(),
            size_of::<FiOpsCq>(),
            size_of::<FiOpsCntr>(),
            size_of::<FiOpsMr>(),
            size_of::<FiOpsDomain>()
        ),
        (88, 64, 64, 32, 96)
    );
    assert_eq!(
        (size_of::<FiCqErrEntry>(), offset_of!(FiCqErrEntry, src_addr), offset_of!(FiCqErrEntry, err_data_size)),
        (88, 80, 72)
    );
    assert_eq!((size_of::<FiMrAttr>(), offset_of!(FiMrAttr, page_size), offset_of!(FiMrAttr, base_mr)), (112, 88, 96));
    assert_eq!(
        (size_of::<FiOps>(), size_of::<FiOpsFabric>(), size_of::<FiOpsAtomic>(), size_of::<FiMsgTagged>()),
        (56, 56, 112, 64)
    );
}
