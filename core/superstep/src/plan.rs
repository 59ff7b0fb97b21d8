//! One process's part of a superstep, as the reduction told it.

use alloc::vec::Vec;

use crate::Order;

/// So many bytes to or from one process.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The other process.
    pub rank: u32,
    /// Bytes of payload. 0: nothing, and the flow need not be named at all.
    pub bytes: u64,
}

/// What a process sends and gets in one superstep, each in the order of service. Made from counts
/// in any order; a process named twice has the sum.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// What it sends.
    pub out: Vec<Flow>,
    /// What it gets.
    pub inn: Vec<Flow>,
}

impl Plan {
    /// The part of process `me` of `p`. Flows of no bytes, to itself, and to who is no process are
    /// left out.
    #[must_use]
    pub fn new(order: Order, me: u32, p: u32, out: &[Flow], inn: &[Flow]) -> Plan {
        let sorted = |flows: &[Flow], step: &dyn Fn(u32) -> u32| {
            let mut flows: Vec<Flow> =
                flows.iter().filter(|f| f.bytes > 0 && f.rank != me && f.rank < p).copied().collect();
            flows.sort_by_key(|f| (step(f.rank), f.rank));
            flows.dedup_by(|b, a| {
                let same = a.rank == b.rank;
                if same {
                    a.bytes = a.bytes.saturating_add(b.bytes);
                }
                same
            });
            flows
        };
        Plan { out: sorted(out, &|to| order.step_of(me, to, p)), inn: sorted(inn, &|from| order.step_of(from, me, p)) }
    }

    /// Bytes sent, and got: the larger of both over all processes is the superstep's h.
    #[must_use]
    pub fn h(&self) -> (u64, u64) {
        let sum = |flows: &[Flow]| flows.iter().fold(0u64, |s, f| s.saturating_add(f.bytes));
        (sum(&self.out), sum(&self.inn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(rank: u32, bytes: u64) -> Flow {
        Flow { rank, bytes }
    }

    #[test]
    fn a_plan_is_in_the_order_of_service_and_holds_nothing_idle() {
        let counts = [flow(0, 5), flow(1, 0), flow(3, 7), flow(2, 9), flow(0, 1), flow(9, 1)];
        let plan = Plan::new(Order::Cyclic, 2, 4, &counts, &counts);
        assert_eq!(plan.out, [flow(3, 7), flow(0, 6)]);
        assert_eq!(plan.inn, [flow(0, 6), flow(3, 7)]);
        assert_eq!(plan.h(), (13, 13));
    }
}
