//! OrangeFS for the cells of [`super::storage`]: what a built tree must hold, its server over this
//! project's library, and a configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::paths::Paths;
use crate::process::run_quiet;

/// For what takes a second: making storage, starting servers.
pub const LIMIT: Duration = Duration::from_secs(60);

/// What must be in a built tree.
const PARTS: [&str; 7] = [
    "include/pvfs2.h",
    "lib/libpvfs2.so",
    "lib/libpvfs2-server.a",
    "src/server/pvfs2-server",
    SERVER_OBJECTS[0],
    SERVER_OBJECTS[1],
    "src/apps/admin/pvfs2-cp",
];
/// How it gets there.
const ADVICE: &str = "./prepare; ./configure --with-db-backend=lmdb --disable-usrint --disable-fuse --disable-kernel-aio \
    --disable-karma --enable-shared CFLAGS=\"-O2 -g -fcommon -w -D_GNU_SOURCE\"; make";
/// The server without its library.
const SERVER_OBJECTS: [&str; 2] = ["src/server/pvfs2-server-server.o", "src/server/pvfs2-server-req-server.o"];
/// The objects of the server's library that are BMI.
const BMI_OBJECTS: [&str; 7] = [
    "bmi-server.o",
    "bmi-method-support-server.o",
    "op-list-server.o",
    "reference-list-server.o",
    "bmi-tcp-server.o",
    "sockio-server.o",
    "socket-collection-epoll-server.o",
];

/// How much is stored.
#[derive(Debug, clap::Args)]
pub struct Amounts {
    /// Storage cells: the file that is copied, in MiB; thrice as much memory is needed
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    storage_mib: u64,
    /// Storage cells: how many small files
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    storage_files: u32,
}

/// The programs, and where they are tried.
#[derive(Debug)]
pub struct Plan {
    /// The built tree.
    pub tree: PathBuf,
    /// `tests/bmi/files.c`.
    pub files: PathBuf,
    /// OrangeFS's server over this project's library.
    pub server: PathBuf,
    /// The library.
    pub library: PathBuf,
    /// Configurations, what servers say, and OrangeFS's library by the name that programs ask for.
    pub folder: PathBuf,
    /// Of the large file.
    pub bytes: u64,
    /// Of small files.
    pub count: u32,
}

/// The name by which the tree's programs look for its library.
///
/// # Errors
/// If the tree lacks something; it says what.
fn complete(tree: &Path) -> Result<String> {
    let lacks = |what: String| -> Result<String> {
        bail!("{}: {what}; storage cells need OrangeFS with server, tools and shared library: {ADVICE}", tree.display())
    };
    if let Some(part) = PARTS.iter().find(|part| !tree.join(part).is_file()) {
        return lacks(format!("there is no {part}"));
    }
    // What is linked statically would go on with its own BMI, whatever is preloaded.
    match needed(&fs::read(tree.join("src/apps/admin/pvfs2-cp"))?) {
        Some(name) => Ok(name),
        None => lacks("pvfs2-cp is not linked with lib/libpvfs2.so".to_owned()),
    }
}

/// The library's name in a program, which has its version at its end: it is installed so.
fn needed(program: &[u8]) -> Option<String> {
    let name = b"libpvfs2.so";
    let at = program.windows(name.len()).position(|bytes| bytes == name)?;
    let end = program[at..].iter().position(|byte| *byte == 0)?;
    String::from_utf8(program[at..at + end].to_vec()).ok()
}

impl Plan {
    /// Makes the programs: the library is in `folder`, OrangeFS in `tree`.
    ///
    /// # Errors
    /// If the tree lacks something, or something does not compile.
    pub fn make(paths: &Paths, options: &Amounts, folder: &Path, tree: Option<&PathBuf>) -> Result<Self> {
        let tree = tree.context("storage cells need --orangefs FOLDER, a tree of OrangeFS that was built")?;
        let tree = tree.canonicalize().with_context(|| format!("there is no {}", tree.display()))?;
        let library = complete(&tree)?;
        let plan = Self {
            files: folder.join("files-orangefs"),
            server: folder.join("pvfs2-server-weir"),
            library: folder.join("libweir-bmi.so"),
            folder: paths.target.join("storage"),
            bytes: options.storage_mib << 20,
            count: options.storage_files,
            tree,
        };
        fs::create_dir_all(plan.space())?;
        let (own, named) = (plan.tree.join("lib/libpvfs2.so"), plan.folder.join(library));
        if fs::read_link(&named).ok().as_ref() != Some(&own) {
            let _ = fs::remove_file(&named);
            std::os::unix::fs::symlink(&own, &named)?;
        }
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]).arg(paths.root.join("tests/bmi/files.c"));
        cc.arg("-isystem").arg(plan.tree.join("include")).arg("-isystem").arg(&plan.tree);
        cc.arg("-o").arg(&plan.files).arg(&own);
        run_quiet(cc.args(["-lssl", "-lcrypto", "-lm", "-pthread"])).context("files.c does not compile")?;
        plan.link_server(folder)?;
        Ok(plan)
    }

    /// The server without its own BMI, and with ours.
    fn link_server(&self, folder: &Path) -> Result<()> {
        let archive = folder.join("libpvfs2-server-weir.a");
        fs::copy(self.tree.join("lib/libpvfs2-server.a"), &archive)?;
        run_quiet(Command::new("ar").arg("d").arg(&archive).args(BMI_OBJECTS)).context("ar")?;
        let mut cc = Command::new("cc");
        cc.arg("-rdynamic").args(SERVER_OBJECTS.map(|object| self.tree.join(object))).arg(&archive);
        cc.arg("-o")
            .arg(&self.server)
            .arg("-L")
            .arg(folder)
            .arg("-lweir-bmi")
            .arg(format!("-Wl,-rpath,{}", folder.display()));
        run_quiet(cc.args(["-lssl", "-lcrypto", "-lm", "-pthread", "-ldl"])).context("the server does not link")?;
        Ok(())
    }

    /// Where a host's memory is mounted.
    pub fn space(&self) -> PathBuf {
        self.folder.join("space")
    }

    /// For what moves all bytes: even where most packets are lost they go at some MB/s.
    pub fn copy_limit(&self) -> Duration {
        LIMIT + Duration::from_secs(self.bytes / 5_000_000)
    }

    /// A file may take as long as one that has to wait for TCP's timer again and again.
    pub fn files_limit(&self) -> Duration {
        LIMIT + Duration::from_millis(200) * self.count
    }
}

