//! Templates as files: YAML, one or several documents in a file, files in a folder.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fumehood_engine::template::TemplateSpec;
use serde_json::{Map, Number, Value};
use yaml_rust2::yaml::Hash;
use yaml_rust2::{Yaml, YamlEmitter, YamlLoader};

/// Largest file that is read.
const MOST_BYTES: u64 = 1 << 20;
/// How names of files with templates end. JSON is YAML too.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// A template that was read.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) spec: TemplateSpec,
    /// Where it stands, for people.
    pub(crate) source: String,
}

/// The templates of a file, or of all files directly in a folder, each after those that it extends.
///
/// # Errors
/// The file, and the field that is wrong in it.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Found>> {
    let files = if path.is_dir() { files_of(path)? } else { vec![path.to_owned()] };
    let mut all: Vec<Found> = Vec::new();
    for file in files {
        for found in read_file(&file)? {
            if let Some(before) = all.iter().find(|before| before.spec.name == found.spec.name) {
                bail!("{}: name: {:?} is that of the template in {} too", found.source, found.spec.name, before.source);
            }
            all.push(found);
        }
    }
    in_order(all)
}

fn files_of(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read the folder {}", folder.display()))?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if ENDINGS.contains(&ending) && !hidden {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(file: &Path) -> anyhow::Result<Vec<Found>> {
    let name = file.display();
    let size = file.metadata().with_context(|| format!("cannot read {name}"))?.len();
    if size > MOST_BYTES {
        bail!("{name}: has {size} bytes; at most {MOST_BYTES} are read");
    }
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    let documents = YamlLoader::load_from_str(&text).with_context(|| format!("{name}: is no YAML"))?;
    let several = documents.len() > 1;
    let mut all = Vec::new();
    for (index, document) in documents.iter().enumerate().filter(|(_, document)| !document.is_null()) {
        let source = if several { format!("{name}, document {}", index + 1) } else { name.to_string() };
        let value = to_json(document).map_err(|why| anyhow::anyhow!("{source}: {why}"))?;
        if !value.is_object() {
            bail!("{source}: must be a template: a mapping with a 'name'");
        }
        let spec = serde_path_to_error::deserialize(value).map_err(|error| match error.path().to_string() {
            path if path == "." => anyhow::anyhow!("{source}: {}", error.inner()),
            path => anyhow::anyhow!("{source}: {path}: {}", error.inner()),
        })?;
        all.push(Found { spec, source });
    }
    Ok(all)
}

/// Each after those that it extends, otherwise as they were.
fn in_order(mut left: Vec<Found>) -> anyhow::Result<Vec<Found>> {
    let mut ordered = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waiting: BTreeSet<String> = left.iter().map(|found| found.spec.name.clone()).collect();
        let (ready, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|found| {
            let base = found.spec.extends.as_deref().map(|base| base.split('@').next().unwrap_or(base));
            base.is_none_or(|base| !waiting.contains(base))
        });
        if ready.is_empty() {
            let names: Vec<_> = rest.iter().map(|found| found.spec.name.as_str()).collect();
            bail!("{}: extends: goes round in a circle among {}", rest[0].source, names.join(", "));
        }
        ordered.extend(ready);
        left = rest;
    }
    Ok(ordered)
}

fn to_json(yaml: &Yaml) -> Result<Value, String> {
    Ok(match yaml {
        Yaml::Null => Value::Null,
        Yaml::Boolean(said) => Value::Bool(*said),
        Yaml::Integer(number) => Value::from(*number),
        Yaml::Real(text) => {
            let number = text.parse().ok().and_then(Number::from_f64);
            Value::Number(number.ok_or_else(|| format!("{text:?} is no number that can be used here"))?)
        }
        Yaml::String(text) => Value::String(text.clone()),
        Yaml::Array(entries) => Value::Array(entries.iter().map(to_json).collect::<Result<_, _>>()?),
        Yaml::Hash(fields) => {
            let mut object = Map::new();
            for (name, value) in fields {
                let Yaml::String(name) = name else {
                    return Err(format!("the name of a field must be text, got {name:?}; put it into quotes"));
                };
                object.insert(name.clone(), to_json(value)?);
            }
            Value::Object(object)
        }
        Yaml::Alias(_) | Yaml::BadValue => return Err("holds something that cannot be read".to_owned()),
    })
}

