# Processes that a launcher started but that MPI does not join would each do the whole job.
tessera info | grep -q 'MPI *found' || { echo "the build has no MPI" >&2; exit 77; }
# The MPI of the build ignores the variables of the other family, and those of srun and PMIx without a server.
other=OMPI_COMM_WORLD family="Open MPI's mpirun"
if "${MPIEXEC:-mpirun}" --version 2>&1 | grep -q 'Open MPI\|OpenRTE'; then
    other=PMI family="an mpirun of the MPICH family"
fi
said() { sed -E "s/MPI \([^)]*\)/MPI (N)/; s/$family/another mpirun/"; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0
export OMP_NUM_THREADS=1
problem=attn,heads=1,dim=16,tokens=64
echo "srun without MPI's wire-up"
for rank in 0 1; do
    SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$rank tessera check $problem -j 1 2>&1 | said
    echo "exit ${PIPESTATUS[0]}"
done
echo "a command of one rank does not mind"
SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 tessera info -j 1 | grep -c '^tessera '
echo "a task alone, and a script of a batch job"
SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=4 SLURM_PROCID=0 tessera check $problem -j 1 >/dev/null
echo "exit $?"
SLURM_NTASKS=4 SLURM_PROCID=0 tessera check $problem -j 1 >/dev/null
echo "exit $?"
echo "the launcher of another MPI"
env ${other}_SIZE=2 ${other}_RANK=0 tessera check $problem -j 1 2>&1 | said
env ${other}_SIZE=2 ${other}_RANK=1 tessera check $problem -j 1
echo "exit $?"
env ${other}_SIZE=2 ${other}_RANK=0 tessera doctor -j 1 | grep '^problem  mpi'
env ${other}_SIZE=2 ${other}_RANK=1 tessera doctor -j 1
echo "a launcher that does not say how many"
for rank in 0 1; do
    PMIX_RANK=$rank tessera check $problem -j 1 2>&1 | said
    echo "exit ${PIPESTATUS[0]}"
done
PMIX_RANK=0 tessera info -j 1 | grep -c '^tessera '
echo "the task alone of an srun with PMIx"
PMIX_RANK=0 SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 tessera check $problem -j 1 >/dev/null
echo "exit $?"
