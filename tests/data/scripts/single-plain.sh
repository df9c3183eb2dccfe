#!/bin/bash
# Rendered by slurmwrap VERSION for alice on 2026-11-30 00:53:20 UTC from template 'single'.
#SBATCH --job-name=hostname
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

exec /opt/slurmwrap/bin/slurmwrap run -- hostname
