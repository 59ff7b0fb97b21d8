//! `weir cc`: a compiler with what programs for Weir's own interfaces need, and nothing else
//! changed.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use weir_job::Env;

use crate::args::CcArgs;

/// The header and the library that are looked for.
const HEADER: &str = "bsp.h";
const LIBRARY: &str = "libweir-bsp.so";
/// The module of Fortran programs, below `share/weir`.
const MODULE: &str = "bsp.f90";

/// Where both are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Installed {
    include: PathBuf,
    lib: PathBuf,
    /// The module for Fortran, where it is there too.
    module: Option<PathBuf>,
}

impl Installed {
    /// Looks beside this program, wherever all of it was moved to; then where systems have such
    /// things. `WEIR_PREFIX` comes before both.
    fn find(env: &Env) -> Result<Installed> {
        let own = std::env::current_exe().and_then(|file| file.canonicalize());
        // bin/weir, or target/PROFILE/weir, beside which `cargo xtask build` has its folder.
        let prefixes = own.iter().flat_map(|file| file.ancestors().skip(2).take(1)).map(Path::to_owned);
        let prefixes: Vec<PathBuf> = prefixes.flat_map(|prefix| [prefix.clone(), prefix.join("weir")]).collect();
        let named = env.get("WEIR_PREFIX").map(PathBuf::from);
        let usual = ["/usr/local", "/usr"].map(PathBuf::from);
        let places: Vec<PathBuf> = match &named {
            Some(named) => vec![named.clone()],
            None => prefixes.into_iter().chain(usual).collect(),
        };
        let found = places.iter().find_map(|prefix| Self::below(prefix));
        found.ok_or_else(|| {
            let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
            anyhow!(
                "include/{HEADER} and lib/{LIBRARY} are not both in any of: {}; set WEIR_PREFIX to where they are",
                looked.join(", ")
            )
        })
    }

    fn below(prefix: &Path) -> Option<Installed> {
        let include = prefix.join("include");
        let libs = ["lib", "lib64"].map(|lib| prefix.join(lib));
        let lib = libs.into_iter().find(|lib| lib.join(LIBRARY).is_file())?;
        let module = Some(prefix.join("share/weir").join(MODULE)).filter(|module| module.is_file());
        include.join(HEADER).is_file().then_some(Installed { include, lib, module })
    }
}

/// Whether the compiler links: not if it is told to stop before.
fn links(words: &[OsString]) -> bool {
    !words.iter().any(|word| ["-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"].iter().any(|stop| word == stop))
}

/// A language, by the files that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    C,
    Cxx,
    Fortran,
}

fn language(words: &[OsString]) -> Language {
    let has = |suffixes: &[&str]| {
        words.iter().any(|word| {
            let suffix = Path::new(word).extension().and_then(OsStr::to_str);
            suffix.is_some_and(|suffix| suffixes.contains(&suffix))
        })
    };
    if has(&["f90", "F90", "f03", "f08", "f", "F"]) {
        Language::Fortran
    } else if has(&["cc", "cpp", "cxx", "C", "c++"]) {
        Language::Cxx
    } else {
        Language::C
    }
}

/// The compiler, with its own words: of the environment, else the usual name.
fn compiler(env: &Env, language: Language) -> (Vec<String>, &'static str) {
    let (variable, usual) = match language {
        Language::C => ("CC", "cc"),
        Language::Cxx => ("CXX", "c++"),
        Language::Fortran => ("FC", "gfortran"),
    };
    let words = env.get(variable).map(|value| value.to_string_lossy().split_whitespace().map(str::to_owned).collect());
    (words.filter(|words: &Vec<String>| !words.is_empty()).unwrap_or_else(|| vec![usual.to_owned()]), variable)
}

/// The words behind the user's own, so that his come first where order counts.
fn added(installed: &Installed, words: &[OsString]) -> Vec<OsString> {
    let path = |before: &str, path: &Path| {
        let mut word = OsString::from(before);
        word.push(path);
        word
    };
    let mut all = vec![path("-I", &installed.include)];
    if links(words) {
        all.push(path("-L", &installed.lib));
        all.push(path("-Wl,-rpath,", &installed.lib));
        all.push("-lweir-bsp".into());
    }
    all
}

