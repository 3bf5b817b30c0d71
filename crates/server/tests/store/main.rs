//! What the storage promises, on every database that it can be kept in.

mod outage;
mod queue;
mod rig;
mod schema;
mod values;
