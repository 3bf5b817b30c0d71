use std::fmt::Debug;
use std::time::Duration;

use fumehood_engine::spec::{ExecutionSpec, FieldError, LimitPolicy, Limits};
use fumehood_server::fuzzing::{ask, exec, execution, session};

use crate::Source;

/// A body of a request: refused with a field and a sentence, or accepted within every bound, and then the same when it is written and read again.
pub fn bodies(data: &[u8]) {
    let mut source = Source::new(data);
    let kind = source.byte();
    let body = source.rest();
    let policy = LimitPolicy::default();
    match kind % 5 {
        0 => {
            let Some(request) = told(execution(body)) else { return };
            let spec = told(request.clone().validate(&policy));
            if let Some(spec) = &spec {
                within(spec, &policy);
            }
            let written = serde_json::to_vec(&request).expect("a request can be written");
            let again = execution(&written).expect("what was written can be read").validate(&policy);
            assert_eq!(spec.is_some(), again.is_ok());
            if let (Some(spec), Ok(again)) = (spec, again) {
                assert_eq!(comparable(spec), comparable(again));
            }
        }
        1 => {
            let Some(spec) = told(session(body)).and_then(|request| told(request.validate(&policy))) else { return };
            within(&spec.base, &policy);
            let week = Duration::from_secs(7 * 24 * 3600);
            for time in [spec.idle_timeout, spec.ttl] {
                assert!(time >= Duration::from_secs(1) && time <= week, "{time:?}");
            }
            // An execution in it that says nothing gets what it has.
            let inside =
                execution(b"{\"code\": \"1\"}").expect("a body").validate_within(&spec, &policy).expect("an execution");
            assert_eq!(Limits { output_bytes: 0, ..inside.limits }, Limits { output_bytes: 0, ..spec.base.limits });
        }
        2 => {
            if let Some(spec) = told(exec(body, &policy)) {
                within(&spec, &policy);
            }
        }
        3 => {
            told(ask(body));
        }
        _ => {
            // In a session: what is accepted has the session's limits.
            let open =
                session(b"{\"limits\": {\"memory_mb\": 64}}").expect("a body").validate(&policy).expect("a session");
            let Some(request) = told(execution(body)) else { return };
            if let Some(spec) = told(request.validate_within(&open, &policy)) {
                assert_eq!(spec.limits.memory_bytes, 64 << 20);
                within(&ExecutionSpec { cwd: "/data".to_owned(), ..spec }, &policy);
            }
        }
    }
}

/// A refusal names a field and says something; accepted values are passed on.
fn told<T>(result: Result<T, FieldError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(FieldError { field, message }) => {
            assert!(!field.is_empty() && !message.is_empty());
            None
        }
    }
}

fn within(spec: &ExecutionSpec, policy: &LimitPolicy) {
    fn between<T: PartialOrd + Debug>(value: T, least: T, most: T) {
        assert!(value >= least && value <= most, "{value:?} is not between {least:?} and {most:?}");
    }
    let (limits, max) = (&spec.limits, &policy.max);
    between(spec.timeout, Duration::from_millis(1), policy.max_timeout);
    between(limits.memory_bytes, 16 << 20, max.memory_bytes);
    between(limits.cpu, 0.01, max.cpu);
    between(limits.processes, 1, max.processes);
    between(limits.disk_bytes, 1 << 20, max.disk_bytes);
    between(limits.file_size_bytes, 1 << 20, limits.disk_bytes);
    between(limits.open_files, 16, max.open_files);
    between(limits.output_bytes, 1024, max.output_bytes);
    between(spec.preview_rows, 0, 500);
    assert!(spec.code.len() <= policy.max_code_bytes && spec.files.len() <= policy.max_files);
    let environment: usize = spec.env.iter().map(|(name, value)| name.len() + value.len()).sum();
    assert!(environment <= policy.max_env_bytes);
    assert!(spec.env.iter().all(|(name, value)| !name.contains(['=', '\0']) && !value.contains('\0')));
    assert!(spec.argv.iter().all(|argument| !argument.contains('\0')));
    assert!(spec.files.iter().map(|file| file.content.len() as u64).sum::<u64>() <= limits.disk_bytes);
    let roots = ["/data", "/workspace", "/mnt/data", "/tmp", "/home/sandbox"];
    assert!(roots.iter().any(|root| spec.cwd.starts_with(root)) && !spec.cwd.contains("/../"));
}

/// Without numbers that are no integers: read again, their last digit may be another.
fn comparable(spec: ExecutionSpec) -> String {
    format!("{:?}", ExecutionSpec { input: None, limits: Limits { cpu: 1.0, ..spec.limits }, ..spec })
}
