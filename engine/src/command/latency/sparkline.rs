//! A series of numbers as a drawing of characters, as Redis draws it.

/// Columns of one line.
pub const COLUMNS: usize = 80;

/// Lines of the drawing, and characters that each tells apart.
const ROWS: usize = 4;
const CHARACTERS: [char; 3] = ['_', 'o', '#'];

/// Draws values with labels, which are written downwards below them.
#[must_use]
pub fn draw(samples: &[(u64, String)]) -> String {
    let values = || samples.iter().map(|(value, _)| *value);
    let (low, high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    let parts = samples.chunks(COLUMNS);
    let parts: Vec<String> = parts.map(|part| draw_part(part, low, high)).collect();
    parts.join("\n")
}

fn draw_part(samples: &[(u64, String)], low: u64, high: u64) -> String {
    let steps = (CHARACTERS.len() * ROWS) as u64;
    let range = (high - low).max(1);
    let step = |value: u64| ((value - low).saturating_mul(steps) / range).min(steps - 1) as usize;
    let mut drawn = String::new();
    let mut line = |characters: &mut dyn Iterator<Item = char>| {
        drawn.extend(characters);
        drawn.push('\n');
    };
    for row in 0..ROWS {
        let below = (ROWS - row - 1) * CHARACTERS.len();
        line(&mut samples.iter().map(|(value, _)| {
            let above = step(*value).checked_sub(below);
            above.map_or(' ', |at| CHARACTERS.get(at).copied().unwrap_or('|'))
        }));
    }
    line(&mut samples.iter().map(|_| ' '));
    let longest = samples.iter().map(|(_, label)| label.len()).max();
    for at in 0..longest.unwrap_or(0) {
        let of_label = |label: &String| label.chars().nth(at).unwrap_or(' ');
        line(&mut samples.iter().map(|(_, label)| of_label(label)));
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first is what a redis-server 7.0.15 has drawn.
    #[test]
    fn values_are_drawn_as_redis_draws_them() {
        let samples = [(30, "5s"), (2, "4s"), (50, "3s"), (21, "1s")];
        let samples = samples.map(|(value, label)| (value, label.to_owned()));
        let expected = "  # \no | \n| |o\n|_||\n    \n5431\nssss\n";
        assert_eq!(draw(&samples), expected);
        assert_eq!(draw(&samples[..1]), " \n \n \n_\n \n5\ns\n");
        let many = vec![(1, "1s".to_owned()); 100];
        assert_eq!(draw(&many).lines().count(), 2 * 7 + 1);
    }
}
