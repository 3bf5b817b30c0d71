//! What is old goes by itself: rows, files, keys and entries of the audit log.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;

use crate::jobs::{SMALL, start_on, with_key};
use crate::server::{Server, wait_for};
use crate::tenants::{done, run};

/// First column of each row that a statement gives on the database in a folder.
fn sql(data: &Path, statement: &str) -> Vec<String> {
    let program = "import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=30) as database:
    for row in database.execute(sys.argv[2]):
        print(row[0])";
    let output =
        Command::new("python3").args(["-c", program]).arg(data.join("fumehood.db")).arg(statement).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Executions that left files in a folder, by those files.
fn with_files(data: &Path) -> BTreeSet<String> {
    let folders = std::fs::read_dir(data.join("artifacts")).unwrap();
    folders.map(|folder| folder.unwrap().file_name().into_string().unwrap()).collect()
}

/// Runs something that leaves a file; its id.
fn leave(server: &Server, number: usize) -> String {
    let fields = json!({"collect": ["*.txt"]});
    let execution = server.succeed(&format!("open('{number}.txt', 'w').write('{number}')"), fields);
    execution["id"].as_str().unwrap().to_owned()
}

fn set(ids: &[String]) -> BTreeSet<String> {
    ids.iter().cloned().collect()
}

const RECORDS: &str = "SELECT id FROM executions";
const KEYS: &str = "SELECT target FROM idempotency";
/// Milliseconds.
const TWO_DAYS: &str = "172800000";

#[test]
fn old_executions_go_with_their_files_and_keys_and_new_ones_stay() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let Some(mut server) = start_on(data, "serve", &SMALL) else { return };
    let body = json!({"code": "open('key.txt', 'w').write('key')", "collect": ["*.txt"]});
    let (status, first) = with_key(&server, "k", &body);
    assert_eq!(status, 200, "{first}");
    let mut ids = vec![first["id"].as_str().unwrap().to_owned()];
    ids.extend((1..6).map(|number| leave(&server, number)));
    assert!(server.end(Signal::TERM).success());
    // Everything is there: the server does not end before it is on record.
    assert_eq!(set(&sql(data, RECORDS)), set(&ids));
    assert_eq!(with_files(data), set(&ids));
    assert_eq!(sql(data, KEYS), ids[..1]);

    // What is old is looked for at the start, and then every minute.
    let few = [SMALL[0], SMALL[1], ("FUMEHOOD_STORAGE__KEEP_EXECUTIONS", "3")];
    let Some(mut server) = start_on(data, "serve", &few) else { return };
    wait_for(|| (set(&sql(data, RECORDS)) == set(&ids[3..])).then_some(()));
    wait_for(|| (with_files(data) == set(&ids[3..])).then_some(()));
    wait_for(|| sql(data, KEYS).is_empty().then_some(()));
    for (number, id) in ids.iter().enumerate() {
        let kept = number >= 3;
        assert_eq!(server.get(&format!("/v1/executions/{id}")).0, if kept { 200 } else { 404 });
        let file = server.request("GET", &format!("/v1/executions/{id}/artifacts/{number}.txt"), None);
        assert_eq!(file.0, if kept { 200 } else { 404 });
        assert!(!kept || file.1 == number.to_string().into_bytes());
    }
    // The key went with its execution: the same request runs anew.
    let (_, again) = with_key(&server, "k", &body);
    assert!(!ids.contains(&again["id"].as_str().unwrap().to_owned()), "{again}");
    assert!(server.end(Signal::TERM).success());

    // By age: all but the newest ended two days ago.
    let newest = again["id"].as_str().unwrap();
    sql(data, &format!("UPDATE executions SET finished_ms = finished_ms - {TWO_DAYS} WHERE id != '{newest}'"));
    let short = [SMALL[0], SMALL[1], ("FUMEHOOD_STORAGE__KEEP_DAYS", "1")];
    let Some(_server) = start_on(data, "serve", &short) else { return };
    wait_for(|| (sql(data, RECORDS) == [newest]).then_some(()));
    wait_for(|| (with_files(data) == BTreeSet::from([newest.to_owned()])).then_some(()));
}

#[test]
fn entries_of_the_audit_log_go_when_their_tenant_wants_it() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path();
    let Some(mut server) = start_on(data, "serve", &SMALL) else { return };
    // One says nothing about it, one wants more than the server, one all of it, one less.
    done(data, &["tenant", "create", "silent"]);
    done(data, &["tenant", "create", "long", "--audit-keep-days", "30"]);
    done(data, &["tenant", "create", "ever", "--audit-keep-days", "0"]);
    done(data, &["tenant", "create", "short", "--audit-keep-days", "1"]);
    for tenant in ["silent", "long", "ever", "short"] {
        let key = done(data, &["key", "create", "--tenant", tenant]);
        let (status, execution) = run(&server.url, &key, "1");
        assert_eq!(status, 200, "{execution}");
    }
    assert!(server.end(Signal::TERM).success());
    let of = |tenant: &str| {
        let text =
            format!("SELECT action FROM audit WHERE tenant = '{tenant}' AND action LIKE 'execution.%' ORDER BY id");
        sql(data, &text)
    };
    let both = ["execution.accepted", "execution.ended"];
    assert!(["silent", "long", "ever", "short"].iter().all(|tenant| of(tenant) == both));

    sql(data, &format!("UPDATE audit SET at_ms = at_ms - {TWO_DAYS}"));
    let Some(mut server) = start_on(data, "serve", &SMALL) else { return };
    wait_for(|| of("short").is_empty().then_some(()));
    assert!(["silent", "long", "ever"].iter().all(|tenant| of(tenant) == both));
    assert!(server.end(Signal::TERM).success());

    let less = [SMALL[0], SMALL[1], ("FUMEHOOD_TENANTS__AUDIT_KEEP_DAYS", "1")];
    let Some(_server) = start_on(data, "serve", &less) else { return };
    wait_for(|| of("silent").is_empty().then_some(()));
    assert!(["long", "ever"].iter().all(|tenant| of(tenant) == both));
}
