use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{During, Result};
use crate::page;

use super::Record;

#[derive(Clone, Debug, Default, clap::Args)]
pub struct Outputs {
    /// Write everything to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a row per second of each run to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a file per run and operation to this directory: percentiles as HdrHistogram's plotters read them
    #[arg(long, value_name = "DIR")]
    pub hgrm: Option<PathBuf>,
    /// Write a page with tables and plots to this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

impl Outputs {
    /// Finds out before a long run whether its results can be written.
    pub fn prepare(&self) -> Result<()> {
        for dir in self.report.iter().chain(&self.hgrm) {
            fs::create_dir_all(dir).during(dir.display())?;
            tempfile::tempfile_in(dir).during(dir.display())?;
        }
        // A run that fails before it has results leaves no empty files.
        for path in self.json.iter().chain(&self.csv) {
            let parent = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            let opened = match path.exists() {
                true => fs::OpenOptions::new().append(true).open(path),
                false => tempfile::tempfile_in(parent.unwrap_or(Path::new("."))),
            };
            opened.during(path.display())?;
        }
        Ok(())
    }

    /// Prints the tables and writes the files of a run that has ended, as `done` says.
    pub fn publish(&self, mut record: Record, done: Result<()>) -> Result<()> {
        record.truncated = done.as_ref().err().map(ToString::to_string);
        print!("{}", page::markdown(&record)?);
        let saved = self.save(&record);
        done.and(saved)
    }

    /// Writes the files, as many of them as can be written.
    pub fn save(&self, record: &Record) -> Result<()> {
        let mut texts = Vec::new();
        if let Some(dir) = &self.report {
            let path = dir.join(format!("{}.html", record.tool));
            texts.push((path, page::html(record)?));
        }
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(record);
            texts.push((path.clone(), text.during("the record as JSON")?));
        }
        if let Some(path) = &self.csv {
            texts.push((path.clone(), csv(record)));
        }
        if let Some(dir) = &self.hgrm {
            texts.extend(hgrm(record).map(|(name, text)| (dir.join(name), text)));
        }
        let write = |(path, text): (PathBuf, String)| fs::write(&path, text).during(path.display());
        let written: Vec<Result<()>> = texts.into_iter().map(write).collect();
        written.into_iter().collect()
    }
}

fn csv(record: &Record) -> String {
    let mut text = "case,server,run,at_s,done,errors,p50_us,p99_us,p999_us\n".to_owned();
    for case in &record.cases {
        for run in &case.runs {
            let name = [&case.name, &run.server, &run.label].map(|name| quoted(name));
            for second in &run.seconds {
                text += &format!(
                    "{},{:.3},{},{},{:.3},{:.3},{:.3}\n",
                    name.join(","),
                    second.at_s,
                    second.done,
                    second.errors,
                    second.p50_us,
                    second.p99_us,
                    second.p999_us
                );
            }
        }
    }
    text
}

/// A field as RFC 4180 has it.
fn quoted(field: &str) -> String {
    match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

fn hgrm(record: &Record) -> impl Iterator<Item = (String, String)> + '_ {
    let runs = record
        .cases
        .iter()
        .flat_map(|case| case.runs.iter().map(move |run| (case, run)));
    runs.flat_map(|(case, run)| {
        run.operations.iter().map(move |(operation, latencies)| {
            let parts = [&*case.name, &run.server, &run.label, operation];
            let present = parts.into_iter().filter(|part| !part.is_empty());
            let name = present.collect::<Vec<_>>().join("-");
            let plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
            let name = name.replace(|letter| !plain(letter), "_");
            (format!("{name}.hgrm"), latencies.hgrm())
        })
    })
}
