// Only the CRD manifests of this module are used; nothing is compiled.
module openshift-upgrade-operator/tests/cluster/modules/openshift-api

go 1.26.0

// The head of release-4.18.
require github.com/openshift/api v0.0.0-20260105154426-319dc2e49203
