-- One row for each job that waits, runs or is dead. One that has ended has none: whoever removes the row is the one who says how it ended.
CREATE TABLE jobs (
    -- The execution that it is.
    id {id} NOT NULL PRIMARY KEY,
    tenant {id} NOT NULL,
    -- 0 low, 1 normal, 2 high
    priority BIGINT NOT NULL,
    -- waiting, begun, dead
    state VARCHAR(16) NOT NULL,
    -- How often it was begun.
    attempt BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    -- Who has it, and until when unless renewed; milliseconds since 1970.
    worker {id},
    lease_ms BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    -- 1 when somebody asked for its end while another server has it.
    cancel BIGINT NOT NULL,
    -- The request as JSON; NULL for one that only the server that accepted it can run.
    request {text},
    -- Where the end is told.
    callback {text},
    -- Why it is dead.
    reason {text}
){table};
CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_by_lease ON jobs (state, lease_ms);
CREATE INDEX jobs_by_worker ON jobs (worker, state);

-- Ends that are still to be told.
CREATE TABLE webhooks (
    id {id} NOT NULL PRIMARY KEY,
    execution_id {id} NOT NULL,
    url {text} NOT NULL,
    -- due, dead
    state VARCHAR(16) NOT NULL,
    attempts BIGINT NOT NULL,
    due_ms BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    -- What went wrong the last time.
    problem {text}
){table};
CREATE INDEX webhooks_by_due ON webhooks (state, due_ms);
CREATE INDEX webhooks_by_execution ON webhooks (execution_id);

-- What was made for requests that had an Idempotency-Key.
CREATE TABLE idempotency (
    -- SHA-256 of tenant, route and key, hexadecimal.
    id {id} NOT NULL PRIMARY KEY,
    -- SHA-256 of the body, hexadecimal.
    body {id} NOT NULL,
    -- The execution or session.
    target {id} NOT NULL,
    created_ms BIGINT NOT NULL
){table};
CREATE INDEX idempotency_by_age ON idempotency (created_ms);
CREATE INDEX idempotency_by_target ON idempotency (target);

-- What all servers of one database share, made by the first that needs it.
CREATE TABLE settings (
    id {id} NOT NULL PRIMARY KEY,
    value {text} NOT NULL
){table};
