//! `weir bmi`: what programs with BMI need, and whether a server lives.

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::json;
use weir_job::Env;

use crate::args::{BmiAction, BmiArgs};
use crate::commands::{print_all, print_json, wrong_line};
use crate::environment;
use crate::provider;

/// The library, as packages name it and as Cargo does.
const FILES: [&str; 2] = ["libweir-bmi.so", "libweir_bmi.so"];

/// Does what is asked.
///
/// # Errors
/// What went wrong, in one line.
pub fn run(env: &Env, args: &BmiArgs) -> Result<u8> {
    match (args.action, &args.url) {
        (BmiAction::Env, None) => print_env(env, args, &find(env)?),
        (BmiAction::Env, Some(url)) => {
            wrong_line(&format!("weir bmi env takes no URL, and {} was given", url.escape_debug()))
        }
        (BmiAction::Ping, Some(url)) => ping(env, args, &find(env)?, url),
        (BmiAction::Ping, None) => wrong_line("whom? For example: weir bmi ping weir://server:3334"),
    }
}

/// The library: in `WEIR_LIB`, beside the provider, or beside this program as installed.
///
/// # Errors
/// It is in none of them; they are listed.
pub fn find(env: &Env) -> Result<PathBuf> {
    if let Some(found) = provider::named(env, &FILES) {
        return found;
    }
    let program = std::env::current_exe().unwrap_or_default();
    let folders: Vec<PathBuf> = provider::beside(&program)
        .into_iter()
        .chain(program.parent().map(Path::to_owned))
        .chain(["/usr/local/lib", "/usr/lib"].map(PathBuf::from))
        .collect();
    let places = || folders.iter().flat_map(|folder| FILES.map(|name| folder.join(name)));
    match places().find(|file| file.is_file()) {
        Some(file) => Ok(file.canonicalize()?),
        None => {
            let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            bail!("{} is in none of: {}; set WEIR_LIB to its folder", FILES[0], looked.join(", "))
        }
    }
}

fn print_env(env: &Env, args: &BmiArgs, library: &Path) -> Result<u8> {
    provider::nameable(library, "LD_PRELOAD", ": \t\n")?;
    let key = environment::key(env)?;
    let mut variables: Vec<environment::Variable> = vec![("LD_PRELOAD".into(), preload(library, env))];
    if let Some(path) = key.source.path() {
        variables.push(("WEIR_KEY_FILE".into(), path.display().to_string()));
    }
    if args.json {
        let map: serde_json::Map<String, serde_json::Value> =
            variables.into_iter().map(|(name, value)| (name, value.into())).collect();
        return print_json(&json!({"library": library, "variables": map}));
    }
    weir_put::tell!(
        "weir: for clients that bring a BMI of their own; servers are linked with -lweir-bmi (weir-bmi(7))"
    );
    let lines = args.shell.lines(&variables)?;
    print_all(lines.as_bytes())
}

/// Ours first; others the user has named stay.
fn preload(library: &Path, env: &Env) -> String {
    let ours = library.display().to_string();
    let before = env.get("LD_PRELOAD").map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
    let rest = before.split([':', ' ']).filter(|part| !part.is_empty() && *part != ours);
    std::iter::once(ours.as_str()).chain(rest).collect::<Vec<_>>().join(":")
}

type Initialize = unsafe extern "C" fn(*const c_char, *const c_char, c_int) -> c_int;
type Lookup = unsafe extern "C" fn(*mut i64, *const c_char) -> c_int;
type Ping = unsafe extern "C" fn(i64, c_int) -> c_int;
type Finalize = unsafe extern "C" fn() -> c_int;
type Text = unsafe extern "C" fn(c_int) -> *const c_char;

/// The library begins: no URL is known to it yet.
const BEGINNING: &str = "beginning";

/// What a name of an error means here, in words; empty where the name says it.
fn meaning(name: &str, beginning: bool, url: &str, key: Option<&weir_job::JobKey>) -> String {
    match name {
        "BMI_ENOPROTOOPT" if url.starts_with("sctp:") => "; there is no SCTP here".into(),
        "BMI_ENOPROTOOPT" => "; a URL begins with weir://, tcp:// or sctp://, as in weir://server:3334".into(),
        // What it was is on standard error, told by the library.
        "BMI_EINVAL" if beginning => "; a setting (WEIR_...) is wrong".into(),
        "BMI_EINVAL" => {
            "; a URL is weir://HOST:PORT, tcp://HOST:PORT or sctp://HOST:PORT, as in weir://server:3334".into()
        }
        "BMI_EHOSTNTFD" => "; there is no host of that name".into(),
        "BMI_ECONNREFUSED" => "; nobody listens there".into(),
        "BMI_ETIMEDOUT" if !url.starts_with("tcp:") => {
            let open = std::env::var_os("WEIR_BMI_OPEN").is_some_and(|v| v == "1");
            let ours = match key {
                _ if open => " (here everybody's: WEIR_BMI_OPEN=1)".into(),
                Some(key) => format!(" (here {} from {})", key.fingerprint(), key.source),
                None => String::new(),
            };
            format!(
                "; nobody listens there, or UDP does not pass, or the server has another job key and so does not answer{ours}"
            )
        }
        _ => String::new(),
    }
}

/// What a ping that succeeds has shown. `bmi_tcp` speaks the wire of OrangeFS, which has no
/// question that every server answers: there it is a connection.
fn found_out(url: &str) -> &'static str {
    if url.starts_with("tcp://") {
        "takes connections; that a BMI server does so is not known by this"
    } else {
        "answers"
    }
}

/// Whether a BMI server lives there, if that is known.
fn lives(url: &str, found: c_int) -> Option<bool> {
    match found {
        0 if url.starts_with("tcp://") => None,
        found => Some(found == 0),
    }
}

