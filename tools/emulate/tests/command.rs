//! The program `weir-emulate` as a user runs it: exit codes, the launch agent, the control socket,
//! cleaning up.
//!
//! Where namespaces cannot be made every test is reported as ignored, with the reason.

use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

type Outcome = Result<(), Failed>;
type Test = fn() -> Outcome;

const PROGRAM: &str = env!("CARGO_BIN_EXE_weir-emulate");

fn main() {
    if std::env::args().nth(1).is_some_and(|word| word == ACQUIRE) {
        return acquire();
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let tests: [(&str, Test); 16] = [
        ("the exit code is the command's", exit_code),
        ("a signal that ends the command shows in the exit code", exit_by_signal),
        ("the environment names the hosts", environment),
        ("beside a control network launchers are told to stay on it", launchers),
        ("the launch agent runs commands like ssh", agent),
        ("ctl cuts, heals, sets and reports", ctl),
        ("garbage on the control socket is refused", garbage),
        ("a request is answered by an emulator that was stopped in its middle", stopped),
        ("counters as json", json),
        ("counters that cannot be written are refused before the command runs", stats_file),
        ("a termination passes to the command and cleans up", terminate),
        ("a killed emulator leaves nothing behind", killed),
        ("mistakes are explained", mistakes),
        ("only a place that is named for networks is made", places),
        ("without privilege a user namespace serves", unprivileged),
        ("a refused user namespace leaves the process as it was", refused),
    ];
    // On a thread of its own process, so that this one stays as it is.
    let probe = Command::new(PROGRAM).args(["--hosts", "1", "--", "true"]).output();
    let reason = match probe {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Some(error.to_string()),
    };
    // A failure for any other reason than missing rights is a failure of the tests.
    let ignored = reason.as_ref().is_some_and(|r| r.contains("cannot make network namespaces"));
    if ignored {
        eprintln!("\nIGNORED, not passed: all {} tests on namespaces. {}\n", tests.len(), reason.unwrap_or_default());
    }
    let trials = tests.map(|(name, test)| Trial::test(name, test).with_ignored_flag(ignored));
    libtest_mimic::run(&arguments, trials.into()).exit();
}

fn emulate(arguments: &[&str]) -> Result<Output, Failed> {
    Ok(Command::new(PROGRAM).args(arguments).output()?)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn check(what: &str, is: bool) -> Outcome {
    if is { Ok(()) } else { Err(format!("not so: {what}").into()) }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, should: T) -> Outcome {
    if is == should { Ok(()) } else { Err(format!("{what}: {is:?} instead of {should:?}").into()) }
}

fn name(what: &str) -> String {
    format!("test-{what}-{}", std::process::id())
}

/// The network namespaces that processes are in.
fn namespaces() -> BTreeSet<PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|p| std::fs::read_link(p.path().join("ns/net")).ok()).collect()
}

/// Nothing takes this long, however busy the machine, but what never comes.
const LIMIT: Duration = Duration::from_secs(60);

