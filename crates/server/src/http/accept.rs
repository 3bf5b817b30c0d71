//! Content negotiation by `Accept`.

use axum::http::{HeaderMap, header};

use super::error::ApiError;

/// A form an answer can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// One JSON object, when all is over.
    Json,
    /// Server-sent events.
    Sse,
    /// One JSON a line.
    Ndjson,
}

impl Form {
    fn essence(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Sse => "text/event-stream",
            Self::Ndjson => "application/x-ndjson",
        }
    }
}

/// The form the client likes best; `offered` is in the server's order of preference.
///
/// # Errors
/// When it likes none of them.
pub(crate) fn negotiate(headers: &HeaderMap, offered: &[Form]) -> Result<Form, ApiError> {
    let mut ranges = Vec::new();
    for value in headers.get_all(header::ACCEPT) {
        ranges.extend(value.to_str().unwrap_or_default().split(',').filter_map(Range::parse));
    }
    if ranges.is_empty() && headers.get_all(header::ACCEPT).iter().all(|value| value.is_empty()) {
        return offered.first().copied().ok_or_else(|| ApiError::not_acceptable(""));
    }
    // The most specific range decides on a form; among equally liked forms the one asked for more exactly, then earlier, wins.
    let best = offered
        .iter()
        .rev()
        .filter_map(|form| {
            let by_exactness = |(_, range): &(usize, &Range)| range.exactness();
            let matching = ranges.iter().enumerate().rev().filter(|(_, range)| range.matches(form.essence()));
            let (position, range) = matching.max_by_key(by_exactness)?;
            (range.quality > 0).then_some(((range.quality, range.exactness(), std::cmp::Reverse(position)), *form))
        })
        .max_by_key(|(liking, _)| *liking);
    best.map(|(_, form)| form).ok_or_else(|| {
        ApiError::not_acceptable(&offered.iter().map(|form| form.essence()).collect::<Vec<_>>().join(", "))
    })
}

struct Range {
    essence: String,
    /// In thousandths.
    quality: u16,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let essence = parts.next().filter(|essence| essence.contains('/'))?.to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let quality = quality.map_or(Some(1.0), |text| text.parse::<f32>().ok().filter(|q| (0.0..=1.0).contains(q)))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
        Some(Self { essence, quality: (quality * 1000.0).round() as u16 })
    }

    fn exactness(&self) -> u8 {
        if self.essence == "*/*" { 0 } else { 1 + u8::from(!self.essence.ends_with("/*")) }
    }

    fn matches(&self, essence: &str) -> bool {
        match self.essence.strip_suffix('*') {
            Some("*/") => true,
            Some(kind) => essence.starts_with(kind),
            None => self.essence == essence,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: Option<&str>) -> Option<Form> {
        let mut headers = HeaderMap::new();
        if let Some(accept) = accept {
            headers.insert(header::ACCEPT, accept.parse().unwrap());
        }
        negotiate(&headers, &[Form::Json, Form::Sse, Form::Ndjson]).ok()
    }

    #[test]
    fn the_form_liked_best_is_chosen() {
        for (accept, form) in [
            (None, Some(Form::Json)),
            (Some(""), Some(Form::Json)),
            (Some("*/*"), Some(Form::Json)),
            (Some("application/json"), Some(Form::Json)),
            (Some("application/json; charset=utf-8"), Some(Form::Json)),
            (Some("application/*"), Some(Form::Json)),
            (Some("text/event-stream"), Some(Form::Sse)),
            (Some("TEXT/*"), Some(Form::Sse)),
            (Some("application/x-ndjson"), Some(Form::Ndjson)),
            (Some("text/event-stream, */*"), Some(Form::Sse)),
            (Some("text/html, */*;q=0.1"), Some(Form::Json)),
            (Some("application/json, text/event-stream"), Some(Form::Json)),
            (Some("text/event-stream, application/json"), Some(Form::Sse)),
            (Some("application/json;q=0.5, application/x-ndjson;q=0.9"), Some(Form::Ndjson)),
            (Some("application/json;q=0, */*"), Some(Form::Sse)),
            (Some("text/html"), None),
            (Some("nonsense"), None),
            (Some("application/json;q=0"), None),
        ] {
            assert_eq!(chosen(accept), form, "{accept:?}");
        }
    }
}
