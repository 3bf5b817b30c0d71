//! What the storage promises, on every database that it can be kept in.

mod blobs;
mod executions;
mod jobs;
mod outage;
mod queue;
mod rig;
mod s3;
mod schema;
mod servers;
mod templates;
mod tenants;
mod values;
