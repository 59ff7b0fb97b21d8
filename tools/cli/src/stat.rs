//! `weir stat`: the counters of a running process, or of one that left them in a file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Read;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Uid, User};
use serde_json::Value;
use weir_report::table::clean;

/// Largest document that is read.
const MAX_BYTES: u64 = 64 << 20;
/// How long a process may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// What the engine calls its abstract socket, but for the process's number.
const ADDRESS_START: &str = "weir-stat-";

/// Reads the counters of process `pid`.
///
/// The engine serves them on an abstract Unix socket, which is visible in its network namespace
/// only; a process in another one is visited there.
///
/// # Errors
/// If there is no such process, it does not use Weir, or its namespace may not be entered.
pub fn of_process(pid: u32) -> Result<Value> {
    let theirs = std::fs::metadata(format!("/proc/{pid}")).is_ok();
    if !theirs {
        bail!("no process {pid}");
    }
    enter_namespace_of(pid)?;
    ask(pid, &address(pid), ANSWER_LIMIT)
}

/// That a process which served counters is done with it, in one line; none if it should still do
/// so. It may have ended without anybody having waited for it, or be past its last call of MPI.
pub fn ended(pid: u32) -> Option<String> {
    match state(pid) {
        None | Some('Z' | 'X') => Some(format!("process {pid} has ended")),
        _ if !served().contains(&pid) => Some(format!("process {pid} runs, but has closed its last Weir endpoint")),
        _ => None,
    }
}

/// Whether a process was stopped by a signal or is held by a debugger: it answers nobody.
pub fn is_stopped(pid: u32) -> bool {
    matches!(state(pid), Some('T' | 't'))
}

/// The letter of a process's state, as in proc(5); none if there is no such process.
fn state(pid: u32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name stands in brackets before the state, and may hold brackets too.
    text.rsplit_once(") ")?.1.chars().next()
}

/// The abstract address where a process serves its counters.
pub fn address(pid: u32) -> String {
    format!("{ADDRESS_START}{pid}")
}

/// The processes that serve counters in this network namespace, whoever they belong to.
pub fn served() -> Vec<u32> {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    // The path is the last of the columns; abstract ones begin with @. A connection to a server
    // bears its address too.
    let of = |line: &str| line.split(' ').next_back()?.strip_prefix('@')?.strip_prefix(ADDRESS_START)?.parse().ok();
    let all: BTreeSet<u32> = table.lines().filter_map(of).collect();
    all.into_iter().collect()
}

/// What is served at this abstract address, for `pid`.
///
/// # Errors
/// If nobody is there, or nothing comes in time, or no JSON.
pub fn ask(pid: u32, name: &str, limit: Duration) -> Result<Value> {
    let address = SocketAddr::from_abstract_name(name)?;
    let mut stream = UnixStream::connect_addr(&address)
        .map_err(|_| anyhow::anyhow!("process {pid} serves no counters: it has no Weir endpoint open"))?;
    let text = read_within(&mut stream, limit);
    // Whom the process does not answer it hangs up on, without a word.
    let hung_up = match &text {
        Ok(text) => text.is_empty(),
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    // Nor would it have answered anybody but its owner and root, had it not been stopped.
    let is_silent = text.as_ref().is_err_and(is_late) && !Uid::effective().is_root();
    let owner = getsockopt(&stream, PeerCredentials).map(|who| Uid::from_raw(who.uid()));
    if let Some(why) =
        owner.ok().filter(|_| hung_up || is_silent).and_then(|owner| another_users(pid, owner, Uid::effective()))
    {
        bail!(why);
    }
    let text = text.map_err(|error| not_answered(pid, &error, limit))?;
    serde_json::from_slice(&text).context("the process did not answer with JSON")
}

/// That a process is another user's, and whom it answers.
fn another_users(pid: u32, owner: Uid, asking: Uid) -> Option<String> {
    if owner == asking {
        return None;
    }
    let known = User::from_uid(owner).ok().flatten();
    let name = known.map_or_else(|| owner.to_string(), |user| clean(&user.name));
    Some(format!("process {pid} belongs to user {name}; it shows its counters to that user and root only"))
}

/// Reads to the end, for so long in all: a socket's own limit is for each read, and begins again
/// with each byte.
fn read_within(stream: &mut UnixStream, limit: Duration) -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + limit;
    let (mut text, mut piece) = (Vec::new(), [0; 16 << 10]);
    while (text.len() as u64) < MAX_BYTES {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(text)
}

/// A process serves counters and said nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silent {
    /// It is stopped.
    Stopped,
    /// It is not, and this time was too short for it.
    Late(Duration),
}

