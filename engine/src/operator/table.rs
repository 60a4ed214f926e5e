//! Aligned columns for a terminal.

/// Between two columns.
const GAP: &str = "  ";

/// On which side a column is filled up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells, under a head or without one.
#[derive(Clone, Debug)]
pub struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table whose first row names its columns.
    #[must_use]
    pub fn with_head(columns: &[(&str, Align)]) -> Table {
        let mut table = Table::plain(columns.iter().map(|(_, align)| *align));
        table.row(columns.iter().map(|(name, _)| (*name).to_owned()));
        table
    }

    /// A table without a head.
    #[must_use]
    pub fn plain(aligns: impl IntoIterator<Item = Align>) -> Table {
        Table {
            aligns: aligns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; control characters, which would move the terminal's cursor, become `?`.
    ///
    /// # Panics
    /// When it has not one cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let visible = |cell: String| cell.replace(char::is_control, "?");
        let row: Vec<String> = cells.into_iter().map(visible).collect();
        assert_eq!(row.len(), self.aligns.len(), "one cell for each column");
        self.rows.push(row);
    }

    /// The lines, without spaces at their ends.
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "a row has a cell for each column")]
    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.aligns.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).zip(&self.aligns);
            let filled: Vec<String> = cells
                .map(|((cell, &width), align)| match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                })
                .collect();
            text += filled.join(GAP).trim_end();
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests;
