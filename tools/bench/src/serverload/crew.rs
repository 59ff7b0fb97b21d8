//! The processes that serve and ask, as their leader has them: started, told, listened to, and
//! ended whatever happens.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::error::{BenchError, Result};
use crate::stop::Asked;

use super::words::{Order, Place, Report};

/// How often who waits looks whether to stop.
const LOOK: Duration = Duration::from_millis(50);
/// When something fails at a client, the end of its server may explain it, and is known so much
/// later at most.
const EXPLAINED: Duration = Duration::from_millis(700);
/// Processes end by themselves within this time when their standard input does.
const GRACE: Duration = Duration::from_secs(4);
/// A report is a line no longer than this: that of all requests of an open loop.
const LONGEST_LINE: u64 = 1 << 30;

/// How processes are started.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// By rank, in turn but for the first, which serves; none: this host.
    pub names: Vec<String>,
    /// What starts a command on a host, in words.
    pub agent: Vec<String>,
    /// Words before the command there, its environment.
    pub environment: Vec<String>,
    /// The weir there, as a shell takes it.
    pub weir: String,
    /// A server that somebody else has started: then all hosts have clients.
    pub server: Option<Place>,
}

impl Hosts {
    /// Where a rank is.
    #[must_use]
    pub fn of(&self, rank: usize) -> Option<&str> {
        let (first, others) = self.names.split_first()?;
        if self.server.is_some() {
            return rank.checked_sub(1).map(|client| self.names[client % self.names.len()].as_str());
        }
        if rank == 0 || others.is_empty() {
            return Some(first);
        }
        Some(&others[(rank - 1) % others.len()])
    }

    fn command(&self, rank: usize) -> Result<Command> {
        let words = ["bench", "serverload", "--part"];
        let Some((host, (program, agent))) = self.of(rank).zip(self.agent.split_first()) else {
            let own = std::env::current_exe().map_err(|error| BenchError::machine("this program", error))?;
            let mut command = Command::new(own);
            command.args(words);
            return Ok(command);
        };
        let mut command = Command::new(program);
        command.args(agent).arg(host).args(&self.environment).arg(&self.weir).args(words);
        Ok(command)
    }
}

/// A process.
struct Member {
    /// None: it is somebody else's.
    child: Option<Child>,
    orders: Option<ChildStdin>,
    name: String,
}

/// What a process has said, or that it says nothing more.
enum Heard {
    Said(Box<Report>),
    Ended(String),
}

/// All processes: the server, rank 0, and its clients.
pub struct Crew {
    members: Vec<Member>,
    heard: Receiver<(usize, Heard)>,
    to: Sender<(usize, Heard)>,
    asked: Asked,
}

/// The leader was asked to stop.
pub const STOPPED: &str = "asked to stop";

impl Crew {
    /// Nobody yet.
    #[must_use]
    pub fn new(asked: &Asked) -> Crew {
        let (to, heard) = channel();
        Crew { members: Vec::new(), heard, to, asked: asked.clone() }
    }

    /// Starts the next process and gives it its first order.
    ///
    /// # Errors
    /// It does not start.
    pub fn add(&mut self, hosts: &Hosts, order: &Order) -> Result<()> {
        let rank = self.members.len();
        let mut command = hosts.command(rank)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let program = command.get_program().to_string_lossy().into_owned();
        let role = if rank == 0 { "the server".to_owned() } else { format!("client {rank}") };
        let name = hosts.of(rank).map_or_else(|| role.clone(), |host| format!("{role} on {host}"));
        let cannot = |error: std::io::Error| BenchError::machine(format!("{name}: cannot start {program}"), error);
        let mut child = command.spawn().map_err(cannot)?;
        let (orders, out) = (child.stdin.take(), child.stdout.take());
        self.members.push(Member { child: Some(child), orders, name });
        if let Some(out) = out {
            let to = self.to.clone();
            std::thread::spawn(move || listen(rank, out, &to));
        }
        self.tell(rank, order)
    }

    /// The server is one that somebody else has started: nobody tells it anything.
    pub fn add_others(&mut self, place: &Place) {
        let name = format!("the server at {}", place.with_port(place.port.unwrap_or(0)));
        self.members.push(Member { child: None, orders: None, name });
    }

    /// It is known where the server listens.
    pub fn serves_at(&mut self, url: &str) {
        if let Some(server) = self.members.first_mut().filter(|server| server.child.is_some()) {
            server.name = format!("{} at {url}", server.name);
        }
    }

