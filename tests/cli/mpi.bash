# Sourced by cases that start ranks: $mpirun, or the case is skipped; an environment in which Open MPI runs as
# root, on fewer cores than ranks, and in containers that forbid its single-copy transport.
mpirun=${MPIEXEC:-mpirun}
command -v "$mpirun" >/dev/null || { echo "mpirun is not installed" >&2; exit 77; }
tessera info | grep -q 'MPI *found' || { echo "the build has no MPI" >&2; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1 OMP_NUM_THREADS=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # of Open MPI 5
export ASAN_OPTIONS=detect_leaks=0 # MPI's own
