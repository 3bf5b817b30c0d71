//! What a request says about its job, rather than about what runs.

use fumehood_engine::job::Priority;
use fumehood_engine::spec::{AnswerMode, ExecutionRequest, FieldError};
use reqwest::Url;

const MOST_ATTEMPTS: i64 = 10;
const LONGEST_URL: usize = 2000;

/// What a request says about its job.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobOptions {
    pub(crate) priority: Priority,
    pub(crate) max_attempts: u32,
    pub(crate) callback: Option<String>,
}

impl JobOptions {
    /// Reads them from a request for a fresh sandbox.
    ///
    /// # Errors
    /// The field that is wrong, or that only `mode: async` can have.
    pub(crate) fn of(request: &ExecutionRequest) -> Result<Self, FieldError> {
        let given = [
            ("priority", request.priority.is_some()),
            ("retry", request.retry.is_some()),
            ("callback_url", request.callback_url.is_some()),
        ];
        if request.mode == AnswerMode::Sync
            && let Some((field, _)) = given.into_iter().find(|(_, given)| *given)
        {
            return Err(FieldError::new(
                field,
                "is only for mode 'async'; whoever waits for the answer sees the end itself",
            ));
        }
        let attempts = request.retry.unwrap_or_default().max_attempts.unwrap_or(1);
        if !(1..=MOST_ATTEMPTS).contains(&attempts) {
            let message = format!("must be between 1 and {MOST_ATTEMPTS}, got {attempts}");
            return Err(FieldError::new("retry.max_attempts", message));
        }
        Ok(Self {
            priority: request.priority.unwrap_or_default(),
            max_attempts: u32::try_from(attempts).unwrap_or(1),
            callback: request.callback_url.as_deref().map(callback).transpose()?,
        })
    }

    /// The same from a request for a session, whose executions run in their order and end with it.
    ///
    /// # Errors
    /// The field that is wrong.
    pub(crate) fn within_session(request: &ExecutionRequest) -> Result<Self, FieldError> {
        let given = [("priority", request.priority.is_some()), ("retry", request.retry.is_some())];
        if let Some((field, _)) = given.into_iter().find(|(_, given)| *given) {
            let message = "is not for executions in a session: they run one after the other, and end with it";
            return Err(FieldError::new(field, message));
        }
        Self::of(request)
    }
}

fn callback(text: &str) -> Result<String, FieldError> {
    let wrong = |message: String| Err(FieldError::new("callback_url", message));
    if text.len() > LONGEST_URL {
        return wrong(format!("has {} bytes; at most {LONGEST_URL} are accepted", text.len()));
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return wrong(format!("is no URL: {error}")),
    };
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return wrong("must begin with http:// or https:// and name a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("must not hold a user or a password; deliveries are signed instead".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use fumehood_engine::job::RetryRequest;

    use super::*;

    fn asked(change: impl FnOnce(&mut ExecutionRequest)) -> Result<JobOptions, String> {
        let mut request = ExecutionRequest { mode: AnswerMode::Async, ..ExecutionRequest::new("1") };
        change(&mut request);
        JobOptions::of(&request).map_err(|error| error.field)
    }

    #[test]
    fn what_is_about_a_job_is_for_jobs_only_and_named_when_wrong() {
        let refused = asked(|request| {
            request.mode = AnswerMode::Sync;
            request.priority = Some(Priority::High);
        });
        assert_eq!(refused.unwrap_err(), "priority");
        for bad in [0, 11, -1] {
            let refused = asked(|request| request.retry = Some(RetryRequest { max_attempts: Some(bad) }));
            assert_eq!(refused.unwrap_err(), "retry.max_attempts");
        }
        for bad in ["", "ftp://a/b", "file:///etc/passwd", "http://", "https://u:p@h/", "h", "javascript:1"] {
            assert_eq!(
                asked(|request| request.callback_url = Some(bad.to_owned())).unwrap_err(),
                "callback_url",
                "{bad}"
            );
        }
        let good = asked(|request| {
            request.callback_url = Some("https://example.org/hook?x=1".to_owned());
            request.retry = Some(RetryRequest { max_attempts: Some(3) });
        });
        assert_eq!(good.unwrap().max_attempts, 3);
    }
}
