//! What the libraries above ask of the engine that libfabric's interface does not say: which bits
//! of a tag name a message, in which order multi-receives are reported, and how many processes
//! their launcher has put on this host.

use weir_engine::{EngineConfig, MultiOrder, StreamBits};

/// The bits of a tag that decide over its stream (`spec/envelopes.md` 3): all of MPI's tag (bits 0
/// to 31) and the low bits of the communicator (MPICH has it in bits 31 to 50, Open MPI from bit 34
/// on), so that messages with one tag in several communicators are independent; but none of the
/// protocol bits that MPI libraries have in between or above and that their receives ignore: MPICH
/// bits 54 and 55, Open MPI bit 32. With those in it, hardly any receive of an MPI program would be
/// on one stream, and streams would be worth nothing.
pub const STREAM_BITS: StreamBits = StreamBits(0x0007_fffc_ffff_ffff);

/// How many processes a launcher has started on this host, by the variables that launchers set:
/// Hydra, Open MPI, Slurm, PALS.
const PROCESSES_HERE: [&str; 4] =
    ["MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE", "PALS_LOCAL_SIZE"];

/// These settings, with what the libraries above need.
#[must_use]
pub fn served(config: EngineConfig, get: &dyn Fn(&str) -> Option<String>) -> EngineConfig {
    EngineConfig {
        stream_bits: STREAM_BITS,
        // libfabric does not promise it (`comp_order` of fi_endpoint(3)), but MPICH's active
        // messages do not survive another one: it keeps those that come early without what it needs
        // to fetch their payload (`payload_sz` of `MPIDI_OFI_am_isend_long` is 0, and
        // `MPIDI_OFI_am_enqueue_unordered_msg` copies so much).
        multi_order: MultiOrder::AsSent,
        processes_here: PROCESSES_HERE.iter().find_map(|name| get(name)?.parse().ok()),
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_says_how_many_processes_are_here() {
        let here = |name: &'static str, value: &'static str| {
            served(EngineConfig::default(), &move |n| (n == name).then(|| value.to_owned())).processes_here
        };
        assert_eq!(here("OMPI_COMM_WORLD_LOCAL_SIZE", "7"), Some(7));
        assert_eq!(here("MPI_LOCALNRANKS", "2"), Some(2));
        assert_eq!(here("SLURM_NTASKS_PER_NODE", "2(x3)"), None);
        assert_eq!(here("HOME", "3"), None);
    }

    #[test]
    fn receives_that_ignore_what_mpi_libraries_ignore_are_on_one_stream() {
        // spec/envelopes.md 3 has the table.
        for ignored in [0xc0 << 48, 1 << 32] {
            assert_eq!(STREAM_BITS.0 & ignored, 0);
        }
        for named in [0x7fff_ffff, 0xff << 34] {
            assert_eq!(STREAM_BITS.0 & named, named);
        }
    }
}
