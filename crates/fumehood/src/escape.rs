//! Text of strangers on a terminal: what would move the cursor, change colours or reorder a line is shown, not done.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether a character does something else than being seen.
fn acts(c: char) -> bool {
    // Controls; marks that reorder text or are not seen at all; separators that some programs take for line ends.
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

fn escape(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| acts(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if keep(c) || !acts(c) => shown.push(c),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c => write!(shown, "{}", c.escape_unicode()).unwrap_or_default(),
        }
    }
    Cow::Owned(shown)
}

/// One line, whatever is in it: for names and cells of a table.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, |_| false)
}

/// The same with line ends and tabs as they are: for output and messages.
pub(crate) fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| c == '\n' || c == '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_comes_through() {
        assert_eq!(escaped("plain ä 表 🙂 back\\slash"), "plain ä 表 🙂 back\\slash");
        assert_eq!(escaped("\u{1b}]0;title\u{7}\u{1b}[2J"), "\\u{1b}]0;title\\u{7}\\u{1b}[2J");
        assert_eq!(escaped("a\nb\tc\r\u{7f}\u{9b}31m"), "a\\nb\\tc\\r\\u{7f}\\u{9b}31m");
        assert_eq!(escaped("txt.\u{202e}exe"), "txt.\\u{202e}exe");
        assert_eq!(escaped_lines("a\n\tb\r\u{1b}[A"), "a\n\tb\\r\\u{1b}[A");
    }
}
