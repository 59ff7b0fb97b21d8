//! Whether the layouts and constants of `pmix.rs` are those of the PMIx headers that are installed:
//! a C program asserts each.

use std::mem::{align_of, offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Arguments, Trial};
use weir_job_sys::pmix::*;

/// Where distributions and sources put the header.
fn include() -> Option<PathBuf> {
    let debian = format!("/usr/lib/{}-linux-gnu/pmix2/include", std::env::consts::ARCH);
    let named = std::env::var_os("PMIX_INCLUDE").map(PathBuf::from);
    let usual =
        [debian, "/usr/include/pmix".into(), "/usr/include".into(), "/usr/local/include".into()].map(PathBuf::from);
    named.into_iter().chain(usual).find(|folder| folder.join("pmix_common.h").exists())
}

fn main() {
    let name = "layouts_and_constants_are_those_of_the_installed_headers";
    let include = include();
    let trial = match include.clone() {
        Some(include) => Trial::test(name, move || {
            compared(&include);
            Ok(())
        }),
        None => Trial::test(name, || Ok(())).with_ignored_flag(true),
    };
    if include.is_none() {
        eprintln!(
            "IGNORED, not passed: {name}. There is no pmix_common.h (Debian: libpmix-dev), nor one named by PMIX_INCLUDE"
        );
    }
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit();
}

fn compared(include: &Path) {
    let mut text = String::from("#include <stddef.h>\n#include <pmix.h>\n");
    let mut same =
        |c: &str, ours: usize| text += &format!("_Static_assert(({c}) == {ours}u, \"{}\");\n", c.replace('"', "'"));
    same("sizeof(pmix_proc_t)", size_of::<Proc>());
    same("offsetof(pmix_proc_t, rank)", offset_of!(Proc, rank));
    same("sizeof(pmix_byte_object_t)", size_of::<ByteObject>());
    same("offsetof(pmix_byte_object_t, size)", offset_of!(ByteObject, size));
    same("sizeof(pmix_value_t)", size_of::<Value>());
    same("_Alignof(pmix_value_t)", align_of::<Value>());
    same("offsetof(pmix_value_t, data)", offset_of!(Value, data));
    same("sizeof(((pmix_value_t *)0)->data)", size_of::<Data>());
    same("sizeof(((pmix_value_t *)0)->type)", size_of::<u16>());
    same("sizeof(pmix_info_t)", size_of::<Info>());
    same("offsetof(pmix_info_t, flags)", offset_of!(Info, flags));
    same("offsetof(pmix_info_t, value)", offset_of!(Info, value));
    same("sizeof(pmix_status_t)", size_of::<i32>());
    same("sizeof(pmix_scope_t)", size_of::<u8>());
    same("PMIX_MAX_NSLEN + 1", NAMESPACE_BYTES);
    same("PMIX_MAX_KEYLEN + 1", KEY_BYTES);
    same("(unsigned)(PMIX_RANK_WILDCARD)", RANK_WILDCARD as usize);
    same("PMIX_BOOL", TYPE_BOOL.into());
    same("PMIX_INT", TYPE_INT.into());
    same("PMIX_UINT32", TYPE_UINT32.into());
    same("PMIX_BYTE_OBJECT", TYPE_BYTE_OBJECT.into());
    same("PMIX_GLOBAL", SCOPE_GLOBAL.into());
    same("PMIX_SUCCESS", usize::try_from(SUCCESS).unwrap());
    for (name, ours) in [
        ("PMIX_COLLECT_DATA", COLLECT_DATA),
        ("PMIX_TIMEOUT", TIMEOUT),
        ("PMIX_JOB_SIZE", JOB_SIZE),
        ("PMIX_LOCAL_SIZE", LOCAL_SIZE),
    ] {
        text += &format!(
            "static int of_{name}(void) {{ return __builtin_strcmp({name}, \"{}\"); }}\n",
            ours.to_str().unwrap()
        );
        text += &format!("_Static_assert(sizeof({name}) == {}, \"{name}\");\n", ours.count_bytes() + 1);
    }
    // The declarations of what is called, with the types that the library is called with.
    text += "static pmix_status_t (*init)(pmix_proc_t *, pmix_info_t *, size_t) = PMIx_Init;\n\
             static pmix_status_t (*finalize)(const pmix_info_t *, size_t) = PMIx_Finalize;\n\
             static pmix_status_t (*abort_)(int, const char *, pmix_proc_t *, size_t) = PMIx_Abort;\n\
             static pmix_status_t (*put)(pmix_scope_t, const char *, pmix_value_t *) = PMIx_Put;\n\
             static pmix_status_t (*commit)(void) = PMIx_Commit;\n\
             static pmix_status_t (*fence)(const pmix_proc_t *, size_t, const pmix_info_t *, size_t) = PMIx_Fence;\n\
             static pmix_status_t (*get)(const pmix_proc_t *, const char *, const pmix_info_t *, size_t, pmix_value_t **) = PMIx_Get;\n\
             static const char *(*words)(pmix_status_t) = PMIx_Error_string;\n\
             int main(void) {\n\
             return of_PMIX_COLLECT_DATA() | of_PMIX_TIMEOUT() | of_PMIX_JOB_SIZE() | of_PMIX_LOCAL_SIZE() | \
             !(init && finalize && abort_ && put && commit && fence && get && words);\n}\n";
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("layout.c"), folder.path().join("layout.o"));
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-std=gnu11", "-Werror", "-O1", "-c", "-I"]).arg(include).arg(&source).arg("-o").arg(&object);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
