//! Makes a failing scenario smaller while it fails in the same way.

use crate::scenario::Scenario;
use crate::spec::LinkSpec;
use crate::work::Workload;

/// Runs of one search at most.
const TRIES_MAX: u32 = 3000;

/// Shrinks `s`; `judge` names the way a scenario fails, `None` if it does not. `None` if `s` itself
/// does not fail.
pub fn shrink(s: Scenario, judge: impl Fn(&Scenario) -> Option<String>) -> Option<Scenario> {
    let kind = judge(&s)?;
    let mut best = s;
    let mut tries = 0;
    loop {
        let mut progress = false;
        for change in changes(&best) {
            let mut candidate = best.clone();
            change(&mut candidate);
            if candidate == best {
                continue;
            }
            tries += 1;
            if judge(&candidate).as_ref() == Some(&kind) {
                best = candidate;
                progress = true;
            }
            if tries >= TRIES_MAX {
                return Some(best);
            }
        }
        if !progress {
            return Some(best);
        }
    }
}

type Change = Box<dyn Fn(&mut Scenario)>;

/// Simplifications to try, the big ones first.
fn changes(s: &Scenario) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    if let Workload::Traffic(t) = &s.work {
        let n = t.messages.len();
        let mut size = n.div_ceil(2);
        while size > 0 && n > 0 {
            for start in (0..n).step_by(size) {
                all.push(Box::new(move |s| {
                    if let Workload::Traffic(t) = &mut s.work {
                        let end = (start + size).min(t.messages.len());
                        if start < end {
                            t.messages.drain(start..end);
                        }
                    }
                }));
            }
            size /= 2;
        }
        for i in 0..n {
            all.push(Box::new(move |s| {
                if let Workload::Traffic(t) = &mut s.work
                    && let Some(m) = t.messages.get_mut(i)
                {
                    m.len /= 2;
                }
            }));
        }
    }
    for i in (0..s.net.faults.len()).rev() {
        all.push(Box::new(move |s| {
            if i < s.net.faults.len() {
                s.net.faults.remove(i);
            }
        }));
    }
    if s.net.networks.len() > 1 {
        all.push(Box::new(|s| {
            s.net.networks.pop();
        }));
    }
    let link_changes: [fn(&mut LinkSpec); 8] = [
        |l| l.loss = 0,
        |l| l.burst = None,
        |l| l.duplicate = 0,
        |l| l.reorder = 0,
        |l| l.corrupt = 0,
        |l| l.jitter_ns = 0,
        |l| l.delay_ns = 1000,
        |l| l.rate_bits_per_s = 1_000_000_000,
    ];
    for change in link_changes {
        for i in 0..s.net.networks.len() {
            all.push(Box::new(move |s| change(&mut s.net.networks[i].up)));
            all.push(Box::new(move |s| change(&mut s.net.networks[i].down)));
        }
    }
    all.push(Box::new(|s| s.net.host = crate::spec::HostSpec::default()));
    all.push(Box::new(|s| {
        if let Workload::Traffic(t) = &mut s.work {
            t.remote.clear();
        }
    }));
    all.push(Box::new(|s| {
        if let Workload::Traffic(t) = &mut s.work {
            t.remote.pop();
        }
    }));
    all.push(Box::new(|s| s.endpoint.bulk_connections = None));
    all.push(Box::new(|s| s.net.host.tcp.breaks = 0));
    all.push(Box::new(|s| s.net.host.tcp.refuses = 0));
    all.push(Box::new(|s| {
        let (bulk_connections, patience) = (s.endpoint.bulk_connections.take(), s.endpoint.patience);
        s.endpoint =
            crate::scenario::EndpointSpec { bulk_connections, patience, ..crate::scenario::EndpointSpec::default() };
    }));
    all.push(Box::new(|s| {
        // Less patience would make a death that is none.
        let patience = s.endpoint.patience;
        s.endpoint = crate::scenario::EndpointSpec { patience, ..crate::scenario::EndpointSpec::default() };
    }));
    all.push(Box::new(|s| {
        for n in &mut s.net.networks {
            n.switch = crate::spec::SwitchSpec::default();
            n.topology = crate::spec::Topology::Star;
        }
    }));
    all.push(Box::new(|s| {
        let used = if let Workload::Traffic(t) = &s.work {
            {
                let remote = t.remote.iter().map(|r| r.from.max(r.op.to) + 1);
                t.messages.iter().map(|m| m.from.max(m.to) + 1).chain(remote).max()
            }
        } else {
            None
        };
        let faulty = s.net.faults.iter().map(|f| crate::spec::fault_host(&f.fault).map_or(0, |h| h + 1)).max();
        if let Some(used) = used {
            s.net.hosts = used.max(faulty.unwrap_or(0)).max(2);
        }
    }));
    all
}
