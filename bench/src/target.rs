//! Where a server listens and how clients get in: TLS and a password.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, fs, io};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde::Serialize;

use crate::error::{BenchError, During, Result};
use crate::interrupt;
use crate::resp::{Connection, Value};

pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Target {
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
    pub fn resolve(&self, name: &str) -> Result<Target> {
        let address = name.to_socket_addrs().during(name)?.next();
        let (host, _) = name.rsplit_once(':').unwrap_or_default();
        let password = self.password_file.as_deref().map(|path| {
            let text = fs::read_to_string(path).during(path.display())?;
            let password = text.trim_end_matches(['\r', '\n']).to_owned();
            Ok(Login(self.user.iter().cloned().chain([password]).collect()))
        });
        Ok(Target {
            address: address.ok_or_else(|| BenchError::failed(name, "has no address"))?,
            host: host.trim_matches(['[', ']']).to_owned(),
            login: password.transpose()?,
            tls: self.tls.then(|| self.client_config()).transpose()?,
        })
    }

    fn client_config(&self) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("--ca-file", self.ca_file.as_deref())? {
            roots.add(certificate).during("--ca-file")?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .during("--tls")?
            .with_root_certificates(roots);
        let Some(key) = &self.key_file else {
            return Ok(Arc::new(builder.with_no_client_auth()));
        };
        let chain = certificates("--cert-file", self.cert_file.as_deref())?;
        let key = PrivateKeyDer::from_pem_file(key).during("--key-file")?;
        let config = builder.with_client_auth_cert(chain, key);
        Ok(Arc::new(config.during("--cert-file")?))
    }
}

fn certificates(flag: &str, path: Option<&Path>) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path.unwrap_or(Path::new("")));
    let all = read.and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let all = all.during(flag)?;
    match all.is_empty() {
        true => Err(BenchError::failed(flag, "has no certificate")),
        false => Ok(all),
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
        let what = || format!("connecting to {address}");
        let mut socket = TcpStream::connect_timeout(&address, timeout).during(what())?;
        socket.set_nodelay(true).during(what())?;
        socket.set_read_timeout(Some(timeout)).during(what())?;
        let tls = self.tls.as_ref();
        let tls = tls.map(|config| self.shake_hands(config, &mut socket, address));
        let mut connection = Connection::on(address, socket, tls.transpose()?)?;
        if let Some(login) = &self.login {
            let words = login.0.iter().map(String::as_str);
            let words: Vec<&str> = std::iter::once("AUTH").chain(words).collect();
            if let Value::Error(text) = connection.call(&words)? {
                let what = format!("logging in at {address}");
                return Err(BenchError::failed(what, text));
            }
        }
        Ok(connection)
    }

    fn shake_hands(
        &self,
        config: &Arc<ClientConfig>,
        socket: &mut TcpStream,
        address: SocketAddr,
    ) -> Result<Box<ClientConnection>> {
        let what = &format!("TLS with {address}");
        let name = match address == self.address {
            true => ServerName::try_from(self.host.clone()).during(what)?,
            false => ServerName::from(address.ip()),
        };
        let mut session = ClientConnection::new(Arc::clone(config), name).during(what)?;
        while session.is_handshaking() {
            match session.complete_io(socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => interrupt::check()?,
                done => drop(done.during(what)?),
            }
        }
        Ok(Box::new(session))
    }
}
