use fumehood_engine::fuzzing::{Output, cut, page};

use crate::Source;

/// Room for the line that says what is missing.
const MARKER: usize = 200;

/// Output of a program: text whatever it is and however it is cut, within its budget, and pages of it without a gap.
pub fn output(data: &[u8]) {
    let mut source = Source::new(data);
    let budget = usize::from(source.byte()) * usize::from(source.byte() % 4 + 1);
    let piece = 1 + usize::from(source.byte());
    let (head, tail) = (usize::from(source.byte()), usize::from(source.byte()));
    let (offset, limit) = (usize::from(source.byte()), 1 + usize::from(source.byte()));
    let bytes = source.rest();
    let all = String::from_utf8_lossy(bytes);

    let mut kept = Output::new(budget as u64);
    let (mut live, mut told) = (String::new(), 0);
    for piece in bytes.chunks(piece).map(Some).chain([None]) {
        let (text, exhausted) = kept.push(piece);
        live.push_str(&text);
        told += u32::from(exhausted);
    }
    let (text, missing) = kept.text();
    assert!(all.starts_with(&live) && live.len() <= budget);
    assert_eq!(told, u32::from(live.len() < all.len()));
    assert!(text.len() <= budget + MARKER);
    if !missing {
        assert_eq!(text, all);
    }
    assert!(missing || all.len() <= budget);
    if let Some((begin, rest)) = text.split_once("\n[... ").filter(|_| missing) {
        let end = rest.split_once(" ...]\n").expect("a marker ends").1;
        assert!(all.starts_with(begin) || bytes.windows(5).any(|five| five == b"[... "));
        assert!(all.ends_with(end) || bytes.windows(5).any(|five| five == b" ...]"));
    }

    match cut(&all, head, tail) {
        Some((shown, _)) => assert!(shown.chars().count() <= head + tail + MARKER),
        None => assert!(all.chars().count() <= head + tail && !all.contains('\r')),
    }

    let (mut next, mut whole) = (Some(offset), String::new());
    while let Some(at) = next {
        let page = page(&all, at, limit);
        assert!(page.text.chars().count() <= limit && page.next_offset.is_none_or(|next| next > at));
        whole.push_str(&page.text);
        next = page.next_offset;
    }
    assert!(all.chars().skip(offset).eq(whole.chars()));
}
