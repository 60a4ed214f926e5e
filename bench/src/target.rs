//! Where a server listens and how clients get in: TLS and a password.

use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::resp::{Connection, Value};

/// How long a connection may take to be made.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server, or a cluster by one of its servers.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub address: SocketAddr,
    host: String,
    login: Option<Login>,
    tls: Option<Arc<ClientConfig>>,
}

/// The words after AUTH: a user, if there is one, and a password, which is not shown.
#[derive(Clone)]
struct Login(Vec<String>);

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

/// How clients get in.
#[derive(Clone, Debug, Default, Serialize, clap::Args)]
pub struct LoginArgs {
    /// Log in as this user, with --password-file
    #[arg(long, requires = "password_file")]
    pub user: Option<String>,
    /// Log in with the password in this file
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Connect by TLS
    #[arg(long, requires = "ca_file")]
    pub tls: bool,
    /// Certificates that the server's has to be signed by, PEM
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub ca_file: Option<PathBuf>,
    /// Certificate to show to the server, PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key_file"])]
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Target {
            address,
            host: address.ip().to_string(),
            login: None,
            tls: None,
        }
    }
}

impl LoginArgs {
    /// Reads the files and finds an address, `host:port`.
    pub fn resolve(&self, address: &str) -> Result<Target> {
        let unknown = |problem: String| BenchError::failed(address, problem);
        let found = address.to_socket_addrs();
        let found = found.map_err(|error| unknown(error.to_string()))?.next();
        let (host, _) = address.rsplit_once(':').unwrap_or_default();
        let address = found.ok_or_else(|| unknown("has no address".to_owned()))?;
        let password = self.password_file.as_deref().map(|path| {
            let text = fs::read_to_string(path);
            let text = text.map_err(BenchError::io(path.display().to_string()))?;
            let password = text.trim_end_matches(['\r', '\n']).to_owned();
            Ok(Login(self.user.iter().cloned().chain([password]).collect()))
        });
        Ok(Target {
            address,
            host: host.trim_matches(['[', ']']).to_owned(),
            login: password.transpose()?,
            tls: self.tls.then(|| self.client_config()).transpose()?,
        })
    }

    fn client_config(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("--ca-file", self.ca_file.as_deref())? {
            let added = roots.add(certificate);
            added.map_err(|error| BenchError::flag("--ca-file", error.to_string()))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let wrong = |error: rustls::Error| BenchError::flag("--tls", error.to_string());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_root_certificates(roots);
        let Some(key) = &self.key_file else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let chain = certificates("--cert-file", self.cert_file.as_deref())?;
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| BenchError::flag("--key-file", error.to_string()))?;
        let config = builder.with_client_auth_cert(chain, key);
        let wrong = |error: rustls::Error| BenchError::flag("--cert-file", error.to_string());
        Ok(Arc::new(config.map_err(wrong)?))
    }
}

fn certificates(flag: &'static str, path: Option<&Path>) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path.unwrap_or(Path::new("")));
    let all = read.and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.map_err(|error| BenchError::flag(flag, error.to_string()))?;
    match all.is_empty() {
        true => Err(BenchError::flag(flag, "has no certificate")),
        false => Ok(all),
    }
}

/// A connection, plain or by TLS.
#[derive(Debug)]
pub enum Stream {
    /// As it is.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

impl Target {
    /// Connects to one of its servers and logs in.
    pub fn connect(&self, address: SocketAddr) -> Result<Connection> {
        self.connect_within(address, CONNECT_TIMEOUT)
    }

    pub(crate) fn connect_within(
        &self,
        address: SocketAddr,
        timeout: Duration,
    ) -> Result<Connection> {
        let failed = || BenchError::io(format!("connecting to {address}"));
        let socket = TcpStream::connect_timeout(&address, timeout).map_err(failed())?;
        socket.set_nodelay(true).map_err(failed())?;
        let stream = match &self.tls {
            None => Stream::Plain(socket),
            Some(config) => Stream::Tls(Box::new(self.shake_hands(
                config,
                socket,
                (address, timeout),
            )?)),
        };
        let mut connection = Connection::on(stream)?;
        if let Some(login) = &self.login {
            let words = login.0.iter().map(String::as_str);
            let words: Vec<&str> = std::iter::once("AUTH").chain(words).collect();
            if let Value::Error(text) = connection.call(&words)? {
                return Err(BenchError::failed(format!("logging in at {address}"), text));
            }
        }
        Ok(connection)
    }

    fn shake_hands(
        &self,
        config: &Arc<ClientConfig>,
        mut socket: TcpStream,
        (address, timeout): (SocketAddr, Duration),
    ) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let what = || format!("TLS with {address}");
        let name = match address == self.address {
            true => ServerName::try_from(self.host.clone()),
            false => Ok(ServerName::from(address.ip())),
        };
        let name = name.map_err(|error| BenchError::failed(what(), error))?;
        let set = socket.set_read_timeout(Some(timeout));
        set.map_err(BenchError::io(what()))?;
        let session = ClientConnection::new(Arc::clone(config), name);
        let mut session = session.map_err(|error| BenchError::failed(what(), error))?;
        while session.is_handshaking() {
            match session.complete_io(&mut socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupt::check()?,
                done => drop(done.map_err(BenchError::io(what()))?),
            }
        }
        Ok(StreamOwned::new(session, socket))
    }
}
