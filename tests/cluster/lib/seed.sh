# shellcheck shell=bash
# etcd's data with all foreign CRDs in it, made once for a set of binaries.
# Sourced.
#
# The API server spends 9 of 15 CPU seconds on creating Argo's CRDs (each is
# decoded, copied and written again several times until it is established). So
# that is done once, and every control plane starts from a copy of the data.
# What a cluster has from it besides: the default namespaces with their ids and
# creation times, and the API server's own roles.

# Raise it when what is put into the seed changes.
SEED_VERSION=1

# The folder of the seed that belongs to the binaries and CRDs of now, and to the
# engines that were chosen.
seed_dir() {
    local hash
    hash=$({
        echo "$SEED_VERSION"
        module_path "${CONTROL_PLANE_MODULES[@]}" "${CP_ENGINE_MODULES[@]}"
    } | sha256sum)
    echo "$TESTBED_CACHE/seed/${hash:0:16}"
}

# A lane that nobody else uses, with no controllers: nothing but what the API
# server itself writes gets into the data.
use_seed() {
    use_ports "the seed" "$TESTBED_DIR/seed" seed 21090
}

make_seed() {
    local dir=$1
    [[ ! -d $dir ]] || return 0
    step "making the data that control planes with ${CP_ENGINES[*]:-no engine} start from (once)"
    use_seed
    make_run_directory
    # What a broken try left.
    stop 0 apiserver etcd
    rm -rf --one-file-system "$CP_DIR"
    mkdir -p "$CP_DIR/etcd"
    pki_controlplane
    start_etcd_and_apiserver
    wait_for apiserver 120 api_is_ready
    apply_foreign_crds
    stop 0 apiserver
    stop 10 etcd
    mkdir -p "${dir%/*}"
    cp -R --sparse=always "$CP_DIR/etcd" "$dir.part"
    mv "$dir.part" "$dir"
    rm -rf --one-file-system "$CP_DIR"
    step "made it"
}

# In a subshell: it works with variables of its own.
ensure_seed() {
    local dir
    dir=$(seed_dir)
    [[ -d $dir ]] || (with_lock seed make_seed "$dir")
    # It is in use: see forget_old_builds.
    touch --no-create "$dir"
}

# plant_seed: gives the data to a control plane that has none yet.
plant_seed() {
    [[ ! -d $CP_DIR/etcd ]] || return 0
    rm -rf "$CP_DIR/etcd.part"
    cp -R --reflink=auto --sparse=always "$(seed_dir)" "$CP_DIR/etcd.part"
    chmod 700 "$CP_DIR/etcd.part"
    mkdir -p "$CP_DIR/done"
    : >"$CP_DIR/done/crds-$(seed_name)"
    mv "$CP_DIR/etcd.part" "$CP_DIR/etcd"
}
seed_name() { basename "$(seed_dir)"; }
