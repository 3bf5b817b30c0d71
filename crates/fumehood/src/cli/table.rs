//! Columns of text.

use std::fmt::Write;

use fumehood_engine::clock::{Clock, SystemClock};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::escape::escaped;

/// Lines with every column as wide as its widest cell. Cells are escaped: they may hold what strangers wrote.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[_; N]> = rows.iter().map(|row| row.each_ref().map(|cell| escaped(cell))).collect();
    let mut widths = head.map(|cell| cell.chars().count());
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut line = |cells: [&str; N]| {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(cells) {
            write!(line, "{cell:width$}  ").unwrap_or_default();
        }
        writeln!(text, "{}", line.trim_end()).unwrap_or_default();
    };
    line(head);
    for row in &rows {
        line(row.each_ref().map(|cell| &**cell));
    }
    text
}

/// How long ago an RFC 3339 time was, roughly.
pub(super) fn ago(stamp: &str) -> String {
    match OffsetDateTime::parse(stamp, &Rfc3339) {
        Ok(then) => duration((SystemClock.now() - then).whole_seconds().max(0).unsigned_abs()),
        Err(_) => stamp.to_owned(),
    }
}

/// Seconds for people.
pub(super) fn duration(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

/// A word of the interface: the name of a unit variant as it stands in JSON.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_without_commands_for_the_terminal() {
        let rows = [["a\n\u{1b}[2Jb".to_owned(), "1".to_owned()], ["c".to_owned(), "22".to_owned()]];
        assert_eq!(table(["NAME", "N"], &rows), "NAME           N\na\\n\\u{1b}[2Jb  1\nc              22\n");
    }
}
