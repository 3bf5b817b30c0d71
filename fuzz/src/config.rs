use std::time::Duration;

use fumehood::fuzzing::configure;

use crate::Source;

/// A key that appears nowhere else.
const KEY: &str = "hush!quartz";

/// The places in which an operator may put keys, rightly or not.
const WITH_KEYS: [&str; 9] = [
    "[server]\napi_keys = [\"KEY\"]\n",
    "[server]\napi_keys = \"KEY\"\n",
    "[server]\napi_keys = [[\"KEY\"]]\n",
    "[server]\napi_keys = [1, \"KEY\"]\n",
    "[server]\napi_keys = { a = \"KEY\" }\n",
    "[server]\napi_keys = [\"sha256:KEY\"]\n",
    "[server]\napi_keys = [KEY]\n",
    "[server]\napi_keys = [\"KEY\"\n",
    "[server.api_keys]\nKEY = 1\n",
];

/// A configuration: refused with all that is wrong, or accepted and then fit to start with; and keys are never shown.
pub fn config(data: &[u8]) {
    let mut source = Source::new(data);
    let yaml = source.byte() & 1 != 0;
    let keys = usize::from(source.byte()) % (WITH_KEYS.len() * 2);
    let mut environment = vec![("HOME".to_owned(), "/home/user".to_owned())];
    let variables = source.byte() % 4;
    for _ in 0..variables {
        environment.push((format!("FUMEHOOD_{}", source.text()), source.text()));
    }
    let mut text = String::from_utf8_lossy(source.rest()).into_owned();
    // What is made up may not say the key by itself.
    let secret = !text.contains(KEY) && !yaml;
    if let Some(keys) = WITH_KEYS.get(keys).filter(|_| secret) {
        text = format!("{text}\n{}", keys.replace("KEY", KEY));
    }
    let file = tempfile::Builder::new().suffix(if yaml { ".yaml" } else { ".toml" }).tempfile().expect("a file");
    std::fs::write(file.path(), &text).expect("it is written");

    match configure(file.path(), environment) {
        Err(problems) => {
            assert!(!problems.is_empty());
            assert!(!(secret && problems.contains(KEY)), "{problems}");
        }
        Ok(configured) => {
            assert!(configured.ordinary.is_ok(), "{:?}", configured.ordinary);
            assert!(!configured.open_without_key);
            assert!(!(secret && configured.debug.contains(KEY)), "{}", configured.debug);
            let (default, max) = (&configured.policy.default, &configured.policy.max);
            assert!(default.memory_bytes > 0 && default.memory_bytes <= max.memory_bytes);
            assert!(default.processes > 0 && default.processes <= max.processes);
            assert!(default.disk_bytes > 0 && default.disk_bytes <= max.disk_bytes);
            assert!(default.file_size_bytes > 0 && default.file_size_bytes <= max.file_size_bytes);
            assert!(default.output_bytes > 0 && default.output_bytes <= max.output_bytes);
            assert!(default.open_files > 0 && default.open_files <= max.open_files);
            assert!(default.cpu >= 0.01 && default.cpu <= max.cpu && max.cpu.is_finite());
            assert!(configured.policy.default_timeout >= Duration::from_secs(1));
            assert!(configured.policy.default_timeout <= configured.policy.max_timeout);
            assert!(configured.policy.max_code_bytes > 0);
        }
    }
}
