//! `weir ping`: the command line, and what is printed.

use std::io::Write;

use weir_job::Env;

use crate::channel::Channel;
use crate::host::{Agent, Host};
use crate::pair::{Asked, examine};
use crate::{Error, Finding, Severity, end, listen};

/// Arguments of `weir ping`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir ping node2                               from this host, by ssh
  weir ping node2 --agent 'ssh -p 2222'         by another command
  weir ping node2 --weir /opt/weir/bin/weir     where weir is elsewhere there
  weir ping --listen                            where ssh is not to be had: on one host,
  weir ping node2:47470                         and on the other one
  weir doctor --hosts node1,node2,node3         each of them with each other one
  weir emulate --hosts 2 -- sh -c 'weir ping ${WEIR_HOSTS#*,}'

Tried are, both ways: versions, the job's key, UDP and TCP to each address that Weir would use, the largest datagram that passes; \
then, between two endpoints such as a job's, the round trip of 8 bytes and the rate of 1 MiB. The settings of this shell that mean the \
same everywhere (WEIR_PORT, FI_WEIR_IFACE, WEIR_KEY_FILE, ...) hold on the other host too; inside weir emulate the agent is its own.

Whoever asks a listening end proves that he has the job's key, and so does the end. It answers nobody else.

Exit codes:
  0    messages pass; there may be warnings
  1    they do not, or the other host is not reached; an error says why
  2    the command line is wrong")]
pub struct PingArgs {
    /// The other host; HOST:PORT if weir ping --listen runs there
    #[arg(value_name = "HOST", required_unless_present_any = ["listen", "serve"])]
    pub host: Option<String>,
    /// What starts a command on a host [default: $WEIR_LAUNCH_AGENT, else ssh]
    #[arg(long, value_name = "COMMAND")]
    pub agent: Option<String>,
    /// The weir on the other host [default: this program's file]
    #[arg(long, value_name = "FILE")]
    pub weir: Option<String>,
    /// Round trips that are timed
    #[arg(short = 'c', long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub count: u32,
    /// Answer those who ask at this port, or ADDRESS:PORT
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "47470", conflicts_with_all = ["host", "agent", "weir", "json"])]
    pub listen: Option<String>,
    /// With --listen: end after the first who asked
    #[arg(long, requires = "listen")]
    pub once: bool,
    /// Answer on standard output what is asked on standard input: an agent starts this
    #[arg(long, hide = true, conflicts_with_all = ["host", "listen"])]
    pub serve: bool,
    /// Answer with one JSON document
    #[arg(long)]
    pub json: bool,
}

/// How ends are started, as the command line and the environment say.
///
/// # Errors
/// [`Error::Usage`] for an agent that no shell would understand.
pub fn agent(command: Option<&str>, weir: Option<&str>) -> Result<Agent, Error> {
    let own = || std::env::var("WEIR_LAUNCH_AGENT").ok().filter(|agent| !agent.is_empty());
    let command = match command {
        Some(text) => shlex::split(text)
            .filter(|words| !words.is_empty())
            .ok_or_else(|| Error::Usage(format!("--agent: {text:?} is no command")))?,
        None => vec![own().unwrap_or_else(|| "ssh".into())],
    };
    let this = || std::env::current_exe().map_or_else(|_| "weir".to_owned(), |file| file.display().to_string());
    Ok(Agent { command, weir: crate::environment::quoted(&weir.map_or_else(this, str::to_owned)) })
}

/// Whether a host is named with the port of a listening end.
fn names_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(name, port)| {
        port.parse::<u16>().is_ok() && !name.is_empty() && (!name.contains(':') || name.starts_with('['))
    })
}

/// Does what `weir ping` is asked for; returns the exit code.
///
/// # Errors
/// In one line what cannot be done.
pub fn run(args: &PingArgs, version: &str) -> Result<u8, Error> {
    if args.serve {
        end::serve(&mut Channel::new(std::io::stdin(), std::io::stdout()), version)?;
        return Ok(0);
    }
    let key = || weir_job::load_key(&Env::from_process()).map_err(|error| Error::Failed(error.to_string()));
    if let Some(at) = &args.listen {
        wrong_place(at).map_or(Ok(()), |said| Err(Error::Usage(said)))?;
        // Not `println`, which panics when nobody reads any more.
        listen::serve(at, &key()?, version, args.once, &mut |line| drop(writeln!(std::io::stdout(), "{line}")))?;
        return Ok(0);
    }
    let name = args.host.as_deref().unwrap_or_default();
    if let Some(port) = wrong_port(name) {
        return Err(Error::Usage(format!("{port} is no port: they go from 1 to 65535")));
    }
    let mut other = if names_port(name) {
        Host::listening(name, name, &key()?)?
    } else {
        Host::by_agent(name, &agent(args.agent.as_deref(), args.weir.as_deref())?)?
    };
    let mut here = Host::here(version)?;
    let findings = examine(&mut here, &mut other, &Asked { count: args.count })?;
    print(&mut std::io::stdout(), &findings, args.json)?;
    Ok(code(&findings))
}