/// The module, in front of the user's words: it is compiled before the programs that use it. Not
/// where only a part is compiled, into a file that may be named, nor where the user names it, or
/// what he made of it.
fn module<'a>(installed: &'a Installed, words: &[OsString]) -> Option<&'a Path> {
    let is_named = words.iter().map(Path::new).any(|word| {
        let is_object = word.extension().is_some_and(|e| e == "o") && word.file_stem() == Path::new(MODULE).file_stem();
        is_object || word.file_name().is_some_and(|name| name == MODULE)
    });
    installed.module.as_deref().filter(|_| language(words) == Language::Fortran && links(words) && !is_named)
}

/// Compiles, or shows the command.
///
/// # Errors
/// If header and library are not to be found, or the compiler is not.
pub fn run(env: &Env, args: &CcArgs) -> Result<u8> {
    let installed = Installed::find(env)?;
    let (mut command, variable) = compiler(env, language(&args.words));
    if args.words.is_empty() && !args.show {
        bail!("nothing to compile: weir cc program.c -o program");
    }
    let first = command.remove(0);
    let module = module(&installed, &args.words).map(|module| module.as_os_str().to_owned());
    let own = command.into_iter().map(OsString::from).chain(module);
    let rest: Vec<OsString> = own.chain(args.words.iter().cloned()).collect();
    let added = added(&installed, &args.words);
    if args.show {
        let all = std::iter::once(OsString::from(&first)).chain(rest).chain(added);
        let words: Vec<String> = all.map(|word| quoted(&word.to_string_lossy())).collect();
        return crate::commands::print_all(format!("{}\n", words.join(" ")).as_bytes());
    }
    let error = Command::new(&first).args(rest).args(added).exec();
    Err(error).with_context(|| format!("cannot run {first}; {variable} names another compiler"))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_library_is_named_only_where_something_is_linked() {
        let installed = Installed { include: "/p/include".into(), lib: "/p/lib".into(), module: None };
        let of = |line: &str| added(&installed, &words(line));
        assert_eq!(of("-c a.c"), ["-I/p/include"]);
        assert_eq!(of("a.c -o a"), ["-I/p/include", "-L/p/lib", "-Wl,-rpath,/p/lib", "-lweir-bsp"]);
    }

    #[test]
    fn the_module_stands_before_a_fortran_program_that_is_linked() {
        let file = Path::new("/p/share/weir/bsp.f90");
        let installed = Installed { include: "/p/include".into(), lib: "/p/lib".into(), module: Some(file.into()) };
        let of = |line: &str| module(&installed, &words(line));
        assert_eq!(of("-O2 a.f90 -o a"), Some(file));
        for line in ["-c a.f90", "own/bsp.f90 a.f90 -o a", "a.f90 own/bsp.o -o a", "a.c -o a", "a.o -o a"] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn the_compiler_is_that_of_the_files_and_of_the_environment() {
        assert_eq!(language(&words("-O2 a.c b.o")), Language::C);
        assert_eq!(language(&words("a.c b.cpp")), Language::Cxx);
        assert_eq!(language(&words("a.F90 -o x")), Language::Fortran);
        let env = Env::from_pairs([("CC", "ccache gcc")]);
        assert_eq!(compiler(&env, Language::C).0, ["ccache", "gcc"]);
        assert_eq!(compiler(&env, Language::Cxx).0, ["c++"]);
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[test]
    fn a_prefix_is_one_with_header_and_library() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path();
        assert_eq!(Installed::below(prefix), None);
        for file in ["include/bsp.h", "lib64/libweir-bsp.so"] {
            std::fs::create_dir_all(prefix.join(file).parent().unwrap()).unwrap();
            assert_eq!(Installed::below(prefix), None);
            std::fs::write(prefix.join(file), "").unwrap();
        }
        let found = Installed::below(prefix).unwrap();
        assert_eq!((found.include, found.lib, found.module), (prefix.join("include"), prefix.join("lib64"), None));
        std::fs::create_dir_all(prefix.join("share/weir")).unwrap();
        std::fs::write(prefix.join("share/weir/bsp.f90"), "").unwrap();
        assert_eq!(Installed::below(prefix).unwrap().module, Some(prefix.join("share/weir/bsp.f90")));
        let env = Env::from_pairs([("WEIR_PREFIX", "/nowhere")]);
        assert!(Installed::find(&env).unwrap_err().to_string().contains("/nowhere"));
    }
}
