-- One row for each version of a template; a version never changes, and its number is never given again.
CREATE TABLE templates (
    tenant {id} NOT NULL,
    name {id} NOT NULL,
    version BIGINT NOT NULL,
    -- Name of the template that it extends.
    parent {id},
    -- The template as JSON, as it was written; what it extends named with a version.
    document {text} NOT NULL,
    -- Milliseconds since 1970.
    created_ms BIGINT NOT NULL,
    created_by {id} NOT NULL,
    -- All versions of a name are deleted together.
    deleted_ms BIGINT,
    PRIMARY KEY (tenant, name, version)
){table};
CREATE INDEX templates_by_parent ON templates (tenant, parent);
