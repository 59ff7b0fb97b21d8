//! Which key `bmi_weir` and `bmi_sctp` have here, for people: who has another one is not answered,
//! and is not told why.

use weir_job::Env;

use super::words::Stack;

/// The methods whose peers all have the same key.
const KEYED: [&str; 2] = ["weir", "sctp"];
/// Says that everybody has it (spec/bmi.md V3).
const OPEN: &str = "WEIR_BMI_OPEN";

/// The key's public name and where it is from; nothing for a method that has none.
#[must_use]
pub fn told(stack: &Stack) -> Option<String> {
    KEYED.contains(&stack.method.as_str()).then(|| named(&Env::from_process())).flatten()
}

fn named(env: &Env) -> Option<String> {
    if env.get(OPEN).is_some_and(|value| value == "1") {
        return Some(format!("everybody's key ({OPEN}=1)"));
    }
    // (The library itself says what is wrong with one that cannot be read.)
    let key = weir_job::load_key(env).ok()?;
    Some(format!("key {} (from {})", key.fingerprint(), key.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_by_its_fingerprint_and_never_shown() {
        let secret = "07".repeat(32);
        let told = named(&Env::from_pairs([("WEIR_KEY", secret.as_str())])).unwrap();
        assert_eq!(told, format!("key {} (from WEIR_KEY)", weir_job::fingerprint(&[7; 32])));
        assert!(!told.contains(&secret));
        let open = named(&Env::from_pairs([(OPEN, "1"), ("WEIR_KEY", secret.as_str())]));
        assert_eq!(open.as_deref(), Some("everybody's key (WEIR_BMI_OPEN=1)"));
        assert_eq!(named(&Env::from_pairs([("WEIR_KEY", "no key")])), None);
    }
}
