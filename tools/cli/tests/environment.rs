//! `eval $(weir env)` in real shells: where there is no key it fails, and programs started all the
//! same are told to use Weir, so that they say why they cannot.

use std::path::Path;
use std::process::{Command, Output};

/// What a script of `sh` says after `weir env`, with a provider and an MPI beside it that need not
/// work.
fn after_env(folder: &Path, key: Option<&str>, script: &str) -> Output {
    use std::os::unix::fs::PermissionsExt;
    let provider = folder.join("libweir-fi.so");
    std::fs::write(&provider, "").unwrap();
    let launcher = folder.join("mpiexec");
    std::fs::write(&launcher, "#!/bin/sh\necho HYDRA build details: Version: 4.1\n").unwrap();
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let script = format!("eval $({} env --mpi mpich); {script}", env!("CARGO_BIN_EXE_weir"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env_clear().env("PATH", path).env("WEIR_LIB", folder).env("HOME", "/nonexistent");
    command.envs(key.map(|key| ("WEIR_KEY", key))).output().unwrap()
}

#[test]
fn without_a_key_eval_fails_and_what_runs_all_the_same_is_sent_to_weir() {
    let folder = tempfile::tempdir().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let show = "echo $? $FI_PROVIDER $MPIR_CVAR_CH4_NETMOD $WEIR_KEY_FILE";
    let output = after_env(folder.path(), None, show);
    assert_eq!(text(&output.stdout), "1 weir ofi\n", "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("there is no such directory to make a job key in"),
        "{}",
        text(&output.stderr)
    );
    assert!(text(&output.stderr).contains("fail in MPI_Init"), "{}", text(&output.stderr));
    let output = after_env(folder.path(), Some(&"0".repeat(64)), show);
    assert_eq!(text(&output.stdout), "0 weir ofi\n", "{}", text(&output.stderr));
}
