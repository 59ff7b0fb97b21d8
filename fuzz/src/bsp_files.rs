//! Files of `weir bsp`: ledgers of a run and measured parameters.

use weir_bsp_tool::ledger;
use weir_bsp_tool::params::Params;
use weir_bsp_tool::summary::summary;

/// Reads bytes as both; whether they were one of them.
pub fn run(data: &[u8]) -> bool {
    let ledger = ledger::read_from(data, "fuzzed");
    if let Ok(profile) = &ledger {
        let told = summary(profile, None);
        assert_eq!(told.total.supersteps as usize, profile.steps.len());
    }
    let params = Params::parse(data, "fuzzed");
    if let Ok(params) = &params {
        let again = Params::parse(params.text().as_bytes(), "again");
        assert_eq!(again.as_ref().ok(), Some(params), "written otherwise than read");
        assert!(params.costs(2).is_some());
    }
    ledger.is_ok() || params.is_ok()
}
