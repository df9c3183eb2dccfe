#!/bin/bash
# Rendered by slurmwrap VERSION for alice on 2026-11-30 00:53:20 UTC from template 'single'.
#SBATCH --job-name=sweep.py
#SBATCH --array=0-99%10
#SBATCH --dependency=afterok:12_3
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

exec /opt/slurmwrap/bin/slurmwrap run -- python sweep.py
