# shellcheck shell=bash
# Shared by all scripts of the test cluster: where things are, how progress is
# told, how processes are started and stopped. Sourced, never run.

set -euo pipefail

TESTBED_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TESTBED_CHECKOUT=$(cd "$TESTBED_ROOT/../.." && pwd)
TESTBED_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/openshift-upgrade-operator
TESTBED_DIR=${TESTBED_DIR:-${XDG_RUNTIME_DIR:-/tmp}/openshift-upgrade-operator-testbed}
[[ $TESTBED_DIR == /* ]] || TESTBED_DIR=$PWD/$TESTBED_DIR
export TESTBED_DIR

# The one namespace everything of ours lives in, and those of the engines.
OPERATOR_NAMESPACE=openshift-upgrade
ARGO_NAMESPACE=argo
# shellcheck disable=SC2034 # used by lib/engines.sh
TEKTON_NAMESPACE=tekton-pipelines
# shellcheck disable=SC2034 # used by lib/engines.sh
TEKTON_RESOLVERS_NAMESPACE=tekton-pipelines-resolvers
# What the upgrade operator's image is called and which user it runs as.
# shellcheck disable=SC2034 # used by lib/operator.sh
OPERATOR_IMAGE=localhost/upgrade-operator:dev
# The image of Tekton's own binaries.
# shellcheck disable=SC2034 # used by lib/engines.sh, lib/images.sh
TEKTON_IMAGE=localhost/tekton:v1.15.0

# --- telling -----------------------------------------------------------------

if [[ -t 2 ]]; then
    C_DIM=$'\e[2m' C_RED=$'\e[31m' C_YELLOW=$'\e[33m' C_GREEN=$'\e[32m' C_OFF=$'\e[0m'
else
    C_DIM='' C_RED='' C_YELLOW='' C_GREEN='' C_OFF=''
fi
# How long any part may take to be there, in seconds: many times what it takes on an idle machine.
# shellcheck disable=SC2034 # used by the other scripts
TESTBED_PATIENCE=180
TESTBED_STARTED=${EPOCHREALTIME/[.,]/}

# Everything that is told goes to standard error: standard output belongs to
# the commands whose output is used (env, lane env).
elapsed() {
    local now=${EPOCHREALTIME/[.,]/}
    local ms=$(((now - TESTBED_STARTED) / 1000))
    printf '%s[%4d.%d s]%s' "$C_DIM" $((ms / 1000)) $((ms % 1000 / 100)) "$C_OFF"
}
step() { printf '%s %s\n' "$(elapsed)" "$*" >&2; }
good() { printf '%s %s%s%s\n' "$(elapsed)" "$C_GREEN" "$*" "$C_OFF" >&2; }
warn() { printf '%s %s%s%s\n' "$(elapsed)" "$C_YELLOW" "$*" "$C_OFF" >&2; }
fail() {
    printf '%s %s%s%s\n' "$(elapsed)" "$C_RED" "$*" "$C_OFF" >&2
    exit 1
}

# --- modules and binaries ----------------------------------------------------

# A module is a folder below modules/ and a function build_<module> in
# lib/modules.sh. First what every control plane needs.
CONTROL_PLANE_MODULES=(kubernetes etcd openshift-api prometheus-operator prometheus)
# What a lane needs besides: a database for Argo Workflows.
LANE_MODULES=(postgres)
# What a whole cluster needs besides: a container runtime, what installs the operator, and what hooks talk to.
NODE_MODULES=(containerd helm hook-library)
# Everything that is built, in this order.
ALL_MODULES=("${CONTROL_PLANE_MODULES[@]}" argo tekton argo-3-7 "${LANE_MODULES[@]}" "${NODE_MODULES[@]}")

# Raise it when the way of building changes: then everything is built again.
BUILD_VERSION=4

# The folder that holds what was built from a module. Its name is a hash of all
# that decides what comes out, so a changed module gets a folder of its own and
# the others stay as they are.
module_dir() {
    local module=$1 hash
    hash=$(
        cd "$TESTBED_ROOT/modules/$module"
        {
            echo "$BUILD_VERSION"
            find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
        } | sha256sum
    )
    echo "$TESTBED_CACHE/bin/$module-${hash:0:16}"
}

# module_path MODULE...: the folders of the modules as a piece of PATH.
module_path() {
    local module path=''
    for module in "$@"; do
        path+=${path:+:}$(module_dir "$module")
    done
    echo "$path"
}

# --- locks -------------------------------------------------------------------

# with_lock NAME COMMAND...: only one at a time on this machine. The daemons
# that the command starts must not inherit the lock; component_spawn closes it.
LOCK_FD=''
with_lock() {
    local name=$1
    shift
    mkdir -p "$TESTBED_CACHE/locks"
    exec {LOCK_FD}>"$TESTBED_CACHE/locks/$name"
    if ! flock --nonblock "$LOCK_FD"; then
        step "waiting for another call that holds the lock '$name'"
        flock "$LOCK_FD"
    fi
    "$@"
    exec {LOCK_FD}>&-
    LOCK_FD=''
}

# --- processes ---------------------------------------------------------------

# A process is known by its number and its start time: a number that was given
# to another process meanwhile is never killed.
process_start_time() {
    local stat
    stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
    # The name in parentheses may hold blanks; what follows it may not.
    stat=${stat##*) }
    # shellcheck disable=SC2086
    set -- $stat
    # A zombie is as good as gone.
    [[ $1 != Z ]] || return 1
    echo "${20}"
}

# pid_of NAME: the number of the running process, or nothing and exit code 1.
pid_of() {
    local pid started
    pid=$(cat "$CP_DIR/run/$1.pid" 2>/dev/null) || return 1
    started=$(cat "$CP_DIR/run/$1.started" 2>/dev/null) || return 1
    [[ $(process_start_time "$pid") == "$started" ]] || return 1
    echo "$pid"
}
is_running() { pid_of "$1" >/dev/null; }

# spawn NAME COMMAND...: starts a daemon with a log and a pid file of its own.
spawn() {
    local name=$1 pid
    shift
    mkdir -p "$CP_DIR/run" "$CP_DIR/logs"
    (
        [[ -z $LOCK_FD ]] || exec {LOCK_FD}>&-
        exec setsid "$@" </dev/null >>"$CP_DIR/logs/$name.log" 2>&1
    ) &
    pid=$!
    disown "$pid"
    process_start_time "$pid" >"$CP_DIR/run/$name.started" || true
    echo "$pid" >"$CP_DIR/run/$name.pid"
}

# still_running NAME: or say why not, with the end of its log.
still_running() {
    is_running "$1" && return
    tail -n 15 "$CP_DIR/logs/$1.log" >&2 || true
    fail "$1 ended; its log is $CP_DIR/logs/$1.log"
}

# wait_for NAME SECONDS COMMAND...: until the command succeeds. NAME is the
# process that must live meanwhile ('-' for none).
wait_for() {
    local name=$1 seconds=$2 deadline
    shift 2
    deadline=$((SECONDS + seconds))
    until "$@" >/dev/null 2>&1; do
        [[ $name == - ]] || still_running "$name"
        ((SECONDS < deadline)) || fail "gave up after $seconds s waiting for: $*"
        sleep 0.1
    done
}

# ask_to_end NAME...: TERM to each that runs.
ask_to_end() {
    local name pid
    for name in "$@"; do
        if pid=$(pid_of "$name"); then
            kill -TERM "$pid" 2>/dev/null || true
        fi
    done
}

# stop SECONDS NAME...: TERM to all, and KILL to those that need longer (with
# 0 s to all at once).
stop() {
    local seconds=$1 name pid deadline
    shift
    ((seconds == 0)) || ask_to_end "$@"
    deadline=$((SECONDS + seconds))
    for name in "$@"; do
        while pid=$(pid_of "$name"); do
            if ((SECONDS >= deadline)); then
                kill -KILL "$pid" 2>/dev/null || true
            fi
            sleep 0.05
        done
        rm -f "$CP_DIR/run/$name.pid" "$CP_DIR/run/$name.started"
    done
}

port_is_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# once MARK COMMAND...: skips what was done already in this cluster's life.
once() {
    local mark="$CP_DIR/done/$1"
    shift
    [[ ! -e $mark ]] || return 0
    "$@"
    mkdir -p "${mark%/*}"
    : >"$mark"
}
