//! Leaves out what no directive asks for: variables that nothing mentions, branches and loops
//! without content.

use std::collections::BTreeSet;

use crate::names::mentioned;
use crate::steps::{Head, Step};

/// Names that something other than an unused `Set` mentions.
#[must_use]
pub fn needed(steps: &[Step]) -> BTreeSet<String> {
    let mut sets = Vec::new();
    let mut needed = BTreeSet::new();
    gather(steps, &mut needed, &mut sets);
    // What a variable that is needed is made of is needed too.
    loop {
        let before = needed.len();
        for (name, value) in &sets {
            if needed.contains(name) {
                mentioned(value, &mut needed);
            }
        }
        if needed.len() == before {
            return needed;
        }
    }
}

fn gather(steps: &[Step], needed: &mut BTreeSet<String>, sets: &mut Vec<(String, String)>) {
    for step in steps {
        match step {
            Step::Set { name, value, .. } => sets.push((name.clone(), value.clone())),
            Step::Message { attributes, .. } => attributes.iter().for_each(|(_, value)| mentioned(value, needed)),
            Step::Loop { head, body, .. } => {
                if body.iter().any(has_content) {
                    match head {
                        Head::Iterations(text) | Head::While(text) => mentioned(text, needed),
                    }
                }
                gather(body, needed, sets);
            }
            Step::Branch { arms, .. } => {
                for arm in arms {
                    if arms.iter().any(|arm| arm.body.iter().any(has_content)) {
                        mentioned(&arm.label, needed);
                    }
                    gather(&arm.body, needed, sets);
                }
            }
            Step::Serial(_) | Step::Skip { .. } | Step::Call { .. } => {}
        }
    }
}

/// Whether a step is more than the setting of variables.
fn has_content(step: &Step) -> bool {
    match step {
        Step::Set { .. } => false,
        Step::Loop { body, .. } => body.iter().any(has_content),
        Step::Branch { arms, .. } => arms.iter().any(|arm| arm.body.iter().any(has_content)),
        _ => true,
    }
}

/// The steps without what is not needed. What decides whether something needed is set, is needed
/// too.
#[must_use]
pub fn pruned(mut steps: Vec<Step>) -> Vec<Step> {
    let mut wanted = needed(&steps);
    loop {
        let before = wanted.len();
        deciding(&steps, &mut wanted);
        let more: BTreeSet<String> = closure(&steps, &wanted);
        wanted.extend(more);
        if wanted.len() == before {
            break;
        }
    }
    retain(&mut steps, &wanted);
    steps
}

/// Conditions around sets of what is wanted.
fn deciding(steps: &[Step], wanted: &mut BTreeSet<String>) -> bool {
    let mut any = false;
    for step in steps {
        any |= match step {
            Step::Set { name, .. } => wanted.contains(name),
            Step::Loop { head, body, .. } => {
                let inside = deciding(body, wanted);
                if inside {
                    match head {
                        Head::Iterations(text) | Head::While(text) => mentioned(text, wanted),
                    }
                }
                inside
            }
            Step::Branch { arms, .. } => {
                let mut inside = false;
                for arm in arms {
                    inside |= deciding(&arm.body, wanted);
                }
                if inside {
                    arms.iter().for_each(|arm| mentioned(&arm.label, wanted));
                }
                inside
            }
            _ => false,
        };
    }
    any
}

fn closure(steps: &[Step], wanted: &BTreeSet<String>) -> BTreeSet<String> {
    let (mut sets, mut unused) = (Vec::new(), BTreeSet::new());
    gather(steps, &mut unused, &mut sets);
    let mut out = BTreeSet::new();
    for (_, value) in sets.iter().filter(|(name, _)| wanted.contains(name)) {
        mentioned(value, &mut out);
    }
    out
}

fn retain(steps: &mut Vec<Step>, wanted: &BTreeSet<String>) {
    for step in steps.iter_mut() {
        match step {
            Step::Loop { body, .. } => retain(body, wanted),
            Step::Branch { arms, .. } => arms.iter_mut().for_each(|arm| retain(&mut arm.body, wanted)),
            _ => {}
        }
    }
    steps.retain(|step| match step {
        Step::Set { name, .. } => wanted.contains(name),
        Step::Loop { body, .. } => !body.is_empty(),
        Step::Branch { arms, .. } => arms.iter().any(|arm| !arm.body.is_empty()),
        _ => true,
    });
}
