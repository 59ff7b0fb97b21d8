//! The stacks that are compared: an MPI over one kind of network, as the settings that select it.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::lab;
use crate::mpi::Mpi;
use crate::paths::Paths;

/// How the names of stacks of another build begin, where ours begin with `weir`.
const BEFORE: &str = "before";

/// What carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Weir, through libfabric.
    Weir,
    /// libfabric's `tcp` provider.
    OfiTcp,
    /// libfabric's `udp` provider under its reliability layer `ofi_rxd`.
    OfiRxd,
    /// UCX over TCP.
    UcxTcp,
    /// Open MPI's own TCP.
    Ob1Tcp,
    /// libfabric's `shm` provider: ranks of one host only.
    OfiShm,
    /// The MPI's own shared memory: ranks of one host only.
    Own,
}

/// One MPI over one carrier, with one congestion control of the kernel where TCP is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The name in tables.
    pub name: String,
    /// The MPI.
    pub mpi: Mpi,
    /// What carries the messages.
    pub carrier: Carrier,
    /// The kernel's congestion control to be set, if TCP is used.
    pub congestion: Option<String>,
    /// More environment, for variants of one stack.
    pub env: Vec<(String, String)>,
}

/// How to start a program on a stack.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Environment of the ranks.
    pub env: Vec<(String, String)>,
    /// Arguments of `mpiexec`.
    pub args: Vec<String>,
}

impl Stack {
    /// All stacks, ours first, with these congestion controls for those that use TCP.
    pub fn all(congestions: &[String]) -> Vec<Self> {
        let mut stacks = Vec::new();
        let mut add = |mpi: Mpi, carrier: Carrier, base: &str| {
            let tcp = matches!(carrier, Carrier::OfiTcp | Carrier::UcxTcp | Carrier::Ob1Tcp);
            if !tcp || congestions.is_empty() {
                stacks.push(Self { name: base.into(), mpi, carrier, congestion: None, env: Vec::new() });
                return;
            }
            for congestion in congestions {
                let name = format!("{base}-{congestion}");
                stacks.push(Self { name, mpi, carrier, congestion: Some(congestion.clone()), env: Vec::new() });
            }
        };
        add(Mpi::Mpich, Carrier::Weir, "weir-mpich");
        add(Mpi::Openmpi, Carrier::Weir, "weir-openmpi");
        add(Mpi::Mpich, Carrier::OfiTcp, "mpich-tcp");
        add(Mpi::Mpich, Carrier::OfiRxd, "mpich-rxd");
        add(Mpi::Mpich, Carrier::UcxTcp, "mpich-ucx");
        add(Mpi::Openmpi, Carrier::OfiTcp, "openmpi-ofi-tcp");
        add(Mpi::Openmpi, Carrier::UcxTcp, "openmpi-ucx");
        add(Mpi::Openmpi, Carrier::Ob1Tcp, "openmpi-ob1");
        stacks
    }

    /// The stacks for ranks of one host, ours first: there shared memory is what Weir is compared
    /// with.
    pub fn of_one_host() -> Vec<Self> {
        let stacks = [
            (Mpi::Mpich, Carrier::Weir, "weir-mpich"),
            (Mpi::Openmpi, Carrier::Weir, "weir-openmpi"),
            (Mpi::Mpich, Carrier::OfiShm, "mpich-ofi-shm"),
            (Mpi::Mpich, Carrier::Own, "mpich-own"),
            (Mpi::Openmpi, Carrier::Own, "openmpi-sm"),
        ];
        let stack = |(mpi, carrier, name): (_, _, &str)| Self {
            name: name.into(),
            mpi,
            carrier,
            congestion: None,
            env: Vec::new(),
        };
        stacks.map(stack).into()
    }