/// What stands for a port and is none; no host's name ends like that.
fn wrong_port(host: &str) -> Option<&str> {
    let (name, port) = host.rsplit_once(':').filter(|_| !names_port(host))?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_name = !name.contains(':') || (name.starts_with('[') && name.ends_with(']'));
    (is_number && is_name && !name.is_empty()).then_some(port)
}

/// What is wrong with a place to listen at, where that can be seen; a name is looked up later.
fn wrong_place(at: &str) -> Option<String> {
    let is_number = !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_digit());
    match at.parse::<u16>() {
        Err(_) if is_number => Some(format!("{at} is no port: they go from 1 to 65535")),
        Err(_) if !at.is_empty() && !at.contains(':') => {
            Some(format!("--listen {at}: a port is meant, or ADDRESS:PORT, such as {at}:{}", listen::PORT))
        }
        _ => None,
    }
}

/// 1 if there is an error.
fn code(findings: &[Finding]) -> u8 {
    u8::from(findings.iter().any(|finding| finding.severity == Severity::Error))
}

/// Prints; that nobody reads is no failure.
fn print(out: &mut impl Write, findings: &[Finding], json: bool) -> Result<(), Error> {
    let text = if json {
        format!("{}\n", serde_json::json!({ "works": code(findings) == 0, "findings": findings }))
    } else {
        table(findings)
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::Failed(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A line for each finding, and one for what repairs it.
#[must_use]
pub fn table(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, severity, cause, fix } in findings {
        text += &format!("{:8} {check:12} {cause}\n", severity.word());
        if let Some(fix) = fix {
            text += &format!("{:21} repair: {fix}\n", "");
        }
    }
    text
}

/// Tries each of these hosts with each other one, or one alone with this host: findings that name
/// their hosts.
///
/// # Errors
/// The command line names no host.
pub fn between(hosts: &[String], agent: &Agent, version: &str, count: u32) -> Result<Vec<Finding>, Error> {
    let mut all = Vec::new();
    let mut reached: Vec<Host> = Vec::new();
    if let [_] = hosts {
        reached.push(Host::here(version)?);
    }
    for name in hosts {
        match Host::by_agent(name, agent) {
            Ok(host) => reached.push(host),
            Err(error) => all.push(
                Finding::new("hosts", Severity::Error, error.to_string())
                    .fixed_by(format!("{} {name} true", agent.command.join(" "))),
            ),
        }
    }
    for second in 1..reached.len() {
        let (before, rest) = reached.split_at_mut(second);
        let Some(b) = rest.first_mut() else { continue };
        for a in before {
            let pair = format!("{} and {}", a.name, b.name);
            match examine(a, b, &Asked { count }) {
                Ok(found) => all.extend(
                    found.into_iter().map(|finding| Finding { cause: format!("{pair}: {}", finding.cause), ..finding }),
                ),
                Err(error) => all.push(Finding::new("hosts", Severity::Error, format!("{pair}: {error}"))),
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_tells_a_listening_end() {
        for host in ["node2:47470", "10.0.0.2:1", "[::1]:47470"] {
            assert!(names_port(host), "{host}");
        }
        for host in ["node2", "user@node2", "::1", "fe80::1:2", "node2:", ":47470", "node2:99999"] {
            assert!(!names_port(host), "{host}");
        }
    }

    #[test]
    fn a_number_that_is_no_port_is_told_as_one_and_not_taken_for_a_name() {
        for host in ["node2:99999", "[fe80::1]:99999", "[::1]:99999"] {
            assert_eq!(wrong_port(host), Some("99999"), "{host}");
        }
        for host in [
            "[::1]:47470",
            "[::1]",
            "[::1:99999",
            "node2:47470",
            "node2",
            "fe80::1:99999",
            "user@node2",
            "node2:",
            ":99999",
            "node2:x1",
        ] {
            assert_eq!(wrong_port(host), None, "{host}");
        }
    }

    #[test]
    fn a_place_to_listen_at_is_a_port_or_has_one() {
        for at in ["", "47470", "10.0.0.1:5", "node1:5", "[::1]:5"] {
            assert_eq!(wrong_place(at), None, "{at}");
        }
        assert_eq!(wrong_place("99999").unwrap(), "99999 is no port: they go from 1 to 65535");
        assert!(wrong_place("node1").unwrap().ends_with("such as node1:47470"));
    }

    #[test]
    fn what_cannot_be_printed_is_a_failure_but_for_a_reader_that_is_gone() {
        let mut full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let error = print(&mut full, &[], true).unwrap_err().to_string();
        assert_eq!(error, "standard output: No space left on device (os error 28)");
        let (read, mut write) = std::io::pipe().unwrap();
        drop(read);
        assert!(print(&mut write, &[], true).is_ok());
    }

    #[test]
    fn an_agent_is_words_of_a_shell() {
        let of = |text| agent(Some(text), Some("/a b/weir")).map(|agent| (agent.command, agent.weir));
        assert_eq!(
            of("ssh -p 2222").unwrap(),
            (vec!["ssh".to_owned(), "-p".into(), "2222".into()], "'/a b/weir'".into())
        );
        assert!(of("").is_err() && of("ssh 'x").is_err());
    }
}
