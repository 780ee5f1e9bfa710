# shellcheck shell=bash
# A control plane: etcd, API server, controller-manager, workflow engines. The big
# cluster and each lane have one; they differ in the variables CP_* only. Sourced.

# shellcheck source=pki.sh
source "$TESTBED_ROOT/lib/pki.sh"
# shellcheck source=seed.sh
source "$TESTBED_ROOT/lib/seed.sh"
# shellcheck source=engines.sh
source "$TESTBED_ROOT/lib/engines.sh"

# The address that pods reach the API server by. It sits on the loopback
# interface, so the cluster needs no address of the machine.
NODE_IP=10.99.0.1
NODE_NAME=real-0
SERVICE_RANGE=10.96.0.0/16
KUBERNETES_SERVICE_IP=10.96.0.1

# use_cluster: the variables of the big cluster.
use_cluster() {
    CP_NAME=cluster CP_DIR=$TESTBED_DIR/cluster CP_LANE=''
    CP_ETCD_PORT=2379 CP_ETCD_PEER_PORT=2380 CP_API_PORT=6443
    CP_CONTROLLER_MANAGER_PORT=10257
    choose_engines argo,tekton 4.1
    CP_MODULES=("${CONTROL_PLANE_MODULES[@]}" "${CP_ENGINE_MODULES[@]}" "${NODE_MODULES[@]}")
    use_common
}

# use_lane N: the variables of a lane. Its ports are below those that the kernel
# gives to outgoing connections. It keeps the engines that it came up with.
use_lane() {
    local engines=${LANE_ENGINES:-argo} argo=${LANE_ARGO:-4.1}
    [[ ${1:-} =~ ^[0-7]$ ]] || fail "a lane is a number from 0 to 7"
    if [[ -e $TESTBED_DIR/lane-$1/engines ]]; then
        read -r engines argo <"$TESTBED_DIR/lane-$1/engines"
    fi
    choose_engines "$engines" "$argo"
    use_ports "lane $1" "$TESTBED_DIR/lane-$1" "$1" $((21000 + $1 * 10))
}

# keep_engines: for all later calls, which may not ask for the same.
keep_engines() {
    [[ -e $CP_DIR/engines ]] || echo "${LANE_ENGINES:-argo} $CP_ARGO" >"$CP_DIR/engines"
    local engines argo
    read -r engines argo <"$CP_DIR/engines"
    [[ ${LANE_ENGINES:-$engines} == "$engines" && ${LANE_ARGO:-$argo} == "$argo" ]] ||
        fail "$CP_NAME is up with other engines ($engines, Argo $argo); take it down first: tests/cluster/lane down $CP_LANE"
}

# use_ports NAME DIRECTORY LANE BASE: of a control plane without a node, with the
# engines that were chosen before.
use_ports() {
    CP_NAME=$1 CP_DIR=$2 CP_LANE=$3
    CP_ETCD_PORT=$4 CP_ETCD_PEER_PORT=$(($4 + 1)) CP_API_PORT=$(($4 + 2))
    CP_CONTROLLER_MANAGER_PORT=$(($4 + 3))
    CP_MODULES=("${CONTROL_PLANE_MODULES[@]}" "${CP_ENGINE_MODULES[@]}" "${LANE_MODULES[@]}")
    use_common
}

use_common() {
    CP_API_URL=https://127.0.0.1:$CP_API_PORT
    PATH=$(module_path "${CP_MODULES[@]}"):$PATH
    export KUBECONFIG=$CP_DIR/kubeconfig/admin
}

# The run directory may lie in /tmp, which everybody can write to: it must be
# ours and closed to others, for it holds the keys of the cluster.
make_run_directory() {
    local try
    for try in {1..10}; do
        mkdir -p -m 700 "$TESTBED_DIR"
        # Not with -p: with its parent it would be made open to others. It fails where
        # whoever took the last lane down has removed that meanwhile.
        if [[ -d $CP_DIR ]] || mkdir "$CP_DIR"; then
            [[ -O $TESTBED_DIR && ! -L $TESTBED_DIR ]] || fail "$TESTBED_DIR is not ours"
            return
        fi
        step "making $TESTBED_DIR once more ($try)"
    done
    fail "cannot make $CP_DIR"
}

