use fumehood::fuzzing::{event_lines, shown};
use fumehood_engine::event::Event;

use crate::Source;

/// A stream of a server's that need not be trusted: the same events however it comes, and nothing of it moves a terminal's cursor.
pub fn events(data: &[u8]) {
    let mut source = Source::new(data);
    let piece = 1 + usize::from(source.byte());
    let stream = source.rest();
    let lines = event_lines(stream.chunks(piece));

    // The same from the whole; what comes after the last line end is no line yet.
    let complete = stream.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &stream[..end]);
    let data = complete.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    let expected: Vec<_> = data.map(|data| String::from_utf8_lossy(data.trim_ascii()).into_owned()).collect();
    assert_eq!(lines, expected);

    for line in &lines {
        if let Ok(event) = serde_json::from_str::<Event>(line) {
            let written = serde_json::to_string(&event).expect("an event can be written");
            let again: Event = serde_json::from_str(&written).expect("what was written can be read");
            assert_eq!(event.seq, again.seq);
        }
        for (shown, may_break) in [(shown(line, false), false), (shown(line, true), true)] {
            assert!(!shown.chars().any(|c| moves(c) && !(may_break && matches!(c, '\n' | '\t'))), "{shown:?}");
            assert!(line.chars().any(moves) || shown == *line, "{shown:?}");
        }
    }
}

/// Controls, marks of direction, and what is not seen.
fn moves(c: char) -> bool {
    let code = u32::from(c);
    let ranges = [(0, 0x1f), (0x7f, 0x9f), (0x200b, 0x200f), (0x2028, 0x202e), (0x2060, 0x206f), (0xe0000, 0xe007f)];
    ranges.iter().any(|(first, last)| (*first..=*last).contains(&code)) || [0xad, 0x61c, 0x180e, 0xfeff].contains(&code)
}
