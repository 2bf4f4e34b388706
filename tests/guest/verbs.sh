#!/bin/bash
# Tests of the verbs transport that need RDMA devices: to be run in a guest of tools/softroce.
#
#   verbs.sh BUILD_DIR threads|processes|shallow|limit|faults|gpu|lossy|job|timeouts|outage|relink|removal|linkdown|two_hosts
#   verbs.sh BUILD_DIR contract_threads|contract_processes
#   verbs.sh BUILD_DIR rails|rails_perf|rail_down|rails_bandwidth
#   verbs.sh BUILD_DIR nccl|nccl_gpu|nccl_link|nixl
#   verbs.sh BUILD_DIR soak [SECONDS [SEED]]
#   verbs.sh BUILD_DIR several CASE...
#
# contract_* are threads and processes without the tests that take long and are the same over any lane. several runs
# several cases in one boot, and prints the time of each. Networks are repaired before each case, but the devices'
# counters continue, so the cases that check them (shallow, limit, gpu) come first. removal removes a device for good, so it
# comes last. two_hosts needs two guests, and the cases with rails need --devices 2. The long soak finds leaks and rare
# faults:
#
#   tools/softroce --timeout 1500 -- $PWD/tests/guest/verbs.sh $PWD/build/check soak 600
#
# Ranks of a host alternate between rxe0 and rxe1, so their traffic crosses the guest's veth pair.

set -uo pipefail
build=$1 case=$2
conformance=$build/tests/conformance/test_conformance
run=$build/tools/dunlin-run/dunlin-run
perf=$build/tools/dunlin-perf/dunlin-perf
nccl=$build/tests/bindings/nccl/test_nccl
svm=("$build/apps/dunlin-svm" --generate --rows 2000 --features 500 --seed 3)
export DUNLIN_TRANSPORTS=verbs
# Timeouts are longer, because everything is emulated.
export CONFORMANCE_TIMEOUT_FACTOR=${CONFORMANCE_TIMEOUT_FACTOR:-3}

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# gtest PROGRAM OPTION...: runs a program of GoogleTest, which would also pass if its filter chose nothing: that fails. The
# output is indented, since the program's report, which tools/check looks for, stays in the guest.
gtest() {
  local code
  "$@" | tee /tmp/gtest | sed -u 's/^/    /'
  code=${PIPESTATUS[0]}
  ((code == 0)) || return "$code"
  grep -Eq '^\[==========\] [1-9][0-9]* tests? .* ran\.' /tmp/gtest || fail "no test ran: $*"
}

# job LOG OPTION...: trains with 4 workers, and prints the final objective as the last line.
job() {
  local log=$1
  shift
  "$run" -n 4 "${svm[@]}" "$@" >"$log" 2>&1 || {
    cat "$log" >&2
    fail "the job over $DUNLIN_TRANSPORTS"
  }
  grep -o 'objective [0-9.]*' "$log" | tail -n 1
}

# impair NETEM_OPTION...: impairs both ends of the pair.
impair() {
  for interface in v0 v1; do tc qdisc add dev $interface root netem "$@" || fail "tc netem"; done
}

# mend_networks: removes all impairments.
mend_networks() {
  for interface in v0 v1; do tc qdisc delete dev $interface root 2>/dev/null; done
}

