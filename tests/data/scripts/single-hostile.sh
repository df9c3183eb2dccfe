#!/bin/bash
# Rendered by slurmwrap VERSION for o'brien?#SBATCH --uid=0 on 2026-11-30 00:53:20 UTC from template 'single'.
#SBATCH --job-name="o'brien #3 a\\b $HOME 测试"
#SBATCH --output="/tmp/a b/#%j\".out"
#SBATCH --comment="x; scancel 1"
#SBATCH --no-requeue
#SBATCH --export=NONE
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120

export SLURMWRAP_STAGING_CACHE_DIR='/nvme/a b'
export SLURM_EXPORT_ENV=ALL
# shellcheck source=/dev/null
source '/users/o'"'"'brien/a b.sh' || exit
exec '/opt/slurm wrap/bin/slurmwrap' --config '/users/alice/my settings.toml' run --stage '/data/a b'"'"'c' -- bash -c $'echo $(id) `id`\nEOF\r\n' 'it'"'"'s' '测试' '�' ''