fn wait_until(what: &str, mut is: impl FnMut() -> bool) -> Outcome {
    let start = Instant::now();
    while !is() {
        if start.elapsed() > LIMIT {
            return Err(format!("not within {LIMIT:?}: {what}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A running emulator, which ends with the test.
struct Emulator(Child);

impl std::ops::Deref for Emulator {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl std::ops::DerefMut for Emulator {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a network whose first host runs a shell script, and waits for the script's first line.
fn start(name: &str, script: &str) -> Result<(Emulator, String), Failed> {
    let mut command = Command::new(PROGRAM);
    command.args(["--hosts", "2", "--name", name, "--", "sh", "-c", script]);
    let mut child = Emulator(command.stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    let stdout = child.stdout.take().ok_or("no output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    Ok((child, line.trim().to_owned()))
}

fn exit_code() -> Outcome {
    same("exit code", emulate(&["--hosts", "2", "--", "sh", "-c", "exit 7"])?.status.code(), Some(7))?;
    same("no such command", emulate(&["--hosts", "1", "--", "/no/such/command"])?.status.code(), Some(127))?;
    same("no command at all", emulate(&["--hosts", "1", "--", "/etc/passwd"])?.status.code(), Some(126))?;
    same("failed itself", emulate(&["--hosts", "1", "--loss", "much", "--", "true"])?.status.code(), Some(125))?;
    same("a bad file", emulate(&["--spec", "/dev/null", "--", "true"])?.status.code(), Some(125))?;
    same("no such option", emulate(&["--bogus", "--", "true"])?.status.code(), Some(2))?;
    same("exit code", emulate(&["--hosts", "1", "--", "true"])?.status.code(), Some(0))
}

fn exit_by_signal() -> Outcome {
    same("exit code", emulate(&["--hosts", "1", "--", "sh", "-c", "kill -9 $$"])?.status.code(), Some(128 + 9))
}

fn environment() -> Outcome {
    let script = "hostname; echo $WEIR_HOSTS $WEIR_NETWORKS; cat $WEIR_HOSTFILE; getent hosts host2; pwd";
    let output = emulate(&["--hosts", "2", "--networks", "2", "--", "sh", "-c", script])?;
    let here = std::env::current_dir()?;
    let words: Vec<_> = text(&output.stdout).split_whitespace().map(str::to_owned).collect();
    let here = here.display().to_string();
    let should = ["host1", "host1,host2", "net1,net2", "host1", "host2", "10.77.1.2", "host2", &here];
    same("words", words, should.map(str::to_owned).to_vec())
}

fn launchers() -> Outcome {
    const VARIABLE: &str = "PRTE_MCA_prte_if_include";
    let found = |arguments: &[&str], own: Option<&str>| -> Result<String, Failed> {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PRTE_")) {
            command.env_remove(name);
        }
        if let Some(name) = own {
            command.env(name, "net1");
        }
        Ok(text(&command.output()?.stdout))
    };
    let show = ["--", "sh", "-c", "env | grep ^PRTE_MCA_.*_if_"];
    let emulated = |flags: &[&str], own| found(&[&["--hosts", "2"], flags, &show].concat(), own);
    same("with --control", emulated(&["--control"], None)?, format!("{VARIABLE}=ctrl\n"))?;
    same("without", emulated(&[], None)?, String::new())?;
    same("outside", emulated(&["--control", "--at", "outside"], None)?, String::new())?;
    same("the user's own", emulated(&["--control"], Some(VARIABLE))?, format!("{VARIABLE}=net1\n"))?;
    let excluded = "PRTE_MCA_oob_tcp_if_exclude";
    same("the contrary", emulated(&["--control"], Some(excluded))?, format!("{excluded}=net1\n"))?;

    let name = name("launchers");
    let inside = format!("{PROGRAM} exec {name} host2 sh -c 'env | grep ^PRTE_MCA_.*_if_'");
    let exec =
        found(&["--hosts", "2", "--control", "--name", &name, "--at", "outside", "--", "sh", "-c", &inside], None)?;
    same("by exec", exec, format!("{VARIABLE}=ctrl\n"))?;

    let bound = ["--hosts", "2", "--", "sh", "-c", "env | grep _binding_policy | sort"];
    let none = "OMPI_MCA_hwloc_base_binding_policy=none\nPRTE_MCA_hwloc_default_binding_policy=none\n";
    same("hosts that share cores", found(&bound, None)?, none.to_owned())?;
    let own = "OMPI_MCA_hwloc_base_binding_policy=none\nPRTE_MCA_hwloc_default_binding_policy=net1\n";
    same("the user's own binding", found(&bound, Some("PRTE_MCA_hwloc_default_binding_policy"))?, own.to_owned())
}

fn agent() -> Outcome {
    let script = r#"
        a=$WEIR_LAUNCH_AGENT
        $a -x -p 22 user@host2 hostname
        cd / && $a 10.77.1.3 'pwd; echo "$0 a  b"' '&& hostname'
        $a host3 'exit 5'; echo $?
        $a nobody true; echo $?"#;
    let output = emulate(&["--hosts", "3", "--", "sh", "-c", script])?;
    same("output", text(&output.stdout), "host2\n/\n/bin/sh a  b\nhost3\n5\n255\n".to_owned())?;
    check("the unknown host is named", text(&output.stderr).contains("nobody"))
}

fn ctl() -> Outcome {
    let name = name("ctl");
    let (mut child, _) = start(&name, "echo up; exec sleep 600")?;
    let list = text(&emulate(&["list"])?.stdout);
    check("the network is listed", list.lines().any(|l| l == name))?;
    let list: serde_json::Value = serde_json::from_slice(&emulate(&["list", "--json"])?.stdout)?;
    let listed = list["networks"].as_array().into_iter().flatten().find(|one| one["name"] == name.as_str());
    let listed = listed.ok_or("it is not in the list as JSON")?;
    same("its process", listed["pid"].as_u64(), Some(child.id().into()))?;
    same("its hosts", &listed["hosts"], &serde_json::json!(["host1", "host2"]))?;
    same("its networks", &listed["networks"], &serde_json::json!(["net1"]))?;
    let info: serde_json::Value = serde_json::from_slice(&emulate(&["ctl", &name, "info"])?.stdout)?;
    let keys = |value: &serde_json::Value| value.as_object().map(|all| all.keys().cloned().collect::<Vec<_>>());
    same("what is told", keys(listed), keys(&info))?;
    let ok = |words: &[&str]| -> Outcome {
        let output = emulate(&[&["ctl", &name], words].concat())?;
        check(&format!("{words:?} succeeds: {}", text(&output.stderr)), output.status.success())
    };
    ok(&["cut", "host2", "net1"])?;
    ok(&["heal", "host2", "net1", "down"])?;
    ok(&["set", "host2", "net1", "loss=2%", "delay=1ms"])?;
    for (words, cause) in [
        (&["cut", "host3", "net1"][..], "host3"),
        (&["cut", "host2"], "cut HOST NETWORK"),
        (&["set", "host2", "net1", "loss=200%"], "200%"),
        (&["set", "host2", "net1", "speed=1"], "speed"),
        (&["set", "host2", "net1", "loss"], "neither a direction"),
        (&["dance"], "cut HOST NETWORK"),
    ] {
        let output = emulate(&[&["ctl", &name], words].concat())?;
        check(&format!("{words:?} fails"), !output.status.success())?;
        check(&format!("{words:?} names {cause}: {}", text(&output.stderr)), text(&output.stderr).contains(cause))?;
    }
    let stats: serde_json::Value = serde_json::from_slice(&emulate(&["ctl", &name, "stats"])?.stdout)?;
    same("links", stats["links"].as_array().map(Vec::len), Some(2))?;
    let output = emulate(&["exec", &name, "host2", "sh", "-c", "hostname; echo \"it's $1\"", "x", "two words"])?;
    same("exec", text(&output.stdout), "host2\nit's two words\n".to_owned())?;
    // No shell stays between: a signal to this process is the command's.
    let output = emulate(&["exec", &name, "host1", "sh", "-c", "cat /proc/$PPID/comm"])?;
    let parent = text(&output.stdout);
    check(&format!("{parent} is the command's parent"), !parent.is_empty() && parent.trim() != "sh")?;
    let output = emulate(&["exec", &name, "host9", "true"])?;
    same("exit code of no host", output.status.code(), Some(125))?;
    check("no host", text(&output.stderr).starts_with("weir-emulate: there is no host 'host9'"))?;
    let second = emulate(&["--hosts", "1", "--name", &name, "--", "true"])?;
    check("the name is taken", text(&second.stderr).contains("running already"))?;
    ok(&["stop"])?;
    same("exit code after stop", child.wait()?.code(), Some(128 + 15))
}

fn garbage() -> Outcome {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let name = name("garbage");
    let (mut child, _) = start(&name, "echo up; exec sleep 600")?;
    for garbage in [&b""[..], b"[", b"[1]", b"{}", b"\xff\xfe", &[b'['; 60_000], b"[\"set\",\"host1\",\"net1\",\"=\"]"]
    {
        let mut stream = UnixStream::connect(directory(&name).join("control"))?;
        stream.write_all(garbage)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        check(&format!("an error is the reply: {reply}"), reply.starts_with("{\"error\""))?;
    }
    // Too much: the connection ends, with or without a reset.
    let mut stream = UnixStream::connect(directory(&name).join("control"))?;
    let _ = stream.write_all(&[b' '; 300_000]);
    let _ = stream.read_to_end(&mut Vec::new());
    // A client that says nothing does not keep the network from ending.
    let silent = UnixStream::connect(directory(&name).join("control"))?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGTERM)?;
    wait_until("the network ends", || !matches!(child.try_wait(), Ok(None)))?;
    drop(silent);
    same("exit code", child.wait()?.code(), Some(128 + 15))
}

fn stopped() -> Outcome {
    use nix::sys::signal::{Signal, kill};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    let name = name("stopped");
    let (mut child, _) = start(&name, "echo up; exec sleep 600")?;
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    let mut stream = UnixStream::connect(directory(&name).join("control"))?;
    stream.write_all(b"[\"sta")?;
    // It waits for the rest by then, most likely.
    std::thread::sleep(Duration::from_millis(200));
    kill(pid, Signal::SIGSTOP)?;
    wait_until("the emulator is stopped", is_stopped)?;
    kill(pid, Signal::SIGCONT)?;
    wait_until("the emulator goes on", || !is_stopped())?;
    stream.write_all(b"ts\"]")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    check(&format!("counters are the reply: {reply:?}"), reply.contains("\"links\""))?;
    kill(pid, Signal::SIGTERM)?;
    same("exit code", child.wait()?.code(), Some(128 + 15))
}

fn json() -> Outcome {
    let script = "exec 3<>/dev/null; sleep 0.1";
    let arguments = ["--hosts", "3", "--networks", "2", "--rate", "1g", "--json", "--", "sh", "-c", script];
    let output = emulate(&arguments)?;
    let line = text(&output.stderr).lines().last().unwrap_or_default().to_owned();
    let stats: serde_json::Value = serde_json::from_str(&line)?;
    same("links", stats["links"].as_array().map(Vec::len), Some(6))?;
    same("overrun", stats["overrun"].as_u64(), Some(0))?;
    check("elapsed", stats["elapsed_s"].as_f64().is_some_and(|s| s >= 0.1))
}

fn stats_file() -> Outcome {
    let output = emulate(&["--hosts", "1", "--stats-file", "/no/such/folder/x", "--", "echo", "ran"])?;
    same("exit code", output.status.code(), Some(125))?;
    same("the command did not run", text(&output.stdout), String::new())?;
    check("the file is named", text(&output.stderr).contains("--stats-file /no/such/folder/x"))?;
    // Full only when it is written to, at the end: the command's exit code goes first, if it has
    // one to tell.
    for (code, told) in [("7", 7), ("0", 125)] {
        let script = format!("exit {code}");
        let output = emulate(&["--hosts", "1", "--stats-file", "/dev/full", "--", "sh", "-c", &script])?;
        same("exit code", output.status.code(), Some(told))?;
        check("the loss is told", text(&output.stderr).contains("write /dev/full"))?;
    }
    Ok(())
}

fn directory(name: &str) -> PathBuf {
    let uid = nix::unistd::getuid();
    std::env::temp_dir().join(format!("weir-emulate-{uid}")).join(name)
}

fn terminate() -> Outcome {
    let name = name("term");
    let before = namespaces();
    let (mut child, line) = start(&name, "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done")?;
    same("first line", line.as_str(), "up")?;
    check("a directory exists", directory(&name).exists())?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), nix::sys::signal::Signal::SIGTERM)?;
    same("exit code", child.wait()?.code(), Some(3))?;
    check("the directory is gone", !directory(&name).exists())?;
    wait_until("no namespace is left", || namespaces().is_subset(&before))
}

fn killed() -> Outcome {
    let name = name("kill");
    let before = namespaces();
    // One process in each host, one of them detached from everything, deaf to gentle signals.
    let script =
        "$WEIR_LAUNCH_AGENT host2 'trap \"\" TERM HUP INT; setsid sleep 300 >/dev/null 2>&1 & echo up' ; sleep 300";
    let (mut child, _) = start(&name, script)?;
    check("namespaces exist", !namespaces().is_subset(&before))?;
    child.kill()?;
    child.wait()?;
    wait_until("no namespace is left", || namespaces().is_subset(&before))?;
    wait_until("the directory is gone", || !directory(&name).exists())
}

fn mistakes() -> Outcome {
    for (arguments, cause) in [
        (&["--", "true"][..], "--hosts"),
        (&["--hosts", "2", "--rate", "fast", "--", "true"], "fast"),
        (&["--hosts", "2", "--rate", "-5", "--", "true"], "'-5' is not a rate"),
        (&["--hosts", "2", "--loss", "-1%", "--", "true"], "'-1%' is not a probability"),
        (&["--hosts", "2", "--networks", "999", "--", "true"], "999 networks"),
        (&["--hosts", "999", "--", "true"], "999 hosts"),
        (&["--spec", "/dev/zero", "--", "true"], "more than 4 MiB"),
        (&["--hosts", "2", "--nft-loss", "1%", "--", "true"], "--plain"),
        (&["--hosts", "2", "--plain", "--loss", "1%", "--", "true"], "plain"),
        (&["--spec", "/nowhere.toml", "--", "true"], "/nowhere.toml"),
        (&["--hosts", "2", "--", "/no/such/program"], "/no/such/program"),
        (&["--hosts", "2", "--at", "host7", "--", "true"], "host7"),
        (&["--hosts", "2", "--sysctl", "net.ipv4.no_such=1", "--", "true"], "no_such"),
        (&["--hosts", "2", "--sysctl", "kernel.panic=1", "--", "true"], "kernel.panic"),
        (&["ctl", "nobody", "stats"], "nobody"),
    ] {
        let output = emulate(arguments)?;
        check(&format!("{arguments:?} fails"), !output.status.success())?;
        let stderr = text(&output.stderr);
        check(&format!("{arguments:?} names {cause}: {stderr}"), stderr.contains(cause))?;
        check(&format!("{arguments:?} does not panic: {stderr}"), !stderr.contains("panicked"))?;
    }
    Ok(())
}

/// Where a network has its files: a folder for temporary files that is not there is not made.
fn places() -> Outcome {
    let folder = std::env::temp_dir().join(name("places"));
    let is_made = |variable: &str| -> Result<(Output, bool), Failed> {
        let place = folder.join(variable).join("deeper");
        let mut command = Command::new(PROGRAM);
        command.args(["--hosts", "1", "--", "true"]).env_remove("WEIR_EMULATE_DIR").env(variable, &place);
        Ok((command.output()?, place.exists()))
    };
    let (refused, tmpdir) = is_made("TMPDIR")?;
    let (accepted, named) = is_made("WEIR_EMULATE_DIR")?;
    let _ = std::fs::remove_dir_all(&folder);
    let told = text(&refused.stderr);
    same("exit code", refused.status.code(), Some(125))?;
    check(&format!("what is wrong is told: {told}"), told.contains("TMPDIR=") && told.contains("no such folder"))?;
    check("in one line", told.lines().count() == 1)?;
    check("TMPDIR is not made", !tmpdir)?;
    same(&text(&accepted.stderr), (accepted.status.code(), named), (Some(0), true))
}

/// As another user, without any capability.
fn unprivileged() -> Outcome {
    if !nix::unistd::geteuid().is_root() {
        return exit_code(); // we are without privilege ourselves
    }
    let place = std::env::temp_dir().join(name("user"));
    std::fs::create_dir(&place)?;
    let outcome = as_nobody(&place);
    std::fs::remove_dir_all(&place)?;
    outcome
}

fn as_nobody(place: &Path) -> Outcome {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o777))?;
    // The program may lie where only root can reach it.
    let program = place.join("weir-emulate");
    std::fs::copy(PROGRAM, &program)?;
    let script = "hostname; $WEIR_LAUNCH_AGENT host2 hostname; ls /sys/class/net; exit 4";
    let mut command = Command::new(&program);
    command.args(["--hosts", "2", "--rate", "1g", "--loss", "1%", "--", "sh", "-c", script]);
    command.env("WEIR_EMULATE_DIR", place.join("run")).current_dir(place).uid(NOBODY).gid(NOBODY);
    let output = command.output()?;
    let stderr = text(&output.stderr);
    if stderr.contains("cannot make network namespaces") {
        return Err(format!("this system refuses user namespaces, so nothing could be tested: {stderr}").into());
    }
    same("exit code", output.status.code(), Some(4)).map_err(|e| format!("{e:?}: {stderr}"))?;
    same("output", text(&output.stdout), "host1\nhost2\nlo\nnet1\n".to_owned())?;
    // Joined by the kernel alone: by one cable, and by a bridge.
    for hosts in ["2", "3"] {
        let mut command = Command::new(&program);
        command.args(["--plain", "--hosts", hosts, "--", "cat", "/sys/class/net/net1/carrier"]);
        command.env("WEIR_EMULATE_DIR", place.join("plain")).current_dir(place).uid(NOBODY).gid(NOBODY);
        let output = command.output()?;
        let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
        same("what is told", said.as_str(), "1\n").map_err(|e| format!("{hosts} hosts: {e:?}"))?;
    }
    Ok(())
}

/// In a user namespace that allows others, but none of networks. Newer kernels do not even let root
/// without privilege have its own name in the next one.
fn refused() -> Outcome {
    let script = "echo 0 > /proc/sys/user/max_net_namespaces && \
                  exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" \"$1\"";
    let mut command = Command::new("unshare");
    command.args(["-Ur", "sh", "-c", script]).arg(std::env::current_exe()?).arg(ACQUIRE);
    let output = command.output()?;
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let named = ["write /proc/self/uid_map", "unshare(NEWNET, NEWNS, NEWUTS)"].iter().any(|step| stdout.contains(step));
    check(&format!("the step is named: {stdout}{stderr}"), named)?;
    check(&format!("the process did not move: {stdout}"), stdout.ends_with("stayed\n"))
}

/// With this argument the tests only try to get the right to make networks, and tell how that went.
const ACQUIRE: &str = "try-to-acquire";

fn acquire() {
    let space = || std::fs::read_link("/proc/self/ns/user").ok();
    let before = space();
    match weir_emulate::privilege::acquire() {
        Ok(how) => println!("{how:?}"),
        Err(error) => println!("{error}"),
    }
    println!("{}", if space() == before { "stayed" } else { "moved" });
}
