# Spack's recipe for Weir. Put it into a repository of packages as packages/weir/package.py: from an unpacked source,
# `spack dev-build weir@0.1.0` builds it; the copy that `cargo xtask dist` leaves in target/packages names the archive of
# the sources beside it, with its checksum.
import os

from spack.package import *


class Weir(Package):
    """Fast and predictable messages for parallel programs on ordinary networks: a libfabric provider for unmodified
    MPICH and Open MPI, and the command weir."""

    license("Apache-2.0 OR MIT")

    version("0.1.0")

    depends_on("rust@1.88:", type="build")
    depends_on("c", type="build")
    # Loaded by libfabric, never linked with it.
    depends_on("libfabric@1.17:", type="run")

    conflicts("platform=darwin", msg="Weir runs on Linux")
    requires("target=x86_64:", msg="Weir runs on x86-64")

    def install(self, spec, prefix):
        cargo = which("cargo", required=True)
        cargo("xtask", "install", "--prefix", prefix)

    def setup_run_environment(self, env):
        # `weir env` sets what the MPI at hand needs besides.
        env.prepend_path("FI_PROVIDER_PATH", self.prefix.lib.weir)

    @run_after("install")
    def the_provider_loads(self):
        weir = Executable(self.prefix.bin.weir)
        weir("probe-provider", join_path(self.prefix.lib.weir, "libweir-fi.so"))