# print_env [MORE-COMPONENTS...]
# shellcheck disable=SC2120 # a lane has no more
print_env() {
    printf 'export TESTBED_DIR=%q\n' "$TESTBED_DIR"
    printf 'export KUBECONFIG=%q\n' "$CP_DIR/kubeconfig/admin"
    printf 'export TESTBED_SIMULATOR_KUBECONFIG=%q\n' "$CP_DIR/kubeconfig/simulator"
    printf 'export TESTBED_OPERATOR_KUBECONFIG=%q\n' "$CP_DIR/kubeconfig/operator"
    printf 'export TESTBED_API_URL=%q\n' "$CP_API_URL"
    printf 'export TESTBED_LOGS=%q\n' "$CP_DIR/logs"
    local name variable
    for name in "${CP_COMPONENTS[@]}" "$@"; do
        variable=${name^^}
        printf 'export %s_PID_FILE=%q\n' "${variable//-/_}" "$CP_DIR/run/$name.pid"
    done
    # For those who read these lines without a shell.
    printf 'export TESTBED_PATH=%q\n' "$(module_path "${CP_MODULES[@]}")"
    # What is evaluated twice must not grow.
    printf 'case ":$PATH:" in *":$TESTBED_PATH:"*) ;; *) export PATH="$TESTBED_PATH:$PATH" ;; esac\n'
}

# --- components --------------------------------------------------------------

start_etcd() {
    ! is_running etcd || return 0
    # No fsync: the data needs to survive a killed process, not a power cut.
    spawn etcd etcd --name testbed --data-dir "$CP_DIR/etcd" --unsafe-no-fsync --log-level warn \
        --listen-client-urls "http://127.0.0.1:$CP_ETCD_PORT" \
        --advertise-client-urls "http://127.0.0.1:$CP_ETCD_PORT" \
        --listen-peer-urls "http://127.0.0.1:$CP_ETCD_PEER_PORT" \
        --initial-advertise-peer-urls "http://127.0.0.1:$CP_ETCD_PEER_PORT" \
        --initial-cluster "testbed=http://127.0.0.1:$CP_ETCD_PEER_PORT"
}

# The audit log is chosen when the cluster comes up and kept over a restart of
# the API server: TESTBED_AUDIT=1, `ours`, or the name of an audit level.
choose_audit() {
    local level=${TESTBED_AUDIT:-0}
    case $level in
        '' | 0) return 0 ;;
        1) level=Metadata ;;
    esac
    {
        printf 'apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n'
        if [[ $level == ours ]]; then
            audit_rules_of_ours
        else
            echo "- level: $level"
        fi
    } >"$CP_DIR/audit-policy.yaml"
}

# All requests of our ServiceAccounts and nobody else's, so it stays small; with
# their bodies those that tell who leads and what is asked of the ClusterVersion.
audit_rules_of_ours() {
    local account=system:serviceaccount:$OPERATOR_NAMESPACE
    cat <<END
- level: Request
  users: ['$account:upgrade-operator']
  verbs: [create, update, patch]
  resources:
  - {group: coordination.k8s.io, resources: [leases]}
  - {group: config.openshift.io, resources: [clusterversions]}
- level: Metadata
  users: ['$account:upgrade-operator', '$account:upgrade-workflow']
- level: None
END
}

# OwnerReferencesPermissionEnforcement is on because OpenShift has it on. GOGC: a
# third of its CPU time, which is most of all, goes into collecting garbage
# otherwise; that costs half a GB of memory, and up to 2 where it lives long.
start_apiserver() {
    ! is_running apiserver || return 0
    local pki=$CP_DIR/pki options=()
    if [[ -e $CP_DIR/audit-policy.yaml ]]; then
        options+=("--audit-policy-file=$CP_DIR/audit-policy.yaml"
            "--audit-log-path=$CP_DIR/logs/audit.log")
    fi
    if [[ -n $CP_LANE ]]; then
        # No pods, so nobody asks for the Service `kubernetes`; and endpoints
        # can't be a loopback address.
        options+=(--bind-address=127.0.0.1 --advertise-address=127.0.0.1
            --endpoint-reconciler-type=none)
    else
        options+=(--bind-address=0.0.0.0 "--advertise-address=$NODE_IP"
            "--kubelet-client-certificate=$pki/apiserver-kubelet-client.crt"
            "--kubelet-client-key=$pki/apiserver-kubelet-client.key"
            --kubelet-preferred-address-types=InternalIP)
    fi
    spawn apiserver env GOGC=400 GOMEMLIMIT=2GiB kube-apiserver "${options[@]}" \
        --secure-port="$CP_API_PORT" \
        --etcd-servers="http://127.0.0.1:$CP_ETCD_PORT" \
        --service-cluster-ip-range="$SERVICE_RANGE" \
        --authorization-mode=Node,RBAC \
        --enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement \
        --allow-privileged=true \
        --client-ca-file="$pki/ca.crt" \
        --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
        --service-account-issuer=https://kubernetes.default.svc.cluster.local \
        --service-account-key-file="$pki/service-account.pub" \
        --service-account-signing-key-file="$pki/service-account.key" \
        --profiling=false
}

