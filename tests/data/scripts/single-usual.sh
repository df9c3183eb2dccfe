#!/bin/bash
# Rendered by slurmwrap VERSION for alice on 2026-11-30 00:53:20 UTC from template 'single'.
#SBATCH --job-name=train.py
#SBATCH --account=lab
#SBATCH --partition=gpu
#SBATCH --gres=gpu:a100:2
#SBATCH --cpus-per-task=16
#SBATCH --mem=128G
#SBATCH --time=12:00:00
#SBATCH --output=logs/%x-%j.out
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

# shellcheck source=/dev/null
source /users/alice/env.sh || exit
exec /opt/slurmwrap/bin/slurmwrap run --stage /data/imagenet --watch val_acc:max:0.001 --patience 3 -- python train.py --lr 0.1
