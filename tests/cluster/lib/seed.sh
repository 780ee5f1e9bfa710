# shellcheck shell=bash
# etcd's data with all foreign CRDs in it, made once for a set of binaries.
# Sourced.
#
# The API server spends 9 of 15 CPU seconds on creating Argo's CRDs (each is
# decoded, copied and written again several times until it is established). So
# that is done once, and every control plane starts from a copy of the data.
# What a cluster has from it besides: the default namespaces with their ids and
# creation times, and the API server's own roles.

# Lanes start from another seed, made from that one: it has our own CRDs, the
# namespaces and the rights of the chart, too. The whole cluster is given those by
# the chart.

# Raise it when what is put into the seeds changes.
SEED_VERSION=2

# The folder of the seed that belongs to the binaries and CRDs of now, and to the
# engines that were chosen.
foreign_seed_dir() {
    local hash
    hash=$({
        echo "$SEED_VERSION"
        module_path "${CONTROL_PLANE_MODULES[@]}" "${CP_ENGINE_MODULES[@]}"
    } | sha256sum)
    echo "$TESTBED_CACHE/seed/${hash:0:16}"
}

# The folder of the seed that has what is ours as it is now, too.
own_seed_dir() {
    local hash
    hash=$({
        foreign_seed_dir
        cat "$TESTBED_CHECKOUT"/crds/*.yaml "$TESTBED_CHECKOUT"/deploy/kustomize/*.yaml
    } | sha256sum)
    echo "$TESTBED_CACHE/seed/own-${hash:0:16}"
}

# A lane that nobody else uses, with no controllers: nothing but what the API
# server itself writes gets into the data.
use_seed() {
    use_ports "the seed" "$TESTBED_DIR/seed" seed 21090
}

# make_seed FOLDER FROM COMMAND...: what the command makes of the data of another seed ('' for none).
make_seed() {
    local dir=$1 from=$2
    shift 2
    [[ ! -d $dir ]] || return 0
    use_seed
    make_run_directory
    # What a broken try left.
    stop 0 apiserver etcd
    rm -rf --one-file-system "$CP_DIR"
    mkdir -p "$CP_DIR"
    if [[ -n $from ]]; then
        copy_data "$from" "$CP_DIR/etcd"
    fi
    pki_controlplane
    start_etcd_and_apiserver
    wait_for apiserver "$TESTBED_PATIENCE" api_is_ready
    "$@"
    stop 0 apiserver
    stop 10 etcd
    mkdir -p "${dir%/*}"
    cp -R --sparse=always "$CP_DIR/etcd" "$dir.part"
    mv "$dir.part" "$dir"
    rm -rf --one-file-system "$CP_DIR"
    step "made it"
}

# In a subshell each: it works with variables of its own.
ensure_foreign_seed() {
    local dir
    dir=$(foreign_seed_dir)
    if [[ ! -d $dir ]]; then
        step "making the data that control planes with ${CP_ENGINES[*]:-no engine} start from (once)"
        (with_lock seed make_seed "$dir" '' apply_foreign_crds)
    fi
    # It is in use: see forget_old_builds.
    touch --no-create "$dir"
}

ensure_own_seed() {
    local dir
    ensure_foreign_seed
    dir=$(own_seed_dir)
    if [[ ! -d $dir ]]; then
        step "making the data that lanes with ${CP_ENGINES[*]:-no engine} start from (once for each version of our CRDs)"
        (with_lock seed make_seed "$dir" "$(foreign_seed_dir)" fill_own_seed)
    fi
    touch --no-create "$dir"
}

fill_own_seed() {
    wait_for apiserver "$TESTBED_PATIENCE" crds_are_served
    apply_namespaces
    apply_ours
}

copy_data() {
    cp -R --reflink=auto --sparse=always "$1" "$2"
    chmod 700 "$2"
}

# plant_seed FOLDER DONE...: gives the data to a control plane that has none yet, and marks what is done with it.
plant_seed() {
    local dir=$1 mark
    shift
    [[ ! -d $CP_DIR/etcd ]] || return 0
    rm -rf "$CP_DIR/etcd.part"
    copy_data "$dir" "$CP_DIR/etcd.part"
    mkdir -p "$CP_DIR/done"
    for mark in "$@"; do
        : >"$CP_DIR/done/$mark"
    done
    mv "$CP_DIR/etcd.part" "$CP_DIR/etcd"
}

# What is done with a seed, by its marks.
foreign_mark() { echo "crds-$(basename "$(foreign_seed_dir)")"; }
own_mark() { echo "ours-$(basename "$(own_seed_dir)")"; }
