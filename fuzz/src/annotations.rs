//! Any text as a program with directives: no panic; what is read becomes a model whose jumps stay
//! in its code.

use weir_annotations::OpKind::{Choose, Jump, JumpUnless, LoopBegin, LoopEnd};
use weir_annotations::{Setting, Source, parse};

/// Reads bytes as a program; whether it is one.
pub fn run(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data);
    let Ok(parsed) = parse(&[Source { name: "fuzzed.c", text: &text }]) else { return false };
    for numprocs in [1, 5] {
        let Ok(prepared) = parsed.program.model(&Setting { numprocs, ..Setting::default() }) else { continue };
        let ops = &prepared.model.ops;
        for op in ops {
            let targets = match &op.kind {
                Jump(to) | JumpUnless(_, to) | LoopEnd(to) => vec![*to],
                Choose(branches) => branches.iter().map(|(_, to)| *to).collect(),
                LoopBegin(l) => vec![l.exit],
                _ => vec![],
            };
            assert!(targets.iter().all(|to| (*to as usize) < ops.len()), "a jump out of the code");
        }
    }
    true
}
