# shellcheck shell=bash
# How each module becomes binaries: Go modules, and packages of Debian's. Sourced by `build`.

KUBERNETES_VERSION=v1.36.3
CONTAINERD_VERSION=v2.3.7
TEKTON_MODULE=github.com/tektoncd/pipeline
OPENSHIFT_MODULE=github.com/openshift/api

# go_build OUT PACKAGE [OPTION...]: in the current directory.
go_build() {
    local out=$1 package=$2 started=$SECONDS
    shift 2
    CGO_ENABLED=0 GOFLAGS='' GOWORK=off \
        go build -mod=readonly -buildvcs=false -trimpath "$@" -o "$out/" "$package" \
        2> >(grep -v '^go: downloading' >&2)
    step "  built ${package##*/} in $((SECONDS - started)) s"
}

# module_cache_dir MODULE: the folder of a required module in the module cache
# (in the current directory's go.mod), downloaded when it is not there.
module_cache_dir() {
    local version
    version=$(GOFLAGS='' GOWORK=off go list -mod=readonly -m -f '{{.Version}}' "$1")
    GOFLAGS='' GOWORK=off go mod download -json "$1@$version" |
        sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p'
}

build_kubernetes() {
    local out=$1 binary v=k8s.io/component-base/version
    cd "$TESTBED_ROOT/modules/kubernetes"
    for binary in kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet; do
        # Without these the server calls itself v0.0.0-master, and what checks
        # its version refuses it.
        go_build "$out" "k8s.io/kubernetes/cmd/$binary" -ldflags \
            "-s -w -X $v.gitVersion=$KUBERNETES_VERSION -X $v.gitMajor=1 -X $v.gitMinor=36 -X $v.gitTreeState=clean"
    done
}

build_etcd() {
    local out=$1
    cd "$TESTBED_ROOT/modules/etcd"
    go_build "$out" go.etcd.io/etcd/server/v3 -ldflags '-s -w'
    # A package's path that ends in a version is built under the name before it.
    [[ -e $out/etcd ]] || mv "$out"/server "$out/etcd"
}

build_containerd() {
    local out=$1 binary m=github.com/containerd/containerd/v2
    cd "$TESTBED_ROOT/modules/containerd"
    for binary in containerd containerd-shim-runc-v2 ctr; do
        go_build "$out" "$m/cmd/$binary" -tags 'no_btrfs no_devmapper no_zfs' \
            -ldflags "-s -w -X $m/version.Version=$CONTAINERD_VERSION"
    done
}

build_argo() {
    build_argo_workflows "$1" argo github.com/argoproj/argo-workflows/v4 workflow-controller argoexec argo
}

# The controller and the command only: it runs no pods.
build_argo-3-7() {
    build_argo_workflows "$1" argo-3-7 github.com/argoproj/argo-workflows/v3 workflow-controller argo
}

