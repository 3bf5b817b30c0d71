//! The pools of a node: its own, and one for each template in use that asks for sandboxes that wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::backend::{Backend, Sandbox};
use crate::pool::{Busy, Pool, PoolConfig, PoolStatus};
use crate::spec::{ExecutionRequest, ExecutionSpec, Language, LimitPolicy};
use crate::template::Template;

/// Most pools of templates at once.
const MOST: usize = 16;
/// The pool of a template that nobody used for so long ends.
const UNUSED: Duration = Duration::from_secs(3600);

/// All pools.
pub(crate) struct Pools {
    own: Option<Arc<Pool>>,
    /// What the operator has configured; `None` where nothing is to wait.
    config: Option<PoolConfig>,
    backend: Arc<dyn Backend>,
    /// By name and version.
    others: Mutex<BTreeMap<String, Arc<Pool>>>,
}

impl Pools {
    /// Starts the own one. Must be called on a tokio runtime when there is to be one.
    pub(crate) fn start(config: Option<PoolConfig>, backend: Arc<dyn Backend>) -> Self {
        let own = config.clone().map(|config| Pool::start(config, Arc::clone(&backend)));
        Self { own, config, backend, others: Mutex::default() }
    }

    /// As [`Pool::claim`], from the pool of the execution's template if there is one.
    pub(crate) fn claim(&self, spec: &ExecutionSpec) -> Option<(Option<Sandbox>, Busy)> {
        let of_template = self.others.lock().get(&spec.template).cloned();
        of_template.and_then(|pool| pool.claim(spec)).or_else(|| self.own.as_ref()?.claim(spec))
    }

    /// Has sandboxes wait for a template, if it asks for any and the operator lets it. Its earlier versions have none from now on.
    pub(crate) fn keep_ready(&self, template: &Template, policy: &LimitPolicy) {
        let Some(config) = &self.config else { return };
        let reference = template.reference();
        let mut others = self.others.lock();
        if let Some(pool) = others.get(&reference).filter(|pool| !pool.is_closed()) {
            pool.touch();
            return;
        }
        let wanted = template.pool.min_ready.unwrap_or_default() as usize;
        if wanted == 0 || template.admits(Language::Python).is_err() {
            return;
        }
        let older = |other: &str| {
            let (name, version) = other.split_once('@').unwrap_or((other, "0"));
            name == template.name && version.parse::<u32>().is_ok_and(|version| version < template.version)
        };
        others.retain(|other, pool| {
            if older(other) {
                pool.close();
            }
            !pool.is_closed()
        });
        if others.len() >= MOST {
            tracing::warn!(
                template = reference,
                "no sandboxes wait for this template: {MOST} others have some already"
            );
            return;
        }
        let Ok(recipe) = ExecutionRequest::new("").validate_as(template, policy) else { return };
        let min_ready = wanted.min(config.max_ready);
        let most = template.pool.max_ready.map_or(config.max_ready, |most| (most as usize).min(config.max_ready));
        let config =
            PoolConfig { recipe, min_ready, max_ready: most.max(min_ready), unused: Some(UNUSED), ..config.clone() };
        tracing::info!(template = reference, min_ready, "sandboxes wait ready for a template");
        others.insert(reference, Pool::start(config, Arc::clone(&self.backend)));
    }

    /// The own one now.
    pub(crate) fn status(&self) -> PoolStatus {
        self.own.as_ref().map(|pool| pool.status()).unwrap_or_default()
    }

    /// Those of templates, by name and version.
    pub(crate) fn of_templates(&self) -> Vec<(String, PoolStatus)> {
        let others = self.others.lock();
        let open = others.iter().filter(|(_, pool)| !pool.is_closed());
        open.map(|(template, pool)| (template.clone(), pool.status())).collect()
    }

    /// Ends what waits and starts no more.
    pub(crate) fn close(&self) {
        self.own.iter().for_each(|pool| pool.close());
        self.others.lock().values().for_each(|pool| pool.close());
    }
}