    /// Gives an order.
    ///
    /// # Errors
    /// The process is gone.
    pub fn tell(&mut self, rank: usize, order: &Order) -> Result<()> {
        let failed = |error: std::io::Error| BenchError::machine("telling a process", error);
        let mut line = serde_json::to_string(order).map_err(|error| failed(error.into()))?;
        line.push('\n');
        let Some(orders) = &mut self.members[rank].orders else { return Ok(()) };
        match orders.write_all(line.as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.explained(rank, None)),
        }
    }

    /// Takes a report of each of some processes, as they come.
    ///
    /// # Errors
    /// One fails, or is gone, or does not answer so long; or `each` is not content with it; or the
    /// leader is asked to stop ([`STOPPED`]).
    pub fn hear(
        &mut self,
        ranks: impl IntoIterator<Item = usize>,
        patience: Duration,
        mut each: impl FnMut(usize, Report) -> Result<()>,
    ) -> Result<()> {
        let mut missing: BTreeSet<usize> = ranks.into_iter().collect();
        let deadline = Instant::now() + patience;
        while !missing.is_empty() {
            if self.asked.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Told(STOPPED.into()));
            }
            match self.heard.recv_timeout(LOOK) {
                Ok((rank, Heard::Said(report))) => match *report {
                    Report::Failed(cause) => return Err(self.explained(rank, Some(cause))),
                    report if missing.remove(&rank) => {
                        each(rank, report).map_err(|error| of(&self.members[rank].name, error))?;
                    }
                    _ => return Err(BenchError::machine(&self.members[rank].name, "it says what nobody asked")),
                },
                Ok((rank, Heard::Ended(cause))) => return Err(self.explained(rank, Some(cause))),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) if Instant::now() > deadline => {
                    let silent: Vec<&str> =
                        missing.iter().take(3).map(|&rank| self.members[rank].name.as_str()).collect();
                    let more = if missing.len() > 3 { ", ..." } else { "" };
                    let text = format!("no word within {} s from {}{more}", patience.as_secs_f64(), silent.join(", "));
                    return Err(BenchError::machine("waiting", text));
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// What went wrong at a process: a client whose server is gone has nothing to do with it.
    fn explained(&mut self, rank: usize, cause: Option<String>) -> BenchError {
        let deadline = Instant::now() + EXPLAINED;
        let mut causes = vec![(rank, cause)];
        while causes.iter().all(|(rank, _)| *rank != 0) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok((rank, Heard::Said(report))) => {
                    if let Report::Failed(cause) = *report {
                        causes.push((rank, Some(cause)));
                    }
                }
                Ok((rank, Heard::Ended(cause))) => causes.push((rank, Some(cause))),
                Err(_) => break,
            }
        }
        // The first of those that say most of it: the server's words, else those of whoever failed
        // first.
        let of_server = causes.iter().position(|(rank, _)| *rank == 0);
        let (rank, cause) = causes.swap_remove(of_server.unwrap_or(0));
        let member = &mut self.members[rank];
        let status = member.child.as_mut().and_then(how_it_ended);
        let text = match (cause, status) {
            (Some(cause), Some(status)) if cause.is_empty() => format!("it ended ({status})"),
            (Some(cause), _) if !cause.is_empty() => cause,
            (_, Some(status)) => format!("it ended ({status})"),
            _ => "it says nothing more".to_owned(),
        };
        BenchError::machine(&member.name, text)
    }

    /// Kills a process: for tests of what its end comes to.
    #[cfg(test)]
    pub fn kill(&mut self, rank: usize) {
        if let Some(child) = &mut self.members[rank].child {
            let _ = child.kill();
        }
    }
}

/// What is wrong with a process, with its name.
fn of(name: &str, error: BenchError) -> BenchError {
    match error {
        BenchError::Usage(text) => BenchError::Usage(format!("{name}: {text}")),
        error => BenchError::machine(name, error),
    }
}

