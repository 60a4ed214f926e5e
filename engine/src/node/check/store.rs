//! One image store, read in a process of its own: sled may panic over damaged files, which ends the
//! process that reads them.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use ephesus_wire::block::Assembler;
use ephesus_wire::digest::Digest;
use serde::{Deserialize, Serialize};

use crate::image::{self, DbId, ImageStore, Manifest, STORES_MAX, SledStore};
use crate::keyspace::replay::ReplayError;

/// What a store holds.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Findings {
    /// Whether the store is there.
    pub is_there: bool,
    pub images: Vec<ImageFinding>,
    /// Why the store could not be looked at, when that is not its own fault.
    pub unread: Option<String>,
    /// Partitions whose images cannot be listed, and why.
    pub unlisted: Vec<(u16, String)>,
}

/// What one image holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct ImageFinding {
    /// As it is stored.
    manifest: Vec<u8>,
    pub blocks: u64,
    pub keys: u64,
    /// What is wrong with its blocks.
    pub problem: Option<String>,
}

impl ImageFinding {
    #[must_use]
    #[expect(
        clippy::expect_used,
        reason = "findings with another manifest are not taken"
    )]
    pub fn manifest(&self) -> Manifest {
        Manifest::decode(&self.manifest).expect("it was encoded by this very program")
    }
}

/// One of a data directory's stores, as the flag of the process that reads it names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneStore {
    pub db: DbId,
    /// How many there are.
    pub stores: u16,
}

impl std::str::FromStr for OneStore {
    type Err = String;

    fn from_str(text: &str) -> Result<OneStore, String> {
        let number = |text: &str| text.parse::<u16>().ok();
        let (db, stores) = text
            .split_once('/')
            .and_then(|(db, stores)| Some((number(db)?, number(stores)?)))
            .filter(|(db, stores)| db < stores && *stores <= STORES_MAX)
            .ok_or_else(|| format!("'{text}' is not N/M"))?;
        Ok(OneStore {
            db: DbId(db),
            stores,
        })
    }
}

impl std::fmt::Display for OneStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.db.0, self.stores)
    }
}

/// A process that reads one store.
#[derive(Debug)]
pub struct Reader(Child);

impl Reader {
    /// Starts this program once more.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn start(data_dir: &Path, store: OneStore) -> io::Result<Reader> {
        // Also when the file was replaced meanwhile.
        Command::new("/proc/self/exe")
            .args(["check", "--only-store", &store.to_string(), "--data-dir"])
            .arg(data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map(Reader)
    }

    /// Waits for its findings.
    ///
    /// # Errors
    /// Why there are none: what it said, or how it ended.
    pub fn finish(self) -> Result<Findings, String> {
        let output = self.0.wait_with_output().map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(last_words(&output));
        }
        let findings: Findings = postcard::from_bytes(&output.stdout)
            .map_err(|e| format!("its findings are cut off: {e}"))?;
        for image in &findings.images {
            Manifest::decode(&image.manifest).map_err(|e| format!("its findings: {e}"))?;
        }
        Ok(findings)
    }
}

/// What a process that failed has said, in one line.
fn last_words(output: &Output) -> String {
    /// Of a panic: where, what, and what to do.
    const LINES_MAX: usize = 4;
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.take(LINES_MAX).collect();
    match output.status.code() {
        Some(_) => lines.join("; ").trim_start_matches("error: ").to_owned(),
        None => format!(
            "reading it ended in {}: {}",
            output.status,
            lines.join("; ")
        ),
    }
}

/// Reads the store and writes what it holds to `out`, for [`Reader::finish`].
///
/// # Errors
/// When it cannot be opened, or nobody takes the findings.
#[expect(clippy::expect_used, reason = "numbers and texts always encode")]
pub fn read_store(images: &Path, store: OneStore, out: &mut dyn Write) -> Result<(), String> {
    let findings = match SledStore::open_untouched(images, store.db, store.stores) {
        Ok(Some(store)) => findings(&store),
        Ok(None) => Findings::default(),
        Err(error) if !error.is_damage() => Findings {
            unread: Some(error.to_string()),
            ..Findings::default()
        },
        Err(error) => return Err(error.to_string()),
    };
    let bytes = postcard::to_allocvec(&findings).expect("numbers and texts always encode");
    out.write_all(&bytes)
        .and_then(|()| out.flush())
        .map_err(|error| error.to_string())
}

fn findings(store: &dyn ImageStore) -> Findings {
    let mut findings = Findings {
        is_there: true,
        ..Findings::default()
    };
    for partition in store.partitions() {
        match image::manifests(store, partition) {
            Ok(manifests) => {
                let images = manifests.iter().map(|manifest| read_image(store, manifest));
                findings.images.extend(images);
            }
            Err(error) => findings.unlisted.push((partition.0, error.to_string())),
        }
    }
    findings
}

fn read_image(store: &dyn ImageStore, manifest: &Manifest) -> ImageFinding {
    let (mut assembler, mut digest) = (Assembler::new(), Digest::EMPTY);
    let (mut blocks, mut keys) = (0, 0);
    let read = image::read(store, manifest, |_, block| {
        blocks += 1;
        Ok(assembler.feed(block, |entry| {
            keys += 1;
            digest.add(entry.key, entry.value, entry.expire_at_ms);
        })?)
    });
    let digest = digest.to_words();
    let is_whole = assembler.is_complete() && keys == manifest.count && digest == manifest.digest;
    let problem = match read {
        Err(error) => Some(error.to_string()),
        Ok(()) if is_whole => None,
        Ok(()) => {
            let differs = ReplayError::Image {
                partition: manifest.image.partition,
                found: keys,
                digest,
                manifest: Box::new(*manifest),
            };
            Some(differs.to_string())
        }
    };
    ImageFinding {
        manifest: manifest.encode().to_vec(),
        blocks,
        keys,
        problem,
    }
}

#[cfg(test)]
mod tests;
