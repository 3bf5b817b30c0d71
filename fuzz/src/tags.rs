use fumehood_server::fuzzing::{escape, image, result_chunk};
use serde_json::Value;

use crate::Source;

const TAGS: [&str; 4] = ["txt", "err", "img", "result"];

/// Output as TableMind's chunks: no tag comes through, nothing is lost, however it was cut.
pub fn tags(data: &[u8]) {
    let mut source = Source::new(data);
    let piece = 1 + usize::from(source.byte());
    let text = String::from_utf8_lossy(source.rest()).into_owned();
    let mut pieces = Vec::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (first, after) = rest.split_at(rest.ceil_char_boundary(piece));
        pieces.push(first);
        rest = after;
    }

    let escaped = escape(pieces);
    assert_eq!(escaped, escape([text.as_str()]));
    for tag in TAGS {
        assert!(!escaped.contains(&format!("<{tag}>")) && !escaped.contains(&format!("</{tag}>")), "{escaped}");
    }
    // Text may hold the escaped form already, which is left alone.
    assert_eq!(unescape(&escaped), unescape(&text));

    if let Some(image) = image(&text) {
        assert!(image.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte)) && !image.is_empty());
    }
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    let chunk = result_chunk(&value).expect("a value can be written");
    assert_eq!(chunk.matches('<').count(), 2);
    let inner = chunk.strip_prefix("<result>").and_then(|rest| rest.strip_suffix("</result>")).expect("its tags");
    // Against what an ordinary writer makes of it: the last digit of a number may be another when it is read again.
    let read = |text: &str| serde_json::from_str::<Value>(text).expect("what was written can be read");
    assert_eq!(read(inner), read(&value.to_string()));
}

fn unescape(text: &str) -> String {
    TAGS.iter().fold(text.to_owned(), |text, tag| {
        text.replace(&format!("&lt;{tag}&gt;"), &format!("<{tag}>"))
            .replace(&format!("&lt;/{tag}&gt;"), &format!("</{tag}>"))
    })
}
