//! Templates by name: the built-in ones, and those of the tenant in the store.
//!
//! An execution that names a template costs no look into the database as long as that template was looked up a moment ago: what is written here is known
//! here at once, what another server writes within seconds. A version never changes, so what may be late is only which version is the newest, and
//! that a name was deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fumehood_engine::Engine;
use fumehood_engine::clock::stamp_of;
use fumehood_engine::ids::TenantId;
use fumehood_engine::spec::{FieldError, LimitPolicy};
use fumehood_engine::template::{
    BuiltIn, Lineage, Template, TemplateInfo, TemplateRef, TemplateSpec, built_in, built_ins, default_template,
};
use parking_lot::Mutex;

use crate::store::{NewTemplate, StoreError, StoredTemplate, TemplateStore};

/// Another server's changes are seen after this.
const FRESH: Duration = Duration::from_secs(3);
/// Most templates remembered.
const MOST_REMEMBERED: usize = 1000;
/// Most names of one tenant, and most versions of one name.
const MOST_NAMES: u32 = 1000;
const MOST_VERSIONS: u32 = 10_000;
/// Most versions listed.
const MOST_LISTED: u32 = 5000;

/// Why a template cannot be had or kept.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// There is none of this name.
    #[error("there is no template {0:?}; GET /v1/templates lists those that there are")]
    Missing(String),
    /// It cannot be done as things are.
    #[error("{0}")]
    Conflict(String),
    /// The database says no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What applying a template did; the version that says so now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It is there for the first time.
    Created(u32),
    /// It has another version.
    Changed(u32),
    /// It said so already.
    Unchanged(u32),
}

/// A template that is to be written, or would be.
pub(crate) struct Written {
    pub(crate) info: TemplateInfo,
    pub(crate) applied: Applied,
}

/// How a template is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The name must be free.
    Create,
    /// It must be taken.
    Replace,
    /// As it is.
    Either,
}

type Remembered = HashMap<(TenantId, String), (Instant, Arc<Template>)>;

#[derive(Default)]
struct Cache {
    remembered: Remembered,
    /// Grows with each change made here: what was looked up before one may be stale.
    epoch: u64,
}

/// All templates.
pub(crate) struct Templates {
    store: Arc<dyn TemplateStore>,
    engine: Engine,
    limits: LimitPolicy,
    cache: Mutex<Cache>,
}

impl Templates {
    pub(crate) fn new(store: Arc<dyn TemplateStore>, engine: Engine, limits: LimitPolicy) -> Self {
        Self { store, engine, limits, cache: Mutex::default() }
    }

    /// The template that an execution or session names; the default one for who names none.
    pub(crate) async fn find(&self, tenant: &TenantId, given: Option<&str>) -> Result<Arc<Template>, TemplateError> {
        let Some(given) = given else { return Ok(default_template()) };
        let at_fault = |message: String| FieldError::new("template", message);
        let wanted = TemplateRef::parse(given).map_err(at_fault)?;
        if let Some(one) = built_in(&wanted) {
            return Ok(Arc::clone(&one.template));
        }
        let key = (tenant.clone(), given.to_owned());
        let epoch = {
            let cache = self.cache.lock();
            match cache.remembered.get(&key) {
                Some((since, template)) if since.elapsed() < FRESH => return Ok(Arc::clone(template)),
                _ => cache.epoch,
            }
        };
        let Some((spec, version)) = self.look_up(tenant, &wanted).await? else {
            let message = format!("{given:?} does not exist; GET /v1/templates lists those that there are");
            return Err(at_fault(message).into());
        };
        let lineage = self.lineage(tenant, spec, version).await.map_err(|error| match error {
            // The request is right, and what it names is not.
            TemplateError::Field(error) => {
                at_fault(format!("{given:?} cannot be used: {} {}", error.field, error.message)).into()
            }
            other => other,
        })?;
        let template = Arc::new(lineage.template()?);
        let mut cache = self.cache.lock();
        if cache.epoch == epoch {
            if cache.remembered.len() >= MOST_REMEMBERED {
                cache.remembered.clear();
            }
            cache.remembered.insert(key, (Instant::now(), Arc::clone(&template)));
        }
        Ok(template)
    }

    async fn look_up(
        &self,
        tenant: &TenantId,
        wanted: &TemplateRef,
    ) -> Result<Option<(TemplateSpec, u32)>, StoreError> {
        if let Some(one) = built_in(wanted) {
            return Ok(Some((one.spec.clone(), one.template.version)));
        }
        let found = self.store.find(tenant, &wanted.name, wanted.version).await?;
        Ok(found.map(|found| (found.spec, found.version)))
    }