# Makes three outages in a training run, by the functions break_link and mend_link. The result must be the same.
go_on_after_outages() {
  local over_shm over_verbs
  export DUNLIN_VERBS_TIMEOUT=14  # devices retry for 0.5 s, which is less than the outages
  over_shm=$(DUNLIN_TRANSPORTS=shm job /tmp/shm --epochs 400)
  : >/tmp/verbs
  (
    until grep -q objective /tmp/verbs; do sleep 0.2; done
    for _ in 1 2; do
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

# objects: prints the RDMA objects in use, by device. There is one `ctx` per process that has opened the device.
objects() { rdma resource show | sed 's/ ctx [0-9]*//'; }

# check_nothing_left FILE: checks that all devices in FILE (an output of `rdma resource show`) are as they were then, and
# that no rank is left.
check_nothing_left() {
  local tries=20
  until [[ $(rdma resource show) == "$(<"$1")" ]]; do
    ((tries-- > 0)) || {
      rdma resource show >&2
      fail "this is left on the devices, and before there was: $(<"$1")"
    }
    sleep 0.5
  done
  ! grep -lsE '[d]unlin-svm|soak/[s]oak' /proc/[0-9]*/cmdline >&2 || fail "these processes are left"
}

# check_receivers_were_ready: checks that flow control has kept all receive queues from running dry.
check_receivers_were_ready() {
  local counters found
  counters=$(cd /sys/class/infiniband && grep . rxe*/ports/1/hw_counters/*rnr*) || fail "no counters of the devices"
  found=$(grep -v ':0$' <<<"$counters") && fail "a receiver was not ready: $found"
  echo "no receiver was ever not ready, by" $(wc -l <<<"$counters") "counters"
}

# expect_reports LOG SECONDS: checks that the job, process $job, ends by itself with an error within SECONDS, and that
# each rank names the rank or device that caused it.
expect_reports() {
  local log=$1 limit=$2 began=$SECONDS code=0 rank
  # A job that hangs is killed; its exit code then shows that.
  (sleep "$limit" && kill -KILL "$job") 2>/dev/null &
  local watch=$!
  wait "$job" || code=$?
  kill $watch 2>/dev/null
  grep -E 'error:|warning:|dunlin-run:' "$log"
  echo "the job ended with $code after $((SECONDS - began)) s"
  [[ $code == 1 ]] || fail "the job ended with $code, and not by itself with 1 within $limit s"
  for rank in 0 1 2 3; do
    grep -Eq "^\[$rank\] .* error: .*(from rank [0-3]|device rxe|\(rank [^$rank]\)$)" "$log" ||
      fail "rank $rank names no other rank and no device"
  done
}

# start_job LOG OPTION...: like job(), but in the background as process $job. Returns when the training has begun.
start_job() {
  local log=$1
  shift
  # The ranks get time to detect the failure by themselves.
  "$run" -n 4 --grace 15 "${svm[@]}" --eval-every 20 "$@" >"$log" 2>&1 &
  job=$!
  until [[ $(grep -c 'objective [0-9]' "$log") -ge 3 ]]; do
    kill -0 $job 2>/dev/null || {
      cat "$log" >&2
      fail "the job ended too early"
    }
    sleep 0.2
  done
}

# renew_devices: makes devices work again whose link was down under traffic, as an administrator would.
renew_devices() {
  local device
  for device in 0 1; do
    rdma link delete rxe$device && rdma link add rxe$device type rxe netdev v$device || fail "renewing rxe$device"
    # Waits for the GID of the IPv4 address.
    until grep -q ffff /sys/class/infiniband/rxe$device/ports/1/gids/1; do sleep 0.2; done
  done
}

# sent INTERFACE: prints the bytes sent so far.
sent() { cat "/sys/class/net/$1/statistics/tx_bytes"; }

# check_both_rails_carry COMMAND...: runs the command, and checks that both ends have sent over both networks.
check_both_rails_carry() {
  local before=() interface number=0
  for interface in v0 v1 v2 v3; do before+=("$(sent $interface)"); done
  "$@" || fail "$*"
  for interface in v0 v1 v2 v3; do
    echo "$interface has sent $(($(sent $interface) - before[number])) bytes"
    (($(sent $interface) - before[number++] > 20000)) || fail "$interface has carried next to nothing"
  done
}

# start_stream LOG REPETITIONS: starts puts with notifications between two ranks, each over two rails, in the background
# as process $job. Returns when the stream has begun.
start_stream() {
  local before
  before=$(sent v2)
  DUNLIN_VERBS_RAILS=2 DUNLIN_VERBS_CONNECT=bootstrap DUNLIN_LOG_LEVEL=info \
    "$run" -n 2 --grace 15 "$perf" put-notify --size 256K --iterations "$2" >"$1" 2>&1 &
  job=$!
  until (($(sent v2) - before > 4000000)); do
    kill -0 $job 2>/dev/null || {
      cat "$1" >&2
      fail "the stream ended too early"
    }
    sleep 0.2
  done
}

# Leaves out sums and averages of many sizes, types and graphs, the tuner and the group generator. They use no more of a
# transport than the lanes, channels, windows and notifications that the other tests cover. Some of each kind of call stay.
not_the_contract='*CollectiveAccuracy.*:*Collectives.EveryAlgorithm*:*Collectives.TypesAndOperations*'
not_the_contract+=':CollectiveTuning.*'
not_the_contract+=':*GroupAverageTest.EverySource*:*GroupAverageTest.ASlowWorker*:*PartialTest.LongModels*:*PartialTest.RandomGroups*'
not_the_contract+=':*NeighborTest.AveragesOverGraphs*'
not_the_contract+=':*StragglerTest.Sums*:*ReduceTest.SmallLargeAndSingle*:*HierarchicalTest.AveragesOfMachines*'
not_the_contract+=':*HierarchicalTest.ManyAtOnce*'

case $case in
  contract_threads) gtest "$conformance" --gtest_filter="*/threads-$not_the_contract" ;;
  # Bootstrap messages reach only one fabric of a process, and the parting test makes two.
  contract_processes)
    DUNLIN_VERBS_CONNECT=bootstrap gtest "$conformance" --gtest_filter="-*/threads:*PartingTest*:$not_the_contract"
    ;;
  several)
    failed=() times=()
    for each in "${@:3}"; do
      echo "===== $each"
      began=$SECONDS
      "$0" "$build" "$each" || failed+=("$each")
      times+=("$each $((SECONDS - began)) s")
      mend_networks
    done
    printf -v all ', %s' "${times[@]}"
    echo "took: ${all:2}"
    ((${#failed[@]} == 0)) || fail "${failed[*]}"
    ;;
  # librdmacm's state does not survive a fork, so threads and processes run in separate processes.
  threads) gtest "$conformance" --gtest_filter='*/threads' ;;
  # Threads connect through the connection manager, processes through the bootstrap.
  processes) DUNLIN_VERBS_CONNECT=bootstrap gtest "$conformance" --gtest_filter='-*/threads:*PartingTest*' ;;
  shallow)
    DUNLIN_VERBS_QUEUE_DEPTH=2 gtest "$conformance" --gtest_filter='*LaneTest*/threads:*AccessTest*/threads:*ChannelTest*/threads' ||
      fail "with queues of depth 2"
    check_receivers_were_ready
    ;;
  # There are more lanes than connections, which are given up and made again. With three queue pairs, a rank has a single
  # connection of its own. Left out is a test in which the peer does nothing, though it would have to accept a connection,
  # and those that would make thousands of connections.
  limit)
    limited=$build/tests/transports/test_verbs_limit
    gtest "$limited" --gtest_filter='*/threads' || fail "with threads"
    DUNLIN_VERBS_CONNECT=bootstrap gtest "$limited" --gtest_filter='-*/threads' || fail "with processes"
    lanes='*LaneTest*/threads:*AccessTest*/threads:*ChannelTest*/threads:*WindowTest*/threads'
    DUNLIN_VERBS_MAX_CONNECTIONS=3 gtest "$conformance" --gtest_filter="$lanes-*NeedsNoProgress*:*UnderLoad*" ||
      fail "with three queue pairs"
    check_receivers_were_ready
    ;;
  # Every put is striped. Threads connect through the connection manager, processes through the bootstrap.
  rails)
    export DUNLIN_VERBS_RAILS=2 DUNLIN_VERBS_STRIPE_ABOVE=0
    lanes() { gtest "$conformance" --gtest_filter="*LaneTest*/$1:*AccessTest*/$1:*ChannelTest*/$1"; }
    check_both_rails_carry lanes threads
    DUNLIN_VERBS_CONNECT=bootstrap lanes processes || fail "through the bootstrap"
    for depth in 2 3; do  # 3: not a power of two, which the ring of operations is
      DUNLIN_VERBS_QUEUE_DEPTH=$depth lanes threads || fail "with queues of depth $depth"
    done
    # The rails are on one port, so that a forged descriptor has a wrong key for all rails. Short messages mix with
    # stripes.
    unset DUNLIN_VERBS_RAILS
    DUNLIN_VERBS_DEVICE=rxe0 DUNLIN_VERBS_QP_COUNT=2 DUNLIN_VERBS_STRIPE_ABOVE=32 \
      gtest "$build/tests/transports/test_verbs_fault" || fail "refused stripes"
    check_receivers_were_ready
    ;;
  # The plugin for NCCL, called as NCCL calls it. The two ranks of a connection have different devices.
  nccl)
    export NCCL_TEST_TRANSPORT=verbs DUNLIN_VERBS_CONNECT=bootstrap
    gtest "$nccl" --gtest_filter='NcclOver.*' || fail "the plugin for NCCL"
    impair loss 1%
    DUNLIN_VERBS_TIMEOUT=14 gtest "$nccl" --gtest_filter='NcclOver.*/v11_*' || fail "the plugin for NCCL, with loss"
    tc -s qdisc show dev v0 | grep -Eq 'dropped [1-9]' || fail "nothing was lost on the way"
    mend_networks
    NCCL_TEST_LINK_DOWN="for i in v0 v1; do tc qdisc add dev \$i root netem loss 100%; done" \
      NCCL_TEST_LINK_UP="for i in v0 v1; do tc qdisc delete dev \$i root; done" DUNLIN_VERBS_TIMEOUT=14 \
      gtest "$nccl" --gtest_filter='NcclOutage.*' || fail "the plugin for NCCL, with a network that loses all"
    ;;
  # The same with buffers on a stand-in for a GPU, which a device here reaches only through host memory.
  nccl_gpu)
    NCCL_TEST_TRANSPORT=verbs DUNLIN_VERBS_CONNECT=bootstrap DUNLIN_VERBS_GPU=staging \
      gtest "$nccl" --gtest_filter='NcclGpu.*:NcclOneSided*' || fail "the plugin for NCCL, with GPU memory"
    ;;
  # A link that is down for two seconds in the middle of transfers. Devices that retry for 0.5 s break the connection.
  nccl_link)
    export DUNLIN_VERBS_CONNECT=bootstrap DUNLIN_VERBS_TIMEOUT=14
    NCCL_TEST_LINK_DOWN="ip link set v0 down" NCCL_TEST_LINK_UP="ip link set v0 up" \
      gtest "$nccl" --gtest_filter='NcclOutage.*' || fail "the plugin for NCCL, with a link that was down"
    ;;
  # NIXL's own Python package with the plugin. Longer transfers would take minutes here.
  nixl)
    DUNLIN_VERBS_CONNECT=bootstrap /usr/bin/python3 "$(dirname "$0")/../bindings/nixl/nixl_test.py" \
      "$build/bindings/nixl" notifications local without_thread death bad_input
    code=$?
    ((code != 77)) || exit 77  # there is no NIXL
    ((code == 0)) || fail "the plugin for NIXL"
    ;;
  rails_perf)
    two() { "$run" -n 2 "$perf" "$@" --check; }
    export DUNLIN_VERBS_RAILS=2
    check_both_rails_carry two put --size 48K,64K,1M --iterations 40
    check_both_rails_carry two put-notify --size 100000,1M --iterations 40
    unset DUNLIN_VERBS_RAILS
    DUNLIN_VERBS_DEVICE=rxe0 two put --size 64K,1M --iterations 40 --qp-count 4 || fail "four queue pairs of a port"
    # One end has two ports and the other one. They agree on one port, with two queue pairs.
    "$run" -n 2 bash -c 'DUNLIN_VERBS_RAILS=$((1 + DUNLIN_RANK)) exec "$@"' bash "$perf" put --size 1M --iterations 20 \
      --qp-count 2 --bidirectional --check || fail "a different number of rails"
    ;;
  rail_down)
    export DUNLIN_DEADLINE=60s
    start_stream /tmp/stream 150
    ip link set v2 down || fail "ip link set v2 down"
    sleep 4
    ip link set v2 up || fail "ip link set v2 up"
    wait $job || { cat /tmp/stream >&2; fail "the stream did not survive an outage of one rail"; }
    grep -E 'lost the|is back after|256' /tmp/stream
    grep -Eq 'the rail 2 connection to rank [01] is back after' /tmp/stream || fail "rail 2 was not lost"
    # Now the link stays down.
    export DUNLIN_DEADLINE=15s
    start_stream /tmp/stream 100000
    ip link set v2 down || fail "ip link set v2 down"
    code=0 began=$SECONDS
    (sleep 120 && kill -KILL $job) 2>/dev/null &
    watch=$!
    wait $job || code=$?
    kill $watch 2>/dev/null
    grep -E 'lost the|error|dunlin-perf:|dunlin-run:' /tmp/stream
    echo "the stream ended with $code after $((SECONDS - began)) s"
    [[ $code == 1 ]] || fail "the stream ended with $code, and not by itself with 1"
    grep -q 'lost the rail 2 connection to rank' /tmp/stream || fail "no rank names the rail that was lost"
    ;;
  # This is not a test, but measures the figures in bench/README.md.
  rails_bandwidth)
    two() { echo "$1:" && shift && env "$@" "$run" -n 2 "$perf" put --size 64K,1M --duration 3 --no-check || fail "$*"; }
    for _ in 1 2; do
      two "1 queue pair" DUNLIN_VERBS_RAILS=1
      two "2 queue pairs" DUNLIN_VERBS_RAILS=1 DUNLIN_VERBS_QP_COUNT=2
      two "2 rails" DUNLIN_VERBS_RAILS=2
    done
    ;;
  faults) gtest "$build/tests/transports/test_verbs_fault" ;;
  gpu)
    gtest "$build/tests/transports/test_verbs_gpu" || fail "with GPU memory"
    # The landing notes and the notifications behind them share mailboxes of two slots.
    DUNLIN_VERBS_QUEUE_DEPTH=2 gtest "$build/tests/transports/test_verbs_gpu" || fail "with GPU memory and queues of depth 2"
    check_receivers_were_ready
    impair loss 1% delay 200us reorder 25% 50%
    CONFORMANCE_TIMEOUT_FACTOR=10 gtest "$build/tests/transports/test_verbs_gpu" --gtest_filter='*ManyPuts*:*Flush*' ||
      fail "with GPU memory, loss and reordering"
    ;;
  lossy)
    impair loss 1% delay 200us reorder 25% 50%
    export CONFORMANCE_TIMEOUT_FACTOR=10
    gtest "$conformance" --gtest_filter='*LaneTest*/processes:*AccessTest*/processes:*ChannelTest*/processes' || fail "with loss and reordering"
    tc -s qdisc show dev v0 | grep -Eq 'dropped [1-9]' || fail "nothing was lost on the way"
    ;;
  job)
    over_shm=$(DUNLIN_TRANSPORTS=shm job /tmp/shm --epochs 2)
    over_verbs=$(job /tmp/verbs --epochs 2)
    echo "shm: $over_shm, verbs: $over_verbs"
    [[ -n $over_shm && $over_shm == "$over_verbs" ]] || fail "not the same"
    ;;
  timeouts)
    # No packet passes for 2 s, and a little longer on a busy host. Devices that retry for 0.5 s or 1.1 s break the
    # connections, and with the default, 3.8 s, they are kept.
    export DUNLIN_LOG_LEVEL=info DUNLIN_VERBS_TIMEOUT DUNLIN_VERBS_RETRY_COUNT
    while read -r DUNLIN_VERBS_TIMEOUT DUNLIN_VERBS_RETRY_COUNT loses; do
      start_job /tmp/verbs --epochs 400 --deadline 60
      impair loss 100%
      sleep 2
      kill -0 $job 2>/dev/null || fail "the job ended before the outage"
      mend_networks
      wait $job || { cat /tmp/verbs >&2; fail "the job did not outlast it"; }
      lost=$(grep -c 'lost the .* transport retry counter exceeded' /tmp/verbs)
      echo "timeout $DUNLIN_VERBS_TIMEOUT, $DUNLIN_VERBS_RETRY_COUNT retries: $lost connections were lost"
      [[ $( ((lost > 0)) && echo yes || echo no) == "$loses" ]] || fail "that is wrong"
    done <<<$'14 6 yes\n17 6 no\n18 0 yes'
    ;;
  outage)
    # No packet passes for longer than the devices retry. (A link that is down would also break
    # rdma_rxe's own queue pair of the connection manager, for good.)
    break_link() { impair loss 100%; }
    mend_link() { mend_networks; }
    go_on_after_outages
    ;;
  relink)
    # Without the connection manager, connections come back after that, too.
    export DUNLIN_VERBS_CONNECT=bootstrap
    break_link() { ip link set v0 down; }
    mend_link() { ip link set v0 up; }
    go_on_after_outages
    ;;
  removal)
    rdma resource show | grep -v rxe0 >/tmp/before
    start_job /tmp/verbs --epochs 1000000 --deadline 10
    # Returns when the last process has closed the device.
    rdma link delete rxe0 &
    deleting=$!
    expect_reports /tmp/verbs 25
    grep -q 'device rxe0 was removed' /tmp/verbs || fail "no rank names the device that was removed"
    wait $deleting || fail "the device could not be removed"
    check_nothing_left /tmp/before
    ;;
  linkdown)
    training=(--epochs 40 --checkpoint-every 10)
    over_shm=$(DUNLIN_TRANSPORTS=shm job /tmp/shm "${training[@]}")
    rdma resource show >/tmp/before
    start_job /tmp/verbs "${training[@]}" --checkpoint /tmp/model --deadline 10
    ip link set v0 down || fail "ip link set v0 down"
    expect_reports /tmp/verbs 25
    check_nothing_left /tmp/before
    ip link set v0 up || fail "ip link set v0 up"
    renew_devices
    resumed=$(job /tmp/resumed "${training[@]}" --resume /tmp/model --deadline 60 --json-out /tmp/resumed.jsonl)
    first=$(sed -n 's/.*"progress".*"exchange":\([0-9]*\),.*"exchanges":\([0-9]*\),.*/\1 - \2/p;T;q' /tmp/resumed.jsonl)
    echo "resumed from exchange $((first))"
    ((first >= 10)) || fail "not resumed from a checkpoint"
    echo "shm, undisturbed: $over_shm, verbs, resumed: $resumed"
    [[ -n $over_shm && $over_shm == "$resumed" ]] || fail "not the same"
    ;;
  soak)
    rdma resource show >/tmp/before
    objects >/tmp/idle
    "$run" -n 4 "$build/tests/guest/soak/soak" --seconds "${3:-15}" --seed "${4:-1}" --cycle 3 --rounds 3 --timeout 120 \
      --between "$(declare -f objects); objects | diff /tmp/idle -" || fail "the soak"
    check_nothing_left /tmp/before
    check_receivers_were_ready
    ;;
  two_hosts)
    # There are two ranks on each host, with shm within a host and verbs between hosts.
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
