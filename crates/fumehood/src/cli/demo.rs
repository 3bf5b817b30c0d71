//! `fumehood demo`: the kind of code a language model writes, on a small real data set, in a sandbox.

use std::process::ExitCode;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fumehood_engine::execution::{JsonText, Status};
use fumehood_engine::image::DEFAULT_IMAGE;
use fumehood_engine::spec::{ExecutionRequest, FileRequest};

use crate::config::Config;
use crate::node::{data_dir, with_engine};

const CODE: &str = include_str!("../../../../demo/analyse.py");
const DATA: &str = include_str!("../../../../demo/us_macro.csv");

pub(super) fn main(config: &Config) -> anyhow::Result<ExitCode> {
    let folder = data_dir(config)?.join("demo");
    let mut request = ExecutionRequest::new(CODE);
    request.files =
        vec![FileRequest { path: "us_macro.csv".to_owned(), content: Some(DATA.to_owned()), content_base64: None }];
    let spec = request.validate(&config.limit_policy())?;
    let execution =
        with_engine(config, DEFAULT_IMAGE, async |engine| Ok(engine.submit(spec)?.events.finished().await))?;

    print!("{}", execution.stdout);
    eprint!("{}", execution.stderr);
    if execution.status != Status::Completed {
        let why = execution.error.as_ref().map_or("no reason given", |error| error.message.as_str());
        bail!("the demonstration failed: {why}");
    }
    let mut charts = 0;
    for output in &execution.outputs {
        if let Some(png) = output.mime.get("image/png").and_then(JsonText::string) {
            charts += 1;
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
            let path = folder.join(format!("chart-{charts}.png"));
            std::fs::write(&path, BASE64.decode(png)?).with_context(|| format!("cannot write {}", path.display()))?;
            println!("\nchart saved: {}", path.display());
        } else if let Some(table) = output.mime.get("text/plain").and_then(JsonText::string) {
            println!("\n{table}");
        }
    }
    let metrics = &execution.metrics;
    println!(
        "\nran for {:.0} ms in a sandbox started in {:.0} ms; peak memory {:.0} MB; isolation: {}",
        metrics.duration_ms, metrics.start_ms, metrics.memory_peak_mb, execution.isolation.effective
    );
    Ok(ExitCode::SUCCESS)
}
