//! What can be set of BSPlib itself, by `WEIR_BSP_*`; everything else is the engine's.
#![forbid(unsafe_code)]

use crate::tuning::MOST_SLOT_US;
use std::path::PathBuf;
use weir_engine::OwnQueue;

/// In which order a process serves the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Rows of a Latin square: in each step everybody sends to another one.
    Latin,
    /// 0, 1, 2, ...: for comparison.
    Ascending,
    /// Another order in each superstep, by chance.
    Random,
}

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Look for wrong use that costs time to find (`WEIR_BSP_CHECK`). That of process 0 counts.
    pub check: bool,
    /// `WEIR_BSP_ORDER`.
    pub order: Order,
    /// What may be buffered in a superstep, bytes, of what leaves and of what arrives each
    /// (`WEIR_BSP_MEMORY`); none: a share of the machine's memory.
    pub memory: Option<u64>,
    /// Unbuffered puts and gets of so many bytes go without a copy (`WEIR_BSP_HP_BYTES`). 8 KiB: a
    /// message of its own costs about as much as copying that twice.
    pub hp_bytes: usize,
    /// Processes of one host meet on a board in shared memory (`WEIR_BSP_BOARD`), if all of the
    /// program are there.
    pub board: bool,
    /// What may wait in this host's interface while packets carry much of a superstep
    /// (`WEIR_BSP_QUEUE`: auto, system, or bytes). `weir tune` finds the best.
    pub queue: Option<OwnQueue>,
    /// Supersteps of which packets carry much go in slots of so many nanoseconds, as on a medium
    /// that all processes share (`WEIR_BSP_SLOT`, in microseconds).
    pub slot_ns: Option<u64>,
    /// Where the ledger of supersteps goes (`WEIR_BSP_LEDGER`).
    pub ledger: Option<PathBuf>,
    /// Where a trace for viewers goes (`WEIR_TRACE`, if it is no number: that is the engine's).
    pub trace: Option<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            check: false,
            order: Order::Latin,
            memory: None,
            hp_bytes: 8 << 10,
            board: true,
            queue: None,
            slot_ns: None,
            ledger: None,
            trace: None,
        }
    }
}

/// Whether a value of `WEIR_TRACE` is the engine's: a level.
#[must_use]
pub fn is_level(value: &str) -> bool {
    value.trim().parse::<u64>().is_ok()
}

impl Settings {
    /// Reads them through `get`.
    ///
    /// # Errors
    /// One line about the first that cannot be understood.
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let mut settings = Settings::default();
        let bad = |name: &str, value: &str, what: &str| Err(format!("{name}: '{}' is {what}", value.escape_debug()));
        for (name, setting) in [("WEIR_BSP_CHECK", &mut settings.check), ("WEIR_BSP_BOARD", &mut settings.board)] {
            let Some(value) = get(name) else { continue };
            *setting = match value.trim() {
                "1" | "on" => true,
                "0" | "off" => false,
                _ => return bad(name, &value, "neither 1 nor 0"),
            };
        }
        if let Some(value) = get("WEIR_BSP_ORDER") {
            settings.order = match value.trim() {
                "latin" => Order::Latin,
                "ascending" => Order::Ascending,
                "random" => Order::Random,
                _ => return bad("WEIR_BSP_ORDER", &value, "none of latin, ascending, random"),
            };
        }
        if let Some(value) = get("WEIR_BSP_MEMORY") {
            let Some(bytes) = bytes_of(&value) else {
                return bad("WEIR_BSP_MEMORY", &value, "no number of bytes such as 512M or 4G");
            };
            settings.memory = Some(bytes);
        }
        if let Some(value) = get("WEIR_BSP_HP_BYTES") {
            let bytes = bytes_of(&value).and_then(|bytes| usize::try_from(bytes).ok());
            let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else {
                return bad("WEIR_BSP_HP_BYTES", &value, "no number of bytes such as 8K");
            };
            settings.hp_bytes = bytes;
        }
        if let Some(value) = get("WEIR_BSP_QUEUE") {
            settings.queue = match value.parse() {
                Ok(queue) => Some(queue),
                Err(what) => return bad("WEIR_BSP_QUEUE", &value, what),
            };
        }
        if let Some(value) = get("WEIR_BSP_SLOT") {
            let slot_us = value.trim().parse().ok().filter(|us| (1..=MOST_SLOT_US).contains(us));
            let Some(slot_us) = slot_us else {
                return bad("WEIR_BSP_SLOT", &value, "no number of microseconds from 1 to 1000000");
            };
            settings.slot_ns = Some(slot_us * 1000);
        }
        settings.ledger = get("WEIR_BSP_LEDGER").map(PathBuf::from);
        settings.trace = get("WEIR_TRACE").filter(|value| !is_level(value)).map(PathBuf::from);
        Ok(settings)
    }

    /// Names of settings that look like these and are none.
    #[must_use]
    pub fn unknown(names: impl Iterator<Item = String>) -> Vec<String> {
        const KNOWN: [&str; 11] =
            ["CHECK", "ORDER", "MEMORY", "HP_BYTES", "BOARD", "QUEUE", "SLOT", "LEDGER", "RANK", "SIZE", "MEET"];
        let is_unknown = |name: &String| name.strip_prefix("WEIR_BSP_").is_some_and(|rest| !KNOWN.contains(&rest));
        let mut unknown: Vec<String> = names.filter(is_unknown).collect();
        unknown.sort_unstable();
        unknown
    }
}

