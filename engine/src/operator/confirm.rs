//! Asks before something is lost.

use std::io::{BufRead, Write};

/// Whether the answer to `question` is `y` or `yes`; the end of the input is a no.
pub(super) fn confirm(question: &str, mut input: impl BufRead, mut output: impl Write) -> bool {
    // Nobody who cannot read the question answers it with yes.
    let _ = write!(output, "{question} [y/N] ");
    let _ = output.flush();
    let mut answer = String::new();
    if input.read_line(&mut answer).is_err() {
        return false;
    }
    matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests;
