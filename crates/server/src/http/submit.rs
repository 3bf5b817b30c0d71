//! From a valid spec to a running execution, once for each idempotency key.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::{HeaderMap, HeaderName};
use fumehood_engine::event::EventLog;
use fumehood_engine::execution::Execution;
use fumehood_engine::ids::{ExecutionId, SessionId, TenantId};
use fumehood_engine::session::Session;
use fumehood_engine::spec::{ExecutionRequest, ExecutionSpec, SessionSpec};
use fumehood_engine::{SubmitError, Ticket};
use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::auth::Principal;
use super::error::ApiError;
use super::params::unknown_execution;
use crate::ServerState;
use crate::config::hex;
use crate::jobs::JobOptions;
use crate::store::Attempt;
use crate::tenancy::Deed;

const EXECUTION_ID: HeaderName = HeaderName::from_static("x-execution-id");
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// A request whose twin is just being accepted looks again so often, and after so long each time.
const LOOKS: usize = 100;
const LOOK: Duration = Duration::from_millis(20);

/// An execution that waits, runs or ran.
pub(crate) struct Accepted {
    pub(crate) id: ExecutionId,
    pub(crate) owner: TenantId,
    /// Its events, when it was begun here by this request.
    pub(crate) events: Option<EventLog>,
    /// As it was when it was accepted, when it runs later.
    pub(crate) draft: Option<Arc<Execution>>,
    replayed: bool,
}

impl Accepted {
    /// Headers of every answer about it.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(EXECUTION_ID, header_value(self.id.as_str()));
        if self.replayed {
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
        }
        headers
    }

    fn new(ticket: Ticket, owner: TenantId) -> Self {
        Self { id: ticket.id, owner, events: Some(ticket.events), draft: None, replayed: false }
    }
}

/// Text that is known to fit a header.
pub(crate) fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// What the audit log says of an execution that is accepted: its code by its hash, and itself where its tenant keeps it.
struct Accepting {
    policy: String,
    hash: String,
    code: Option<String>,
}

impl Accepting {
    fn of(who: &Principal, spec: &ExecutionSpec) -> Self {
        let code = who.account.settings().keep_code.then(|| spec.code.clone());
        Self { policy: spec.policy.clone(), hash: hex(&Sha256::digest(&spec.code)), code }
    }
}

/// How an execution comes into the engine: under a new id, or under the one it has on record.
type Enter<'a> = &'a (dyn Fn(Option<&Execution>, ExecutionSpec) -> Result<Ticket, SubmitError> + Sync);

impl ServerState {
    /// Notes in the audit log what `who` did.
    pub(crate) fn note(&self, who: &Principal, deed: Deed<'_>) {
        self.tenancy.journal.note(who, deed);
    }

