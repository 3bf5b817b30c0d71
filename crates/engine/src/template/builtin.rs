//! Templates that are part of this program: every tenant sees them, nobody can change them. Who wants something else makes one that extends it.
//!
//! A change to one of them is another version; none was made since the first.

use std::sync::{Arc, OnceLock};

use super::{Builtins, Lineage, Template, TemplateRef, TemplateSpec};
use crate::spec::{DEFAULT_TEMPLATE, Language, LimitsRequest};

/// A template that is part of this program.
#[derive(Debug)]
pub struct BuiltIn {
    /// As it would be written.
    pub spec: TemplateSpec,
    /// With what it extends.
    pub resolved: TemplateSpec,
    /// Valid.
    pub template: Arc<Template>,
}

const VERSION: u32 = 1;

fn specs() -> Vec<TemplateSpec> {
    let spec = |name: &str, description: &str| TemplateSpec {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        ..TemplateSpec::default()
    };
    let limits = |memory_mb, cpu, processes| LimitsRequest {
        memory_mb: Some(memory_mb),
        cpu: Some(cpu),
        processes: Some(processes),
        ..LimitsRequest::default()
    };
    vec![
        spec(DEFAULT_TEMPLATE, "What the operator has configured, with nothing added"),
        TemplateSpec {
            extends: Some(DEFAULT_TEMPLATE.to_owned()),
            packages: Some(["numpy", "pandas", "matplotlib"].map(str::to_owned).into()),
            limits: Some(LimitsRequest { disk_mb: Some(512), ..limits(2048, 1.0, 128) }),
            timeout_ms: Some(60_000),
            languages: Some(vec![Language::Python]),
            ..spec("data-analysis", "Tables and figures in Python: more memory and time than usual")
        },
        TemplateSpec {
            extends: Some(DEFAULT_TEMPLATE.to_owned()),
            limits: Some(LimitsRequest { disk_mb: Some(16), ..limits(256, 0.5, 32) }),
            timeout_ms: Some(30_000),
            languages: Some(vec![Language::Python]),
            read_only: Some(true),
            builtins: Some(Builtins::Restricted),
            ..spec("calculator", "Plain calculations in Python: nothing can be written, few builtins and modules")
        },
        TemplateSpec {
            extends: Some(DEFAULT_TEMPLATE.to_owned()),
            limits: Some(LimitsRequest { disk_mb: Some(64), ..limits(100, 1.0, 64) }),
            timeout_ms: Some(180_000),
            languages: Some(vec![Language::Python]),
            ..spec("function", "One function in Python, handler(input), with little memory and three minutes")
        },
        TemplateSpec {
            extends: Some(DEFAULT_TEMPLATE.to_owned()),
            languages: Some(vec![Language::Bash, Language::Command]),
            ..spec("shell", "Scripts for bash, and programs of the image")
        },
        TemplateSpec {
            extends: Some(DEFAULT_TEMPLATE.to_owned()),
            languages: Some(vec![Language::Javascript, Language::Typescript]),
            ..spec("node", "JavaScript and TypeScript on Node.js, where the image has it")
        },
    ]
}

/// All of them.
pub fn built_ins() -> &'static [BuiltIn] {
    static ALL: OnceLock<Vec<BuiltIn>> = OnceLock::new();
    ALL.get_or_init(|| {
        let specs = specs();
        let whole = |spec: &TemplateSpec| {
            let mut lineage = Lineage::of(spec.clone(), VERSION);
            while let Ok(Some(wanted)) = lineage.wanted() {
                let Some(base) = specs.iter().find(|base| base.name == wanted.name) else { break };
                lineage.push(base.clone(), VERSION);
            }
            let (resolved, _) = lineage.resolved();
            let template = Template::new(&resolved, VERSION).ok()?;
            Some(BuiltIn { spec: spec.clone(), resolved, template: Arc::new(template) })
        };
        specs.iter().filter_map(whole).collect()
    })
}

/// The one of this name and, where one is named, this version.
#[must_use]
pub fn built_in(wanted: &TemplateRef) -> Option<&'static BuiltIn> {
    let of_this_version = wanted.version.is_none_or(|version| version == VERSION);
    built_ins().iter().find(|one| one.spec.name == wanted.name && of_this_version)
}

/// The template of whoever names none.
#[must_use]
pub fn default_template() -> Arc<Template> {
    let wanted = TemplateRef { name: DEFAULT_TEMPLATE.to_owned(), version: None };
    let plain = || {
        Arc::new(
            Template::new(&TemplateSpec::default(), VERSION).unwrap_or_else(|_| unreachable!("it asks for nothing")),
        )
    };
    built_in(&wanted).map_or_else(plain, |one| Arc::clone(&one.template))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::LimitPolicy;

    #[test]
    fn each_is_valid_and_there() {
        let names: Vec<_> = built_ins().iter().map(|one| one.spec.name.as_str()).collect();
        assert_eq!(names, ["default", "data-analysis", "calculator", "function", "shell", "node"]);
        for one in built_ins() {
            one.spec.check(&LimitPolicy::default()).unwrap();
            one.resolved.check(&LimitPolicy::default()).unwrap();
        }
        assert_eq!(default_template().reference(), "default@1");
    }

    #[test]
    fn they_say_what_was_promised_of_them() {
        let find = |name: &str| &built_in(&TemplateRef::parse(name).unwrap()).unwrap().template;
        let calculator = find("calculator");
        assert_eq!((calculator.limits.memory_mb, calculator.limits.cpu), (Some(256), Some(0.5)));
        assert!(calculator.kind.read_only && calculator.kind.restricted);
        let function = find("function@1");
        assert_eq!((function.limits.memory_mb, function.limits.cpu), (Some(100), Some(1.0)));
        assert_eq!(function.timeout_ms, Some(180_000));
        assert!(built_in(&TemplateRef::parse("function@2").unwrap()).is_none());
    }
}