/// A number of bytes, with K, M or G behind it for powers of 1024.
fn bytes_of(value: &str) -> Option<u64> {
    let value = value.trim();
    let (digits, shift) = match value.chars().last()?.to_ascii_uppercase() {
        'K' => (&value[..value.len() - 1], 10),
        'M' => (&value[..value.len() - 1], 20),
        'G' => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Settings, String> {
        Settings::read(&|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn values_are_read_or_refused_by_name() {
        assert_eq!(with("WEIR_BSP_MEMORY", "4G").map(|s| s.memory), Ok(Some(4 << 30)));
        assert_eq!(with("WEIR_BSP_HP_BYTES", " 64k ").map(|s| s.hp_bytes), Ok(64 << 10));
        assert_eq!(with("WEIR_BSP_ORDER", "random").map(|s| s.order), Ok(Order::Random));
        assert_eq!(with("WEIR_BSP_QUEUE", "64K").map(|s| s.queue), Ok(Some(OwnQueue::Bytes(64 << 10))));
        assert_eq!(with("WEIR_BSP_SLOT", "1250 ").map(|s| s.slot_ns), Ok(Some(1_250_000)));
        assert_eq!(with("WEIR_BSP_CHECK", "1").map(|s| s.check), Ok(true));
        assert_eq!(with("WEIR_BSP_BOARD", "off").map(|s| s.board), Ok(false));
        assert_eq!(with("WEIR_TRACE", "2").map(|s| s.trace), Ok(None));
        assert_eq!(with("WEIR_TRACE", "t.json").map(|s| s.trace), Ok(Some("t.json".into())));
        for (name, value) in [
            ("WEIR_BSP_CHECK", "yes"),
            ("WEIR_BSP_BOARD", "2"),
            ("WEIR_BSP_ORDER", "\n"),
            ("WEIR_BSP_MEMORY", "99999999999G"),
            ("WEIR_BSP_MEMORY", ""),
            ("WEIR_BSP_HP_BYTES", "0"),
            ("WEIR_BSP_QUEUE", "1"),
            ("WEIR_BSP_SLOT", "0"),
            ("WEIR_BSP_SLOT", "1250us"),
            ("WEIR_BSP_SLOT", "1000001"),
        ] {
            let error = with(name, value).expect_err("must be refused");
            assert!(error.starts_with(name) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn misspelt_settings_are_found() {
        let names = ["WEIR_BSP_CHEK", "WEIR_BSP_CHECK", "PATH", "WEIR_BSP_RANK"].map(str::to_owned);
        assert_eq!(Settings::unknown(names.into_iter()), ["WEIR_BSP_CHEK"]);
    }
}
