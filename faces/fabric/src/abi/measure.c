/* Prints the size and the offsets of libfabric's structures as installed, for tests/headers.rs to compare with the record. */
#include <stddef.h>
#include <stdio.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <rdma/providers/fi_prov.h>

#define SIZE(t) printf("size %s %zu\n", #t, sizeof(struct t))
#define FIELD(t, f) printf("field %s.%s %zu\n", #t, #f, offsetof(struct t, f))

int main(void)
{
	SIZE(fi_provider); SIZE(fi_info); SIZE(fi_tx_attr); SIZE(fi_rx_attr); SIZE(fi_fabric_attr); SIZE(fi_av_attr); SIZE(fi_eq_attr);
	SIZE(fi_msg); SIZE(fi_msg_tagged); SIZE(fi_msg_rma); SIZE(fi_rma_iov); SIZE(fi_cq_tagged_entry); SIZE(fi_eq_entry); SIZE(fi_eq_err_entry);
	SIZE(fid); SIZE(fid_fabric); SIZE(fid_domain); SIZE(fid_av); SIZE(fid_cq); SIZE(fid_cntr); SIZE(fid_ep); SIZE(fid_eq); SIZE(fid_mr);
	SIZE(fi_ops_msg); SIZE(fi_ops_tagged); SIZE(fi_ops_rma); SIZE(fi_ops_cm); SIZE(fi_ops_eq); SIZE(fi_ops_mr); SIZE(fi_ops_fabric); SIZE(fi_ops_atomic);
	SIZE(fi_ops_collective); SIZE(fi_ioc); SIZE(fi_rma_ioc); SIZE(fi_msg_atomic); SIZE(fi_atomic_attr);
	FIELD(fi_msg_atomic, rma_iov); FIELD(fi_msg_atomic, op); FIELD(fi_msg_atomic, context); FIELD(fi_ops_atomic, inject); FIELD(fi_ops_atomic, compwrite);
	FIELD(fi_ops_atomic, compwritevalid); FIELD(fi_ops_domain, query_atomic);
	FIELD(fi_provider, name); FIELD(fi_provider, getinfo); FIELD(fi_provider, cleanup);
	FIELD(fi_info, src_addr); FIELD(fi_info, handle); FIELD(fi_info, nic);
	FIELD(fi_tx_attr, inject_size); FIELD(fi_tx_attr, tclass); FIELD(fi_rx_attr, iov_limit);
	FIELD(fi_ep_attr, max_msg_size); FIELD(fi_ep_attr, mem_tag_format); FIELD(fi_ep_attr, auth_key);
	FIELD(fi_domain_attr, data_progress); FIELD(fi_domain_attr, mr_mode); FIELD(fi_domain_attr, mr_iov_limit); FIELD(fi_domain_attr, mr_cnt);
	FIELD(fi_domain_attr, tclass); FIELD(fi_cq_attr, format); FIELD(fi_cq_attr, wait_cond); FIELD(fi_cntr_attr, flags); FIELD(fi_mr_attr, context);
	FIELD(fi_mr_attr, auth_key_size); FIELD(fi_mr_attr, iface); FIELD(fi_mr_attr, device);
	FIELD(fi_cq_err_entry, olen); FIELD(fi_cq_err_entry, err_data); FIELD(fi_cq_err_entry, err_data_size);
	FIELD(fi_ops_domain, endpoint); FIELD(fi_ops_domain, cntr_open); FIELD(fi_ops_domain, endpoint2);
	FIELD(fi_ops_av, straddr); FIELD(fi_ops_cq, strerror); FIELD(fi_ops_cntr, seterr); FIELD(fi_ops_ep, setopt); FIELD(fi_ops_ep, tx_size_left);
	printf("value FI_CLASS_CNTR %d\nvalue FI_CLASS_AV %d\n", FI_CLASS_CNTR, FI_CLASS_AV);
	printf("value FI_ENABLE %d\nvalue FI_GETWAIT %d\nvalue FI_GETWAITOBJ %d\n", FI_ENABLE, FI_GETWAIT, FI_GETWAITOBJ);
	printf("value FI_ETRUNC %d\nvalue FI_EAVAIL %d\nvalue FI_ENOAV %d\n", FI_ETRUNC, FI_EAVAIL, FI_ENOAV);
	printf("value FI_THREAD_DOMAIN %d\nvalue FI_THREAD_ENDPOINT %d\nvalue FI_CQ_FORMAT_TAGGED %d\n", FI_THREAD_DOMAIN, FI_THREAD_ENDPOINT, FI_CQ_FORMAT_TAGGED);
	printf("value FI_WAIT_FD %d\nvalue FI_WAIT_YIELD %d\nvalue FI_PROGRESS_MANUAL %d\n", FI_WAIT_FD, FI_WAIT_YIELD, FI_PROGRESS_MANUAL);
	printf("value FI_DIRECTED_RECV %llu\nvalue FI_SELECTIVE_COMPLETION %llu\nvalue FI_MATCH_COMPLETE %llu\n", FI_DIRECTED_RECV, FI_SELECTIVE_COMPLETION, FI_MATCH_COMPLETE);
	printf("value FI_ENOEQ %d\nvalue FI_RMA_EVENT %llu\n", FI_ENOEQ, FI_RMA_EVENT);
	printf("value FI_ATOMIC %llu\nvalue FI_FETCH_ATOMIC %llu\nvalue FI_COMPARE_ATOMIC %llu\n", FI_ATOMIC, FI_FETCH_ATOMIC, FI_COMPARE_ATOMIC);
	printf("value FI_UINT64 %d\nvalue FI_DOUBLE %d\nvalue FI_BXOR %d\nvalue FI_ATOMIC_WRITE %d\nvalue FI_CSWAP %d\nvalue FI_MSWAP %d\n", FI_UINT64, FI_DOUBLE, FI_BXOR, FI_ATOMIC_WRITE, FI_CSWAP, FI_MSWAP);
	return 0;
}
