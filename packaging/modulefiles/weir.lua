-- Module for Lmod. It lies in share/weir/modulefiles of the prefix it is for: `module use PREFIX/share/weir/modulefiles`,
-- or a copy elsewhere with the prefix put in here.
local prefix = myFileName():gsub("/share/weir/modulefiles/[^/]*$", "")

whatis("Name: Weir")
whatis("Description: fast and predictable messages for parallel programs on ordinary networks (libfabric provider)")
help("After the module of an MPI (MPICH 4 with ch4:ofi, or Open MPI 4.1 with mtl/ofi): eval $(weir env); mpiexec ...\n" ..
     "or: weir run -n 4 ./program. What is wrong: weir doctor.")

conflict("weir")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
-- Where libfabric looks; `weir env` chooses the provider for the MPI at hand.
prepend_path("FI_PROVIDER_PATH", pathJoin(prefix, "lib/weir"))
