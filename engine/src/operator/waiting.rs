//! Shows how far moves are until they have ended.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use ephesus_coordinator::agent::PROGRESS_MS;
use ephesus_coordinator::report::{MigrationRow, MoveRow, NodeRow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::following::Following;
use super::{Coordinators, OperatorError, say};

/// Between two questions.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// How long to wait for the last figures of moves that are done: their sources tell them once a second.
const FIGURES_MAX: Duration = Duration::from_millis(PROGRESS_MS + 500);

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Waits for these moves and for the active ones that `is_also` finds; answers whether there were
/// any.
pub(super) fn wait(
    coordinators: &Coordinators,
    planned: &[MoveRow],
    is_also: impl Fn(&MigrationRow) -> bool,
) -> Result<bool, OperatorError> {
    let nodes = coordinators.nodes()?;
    let mut report = coordinators.migrations()?;
    let mut following = Following::default();
    for row in planned {
        if let (Some(id), from) = (row.migration, row.from_node.as_deref()) {
            let to = (row.to_node.as_str(), row.to_shard);
            following.add(row.partition, id, to, usual_bytes(&nodes, from));
        }
    }
    for row in &report.migrations {
        let is_active = row.will_retry || row.state.is_active();
        if is_active && is_also(row) {
            let to = (row.to_node.as_str(), row.to_shard);
            let from = Some(row.from_node.as_str());
            following.add(row.partition, row.id, to, usual_bytes(&nodes, from));
        }
    }
    if following.is_empty() {
        return Ok(false);
    }
    let began = now();
    let mut shown = Shown::new();
    loop {
        let gone = following.note(&report, began.elapsed());
        if !gone.is_empty() {
            let rows = coordinators.partitions()?;
            for partition in gone {
                let row = rows.get(usize::from(partition));
                let owner = row.and_then(|row| Some((row.node.as_deref()?, row.shard?)));
                following.resolve(partition, owner);
            }
        }
        shown.show(&following, began.elapsed());
        if following.is_over() {
            break;
        }
        std::thread::sleep(ASK_EVERY);
        report = coordinators.migrations()?;
    }
    let took = began.elapsed();
    while following.lacks_figures() && began.elapsed() < took + FIGURES_MAX {
        std::thread::sleep(ASK_EVERY);
        following.note(&coordinators.migrations()?, took);
    }
    shown.bar.finish_and_clear();
    say(&format!("{}\n", following.summary(took)));
    match following.failures() {
        failures if failures.is_empty() => Ok(true),
        failures => Err(OperatorError::NotMoved(failures)),
    }
}

/// What a partition of the node usually has.
fn usual_bytes(nodes: &[NodeRow], name: Option<&str>) -> u64 {
    let node = nodes.iter().find(|row| Some(row.name.as_str()) == name);
    node.map_or(0, |row| row.bytes / row.partitions.max(1))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a shell: rates are measured for a person who waits"
)]
fn now() -> Instant {
    Instant::now()
}

/// A bar on a terminal, lines elsewhere.
struct Shown {
    bar: ProgressBar,
    is_terminal: bool,
    last: Option<(Duration, String)>,
}

impl Shown {
    #[expect(clippy::expect_used, reason = "the template is right")]
    fn new() -> Shown {
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let style = ProgressStyle::with_template("[{bar:30}] {percent:>3}% {msg}");
        let bar = ProgressBar::with_draw_target(Some(0), target);
        Shown {
            bar: bar.with_style(
                style
                    .expect("a template that is right")
                    .progress_chars("#>-"),
            ),
            is_terminal,
            last: None,
        }
    }

    fn show(&mut self, following: &Following, at: Duration) {
        let text = following.progress();
        if self.is_terminal {
            let (part, whole) = following.position();
            self.bar.set_length(whole);
            self.bar.set_position(part);
            self.bar.set_message(text);
            return;
        }
        let is_due = self.last.as_ref().is_none_or(|(then, before)| {
            *before != text && (at - *then >= LINE_EVERY || following.is_over())
        });
        if is_due {
            eprintln!("{text}");
            self.last = Some((at, text));
        }
    }
}
