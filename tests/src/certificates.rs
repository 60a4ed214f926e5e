//! Certificates for TLS, signed by an authority of the test's own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;

use crate::paths;

/// An authority, and the files of what it has signed.
#[derive(Debug)]
pub struct Certificates {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Default for Certificates {
    fn default() -> Self {
        Self::new()
    }
}

impl Certificates {
    /// A new authority, which no other one has heard of.
    pub fn new() -> Self {
        let dir = paths::scratch();
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new([]).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = &mut parameters.distinguished_name;
        name.push(DnType::CommonName, "authority");
        let root = parameters.self_signed(&key).expect("a certificate");
        fs::write(dir.path().join("ca.pem"), root.pem()).expect("written");
        let issuer = Issuer::new(parameters, key);
        Self { dir, issuer }
    }

    /// Where everything is.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }

    /// A certificate of this machine and its key, for servers and clients; replaces one of the same name.
    pub fn issue(&self, name: &str) -> [PathBuf; 2] {
        self.issue_with(name, |_| {})
    }

    /// The same, whose time is over.
    pub fn issue_expired(&self, name: &str) -> [PathBuf; 2] {
        self.issue_with(name, |parameters| {
            parameters.not_before = date_time_ymd(2001, 1, 1);
            parameters.not_after = date_time_ymd(2002, 1, 1);
        })
    }

    fn issue_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> [PathBuf; 2] {
        let key = KeyPair::generate().expect("a key");
        let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
        let mut parameters = CertificateParams::new(names).expect("parameters");
        let common_name = format!("{name} of the tests");
        let distinguished = &mut parameters.distinguished_name;
        distinguished.push(DnType::CommonName, common_name);
        parameters.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        change(&mut parameters);
        let signed = parameters.signed_by(&key, &self.issuer);
        let files = [
            self.write(
                &format!("{name}.pem"),
                &signed.expect("a certificate").pem(),
            ),
            self.write(&format!("{name}.key"), &key.serialize_pem()),
        ];
        fs::set_permissions(&files[1], Permissions::from_mode(0o600)).expect("set");
        files
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("written");
        path
    }

    /// The flags of a node whose certificate is called `node`, and which takes clients of this authority only.
    pub fn flags(&self) -> Vec<String> {
        let ca = self.authority().display().to_string();
        [
            self.flags_without_authority(),
            vec!["--tls-ca".to_owned(), ca],
        ]
        .concat()
    }

    /// The same of a node that takes everybody.
    pub fn flags_without_authority(&self) -> Vec<String> {
        let [certificate, key] = self.issue("node").map(|path| path.display().to_string());
        let flags = ["--tls-cert", &certificate, "--tls-key", &key];
        flags.map(str::to_owned).to_vec()
    }
}