    /// Intel MPI's stacks, ours first: beside the others only where its rows are.
    pub fn of_intel(congestions: &[String]) -> Vec<Self> {
        let stack =
            |carrier, name: String, congestion| Self { name, mpi: Mpi::Intel, carrier, congestion, env: Vec::new() };
        let mut stacks = vec![stack(Carrier::Weir, "weir-impi".into(), None)];
        match congestions {
            [] => stacks.push(stack(Carrier::OfiTcp, "impi-tcp".into(), None)),
            some => stacks
                .extend(some.iter().map(|name| stack(Carrier::OfiTcp, format!("impi-tcp-{name}"), Some(name.clone())))),
        }
        stacks
    }

    /// Weir with one stream instead of ten: what streams are worth.
    pub fn one_stream() -> Self {
        let env = vec![("WEIR_STREAMS".into(), "1".into())];
        Self { name: "weir-mpich-1stream".into(), mpi: Mpi::Mpich, carrier: Carrier::Weir, congestion: None, env }
    }

    /// Weir past the UDP stack (`WEIR_XDP=on`): one for each of ours among `stacks`.
    pub fn past_udp(stacks: &[Self]) -> Vec<Self> {
        let past = |stack: &Self| Self {
            name: format!("{}-xdp", stack.name),
            env: vec![("WEIR_XDP".into(), "on".into())],
            ..stack.clone()
        };
        stacks.iter().filter(|stack| stack.is_ours()).map(past).collect()
    }

    /// Weir as another build has it, whose provider lies in `folder`: one for each MPI with which
    /// Weir is among `stacks`.
    ///
    /// # Errors
    /// If there is no provider.
    pub fn of_build(folder: &Path, stacks: &[Self]) -> Result<Vec<Self>> {
        let folder = folder.canonicalize().with_context(|| format!("no build in {}", folder.display()))?;
        if !folder.join("libweir-fi.so").is_file() {
            bail!("{} holds no libweir-fi.so", folder.display());
        }
        let before = |stack: &Self| Self {
            name: stack.name.replacen("weir", BEFORE, 1),
            env: [stack.env.clone(), vec![("FI_PROVIDER_PATH".into(), folder.display().to_string())]].concat(),
            ..stack.clone()
        };
        Ok(stacks.iter().filter(|stack| stack.is_ours()).map(before).collect())
    }

    /// The stack of this build that this one of another build is measured beside.
    pub fn is_before(&self) -> Option<String> {
        Some(format!("weir{}", self.name.strip_prefix(BEFORE)?))
    }

    /// TCP with another least retransmission timeout than the system's.
    pub fn is_tuned(&self) -> bool {
        self.congestion.as_ref().is_some_and(|name| name.contains(lab::TUNED))
    }

    /// Weir's own, not a rival.
    pub fn is_ours(&self) -> bool {
        self.carrier == Carrier::Weir
    }

