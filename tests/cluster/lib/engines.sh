# shellcheck shell=bash
# The workflow engines of a control plane: which it has, their CRDs, their
# configuration, and how they start. Sourced.

# choose_engines ENGINES ARGO: what the control plane in CP_* has. ENGINES is a list
# like `argo,tekton`, or `none`; ARGO is the version of Argo Workflows.
choose_engines() {
    local engine argo
    CP_ENGINES=() CP_ENGINE_MODULES=() CP_ARGO=$2
    argo=$(argo_module)
    if [[ $1 != none ]]; then
        IFS=, read -ra CP_ENGINES <<<"$1"
    fi
    for engine in "${CP_ENGINES[@]}"; do
        case $engine in
            argo) CP_ENGINE_MODULES+=("$argo") ;;
            tekton) CP_ENGINE_MODULES+=(tekton) ;;
            *) fail "an engine is argo or tekton, not '$engine' (LANE_ENGINES=argo,tekton, or none)" ;;
        esac
    done
    CP_COMPONENTS=(etcd apiserver controller-manager "${CP_ENGINES[@]}")
    # Nobody starts them but who needs them.
    ! has_engine tekton || CP_COMPONENTS+=(tekton-resolvers)
}
has_engine() { [[ " ${CP_ENGINES[*]} " == *" $1 "* ]]; }

argo_module() {
    case $CP_ARGO in
        4.1) echo argo ;;
        3.7) echo argo-3-7 ;;
        *) fail "Argo Workflows is here in version 4.1 and 3.7, not '$CP_ARGO' (LANE_ARGO)" ;;
    esac
}

start_engines() {
    local engine
    for engine in "${CP_ENGINES[@]}"; do
        "start_$engine"
    done
}

engines_still_run() {
    local engine
    for engine in "${CP_ENGINES[@]}"; do
        still_running "$engine"
    done
}

# --- CRDs and configuration --------------------------------------------------

apply_engine_crds() {
    local module
    for module in "${CP_ENGINE_MODULES[@]}"; do
        apply --filename "$(module_dir "$module")/crds"
    done
}

engine_crds_are_served() {
    ! has_engine argo || kubectl get --raw /apis/argoproj.io/v1alpha1 || return
    ! has_engine tekton || kubectl get --raw /apis/tekton.dev/v1 || return
}

apply_engine_namespaces() {
    ! has_engine argo || apply_argo_namespace
    ! has_engine tekton || apply_tekton_namespace
}

# Argo's metrics are off: they would take port 9090, which a Prometheus wants,
# and which only one controller on the machine could have.
apply_argo_namespace() {
    apply --filename - <<YAML
apiVersion: v1
kind: Namespace
metadata: {name: $ARGO_NAMESPACE}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: workflow-controller-configmap, namespace: $ARGO_NAMESPACE}
data:
  metricsConfig: |
    enabled: false
  executor: |
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      runAsNonRoot: true
      runAsUser: 65532
      seccompProfile: {type: RuntimeDefault}
  mainContainer: |
    securityContext:
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      runAsNonRoot: true
      runAsUser: 65532
      seccompProfile: {type: RuntimeDefault}
YAML
}

# What its configuration says otherwise than Tekton's own:
# - pods take the user that on OpenShift an SCC gives them, and their init containers
#   fit into a namespace that is `restricted`;
# - a step does not wait for sidecars that something may inject, and pods need not be on
#   one node, which would take a helper pod for each run;
# - no metrics: they would take port 9090 of the machine.
# Tekton's resolvers have a namespace of their own, whose ConfigMaps name it.
apply_tekton_namespace() {
    {
        kubectl create namespace "$TEKTON_NAMESPACE" --dry-run=client --output json
        kubectl create namespace "$TEKTON_RESOLVERS_NAMESPACE" --dry-run=client --output json
        jq --compact-output '
            {
                "config-defaults": {"default-pod-template":
                    "securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}"},
                "feature-flags": {"set-security-context": "true", "coschedule": "disabled",
                    "running-in-environment-with-injected-sidecars": "false"},
                "config-observability": {"metrics-protocol": "none"}
            } as $ours
            | .data += $ours[.metadata.name]' "$(module_dir tekton)"/{config,resolvers-config}/*.json
    } | apply --filename -
}

# --- controllers -------------------------------------------------------------

start_argo() {
    ! is_running argo || return 0
    # DEFAULT_REQUEUE_TIME: how soon a workflow that changed is looked at again
    # (10 s otherwise). The health endpoint is bound to port 6060 of the machine
    # and can't be moved; when several controllers run, all but the first log
    # that the port is taken and go on.
    spawn argo env LEADER_ELECTION_DISABLE=true DEFAULT_REQUEUE_TIME=1s \
        workflow-controller --kubeconfig "$CP_DIR/kubeconfig/argo" \
        --namespace "$ARGO_NAMESPACE" \
        --executor-image localhost/argoexec:v4.1.4 --executor-image-pull-policy Never \
        --loglevel info
}

# It watches all namespaces. Ports 0 are any that are free: nobody asks there. All of
# its own binaries are in one image; scripts run in a shell of busybox.
start_tekton() {
    ! is_running tekton || return 0
    spawn tekton env SYSTEM_NAMESPACE="$TEKTON_NAMESPACE" KUBERNETES_MIN_VERSION=v1.28.0 \
        CONFIG_DEFAULTS_NAME=config-defaults CONFIG_FEATURE_FLAGS_NAME=feature-flags \
        CONFIG_LOGGING_NAME=config-logging CONFIG_OBSERVABILITY_NAME=config-observability \
        CONFIG_LEADERELECTION_NAME=config-leader-election-controller CONFIG_SPIRE=config-spire \
        METRICS_DOMAIN=tekton.dev/pipeline PROBES_PORT=0 PROFILING_PORT=0 \
        tekton-controller -kubeconfig "$CP_DIR/kubeconfig/tekton" -disable-ha \
        -kube-api-qps 50 -kube-api-burst 100 \
        -entrypoint-image "$TEKTON_IMAGE" -nop-image "$TEKTON_IMAGE" \
        -workingdirinit-image "$TEKTON_IMAGE" -sidecarlogresults-image "$TEKTON_IMAGE" \
        -shell-image localhost/busybox:1 -shell-image-win localhost/no-windows:1
}

# They fetch Tasks of other namespaces, and whatever else a `taskRef` with a `resolver` names. Who wants them starts them with
# `component`, and may say before what they shall do in ConfigMap cluster-resolver-config.
start_tekton-resolvers() {
    ! is_running tekton-resolvers || return 0
    spawn tekton-resolvers env SYSTEM_NAMESPACE="$TEKTON_RESOLVERS_NAMESPACE" KUBERNETES_MIN_VERSION=v1.28.0 \
        CONFIG_RESOLVERS_FEATURE_FLAGS_NAME=resolvers-feature-flags \
        CONFIG_LOGGING_NAME=config-logging CONFIG_OBSERVABILITY_NAME=config-observability \
        CONFIG_LEADERELECTION_NAME=config-leader-election-resolvers \
        METRICS_DOMAIN=tekton.dev/resolution PROBES_PORT=0 PROFILING_PORT=0 \
        tekton-resolvers -kubeconfig "$CP_DIR/kubeconfig/tekton"
}
