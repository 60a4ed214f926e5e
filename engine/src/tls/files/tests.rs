use std::fs::Permissions;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use super::*;

/// A directory with a CA, and a certificate and key that it has signed, with `change`s.
fn issued(change: impl FnOnce(&mut CertificateParams)) -> (tempfile::TempDir, TlsFiles) {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = KeyPair::generate().expect("a key");
    let mut parameters = CertificateParams::new([]).expect("parameters");
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = parameters.self_signed(&authority).expect("a certificate");
    let issuer = Issuer::new(parameters, authority);
    let key = KeyPair::generate().expect("a key");
    let names = ["127.0.0.1".to_owned()];
    let mut parameters = CertificateParams::new(names).expect("parameters");
    let name = &mut parameters.distinguished_name;
    name.push(DnType::CommonName, "own");
    change(&mut parameters);
    let own = parameters.signed_by(&key, &issuer).expect("a certificate");
    for (name, text) in [
        ("ca.pem", root.pem()),
        ("own.pem", own.pem()),
        ("own.key", key.serialize_pem()),
        (
            "other.key",
            KeyPair::generate().expect("a key").serialize_pem(),
        ),
        ("empty", String::new()),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
    }
    let files = TlsFiles {
        certificate: dir.path().join("own.pem"),
        key: dir.path().join("own.key"),
        authorities: Some(dir.path().join("ca.pem")),
        auth_clients: AuthClients::Yes,
    };
    (dir, files)
}

#[test]
fn a_certificate_with_its_key_is_taken_however_clients_are_asked() {
    let (_dir, mut files) = issued(|_| {});
    for auth_clients in [AuthClients::Yes, AuthClients::No, AuthClients::Optional] {
        files.auth_clients = auth_clients;
        files.load().expect("a configuration");
    }
    files.authorities = None;
    files.auth_clients = AuthClients::No;
    files.load().expect("a configuration");
}

#[test]
fn what_no_client_would_take_is_refused_in_one_line_that_names_the_file() {
    let (dir, right) = issued(|_| {});
    let path = |name: &str| dir.path().join(name);
    let refused = |files: &TlsFiles, told: &[&str]| {
        let error = files.load().expect_err("refused").to_string();
        for word in told {
            assert!(error.contains(word) && !error.contains('\n'), "{error}");
        }
    };
    let with = |change: fn(&mut TlsFiles, PathBuf), name: &str| {
        let mut files = right.clone();
        change(&mut files, path(name));
        files
    };
    let certificate = |name| with(|files, path| files.certificate = path, name);
    let key = |name| with(|files, path| files.key = path, name);
    let authorities = |name| with(|files, path| files.authorities = Some(path), name);
    refused(
        &certificate("gone"),
        &["--tls-cert", "gone", "No such file"],
    );
    refused(
        &certificate("empty"),
        &["--tls-cert", "empty", "no certificate"],
    );
    refused(&certificate("own.key"), &["--tls-cert", "no certificate"]);
    refused(
        &key("other.key"),
        &["--tls-key", "other.key", "does not fit"],
    );
    refused(&key("own.pem"), &["--tls-key", "own.pem", "no private key"]);
    refused(&authorities("own.key"), &["--tls-ca", "no certificate"]);
    refused(&certificate("ca.pem"), &["--tls-key", "does not fit"]);
    std::fs::set_permissions(path("own.key"), Permissions::from_mode(0o644)).expect("set");
    refused(&right, &["--tls-key", "own.key", "chmod o-rwx"]);
}

#[test]
fn certificates_of_another_time_or_purpose_are_refused() {
    let (_dir, clients) = issued(|parameters| {
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    });
    let error = clients.load().expect_err("refused").to_string();
    assert!(error.contains("something else than a server"), "{error}");
    let (_dir, expired) = issued(|parameters| {
        parameters.not_before = date_time_ymd(2001, 1, 1);
        parameters.not_after = date_time_ymd(2002, 1, 1);
    });
    let error = expired.load().expect_err("refused").to_string();
    assert!(error.contains("has expired"), "{error}");
    let (_dir, early) = issued(|parameters| {
        parameters.not_before = date_time_ymd(2900, 1, 1);
        parameters.not_after = date_time_ymd(2901, 1, 1);
    });
    let error = early.load().expect_err("refused").to_string();
    assert!(error.contains("is valid only in"), "{error}");
}