/// How a process has ended; none if it lives.
fn how_it_ended(child: &mut Child) -> Option<std::process::ExitStatus> {
    let deadline = Instant::now() + Duration::from_millis(200);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Hands on what a process says, until it says nothing more.
fn listen(rank: usize, out: impl std::io::Read, to: &Sender<(usize, Heard)>) {
    let mut lines = BufReader::new(out);
    let mut line = String::new();
    loop {
        line.clear();
        let heard = match std::io::Read::take(&mut lines, LONGEST_LINE).read_line(&mut line) {
            Ok(0) => Heard::Ended(String::new()),
            Err(error) => Heard::Ended(error.to_string()),
            Ok(_) => match serde_json::from_str(&line) {
                Ok(report) => Heard::Said(Box::new(report)),
                Err(_) => {
                    let said: String = line.trim_end().chars().filter(|c| !c.is_control()).take(200).collect();
                    Heard::Ended(format!("it is no weir bench of this version; it said {said:?}"))
                }
            },
        };
        let over = matches!(heard, Heard::Ended(_));
        if to.send((rank, heard)).is_err() || over {
            return;
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Clients first: a server that ends beneath them would be news to them.
        let deadline = Instant::now() + GRACE;
        let (server, clients) = match self.members.split_first_mut() {
            Some((server, clients)) => (std::slice::from_mut(server), clients),
            None => return,
        };
        for part in [clients, server] {
            part.iter_mut().for_each(|member| member.orders = None);
            for child in part.iter_mut().filter_map(|member| member.child.as_mut()) {
                while !matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                    if Instant::now() > deadline || self.asked.urgent.load(Ordering::Relaxed) {
                        let _ = child.kill();
                        let _ = child.wait();
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_host_serves_and_the_clients_are_on_the_others_in_turn() {
        let hosts =
            |names: &[&str]| Hosts { names: names.iter().map(ToString::to_string).collect(), ..Hosts::default() };
        let three = hosts(&["a", "b", "c"]);
        assert_eq!((0..5).map(|rank| three.of(rank)).collect::<Vec<_>>(), ["a", "b", "c", "b", "c"].map(Some));
        let joined = Hosts { server: Some(Place::parse("weir://s:1").unwrap()), ..hosts(&["a", "b"]) };
        assert_eq!((0..4).map(|rank| joined.of(rank)).collect::<Vec<_>>(), [None, Some("a"), Some("b"), Some("a")]);
        assert_eq!((hosts(&["a"]).of(0), hosts(&["a"]).of(3), hosts(&[]).of(1)), (Some("a"), Some("a"), None));
    }

    /// A shell on a "host" that is another shell's word.
    fn shell(script: &str) -> Hosts {
        Hosts {
            names: vec!["x".into()],
            agent: vec!["sh".into(), "-c".into(), script.into()],
            environment: Vec::new(),
            weir: "weir".into(),
            server: None,
        }
    }

    fn first_order() -> Order {
        Order::Time
    }

    #[test]
    fn who_says_nonsense_or_ends_is_named_with_how() {
        let mut crew = Crew::new(&Asked::default());
        crew.add(&shell("echo Welcome to x; exec sleep 5"), &first_order()).unwrap();
        let error = crew.hear([0], Duration::from_secs(5), |_, _| Ok(())).unwrap_err().to_string();
        assert!(error.starts_with("the server on x: it is no weir bench") && error.contains("Welcome to x"), "{error}");
        crew.kill(0);
        let mut crew = Crew::new(&Asked::default());
        crew.add(&shell("read a; exit 7"), &first_order()).unwrap();
        let error = crew.hear([0], Duration::from_secs(5), |_, _| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "the server on x: it ended (exit status: 7)");
    }

    #[test]
    fn what_is_wrong_with_a_process_is_told_with_its_host_and_where_it_serves() {
        let mut crew = Crew::new(&Asked::default());
        crew.add(&shell(r#"read a; echo '{"Time":5}'; read b; exit 4"#), &first_order()).unwrap();
        let another = |_, _| Err(BenchError::Usage("there is weir 0.0".into()));
        let error = crew.hear([0], Duration::from_secs(5), another).unwrap_err();
        assert!(matches!(error, BenchError::Usage(_)) && error.to_string() == "the server on x: there is weir 0.0");
        crew.serves_at("tcp://x:4000");
        crew.tell(0, &first_order()).unwrap();
        let error = crew.hear([0], Duration::from_secs(5), |_, _| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "the server on x at tcp://x:4000: it ended (exit status: 4)");
        let absent = Hosts { agent: vec!["/nonexistent".into()], ..shell("") };
        let error = Crew::new(&Asked::default()).add(&absent, &first_order()).unwrap_err().to_string();
        assert!(error.starts_with("the server on x: cannot start /nonexistent: "), "{error}");
    }

    #[test]
    fn a_clients_failure_is_explained_by_the_end_of_its_server() {
        let mut crew = Crew::new(&Asked::default());
        crew.add(&shell("read a; sleep 0.2; exit 3"), &first_order()).unwrap();
        crew.add(&shell(r#"read a; echo '{"Failed":"BMI_ECONNRESET"}'"#), &first_order()).unwrap();
        let error = crew.hear([1], Duration::from_secs(5), |_, _| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "the server on x: it ended (exit status: 3)");
        let mut crew = Crew::new(&Asked::default());
        crew.add(&shell("read a; read b"), &first_order()).unwrap();
        crew.add(&shell(r#"read a; echo '{"Failed":"BMI_ECONNRESET"}'"#), &first_order()).unwrap();
        let error = crew.hear([1], Duration::from_secs(5), |_, _| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "client 1 on x: BMI_ECONNRESET");
    }

    #[test]
    fn who_is_silent_is_named_and_ends_with_its_standard_input() {
        let mut crew = Crew::new(&Asked::default());
        crew.add(&shell("cat >/dev/null"), &first_order()).unwrap();
        let error = crew.hear([0], Duration::from_millis(100), |_, _| Ok(())).unwrap_err().to_string();
        assert_eq!(error, "waiting: no word within 0.1 s from the server on x");
        let begun = Instant::now();
        drop(crew);
        assert!(begun.elapsed() < GRACE, "cat ends with its input");
    }

    #[test]
    fn to_be_asked_to_stop_ends_the_waiting() {
        let asked = Asked::default();
        let mut crew = Crew::new(&asked);
        crew.add(&shell("cat >/dev/null"), &first_order()).unwrap();
        asked.stop.store(true, Ordering::Relaxed);
        let error = crew.hear([0], Duration::from_secs(60), |_, _| Ok(())).unwrap_err().to_string();
        assert_eq!(error, STOPPED);
    }
}