    /// The environment and arguments that select this stack on network interface `iface`.
    ///
    /// # Errors
    /// If the MPI cannot use the carrier, or the Weir provider has not been built.
    pub fn settings(&self, paths: &Paths, iface: &str) -> Result<Settings> {
        let mut s = Settings::default();
        if self.mpi == Mpi::Debian {
            // The hosts share this machine's cores, and what its launcher knows of them is that
            // each has all.
            s.mca("mpi_yield_when_idle", "1");
        }
        match (self.mpi, self.carrier) {
            (Mpi::Mpich, Carrier::UcxTcp) => {
                s.env("MPIR_CVAR_CH4_NETMOD", "ucx");
                s.env("UCX_TLS", "tcp,self");
                s.env("UCX_NET_DEVICES", iface);
            }
            (Mpi::Intel, carrier) => {
                let own = self.mpi.folder(paths).join("lib").display().to_string();
                s.env("I_MPI_FABRICS", "ofi");
                // Its libfabric and that one's providers lie beside its library.
                s.env("I_MPI_OFI_LIBRARY_INTERNAL", "0");
                s.env("LD_LIBRARY_PATH", &own);
                let provider = s.provider(paths, carrier, iface)?;
                s.env("I_MPI_OFI_PROVIDER", provider);
                if !self.is_ours() {
                    s.env("FI_PROVIDER_PATH", &own);
                }
            }
            (Mpi::Debian, Carrier::Ob1Tcp) => {
                s.mca("pml", "ob1");
                // Ranks of one host have its shared memory, as they have Weir's.
                s.mca("btl", "self,vader,tcp");
                s.mca("btl_tcp_if_include", iface);
            }
            (Mpi::Debian, carrier) => {
                s.mca("pml", "cm");
                s.mca("mtl", "ofi");
                // Its btl/ofi, for windows, would open the provider as well.
                s.mca("btl", "self");
                let provider = s.provider(paths, carrier, iface)?;
                s.mca("mtl_ofi_provider_include", provider);
            }
            (Mpi::Openmpi, Carrier::Own) => {
                s.mca("pml", "ob1");
                s.mca("btl", "self,sm");
            }
            (Mpi::Mpich, carrier) => {
                // The wheel is built for UCX first, libfabric second.
                s.env("MPIR_CVAR_CH4_NETMOD", "ofi");
                s.provider(paths, carrier, iface)?;
            }
            (Mpi::Openmpi, Carrier::UcxTcp) => {
                s.mca("pml", "ucx");
                s.mca("osc", "ucx");
                // By default Open MPI takes UCX only on the hardware it knows.
                s.mca("opal_common_ucx_tls", "any");
                s.mca("opal_common_ucx_devices", "any");
                s.env("UCX_TLS", "tcp,self");
                s.env("UCX_NET_DEVICES", iface);
            }
            (Mpi::Openmpi, Carrier::Ob1Tcp) => {
                s.mca("pml", "ob1");
                s.mca("btl", "self,tcp");
                s.mca("btl_tcp_if_include", iface);
                s.mca("osc", "^ucx");
            }
            (Mpi::Openmpi, carrier) => {
                s.mca("pml", "cm");
                s.mca("mtl", "ofi");
                s.mca("osc", "^ucx");
                let provider = s.provider(paths, carrier, iface)?;
                s.mca("opal_common_ofi_provider_include", provider);
            }
        }
        override_env(&mut s.env, &self.env);
        Ok(s)
    }
}

impl Settings {
    fn env(&mut self, name: &str, value: &str) {
        self.env.push((name.into(), value.into()));
    }

    fn mca(&mut self, name: &str, value: &str) {
        self.args.extend(["--mca".into(), name.into(), value.into()]);
    }

    fn provider(&mut self, paths: &Paths, carrier: Carrier, iface: &str) -> Result<&'static str> {
        let provider = match carrier {
            Carrier::Weir => {
                if !paths.provider().exists() {
                    bail!("{} is missing; make it with: cargo xtask build", paths.provider().display());
                }
                self.env("FI_PROVIDER_PATH", &paths.provider_dir().display().to_string());
                self.env("WEIR_KEY", &test_key());
                "weir"
            }
            Carrier::OfiTcp => {
                self.env("FI_TCP_IFACE", iface);
                "tcp"
            }
            Carrier::OfiRxd => {
                self.env("FI_UDP_IFACE", iface);
                "udp;ofi_rxd"
            }
            Carrier::OfiShm => "shm",
            // Beside its own shared memory MPICH wants a network, if only to open it.
            Carrier::Own => "tcp",
            Carrier::UcxTcp | Carrier::Ob1Tcp => bail!("not a libfabric carrier"),
        };
        self.env("FI_PROVIDER", provider);
        Ok(provider)
    }
}

/// Adds variables, in place of those of the same names: of two Open MPI's launcher takes the first.
pub fn override_env(env: &mut Vec<(String, String)>, by: &[(String, String)]) {
    env.retain(|(name, _)| by.iter().all(|(other, _)| other != name));
    env.extend_from_slice(by);
}

