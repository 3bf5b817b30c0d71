//! Where values come from: layers over one another, each value with its source, and all that is wrong with them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde_json::{Map, Value};

use super::Config;
use super::reference::{PREFIX, SEPARATOR, keys};

/// A key whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Path of the key, or nothing when the source as a whole is at fault.
    pub(crate) key: String,
    /// What is wrong and what would be right.
    pub(crate) message: String,
    /// Where the value came from.
    pub(crate) source: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{} ({})", self.message, self.source)
    }
}

/// Every problem of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.0))]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

pub(super) fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// One tree of values, each with its source, and what was wrong on the way.
#[derive(Debug, Default)]
pub(super) struct Layers {
    tree: Map<String, Value>,
    sources: BTreeMap<String, String>,
    pub(super) problems: Vec<Problem>,
}

impl Layers {
    fn complain(&mut self, key: impl Into<String>, message: impl Into<String>, source: impl Into<String>) {
        self.problems.push(Problem { key: key.into(), message: message.into(), source: source.into() });
    }

    /// A problem with the value that a key has now.
    pub(super) fn refuse(&mut self, key: &str, message: impl Into<String>) {
        let source = self.source_of(key);
        self.complain(key, message, source);
    }

    fn source_of(&self, key: &str) -> String {
        let mut path = key;
        loop {
            if let Some(source) = self.sources.get(path) {
                return source.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return "default".to_owned(),
            }
        }
    }

    pub(super) fn add_file(&mut self, file: &Path) {
        let source = file.display().to_string();
        let format = match file.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => config::FileFormat::Toml,
            Some("yaml" | "yml") => config::FileFormat::Yaml,
            _ => return self.complain("", "must end in .toml, .yaml or .yml", source),
        };
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => return self.complain("", format!("cannot be read: {error}"), source),
        };
        let parsed = config::Config::builder().add_source(config::File::from_str(&text, format)).build();
        match parsed.and_then(config::Config::try_deserialize::<Map<String, Value>>) {
            Ok(tree) => {
                for (key, value) in tree {
                    self.merge(key, value, &source);
                }
            }
            Err(error) => {
                self.complain("", format!("cannot be read: {}", without_excerpt(&error.to_string())), source);
            }
        }
    }

    fn merge(&mut self, key: String, value: Value, source: &str) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    self.merge(format!("{key}.{name}"), value, source);
                }
            }
            // A section that is there but empty.
            Value::Null | Value::Object(_) => {}
            value => self.set(&key, value, source.to_owned()),
        }
    }

    pub(super) fn add_variable(&mut self, name: &str, value: &str) {
        let Some(rest) = name.strip_prefix(PREFIX) else { return };
        let source = format!("environment variable {name}");
        let Some(key) = keys().into_iter().find(|key| key.variable() == name) else {
            // Clients have variables of their own (FUMEHOOD_URL); only a nested name can be meant for the server.
            if rest.contains(SEPARATOR) {
                self.complain(rest.to_ascii_lowercase().replace(SEPARATOR, "."), "no such key", source);
            }
            return;
        };
        match key.parse(value) {
            Some(value) => self.set(&key.path, value, source),
            None => self.complain(key.path, format!("must be {}", key.kind), source),
        }
    }

    pub(super) fn set(&mut self, key: &str, value: Value, source: String) {
        self.sources.insert(key.to_owned(), source);
        let mut parts: Vec<&str> = key.split('.').collect();
        let Some(last) = parts.pop() else { return };
        let mut section = &mut self.tree;
        for part in parts {
            let inner = section.entry(part).or_insert_with(|| Value::Object(Map::new()));
            if !inner.is_object() {
                *inner = Value::Object(Map::new());
            }
            let Value::Object(inner) = inner else { return };
            section = inner;
        }
        section.insert(last.to_owned(), value);
    }

    /// Reads the tree; each value that cannot be used is a problem and gives way to its default.
    pub(super) fn read(&mut self) -> Config {
        loop {
            match serde_path_to_error::deserialize::<_, Config>(Value::Object(self.tree.clone())) {
                Ok(config) => return config,
                Err(error) => {
                    let key = error.path().to_string();
                    // Serde would say what is there instead.
                    let message = if key.starts_with(KEYS) {
                        "must be a list of keys, each a text".to_owned()
                    } else {
                        error.into_inner().to_string()
                    };
                    self.refuse(&key, message);
                    if !remove(&mut self.tree, &key) {
                        return Config::default();
                    }
                }
            }
        }
    }
}

/// Where values are secret.
const KEYS: &str = "server.api_keys";

/// What a parser says of a text without the lines that it shows of it: there may be a key in them.
fn without_excerpt(message: &str) -> String {
    let excerpt =
        |line: &&str| line.trim_start_matches([' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']).starts_with('|');
    message.lines().filter(|line| !excerpt(line)).collect::<Vec<_>>().join(": ")
}

/// Takes the value at `key` (or the list that holds it) out of the tree.
fn remove(tree: &mut Map<String, Value>, key: &str) -> bool {
    let key = key.split('[').next().unwrap_or(key);
    match key.split_once('.') {
        None => tree.remove(key).is_some(),
        Some((section, rest)) => match tree.get_mut(section) {
            Some(Value::Object(section)) => remove(section, rest),
            _ => tree.remove(section).is_some(),
        },
    }
}
