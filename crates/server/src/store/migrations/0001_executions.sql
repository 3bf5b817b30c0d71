-- One row for each execution that was accepted to run later, and for each other one when it has ended.
CREATE TABLE executions (
    id {id} NOT NULL PRIMARY KEY,
    tenant {id} NOT NULL,
    session_id {id},
    -- queued, running, completed, failed, cancelled
    status VARCHAR(32) NOT NULL,
    outcome VARCHAR(32),
    -- Milliseconds since 1970.
    created_ms BIGINT NOT NULL,
    finished_ms BIGINT,
    -- The execution as JSON; as it was accepted, until it has ended.
    document {text} NOT NULL,
    -- Bytes that keeping it costs.
    size_bytes BIGINT NOT NULL
){table};
CREATE INDEX executions_by_tenant ON executions (tenant, id);
CREATE INDEX executions_by_session ON executions (session_id, id);
CREATE INDEX executions_by_status ON executions (status, id);
CREATE INDEX executions_by_finish ON executions (finished_ms);
