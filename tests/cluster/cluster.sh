#!/usr/bin/env bash
# A real Slurm cluster of several hosts on one machine. Every host has its own network namespace,
# host name and address; all share the file system and the process IDs. Needs root and
#   apt-get install slurm-wlm munge iproute2
#
#   cluster.sh up [N]        start N hosts (default 3): tc0n0, tc0n1, …
#   cluster.sh down          end everything that `up` started
#   cluster.sh conf          print the path of slurm.conf: export SLURM_CONF=$(cluster.sh conf)
#   cluster.sh run I CMD…    run CMD on host I
#   cluster.sh crash I       kill every process of host I, and take its network away
#   cluster.sh boot I        start host I again
#   cluster.sh cut I         take the network of host I away; `heal I` gives it back
#
# State is in $CLUSTER_DIR. Partition `urgent` preempts partition `batch`: PREEMPT_MODE is REQUEUE or
# CANCEL. SITE_CONF has further lines for slurm.conf, which replace those of the same name.
set -euo pipefail
dir=${CLUSTER_DIR:-${TMPDIR:-/tmp}/tfckpt-cluster}

# Several clusters may run on this machine. A cluster has a number from 0 to 9, and owns the bridge.
name_parts() {
  local number
  number=$(cat "$dir/number")
  bridge=tcbr$number net=10.79.$number prefix=tc${number}n
  control_port=$((27610 + number)) node_port=$((27630 + number))
  step_ports=$((28000 + number * 100))-$((28099 + number * 100))
}
claim_number() {
  local number
  for number in $(seq 0 9); do
    if ip link add "tcbr$number" type bridge 2>/dev/null; then
      echo "$number" >"$dir/number"
      return
    fi
  done
  echo "All ten clusters of this machine are in use." >&2
  exit 1
}
[ -s "$dir/number" ] && name_parts

holder() { cat "$dir/$prefix$1.holder"; }
on() {
  local i=$1
  shift
  nsenter -t "$(holder "$i")" --net --uts "$@"
}
hosts() { seq 0 $(($(cat "$dir/hosts") - 1)); }
start_node() { on "$1" slurmd -f "$dir/slurm.conf" -N "$prefix$1"; }

write_conf() {
  local last=$(($1 - 1))
  cat >"$dir/slurm.conf" <<C
ClusterName=$prefix
SlurmctldHost=$(hostname -s)($net.1)
SlurmctldPort=$control_port
SlurmdPort=$node_port
SrunPortRange=$step_ports
AuthType=auth/munge
AuthInfo=socket=$dir/munge.sock
CryptoType=crypto/munge
MpiDefault=none
GresTypes=gpu
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=${PREEMPT_MODE:-REQUEUE}
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd-%n.log
SlurmdTimeout=${NODE_SECONDS:-10}
SlurmctldTimeout=30
MessageTimeout=5
InactiveLimit=0
KillWait=30
MinJobAge=600
ReturnToService=2
NodeName=$prefix[0-$last] NodeAddr=$prefix[0-$last] CPUs=16 RealMemory=8000 Gres=gpu:4 State=UNKNOWN
PartitionName=batch Nodes=$prefix[0-$last] Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=${PREEMPT_MODE:-REQUEUE} OverSubscribe=NO GraceTime=${GRACE_SECONDS:-15}
PartitionName=urgent Nodes=$prefix[0-$last] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
${SITE_CONF:-}
C
  # Devices like /dev/null stand for GPUs: Slurm only hands out their numbers.
  for i in 0 1 2 3; do mknod "$dir/gpu$i" c 1 3; done
  echo "NodeName=$prefix[0-$last] Name=gpu File=$dir/gpu[0-3]" >"$dir/gres.conf"
  printf 'CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n%s\n' "${CGROUP_CONF:-}" >"$dir/cgroup.conf"
}

