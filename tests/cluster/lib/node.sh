# shellcheck shell=bash
# The one real node: containerd, the kubelet, and what they need of the machine.
# Sourced.
#
# Everything it changes outside $CP_DIR is listed here, because `down` takes
# each of them back and then looks whether it is gone:
#   address $NODE_IP on lo, bridge $NODE_BRIDGE and the pods' veths, one iptables
#   rule, the sysctls below, cgroups `kubepods`, /run/ouo-testbed (sockets of the
#   shims), files of ours in /var/lib/cni and /var/log/containers.

NODE_BRIDGE=ouo-testbed0
NODE_CNI_NETWORK=ouo-testbed
POD_RANGE=10.244.0.0/24
# Directories that containerd, the network plugins and the kubelet use without
# asking; `down` takes away those that were not there before.
NODE_DIRECTORIES=(/var/lib/cni /var/log/containers /var/lib/kubelet /run/containerd)
# Sockets of the shims: their path may have 42 characters at most.
SHIM_SOCKETS=/run/ouo-testbed
# Says whose cluster has the machine; $CP_DIR of the one that is up.
NODE_OWNER=$SHIM_SOCKETS/owner
# What the kubelet (kernel.*, vm.*) and the bridge plugin (ip_forward) set.
NODE_SYSCTLS=(net/ipv4/ip_forward vm/overcommit_memory vm/panic_on_oom
    kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes)

# It would warn of version 1 cgroups at every call.
export CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=true
ctr() { command ctr --address "$CP_DIR/containerd.sock" --namespace k8s.io "$@"; }

# The rule stands in for kube-proxy: it makes the Service `kubernetes`, and only
# that one, reachable from pods.
api_rule() {
    iptables --wait --table nat "$1" PREROUTING --destination "$KUBERNETES_SERVICE_IP" \
        --protocol tcp --dport 443 --jump DNAT --to-destination "$NODE_IP:$CP_API_PORT"
}

# The bridge, the address and so on are the machine's: one cluster can be up on
# it, whatever TESTBED_DIR says. Prints the folder of another one.
other_cluster() {
    local owner
    owner=$(cat "$NODE_OWNER" 2>/dev/null) || return 1
    [[ $owner != "$CP_DIR" && -d $owner ]] || return 1
    echo "$owner"
}

