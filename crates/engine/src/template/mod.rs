//! Templates: what code runs in and within which bounds, under a name, in versions that never change.
//!
//! ```text
//! TemplateSpec (as written) --Lineage: what it extends, field by field--> TemplateSpec (resolved) --> Template, valid inside
//! ```
//!
//! Everything here is pure. Where templates are kept, and that a version is never written twice, is the server's affair.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::image::DEFAULT_IMAGE;
use crate::spec::{FieldError, IsolationLevel, Language, LimitPolicy, LimitsRequest};

mod builtin;
mod lineage;
mod packages;

pub use builtin::{BuiltIn, built_in, built_ins, default_template};
pub use lineage::Lineage;
pub use packages::{Package, normalized};

/// Longest name of a template.
const MOST_NAME: usize = 63;
/// Longest description, in bytes.
const MOST_DESCRIPTION: usize = 4096;
/// Most packages, modules to preload, and languages.
const MOST_ENTRIES: usize = 200;
/// Most sandboxes that one template may have wait ready.
const MOST_READY: u32 = 1000;
/// The one network and the one policy there are.
const NETWORKS: [&str; 2] = ["none", "default"];
const POLICIES: [&str; 1] = [crate::spec::DEFAULT_POLICY];

/// Which of Python's builtin functions code gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Builtins {
    /// All of them.
    #[default]
    All,
    /// None that reads files, runs text as code or asks; `import` knows a list of modules. A convenience for callers that want plain calculations, no
    /// boundary: that is the sandbox.
    Restricted,
}

/// Sandboxes that wait ready for executions of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// At least so many wait when nothing is asked for; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ready: Option<u32>,
    /// At most so many wait, however much is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ready: Option<u32>,
}

/// A template as it is written. What is left out comes from the template that it extends, or else has the operator's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "reports", "extends": "default", "limits": {"memory_mb": 1024}, "timeout_ms": 120_000}))]
pub struct TemplateSpec {
    /// Its name: 1 to 63 lower-case letters, digits, `.`, `_` and `-`, the first a letter or a digit.
    #[schemars(regex(pattern = r"^[a-z0-9][a-z0-9._-]{0,62}$"))]
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub description: Option<String>,
    /// The template from which everything comes that is not said here: a name, or name@version. A name is taken for the version it has when this one is
    /// written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    /// Lowest isolation level; requests may ask for a higher one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<IsolationLevel>,
    /// Name of the image, as `fumehood image list` shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Python packages that its image must have: `numpy`, or `numpy==2.1.3`. Nothing is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub packages: Option<Vec<String>>,
    /// Limits of an execution, unless it asks for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsRequest>,
    /// Wall clock of a run, unless it asks for another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<i64>,
    /// Languages that it runs; all that its image has, by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub languages: Option<Vec<Language>>,
    /// Which network: `none` (as is `default`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Name of the policy: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Environment variables; a request's own come over them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Modules that its interpreters have loaded before the code comes; those of the node by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub preload: Option<Vec<String>>,
    /// Sandboxes that wait ready for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolSpec>,
    /// Programs can write nowhere: the workspace, temporary folders, home and `/dev/shm` are read-only. Files of the request are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Which of Python's builtin functions code gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub builtins: Option<Builtins>,
}

/// Which template, as a request names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TemplateRef {
    /// Its name.
    pub name: String,
    /// Which version; the newest without.
    pub version: Option<u32>,
}

impl TemplateRef {
    /// Reads `name` or `name@version`.
    ///
    /// # Errors
    /// A sentence on what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, version) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => {
                let number = version.parse::<u32>().ok().filter(|number| *number > 0 && number.to_string() == version);
                (
                    name,
                    Some(
                        number
                            .ok_or_else(|| format!("{text:?} has no version after the '@': a whole number from 1"))?,
                    ),
                )
            }
        };
        check_name(name).map_err(|_| format!("{text:?} is no name of a template, nor name@version"))?;
        Ok(Self { name: name.to_owned(), version })
    }
}

