# shellcheck shell=bash
# Certificates and kubeconfigs. Sourced.
#
# One CA for everything, elliptic keys (a key takes milliseconds), all below
# $CP_DIR/pki and thrown away with it.

pki_ca() {
    local pki=$CP_DIR/pki
    mkdir -p "$pki"
    chmod 700 "$pki"
    openssl ecparam -name prime256v1 -genkey -noout -out "$pki/ca.key"
    openssl req -x509 -new -key "$pki/ca.key" -sha256 -days 3650 -subj /CN=testbed-ca \
        -addext basicConstraints=critical,CA:TRUE \
        -addext keyUsage=critical,digitalSignature,keyCertSign -out "$pki/ca.crt"
}

# pki_cert NAME SUBJECT [SUBJECT-ALTERNATIVE-NAMES]
pki_cert() {
    local pki=$CP_DIR/pki name=$1 subject=$2 names=${3:-}
    {
        echo basicConstraints=CA:FALSE
        echo keyUsage=digitalSignature
        echo extendedKeyUsage=clientAuth,serverAuth
        [[ -z $names ]] || echo "subjectAltName=$names"
    } >"$pki/$name.ext"
    openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$name.key"
    openssl req -new -key "$pki/$name.key" -subj "$subject" -out "$pki/$name.csr"
    openssl x509 -req -in "$pki/$name.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" \
        -set_serial "0x$(openssl rand -hex 8)" -sha256 -days 3650 \
        -extfile "$pki/$name.ext" -out "$pki/$name.crt" 2>/dev/null
    rm -f "$pki/$name.csr" "$pki/$name.ext"
}

# pki_kubeconfig NAME SUBJECT [NAMESPACE]: a user with a certificate, and the
# kubeconfig $CP_DIR/kubeconfig/NAME that holds all it needs.
pki_kubeconfig() {
    local pki=$CP_DIR/pki name=$1 subject=$2 namespace=${3:-default}
    pki_cert "$name" "$subject"
    mkdir -p "$CP_DIR/kubeconfig"
    cat >"$CP_DIR/kubeconfig/$name" <<END
apiVersion: v1
kind: Config
clusters:
- name: testbed
  cluster:
    server: $CP_API_URL
    certificate-authority-data: $(base64 -w0 "$pki/ca.crt")
users:
- name: $name
  user:
    client-certificate-data: $(base64 -w0 "$pki/$name.crt")
    client-key-data: $(base64 -w0 "$pki/$name.key")
contexts:
- name: testbed
  context: {cluster: testbed, user: $name, namespace: $namespace}
current-context: testbed
END
    chmod 600 "$CP_DIR/kubeconfig/$name"
}

pki_controlplane() {
    local names=DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
    names+=,DNS:kubernetes.default.svc.cluster.local,IP:127.0.0.1,IP:$KUBERNETES_SERVICE_IP,IP:$NODE_IP
    pki_ca
    pki_cert apiserver /CN=kube-apiserver "$names"
    openssl ecparam -name prime256v1 -genkey -noout -out "$CP_DIR/pki/service-account.key"
    openssl ec -in "$CP_DIR/pki/service-account.key" -pubout -out "$CP_DIR/pki/service-account.pub" 2>/dev/null
    pki_kubeconfig controller-manager /CN=system:kube-controller-manager
    # Each of these may do everything; they differ by name so that the audit log
    # and managedFields tell who did what.
    pki_kubeconfig admin /O=system:masters/CN=admin "$OPERATOR_NAMESPACE"
    pki_kubeconfig argo /O=system:masters/CN=argo "$ARGO_NAMESPACE"
    pki_kubeconfig tekton /O=system:masters/CN=tekton "$TEKTON_NAMESPACE"
    pki_kubeconfig simulator /O=system:masters/CN=simulator
    # An operator outside the cluster, with what its ServiceAccount may do and
    # nothing more.
    local account=system:serviceaccounts
    pki_kubeconfig operator "/O=$account/O=$account:$OPERATOR_NAMESPACE/CN=system:serviceaccount:$OPERATOR_NAMESPACE:upgrade-operator" \
        "$OPERATOR_NAMESPACE"
}

pki_node() {
    pki_cert apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
    pki_kubeconfig scheduler /CN=system:kube-scheduler
    pki_kubeconfig kubelet "/O=system:nodes/CN=system:node:$NODE_NAME"
}