/// Measurements need a key, not a secret: they run in networks of their own.
fn test_key() -> String {
    "c0ffee".repeat(11)[..64].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_stacks_come_once_per_congestion_control() {
        let names: Vec<String> = Stack::all(&["cubic".into(), "bbr".into()]).into_iter().map(|s| s.name).collect();
        assert!(names.contains(&"mpich-tcp-bbr".to_owned()) && names.contains(&"mpich-rxd".to_owned()));
        assert_eq!(names.len(), 2 + 1 + 5 * 2);
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }

    #[test]
    fn intels_stacks_are_ours_and_one_for_each_congestion_control() {
        let names = |of: &[String]| Stack::of_intel(of).into_iter().map(|stack| stack.name).collect::<Vec<_>>();
        assert_eq!(names(&[]), ["weir-impi", "impi-tcp"]);
        assert_eq!(names(&["cubic".into(), "bbr".into()]), ["weir-impi", "impi-tcp-cubic", "impi-tcp-bbr"]);
        assert!(Stack::of_intel(&[])[0].is_ours() && !Stack::of_intel(&[])[1].is_ours());
    }

    #[test]
    fn on_one_host_ours_are_two_of_five() {
        let stacks = Stack::of_one_host();
        assert_eq!((stacks.len(), stacks.iter().filter(|s| s.is_ours()).count()), (5, 2));
        let paths = Paths::find();
        assert!(stacks.iter().filter(|s| !s.is_ours()).all(|s| s.settings(&paths, "lo").is_ok()));
    }

    #[test]
    fn with_the_ring_ours_come_twice() {
        let all = Stack::all(&["cubic".into()]);
        let past = Stack::past_udp(&all);
        let names: Vec<&str> = past.iter().map(|stack| stack.name.as_str()).collect();
        assert_eq!(names, ["weir-mpich-xdp", "weir-openmpi-xdp"]);
        assert!(past.iter().all(|stack| stack.is_ours() && stack.env == [("WEIR_XDP".into(), "on".into())]));
    }

    #[test]
    fn another_build_is_a_stack_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let all = Stack::all(&["cubic".into()]);
        assert!(Stack::of_build(folder.path(), &all).is_err(), "there is no provider");
        std::fs::write(folder.path().join("libweir-fi.so"), "").unwrap();
        let before = Stack::of_build(folder.path(), &all).unwrap();
        let names: Vec<&str> = before.iter().map(|stack| stack.name.as_str()).collect();
        assert_eq!(names, ["before-mpich", "before-openmpi"]);
        assert_eq!(before[0].is_before().as_deref(), Some("weir-mpich"));
        assert!(before[0].is_ours() && all[0].is_before().is_none());
        let past = Stack::of_build(folder.path(), &Stack::past_udp(&all)).unwrap();
        assert!(past[0].env.iter().any(|(name, value)| name == "WEIR_XDP" && value == "on"), "as the stack it is of");
        let mut env = vec![("FI_PROVIDER_PATH".into(), "ours".into())];
        override_env(&mut env, &before[0].env);
        assert_eq!(env, [("FI_PROVIDER_PATH".to_owned(), folder.path().canonicalize().unwrap().display().to_string())]);
    }

    #[test]
    fn the_interface_reaches_every_rival() {
        let paths = Paths::find();
        let debian = |carrier| Stack { mpi: Mpi::Debian, carrier, ..Stack::one_stream() };
        let debians = [Carrier::Ob1Tcp, Carrier::OfiTcp].map(debian);
        let all = Stack::all(&[]).into_iter().chain(Stack::of_intel(&[])).chain(debians);
        for stack in all.filter(|s| !s.is_ours()) {
            let settings = stack.settings(&paths, "net9").unwrap();
            let named = settings.env.iter().any(|(_, v)| v == "net9") || settings.args.iter().any(|a| a == "net9");
            assert!(named, "{} does not choose its interface", stack.name);
        }
    }

    #[test]
    fn the_test_key_is_a_key() {
        assert_eq!(test_key().len(), 64);
        assert!(test_key().bytes().all(|b| b.is_ascii_hexdigit()));
    }
}