fn ping(env: &Env, args: &BmiArgs, library: &Path, url: &str) -> Result<u8> {
    let text = CString::new(url).context("a URL holds no zero byte")?;
    // SAFETY: loading runs the initialisers of our own library.
    let loaded = unsafe { libloading::Library::new(library) }?;
    let cannot = |name: &str| format!("{} has no {name}", library.display());
    // SAFETY: the functions of this name in `include/bmi.h` have these types.
    let (initialize, lookup, ping, finalize, status) = unsafe {
        (
            loaded.get::<Initialize>(b"BMI_initialize\0").with_context(|| cannot("BMI_initialize"))?,
            loaded.get::<Lookup>(b"BMI_addr_lookup\0").with_context(|| cannot("BMI_addr_lookup"))?,
            loaded.get::<Ping>(b"WEIR_BMI_ping\0").with_context(|| cannot("WEIR_BMI_ping"))?,
            loaded.get::<Finalize>(b"BMI_finalize\0").with_context(|| cannot("BMI_finalize"))?,
            loaded.get::<Text>(b"bmi_status_string\0").with_context(|| cannot("bmi_status_string"))?,
        )
    };
    let said = |code: c_int| {
        // SAFETY: it returns a C string of the library's own for any number.
        let name = unsafe { CStr::from_ptr(status(code)) };
        name.to_string_lossy().into_owned()
    };
    let key = environment::key(env).ok();
    let told = |code: c_int, beginning: bool| {
        let name = said(code);
        format!("{name}{}", meaning(&name, beginning, url, key.as_ref()))
    };
    let check = |what: &str, code: c_int| match code {
        0.. => Ok(()),
        _ => Err(anyhow!("{what}: {}", told(code, what == BEGINNING))),
    };
    let mut addr = 0;
    // SAFETY: a client without methods; null is allowed.
    check(BEGINNING, unsafe { initialize(std::ptr::null(), std::ptr::null(), 0) })?;
    // SAFETY: a place for the address, and a C string.
    check(&format!("{}", url.escape_debug()), unsafe { lookup(&raw mut addr, text.as_ptr()) })?;
    let begun = Instant::now();
    // SAFETY: plain numbers.
    let found = unsafe { ping(addr, c_int::try_from(args.timeout_ms).unwrap_or(c_int::MAX)) };
    let took_us = begun.elapsed().as_micros();
    // SAFETY: nothing of it is used afterwards.
    unsafe { finalize() };
    if args.json {
        let why = (found < 0).then(|| said(found));
        let shown = (found == 0).then(|| found_out(url));
        print_json(
            &json!({"url": url, "lives": lives(url, found), "shown": shown, "us": took_us as u64, "error": why}),
        )?;
    } else if found == 0 {
        print_all(format!("{url} {} ({took_us} us)\n", found_out(url)).as_bytes())?;
    } else {
        weir_put::tell!("weir: {} does not answer: {}", url.escape_debug(), told(found, false));
    }
    Ok(u8::from(found < 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays_behind_ours() {
        let of = |before: &str| preload(Path::new("/w/libweir-bmi.so"), &Env::from_pairs([("LD_PRELOAD", before)]));
        assert_eq!(of(""), "/w/libweir-bmi.so");
        assert_eq!(of("/a.so /w/libweir-bmi.so:/b.so"), "/w/libweir-bmi.so:/a.so:/b.so");
    }

    #[test]
    fn a_connection_is_not_called_an_answer() {
        assert_eq!(found_out("weir://n1:3334"), "answers");
        assert!(found_out("tcp://n1:3334").contains("connections"));
        assert_eq!((lives("weir://n1:1", 0), lives("tcp://n1:1", 0)), (Some(true), None));
        assert_eq!((lives("weir://n1:1", -1), lives("tcp://n1:1", -1)), (Some(false), Some(false)));
    }

    #[test]
    fn what_fails_is_told_in_words_beside_its_name() {
        let of = |name: &str, url: &str| meaning(name, false, url, None);
        assert!(of("BMI_ENOPROTOOPT", "localhost:1").contains("weir://server:3334"));
        assert!(of("BMI_ENOPROTOOPT", "sctp://localhost:1").contains("no SCTP"));
        assert!(of("BMI_EHOSTNTFD", "weir://nohost:1").contains("no host"));
        assert!(of("BMI_EINVAL", "weir://n1").contains("weir://HOST:PORT"));
        assert!(of("BMI_ETIMEDOUT", "weir://n1:1").contains("nobody listens"));
        let env = Env::from_pairs([("WEIR_KEY", "7".repeat(64))]);
        let key = environment::key(&env).expect("a key");
        let told = meaning("BMI_ETIMEDOUT", false, "weir://n1:1", Some(&key));
        assert!(told.contains("another job key") && told.contains(&key.fingerprint()), "{told}");
        assert_eq!(of("BMI_ETIMEDOUT", "tcp://n1:1"), "", "no key there");
        assert_eq!(of("BMI_ENOMEM", "weir://n1:1"), "");
    }

    #[test]
    fn a_folder_that_is_named_must_have_it() {
        let outer = tempfile::tempdir().unwrap();
        let empty = outer.path().join("lib");
        std::fs::create_dir(&empty).unwrap();
        let env = Env::from_pairs([("WEIR_LIB", &empty)]);
        let error = find(&env).unwrap_err().to_string();
        assert!(error.contains(FILES[0]) && error.contains(&empty.display().to_string()), "{error}");
        std::fs::write(empty.join(FILES[0]), "").unwrap();
        assert!(find(&env).unwrap().ends_with(FILES[0]));
    }
}
