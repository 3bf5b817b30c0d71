use fumehood_engine::fuzzing::in_url;
use fumehood_engine::ids::{ExecutionId, SessionId};
use fumehood_engine::spec::{ExecutionRequest, FileRequest, LimitPolicy, WorkspacePath};
use fumehood_server::fuzzing::attachment;
use percent_encoding::percent_decode_str;

/// A path that a client names: what is accepted stays where it must, and says the same when it is written down.
pub fn paths(data: &[u8]) {
    let text = String::from_utf8_lossy(data).into_owned();
    if let Ok(path) = WorkspacePath::parse(&text) {
        let path = path.as_str();
        assert!(!path.is_empty() && path.len() <= 4000 && !path.contains('\0'), "{path:?}");
        let plain = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
        assert!(path.split('/').all(plain), "{path:?}");
        for root in ["", "/data/", "/workspace/", "/mnt/data/", "./"] {
            let again = WorkspacePath::parse(&format!("{root}{path}"));
            assert_eq!(again.as_ref().map(WorkspacePath::as_str), Ok(path), "{root}");
        }
        // A URL that any client takes apart again.
        let url = in_url(path);
        assert!(url.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#\\\"<>".contains(&byte)), "{url:?}");
        assert_eq!(percent_decode_str(&url).decode_utf8().as_deref(), Ok(path));
    }

    let header = attachment(&text);
    assert!(header.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{header:?}");
    assert_eq!(
        (header.matches('"').count(), header.matches("filename").count()),
        (2, 2 + text_in_name(&text)),
        "{header:?}"
    );

    for (id, prefix) in [
        (ExecutionId::parse(&text).map(|id| id.to_string()), "exe_"),
        (SessionId::parse(&text).map(|id| id.to_string()), "ses_"),
    ] {
        if let Some(id) = id {
            assert!(id == text && id.starts_with(prefix) && id.len() <= 68, "{id:?}");
            assert!(id[4..].bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id:?}");
        }
    }

    let policy = LimitPolicy::default();
    let request = || ExecutionRequest::new("1");
    if let Ok(spec) = (ExecutionRequest { cwd: Some(text.clone()), ..request() }).validate(&policy) {
        let place = ["/data", "/workspace", "/mnt/data", "/tmp", "/home/sandbox"];
        let below =
            |root: &&str| spec.cwd.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        assert!(place.iter().any(below), "{:?}", spec.cwd);
        assert!(!spec.cwd.split('/').any(|part| part == "..") && !spec.cwd.contains('\0'), "{:?}", spec.cwd);
    }
    if let Ok(spec) = (ExecutionRequest { collect: vec![text.clone()], ..request() }).validate(&policy) {
        let set = spec.collect.expect("one glob is a set");
        for name in ["a", "a/b.csv", "ä 表", ".hidden", text.as_str()] {
            // Whether it matches is a matter of taste; that it answers is not.
            set.is_match(name);
        }
    }
    let file = FileRequest { path: text.clone(), content: Some(String::new()), content_base64: None };
    let as_file = (ExecutionRequest { files: vec![file], ..request() }).validate(&policy).is_ok();
    assert_eq!(as_file, WorkspacePath::parse(&text).is_ok());
    if (ExecutionRequest { env: [(text.clone(), String::new())].into(), ..request() }).validate(&policy).is_ok() {
        assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{text:?}");
        assert!(text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit()), "{text:?}");
    }
}

/// How often a file's own name says `filename`, in both of its forms.
fn text_in_name(text: &str) -> usize {
    2 * text.rsplit('/').next().unwrap_or_default().matches("filename").count()
}
