// --- farm slave, extended syntax (ours); the body is left when the bound tag is DIE ---
// PEVPM Loop while = tag != DIE
// PEVPM {
// PEVPM Message type = MPI_Recv
// PEVPM &       size = 3*sizeof(long)
// PEVPM &       from = 0
// PEVPM &       to   = procnum
// PEVPM &       tag  = ANY
// PEVPM &       bind = job, tag
// PEVPM Message type = MPI_Recv   size = job.send   from = 0   to = procnum
// PEVPM Serial  time = job.cycles/clock
// PEVPM Message type = MPI_Send   size = 3*sizeof(long)   from = procnum   to = 0
// PEVPM Message type = MPI_Send   size = job.recv         from = procnum   to = 0
// PEVPM }
