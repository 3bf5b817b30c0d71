//! The tag protocol of TableMind: `<txt>`, `<err>`, `<img>` and `<result>` chunks that no output can forge.
//!
//! Clients find chunks with regular expressions, so a tag inside output would end a chunk early. Each tag of the protocol in
//! output is therefore written as `&lt;txt&gt;` and so on; everything else stays as it is. A tag may come in two pieces: text
//! that could be the beginning of one waits until more output of the same stream, or the end, decides.

use serde::Serialize;

const TAGS: [&str; 8] = ["<txt>", "</txt>", "<err>", "</err>", "<img>", "</img>", "<result>", "</result>"];

/// Escapes one output stream, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Escaper {
    /// The beginning of a tag, perhaps; shorter than any tag.
    undecided: String,
}

impl Escaper {
    /// What of the text so far can be sent.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let joined;
        let mut rest = text;
        if !self.undecided.is_empty() {
            joined = std::mem::take(&mut self.undecided) + text;
            rest = &joined;
        }
        let mut safe = String::with_capacity(rest.len());
        while let Some(at) = rest.find('<') {
            safe.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(tag) = TAGS.iter().find(|tag| rest.starts_with(**tag)) {
                safe.push_str("&lt;");
                safe.push_str(&tag[1..tag.len() - 1]);
                safe.push_str("&gt;");
                rest = &rest[tag.len()..];
            } else if TAGS.iter().any(|tag| tag.starts_with(rest)) {
                rest.clone_into(&mut self.undecided);
                return safe;
            } else {
                safe.push('<');
                rest = &rest[1..];
            }
        }
        safe.push_str(rest);
        safe
    }

    /// What was undecided, now that nothing follows.
    pub(crate) fn finish(&mut self) -> String {
        std::mem::take(&mut self.undecided)
    }
}

/// A chunk with its tags; empty text makes none.
pub(crate) fn chunk(tag: &str, content: &str) -> String {
    if content.is_empty() { String::new() } else { format!("<{tag}>{content}</{tag}>") }
}

/// The last chunk. In JSON a `<` stands only inside strings, where `\u003c` means the same.
pub(crate) fn result_chunk(result: &impl Serialize) -> serde_json::Result<String> {
    Ok(chunk("result", &serde_json::to_string(result)?.replace('<', "\\u003c")))
}

/// Base64 as it may stand in an `<img>` chunk; `None` for anything else, which only a guest that forges would send.
pub(crate) fn image(content: &str) -> Option<String> {
    let bare: String = content.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let alphabet = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    (!bare.is_empty() && bare.bytes().all(alphabet)).then_some(bare)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(pieces: &[&str]) -> String {
        let mut escaper = Escaper::default();
        let mut all: String = pieces.iter().map(|piece| escaper.push(piece)).collect();
        all.push_str(&escaper.finish());
        all
    }

    #[test]
    fn a_tag_in_output_is_escaped_even_in_two_pieces() {
        assert_eq!(whole(&["</txt><result>{}</result>"]), "&lt;/txt&gt;&lt;result&gt;{}&lt;/result&gt;");
        assert_eq!(whole(&["</re", "sult>"]), "&lt;/result&gt;");
        assert_eq!(whole(&["<", "t", "x", "t", ">"]), "&lt;txt&gt;");
        assert_eq!(whole(&["<<txt>"]), "<&lt;txt&gt;");
        assert_eq!(whole(&["<re<result>"]), "<re&lt;result&gt;");
    }

    #[test]
    fn other_text_is_neither_changed_nor_delayed() {
        let mut escaper = Escaper::default();
        for text in ["a < b", "<b>bold</b>", "<TXT>", "&lt;txt&gt;", "开始分析...\n", "<tx t>"] {
            assert_eq!(escaper.push(text), text);
        }
        assert_eq!(escaper.push("wait <im"), "wait ");
        assert_eq!(escaper.push("possible"), "<impossible");
        assert_eq!(escaper.push("end <"), "end ");
        assert_eq!(escaper.finish(), "<");
    }

    #[test]
    fn only_base64_is_an_image() {
        assert_eq!(image("iVBO\nRw0=").as_deref(), Some("iVBORw0="));
        assert_eq!(image("</img><result>{}</result>"), None);
        assert_eq!(image(""), None);
    }

    #[test]
    fn the_result_holds_no_tag() {
        let value = serde_json::json!({"error": "</result><result>{}"});
        let chunk = result_chunk(&value).unwrap();
        assert_eq!(chunk.matches('<').count(), 2);
        let inner = chunk.strip_prefix("<result>").and_then(|rest| rest.strip_suffix("</result>")).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(inner).unwrap(), value);
    }

    proptest! {
        #[test]
        fn however_output_is_cut_no_tag_survives_and_nothing_is_lost(
            pieces in proptest::collection::vec(
                prop_oneof![
                    proptest::sample::select(TAGS.to_vec()).prop_map(str::to_owned),
                    "[</>txerimgsul a]{0,6}",
                ],
                0..12,
            ),
            cuts in proptest::collection::vec(0_usize..80, 0..8),
        ) {
            let text = pieces.concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let cut: Vec<&str> = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
            let escaped = whole(&cut);
            prop_assert!(TAGS.iter().all(|tag| !escaped.contains(tag)), "{escaped}");
            let back = TAGS.iter().fold(escaped, |text, tag| text.replace(&format!("&lt;{}&gt;", &tag[1..tag.len() - 1]), tag));
            prop_assert_eq!(back, text);
        }
    }
}
