-- Who owns things. A name is never given twice: what its first owner left still bears it.
CREATE TABLE tenants (
    name {id} NOT NULL PRIMARY KEY,
    -- Quotas and how long what is kept, as JSON.
    settings {text} NOT NULL,
    -- Milliseconds since 1970.
    created_ms BIGINT NOT NULL,
    removed_ms BIGINT
){table};
-- The one of whoever needs no key, and of keys in the configuration.
INSERT INTO tenants (name, settings, created_ms) VALUES ('default', '{}', 0);
-- API keys. Of the key itself only the hash.
CREATE TABLE api_keys (
    id {id} NOT NULL PRIMARY KEY,
    tenant {id} NOT NULL,
    name VARCHAR(255) NOT NULL,
    -- SHA-256 of the whole key, hexadecimal
    hash {id} NOT NULL,
    -- Words separated by commas.
    scopes VARCHAR(255) NOT NULL,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT,
    revoked_ms BIGINT,
    used_ms BIGINT
){table};
CREATE INDEX api_keys_by_tenant ON api_keys (tenant, id);
-- What a tenant used on a day; several servers add to the same rows.
CREATE TABLE usage_by_day (
    tenant {id} NOT NULL,
    -- Days since 1970, in UTC.
    day BIGINT NOT NULL,
    executions BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    cpu_ms BIGINT NOT NULL,
    wall_ms BIGINT NOT NULL,
    result_bytes BIGINT NOT NULL,
    PRIMARY KEY (tenant, day)
){table};
-- Who did what. Rows are added, and removed when they are older than their tenant wants; none is ever changed.
CREATE TABLE audit (
    id {serial},
    at_ms BIGINT NOT NULL,
    tenant {id} NOT NULL,
    -- Id of the API key; NULL where none was needed or none was right.
    api_key {id},
    request_id {id},
    action VARCHAR(64) NOT NULL,
    object VARCHAR(512) NOT NULL,
    outcome VARCHAR(64) NOT NULL,
    policy VARCHAR(255),
    -- SHA-256 of the code, hexadecimal
    code_hash {id},
    -- The code itself, where the tenant keeps it.
    code {text},
    detail {text}
){table};
CREATE INDEX audit_by_tenant ON audit (tenant, id);
CREATE INDEX audit_by_age ON audit (tenant, at_ms);