node_prepare() {
    local key
    mkdir -p "$SHIM_SOCKETS"
    chmod 700 "$SHIM_SOCKETS"
    echo "$CP_DIR" >"$NODE_OWNER"
    mkdir -p "$CP_DIR/before"
    for key in "${NODE_SYSCTLS[@]}"; do
        [[ -e $CP_DIR/before/${key//\//.} ]] || cat "/proc/sys/$key" >"$CP_DIR/before/${key//\//.}" 2>/dev/null || true
    done
    local path
    for path in "${NODE_DIRECTORIES[@]}"; do
        [[ -d $path || -e $CP_DIR/before/made${path//\//.} ]] || : >"$CP_DIR/before/made${path//\//.}"
    done
    ip -4 -oneline address show dev lo | grep -q " $NODE_IP/" || ip address add "$NODE_IP/32" dev lo
    api_rule --check 2>/dev/null || api_rule --append
}

node_config() {
    local dir=$CP_DIR
    mkdir -p "$dir/cni/conf" "$dir/kubelet" "$dir/containerd"

    # Pods reach the node and each other, and nothing beyond: no masquerading.
    cat >"$dir/cni/conf/10-testbed.conflist" <<END
{
  "cniVersion": "1.0.0",
  "name": "$NODE_CNI_NETWORK",
  "plugins": [
    {
      "type": "bridge", "bridge": "$NODE_BRIDGE", "isGateway": true,
      "ipam": {
        "type": "host-local", "dataDir": "$dir/cni/addresses",
        "ranges": [[{"subnet": "$POD_RANGE"}]], "routes": [{"dst": "0.0.0.0/0"}]
      }
    }
  ]
}
END

    # restrict_oom_score_adj: lowering the score needs CAP_SYS_RESOURCE, which
    # a sandboxed root may lack. netns_mounts_under_state_dir: so that no network
    # namespace of ours is outside the run directory.
    cat >"$dir/containerd.toml" <<END
version = 3
root = "$dir/containerd/root"
state = "$dir/containerd/state"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp"]
[grpc]
  address = "$dir/containerd.sock"
[ttrpc]
  address = "$dir/containerd.sock.ttrpc"
[plugins.'io.containerd.internal.v1.opt']
  path = "$dir/containerd/opt"
[plugins.'io.containerd.shim.v1.manager']
  socket_dir = "$SHIM_SOCKETS"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "localhost/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
  enable_selinux = false
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "$dir/cni/conf"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "/usr/sbin/runc"
  Root = "$SHIM_SOCKETS/runc"
  SystemdCgroup = false
END

    # failCgroupV1: the machine may have version 1 hierarchies only.
    cat >"$dir/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: $dir/pki/ca.crt}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix://$dir/containerd.sock
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
maxPods: 200
podLogsDir: $dir/pod-logs
resolvConf: ""
volumePluginDir: $dir/kubelet/volume-plugins
# A pod's end is seen the sooner.
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
END
}

start_scheduler() {
    ! is_running scheduler || return 0
    spawn scheduler kube-scheduler --kubeconfig="$CP_DIR/kubeconfig/scheduler" \
        --leader-elect=false --bind-address=127.0.0.1 --secure-port=10259 --profiling=false
}

# Under its own name in the module's folder: the shim must be on containerd's
# PATH, which use_common sees to.
start_containerd() {
    ! is_running containerd || return 0
    spawn containerd containerd --config "$CP_DIR/containerd.toml"
}
containerd_is_ready() { ctr version; }

start_kubelet() {
    ! is_running kubelet || return 0
    spawn kubelet kubelet --config="$CP_DIR/kubelet.yaml" \
        --kubeconfig="$CP_DIR/kubeconfig/kubelet" \
        --hostname-override="$NODE_NAME" --node-ip="$NODE_IP" \
        --root-dir="$CP_DIR/kubelet" --cert-dir="$CP_DIR/kubelet/pki"
}

node_is_ready() {
    [[ $(kubectl get node "$NODE_NAME" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') == True ]]
}

# --- taking it away ----------------------------------------------------------

# Mounts below our directories, the innermost first.
our_mounts() {
    local path
    while read -r _ _ _ _ path _; do
        path=$(printf '%b' "$path")
        case $path in
            "$CP_DIR"/* | "$SHIM_SOCKETS"/*) echo "$path" ;;
        esac
    done </proc/self/mountinfo | tac
}

# Shims of our containerd, told by the socket in their command line. They were
# not started by us but by it.
our_shims() {
    local pid arguments
    for pid in /proc/[0-9]*; do
        pid=${pid#/proc/}
        [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == */containerd-shim-runc-v2* ]] || continue
        arguments=$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null) || continue
        [[ $arguments != *" $CP_DIR/containerd.sock "* ]] || echo "$pid"
    done
}

our_cgroups() { find /sys/fs/cgroup -depth -type d -path '*/kubepods*' 2>/dev/null || true; }

# Processes in the pods' cgroups.
our_pod_processes() {
    local group
    our_cgroups | while read -r group; do
        cat "$group/cgroup.procs" 2>/dev/null || true
    done | sort -u
}

our_links() {
    ip -oneline link show type veth master "$NODE_BRIDGE" 2>/dev/null | sed 's/^[0-9]*: \([^:@]*\).*/\1/' || true
    [[ ! -d /sys/class/net/$NODE_BRIDGE ]] || echo "$NODE_BRIDGE"
}

# Ends containers the way containerd would, so that shims end by themselves.
end_containers() {
    local id
    ctr tasks list --quiet 2>/dev/null | while read -r id; do
        ctr tasks kill --signal SIGKILL "$id" >/dev/null 2>&1 || true
    done
    ctr tasks list --quiet 2>/dev/null | while read -r id; do
        ctr tasks delete --force "$id" >/dev/null 2>&1 || true
    done
    ctr containers list --quiet 2>/dev/null | while read -r id; do
        ctr containers delete "$id" >/dev/null 2>&1 || true
    done
}

kill_all() {
    local pid
    while read -r pid; do
        [[ -z $pid ]] || kill -KILL "$pid" 2>/dev/null || true
    done
}

# What containerd could not end, or nobody when it had died.
kill_pods() {
    local deadline=$((SECONDS + 5))
    while ((SECONDS < deadline)) && [[ -n $(our_shims)$(our_pod_processes) ]]; do
        our_shims | kill_all
        our_pod_processes | kill_all
        sleep 0.1
    done
}

unmount_all() {
    local path round
    for round in 1 2 3; do
        our_mounts | while read -r path; do
            umount "$path" 2>/dev/null || umount --lazy "$path" 2>/dev/null || true
        done
        [[ -n $(our_mounts) ]] || return 0
        sleep 0.$round
    done
}

remove_our_files() {
    local path
    # Cached results of the network plugins, one file a pod.
    for path in "/var/lib/cni/results/$NODE_CNI_NETWORK"-* /var/lib/cni/results/cni-loopback-*; do
        [[ -e $path ]] && grep -qs "$CP_DIR\|$NODE_CNI_NETWORK\|cni-loopback" "$path" && rm -f "$path"
    done
    # Links to the logs of the pods.
    for path in /var/log/containers/*.log; do
        if [[ -L $path && $(readlink "$path") == "$CP_DIR"/* ]]; then
            rm -f "$path"
        fi
    done
    # The kubelet's registration socket for device plugins.
    if [[ -e $CP_DIR/before/made.var.lib.kubelet ]]; then
        rm -f /var/lib/kubelet/device-plugins/kubelet.sock
    fi
    rm -rf --one-file-system "$SHIM_SOCKETS"
    for path in "${NODE_DIRECTORIES[@]}"; do
        if [[ -e $CP_DIR/before/made${path//\//.} && -d $path ]]; then
            find "$path" -depth -type d -empty -delete
        fi
    done
}

node_remove() {
    local link group key
    stop 3 kubelet
    if is_running containerd; then
        end_containers
    fi
    kill_pods
    stop 3 containerd
    unmount_all
    for link in $(our_links); do
        ip link delete "$link" 2>/dev/null || true
    done
    our_cgroups | while read -r group; do
        rmdir "$group" 2>/dev/null || true
    done
    while api_rule --check 2>/dev/null; do
        api_rule --delete
    done
    ip address delete "$NODE_IP/32" dev lo 2>/dev/null || true
    for key in "${NODE_SYSCTLS[@]}"; do
        [[ ! -e $CP_DIR/before/${key//\//.} ]] || cat "$CP_DIR/before/${key//\//.}" >"/proc/sys/$key" 2>/dev/null || true
    done
    remove_our_files
}

# Prints what is left, one line each.
node_leftovers() {
    local key now
    our_shims | sed 's/^/process (shim) /'
    our_pod_processes | sed 's/^/process (pod) /'
    our_mounts | sed 's/^/mount /'
    our_links | sed 's/^/link /'
    our_cgroups | sed 's/^/cgroup /'
    ! ip -4 -oneline address show | grep " $NODE_IP/" || true
    ! iptables-save 2>/dev/null | grep -e "$NODE_IP" || true
    for key in "${NODE_DIRECTORIES[@]}"; do
        [[ ! -e $CP_DIR/before/made${key//\//.} || ! -e $key ]] || echo "directory $key"
    done
    [[ ! -e $SHIM_SOCKETS ]] || echo "directory $SHIM_SOCKETS"
    for key in "${NODE_SYSCTLS[@]}"; do
        [[ -e $CP_DIR/before/${key//\//.} ]] || continue
        now=$(cat "/proc/sys/$key" 2>/dev/null) || continue
        [[ $now == "$(cat "$CP_DIR/before/${key//\//.}")" ]] || echo "sysctl $key is $now"
    done
}
