# shellcheck shell=bash
# A real Prometheus for health checks, as a process on the node. Sourced.
#
# It speaks TLS with a certificate of the cluster's CA, which each pod has beside its
# token. Prometheus itself does not look at tokens: on OpenShift a proxy in front of it
# does, and in tests/scenarios/health.rs a stand-in.

PROMETHEUS_PORT=19090

start_prometheus() {
    ! is_running prometheus || return 0
    local dir=$CP_DIR/prometheus
    [[ -e $CP_DIR/pki/prometheus.crt ]] || pki_cert prometheus /CN=prometheus "IP:127.0.0.1,IP:$NODE_IP"
    # It watches folders only that are there.
    mkdir -p "$dir/rules" "$dir/targets"
    cat >"$dir/web.yaml" <<END
tls_server_config: {cert_file: $CP_DIR/pki/prometheus.crt, key_file: $CP_DIR/pki/prometheus.key}
END
    # Rules that somebody lays into the folder are read after: kill -HUP \$(cat run/prometheus.pid).
    # Files with targets are read as they come.
    cat >"$dir/prometheus.yaml" <<END
global: {scrape_interval: 5s, evaluation_interval: 5s}
rule_files: ['$dir/rules/*.yaml']
scrape_configs:
  - job_name: prometheus
    scheme: https
    tls_config: {ca_file: $CP_DIR/pki/ca.crt}
    static_configs: [{targets: ['$NODE_IP:$PROMETHEUS_PORT']}]
  - job_name: pods
    file_sd_configs: [{files: ['$dir/targets/*.json'], refresh_interval: 5s}]
END
    spawn prometheus prometheus --config.file="$dir/prometheus.yaml" --web.config.file="$dir/web.yaml" \
        --storage.tsdb.path="$dir/data" --storage.tsdb.retention.time=1d \
        --web.listen-address="$NODE_IP:$PROMETHEUS_PORT" --log.level=warn
}

prometheus_is_ready() {
    curl --silent --fail --max-time 5 --cacert "$CP_DIR/pki/ca.crt" "https://$NODE_IP:$PROMETHEUS_PORT/-/ready"
}
