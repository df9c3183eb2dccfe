#!/bin/bash
# Rendered by slurmwrap VERSION for alice on 2026-11-30 00:53:20 UTC from template 'ddp'.
#SBATCH --job-name=package.train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

export NCCL_SOCKET_IFNAME=ib0 GLOO_SOCKET_IFNAME=ib0
# shellcheck source=/dev/null
source /env.sh || exit
exec /opt/slurmwrap/bin/slurmwrap run --launcher torchrun --launcher-arg=--nproc-per-node=4 --launcher-arg=--max-restarts=3 --launcher-arg=--log-dir --launcher-arg='a b' -- -m package.train
