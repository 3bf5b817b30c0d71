-- Jobs by name: what waits, who has it, what is dead. See queue/embedded.rs.
CREATE TABLE queue (
    -- Order of pushing.
    position {serial},
    execution_id {id} NOT NULL,
    tenant {id} NOT NULL,
    -- 0 low, 1 normal, 2 high
    priority BIGINT NOT NULL,
    -- 0 ready, 1 waits for its time, 2 taken, 3 dead
    state BIGINT NOT NULL,
    -- Milliseconds since 1970: when it is ready; when its lease runs out; when it died.
    due_ms BIGINT NOT NULL,
    deliveries BIGINT NOT NULL,
    worker VARCHAR(255),
    reason {text}
){table};
CREATE UNIQUE INDEX queue_by_execution ON queue (execution_id);
CREATE INDEX queue_by_turn ON queue (state, priority, tenant, position);
CREATE INDEX queue_by_due ON queue (state, due_ms);
CREATE INDEX queue_by_tenant ON queue (tenant, position);

-- Whose turn it is: one row for each tenant and priority that ever had a job.
CREATE TABLE queue_turns (
    priority BIGINT NOT NULL,
    tenant {id} NOT NULL,
    -- 1 when it may have ready jobs
    active BIGINT NOT NULL,
    -- When it was last served: the least is next.
    turn BIGINT NOT NULL,
    PRIMARY KEY (priority, tenant)
){table};
CREATE INDEX queue_turns_by_turn ON queue_turns (active, priority, turn, tenant);

-- One row: whoever takes jobs holds it.
CREATE TABLE queue_taking (
    id BIGINT NOT NULL PRIMARY KEY,
    turn BIGINT NOT NULL
){table};
INSERT INTO queue_taking (id, turn) VALUES (1, 0);
