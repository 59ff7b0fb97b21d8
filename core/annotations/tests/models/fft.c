// --- FFT, thesis syntax ---
// PEVPM Loop iterations = 10000
// PEVPM {
// PEVPM Serial on perseus time = 24.7/numprocs
// PEVPM Message type = MPI_Alltoall
// PEVPM &       size = sizeof(complex)*(256/numprocs)*(256/numprocs)
// PEVPM &       from = 0..numprocs-1
// PEVPM &       to   = 0..numprocs-1
// PEVPM Serial on perseus time = 24.7/numprocs
// PEVPM }
