#%Module
# Module for Environment Modules (and Lmod). It lies in share/weir/modulefiles of the prefix it is for:
# `module use PREFIX/share/weir/modulefiles`, or a copy elsewhere with the prefix put in here.
set prefix [file dirname [file dirname [file dirname [file dirname [file normalize $ModulesCurrentModulefile]]]]]

module-whatis "Weir: fast and predictable messages for parallel programs on ordinary networks (libfabric provider)"

proc ModulesHelp { } {
    puts stderr {After the module of an MPI (MPICH 4 with ch4:ofi, or Open MPI 4.1 with mtl/ofi): eval $(weir env); mpiexec ...}
    puts stderr {or: weir run -n 4 ./program. What is wrong: weir doctor.}
}

conflict weir
prepend-path PATH $prefix/bin
prepend-path MANPATH $prefix/share/man
# Where libfabric looks; `weir env` chooses the provider for the MPI at hand.
prepend-path FI_PROVIDER_PATH $prefix/lib/weir
