// The kinds that the chart's metrics and alerts are of. Only CRD manifests of this module are used; nothing is compiled.
module openshift-upgrade-operator/tests/cluster/modules/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
