//! Lines for people, on standard error.

/// One line for the user, whatever the log level: something he has to put right. The same line is
/// not repeated.
pub fn complain(line: &str) {
    static SAID: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let mut said = SAID.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if said.iter().any(|s| s == line) || said.len() >= 64 {
        return;
    }
    said.push(line.to_owned());
    say(&mut std::io::stderr(), line);
}

/// Lines of the trace or the counters, to standard error.
pub fn write_out(text: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
}

/// In one write, lest lines of ranks mix. Not `eprintln`, which panics when nobody reads standard
/// error any more.
fn say(to: &mut impl std::io::Write, line: &str) {
    let _ = to.write_all(format!("weir: {line}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_write() {
        struct Writes(Vec<String>);
        impl std::io::Write for Writes {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.push(String::from_utf8_lossy(bytes).into_owned());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut to = Writes(Vec::new());
        say(&mut to, "what happened");
        assert_eq!(to.0, ["weir: what happened\n"]);
    }
}
