#!/usr/bin/env bash
# Run a command on a Ray cluster over all nodes of a Slurm job: ray_nodes.sh NODES GPUS CORES COMMAND...
# GPUS and CORES are per node. COMMAND runs on the job's first node. Nodes must be whole, since Ray's ports are fixed.
# The exit code is that of COMMAND, but 0 if Ray itself fails: Snakemake then reports the missing output.
set -euo pipefail
nodes=$1 gpus=$2 cores=$3
shift 3
head=$(hostname):6379
# Only this job's processes may use its Ray. Its folder has the engines' caches too; short, as sockets' paths must be.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0 RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
RAY_AUTH_TOKEN=$(python -c "import secrets; print(secrets.token_hex(32))")
export RAY_TMPDIR=/tmp/ray-$SLURM_JOB_ID
export TEPO_ENGINE_CACHE=${TEPO_ENGINE_CACHE:-$RAY_TMPDIR/caches}
# Slurm's warning before the time limit (USR1) goes to every process of the job: Ray ignores it, and COMMAND saves.
exec srun --overlap --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task="$cores" --mem=0 bash -c '
    trap "" USR1
    mkdir -m 700 "$RAY_TMPDIR"
    code=0
    ray symmetric-run "$@" || code=$?
    rm -rf "$RAY_TMPDIR"
    exit $code
' bash --address "$head" --min-nodes "$nodes" --num-gpus "$gpus" --num-cpus "$cores" -- env RAY_ADDRESS="$head" "$@"
