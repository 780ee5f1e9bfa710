# shellcheck shell=bash
# Images made on the spot: one layer, no registry. Sourced.

# make_image ARCHIVE NAME:TAG ENTRYPOINT ROOT: a docker-archive of a directory.
# The same directory gives the same bytes. IMAGE_USER is whom it runs as, by default root.
make_image() {
    local archive=$1 name=$2 entrypoint=$3 root=$4 work digest
    work=$(mktemp -d "${archive%/*}/image.XXXXXX")
    tar --create --file "$work/layer.tar" --directory "$root" --sort=name \
        --owner=0 --group=0 --numeric-owner --mtime=@0 .
    digest=$(sha256sum "$work/layer.tar")
    digest=${digest%% *}
    cat >"$work/config.json" <<END
{"architecture":"$(image_architecture)","os":"linux","created":"1970-01-01T00:00:00Z",
"config":{"Entrypoint":$entrypoint,"User":"${IMAGE_USER:-}","Env":["PATH=/usr/local/bin:/usr/bin:/bin"],"WorkingDir":"/"},
"rootfs":{"type":"layers","diff_ids":["sha256:$digest"]}}
END
    echo "[{\"Config\":\"config.json\",\"RepoTags\":[\"$name\"],\"Layers\":[\"layer.tar\"]}]" >"$work/manifest.json"
    tar --create --file "$archive" --directory "$work" manifest.json config.json layer.tar
    rm -rf "$work"
}

image_architecture() {
    case $(uname -m) in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        *) uname -m ;;
    esac
}

# image_root ROOT: what every image has.
image_root() {
    mkdir -p "$1/bin" "$1/etc" "$1/tmp"
    chmod 1777 "$1/tmp"
    printf 'root:x:0:0:root:/:/bin/sh\nnonroot:x:65532:65532:nonroot:/:/bin/sh\n' >"$1/etc/passwd"
    printf 'root:x:0:\nnonroot:x:65532:\n' >"$1/etc/group"
}

# import_image NAME:TAG ENTRYPOINT ROOT: makes it and hands it to containerd.
import_image() {
    local name=$1 entrypoint=$2 root=$3 archive
    archive=$(mktemp "$CP_DIR/image.XXXXXX")
    make_image "$archive" "$name" "$entrypoint" "$root"
    ctr images import --no-unpack "$archive" >/dev/null
    rm -f "$archive"
}

# import_binaries NAME:TAG BINARY...: an image with these in /bin; the first is
# what runs.
import_binaries() {
    local name=$1 root binary
    shift
    root=$(mktemp -d "$CP_DIR/root.XXXXXX")
    chmod 755 "$root"
    image_root "$root"
    for binary in "$@"; do
        # A hard link where that works: the binaries are 100 MB.
        cp --link "$binary" "$root/bin/" 2>/dev/null || cp "$binary" "$root/bin/"
        chmod 755 "$root/bin/${binary##*/}"
    done
    import_image "$name" "[\"/bin/${1##*/}\"]" "$root"
    rm -rf "$root"
}

# import_busybox NAME:TAG ENTRYPOINT: Debian's static busybox with a link for
# each of its commands.
import_busybox() {
    local name=$1 entrypoint=$2 root applet
    root=$(mktemp -d "$CP_DIR/root.XXXXXX")
    chmod 755 "$root"
    image_root "$root"
    cp /bin/busybox "$root/bin/busybox"
    for applet in $(/bin/busybox --list); do
        [[ -e $root/bin/$applet ]] || ln -s busybox "$root/bin/$applet"
    done
    import_image "$name" "$entrypoint" "$root"
    rm -rf "$root"
}

import_basic_images() {
    # A pod's sandbox only has to exist.
    import_busybox localhost/pause:1 '["/bin/busybox","sleep","infinity"]'
    import_busybox localhost/busybox:1 '["/bin/sh"]'
    import_binaries localhost/argoexec:v4.1.4 "$(module_dir argo)/argoexec"
    import_tekton
}

# Each of the binaries is called by its path, but for the helper that does nothing.
import_tekton() {
    local root
    root=$(mktemp -d "$CP_DIR/root.XXXXXX")
    chmod 755 "$root"
    image_root "$root"
    cp -R --link "$(module_dir tekton)/ko-app" "$root/" 2>/dev/null || cp -R "$(module_dir tekton)/ko-app" "$root/"
    import_image "$TEKTON_IMAGE" '["/ko-app/nop"]' "$root"
    rm -rf "$root"
}
