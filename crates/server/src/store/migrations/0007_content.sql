-- SHA-256 of an execution's whole document, hexadecimal, where that is in the blob store; `document` is then the short form for lists.
ALTER TABLE executions ADD COLUMN content_sha256 {id};
