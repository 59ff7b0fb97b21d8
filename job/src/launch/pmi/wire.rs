//! The lines and frames of PMI, versions 1 and 2 (`spec/launch.md` 4 and 5): bytes to commands and
//! back, nothing else.

/// Longest command that is read. Values have at most some kilobytes.
pub const COMMAND_MAX_BYTES: usize = 64 * 1024;
/// Most attributes of one command.
const PAIRS_MAX: usize = 256;
/// The length in front of each command of version 2.
const LENGTH_BYTES: usize = 6;

/// A command or its answer: a name and attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// What is asked or answered.
    pub name: String,
    /// In the order they stand in.
    pub pairs: Vec<(String, String)>,
}

/// Why bytes are no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// It is longer than any answer.
    #[error("a command of more than {COMMAND_MAX_BYTES} bytes")]
    TooLong,
    /// The length in front is not a number.
    #[error("{0:?} is no length of a command")]
    Length(String),
    /// Not text, or not made of attributes.
    #[error("{0:?} is no command")]
    Form(String),
}

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Lines: `cmd=NAME key=value ...`.
    V1,
    /// A length, then `cmd=NAME;key=value;...`.
    V2,
}

impl Command {
    /// With these attributes.
    pub fn new(name: &str, pairs: &[(&str, &str)]) -> Self {
        let pairs = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Self { name: name.into(), pairs }
    }

    /// An attribute's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// An attribute that is a number.
    pub fn number(&self, key: &str) -> Option<i64> {
        self.get(key)?.trim().parse().ok()
    }

    /// As it goes over the wire. What would end a value early must not be in one: see [`plain`].
    pub fn to_bytes(&self, version: Version) -> Vec<u8> {
        let pair = |(key, value): &(String, String)| format!("{key}={value}");
        let pairs: Vec<String> = self.pairs.iter().map(pair).collect();
        match version {
            Version::V1 => {
                let words = [format!("cmd={}", self.name)].into_iter().chain(pairs).collect::<Vec<_>>();
                (words.join(" ") + "\n").into_bytes()
            }
            Version::V2 => {
                let body: String =
                    std::iter::once(format!("cmd={}", self.name)).chain(pairs).map(|p| p + ";").collect();
                format!("{:<LENGTH_BYTES$}{body}", body.len()).into_bytes()
            }
        }
    }

    /// Takes the first command off `bytes`, and says how many bytes it has; `None`: more is to
    /// come.
    ///
    /// # Errors
    /// If they are none.
    pub fn take(bytes: &[u8], version: Version) -> Result<Option<(Self, usize)>, WireError> {
        let (body, used) = match version {
            Version::V1 => match bytes.iter().take(COMMAND_MAX_BYTES + 1).position(|byte| *byte == b'\n') {
                Some(end) => (&bytes[..end], end + 1),
                None if bytes.len() > COMMAND_MAX_BYTES => return Err(WireError::TooLong),
                None => return Ok(None),
            },
            Version::V2 => {
                let Some((head, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
                let text = String::from_utf8_lossy(head);
                let length: usize = text.trim().parse().map_err(|_| WireError::Length(text.clone().into_owned()))?;
                if length > COMMAND_MAX_BYTES {
                    return Err(WireError::TooLong);
                }
                let Some(body) = rest.get(..length) else { return Ok(None) };
                (body, LENGTH_BYTES + length)
            }
        };
        Self::parse(body, version).map(|command| Some((command, used)))
    }

    fn parse(body: &[u8], version: Version) -> Result<Self, WireError> {
        let separator = if version == Version::V1 { ' ' } else { ';' };
        let wrong = || WireError::Form(String::from_utf8_lossy(body).chars().take(80).collect());
        let text = std::str::from_utf8(body).map_err(|_| wrong())?;
        let mut words =
            text.trim_matches([' ', '\r', '\n', '\0']).split(separator).map(str::trim_start).filter(|w| !w.is_empty());
        let name = words
            .next()
            .and_then(|word| word.strip_prefix("cmd="))
            .filter(|name| !name.is_empty())
            .ok_or_else(wrong)?;
        let mut pairs = Vec::new();
        for word in words {
            // Without a value: a flag. Of version 1's `msg` the rest of the words may belong to the
            // text.
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if pairs.len() == PAIRS_MAX || key.is_empty() {
                return Err(wrong());
            }
            pairs.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self { name: name.to_owned(), pairs })
    }
}

/// A text in which nothing ends a value early: launchers split at blanks or semicolons, and few
/// know an escape.
pub fn plain(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.,:()/+".contains(c);
    text.trim().chars().take(200).map(|c| if fits(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands() -> impl Strategy<Value = Command> {
        let pair = ("[a-z_][a-z0-9_-]{0,9}", "[!-:<-~]{0,20}");
        ("[a-z][a-z_-]{0,12}", proptest::collection::vec(pair, 0..6)).prop_map(|(name, pairs)| Command { name, pairs })
    }

    #[test]
    fn the_lines_of_the_specifications_are_read() {
        let (answer, used) =
            Command::take(b"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\nrest", Version::V1)
                .unwrap()
                .unwrap();
        assert_eq!((answer.name.as_str(), answer.number("pmi_version"), used), ("response_to_init", Some(1), 57));
        let bytes = b"56    cmd=kvs-get-response;rc=0;found=TRUE;value=http://a=b c;....";
        let (answer, used) = Command::take(&bytes[..62], Version::V2).unwrap().unwrap();
        assert_eq!((answer.get("value"), answer.get("found"), used), (Some("http://a=b c"), Some("TRUE"), 62));
        assert_eq!(Command::new("get", &[("key", "k")]).to_bytes(Version::V1), b"cmd=get key=k\n");
        assert_eq!(
            Command::new("fullinit", &[("pmirank", "3")]).to_bytes(Version::V2),
            b"23    cmd=fullinit;pmirank=3;"
        );
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for (bytes, version) in [
            (&b"hello\n"[..], Version::V1),
            (b"cmd=\n", Version::V1),
            (b"cmd=a =b\n", Version::V1),
            (b"\n", Version::V1),
            (b"x    5cmd=a;", Version::V2),
            (b"-1    cmd=a;", Version::V2),
            (b"999999cmd=a;", Version::V2),
            (b"3     abc", Version::V2),
            (b"cmd=\xff\n", Version::V1),
        ] {
            assert!(Command::take(bytes, version).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(Command::take(&vec![b'x'; COMMAND_MAX_BYTES + 1], Version::V1), Err(WireError::TooLong));
    }

    #[test]
    fn a_text_for_people_ends_nothing_early() {
        assert_eq!(plain("rank 3: x=1;\ncmd=finalize é"), "rank_3:_x_1__cmd_finalize__");
        assert_eq!(plain(&"a".repeat(500)).len(), 200);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(command in commands()) {
            for version in [Version::V1, Version::V2] {
                let bytes = command.to_bytes(version);
                prop_assert_eq!(Command::take(&bytes, version).unwrap().unwrap(), (command.clone(), bytes.len()));
                for cut in 0..bytes.len() {
                    prop_assert_eq!(Command::take(&bytes[..cut], version), Ok(None));
                }
            }
        }

        #[test]
        fn any_bytes_are_a_command_or_an_error_or_too_few(bytes in proptest::collection::vec(any::<u8>(), 0..100), v2: bool) {
            let version = if v2 { Version::V2 } else { Version::V1 };
            if let Ok(Some((command, used))) = Command::take(&bytes, version) {
                prop_assert!(used <= bytes.len() && !command.name.is_empty());
            }
        }
    }
}
