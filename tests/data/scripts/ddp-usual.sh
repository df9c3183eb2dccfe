#!/bin/bash
# Rendered by slurmwrap VERSION for alice on 2026-11-30 00:53:20 UTC from template 'ddp'.
#SBATCH --job-name=train.py
#SBATCH --nodes=4
#SBATCH --gres=gpu:h800:8
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --ntasks-per-node=1

exec /opt/slurmwrap/bin/slurmwrap run --launcher torchrun -- train.py --epochs 3