    /// Submits `spec`, or finds the execution that the same request began before.
    pub(crate) async fn submit(
        &self,
        who: &Principal,
        spec: ExecutionSpec,
        attempt: Option<Attempt>,
    ) -> Result<Accepted, ApiError> {
        let enter: Enter<'_> = &|draft, spec| match draft {
            None => self.engine.submit(spec),
            Some(draft) => self.engine.submit_as(draft.id.clone(), draft.created_at.clone(), Duration::ZERO, spec),
        };
        self.submit_by(who, spec, None, attempt, None, enter).await
    }

    /// The same for a session. With `options` its end is on record, and told, whatever becomes of this server.
    pub(crate) async fn submit_to(
        &self,
        who: &Principal,
        session: &Session,
        spec: ExecutionSpec,
        wait: bool,
        attempt: Option<Attempt>,
        options: Option<JobOptions>,
    ) -> Result<Accepted, ApiError> {
        let enter: Enter<'_> = &|draft, spec| match draft {
            None => self.engine.submit_to(session, spec, wait),
            Some(draft) => self.engine.submit_to_as(draft.id.clone(), session, spec, wait),
        };
        self.submit_by(who, spec, Some(&session.id), attempt, options, enter).await
    }

    /// Accepts a job that runs later, or finds the one that the same request made before.
    pub(crate) async fn submit_job(
        &self,
        who: &Principal,
        request: &ExecutionRequest,
        spec: &ExecutionSpec,
        options: JobOptions,
        attempt: Option<Attempt>,
    ) -> Result<Accepted, ApiError> {
        for _ in 0..LOOKS {
            if let Some(earlier) = self.earlier_execution(attempt.as_ref(), &spec.owner).await? {
                return Ok(earlier);
            }
            let made = self.jobs.accept(request, spec, options.clone(), attempt.clone()).await?;
            if let Some(draft) = made {
                tracing::Span::current().record("execution_id", draft.id.as_str());
                self.note_accepted(who, &draft.id, &Accepting::of(who, spec));
                let owner = spec.owner.clone();
                let id = draft.id.clone();
                return Ok(Accepted { id, owner, events: None, draft: Some(draft), replayed: false });
            }
        }
        Err(busy_key())
    }

    /// Opens a session, or finds the one that the same request opened before; and whether it was found.
    pub(crate) async fn open_session(
        &self,
        who: &Principal,
        mut spec: SessionSpec,
        attempt: Option<Attempt>,
    ) -> Result<(Arc<Session>, bool), ApiError> {
        spec.base.owner = who.tenant.clone();
        let policy = spec.base.policy.clone();
        let opened = |session: &Session| {
            self.note(who, Deed::new("session.opened", session.id.as_str()).outcome("accepted").policy(&policy));
        };
        let Some(attempt) = attempt else {
            let session = self.engine.open_session(spec)?;
            opened(&session);
            return Ok((session, false));
        };
        let keys = self.store.idempotency();
        for _ in 0..LOOKS {
            if let Some(target) = self.earlier(&attempt).await? {
                if let Some(kept) = SessionId::parse(&target).and_then(|id| self.engine.session(&id)) {
                    return Ok((kept, true));
                }
                // Taken a moment ago, or long: the session is opened just after its key is taken.
                tokio::time::sleep(LOOK).await;
                continue;
            }
            let id = self.engine.session_id();
            if keys.take(&attempt, id.as_str(), self.jobs.now_ms()).await? {
                let session = self.engine.open_session_as(id.clone(), spec);
                match &session {
                    Ok(session) => opened(session),
                    Err(_) => keys.forget(id.as_str()).await?,
                }
                return Ok((session?, false));
            }
        }
        Err(ApiError::gone(
            "the session that was opened with this Idempotency-Key is not kept here any more; use a fresh key to open another",
        ))
    }

    /// What an earlier request with this key and body made.
    pub(crate) async fn earlier(&self, attempt: &Attempt) -> Result<Option<String>, ApiError> {
        match self.store.idempotency().find(attempt).await? {
            None => Ok(None),
            Some(earlier) if earlier.same_body => Ok(Some(earlier.target)),
            Some(_) => Err(ApiError::conflict(
                "this Idempotency-Key was used with another body; use a fresh key for another request",
            )),
        }
    }

    async fn earlier_execution(
        &self,
        attempt: Option<&Attempt>,
        owner: &TenantId,
    ) -> Result<Option<Accepted>, ApiError> {
        let Some(attempt) = attempt else { return Ok(None) };
        let target = self.earlier(attempt).await?;
        let Some(id) = target.as_deref().and_then(ExecutionId::parse) else { return Ok(None) };
        tracing::Span::current().record("execution_id", id.as_str());
        Ok(Some(Accepted { id, owner: owner.clone(), events: None, draft: None, replayed: true }))
    }

    async fn submit_by(
        &self,
        who: &Principal,
        mut spec: ExecutionSpec,
        session: Option<&SessionId>,
        attempt: Option<Attempt>,
        options: Option<JobOptions>,
        enter: Enter<'_>,
    ) -> Result<Accepted, ApiError> {
        let owner = who.tenant.clone();
        spec.owner = owner.clone();
        if attempt.is_none() && options.is_none() {
            // The way of most executions: it waits for nothing but the engine.
            let ticket = self.logged(who, spec, |spec| enter(None, spec))?;
            tracing::Span::current().record("execution_id", ticket.id.as_str());
            return Ok(Accepted::new(ticket, owner));
        }
        let callback = options.and_then(|options| options.callback);
        for _ in 0..LOOKS {
            if let Some(earlier) = self.earlier_execution(attempt.as_ref(), &owner).await? {
                return Ok(earlier);
            }
            self.engine.examine(&spec)?;
            let draft = self.engine.draft(&spec, session.cloned());
            let pinned = self.jobs.pin(draft.clone(), &owner, callback.clone(), attempt.clone()).await?;
            let Some(job) = pinned else { continue };
            tracing::Span::current().record("execution_id", draft.id.as_str());
            return match self.logged(who, spec, |spec| enter(Some(&draft), spec)) {
                Ok(ticket) => {
                    self.jobs.follow_pinned(job, ticket.events.clone());
                    Ok(Accepted::new(ticket, owner))
                }
                Err(error) => {
                    self.jobs.unpin(&job).await;
                    Err(error)
                }
            };
        }
        Err(busy_key())
    }

    fn note_accepted(&self, who: &Principal, id: &ExecutionId, accepting: &Accepting) {
        let deed = Deed::new("execution.accepted", id.as_str()).outcome("accepted").policy(&accepting.policy);
        self.note(who, deed.code(accepting.hash.clone(), accepting.code.as_deref()));
    }

    fn logged(
        &self,
        who: &Principal,
        spec: ExecutionSpec,
        submit: impl FnOnce(ExecutionSpec) -> Result<Ticket, SubmitError>,
    ) -> Result<Ticket, ApiError> {
        let (code, accepting) = (self.config.log_code.then(|| spec.code.clone()), Accepting::of(who, &spec));
        let ticket = submit(spec)?;
        self.note_accepted(who, &ticket.id, &accepting);
        if let Some(code) = code {
            log_content(&ticket.id, &code, &ticket.events);
        }
        Ok(ticket)
    }

    /// The execution that was accepted, once it has ended and that is on record.
    pub(crate) async fn finished(&self, accepted: &Accepted) -> Result<Arc<Execution>, ApiError> {
        let Some(events) = &accepted.events else {
            let ended = self.jobs.ended(&accepted.id, Some(&accepted.owner)).await?;
            return ended.ok_or_else(unknown_execution);
        };
        let execution = events.finished().await;
        self.jobs.recorded(&accepted.id).await;
        Ok(execution)
    }
}

/// Requests with this key have been accepted and taken back all the while.
fn busy_key() -> ApiError {
    ApiError::conflict("another request with this Idempotency-Key is just being refused; send it again")
}

/// Only where the operator asked for it.
pub(crate) fn log_content(id: &ExecutionId, code: &str, events: &EventLog) {
    tracing::info!(execution = %id, code, "code");
    let events = events.clone();
    let wait = async move {
        let execution = events.finished().await;
        tracing::info!(execution = %execution.id, stdout = execution.stdout, stderr = execution.stderr, "output");
    };
    tokio::spawn(wait.in_current_span());
}
