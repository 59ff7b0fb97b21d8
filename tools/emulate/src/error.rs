//! What can go wrong, said so that the reader knows what to do next.

use std::path::PathBuf;

/// Why the emulator could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not make network namespaces.
    #[error(
        "cannot make network namespaces: {reason}. Run as root, or allow unprivileged user namespaces \
         (sysctl user.max_user_namespaces > 0; on Debian kernel.unprivileged_userns_clone=1; on Ubuntu \
         kernel.apparmor_restrict_unprivileged_userns=0; in a container --privileged or --cap-add SYS_ADMIN,NET_ADMIN,NET_RAW)"
    )]
    NotPermitted {
        /// What was refused.
        reason: String,
    },
    /// The spec is wrong.
    #[error("spec: {0}")]
    Spec(String),
    /// The spec file is wrong.
    #[error("{}: {message}", path.display())]
    SpecFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, with the line.
        message: String,
    },
    /// A name that the network does not have, or a command it does not know.
    #[error("{0}")]
    Request(String),
    /// The kernel refused a step.
    #[error("{what}: {cause}")]
    System {
        /// The step.
        what: String,
        /// What the kernel said.
        cause: std::io::Error,
    },
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the name of the step to an error of the kernel.
pub(crate) trait Context<T> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn context<S: Into<String>>(self, what: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Error::System { what: what().into(), cause: error.into() })
    }
}
