-- What the blob store holds, and for whom. See blobs.rs.
CREATE TABLE blobs (
    sha256 {id} NOT NULL PRIMARY KEY,
    size_bytes BIGINT NOT NULL,
    -- 1 when it is known to be in the store; 0 while it is being written or deleted
    present BIGINT NOT NULL
){table};
CREATE TABLE blob_owners (
    sha256 {id} NOT NULL,
    owner {id} NOT NULL,
    PRIMARY KEY (sha256, owner)
){table};
CREATE INDEX blob_owners_by_owner ON blob_owners (owner, sha256);