impl fmt::Display for TemplateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.version {
            Some(version) => write!(f, "{}@{version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'_' | b'-');
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if !begins || name.len() > MOST_NAME || !name.bytes().all(fits) {
        return Err(format!(
            "must be 1 to {MOST_NAME} lower-case letters, digits, '.', '_' and '-', the first a letter or a digit, got {name:?}"
        ));
    }
    if name == "schema" {
        // Where the schema is published.
        return Err("must not be \"schema\", which has another meaning in addresses".to_owned());
    }
    Ok(())
}

impl TemplateSpec {
    /// Checks what can be told from this alone, against the operator's limits.
    ///
    /// # Errors
    /// The first field that is wrong.
    pub fn check(&self, policy: &LimitPolicy) -> Result<(), FieldError> {
        check_name(&self.name).map_err(|message| FieldError::new("name", message))?;
        if self.description.as_ref().is_some_and(|text| text.len() > MOST_DESCRIPTION) {
            return Err(FieldError::new("description", format!("must have at most {MOST_DESCRIPTION} bytes")));
        }
        if let Some(extends) = self.extends()?
            && extends.name == self.name
        {
            return Err(FieldError::new("extends", "names the template itself"));
        }
        if let Some(image) = &self.image {
            crate::image::folder_of(std::path::Path::new(""), image)
                .map_err(|error| FieldError::new("image", error.to_string()))?;
        }
        few("packages", self.packages.as_deref())?;
        for (index, package) in self.packages.iter().flatten().enumerate() {
            Package::parse(package).map_err(|message| FieldError::new(format!("packages[{index}]"), message))?;
        }
        self.limits.clone().unwrap_or_default().check(policy)?;
        if let Some(timeout) = self.timeout_ms {
            let most = policy.max_timeout.as_millis();
            if u128::try_from(timeout).ok().is_none_or(|timeout| !(1..=most).contains(&timeout)) {
                return Err(FieldError::new("timeout_ms", format!("must be between 1 and {most}, got {timeout}")));
            }
        }
        if self.languages.as_ref().is_some_and(Vec::is_empty) {
            return Err(FieldError::new("languages", "must name at least one; leave it out for all"));
        }
        few("languages", self.languages.as_deref())?;
        one_of("network", self.network.as_deref(), &NETWORKS)?;
        one_of("policy", self.policy.as_deref(), &POLICIES)?;
        crate::spec::environment(self.env.clone().unwrap_or_default(), policy.max_env_bytes)?;
        few("preload", self.preload.as_deref())?;
        for (index, module) in self.preload.iter().flatten().enumerate() {
            if !is_module(module) {
                let message = format!("{module:?} is no name of a module, such as scipy.stats");
                return Err(FieldError::new(format!("preload[{index}]"), message));
            }
        }
        self.pool.unwrap_or_default().check()
    }

    /// What it extends, if anything.
    ///
    /// # Errors
    /// When that cannot be a template.
    pub fn extends(&self) -> Result<Option<TemplateRef>, FieldError> {
        let given = self.extends.as_deref().map(TemplateRef::parse).transpose();
        given.map_err(|message| FieldError::new("extends", message))
    }

    /// This with all that it leaves out taken from `base`: field by field, limits and pool one by one, environments together.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        let env = match (&base.env, self.env) {
            (Some(below), Some(own)) => Some(below.clone().into_iter().chain(own).collect()),
            (below, own) => own.or_else(|| below.clone()),
        };
        let limits = match (&base.limits, self.limits) {
            (Some(below), Some(own)) => Some(own.over(below)),
            (below, own) => own.or_else(|| below.clone()),
        };
        let pool = match (base.pool, self.pool) {
            (Some(below), Some(own)) => Some(PoolSpec {
                min_ready: own.min_ready.or(below.min_ready),
                max_ready: own.max_ready.or(below.max_ready),
            }),
            (below, own) => own.or(below),
        };
        Self {
            name: self.name,
            // What another template is for says nothing of this one.
            description: self.description,
            extends: self.extends,
            isolation: self.isolation.or(base.isolation),
            image: self.image.or_else(|| base.image.clone()),
            packages: self.packages.or_else(|| base.packages.clone()),
            limits,
            timeout_ms: self.timeout_ms.or(base.timeout_ms),
            languages: self.languages.or_else(|| base.languages.clone()),
            network: self.network.or_else(|| base.network.clone()),
            policy: self.policy.or_else(|| base.policy.clone()),
            env,
            preload: self.preload.or_else(|| base.preload.clone()),
            pool,
            read_only: self.read_only.or(base.read_only),
            builtins: self.builtins.or(base.builtins),
        }
    }
}

impl PoolSpec {
    fn check(self) -> Result<(), FieldError> {
        for (field, number) in [("pool.min_ready", self.min_ready), ("pool.max_ready", self.max_ready)] {
            if number.is_some_and(|number| number > MOST_READY) {
                return Err(FieldError::new(field, format!("must be at most {MOST_READY}")));
            }
        }
        match (self.min_ready, self.max_ready) {
            (Some(min), Some(max)) if min > max => {
                Err(FieldError::new("pool.min_ready", format!("must be at most pool.max_ready = {max}, got {min}")))
            }
            _ => Ok(()),
        }
    }
}