start_controller-manager() {
    ! is_running controller-manager || return 0
    local pki=$CP_DIR/pki
    # The nodes of the simulated OpenShift cluster have no kubelet that renews a
    # lease. Without the very long grace period the node lifecycle controller
    # would call them unreachable after 50 s, taint them and evict their pods.
    # It is not switched off, because it also takes away the taint `not-ready`
    # that every new node gets, and because a fake node whose Ready condition
    # the simulator sets to False shall be treated like a real one.
    spawn controller-manager kube-controller-manager \
        --kubeconfig="$CP_DIR/kubeconfig/controller-manager" \
        --leader-elect=false \
        --use-service-account-credentials=true \
        --node-monitor-grace-period=87600h --node-startup-grace-period=87600h \
        --root-ca-file="$pki/ca.crt" \
        --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
        --service-account-private-key-file="$pki/service-account.key" \
        --bind-address=127.0.0.1 --secure-port="$CP_CONTROLLER_MANAGER_PORT" \
        --profiling=false
}

api_is_ready() { kubectl get --raw /readyz; }

# Ready does not mean that every CRD is served yet.
crds_are_served() {
    engine_crds_are_served &&
        kubectl get --raw /apis/config.openshift.io/v1 &&
        kubectl get --raw /apis/monitoring.coreos.com/v1 &&
        kubectl get --raw /apis/machineconfiguration.openshift.io/v1
}
own_crds_are_served() { kubectl get --raw /apis/managedupgrade.appuio.io/v1beta1; }

# For tests that want a part to fail. `stop` asks it to end (the API server
# takes 9 s over its open watches), `kill` does not ask.
check_component() {
    [[ -d $CP_DIR/pki ]] || fail "$CP_NAME is not up"
    [[ " ${CP_COMPONENTS[*]} " == *" $1 "* ]] || fail "a component is one of ${CP_COMPONENTS[*]}"
}
start_component() {
    check_component "$1"
    "start_$1"
    [[ $1 != apiserver ]] || wait_for apiserver "$TESTBED_PATIENCE" api_is_ready
    step "$CP_NAME: $1 runs"
}
stop_component() {
    check_component "$1"
    stop 15 "$1"
    step "$CP_NAME: $1 does not run"
}
kill_component() {
    check_component "$1"
    stop 0 "$1"
    step "$CP_NAME: $1 does not run"
}

# --- bringing it up ----------------------------------------------------------

apply() { kubectl apply --server-side --force-conflicts --field-manager=testbed "$@" >/dev/null; }

# OpenShift's CRDs, those of its monitoring, and those of the engines.
apply_foreign_crds() {
    apply --filename "$(module_dir openshift-api)/crds" 2> >(grep -v 'unrecognized format "ip"' >&2)
    apply --filename "$(module_dir prometheus-operator)/crds"
    apply_engine_crds
    kubectl wait --for=condition=Established --timeout="${TESTBED_PATIENCE}s" crd --all >/dev/null
}

apply_namespaces() {
    apply --filename "$TESTBED_CHECKOUT/deploy/kustomize/namespace.yaml"
    apply_engine_namespaces
}

apply_own_crds() {
    apply --kustomize "$TESTBED_CHECKOUT/crds"
    kubectl kustomize "$TESTBED_CHECKOUT/crds" |
        kubectl wait --for=condition=Established --timeout="${TESTBED_PATIENCE}s" --filename - >/dev/null
}

check_ports() {
    local port
    for port in "$@"; do
        ! port_is_taken "$port" || fail "port $port is taken by something else (another TESTBED_DIR?)"
    done
}

# What is ours but the operator: CRDs and access.
apply_ours() {
    apply_own_crds
    apply_own_access
}

# Namespace, ServiceAccounts and what they may do, without the operator itself: those of the chart, which the base is made of.
apply_own_access() {
    # By text: a lane wants no Deployment of the operator.
    kubectl kustomize "$TESTBED_CHECKOUT/deploy/kustomize" |
        awk 'BEGIN { RS = ORS = "---\n" } /(^|\n)kind: (Namespace|ServiceAccount|(Cluster)?Role(Binding)?)\n/' |
        apply --filename -
}

crds_up() {
    wait_for apiserver "$TESTBED_PATIENCE" api_is_ready
    # Nothing to do but when the CRDs are newer than the cluster.
    once "$(foreign_mark)" apply_foreign_crds
    wait_for apiserver "$TESTBED_PATIENCE" crds_are_served
    once namespaces apply_namespaces
}

start_etcd_and_apiserver() {
    # Nothing of ours runs: then the ports must be free.
    if ! is_running etcd && ! is_running apiserver; then
        check_ports "$CP_ETCD_PORT" "$CP_ETCD_PEER_PORT" "$CP_API_PORT" "$CP_CONTROLLER_MANAGER_PORT"
    fi
    start_etcd
    start_apiserver
}
