//! `fumehood tenant`: who owns things and how much of it, changed in the database itself, whether a server runs or not.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use fumehood_engine::ids::TenantId;
use fumehood_server::store::{StoreError, Tenant, TenantSettings};

use super::Usage;
use super::keys::tenant;
use super::show::write_out;
use super::table::{ago, table};
use crate::config::Config;
use crate::operator::{Operator, stamp};

#[derive(Debug, Subcommand)]
pub(super) enum TenantCommand {
    /// Make a tenant; keys for it are made with `fumehood key create --tenant NAME`
    Create(Box<TenantArgs>),
    /// List tenants with their quotas
    #[command(visible_alias = "list")]
    Ls,
    /// Change what a tenant may; what is not named stays
    Set(Box<TenantArgs>),
    /// Remove a tenant and revoke its keys; its usage and audit log stay, and its name stays taken
    Rm {
        /// Which
        #[arg(value_name = "TENANT", value_parser = tenant)]
        name: TenantId,
    },
}

#[derive(Debug, Args)]
pub(super) struct TenantArgs {
    /// Its name: lower-case letters, digits and dashes
    #[arg(value_name = "TENANT", value_parser = tenant)]
    name: TenantId,
    /// Sandboxes at once (executions and open sessions); `none` for no bound
    #[arg(long, value_name = "NUMBER", value_parser = bound)]
    max_concurrent: Option<Bound>,
    /// Executions that wait for a place or in a session
    #[arg(long, value_name = "NUMBER", value_parser = bound)]
    max_queued: Option<Bound>,
    /// Executions from midnight to midnight, UTC
    #[arg(long, value_name = "NUMBER", value_parser = bound)]
    executions_per_day: Option<Bound>,
    /// Processor seconds from midnight to midnight, UTC
    #[arg(long, value_name = "NUMBER", value_parser = bound)]
    cpu_seconds_per_day: Option<Bound>,
    /// MiB of results and artifacts kept, and of the disks of open sessions
    #[arg(long, value_name = "NUMBER", value_parser = bound)]
    disk_mb: Option<Bound>,
    /// Days that its entries of the audit log are kept; 0 for ever, `none`: as tenants.audit_keep_days
    #[arg(long, value_name = "NUMBER", value_parser = bound)]
    audit_keep_days: Option<Bound>,
    /// Whether the audit log keeps its code, not only the hash of it
    #[arg(long, value_name = "true|false")]
    keep_code: Option<bool>,
}

/// A number, or none.
#[derive(Debug, Clone, Copy)]
struct Bound(Option<u64>);

fn bound(text: &str) -> Result<Bound, String> {
    match text {
        "none" => Ok(Bound(None)),
        text => {
            text.parse().map(|number| Bound(Some(number))).map_err(|_| "must be a whole number, or none".to_owned())
        }
    }
}

impl TenantArgs {
    fn over(&self, settings: &mut TenantSettings) {
        let quotas = &mut settings.quotas;
        let bounds = [
            (&mut quotas.max_concurrent, self.max_concurrent),
            (&mut quotas.max_queued, self.max_queued),
            (&mut quotas.executions_per_day, self.executions_per_day),
            (&mut quotas.cpu_seconds_per_day, self.cpu_seconds_per_day),
            (&mut quotas.disk_mb, self.disk_mb),
            (&mut settings.audit_keep_days, self.audit_keep_days),
        ];
        for (value, given) in bounds {
            if let Some(Bound(number)) = given {
                *value = number;
            }
        }
        settings.keep_code = self.keep_code.unwrap_or(settings.keep_code);
    }
}

pub(super) fn main(config: &Config, command: TenantCommand) -> anyhow::Result<ExitCode> {
    let given = config.server().new_tenants;
    Operator::work(config, async |operator| match command {
        TenantCommand::Create(args) => create(&operator, &args, given).await,
        TenantCommand::Ls => list(&operator).await,
        TenantCommand::Set(args) => set(&operator, &args).await,
        TenantCommand::Rm { name } => remove(&operator, &name).await,
    })
}

async fn create(operator: &Operator, args: &TenantArgs, mut settings: TenantSettings) -> anyhow::Result<ExitCode> {
    args.over(&mut settings);
    let tenant = Tenant { name: args.name.clone(), settings, created_ms: operator.now_ms() };
    match operator.store.tenants().create(&tenant).await {
        Err(StoreError::Conflict(_)) => bail!("there is, or was, a tenant of the name '{}'; choose another", args.name),
        done => done?,
    }
    let detail = serde_json::to_string(&tenant.settings)?;
    operator.note(&TenantId::default(), "tenant.created", args.name.as_str(), &detail).await?;
    Ok(ExitCode::SUCCESS)
}

async fn set(operator: &Operator, args: &TenantArgs) -> anyhow::Result<ExitCode> {
    let Some(mut tenant) = operator.store.tenants().get(&args.name).await? else { bail!(unknown(&args.name)) };
    args.over(&mut tenant.settings);
    operator.store.tenants().update(&args.name, &tenant.settings).await?;
    let detail = serde_json::to_string(&tenant.settings)?;
    operator.note(&TenantId::default(), "tenant.updated", args.name.as_str(), &detail).await?;
    Ok(ExitCode::SUCCESS)
}

async fn remove(operator: &Operator, name: &TenantId) -> anyhow::Result<ExitCode> {
    if *name == TenantId::default() {
        return Err(Usage::of("the tenant 'default' cannot be removed: it is whose keys manage the others"));
    }
    if !operator.store.tenants().remove(name, operator.now_ms()).await? {
        bail!(unknown(name));
    }
    operator.note(&TenantId::default(), "tenant.removed", name.as_str(), "").await?;
    Ok(ExitCode::SUCCESS)
}

fn unknown(name: &TenantId) -> String {
    format!("there is no tenant '{name}'; 'fumehood tenant ls' lists them")
}

async fn list(operator: &Operator) -> anyhow::Result<ExitCode> {
    let tenants = operator.store.tenants().list().await?;
    let rows: Vec<_> = tenants
        .iter()
        .map(|tenant| {
            let quotas = &tenant.settings.quotas;
            let number = |bound: Option<u64>| bound.map_or("-".to_owned(), |number| number.to_string());
            [
                tenant.name.to_string(),
                number(quotas.max_concurrent),
                number(quotas.max_queued),
                number(quotas.executions_per_day),
                number(quotas.cpu_seconds_per_day),
                number(quotas.disk_mb),
                number(tenant.settings.audit_keep_days),
                if tenant.created_ms > 0 { ago(&stamp(tenant.created_ms)) } else { "-".to_owned() },
            ]
        })
        .collect();
    let head = ["TENANT", "SANDBOXES", "QUEUED", "PER DAY", "CPU SECONDS", "DISK MB", "AUDIT DAYS", "AGE"];
    write_out(&table(head, &rows))?;
    Ok(ExitCode::SUCCESS)
}