fn few<T>(field: &str, entries: Option<&[T]>) -> Result<(), FieldError> {
    let count = entries.map_or(0, <[T]>::len);
    if count > MOST_ENTRIES {
        return Err(FieldError::new(field, format!("has {count} entries; at most {MOST_ENTRIES} are accepted")));
    }
    Ok(())
}

fn one_of(field: &str, given: Option<&str>, known: &[&str]) -> Result<(), FieldError> {
    match given {
        Some(given) if !known.contains(&given) => {
            Err(FieldError::new(field, format!("{given:?} does not exist; there is {}", known.join(", "))))
        }
        _ => Ok(()),
    }
}

fn is_module(name: &str) -> bool {
    let part = |part: &str| {
        let begins = part.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
        begins && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    name.len() <= 200 && name.split('.').all(part)
}

/// What a sandbox is made from, apart from limits and environment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SandboxKind {
    /// The image; the node's own without.
    pub image: Option<String>,
    /// Modules its interpreter has loaded; those of the node without.
    pub preload: Option<Arc<[String]>>,
    /// Nothing in it can be written.
    pub read_only: bool,
    /// Python code gets the restricted builtins.
    pub restricted: bool,
}

/// One version of a template with all that it extends: valid inside.
#[derive(Debug, Clone, PartialEq)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Which version.
    pub version: u32,
    /// Lowest isolation level.
    pub isolation: IsolationLevel,
    /// What its sandboxes are made from.
    pub kind: SandboxKind,
    /// Packages that its image must have.
    pub packages: Vec<Package>,
    /// Limits in place of the operator's defaults.
    pub limits: LimitsRequest,
    /// In place of the operator's default.
    pub timeout_ms: Option<u64>,
    /// Languages that it runs; all without.
    pub languages: Option<Vec<Language>>,
    /// Its policy.
    pub policy: String,
    /// Environment of everything that runs in it.
    pub env: BTreeMap<String, String>,
    /// Sandboxes that wait ready for it.
    pub pool: PoolSpec,
}

impl Template {
    /// Version `version` of a template that extends nothing any more and passed [`TemplateSpec::check`].
    ///
    /// # Errors
    /// What such a check would have refused.
    pub fn new(spec: &TemplateSpec, version: u32) -> Result<Self, FieldError> {
        let packages = spec.packages.iter().flatten().enumerate().map(|(index, package)| {
            Package::parse(package).map_err(|message| FieldError::new(format!("packages[{index}]"), message))
        });
        Ok(Self {
            name: spec.name.clone(),
            version,
            isolation: spec.isolation.unwrap_or_default(),
            kind: SandboxKind {
                image: spec.image.clone().filter(|image| image != DEFAULT_IMAGE),
                preload: spec.preload.clone().map(Arc::from),
                read_only: spec.read_only.unwrap_or_default(),
                restricted: spec.builtins.unwrap_or_default() == Builtins::Restricted,
            },
            packages: packages.collect::<Result<_, _>>()?,
            limits: spec.limits.clone().unwrap_or_default(),
            timeout_ms: spec.timeout_ms.and_then(|timeout| u64::try_from(timeout).ok()),
            languages: spec.languages.clone(),
            policy: spec.policy.clone().unwrap_or_else(|| crate::spec::DEFAULT_POLICY.to_owned()),
            env: spec.env.clone().unwrap_or_default(),
            pool: spec.pool.unwrap_or_default(),
        })
    }

    /// `name@version`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }

    /// The operator's policy with what this says in place of the defaults. What it asks for above a maximum counts as the maximum, which the operator may
    /// have lowered since.
    #[must_use]
    pub fn policy_over(&self, policy: &LimitPolicy) -> LimitPolicy {
        let timeout = self.timeout_ms.map(std::time::Duration::from_millis);
        LimitPolicy {
            default: self.limits.as_defaults(policy),
            default_timeout: timeout.unwrap_or(policy.default_timeout).min(policy.max_timeout),
            ..policy.clone()
        }
    }

    /// Refuses a language that it does not run.
    ///
    /// # Errors
    /// The field, and what it runs instead.
    pub fn admits(&self, language: Language) -> Result<(), FieldError> {
        match &self.languages {
            Some(languages) if !languages.contains(&language) => {
                let known: Vec<_> = languages.iter().map(ToString::to_string).collect();
                let message = format!(
                    "template \"{}\" does not run {language}; it runs {}: say so in this field, or choose another template",
                    self.reference(),
                    known.join(", ")
                );
                Err(FieldError::new("language", message))
            }
            _ => Ok(()),
        }
    }
}