# build_argo_workflows OUT MODULE GO_MODULE BINARY...
# Argo comes with two sets of CRDs: `full`, and `minimal` without schemas of workflows. The module's file `crds` says
# which it gets; by default it is `full`.
build_argo_workflows() {
    local out=$1 module=$TESTBED_ROOT/modules/$2 go_module=$3 work=$1.src source binary version crds=full
    shift 3
    [[ ! -e $module/crds ]] || crds=$(<"$module/crds")
    cd "$module"
    source=$(module_cache_dir "$go_module")
    version=${source##*@}

    # argoexec lacks a file on Linux and the CLI the built user interface, and
    # the module cache can't be overlaid: so a copy with both is built.
    rm -rf "$work"
    mkdir -p "$work"
    cp -R "$source" "$work/module"
    chmod -R u+w "$work/module"
    [[ ! -d patch ]] || cp -R patch/. "$work/module/"
    mkdir -p "$work/module/ui/dist/app"
    echo 'The user interface is not part of the test cluster.' >"$work/module/ui/dist/app/index.html"
    cp go.mod go.sum "$work/"
    cd "$work"
    go mod edit -replace "$go_module=./module"
    for binary in "$@"; do
        go_build "$out" "$go_module/cmd/$binary" -ldflags "-s -w -X $go_module.version=$version"
    done
    cd /
    rm -rf "$work"

    manifests_to_json "$out/crds" "$source/manifests/base/crds/$crds"/argoproj.io_*.yaml
}

# The conversion of CRDs needs a webhook that is not here, so they have the version
# only that is stored. Tekton's own configuration comes along.
build_tekton() {
    local out=$1 source binary file
    cd "$TESTBED_ROOT/modules/tekton"
    source=$(module_cache_dir "$TEKTON_MODULE")
    for binary in controller entrypoint nop resolvers sidecarlogresults workingdirinit; do
        go_build "$out" "$TEKTON_MODULE/cmd/$binary" -ldflags '-s -w'
    done
    go_build "$out" ./validate -ldflags '-s -w'
    # These run in pods, from a folder that Tekton expects.
    mkdir "$out/ko-app"
    mv "$out"/{entrypoint,nop,sidecarlogresults,workingdirinit} "$out/ko-app/"
    # The names of the others say too little in PATH.
    for binary in controller resolvers validate; do
        mv "$out/$binary" "$out/tekton-$binary"
    done

    manifests_to_json "$out/crds" "$source"/config/300-crds/*.yaml
    for file in "$out"/crds/*.json; do
        jq --compact-output 'del(.spec.conversion) | .spec.versions |= map(select(.storage))' "$file" >"$file.part"
        mv "$file.part" "$file"
    done
    manifests_to_json "$out/config" "$source"/config/config-*.yaml
    # Some are called after what they configure: config-logging.yaml, cluster-resolver-config.yaml.
    manifests_to_json "$out/resolvers-config" "$source"/config/resolvers/{config-*,*-config}.yaml
}

build_openshift-api() {
    local out=$1 source config mco
    cd "$TESTBED_ROOT/modules/openshift-api"
    source=$(module_cache_dir "$OPENSHIFT_MODULE")
    config=$source/config/v1/zz_generated.crd-manifests
    mco=$source/machineconfiguration/v1/zz_generated.crd-manifests
    # The Default variants are what a cluster without preview features has.
    manifests_to_json "$out/crds" \
        "$config"/*_clusterversions-Default.crd.yaml \
        "$config"/*_clusteroperators.crd.yaml \
        "$config"/*_infrastructures-Default.crd.yaml \
        "$mco"/*_machineconfigpools-Default.crd.yaml \
        "$mco"/*_machineconfigs.crd.yaml
}

# Only what the chart has.
build_prometheus-operator() {
    local out=$1 crds
    cd "$TESTBED_ROOT/modules/prometheus-operator"
    crds=$(module_cache_dir github.com/prometheus-operator/prometheus-operator)/example/prometheus-operator-crd
    manifests_to_json "$out/crds" "$crds"/monitoring.coreos.com_{prometheusrules,servicemonitors}.yaml
}

# As Helm itself is built, but for the version that it tells.
build_helm() {
    local out=$1
    cd "$TESTBED_ROOT/modules/helm"
    go_build "$out" helm.sh/helm/v4/cmd/helm -ldflags '-s -w'
}

# extract_package MODULE DIRECTORY: the files of the module's package of Debian's. Installing it would start services
# and pull in a user interface; building Prometheus from source takes longer than all else.
extract_package() {
    unpack "$(<"$TESTBED_ROOT/modules/$1/package")" "$2"
}

# unpack PACKAGE DIRECTORY, which is the current one then.
unpack() {
    mkdir -p "$2"
    cd "$2"
    if ! apt-get download -qq "$1" 2>/dev/null; then
        update_package_lists
        apt-get download -qq "$1"
    fi
    dpkg-deb --extract ./*.deb .
    rm ./*.deb
}

update_package_lists() {
    ((EUID == 0)) || fail "as root, update the package lists first: apt-get update"
    apt-get update -qq
}

# needs_of PACKAGE PATTERN: the packages that it depends on and that are called like this.
needs_of() {
    apt-cache depends "$1" | awk -v pattern="^$2\$" '$1 == "Depends:" && $2 ~ pattern { print $2 }'
}

build_prometheus() {
    local out=$1 work=$1.src
    extract_package prometheus "$work"
    # A list in a file, so that another list is built anew.
    while read -r program; do
        install -m 755 "usr/bin/$program" "$out/"
    done <"$TESTBED_ROOT/modules/prometheus/programs"
    cd /
    rm -rf "$work"
}

# The server of PostgreSQL without its service. Its libraries are installed, as any program's; it goes without LLVM, which is
# larger than all the rest. It finds its files beside its programs.
build_postgres() {
    local out=$1 work=$1.src server libraries
    apt-cache show postgresql >/dev/null 2>&1 || update_package_lists
    server=$(needs_of "$(<"$TESTBED_ROOT/modules/postgres/package")" 'postgresql-[0-9]+')
    [[ $server == postgresql-* ]] || fail "Debian's packages have no PostgreSQL: see /etc/apt"
    mapfile -t libraries < <(needs_of "$server" 'lib.*' | grep -v '^libllvm')
    install_packages "${libraries[@]}"
    unpack "$server" "$work"
    rm -rf usr/lib/postgresql/*/lib/bitcode
    mkdir -p "$out/usr/share"
    cp -R usr/lib "$out/usr/"
    cp -R usr/share/postgresql "$out/usr/share/"
    ln -s "usr/lib/postgresql/${server#postgresql-}/bin" "$out/postgres"
    cd /
    rm -rf "$work"
}

# What the templates of hooks talk to: Alertmanager, with the files that it looks for, and kinds of Argo CD and OpenShift.
build_hook-library() {
    local out=$1 work=$1.src machine config applications
    extract_package hook-library "$work"
    mkdir -p "$out/alertmanager/usr/bin" "$out/alertmanager/usr/share/prometheus"
    cp usr/bin/prometheus-alertmanager "$out/alertmanager/usr/bin/"
    cp -R usr/share/prometheus/alertmanager "$out/alertmanager/usr/share/prometheus/"
    cd "$TESTBED_ROOT/modules/hook-library"
    config=$(module_cache_dir "$OPENSHIFT_MODULE")/config/v1/zz_generated.crd-manifests
    machine=$(module_cache_dir "$OPENSHIFT_MODULE")/machine/v1beta1/zz_generated.crd-manifests
    applications=$(module_cache_dir github.com/argoproj/argo-cd/v3)/manifests/crds
    manifests_to_json "$out/crds" \
        "$applications"/application-crd.yaml \
        "$config"/*_consoles.crd.yaml \
        "$machine"/*_machines-Default.crd.yaml \
        "$machine"/*_machinesets-Default.crd.yaml
    rm -rf "$work"
}

# manifests_to_json OUT FILE...: one object each, as JSON, which is read many times as fast as YAML;
# Argo's CRDs are 12 MB. Needs kubectl, so the kubernetes module comes first.
manifests_to_json() {
    local out=$1 file kubectl
    shift
    kubectl=$(module_dir kubernetes)/kubectl
    mkdir -p "$out"
    for file in "$@"; do
        # `annotate --local` is the one way to have kubectl convert a file
        # without a server.
        "$kubectl" annotate --local --filename "$file" --output json \
            "testbed/module-file=${file##*/}" |
            jq --compact-output . >"$out/$(basename "${file%.yaml}").json"
    done
    step "  prepared $# manifests"
}
