//! Against a launcher that says what a script has, byte by byte: what real ones do not do on
//! demand.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use super::*;

const LIMITS: Limits = Limits { answer: Duration::from_millis(300), others: Duration::from_millis(600) };

/// What the rank must say, and what it is answered.
type Script = &'static [(&'static str, &'static str)];

const V1: Script = &[
    ("cmd=init pmi_version=1 pmi_subversion=1\n", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"),
    ("cmd=get_maxes\n", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"),
    ("cmd=get_my_kvsname\n", "cmd=my_kvsname kvsname=kvs_7\n"),
];

const V2: Script = &[
    ("cmd=init pmi_version=2 pmi_subversion=0\n", "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n"),
    (
        "cmd=fullinit;pmijobid=5.0;pmirank=1;threaded=FALSE;",
        "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=-1;debugged=FALSE;",
    ),
    ("cmd=job-getid;", "cmd=job-getid-response;rc=0;jobid=5.0;"),
];

/// Commands of version 2, which end in a semicolon, with their length in front.
fn framed(text: &str) -> String {
    if text.ends_with(';') { format!("{:<6}{text}", text.len()) } else { text.to_owned() }
}

/// A launcher in a thread; it ends, and closes its socket, with its script.
fn launcher(mut socket: UnixStream, script: Vec<(&'static str, &'static str)>) -> JoinHandle<Result<(), String>> {
    std::thread::spawn(move || {
        for (expected, answer) in script {
            let (expected, answer) = (framed(expected), framed(answer));
            let mut got = vec![0; expected.len()];
            socket.read_exact(&mut got).map_err(|error| format!("{error} instead of {expected:?}"))?;
            if got != expected.as_bytes() {
                return Err(format!("{:?} instead of {expected:?}", String::from_utf8_lossy(&got)));
            }
            if answer == "silence" {
                std::thread::sleep(Duration::from_secs(2));
            } else {
                // In two pieces: a stream keeps no borders.
                let (first, second) = answer.as_bytes().split_at(answer.len() / 2);
                let _ = socket.write_all(first).and_then(|()| socket.write_all(second));
            }
        }
        Ok(())
    })
}

fn joined(
    version: Launcher,
    script: Vec<(&'static str, &'static str)>,
) -> (Result<Joined, LaunchError>, JoinHandle<Result<(), String>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let launcher = launcher(near, script);
    let fd = far.as_raw_fd().to_string();
    let env = Env::from_pairs([("PMI_FD", fd.as_str()), ("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("PMI_JOBID", "5.0")]);
    (join(&env, version, LIMITS), launcher)
}

fn and(first: Script, second: Script) -> Vec<(&'static str, &'static str)> {
    first.iter().chain(second).copied().collect()
}

#[test]
fn a_job_by_version_1_is_word_for_word_as_specified() {
    let (joined, launcher) = joined(
        Launcher::Pmi1,
        and(
            V1,
            &[
                ("cmd=put kvsname=kvs_7 key=weir-0-1-0 value=000000026162\n", "cmd=put_result rc=0 msg=success\n"),
                ("cmd=barrier_in\n", "cmd=barrier_out\n"),
                ("cmd=get kvsname=kvs_7 key=weir-0-0-0\n", "cmd=get_result rc=0 msg=success value=0000000163\n"),
                ("cmd=barrier_in\n", "cmd=barrier_out rc=0\n"),
                ("cmd=finalize\n", "cmd=finalize_ack\n"),
            ],
        ),
    );
    let Joined { mut backend, rank, size, id, .. } = joined.unwrap();
    assert_eq!((rank, size, id.as_str()), (1, 2, "kvs_7"));
    assert_eq!(backend.exchange(b"ab").unwrap(), [b"c".to_vec(), b"ab".to_vec()]);
    backend.fence().unwrap();
    backend.finalize().unwrap();
    launcher.join().unwrap().unwrap();
}

#[test]
fn a_job_by_version_2_is_word_for_word_as_specified() {
    let (joined, launcher) = joined(
        Launcher::Pmi2,
        and(
            V2,
            &[
                ("cmd=kvs-put;key=weir-0-1-0;value=000000026162;", "cmd=kvs-put-response;rc=0;"),
                ("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;"),
                (
                    "cmd=kvs-get;jobid=5.0;srcid=0;key=weir-0-0-0;",
                    "cmd=kvs-get-response;rc=0;found=TRUE;value=0000000163;",
                ),
                ("cmd=finalize;", "cmd=finalize-response;rc=0;"),
            ],
        ),
    );
    let Joined { mut backend, rank, size, id, .. } = joined.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((rank, size, id.as_str()), (1, 2, "5.0"));
    assert_eq!(backend.exchange(b"ab").unwrap(), [b"c".to_vec(), b"ab".to_vec()]);
    backend.finalize().unwrap();
    launcher.join().unwrap().unwrap();
}

#[test]
fn an_abort_is_told_in_one_piece_without_blanks() {
    let told = "cmd=abort exitcode=3 message=no_memory__cmd_finalize\n";
    let (joined, launcher) = joined(Launcher::Pmi1, and(V1, &[]).into_iter().chain([(told, "")]).collect());
    joined.unwrap().backend.abort(3, "no memory;\ncmd=finalize").unwrap_or_else(|error| panic!("{error}"));
    launcher.join().unwrap().unwrap();
}

#[test]
fn a_launcher_that_fails_at_its_greeting_is_told_of_in_one_line() {
    for (version, script, named) in [
        (Launcher::Pmi1, vec![], "went away"),
        (Launcher::Pmi1, vec![(V1[0].0, "silence")], "the greeting was not done after 0 s"),
        (Launcher::Pmi1, vec![(V1[0].0, "cmd=response_to_init rc=1 pmi_version=2 pmi_subversion=0\n")], "code 1"),
        (Launcher::Pmi1, vec![(V1[0].0, "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n")], "protocol"),
        (Launcher::Pmi1, vec![(V1[0].0, "hello\n")], "is no command"),
        (Launcher::Pmi1, vec![V1[0], (V1[1].0, "cmd=maxes keylen_max=-1 vallen_max=x\n")], "protocol"),
        (Launcher::Pmi1, vec![V1[0], V1[1], (V1[2].0, "cmd=my_kvsname rc=0\n")], "protocol"),
        (Launcher::Pmi2, vec![V2[0], (V2[1].0, "cmd=fullinit-response;rc=1;size=2;")], "code 1"),
        (Launcher::Pmi2, vec![V2[0], (V2[1].0, "cmd=fullinit-response;rc=0;size=2;"), V2[2]], "protocol"),
        (Launcher::Pmi2, vec![V2[0], (V2[1].0, "cmd=fullinit-response;rc=0;size=1;rank=1;"), V2[2]], "rank 1 of 1"),
        (Launcher::Pmi2, vec![V2[0], (V2[1].0, "x     ")], "no length"),
    ] {
        let (joined, launcher) = joined(version, script);
        let why = joined.map(drop).unwrap_err().to_string();
        assert!(why.contains(named) && !why.contains('\n'), "{why}");
        launcher.join().unwrap().unwrap();
    }
}

#[test]
fn a_launcher_that_fails_later_is_told_of_too() {
    let put = ("cmd=put kvsname=kvs_7 key=weir-0-1-0 value=000000026162\n", "cmd=put_result rc=0\n");
    let barrier = ("cmd=barrier_in\n", "cmd=barrier_out rc=0\n");
    let get = "cmd=get kvsname=kvs_7 key=weir-0-0-0\n";
    for (script, named) in [
        (vec![(put.0, "cmd=put_result rc=-1 msg=duplicate_key\n")], "refused an exchange: duplicate_key (code -1)"),
        (vec![put, (barrier.0, "silence")], "waiting for all ranks was not done"),
        (vec![put, (barrier.0, "cmd=barrier_out rc=1 msg=failed\n")], "refused waiting for all ranks"),
        (vec![put], "went away during waiting for all ranks"),
        (vec![put, barrier, (get, "cmd=get_result rc=1\n")], "refused an exchange"),
        (vec![put, barrier, (get, "cmd=get_result rc=0 found=FALSE\n")], "protocol"),
        (vec![put, barrier, (get, "cmd=get_result rc=0 value=zz\n")], "rank 0 gave no length"),
    ] {
        let (joined, launcher) = joined(Launcher::Pmi1, V1.iter().copied().chain(script).collect());
        let why = joined.unwrap().backend.exchange(b"ab").unwrap_err().to_string();
        assert!(why.contains(named) && !why.contains('\n'), "{why}");
        launcher.join().unwrap().unwrap();
    }
}

#[test]
fn a_launcher_that_is_connected_to_is_told_who_comes() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let script = [("cmd=initack pmiid=4\n", "cmd=initack rc=0\ncmd=set size=6\ncmd=set rank=5\ncmd=set debug=0\n")];
    let script = script.into_iter().chain(V1.iter().copied()).collect();
    let thread = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        launcher(UnixStream::from(std::os::fd::OwnedFd::from(socket)), script).join().unwrap()
    });
    let env = Env::from_pairs([("PMI_PORT", address.as_str()), ("PMI_ID", "4")]);
    let joined = join(&env, Launcher::Pmi1, LIMITS).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((joined.rank, joined.size), (5, 6));
    thread.join().unwrap().unwrap();
}

#[test]
fn variables_that_name_nobody_are_errors() {
    let why = |pairs: &[(&str, &str)]| {
        let env = Env::from_pairs(pairs.iter().copied());
        join(&env, Launcher::Pmi1, LIMITS).map(drop).unwrap_err().to_string()
    };
    assert!(why(&[]).contains("neither PMI_FD nor PMI_PORT"));
    assert!(why(&[("PMI_FD", "x")]).starts_with("PMI_FD=x: not the number"));
    assert!(why(&[("PMI_FD", "999999")]).starts_with("PMI_FD=999999: no socket"));
    assert!(why(&[("PMI_PORT", "nonsense"), ("PMI_ID", "0")]).contains("PMI_PORT=nonsense"));
    let (near, _far) = UnixStream::pair().unwrap();
    let fd = near.as_raw_fd().to_string();
    assert!(why(&[("PMI_FD", &fd), ("PMI_RANK", "-1"), ("PMI_SIZE", "2")]).starts_with("PMI_RANK=-1: not a number"));
}