fn to_yaml(value: &Value) -> Yaml {
    match value {
        Value::Null => Yaml::Null,
        Value::Bool(said) => Yaml::Boolean(*said),
        Value::Number(number) => number.as_i64().map_or_else(|| Yaml::Real(number.to_string()), Yaml::Integer),
        Value::String(text) => Yaml::String(text.clone()),
        Value::Array(entries) => Yaml::Array(entries.iter().map(to_yaml).collect()),
        Value::Object(fields) => {
            let pairs = fields.iter().map(|(name, value)| (Yaml::String(name.clone()), to_yaml(value)));
            Yaml::Hash(pairs.collect::<Hash>())
        }
    }
}

/// A template as a file would say it.
pub(crate) fn as_yaml(spec: &TemplateSpec) -> String {
    let mut text = String::new();
    let yaml = to_yaml(&serde_json::to_value(spec).unwrap_or_default());
    if YamlEmitter::new(&mut text).dump(&yaml).is_err() {
        return serde_json::to_string_pretty(spec).unwrap_or_default() + "\n";
    }
    text.trim_start_matches("---\n").to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_texts(files: &[(&str, &str)]) -> anyhow::Result<Vec<Found>> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        read(folder.path())
    }

    #[test]
    fn a_folder_is_read_in_the_order_in_which_templates_need_each_other() {
        let found = read_texts(&[
            ("a.yaml", "name: a\nextends: b\n---\nname: c\nenv: {X: '1'}\n"),
            ("b.yml", "name: b\nextends: default\nlimits:\n  cpu: 0.5\n  memory_mb: 64\n"),
            ("z.json", "{\"name\": \"z\", \"read_only\": true}"),
            ("notes.txt", "not: [read"),
        ])
        .unwrap();
        let names: Vec<_> = found.iter().map(|found| found.spec.name.as_str()).collect();
        assert_eq!(names, ["c", "b", "z", "a"]);
        assert_eq!(found[1].spec.limits.as_ref().unwrap().cpu, Some(0.5));
    }

    #[test]
    fn what_is_wrong_is_told_with_file_and_field() {
        for (text, told) in [
            ("name: a\nlimits: {memory: 5}\n", "a.yaml: limits.memory: unknown field"),
            ("name: a\n---\ntimeout_ms: 5\n", "a.yaml, document 2: missing field `name`"),
            ("name: a\ntimeout_ms: soon\n", "a.yaml: timeout_ms: invalid type"),
            ("name: a\nenv: {1: x}\n", "a.yaml: the name of a field"),
            ("- name: a\n", "a.yaml: must be a template"),
            ("name: [", "a.yaml: is no YAML"),
            ("name: a\nextends: b\n---\nname: b\nextends: a@3\n", "goes round in a circle among a, b"),
            ("name: a\n---\nname: a\n", "document 2: name: \"a\" is that of"),
        ] {
            let error = format!("{:#}", read_texts(&[("a.yaml", text)]).unwrap_err());
            assert!(error.contains(told), "{text:?}: {error}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        let text = "name: a\ndescription: |-\n  yes: it is\n  two lines\ntimeout_ms: 5\nlimits:\n  cpu: 0.25\nenv:\n  A: \"1\"\n  B: \"true\"\n";
        let found = read_texts(&[("a.yaml", text)]).unwrap();
        let again = read_texts(&[("a.yaml", &as_yaml(&found[0].spec))]).unwrap();
        assert_eq!(found[0].spec, again[0].spec);
    }
}