/// A version of a template as `GET /v1/templates/{name}` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TemplateInfo {
    /// Its name.
    pub name: String,
    /// Counts from 1 for each name.
    pub version: u32,
    /// It is part of this program: every tenant has it, nobody can change it.
    pub built_in: bool,
    /// When this version was made, RFC 3339 UTC.
    pub created_at: Option<String>,
    /// Who made it.
    pub created_by: Option<String>,
    /// What it says; with what it extends where that was asked for.
    pub spec: TemplateSpec,
}

/// The JSON Schema of [`TemplateSpec`].
#[must_use]
pub fn schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(TemplateSpec).to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert("title".to_owned(), "Fumehood template".into());
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut TemplateSpec)) -> String {
        let mut spec = TemplateSpec { name: "t".to_owned(), ..TemplateSpec::default() };
        change(&mut spec);
        spec.check(&LimitPolicy::default()).expect_err("must be refused").field
    }

    #[test]
    fn what_is_wrong_is_named() {
        for bad in ["", "A", "-a", "a b", "a@1", "a/b", "schema", &"a".repeat(64)] {
            assert_eq!(refused(|spec| bad.clone_into(&mut spec.name)), "name", "{bad:?}");
        }
        assert_eq!(refused(|spec| spec.extends = Some("t".to_owned())), "extends");
        assert_eq!(refused(|spec| spec.extends = Some("x@0".to_owned())), "extends");
        assert_eq!(refused(|spec| spec.extends = Some("x@01".to_owned())), "extends");
        assert_eq!(refused(|spec| spec.image = Some("../x".to_owned())), "image");
        assert_eq!(refused(|spec| spec.packages = Some(vec!["a".to_owned(), "b>1".to_owned()])), "packages[1]");
        assert_eq!(refused(|spec| spec.timeout_ms = Some(0)), "timeout_ms");
        assert_eq!(refused(|spec| spec.timeout_ms = Some(i64::MAX)), "timeout_ms");
        assert_eq!(refused(|spec| spec.languages = Some(Vec::new())), "languages");
        assert_eq!(refused(|spec| spec.network = Some("all".to_owned())), "network");
        assert_eq!(refused(|spec| spec.policy = Some("strict".to_owned())), "policy");
        assert_eq!(refused(|spec| spec.env = Some([("1A".to_owned(), String::new())].into())), "env");
        assert_eq!(refused(|spec| spec.preload = Some(vec!["os; import x".to_owned()])), "preload[0]");
        let limits = LimitsRequest { memory_mb: Some(1 << 40), ..LimitsRequest::default() };
        assert_eq!(refused(|spec| spec.limits = Some(limits)), "limits.memory_mb");
        let pool = PoolSpec { min_ready: Some(3), max_ready: Some(2) };
        assert_eq!(refused(|spec| spec.pool = Some(pool)), "pool.min_ready");
    }

    #[test]
    fn a_reference_has_one_form() {
        assert_eq!(TemplateRef::parse("a"), Ok(TemplateRef { name: "a".to_owned(), version: None }));
        assert_eq!(TemplateRef::parse("a@12").unwrap().to_string(), "a@12");
        for bad in ["", "@1", "a@", "a@0", "a@-1", "a@1@2", "a@+1", "a@1.0", "a@99999999999"] {
            assert!(TemplateRef::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_template_above_a_maximum_that_was_lowered_gets_the_maximum() {
        let limits = LimitsRequest { memory_mb: Some(100_000), ..LimitsRequest::default() };
        let spec = TemplateSpec {
            name: "t".to_owned(),
            limits: Some(limits),
            timeout_ms: Some(10_000_000),
            ..TemplateSpec::default()
        };
        let policy = LimitPolicy::default();
        let over = Template::new(&spec, 1).unwrap().policy_over(&policy);
        assert_eq!(over.default.memory_bytes, policy.max.memory_bytes);
        assert_eq!(over.default_timeout, policy.max_timeout);
    }

    #[test]
    fn the_schema_names_every_field() {
        let schema = schema();
        let spec = serde_json::to_value(TemplateSpec::default()).unwrap();
        assert!(spec.as_object().unwrap().keys().all(|field| schema["properties"][field].is_object()));
        assert_eq!(schema["required"], serde_json::json!(["name"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"].as_object().unwrap().len(), 16);
    }
}
