#!/usr/bin/env bash
# The whole loop in a fresh ledger, on the device that is here: make demo
#
#   PYTHON    the Python that has ledger installed      LEDGER_DEMO    the folder to make (default: a new one)
set -euo pipefail

PYTHON=${PYTHON:-python3}
WORK=${LEDGER_DEMO:-$(mktemp -d "${TMPDIR:-/tmp}/ledger-demo.XXXXXX")}
FORGED=$(mktemp -d "${TMPDIR:-/tmp}/ledger-forged.XXXXXX")
STARTED=$SECONDS
trap 'rm -rf "$FORGED"' EXIT

# A machine that has never seen git has no identity; seals need one.
export GIT_AUTHOR_NAME=${GIT_AUTHOR_NAME:-demo} GIT_AUTHOR_EMAIL=${GIT_AUTHOR_EMAIL:-demo@example.org}
export GIT_COMMITTER_NAME=$GIT_AUTHOR_NAME GIT_COMMITTER_EMAIL=$GIT_AUTHOR_EMAIL

title() { printf '\n== %s\n\n' "$*"; }
run() {
    local word line='$'
    for word; do [[ $word == *' '* ]] && line+=" '$word'" || line+=" $word"; done
    printf '%s\n' "$line"
    "$@"
}
ledger() { "$PYTHON" -m ledger "$@"; }
must_exit() {
    local want=$1 got=0
    shift
    run "$@" || got=$?
    printf '(exit code %s)\n' "$got"
    [ "$got" -eq "$want" ] || { echo "demo: expected exit code $want, got $got" >&2; exit 1; }
}

if "$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    DEVICE=cuda DTYPE=fp16 SHAPE=B=8,H=4096,O=4096 PCT=60 LOW=45 HIGH=75
    HW=$(ledger hardware list --json | "$PYTHON" -c '
import json, sys, torch
name = torch.cuda.get_device_name()
names = [row["name"] for row in json.load(sys.stdin) if name in row["device_names"]]
sys.exit(f"demo: no hardware profile names the device {name}; write one: CONTRIBUTING.md") if not names else print(names[0])')
    WHY="34 MB of weights are read once for 8 rows: 8 FLOP a byte, far left of the ridge, so HBM decides"
else
    DEVICE=cpu DTYPE=fp32 SHAPE=B=1,H=2048,O=2048 PCT=60 LOW=40 HIGH=85 HW=cpu
    WHY="17 MB of weights are read once for a single row: half a FLOP a byte, left of any ridge"
fi

title "A fresh ledger, and what this device can really do"
mkdir -p "$WORK"
cd "$WORK"
run ledger init .
run ledger calibrate --device "$DEVICE" --quick
run ledger hardware show "$HW"

title "A forecast, sealed before anything is measured"
run ledger predict rmsnorm_matmul --hw "$HW" --dtype "$DTYPE" --shape "$SHAPE" \
    --regime hbm-bound --pct "$PCT" --low "$LOW" --high "$HIGH" --why "$WHY"
run git log --oneline --name-only -1

title "The measurement, bound to the seal, and the two set side by side"
run ledger verify

title "What a stranger can check from a clone"
run ledger audit .

title "A copy in which the forecast enters history after its measurement: the report refuses to open"
run git clone --quiet "$WORK" "$FORGED"
cd "$FORGED"
run git checkout --quiet --orphan forged
run git rm -r --quiet --cached predictions
run git commit --quiet --message "Measure first"
run git add predictions
run git commit --quiet --message "Then forecast"
must_exit 3 ledger report

cd "$WORK"

title "Done in $((SECONDS - STARTED)) s"
ledger roofline -o "$WORK/roofline" >/dev/null 2>&1
cat <<END
A forecast was sealed in git before its measurement, and the gap between the two is explained above. Whoever clones the
ledger can check that order; the copy that reversed it was refused.

ledger    $WORK
picture   $WORK/roofline/roofline.svg
next      cd $WORK && ledger predict        (asks for your own forecast)
END
