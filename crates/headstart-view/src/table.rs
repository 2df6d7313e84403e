//! Tables: aligned text for terminals, and Markdown.

use headstart::host::names;

/// The side a column's cells are flush with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Rows under column titles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    columns: Vec<(String, Side)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without columns or rows.
    pub fn new() -> Table {
        Table::default()
    }

    /// Adds a column of words, flush left.
    pub fn words(mut self, title: &str) -> Table {
        self.columns.push((title.to_owned(), Side::Left));
        self
    }

    /// Adds a column of numbers, flush right.
    pub fn numbers(mut self, title: &str) -> Table {
        self.columns.push((title.to_owned(), Side::Right));
        self
    }

    /// Adds a row. Missing cells are empty, cells beyond the last column are
    /// dropped.
    pub fn row<I>(&mut self, cells: I)
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let mut cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// As lines of text, two spaces between columns, none at the end of a line. What isn't visible
    /// is escaped. Widths count characters: double-width ones push their line to the right.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.lines(
            &mut out,
            1,
            |cell| names::text(cell),
            |line| line.join("  ").trim_end().to_owned(),
        );
        out
    }

    /// As a Markdown table with its source aligned as well.
    pub fn markdown(&self) -> String {
        let mut out = String::new();
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let widths = self.lines(&mut out, 3, escaped, line);
        let rule: Vec<String> = self
            .columns
            .iter()
            .zip(widths)
            .map(|((_, side), width)| match side {
                Side::Left => "-".repeat(width),
                Side::Right => "-".repeat(width - 1) + ":",
            })
            .collect();
        let titles_end = out.find('\n').map_or(out.len(), |end| end + 1);
        out.insert_str(titles_end, &(line(&rule) + "\n"));
        out
    }

    /// Writes titles and rows, and returns the columns' widths, which are `least`
    /// or more.
    fn lines(
        &self,
        out: &mut String,
        least: usize,
        cell: impl Fn(&str) -> String,
        line: impl Fn(&[String]) -> String,
    ) -> Vec<usize> {
        let titles = self.columns.iter().map(|(title, _)| cell(title)).collect();
        let rows = self.rows.iter().map(|row| row.iter().map(|text| cell(text)).collect());
        let lines: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> =
            // Wider ones can't be formatted.
            (0..self.columns.len())
                .map(|column| width(column).unwrap_or(0).max(least).min(u16::MAX.into()))
                .collect();
        for cells in lines {
            let padded: Vec<String> = cells
                .iter()
                .zip(&self.columns)
                .zip(&widths)
                .map(|((text, (_, side)), &width)| match side {
                    Side::Left => format!("{text:<width$}"),
                    Side::Right => format!("{text:>width$}"),
                })
                .collect();
            out.push_str(&line(&padded));
            out.push('\n');
        }
        widths
    }
}

/// Without the meaning Markdown and HTML give to some characters.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in names::text(text).chars() {
        if "\\`*_[]<>&|~$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn starts() -> Table {
        let mut table = Table::new().words("state").numbers("ms").words("note");
        table.row(["cold", "18,849", ""]);
        table.row(["prefetched", "2,379", "7.9 × faster"]);
        table.row(["hot", "702"]);
        table
    }

    #[test]
    fn numbers_stand_flush_right_and_words_flush_left() {
        let expected = "\
state           ms  note
cold        18,849
prefetched   2,379  7.9 × faster
hot            702
";
        assert_eq!(starts().text(), expected);
    }

    #[test]
    fn markdown_says_which_columns_are_numbers() {
        let expected = "\
| state      |     ms | note         |
| ---------- | -----: | ------------ |
| cold       | 18,849 |              |
| prefetched |  2,379 | 7.9 × faster |
| hot        |    702 |              |
";
        assert_eq!(starts().markdown(), expected);
    }

    #[test]
    fn hostile_names_can_move_no_cursor_and_break_no_table() {
        let mut table = Table::new().words("name");
        table.row(["a|b\n<b>\x1b[2J", "dropped"]);
        assert_eq!(table.text(), "name\na|b\\012<b>\\033[2J\n");
        assert_eq!(table.markdown().lines().nth(2), Some(r"| a\|b\\012\<b\>\\033\[2J |"));
    }

    #[test]
    fn a_table_without_columns_or_rows_is_no_trouble() {
        assert_eq!(Table::new().text(), "\n");
        assert_eq!(Table::new().words("").markdown(), "|     |\n| --- |\n");
    }

    proptest! {
        #[test]
        fn every_row_is_one_line_of_the_same_width(
            cells in prop::collection::vec(prop::collection::vec(".{0,12}", 3), 0..6),
        ) {
            let mut table = Table::new().words("a").numbers("b").words("c");
            for row in &cells {
                table.row(row.clone());
            }
            let markdown = table.markdown();
            prop_assert_eq!(markdown.lines().count(), cells.len() + 2);
            let widths: Vec<usize> = markdown.lines().map(|line| line.chars().count()).collect();
            prop_assert!(widths.iter().all(|width| *width == widths[0]), "{}", markdown);
            prop_assert_eq!(table.text().lines().count(), cells.len() + 1);
        }
    }
}
