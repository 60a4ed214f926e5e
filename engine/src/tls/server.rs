//! What a node's TLS ports have in common.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::{ServerConfig, ServerConnection};

use super::files::{TlsFiles, TlsFilesError};
use super::session::Session;

/// TLS as the node was asked for it, its files read.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The entry port for TLS; direct ports follow it.
    pub port: u16,
    pub files: TlsFiles,
    pub config: Arc<ServerConfig>,
}

/// The TLS ports of a node, as its shards share them.
#[derive(Debug)]
pub struct ServerTls {
    port: u16,
    files: TlsFiles,
    /// Of the sessions that begin from now on. Whoever begins one holds the lock for a moment.
    config: Mutex<Arc<ServerConfig>>,
}

impl ServerTls {
    #[must_use]
    pub fn new(options: &TlsOptions) -> ServerTls {
        ServerTls {
            port: options.port,
            files: options.files.clone(),
            config: Mutex::new(Arc::clone(&options.config)),
        }
    }

    /// The entry port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    #[must_use]
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// A session with a client that has just connected.
    ///
    /// # Errors
    /// What the library says.
    pub fn begin(&self) -> Result<Session, rustls::Error> {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let config = Arc::clone(&config);
        ServerConnection::new(config).map(Session::new)
    }

    /// Reads the files again. Sessions that have begun go on as they are.
    ///
    /// # Errors
    /// [`TlsFilesError`]: what was read before stays in use.
    pub fn reload(&self) -> Result<(), TlsFilesError> {
        let config = self.files.load()?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }
}
