//! A server behind TLS, with a certificate of a CA that was made a moment ago.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, serve::Listener};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer},
    server::TlsStream,
};

/// A CA.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub pem: String,
}

impl Authority {
    /// A new one of this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("making a key");
        let certificate = params.self_signed(&key).expect("making a CA");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    fn server_config(&self, host: &str) -> ServerConfig {
        let key = KeyPair::generate().expect("making a key");
        let params = CertificateParams::new([host.to_owned()]).expect("naming a server");
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("making a certificate");
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key.into())
            .expect("a certificate that fits its key")
    }
}

/// A running server; it ends when dropped.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves `router` at `port` (0: any) of the address `host`, with a certificate for it.
    pub async fn start(authority: &Authority, host: &str, port: u16, router: Router) -> Self {
        // An error says that another test has installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tcp = TcpListener::bind((host, port)).await.expect("listening");
        let address = tcp.local_addr().expect("an address");
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config(host)));
        let task = tokio::spawn(async move {
            axum::serve(Tls { tcp, acceptor }, router).await.expect("serving");
        });
        Self { address, task }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Tls {
    tcp: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = self.tcp.accept().await.expect("accepting");
            // A client that does not trust the certificate goes away.
            let shaken = timeout(Duration::from_secs(5), self.acceptor.accept(stream)).await;
            if let Ok(Ok(stream)) = shaken {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}
