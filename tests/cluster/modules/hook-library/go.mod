// What the templates in workflow-templates/hooks talk to. Only CRD manifests of these modules are used; nothing is compiled.
module openshift-upgrade-operator/tests/cluster/modules/hook-library

go 1.26.0

require (
	github.com/argoproj/argo-cd/v3 v3.1.0
	// The same as in ../openshift-api.
	github.com/openshift/api v0.0.0-20260105154426-319dc2e49203
)
