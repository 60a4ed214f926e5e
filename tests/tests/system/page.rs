//! The report of the bench in a browser: Debian's Chromium, which `make deps` installs.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ephesus_bench::page;
use ephesus_bench::record::Record;
use ephesus_tests::needs::lacks;
use ephesus_tests::paths;

const GOLDEN: &str = include_str!("../../../bench/src/record/golden.json");

/// How long a browser may take over one page.
const LIMIT: Duration = Duration::from_secs(60);

/// What everything needs that talks to nobody and leaves nothing behind.
const ALONE: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,2400",
];

/// Shows a page of `dir` to a browser, which writes to a file of its own; nothing without a browser.
fn browse(dir: &Path, order: &str) -> Option<String> {
    let output = dir.join("dom");
    let profile = tempfile::tempdir_in(dir).expect("profile");
    let started = Command::new("chromium")
        .args(ALONE)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(order)
        .arg(format!("file://{}", dir.join("page.html").display()))
        .stdin(Stdio::null())
        .stdout(File::create(&output).expect("output"))
        .stderr(Stdio::null())
        .spawn();
    let mut browser = match started {
        Ok(browser) => browser,
        Err(error) => {
            lacks(&format!("chromium cannot be started: {error}"));
            return None;
        }
    };
    let began = Instant::now();
    let status = loop {
        match browser.try_wait().expect("wait") {
            Some(status) => break status,
            None if began.elapsed() > LIMIT => {
                browser.kill().expect("kill");
                browser.wait().expect("wait");
                panic!("chromium does not end");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success(), "{status}");
    Some(std::fs::read_to_string(output).expect("what it printed"))
}

/// Colours of the picture that have at least a thousandth of it.
fn colours(picture: &Path) -> usize {
    let file = BufReader::new(File::open(picture).expect("picture"));
    let mut reader = png::Decoder::new(file).read_info().expect("png");
    let mut pixels = vec![0; reader.output_buffer_size().expect("size")];
    let frame = reader.next_frame(&mut pixels).expect("frame");
    let size = frame.color_type.samples();
    let mut counts = std::collections::BTreeMap::<&[u8], usize>::new();
    for pixel in pixels[..frame.buffer_size()].chunks_exact(size) {
        *counts.entry(pixel).or_default() += 1;
    }
    let all = frame.buffer_size() / size;
    counts.values().filter(|&&count| count > all / 1000).count()
}

#[test]
fn a_report_shows_all_its_plots_and_figures_and_asks_for_nothing() {
    let dir = paths::scratch();
    let mut record = Record::parse(GOLDEN).expect("record");
    record.truncated = Some("interrupted".to_owned());
    let html = page::html(&record).expect("page");
    std::fs::write(dir.path().join("page.html"), html).expect("page");
    let Some(dom) = browse(dir.path(), "--dump-dom") else {
        return;
    };
    for heading in [
        "Ended with: interrupted.",
        "Latency by percentile",
        "Throughput over time",
        "Latency over time",
        "Latency as load rises",
        "Latency of read by percentile",
        "Latency of update by percentile",
        "99th percentile over time",
        "rate",
    ] {
        assert!(dom.contains(heading), "no {heading:?} in {dom}");
    }
    let count = |what: &str| dom.matches(what).count();
    // Three of the one run; two by percentile, two over time, one of load, and one with a bar of the others.
    assert_eq!([count("<figure"), count("<svg"), count("</svg>")], [9; 3]);
    assert_eq!(count("class=\"mark "), 2 * 2 + 2 * 4);
    assert_eq!(count("class=\"tile\""), 6);
    for text in [
        "A CPU",
        "Linux version 6.1",
        "vda, 100 GiB",
        "--rate 4000",
        "ephesus 1.2.3",
        "abc1234",
    ] {
        assert!(dom.contains(text), "no {text:?} in {dom}");
    }
    let policy = "content=\"default-src 'none'; style-src 'unsafe-inline'\"";
    assert!(dom.contains(policy), "{dom}");
    for outside in [
        "http:", "https:", "url(", "src=", "href=", "@import", "<script", "<link",
    ] {
        assert!(!dom.contains(outside), "{outside} in {dom}");
    }
    let picture = dir.path().join("page.png");
    browse(dir.path(), &format!("--screenshot={}", picture.display()));
    // The page and its cards, two lines, their bars, and text.
    let colours = colours(&picture);
    assert!(colours >= 4, "{colours} colours");
}
