# shellcheck shell=bash
# The upgrade operator in the cluster, and the simulated OpenShift. Sourced.

# A static binary: its image holds nothing else.
build_operator() {
    if [[ -n ${TESTBED_OPERATOR_BINARY:-} ]]; then
        OPERATOR_BINARY=$(realpath "$TESTBED_OPERATOR_BINARY")
        return
    fi
    local triple target started=$SECONDS
    triple=$(rustc -vV | sed -n 's/^host: //p')
    target=${CARGO_TARGET_DIR:-$TESTBED_CHECKOUT/target}
    step "building the operator (cargo, static)"
    (
        cd "$TESTBED_CHECKOUT"
        RUSTFLAGS='-C target-feature=+crt-static' \
            cargo build --quiet --profile testbed --target "$triple" --target-dir "$target" --bin upgrade-operator
    )
    OPERATOR_BINARY=$target/$triple/testbed/upgrade-operator
    step "the operator's binary is built ($((SECONDS - started)) s)"
}

# The image is made anew when the binary changed; then OPERATOR_CHANGED is set,
# for pods keep what they were started with.
import_operator() {
    local hash old=''
    hash=$(sha256sum <"$OPERATOR_BINARY")
    old=$(cat "$CP_DIR/run/operator-image" 2>/dev/null) || true
    OPERATOR_CHANGED=''
    [[ $hash != "$old" ]] || return 0
    local copy
    copy=$(mktemp -d "$CP_DIR/operator.XXXXXX")
    cp "$OPERATOR_BINARY" "$copy/upgrade-operator"
    # As in the Containerfile.
    IMAGE_USER=65532:65532 import_binaries "$OPERATOR_IMAGE" "$copy/upgrade-operator"
    rm -rf "$copy"
    echo "$hash" >"$CP_DIR/run/operator-image"
    [[ -z $old ]] || OPERATOR_CHANGED=yes
    step "the operator's image is imported"
}

simulator_is_ready() { grep -q 'simulated cluster is ready' "$CP_DIR/logs/simulator.log"; }

start_simulator() {
    if is_running simulator && [[ -z $OPERATOR_CHANGED ]]; then
        return 0
    fi
    stop 5 simulator
    mkdir -p "$CP_DIR/logs" "$CP_DIR/bin"
    : >"$CP_DIR/logs/simulator.log"
    # A copy: the next build replaces the original while it runs.
    install -m 755 "$OPERATOR_BINARY" "$CP_DIR/bin/upgrade-operator.new"
    mv "$CP_DIR/bin/upgrade-operator.new" "$CP_DIR/bin/upgrade-operator"
    spawn_simulator
}

# spawn_simulator [FLAGS...]
spawn_simulator() {
    spawn simulator "$CP_DIR/bin/upgrade-operator" simulate-openshift --kubeconfig "$CP_DIR/kubeconfig/simulator" "$@"
}

# renew_simulated_cluster [FLAGS...]: throws the simulated OpenShift away and makes another.
renew_simulated_cluster() {
    stop 5 simulator
    : >"$CP_DIR/logs/simulator.log"
    spawn_simulator --reset "$@"
    wait_for simulator "$TESTBED_PATIENCE" simulator_is_ready
}

# By the chart, as a user does. What somebody changed by hand is changed back. The hash of the image starts pods anew when
# the binary has changed, for its name has not.
deploy_operator() {
    helm upgrade --install upgrade-operator "$TESTBED_CHECKOUT/charts/openshift-upgrade-operator" \
        --namespace "$OPERATOR_NAMESPACE" --take-ownership --force-conflicts \
        --values "$TESTBED_ROOT/operator-values.yaml" \
        --set operator.prometheusUrl="https://$NODE_IP:$PROMETHEUS_PORT" \
        --set-string podAnnotations.testbed/image="$(cut -c-16 "$CP_DIR/run/operator-image")" \
        >"$CP_DIR/logs/helm.log" \
        2> >(grep -v 'found symbolic link' >&2)
}

operator_is_available() {
    kubectl --namespace "$OPERATOR_NAMESPACE" rollout status deployment/upgrade-operator --timeout="${TESTBED_PATIENCE}s" >/dev/null
}

explain_operator() {
    kubectl --namespace "$OPERATOR_NAMESPACE" get pods --output wide >&2 || true
    kubectl --namespace "$OPERATOR_NAMESPACE" get events --sort-by=.lastTimestamp 2>/dev/null | tail -n 8 >&2 || true
    kubectl --namespace "$OPERATOR_NAMESPACE" logs deployment/upgrade-operator --tail=15 >&2 || true
    fail "the operator did not become available"
}
