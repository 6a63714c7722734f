#!/usr/bin/env bash
#SBATCH --job-name=compare --gpus=1 --exclusive --time=00:30:00
# sbatch examples/ci/slurm.sh main HEAD: run it in the repository, with a Python that has ledger installed.
set -euo pipefail
ledger compare "${1:-main}" "${2:-HEAD}" -o "comparison-${SLURM_JOB_ID:-local}.md" --fail-on-regress