case ${1:-} in
up)
  n=${2:-3}
  mkdir -p "$dir"/{state,log,spool}
  chmod 755 "$dir"
  claim_number
  name_parts
  echo "$n" >"$dir/hosts"
  ip addr add "$net.1/24" dev "$bridge"
  ip link set "$bridge" up
  for i in $(hosts); do
    h=$prefix$i
    mkdir -p "$dir/spool/$h"
    ip netns add "$h"
    ip link add "v$h" type veth peer name eth0 netns "$h"
    ip link set "v$h" master "$bridge"
    ip link set "v$h" up
    ip netns exec "$h" ip addr add "$net.1$i/24" dev eth0
    ip netns exec "$h" ip link set eth0 up
    ip netns exec "$h" ip link set lo up
    ip netns exec "$h" ip route add default via "$net.1"
    # `ip netns exec` would keep what other tests have mounted, in a mount namespace of its own.
    nsenter --net="/run/netns/$h" unshare --uts sh -c "hostname $h; exec sleep infinity" \
      </dev/null >/dev/null 2>&1 &
    echo $! >"$dir/$h.holder"
    grep -q " $h\$" /etc/hosts || echo "$net.1$i $h" >>/etc/hosts
  done
  write_conf "$n"
  dd if=/dev/urandom of="$dir/munge.key" bs=1 count=1024 status=none
  chmod 600 "$dir/munge.key"
  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" \
    --pid-file="$dir/munged.pid" --log-file="$dir/log/munged.log" --seed-file="$dir/munge.seed"
  until [ -S "$dir/munge.sock" ]; do sleep 0.1; done
  slurmctld -f "$dir/slurm.conf"
  for i in $(hosts); do start_node "$i"; done
  export SLURM_CONF="$dir/slurm.conf"
  for _ in $(seq 150); do
    [ "$(sinfo -h -p batch -t idle -o %D 2>/dev/null)" = "$n" ] && exit 0
    sleep 0.2
  done
  sinfo >&2
  exit 1
  ;;
down)
  [ -s "$dir/hosts" ] || exit 0
  export SLURM_CONF="$dir/slurm.conf"
  timeout 10 scancel --full -u "$(id -un)" 2>/dev/null || true
  for _ in $(seq 75); do
    [ -z "$(timeout 5 squeue -h -t running,completing 2>/dev/null)" ] && break
    sleep 0.2
  done
  pids=
  for f in "$dir"/slurmd-*.pid "$dir/slurmctld.pid" "$dir/munged.pid" "$dir"/*.holder; do
    if [ -s "$f" ]; then
      p=$(cat "$f")
      kill "$p" 2>/dev/null || true
      pids="$pids $p"
    fi
  done
  for p in $pids; do
    for _ in $(seq 50); do
      kill -0 "$p" 2>/dev/null || break
      sleep 0.1
    done
  done
  for i in $(hosts); do
    ip link del "v$prefix$i" 2>/dev/null || true
    ip netns del "$prefix$i" 2>/dev/null || true
  done
  ip link del "$bridge" 2>/dev/null || true
  # Docker mounts /etc/hosts, so it is rewritten in place.
  grep -v -E " $prefix[0-9]+\$" /etc/hosts >"$dir/hosts.new" && cat "$dir/hosts.new" >/etc/hosts
  rm -rf "$dir"
  ;;
conf) echo "$dir/slurm.conf" ;;
run)
  i=$2
  shift 2
  on "$i" "$@"
  ;;
crash)
  # Every process of the host, which is known by its network; all at once, before any can react.
  own=$(readlink "/proc/$(holder "$2")/ns/net" | tr -d -c 0-9)
  pids=
  for p in $(find /proc/[0-9]*/ns/net -lname "*$own*" 2>/dev/null | cut -d/ -f3); do
    [ "$p" = "$(holder "$2")" ] || pids="$pids $p"
  done
  ip link set "v$prefix$2" down
  # shellcheck disable=SC2086
  kill -9 $pids 2>/dev/null || true
  ;;
boot)
  ip link set "v$prefix$2" up
  start_node "$2"
  ;;
cut) ip link set "v$prefix$2" down ;;
heal) ip link set "v$prefix$2" up ;;
*)
  sed -n '2,15p' "$0"
  exit 2
  ;;
esac