/// What a server is called in the configuration.
pub fn alias(server: usize) -> String {
    format!("server-{server}")
}

/// As `pvfs2-genconfig` makes it for servers that have metadata and data.
pub fn configuration(scheme: &str, urls: &[String], space: &str) -> String {
    let mut text = format!(
        "<Defaults>\nUnexpectedRequests 50\nEventLogging none\nEnableTracing no\nLogStamp datetime\nBMIModules bmi_{scheme}\n\
        FlowModules flowproto_multiqueue\nPerfUpdateInterval 1000\nServerJobBMITimeoutSecs 30\nServerJobFlowTimeoutSecs 30\n\
        ClientJobBMITimeoutSecs 300\nClientJobFlowTimeoutSecs 300\nClientRetryLimit 5\nClientRetryDelayMilliSecs 2000\n\
        PrecreateBatchSize 0,1024,1024,1024,32,1024,0\nPrecreateLowThreshold 0,256,256,256,16,256,0\n\
        <Security>\nTurnOffTimeouts yes\n</Security>\n</Defaults>\n<Aliases>\n"
    );
    let all = |line: &dyn Fn(usize, &String) -> String| -> String {
        urls.iter().enumerate().map(|(server, url)| line(server, url)).collect()
    };
    text += &all(&|server, url| format!("Alias {} {url}\n", alias(server)));
    // Equal shares of all handles, metadata first.
    let share = ((1_u64 << 63) - 4) / (2 * urls.len() as u64);
    let range = |server: usize, at: usize| {
        let first = 3 + share * at as u64;
        format!("Range {} {first}-{}\n", alias(server), first + share - 1)
    };
    text += "</Aliases>\n<FileSystem>\nName weir\nID 157626485\nRootHandle 1048576\nFileStuffing yes\nDistrDirServersInitial 1\n\
        DistrDirServersMax 1\nDistrDirSplitSize 100\n<MetaHandleRanges>\n";
    text += &all(&|server, _| range(server, server));
    text += "</MetaHandleRanges>\n<DataHandleRanges>\n";
    text += &all(&|server, _| range(server, urls.len() + server));
    text += "</DataHandleRanges>\n<StorageHints>\nTroveSyncMeta yes\nTroveSyncData no\nTroveMethod alt-aio\n</StorageHints>\n</FileSystem>\n";
    text + &all(&|server, _| {
        let own = format!("{space}/{}", alias(server));
        format!(
            "<ServerOptions>\nServer {}\nDataStorageSpace {own}/data\nMetadataStorageSpace {own}/meta\nLogFile {own}.log\n</ServerOptions>\n",
            alias(server)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_shared_without_a_gap() {
        let urls = ["weir://10.0.0.1:1", "weir://10.0.0.2:2"].map(str::to_owned);
        let text = configuration("weir", &urls, "/space");
        let ranges: Vec<(u64, u64)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("Range server-")?[2..].split_once('-'))
            .map(|(first, last)| (first.parse().unwrap(), last.parse().unwrap()))
            .collect();
        assert_eq!((ranges.len(), ranges[0].0), (4, 3), "{text}");
        assert!(ranges.windows(2).all(|two| two[0].1 + 1 == two[1].0) && ranges[3].1 < 1 << 63, "{text}");
        assert!(text.contains("BMIModules bmi_weir\n") && text.contains("Alias server-1 weir://10.0.0.2:2\n"));
        assert!(text.contains("DataStorageSpace /space/server-0/data\n"), "{text}");
    }

    #[test]
    fn an_incomplete_tree_is_told_with_what_builds_it() {
        let tree = tempfile::tempdir().unwrap();
        let error = complete(tree.path()).unwrap_err().to_string();
        assert!(error.contains("there is no include/pvfs2.h") && error.contains("--enable-shared"), "{error}");
        for part in PARTS {
            let file = tree.path().join(part);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "all of it is static").unwrap();
        }
        let error = complete(tree.path()).unwrap_err().to_string();
        assert!(error.contains("not linked with lib/libpvfs2.so"), "{error}");
        fs::write(tree.path().join("src/apps/admin/pvfs2-cp"), "\0libpvfs2.so.2.10.0\0x").unwrap();
        assert_eq!(complete(tree.path()).unwrap(), "libpvfs2.so.2.10.0");
    }
}
