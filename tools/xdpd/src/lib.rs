//! `weir xdpd`: attaches the program to interfaces and gives ring buffers or AF_XDP sockets to the
//! ranks of users on a list (spec/xdp.md 3).
//!
//! It has no state that outlives it: what it holds are descriptors, and the kernel takes back what
//! they stand for however it ends. The file of its socket may stay, and the next helper replaces
//! it.

mod ending;
mod listener;
mod rights;
mod serve;
mod sys;

pub use serve::{Policy, Server};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use nix::net::if_::InterfaceFlags;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What `weir xdpd` is told.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  weir xdpd --interface eth1 --allow alice        # packets of alice's ranks
  weir xdpd --interface eth1 --allow @mpi         # processes that the group mpi is among the groups of
  systemctl enable --now weir-xdpd.socket         # the same by systemd

The service starts /usr/bin/weir with the options that /etc/default/weir-xdpd has, for example WEIR_XDPD=\"--interface eth1 --allow @mpi\"; without an \
interface it does not start, and its journal says so. The Debian package brings socket, service and that file, and enables nothing. From the wheel or the \
archive copy weir-xdpd.socket and weir-xdpd.service of share/weir/systemd to /etc/systemd/system, and write the path of weir, which must not be below \
/home, into the service's ExecStart.")]
pub struct XdpdArgs {
    /// Interface to serve; may be given several times. For an address on a VLAN name the VLAN's own
    /// interface (eth0.5)
    #[arg(long, required = true, value_name = "NAME")]
    pub interface: Vec<String>,
    /// User who may have ring buffers or sockets, or @GROUP, whose members may, by name or number;
    /// may be given several times. Root always may. With AF_XDP sockets who may can send any packet
    /// on the interface
    #[arg(long, value_name = "USER")]
    pub allow: Vec<String>,
    /// Where to listen; systemd's socket goes before it
    #[arg(long, default_value = weir_xdp::helper::SOCKET, value_name = "PATH")]
    pub socket: PathBuf,
    /// How packets reach ranks
    #[arg(long, default_value = "ring", value_name = "MODE")]
    pub mode: Mode,
    /// Detach from an interface that no rank has used for so many seconds; 0: never
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    pub idle: u64,
}

/// How packets reach ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// By ring buffers that a program at tc's entry fills, for up to 256 ranks; they send by UDP,
    /// and others' traffic loses nothing (Linux 6.6)
    Ring,
    /// By AF_XDP sockets both ways, a rank for each queue, the program in the network stack
    Generic,
    /// The same with the program in the driver
    Native,
}

impl From<Mode> for weir_xdp::Mode {
    fn from(mode: Mode) -> weir_xdp::Mode {
        match mode {
            Mode::Ring => weir_xdp::Mode::Ring,
            Mode::Generic => weir_xdp::Mode::Generic,
            Mode::Native => weir_xdp::Mode::Native,
        }
    }
}

/// That each name is of an interface here, none is given twice, whatever it is called, and none is
/// the loopback, by which messages go in other ways (`spec/xdp.md`).
fn interfaces(names: &[String]) -> Result<()> {
    let mut indices = Vec::new();
    for name in names {
        let shown = name.escape_debug();
        let Ok(index) = nix::net::if_::if_nametoindex(name.as_str()) else {
            bail!("no interface is named \"{shown}\"");
        };
        if indices.contains(&index) {
            bail!("--interface {shown} is given twice");
        }
        indices.push(index);
    }
    for address in nix::ifaddrs::getifaddrs().context("cannot ask for interfaces")? {
        if address.flags.contains(InterfaceFlags::IFF_LOOPBACK) && names.contains(&address.interface_name) {
            let shown = address.interface_name.escape_debug();
            bail!("{shown} is the loopback: ranks of one host speak by shared memory, and need no helper");
        }
    }
    Ok(())
}

/// A line on standard error, where the service's journal reads it. A full disk does not end it.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "weir xdpd: {line}");
}

