//! What the guest says is kept only as far as an honest runner would have said it.

use fumehood_wire::{GuestError, GuestRefusal, GuestResult, Warning};

use crate::config::EngineConfig;
use crate::execution::{JsonText, Members, Notice, Output};

/// Bytes of a warning's code, of its text, of an exception's class and of what was refused.
const WORD: usize = 300;
const SENTENCE: usize = 2000;
/// Bytes of an exception's text and of its traceback: the runner cuts them to fewer characters.
const MESSAGE: usize = 64 << 10;
const LINE: usize = 8 << 10;
const TRACEBACK: usize = 256 << 10;

/// Text of the guest's, cut to so many bytes. What is cut off is not held on to.
pub(super) fn bounded(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    const MARK: &str = "…";
    let mut cut = text[..text.floor_char_boundary(most.saturating_sub(MARK.len()))].to_owned();
    cut.push_str(MARK);
    cut
}

/// A warning of the guest's.
pub(super) fn notice(warning: Warning) -> Notice {
    Notice { code: bounded(warning.code, WORD), message: bounded(warning.message, SENTENCE) }
}

/// An error as the guest tells it.
fn error(error: GuestError) -> GuestError {
    let mut left = TRACEBACK;
    let lines = error.traceback.into_iter().map(|line| bounded(line, LINE));
    GuestError {
        kind: bounded(error.kind, WORD),
        message: bounded(error.message, MESSAGE),
        traceback: lines
            .take_while(|line| left.checked_sub(line.len()).inspect(|rest| left = *rest).is_some())
            .collect(),
        hint: error.hint.map(|hint| bounded(hint, SENTENCE)),
        refused: error
            .refused
            .map(|refused| GuestRefusal { kind: bounded(refused.kind, WORD), what: bounded(refused.what, SENTENCE) }),
        line: error.line,
        errno: error.errno,
    }
}

/// What is kept of a result, and what is to be said about the rest. The warnings that it brought come first.
pub(super) fn result(claim: GuestResult, config: &EngineConfig) -> (GuestResult, Vec<Notice>) {
    let mut notices: Vec<_> = claim.warnings.into_iter().map(notice).collect();
    let mut dropped = |what: &str, size: usize, most: usize| {
        let message = format!(
            "{what} of {size} bytes came from the sandbox and was not kept: at most {most} bytes are, which follows from \
             engine.max_result_kb"
        );
        notices.push(Notice { code: "result_dropped".to_owned(), message });
    };
    let within = usize::try_from(config.max_result_bytes).unwrap_or(usize::MAX);

    let (mut result, most) = (claim.result, within.saturating_mul(2));
    if result.size() > most {
        dropped("a result", result.size(), most);
        result = JsonText::default();
    }
    let (mut dataframe, mut variables) = (claim.dataframe, claim.variables);
    let size = dataframe.as_ref().map_or(0, Members::size) + variables.size();
    let most = within.saturating_mul(6).saturating_add(1 << 20);
    if size > most {
        dropped("a description of tables and variables", size, most);
        (dataframe, variables) = (None, Members::new());
    }
    let error = claim.error.map(error);
    (GuestResult { exit_code: claim.exit_code, result, dataframe, variables, error, warnings: Vec::new() }, notices)
}

/// Why a display is not kept, if that is so.
pub(super) fn too_large(display: &Output, config: &EngineConfig) -> Option<Notice> {
    // The runner keeps each of them to a quarter.
    let (size, most) = (display.size(), (config.max_display_bytes / 4).saturating_add(2 << 20));
    (size > most).then(|| Notice {
        code: "displays_truncated".to_owned(),
        message: format!(
            "a display of {size} bytes came from the sandbox and was not kept: at most {most} bytes are, which follows from \
             engine.max_display_mb"
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config() -> EngineConfig {
        EngineConfig { max_result_bytes: 1000, max_display_bytes: 4 << 20, ..EngineConfig::new(Path::new("/nowhere")) }
    }

    fn long(length: usize) -> JsonText {
        JsonText::from("x".repeat(length).as_str())
    }

    fn one(length: usize) -> Members {
        [("x".to_owned(), long(length))].into_iter().collect()
    }

    #[test]
    fn a_claim_within_its_bounds_is_kept_as_it_is() {
        let claim = GuestResult {
            result: long(1998),
            variables: one(4000),
            dataframe: Some(one(4000)),
            ..GuestResult::default()
        };
        let (kept, notices) = result(claim.clone(), &config());
        assert_eq!((kept.result, kept.variables, kept.dataframe), (claim.result, claim.variables, claim.dataframe));
        assert_eq!(notices, []);
    }

    #[test]
    fn what_is_beyond_is_dropped_and_the_bound_is_named() {
        let claim = GuestResult {
            result: long(1999),
            variables: one(1 << 20),
            dataframe: Some(one(6000)),
            ..GuestResult::default()
        };
        let (kept, notices) = result(claim, &config());
        assert!(kept.result.is_null() && kept.variables.is_empty() && kept.dataframe.is_none());
        assert_eq!(notices.len(), 2);
        assert!(notices[0].message.contains("at most 2000 bytes"), "{notices:?}");
        assert!(notices[1].message.contains(&format!("at most {} bytes", 6000 + (1 << 20))), "{notices:?}");

        let display = |length| Output { mime: one(length), metadata: Members::new() };
        assert_eq!(too_large(&display(2 << 20), &config()), None);
        let notice = too_large(&display(3 << 20), &config()).unwrap();
        assert!(notice.message.contains(&format!("at most {} bytes", 3 << 20)), "{notice:?}");
    }

    #[test]
    fn texts_of_errors_and_warnings_are_cut() {
        let much = || "é".repeat(1 << 20);
        let told = GuestError {
            kind: much(),
            message: much(),
            traceback: vec![much(); 100],
            hint: Some(much()),
            refused: Some(GuestRefusal { kind: much(), what: much() }),
            ..GuestError::default()
        };
        let warnings = vec![Warning { code: much(), message: much() }];
        let (kept, notices) = result(GuestResult { error: Some(told), warnings, ..GuestResult::default() }, &config());
        let kept = kept.error.unwrap();
        assert!(kept.kind.len() <= WORD && kept.message.len() <= MESSAGE && kept.message.capacity() < 2 * MESSAGE);
        assert!(kept.traceback.iter().map(String::len).sum::<usize>() <= TRACEBACK);
        assert!(kept.traceback.iter().all(|line| line.len() <= LINE && line.ends_with("é…")));
        assert!(kept.hint.unwrap().len() <= SENTENCE && kept.refused.unwrap().what.len() <= SENTENCE);
        assert!(notices[0].code.len() <= WORD && notices[0].message.len() <= SENTENCE);
        assert_eq!(bounded("abc".to_owned(), 3), "abc");
        assert_eq!(bounded("abcdef".to_owned(), 5), "ab…");
    }
}
