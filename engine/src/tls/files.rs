//! The files of certificates and keys, and what they have to be.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use webpki::{EndEntityCert, KeyUsage};
use zeroize::Zeroizing;

/// Longest file, bytes: bundles of the certificates of all public authorities are shorter.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Permission bits that let anybody on the machine read or replace a key.
const OTHERS_READ_WRITE: u32 = 0o006;

/// Whether clients show certificates, by the names that Redis has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AuthClients {
    /// Those without a certificate that the CA has signed are refused.
    Yes,
    /// They are not asked for one.
    No,
    /// They need none; a wrong one is refused.
    Optional,
}

impl AuthClients {
    /// As the flag, and CONFIG GET, have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AuthClients::Yes => "yes",
            AuthClients::No => "no",
            AuthClients::Optional => "optional",
        }
    }
}

/// Where certificates and keys are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The node's certificate, and those between it and what clients trust.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Who signs the certificates of clients; none: they show none.
    pub authorities: Option<PathBuf>,
    pub auth_clients: AuthClients,
}

/// Why a node has no TLS: each text names flag, file, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFilesError {
    #[error("{flag}: {}: {source}", path.display())]
    Io {
        flag: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{flag}: {} is longer than {} MiB", path.display(), FILE_BYTES_MAX >> 20)]
    TooLong { flag: &'static str, path: PathBuf },
    #[error(
        "--tls-key: {} is open to every user of this machine: run chmod o-rwx '{}'",
        path.display(), path.display()
    )]
    Exposed { path: PathBuf },
    #[error("{flag}: {} holds no {what} in PEM format", path.display())]
    Pem {
        flag: &'static str,
        path: PathBuf,
        what: &'static str,
    },
    /// Its time is over, or it is not a server's, or it is none at all.
    #[error("--tls-cert: the certificate in {} {reason}", path.display())]
    Certificate { path: PathBuf, reason: String },
    #[error("--tls-key: the key in {} does not fit the certificate: {reason}", path.display())]
    Key { path: PathBuf, reason: String },
    #[error("--tls-ca: {}: {reason}", path.display())]
    Authorities { path: PathBuf, reason: String },
}

const CERTIFICATE: &str = "--tls-cert";
const KEY: &str = "--tls-key";
const AUTHORITIES: &str = "--tls-ca";

impl TlsFiles {
    /// Reads the files, and makes of them what sessions need.
    ///
    /// # Errors
    /// [`TlsFilesError`].
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsFilesError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(CERTIFICATE, &self.certificate)?;
        check_certificate(&self.certificate, &chain, &provider)?;
        let key = key(&self.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| self.no_key(&error))?;
        let builder = match &self.authorities {
            Some(path) if self.auth_clients != AuthClients::No => {
                let roots = authorities(path)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = match self.auth_clients {
                    AuthClients::Optional => verifier.allow_unauthenticated(),
                    AuthClients::Yes | AuthClients::No => verifier,
                };
                let verifier = verifier.build();
                builder.with_client_cert_verifier(verifier.map_err(|error| {
                    TlsFilesError::Authorities {
                        path: path.clone(),
                        reason: error.to_string(),
                    }
                })?)
            }
            _ => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| self.no_key(&error))?;
        // Nothing of a session is kept for another one: shards share nothing, and a reload counts at once.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    fn no_key(&self, error: &rustls::Error) -> TlsFilesError {
        TlsFilesError::Key {
            path: self.key.clone(),
            reason: error.to_string(),
        }
    }
}

/// What a file holds, and its permissions.
fn read(flag: &'static str, path: &Path) -> Result<(Zeroizing<Vec<u8>>, u32), TlsFilesError> {
    let failed = |source| TlsFilesError::Io {
        flag,
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode();
    // Allocated at once: growing would leave copies of a key behind.
    let len = metadata.len().min(FILE_BYTES_MAX) as usize;
    let mut contents = Zeroizing::new(Vec::with_capacity(len + 2));
    let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut contents);
    if read.map_err(failed)? as u64 > FILE_BYTES_MAX {
        let path = path.to_owned();
        return Err(TlsFilesError::TooLong { flag, path });
    }
    Ok((contents, mode))
}

fn certificates(
    flag: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let (contents, _) = read(flag, path)?;
    let found = CertificateDer::pem_slice_iter(&contents).collect::<Result<Vec<_>, _>>();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| TlsFilesError::Pem {
        flag,
        path: path.to_owned(),
        what: "certificate",
    })
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFilesError> {
    let (contents, mode) = read(KEY, path)?;
    if mode & OTHERS_READ_WRITE != 0 {
        let path = path.to_owned();
        return Err(TlsFilesError::Exposed { path });
    }
    PrivateKeyDer::from_pem_slice(&contents).map_err(|_| TlsFilesError::Pem {
        flag: KEY,
        path: path.to_owned(),
        what: "private key without a passphrase",
    })
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>, TlsFilesError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(AUTHORITIES, path)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsFilesError::Authorities {
            path: path.to_owned(),
            reason: error.to_string(),
        })?;
    }
    Ok(Arc::new(roots))
}

/// Refuses a certificate that no client would take whatever it trusts. Who has signed it is the clients' to know, and so is
/// whether they take one that may sign others, as those have that sign themselves.
fn check_certificate(
    path: &Path,
    chain: &[CertificateDer<'_>],
    provider: &CryptoProvider,
) -> Result<(), TlsFilesError> {
    let wrong = |reason: String| TlsFilesError::Certificate {
        path: path.to_owned(),
        reason,
    };
    let Some((own, between)) = chain.split_first() else {
        return Err(wrong("is missing".to_owned()));
    };
    let certificate = match EndEntityCert::try_from(own) {
        Ok(certificate) => certificate,
        Err(error) => return Err(wrong(format!("is none: {error}"))),
    };
    let checked = certificate.verify_for_usage(
        provider.signature_verification_algorithms.all,
        &[],
        between,
        UnixTime::now(),
        KeyUsage::server_auth(),
        None,
        None,
    );
    match checked.map(|_| ()) {
        Err(webpki::Error::CertExpired { time, not_after }) => {
            let hours = time.as_secs().saturating_sub(not_after.as_secs()) / 3600;
            Err(wrong(format!("has expired {hours} hours ago")))
        }
        Err(webpki::Error::CertNotValidYet { time, not_before }) => {
            let hours = not_before.as_secs().saturating_sub(time.as_secs()) / 3600;
            Err(wrong(format!(
                "is valid only in {hours} hours, by this machine's clock"
            )))
        }
        Err(webpki::Error::InvalidCertValidity) => Err(wrong(
            "is valid at no time: it ends before it begins".to_owned(),
        )),
        Err(webpki::Error::RequiredEkuNotFoundContext(_)) => {
            Err(wrong("is for something else than a server".to_owned()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