/// Serves until it is asked to end; started by systemd, until nobody has used it for a while.
///
/// # Errors
/// One line: no rights, no such interface or user, the socket in use.
pub fn run(args: &XdpdArgs) -> Result<()> {
    interfaces(&args.interface)?;
    // Else every rank would be refused, and nobody told who started it.
    let lacking = rights::lacking(args.mode).context("cannot tell what rights there are")?;
    if !lacking.is_empty() {
        bail!("this needs {}, which root has; start it with sudo, or by systemd", lacking.join(" and "));
    }
    let (users, groups) = allowed(&args.allow)?;
    can_load(args.mode)?;
    let policy = Policy {
        interfaces: args.interface.clone(),
        users,
        groups,
        idle: (args.idle > 0).then(|| Duration::from_secs(args.idle)),
    };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot listen to signals")?;
    }
    let (listener, file) = match listener::from_systemd()? {
        Some(listener) => (listener, None),
        None => listener::listen(&args.socket).map(|(listener, file)| (listener, Some(file)))?,
    };
    let at = file.as_ref().map_or_else(|| "systemd's socket".to_owned(), |_| args.socket.display().to_string());
    rights::keep_few().context("cannot give up root's rights")?;
    let mut server = Server::new(listener, policy, args.mode.into())?;
    if let Err(e) = rights::keep_few_calls() {
        // (A service's own list may lack the call; that list holds then.)
        say(&format!("it gives up no system calls, for it cannot: {e:#}"));
    }
    say(&format!("serving {} at {at}", args.interface.join(", ")));
    while !stop.load(Ordering::Relaxed) {
        server.turn()?;
        // Systemd's socket starts it anew.
        if file.is_none() && server.is_idle() {
            break;
        }
    }
    Ok(())
}

/// That the kernel takes the program at all.
fn can_load(mode: Mode) -> Result<()> {
    match weir_xdp::Broker::new(mode.into()).load() {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            bail!("the kernel takes programs from the machine's root alone, not from a user namespace's ({e})")
        }
        Err(e) => Err(e).context(match mode {
            Mode::Ring => "this kernel does not take the program (rings need Linux 6.6; --mode generic does not)",
            Mode::Generic | Mode::Native => "this kernel does not take the program",
        }),
    }
}

/// The numbers of these users, and of these groups.
fn allowed(named: &[String]) -> Result<(Vec<u32>, Vec<u32>)> {
    use nix::unistd::{Group, User};
    let (mut users, mut groups) = (Vec::new(), Vec::new());
    for name in named {
        let told = format!("\"{}\"", name.escape_debug());
        let number = |text: &str| text.parse().ok().filter(|number| *number != u32::MAX);
        if let Some(group) = name.strip_prefix('@') {
            if let Some(number) = number(group) {
                groups.push(number);
                continue;
            }
            let found = Group::from_name(group).with_context(|| format!("cannot look up the group {told}"))?;
            groups.push(found.with_context(|| format!("there is no group {told}"))?.gid.as_raw());
        } else if let Some(number) = number(name) {
            users.push(number);
        } else {
            let found = User::from_name(name).with_context(|| format!("cannot look up the user {told}"))?;
            users.push(found.with_context(|| format!("there is no user {told}"))?.uid.as_raw());
        }
    }
    Ok((users, groups))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_cannot_be_meant_are_refused_with_the_reason() {
        for (names, why) in [
            (&["lo"][..], "lo is the loopback"),
            (&["no-such-interface"], "no interface is named \"no-such-interface\""),
            (&["lo", "no\nsuch"], "no interface is named \"no\\nsuch\""),
            (&["lo", "lo"], "--interface lo is given twice"),
        ] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let e = interfaces(&names).expect_err("refused");
            assert!(e.to_string().contains(why), "{e}");
        }
    }

    #[test]
    fn users_are_found_by_name_and_number_and_nobody_else() {
        let (users, groups) = allowed(&["root".into(), "1234".into(), "@root".into()]).expect("all");
        assert_eq!((users, groups), (vec![0, 1234], vec![0]));
        for wrong in ["no-such-user-here", "@no-such-group-here"] {
            let e = allowed(&[wrong.into()]).expect_err("none");
            assert!(e.to_string().contains(wrong), "{e}");
        }
    }
}
