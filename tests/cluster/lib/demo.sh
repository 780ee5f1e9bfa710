# shellcheck shell=bash
# Shows an upgrade while it happens: on a terminal as a table that is drawn again and
# again, elsewhere as one line a change. Sourced.

ours() { kubectl --namespace "$OPERATOR_NAMESPACE" "$@"; }

if [[ -t 1 ]]; then
    LIVE=yes O_BOLD=$'\e[1m' O_DIM=$'\e[2m' O_OFF=$'\e[0m'
else
    LIVE='' O_BOLD='' O_DIM='' O_OFF=''
fi
declare -A PHASE_COLOUR=(
    [Pending]=$'\e[2m' [Running]=$'\e[36m' [Paused]=$'\e[33m' [Succeeded]=$'\e[32m'
    [Failed]=$'\e[31m' [Skipped]=$'\e[2m' [Overridden]=$'\e[33m'
)

# coloured PHASE: the phase, padded.
coloured() {
    local text
    printf -v text '%-10s' "$1"
    if [[ -n $LIVE ]]; then
        printf '%s%s%s' "${PHASE_COLOUR[$1]:-}" "$text" "$O_OFF"
    else
        printf '%s' "$text"
    fi
}

# Each state of the job as a block of lines: `job NAME PHASE VERSION PROGRESS MESSAGE`,
# a `step NAME PHASE BEGAN ENDED MESSAGE` for each step, `end`. Fields are parted by
# U+001F: a tab would swallow empty ones.
job_states() {
    jq --unbuffered --raw-output '
        def seconds: if . == null then "" else fromdateiso8601 end;
        def line: map(tostring | gsub("[\u001f\n]"; " ")) | join("\u001f");
        (["job", .metadata.name, .status.phase // "Pending", .spec.desiredVersion.version // "none",
          .status.progress // "", .status.message // "", (.spec.startAfter | seconds)] | line),
        (.status.steps // [] | .[]
          | ["step", .name, .phase, (.startedAt | seconds), (.finishedAt | seconds), .message // ""] | line),
        "end"'
}

took() {
    local began=$1 ended=$2
    [[ -n $began ]] || return 0
    [[ -n $ended ]] || ended=$EPOCHSECONDS
    echo "$((ended > began ? ended - began : 0)) s"
}

# cut WIDTH TEXT
cut_to() {
    local width=$1 text=$2
    ((width < 20 || ${#text} <= width)) || text="${text:0:width-1}…"
    printf '%s' "$text"
}

# step_line LINE WIDTH
step_line() {
    local name phase began ended message
    IFS=$'\x1f' read -r _ name phase began ended message <<<"$1"
    printf '  %-39s %s %6s  %s' "$(cut_to 39 "$name")" "$(coloured "$phase")" "$(took "$began" "$ended")" \
        "$(cut_to $(($2 - 61)) "$message")"
}

DRAWN=0
# Draws the table over the one before. On a low terminal, the steps that are done make room.
draw() {
    local name phase version progress message start columns lines line first=0 table=()
    columns=$(tput cols 2>/dev/null) || columns=100
    lines=$(tput lines 2>/dev/null) || lines=24
    IFS=$'\x1f' read -r _ name phase version progress message start <<<"$JOB"
    table+=("${O_BOLD}UpgradeJob $name$O_OFF: to $version, $(coloured "$phase") $progress")
    table+=("$O_DIM$(cut_to "$columns" "$(waiting "$start" "$message")")$O_OFF" '')
    local shown=${#STEPS[@]}
    # Three lines are above the steps, one below is the cursor's.
    if ((shown + 4 > lines)); then
        shown=$((lines > 6 ? lines - 5 : 1))
        first=$((${#STEPS[@]} - shown))
        line=$(steps_done)
        ((line >= first)) || first=$line
        table+=("  $O_DIM… $first steps that are done$O_OFF")
    fi
    for line in "${STEPS[@]:first:shown}"; do
        table+=("$(step_line "$line" "$columns")")
    done
    ((DRAWN == 0)) || printf '\e[%dA' "$DRAWN"
    printf '%s\e[K\n' "${table[@]}"
    printf '\e[J'
    DRAWN=${#table[@]}
}

# How many steps at the top of the table have ended.
steps_done() {
    local line phase count=0
    for line in "${STEPS[@]}"; do
        IFS=$'\x1f' read -r _ _ phase _ <<<"$line"
        [[ $phase != Pending && $phase != Running ]] || break
        count=$((count + 1))
    done
    echo "$count"
}

# Before the job begins its message may be a while old.
waiting() {
    if [[ ${#STEPS[@]} == 0 && -n $1 ]] && (($1 > EPOCHSECONDS)); then
        echo "begins in $(($1 - EPOCHSECONDS)) s"
    else
        echo "$2"
    fi
}

declare -A TOLD=() TOLD_AT=()
# Of a step that tells its progress all the time, a line every few seconds is enough.
APPEND_EVERY=3
# Prints what differs from what was printed before.
append() {
    local line name phase began ended message version progress now
    now=$(date +%H:%M:%S)
    IFS=$'\x1f' read -r _ name phase version progress message _ <<<"$JOB"
    if [[ ${TOLD[job]:-} != "$phase" ]]; then
        TOLD[job]=$phase
        printf '%s  %-39s %-10s         to %s\n' "$now" "$name" "$phase" "$version"
    fi
    for line in "${STEPS[@]}"; do
        IFS=$'\x1f' read -r _ name phase began ended message <<<"$line"
        [[ $phase != Pending && ${TOLD["step $name"]:-} != "$phase $message" ]] || continue
        [[ $phase != Running ]] || ((EPOCHSECONDS >= ${TOLD_AT[$name]:-0} + APPEND_EVERY)) || continue
        TOLD["step $name"]="$phase $message" TOLD_AT[$name]=$EPOCHSECONDS
        printf '%s  %-39s %-10s %6s  %s\n' "$now" "$name" "$phase" "$(took "$began" "$ended")" "$message"
    done
}

show() {
    [[ -n $JOB ]] || return 0
    if [[ -n $LIVE ]]; then draw; else append; fi
}

# Hooks of the end are run after the outcome is known.
everything_ended() {
    local line phase
    ((${#STEPS[@]})) || return 1
    for line in "${STEPS[@]}"; do
        IFS=$'\x1f' read -r _ _ phase _ <<<"$line"
        [[ $phase != Pending && $phase != Running ]] || return 1
    done
}

# watch_upgrade SECONDS: until the one UpgradeJob has ended; whether it succeeded.
watch_upgrade() {
    local line phase='' deadline=$((SECONDS + $1)) watch objects states
    JOB='' STEPS=()
    local job='' steps=() begun=''
    exec {objects}< <(exec kubectl --namespace "$OPERATOR_NAMESPACE" get upgradejobs --watch --output=json)
    watch=$!
    exec {states}< <(job_states <&"$objects")
    while ((SECONDS < deadline)); do
        if read -r -t 1 -u "$states" line; then
            line=$begun$line begun=''
            case $line in
                job*) job=$line steps=() ;;
                step*) steps+=("$line") ;;
                end) JOB=$job STEPS=("${steps[@]}") && show ;;
            esac
        elif (($? > 128)); then
            # Nothing new, but time goes on. What was read of a line is not given again.
            begun+=$line
            [[ -z $LIVE ]] || show
        else
            fail "the API server ended the watch"
        fi
        IFS=$'\x1f' read -r _ _ phase _ <<<"$JOB"
        case $phase in
            Succeeded | Failed | Skipped) ! everything_ended || break ;;
        esac
    done
    kill "$watch" 2>/dev/null || true
    exec {states}<&- {objects}<&-
    [[ $phase == Succeeded ]]
}

explain_failure() {
    ours get upgradejobs --output=wide >&2 || true
    ours logs deployment/upgrade-operator --tail=20 >&2 || true
}

look_around() {
    local workflow hook
    workflow=$(ours get upgradejobs --output='jsonpath={.items[0].status.workflow.name}')
    hook=$(ours get jobs --selector upgradejobs.managedupgrade.appuio.io/event=Start --output=name)
    cat <<END

${O_BOLD}The cluster was upgraded.${O_OFF} It stays up. To look around:

  eval "\$(tests/cluster/env)"                    # kubectl, argo, KUBECONFIG
  kubectl get upgradeconfigs,upgradejobs          # in namespace $OPERATOR_NAMESPACE
  kubectl get clusterversion,machineconfigpools,nodes
  kubectl describe upgradejob
  argo get $workflow
  kubectl logs $hook
  kubectl logs deployment/upgrade-operator

The schedule runs once an hour now: the next run finds no newer version, and does hooks and pools only.
Another demonstration: tests/cluster/demo. To take it all down: tests/cluster/down
END
}