impl Silent {
    /// In the place of counters.
    pub fn in_short(self) -> String {
        match self {
            Self::Stopped => "stopped".into(),
            Self::Late(limit) => format!("no answer within {}", time(limit)),
        }
    }
}

impl std::fmt::Display for Silent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => write!(f, "the process is stopped: it answers when it goes on"),
            Self::Late(limit) => {
                let limit = time(*limit);
                write!(
                    f,
                    "the process did not answer within {limit}, and is not stopped; if its host is busy, ask again"
                )
            }
        }
    }
}

/// A limit for people.
fn time(limit: Duration) -> String {
    if limit.subsec_millis() == 0 { format!("{} s", limit.as_secs()) } else { format!("{} ms", limit.as_millis()) }
}

impl std::error::Error for Silent {}

/// Why there is no answer. That the time is over the system calls "temporarily unavailable".
fn not_answered(pid: u32, error: &std::io::Error, limit: Duration) -> anyhow::Error {
    if !is_late(error) {
        return anyhow::anyhow!("the process did not answer: {error}");
    }
    if is_stopped(pid) { Silent::Stopped.into() } else { Silent::Late(limit).into() }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn enter_namespace_of(pid: u32) -> Result<()> {
    let link = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net"));
    let (Ok(theirs), Ok(ours)) = (link(&pid.to_string()), link("self")) else {
        // Another user's process hides its namespaces; its socket may be reachable all the same.
        return Ok(());
    };
    if theirs == ours {
        return Ok(());
    }
    let file = std::fs::File::open(format!("/proc/{pid}/ns/net"))?;
    nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("process {pid} is in another network namespace, and it may not be entered; try: nsenter -t {pid} -U -n weir stat {pid}"))
}

/// Reads counters that a process has written (`WEIR_STATS=FILE`).
///
/// # Errors
/// If the file cannot be read or holds no JSON.
pub fn of_file(path: &Path) -> Result<Value> {
    let mut text = String::new();
    let name = clean(&path.display().to_string());
    let file = std::fs::File::open(path).with_context(|| format!("cannot open {name}"))?;
    file.take(MAX_BYTES).read_to_string(&mut text).with_context(|| format!("cannot read {name}"))?;
    if text.trim().is_empty() {
        bail!("{name} is empty: a process writes its counters when it closes its endpoint, if there is room");
    }
    let value: Value = serde_json::from_str(&text).with_context(|| format!("{name} holds no JSON"))?;
    match missing(&value) {
        None => Ok(value),
        Some(what) => bail!("{name} holds JSON, but no counters of Weir: {what}"),
    }
}

/// What counters have that this document lacks: those of an endpoint, as `WEIR_STATS` writes them,
/// or of a process, as `weir stat --json` does.
fn missing(value: &Value) -> Option<String> {
    let of_endpoint = |value: &Value, place: &str| {
        // A panic has left nothing else of it.
        if value.get("out_of_order").is_some() {
            return None;
        }
        let lacks = |name: &&&str| !value.get(**name).is_some_and(Value::is_object);
        ["engine", "protocol", "transport"].iter().find(lacks).map(|name| format!("there is no {name}{place}"))
    };
    let of_process = |value: &Value| {
        let endpoints = value.get("endpoints")?;
        Some(match endpoints.as_array() {
            Some(all) => all.iter().enumerate().find_map(|(at, one)| of_endpoint(one, &format!(" in endpoint {at}"))),
            None => Some("its endpoints are no list".to_owned()),
        })
    };
    of_process(value).unwrap_or_else(|| of_endpoint(value, ""))
}

/// The document as indented text; what is zero or empty is left out unless `all` is wanted.
pub fn render(value: &Value, all: bool) -> String {
    let mut out = String::new();
    render_into(&mut out, value, 0, all, 0);
    out
}

/// Nesting past this is cut: a file may hold anything.
const MAX_DEPTH: usize = 16;
/// Values stand in a column behind names of up to this length: one long name must not make all
/// lines as long.
const MAX_COLUMN: usize = 40;

fn render_into(out: &mut String, value: &Value, indent: usize, all: bool, depth: usize) {
    let pairs: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (clean(k), v)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(i, v)| (format!("[{i}]"), v)).collect(),
        _ => Vec::new(),
    };
    let width = pairs.iter().filter(|(_, v)| !is_nested(v)).map(|(k, _)| k.chars().count()).max().unwrap_or(0);
    let width = width.min(MAX_COLUMN);
    for (key, value) in pairs {
        if is_nested(value) {
            let _ = writeln!(out, "{:indent$}{key}", "");
            if depth < MAX_DEPTH {
                render_into(out, value, indent + 2, all, depth + 1);
            }
        } else if all || NAMES.contains(&key.as_str()) || !is_nothing(value) {
            let _ = writeln!(out, "{:indent$}{key:width$}  {}", "", plain(value));
        }
    }
}

