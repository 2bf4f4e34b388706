#!/bin/bash
# Tests of the verbs transport that need RDMA devices: to be run in a guest of tools/softroce.
#
#   verbs.sh BUILD_DIR threads|processes|shallow|faults|lossy|job|outage|linkdown|two_hosts
#
# two_hosts needs two guests.
# Ranks of a host alternate between rxe0 and rxe1, so their traffic crosses the guest's veth pair.

set -uo pipefail
build=$1 case=$2
conformance=$build/tests/conformance/test_conformance
run=$build/tools/dunlin-run/dunlin-run
svm=("$build/apps/svm/program/dunlin-svm" --generate --rows 2000 --features 500 --seed 3)
export DUNLIN_TRANSPORTS=verbs
# Everything is emulated.
export CONFORMANCE_PATIENCE=${CONFORMANCE_PATIENCE:-3}

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# job LOG OPTION...: trains with 4 workers; the final objective is the last line of standard output.
job() {
  local log=$1
  shift
  "$run" -n 4 "${svm[@]}" "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    fail "the job over $DUNLIN_TRANSPORTS"
  }
  grep -o 'objective [0-9.]*' "$log" | tail -n 1
}

# impair NETEM_OPTION...: on both ends of the pair.
impair() {
  for interface in v0 v1; do tc qdisc add dev $interface root netem "$@" || fail "tc netem"; done
}

# Three outages in a training run, by the functions break_link and mend_link: it ends as without them.
go_on_after_outages() {
  local over_shm over_verbs
  over_shm=$(DUNLIN_TRANSPORTS=shm job /tmp/shm --epochs 400)
  : >/tmp/verbs
  (
    until grep -q objective /tmp/verbs; do sleep 0.2; done
    for _ in 1 2 3; do
      break_link
      sleep 3
      mend_link
      sleep 3
    done
  ) &
  over_verbs=$(DUNLIN_LOG_LEVEL=info job /tmp/verbs --epochs 400 --deadline 60)
  kill $! 2>/dev/null
  grep 'is back after' /tmp/verbs
  echo "shm: $over_shm, verbs: $over_verbs"
  [[ -n $over_shm && $over_shm == "$over_verbs" ]] || fail "not the same"
  grep -q 'is back after' /tmp/verbs || fail "no connection was lost"
}

case $case in
  # librdmacm's state doesn't survive a fork: threads and processes in processes of their own.
  threads) exec "$conformance" --gtest_filter='*/threads' ;;
  # Threads connect through the connection manager, processes through the bootstrap.
  processes) DUNLIN_VERBS_CONNECT=bootstrap exec "$conformance" --gtest_filter='-*/threads' ;;
  shallow) DUNLIN_VERBS_QUEUE_DEPTH=2 exec "$conformance" --gtest_filter='*LaneTest*/threads:*AccessTest*/threads:*ChannelTest*/threads' ;;
  faults) exec "$build/tests/transports/test_verbs_fault" ;;
  lossy)
    impair loss 1% delay 200us reorder 25% 50%
    export CONFORMANCE_PATIENCE=10
    "$conformance" --gtest_filter='*LaneTest*/processes:*AccessTest*/processes:*ChannelTest*/processes' || fail "with loss and reordering"
    tc -s qdisc show dev v0 | grep -Eq 'dropped [1-9]' || fail "nothing was lost on the way"
    ;;
  job)
    over_shm=$(DUNLIN_TRANSPORTS=shm job /tmp/shm --epochs 2)
    over_verbs=$(job /tmp/verbs --epochs 2)
    echo "shm: $over_shm, verbs: $over_verbs"
    [[ -n $over_shm && $over_shm == "$over_verbs" ]] || fail "not the same"
    ;;
  outage)
    # Nothing passes for longer than the devices try by themselves. (A link that is down would also break
    # rdma_rxe's own queue pair of the connection manager, for good.)
    break_link() { impair loss 100%; }
    mend_link() { for interface in v0 v1; do tc qdisc delete dev $interface root; done; }
    go_on_after_outages
    ;;
  linkdown)
    # Without the connection manager, connections come back after that, too.
    export DUNLIN_VERBS_CONNECT=bootstrap
    break_link() { ip link set v0 down; }
    mend_link() { ip link set v0 up; }
    go_on_after_outages
    ;;
  two_hosts)
    # Two ranks on each; shm within a host, verbs between them.
    export DUNLIN_TRANSPORTS=shm,verbs DUNLIN_HOST_ID=$SOFTROCE_HOST DUNLIN_JOB_SECRET="a secret of this test"
    first=$SOFTROCE_ADDRESS
    [[ $SOFTROCE_HOST == 0 ]] || first=$SOFTROCE_PEER_ADDRESS
    "$run" -n 2 --size 4 --first-rank $((2 * SOFTROCE_HOST)) --coordinator "$first:4711" "${svm[@]}" --epochs 2 \
      --json-out /tmp/two.jsonl >/tmp/two 2>&1 || { cat /tmp/two >&2; fail "the job of two hosts"; }
    [[ $SOFTROCE_HOST == 0 ]] || exit 0
    unset DUNLIN_HOST_ID DUNLIN_JOB_SECRET
    over_shm=$(DUNLIN_TRANSPORTS=shm job /tmp/shm --epochs 2)
    grep -q '"shm+verbs"' /tmp/two.jsonl || fail "not both transports were used"
    both=$(grep -o 'objective [0-9.]*' /tmp/two | tail -n 1)
    echo "shm: $over_shm, shm and verbs: $both"
    [[ -n $both && $both == "$over_shm" ]] || fail "not the same"
    ;;
  *) fail "no case '$case'" ;;
esac
