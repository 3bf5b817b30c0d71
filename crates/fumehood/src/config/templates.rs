//! Templates that the operator brings.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Templates as files, brought up to date when the server starts. Those made over HTTP are in the database.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Templates {
    /// Folder of YAML files. Default: `templates` below `data_dir`, if it is there.
    pub(crate) dir: Option<PathBuf>,
}
