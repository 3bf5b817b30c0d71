//! A template and what it extends, up to the first that extends nothing.

use super::{Template, TemplateRef, TemplateSpec};
use crate::spec::FieldError;

/// Most templates that extend each other, the first included.
const DEEPEST: usize = 8;

/// Gathers a template and its ancestors: [`Self::wanted`] says which to look up next, [`Self::push`] takes it, until there is none.
#[derive(Debug, Clone)]
pub struct Lineage {
    /// Each with the version it has; the youngest first.
    chain: Vec<(TemplateSpec, u32)>,
}

impl Lineage {
    /// Of this template, whose version is or will be `version`.
    #[must_use]
    pub fn of(spec: TemplateSpec, version: u32) -> Self {
        Self { chain: vec![(spec, version)] }
    }

    /// The ancestor to look up next.
    ///
    /// # Errors
    /// When they go round in a circle, or there are too many of them.
    pub fn wanted(&self) -> Result<Option<TemplateRef>, FieldError> {
        let Some(next) = self.chain.last().map(|(spec, _)| spec.extends()).transpose()?.flatten() else {
            return Ok(None);
        };
        let path = |end: &TemplateRef| {
            let names = self.chain.iter().map(|(spec, _)| spec.name.as_str());
            names.chain([end.name.as_str()]).collect::<Vec<_>>().join(" -> ")
        };
        // A name may come again in another version, as long as that is an earlier one: then it ends.
        let again = |(spec, version): &(TemplateSpec, u32)| {
            spec.name == next.name && next.version.is_none_or(|wanted| wanted >= *version)
        };
        if self.chain.iter().any(again) {
            return Err(FieldError::new("extends", format!("goes round in a circle: {}", path(&next))));
        }
        if self.chain.len() >= DEEPEST {
            let message = format!("is deeper than {DEEPEST} templates: {}", path(&next));
            return Err(FieldError::new("extends", message));
        }
        Ok(Some(next))
    }

    /// The ancestor that was wanted.
    pub fn push(&mut self, spec: TemplateSpec, version: u32) {
        self.chain.push((spec, version));
    }

    /// The first template with everything that it inherits, and its version.
    #[must_use]
    pub fn resolved(&self) -> (TemplateSpec, u32) {
        let mut ancestors = self.chain.iter().rev();
        let Some((oldest, version)) = ancestors.next() else { return Default::default() };
        let (whole, version) = ancestors
            .fold((oldest.clone(), *version), |(base, _), (spec, version)| (spec.clone().over(&base), *version));
        (whole, version)
    }

    /// The same, valid.
    ///
    /// # Errors
    /// What [`TemplateSpec::check`] would have refused.
    pub fn template(&self) -> Result<Template, FieldError> {
        let (spec, version) = self.resolved();
        Template::new(&spec, version)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::spec::LimitsRequest;

    fn spec(name: &str, extends: Option<&str>) -> TemplateSpec {
        TemplateSpec { name: name.to_owned(), extends: extends.map(str::to_owned), ..TemplateSpec::default() }
    }

    #[test]
    fn a_circle_is_named() {
        let mut lineage = Lineage::of(spec("a", Some("b")), 1);
        assert_eq!(lineage.wanted().unwrap().unwrap().name, "b");
        lineage.push(spec("b", Some("c")), 1);
        lineage.push(spec("c", Some("a")), 1);
        let error = lineage.wanted().unwrap_err();
        assert_eq!(error.field, "extends");
        assert!(error.message.contains("a -> b -> c -> a"), "{}", error.message);
    }

    #[test]
    fn an_earlier_version_of_a_name_is_no_circle() {
        let mut lineage = Lineage::of(spec("a", Some("b@1")), 2);
        lineage.push(spec("b", Some("a@1")), 1);
        assert_eq!(lineage.wanted().unwrap().unwrap().to_string(), "a@1");
        lineage.push(spec("a", None), 1);
        assert_eq!(lineage.wanted().unwrap(), None);
    }

    #[test]
    fn depth_has_an_end() {
        let mut lineage = Lineage::of(spec("t0", Some("t1")), 1);
        let mut index = 1;
        while let Ok(Some(next)) = lineage.wanted() {
            index += 1;
            lineage.push(spec(&next.name, Some(&format!("t{index}"))), 1);
        }
        assert!(lineage.wanted().unwrap_err().message.contains("deeper than 8"));
    }

    fn any_spec() -> impl Strategy<Value = TemplateSpec> {
        let limits = (proptest::option::of(16..1000_i64), proptest::option::of(1..100_i64))
            .prop_map(|(memory_mb, processes)| LimitsRequest { memory_mb, processes, ..LimitsRequest::default() });
        (
            proptest::option::of(limits),
            proptest::option::of(1..100_000_i64),
            proptest::option::of(proptest::collection::btree_map("[A-C]", "[a-z]", 0..3)),
            proptest::option::of(any::<bool>()),
        )
            .prop_map(|(limits, timeout_ms, env, read_only)| TemplateSpec {
                name: "t".to_owned(),
                limits,
                timeout_ms,
                env,
                read_only,
                ..TemplateSpec::default()
            })
    }

    fn env_of(spec: &TemplateSpec) -> BTreeMap<String, String> {
        spec.env.clone().unwrap_or_default()
    }

    proptest! {
        #[test]
        fn the_younger_wins_field_by_field(child in any_spec(), parent in any_spec()) {
            let whole = child.clone().over(&parent);
            prop_assert_eq!(whole.timeout_ms, child.timeout_ms.or(parent.timeout_ms));
            prop_assert_eq!(whole.read_only, child.read_only.or(parent.read_only));
            let memory = |spec: &TemplateSpec| spec.limits.as_ref().and_then(|limits| limits.memory_mb);
            prop_assert_eq!(memory(&whole), memory(&child).or(memory(&parent)));
            let mut env = env_of(&parent);
            env.extend(env_of(&child));
            prop_assert_eq!(env_of(&whole), env);
        }

        #[test]
        fn it_does_not_matter_in_which_order_a_chain_is_merged(a in any_spec(), b in any_spec(), c in any_spec()) {
            prop_assert_eq!(a.clone().over(&b.clone().over(&c)), a.over(&b).over(&c));
        }

        #[test]
        fn nothing_over_anything_is_that(parent in any_spec()) {
            let whole = spec("t", None).over(&parent);
            prop_assert_eq!(whole, parent);
        }
    }
}