    /// A template with what it extends.
    async fn lineage(&self, tenant: &TenantId, spec: TemplateSpec, version: u32) -> Result<Lineage, TemplateError> {
        let mut lineage = Lineage::of(spec, version);
        while let Some(wanted) = lineage.wanted()? {
            let found = self.look_up(tenant, &wanted).await?;
            let missing = || FieldError::new("extends", format!("\"{wanted}\" does not exist, or was deleted"));
            let (spec, version) = found.ok_or_else(missing)?;
            lineage.push(spec, version);
        }
        Ok(lineage)
    }

    /// A template as it is shown.
    pub(crate) async fn show(
        &self,
        tenant: &TenantId,
        name: &str,
        resolved: bool,
    ) -> Result<TemplateInfo, TemplateError> {
        let wanted = TemplateRef::parse(name).map_err(|_| TemplateError::Missing(name.to_owned()))?;
        if let Some(one) = built_in(&wanted) {
            return Ok(info_of_built_in(one, resolved));
        }
        let found = self.store.find(tenant, &wanted.name, wanted.version).await?;
        let found = found.ok_or_else(|| TemplateError::Missing(name.to_owned()))?;
        self.info(tenant, found, resolved).await
    }

    async fn info(
        &self,
        tenant: &TenantId,
        found: StoredTemplate,
        resolved: bool,
    ) -> Result<TemplateInfo, TemplateError> {
        let StoredTemplate { spec, version, created_ms, created_by } = found;
        let spec = match resolved {
            true => whole(&self.lineage(tenant, spec, version).await?),
            false => spec,
        };
        Ok(TemplateInfo {
            name: spec.name.clone(),
            version,
            built_in: false,
            created_at: Some(stamp(created_ms)),
            created_by: Some(created_by),
            spec,
        })
    }

    /// Built-in ones first, then by name; and whether these are all.
    pub(crate) async fn list(
        &self,
        tenant: &TenantId,
        versions: bool,
    ) -> Result<(Vec<TemplateInfo>, bool), TemplateError> {
        let stored = self.store.list(tenant, versions, MOST_LISTED + 1).await?;
        let complete = stored.len() <= MOST_LISTED as usize;
        let mut all: Vec<_> = built_ins().iter().map(|one| info_of_built_in(one, false)).collect();
        for found in stored.into_iter().take(MOST_LISTED as usize) {
            all.push(self.info(tenant, found, false).await?);
        }
        Ok((all, complete))
    }

    /// Writes a template, unless it says already what it is to say, or this is only to see what would become of it.
    pub(crate) async fn write(
        &self,
        tenant: &TenantId,
        mut spec: TemplateSpec,
        by: &str,
        mode: Mode,
        dry: bool,
    ) -> Result<Written, TemplateError> {
        spec.check(&self.limits)?;
        if built_in(&TemplateRef { name: spec.name.clone(), version: None }).is_some() {
            return Err(changing_built_in(&spec.name));
        }
        // From now on it extends the version that its base has now: a version never changes.
        if let Some(base) = spec.extends()? {
            let found = self.look_up(tenant, &base).await?;
            let missing = || {
                FieldError::new("extends", format!("\"{base}\" does not exist; GET /v1/templates lists those that do"))
            };
            let (base, version) = found.ok_or_else(missing)?;
            spec.extends = Some(format!("{}@{version}", base.name));
        }
        let last = self.store.find(tenant, &spec.name, None).await?;
        match (mode, &last) {
            (Mode::Create, Some(last)) => {
                let message = format!(
                    "there is a template {:?} already (version {}); PUT makes another version of it",
                    spec.name, last.version
                );
                return Err(TemplateError::Conflict(message));
            }
            (Mode::Replace, None) => return Err(TemplateError::Missing(spec.name)),
            _ => {}
        }
        let next = last.as_ref().map_or(1, |last| last.version + 1);
        let lineage = self.lineage(tenant, spec.clone(), next).await?;
        let resolved = whole(&lineage);
        resolved.check(&self.limits)?;
        let template = lineage.template()?;
        let engine = self.engine.clone();
        let checked = tokio::task::spawn_blocking(move || engine.check_template(&template)).await;
        checked.map_err(|error| TemplateError::Conflict(format!("the template could not be checked: {error}")))??;

        let now = self.engine.clock().now();
        let now_ms = i64::try_from(now.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX);
        let info = |version, spec: TemplateSpec| TemplateInfo {
            name: spec.name.clone(),
            version,
            built_in: false,
            created_at: Some(stamp(now_ms)),
            created_by: Some(by.to_owned()),
            spec,
        };
        if let Some(last) = last.clone()
            && last.spec == spec
        {
            let version = last.version;
            return Ok(Written { info: self.info(tenant, last, false).await?, applied: Applied::Unchanged(version) });
        }
        if next > MOST_VERSIONS {
            let message =
                format!("{:?} has {MOST_VERSIONS} versions, which is the most; go on under another name", spec.name);
            return Err(TemplateError::Conflict(message));
        }
        let first = last.is_none();
        if first && self.store.list(tenant, false, MOST_NAMES).await?.len() >= MOST_NAMES as usize {
            let message = format!("there are {MOST_NAMES} templates already, which is the most; delete some");
            return Err(TemplateError::Conflict(message));
        }
        let applied = |version| if first { Applied::Created(version) } else { Applied::Changed(version) };
        if dry {
            return Ok(Written { info: info(next, spec), applied: applied(next) });
        }
        let new = NewTemplate { spec: &spec, created_ms: now_ms, created_by: by, first };
        let version = self.store.add(tenant, new).await?;
        self.forget(tenant);
        let Some(version) = version else {
            let message =
                format!("{:?} was made or deleted by somebody else just now; look at it and try again", spec.name);
            return Err(TemplateError::Conflict(message));
        };
        Ok(Written { info: info(version, spec), applied: applied(version) })
    }

