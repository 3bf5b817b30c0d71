//! From a valid spec to a running execution, once for each idempotency key.

use std::sync::Arc;

use axum::http::HeaderValue;
use axum::http::header::{HeaderMap, HeaderName};
use fumehood_engine::Ticket;
use fumehood_engine::event::EventLog;
use fumehood_engine::ids::ExecutionId;
use fumehood_engine::session::Session;
use fumehood_engine::spec::{ExecutionSpec, SessionSpec};
use sha2::{Digest, Sha256};
use tracing::Instrument;

use super::auth::Principal;
use super::error::ApiError;
use super::idempotency::Attempt;
use crate::ServerState;
use crate::config::hex;
use crate::tenancy::Deed;

const EXECUTION_ID: HeaderName = HeaderName::from_static("x-execution-id");
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// An execution that runs or ran.
pub(crate) struct Accepted {
    pub(crate) id: ExecutionId,
    pub(crate) events: EventLog,
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
}

/// Text that is known to fit a header.
pub(crate) fn header_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

impl ServerState {
    /// Notes in the audit log what `who` did.
    pub(crate) fn note(&self, who: &Principal, deed: Deed<'_>) {
        self.tenancy.journal.note(who, deed);
    }

    /// Submits `spec`, or finds the execution that the same request began before.
    pub(crate) fn submit(
        &self,
        who: &Principal,
        spec: ExecutionSpec,
        attempt: Option<Attempt>,
    ) -> Result<Accepted, ApiError> {
        self.submit_by(who, spec, attempt, |spec| Ok(self.engine.submit(spec)?))
    }

    /// The same for a session.
    pub(crate) fn submit_to(
        &self,
        who: &Principal,
        session: &Session,
        spec: ExecutionSpec,
        wait: bool,
        attempt: Option<Attempt>,
    ) -> Result<Accepted, ApiError> {
        self.submit_by(who, spec, attempt, |spec| Ok(self.engine.submit_to(session, spec, wait)?))
    }

    /// Opens a session, or finds the one that the same request opened before; and whether it was found.
    pub(crate) fn open_session(
        &self,
        who: &Principal,
        mut spec: SessionSpec,
        attempt: Option<Attempt>,
    ) -> Result<(Arc<Session>, bool), ApiError> {
        spec.base.owner = who.tenant.clone();
        let policy = spec.base.policy.clone();
        let open = || {
            let session = self.engine.open_session(spec)?;
            self.note(who, Deed::new("session.opened", session.id.as_str()).outcome("accepted").policy(&policy));
            Ok::<_, ApiError>(session)
        };
        let Some(attempt) = attempt else { return Ok((open()?, false)) };
        // Held until the session is remembered: a duplicate that comes meanwhile must find it.
        let mut replays = self.session_replays.lock();
        let earlier = replays.find(&attempt)?.cloned();
        if let Some(kept) = earlier.and_then(|id| self.engine.session(&id)) {
            return Ok((kept, true));
        }
        replays.forget(&attempt);
        let session = open()?;
        replays.remember(attempt, session.id.clone());
        Ok((session, false))
    }

    fn submit_by(
        &self,
        who: &Principal,
        spec: ExecutionSpec,
        attempt: Option<Attempt>,
        submit: impl FnOnce(ExecutionSpec) -> Result<Ticket, ApiError>,
    ) -> Result<Accepted, ApiError> {
        let accepted = match attempt {
            None => self.begin(who, spec, submit)?,
            Some(attempt) => {
                // Held until the execution is remembered: a duplicate that comes meanwhile must find it.
                let mut replays = self.replays.lock();
                let earlier = replays.find(&attempt)?.cloned();
                let kept =
                    earlier.and_then(|id| Some(Accepted { events: self.engine.events(&id)?, id, replayed: true }));
                match kept {
                    Some(accepted) => accepted,
                    None => {
                        replays.forget(&attempt);
                        let accepted = self.begin(who, spec, submit)?;
                        replays.remember(attempt, accepted.id.clone());
                        accepted
                    }
                }
            }
        };
        tracing::Span::current().record("execution_id", accepted.id.as_str());
        Ok(accepted)
    }

    fn begin(
        &self,
        who: &Principal,
        mut spec: ExecutionSpec,
        submit: impl FnOnce(ExecutionSpec) -> Result<Ticket, ApiError>,
    ) -> Result<Accepted, ApiError> {
        spec.owner = who.tenant.clone();
        let keep = who.account.settings().keep_code;
        let (hash, policy) = (hex(&Sha256::digest(&spec.code)), spec.policy.clone());
        let code = (self.config.log_code || keep).then(|| spec.code.clone());
        let ticket = submit(spec)?;
        let deed = Deed::new("execution.accepted", ticket.id.as_str()).outcome("accepted").policy(&policy);
        self.note(who, deed.code(hash, code.as_deref().filter(|_| keep)));
        if let Some(code) = code.filter(|_| self.config.log_code) {
            log_content(&ticket.id, &code, &ticket.events);
        }
        Ok(Accepted { id: ticket.id, events: ticket.events, replayed: false })
    }
}

/// Only where the operator asked for it.
fn log_content(id: &ExecutionId, code: &str, events: &EventLog) {
    tracing::info!(execution = %id, code, "code");
    let events = events.clone();
    let wait = async move {
        let execution = events.finished().await;
        tracing::info!(execution = %execution.id, stdout = execution.stdout, stderr = execution.stderr, "output");
    };
    tokio::spawn(wait.in_current_span());
}