/// Numbers that name something: zero is a name as good as others.
const NAMES: [&str; 2] = ["pid", "peer"];

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => value.as_f64() == Some(0.0),
    }
}

/// Has lines of its own: an object, or a list of objects.
fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(list) => list.iter().any(|v| v.is_object() || v.is_array()),
        _ => false,
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::io::Write as _;
    use std::os::unix::net::UnixListener;

    #[test]
    fn reads_what_a_process_serves() {
        // Not this process's own address: another test may have an endpoint open in it.
        let pid = std::process::id();
        let name = format!("weir-stat-test-{pid}");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(br#"{"pid":1,"endpoints":[{"engine":{"polls":3}}]}"#).unwrap();
        });
        let got = ask(pid, &name, ANSWER_LIMIT).unwrap();
        server.join().unwrap();
        assert_eq!(got["endpoints"][0]["engine"]["polls"], 3);
    }

    #[test]
    fn another_users_process_is_told_by_its_owner() {
        let (root, other) = (Uid::from_raw(0), Uid::from_raw(4_000_000));
        let told = another_users(12, root, other).unwrap();
        assert!(told.starts_with("process 12 belongs to user root; "), "{told}");
        assert!(another_users(12, other, root).unwrap().contains("user 4000000; "));
        assert_eq!(another_users(12, other, other), None);
    }

    #[test]
    fn a_process_that_is_silent_is_told_in_one_plain_line_that_calls_none_stopped_that_is_not() {
        let name = format!("weir-stat-test-silent-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let own = std::process::id();
        let error = format!("{:#}", ask(own, &name, Duration::from_millis(1)).unwrap_err());
        let expected = "the process did not answer within 1 ms, and is not stopped; if its host is busy, ask again";
        assert_eq!(error, expected);
        drop(listener);
        assert_eq!(Silent::Late(Duration::from_millis(50)).in_short(), "no answer within 50 ms");
        assert_eq!(Silent::Late(ANSWER_LIMIT).in_short(), "no answer within 5 s");
        assert!(Silent::Stopped.to_string().starts_with("the process is stopped"));
    }

    #[test]
    fn processes_that_serve_counters_are_found() {
        // No process has this number.
        let pid = u32::MAX - std::process::id();
        let address = SocketAddr::from_abstract_name(address(pid)).unwrap();
        assert!(!served().contains(&pid));
        let listener = UnixListener::bind_addr(&address).unwrap();
        let found = served();
        assert_eq!(found.iter().filter(|p| **p == pid).count(), 1, "{found:?}");
        drop(listener);
        assert!(!served().contains(&pid));
    }

    #[test]
    fn says_that_a_process_has_no_endpoint() {
        let error = of_process(std::os::unix::process::parent_id()).unwrap_err().to_string();
        assert!(error.contains("no Weir endpoint"), "{error}");
        assert!(of_process(u32::MAX).unwrap_err().to_string().contains("no process"));
    }

    #[test]
    fn zeros_are_left_out_of_the_text() {
        let value = json!({"endpoints": [{"local": ["10.0.0.1:5", "10.0.1.1:5"], "acks": 0, "packets": 12}]});
        let text = render(&value, false);
        assert!(
            text.contains("packets  12") && text.contains("10.0.0.1:5, 10.0.1.1:5") && !text.contains("acks"),
            "{text}"
        );
        assert!(render(&value, true).contains("acks"));
    }

    #[test]
    fn what_is_empty_is_left_out_but_a_peer_zero_is_named() {
        let value = json!({"endpoints": [{"last_violation": "", "no_tcp_to": [], "peers": [{"peer": 0, "state": "up", "paths": []}]}]});
        let text = render(&value, false);
        assert!(text.lines().any(|line| line.trim() == "peer   0"), "{text}");
        assert!(!text.contains("last_violation") && !text.contains("paths") && !text.contains("no_tcp_to"), "{text}");
        let text = render(&value, true);
        assert!(text.contains("last_violation") && text.contains("paths"), "{text}");
    }

    #[test]
    fn deep_files_do_no_harm() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!([deep]);
        }
        assert!(render(&deep, true).lines().count() < 100);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("deep.json");
        std::fs::write(&file, "[".repeat(100_000)).unwrap();
        assert!(of_file(&file).is_err());
    }

    #[test]
    fn a_file_of_something_else_is_told_by_what_it_lacks() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("some.json");
        let told = |text: &str| {
            std::fs::write(&file, text).unwrap();
            of_file(&file).map(|_| ()).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(told(r#"{"engine":{},"protocol":{},"transport":{}}"#), Ok(()));
        assert_eq!(told(r#"{"endpoints":[{"out_of_order":true}]}"#), Ok(()));
        for (text, lack) in [
            ("[1]", "there is no engine"),
            (r#"{"engine":{}}"#, "there is no protocol"),
            (r#"{"endpoints":[{"engine":{},"protocol":{},"transport":1}]}"#, "there is no transport in endpoint 0"),
            (r#"{"endpoints":7}"#, "its endpoints are no list"),
        ] {
            let error = told(text).unwrap_err();
            assert!(error.contains("no counters of Weir") && error.ends_with(lack), "{error}");
        }
    }

    #[test]
    fn a_process_that_answers_a_byte_at_a_time_is_given_up() {
        let name = format!("weir-stat-test-slow-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..40 {
                std::thread::sleep(Duration::from_millis(50));
                let _ = stream.write_all(b" ");
            }
            let _ = stream.write_all(b"{}");
        });
        let error = ask(1, &name, Duration::from_millis(200)).unwrap_err();
        assert!(error.to_string().contains("did not answer within"), "{error}");
        server.join().unwrap();
    }

    #[test]
    fn a_long_name_does_not_widen_every_line() {
        let mut map = serde_json::Map::new();
        map.insert("x".repeat(70_000), 1.into());
        map.extend((0..1000).map(|n| (n.to_string(), 1.into())));
        assert!(render(&Value::Object(map), true).len() < 150_000);
    }

    #[test]
    fn what_a_process_says_cannot_steer_the_terminal() {
        let text = render(&json!({"a\u{1b}[2J": "b\u{1b}]0;title\u{7}", "list": ["c\nd  1"]}), true);
        assert!(text.lines().count() == 2 && !text.replace('\n', "").contains(char::is_control), "{text:?}");
    }

    /// Any document, of a few levels.
    pub fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            prop_oneof![any::<u64>(), 0..9u64].prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<i32>().prop_map(|n| Value::from(f64::from(n) / 8.0)),
            "(?s).{0,6}".prop_map(Value::from),
        ];
        let key = "(endpoints|endpoint|engine|protocol|peers|peer|streams|polls|packets_sent|bulk_connections_failed|no_tcp_to|(?s:.{0,4}))";
        leaf.prop_recursive(6, 60, 5, move |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::vec((key, inner), 0..5)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_document_is_shown_in_lines_of_plain_text(value in document(), all: bool) {
            let text = render(&value, all);
            prop_assert!(!text.replace('\n', "").contains(char::is_control), "{text:?}");
            let places = value.to_string().matches([':', ',', '[', '{']).count();
            prop_assert!(text.lines().count() <= places, "{text:?}");
        }

        #[test]
        fn a_file_of_any_bytes_is_a_document_or_an_error_that_names_it(
            value in document(), at: proptest::sample::Index, cut in 0usize..4, insert in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("counters");
            let value = json!({"endpoints": [{"engine": {}, "protocol": {"any": value}, "transport": {}}]});
            let whole = value.to_string().into_bytes();
            std::fs::write(&file, &whole).unwrap();
            prop_assert_eq!(of_file(&file).unwrap(), value);
            let mut damaged = whole;
            let at = at.index(damaged.len());
            damaged.splice(at..(at + cut).min(damaged.len()), insert);
            std::fs::write(&file, &damaged).unwrap();
            if let Err(error) = of_file(&file) {
                let error = format!("{error:#}");
                prop_assert!(error.contains("counters") && !error.contains(char::is_control), "{error:?}");
            }
        }

        #[test]
        fn written_counters_read_back_and_are_shown(counters in proptest::collection::btree_map("[a-z_]{1,50}", 1u64.., 0..20)) {
            let value = serde_json::to_value(&counters).unwrap();
            let read: Value = serde_json::from_str(&value.to_string()).unwrap();
            let text = render(&read, false);
            let shown: Vec<(String, u64)> = text
                .lines()
                .filter_map(|line| line.split_once("  ").map(|(name, n)| (name.to_owned(), n.trim().parse().unwrap())))
                .collect();
            prop_assert_eq!(shown, counters.into_iter().collect::<Vec<_>>());
        }
    }
}