    /// As [`Self::write`], whether or not there is one.
    pub(crate) async fn apply(
        &self,
        tenant: &TenantId,
        spec: TemplateSpec,
        by: &str,
    ) -> Result<Applied, TemplateError> {
        Ok(self.write(tenant, spec, by, Mode::Either, false).await?.applied)
    }

    /// Deletes a name with all its versions. Without `force` only when nothing uses it; `users` are those besides templates that extend it.
    pub(crate) async fn delete(
        &self,
        tenant: &TenantId,
        name: &str,
        force: bool,
        users: Vec<String>,
    ) -> Result<(), TemplateError> {
        let missing = || TemplateError::Missing(name.to_owned());
        let wanted = TemplateRef::parse(name).map_err(|_| missing())?;
        if wanted.version.is_some() {
            let message = "a template is deleted with all its versions: leave out the '@' and what follows";
            return Err(FieldError::new("name", message).into());
        }
        if built_in(&wanted).is_some() {
            return Err(changing_built_in(name));
        }
        let children = self.store.children(tenant, name).await?;
        let extending = children.iter().map(|child| format!("template {child:?} extends it"));
        let users: Vec<_> = extending.chain(users).collect();
        if !force && !users.is_empty() && self.store.find(tenant, name, None).await?.is_some() {
            const SHOWN: usize = 10;
            let more = users.len().saturating_sub(SHOWN);
            let mut list = users.into_iter().take(SHOWN).collect::<Vec<_>>().join(", ");
            if more > 0 {
                list.push_str(&format!(", and {more} more"));
            }
            let message = format!("template {name:?} is in use: {list}; force=true deletes it all the same");
            return Err(TemplateError::Conflict(message));
        }
        let now_ms = i64::try_from(self.engine.clock().now().unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX);
        let deleted = self.store.delete(tenant, name, now_ms).await?;
        self.forget(tenant);
        deleted.then_some(()).ok_or_else(missing)
    }

    /// Forgets what was looked up for a tenant, some of which may be stale now.
    fn forget(&self, tenant: &TenantId) {
        let mut cache = self.cache.lock();
        cache.epoch += 1;
        cache.remembered.retain(|(owner, _), _| owner != tenant);
    }
}

fn changing_built_in(name: &str) -> TemplateError {
    let message =
        format!("{name:?} is built in and cannot be changed; make one of another name with \"extends\": {name:?}");
    TemplateError::Conflict(message)
}

/// With everything inherited, and nothing left to extend.
fn whole(lineage: &Lineage) -> TemplateSpec {
    TemplateSpec { extends: None, ..lineage.resolved().0 }
}

fn info_of_built_in(one: &BuiltIn, resolved: bool) -> TemplateInfo {
    let spec = if resolved { TemplateSpec { extends: None, ..one.resolved.clone() } } else { one.spec.clone() };
    TemplateInfo {
        name: spec.name.clone(),
        version: one.template.version,
        built_in: true,
        created_at: None,
        created_by: None,
        spec,
    }
}

fn stamp(milliseconds: i64) -> String {
    let nanoseconds = u32::try_from(milliseconds.rem_euclid(1000)).unwrap_or_default() * 1_000_000;
    stamp_of(milliseconds.div_euclid(1000), nanoseconds)
}
