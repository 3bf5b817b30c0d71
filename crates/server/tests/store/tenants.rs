//! Tenants, keys, usage and the audit log, as they are kept.

use fumehood_engine::ids::TenantId;
use fumehood_server::store::{
    AuditEntry, AuditFilter, Key, Quotas, Scope, Scopes, Store, StoreError, Tenant, TenantSettings, Usage,
};

use crate::on_every_database;

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

async fn open(place: &crate::rig::Place) -> Store {
    Store::open(&place.config).await.unwrap()
}

fn issue(name: &str, lifetime_ms: Option<i64>) -> Key {
    Key::issue(tenant(name), "a 🔑 'name'".to_owned(), Scopes::all(), lifetime_ms, 1000).unwrap().1
}

fn entry(name: &str, at_ms: i64, action: &str) -> AuditEntry {
    AuditEntry {
        id: 0,
        at_ms,
        tenant: tenant(name),
        key: Some("key_1".to_owned()),
        request_id: None,
        action: action.to_owned(),
        object: "exe_1".to_owned(),
        outcome: "exited".to_owned(),
        policy: Some("default".to_owned()),
        code_hash: None,
        code: Some("print('?', '{id}', '\u{0}🧪')".to_owned()),
        detail: None,
    }
}

on_every_database! {
    async fn a_tenant_is_kept_until_it_is_removed_and_its_name_is_not_given_again(place: Place) {
        let store = open(&place).await;
        let tenants = store.tenants();
        assert_eq!(tenants.get(&TenantId::default()).await.unwrap().unwrap().settings, TenantSettings::default());
        let quotas = Quotas { max_concurrent: Some(3), disk_mb: Some(0), ..Quotas::default() };
        let settings = TenantSettings { quotas, audit_keep_days: Some(7), keep_code: true };
        let acme = Tenant { name: tenant("acme"), settings, created_ms: 5 };
        tenants.create(&acme).await.unwrap();
        assert!(matches!(tenants.create(&acme).await.unwrap_err(), StoreError::Conflict(_)));
        assert_eq!(tenants.get(&acme.name).await.unwrap(), Some(acme.clone()));
        assert!(tenants.update(&acme.name, &TenantSettings::default()).await.unwrap());
        // The same once more is found all the same.
        assert!(tenants.update(&acme.name, &TenantSettings::default()).await.unwrap());
        let names: Vec<_> = tenants.list().await.unwrap().into_iter().map(|tenant| tenant.name.to_string()).collect();
        assert_eq!(names, ["acme", "default"]);

        let key = issue("acme", None);
        store.keys().add(&key).await.unwrap();
        assert!(tenants.remove(&acme.name, 9).await.unwrap());
        assert!(!tenants.remove(&acme.name, 9).await.unwrap());
        assert_eq!(store.keys().get(&key.id).await.unwrap().unwrap().revoked_ms, Some(9));
        assert_eq!(tenants.get(&acme.name).await.unwrap(), None);
        assert!(!tenants.update(&acme.name, &TenantSettings::default()).await.unwrap());
        assert!(matches!(tenants.create(&acme).await.unwrap_err(), StoreError::Conflict(_)));
    }

    async fn a_key_is_kept_by_its_hash_and_only_ever_loses(place: Place) {
        let store = open(&place).await;
        let keys = store.keys();
        assert!(!keys.any().await.unwrap());
        let (key, mortal) = (issue("default", None), issue("default", Some(500)));
        keys.add(&key).await.unwrap();
        keys.add(&mortal).await.unwrap();
        assert_eq!(keys.get(&key.id).await.unwrap().as_ref(), Some(&key));
        assert_eq!(keys.list(None).await.unwrap().len(), 2);
        assert_eq!(keys.list(Some(&tenant("other"))).await.unwrap(), []);
        // Never later than it was.
        assert!(keys.expire(&mortal.id, 2000).await.unwrap() && keys.expire(&key.id, 2000).await.unwrap());
        let end = async |key: &Key| keys.get(&key.id).await.unwrap().unwrap().expires_ms;
        assert_eq!((end(&mortal).await, end(&key).await), (Some(1500), Some(2000)));
        for at in [1100, 1050] {
            keys.used(&key.id, at).await.unwrap();
        }
        assert_eq!(keys.get(&key.id).await.unwrap().unwrap().used_ms, Some(1100));
        assert!(keys.any_valid(1999).await.unwrap() && !keys.any_valid(2000).await.unwrap());
        assert!(keys.revoke(&key.id, 1200).await.unwrap());
        assert!(!keys.revoke(&key.id, 1300).await.unwrap() && !keys.expire(&key.id, 1).await.unwrap());
        assert_eq!(keys.get(&key.id).await.unwrap().unwrap().revoked_ms, Some(1200));
        assert!(keys.any().await.unwrap() && !keys.any_valid(1600).await.unwrap());
        assert_eq!(keys.get(&issue("default", None).id).await.unwrap(), None);
        let some: Scopes = [Scope::Read, Scope::Run].into_iter().collect();
        let one = Key { scopes: some, ..issue("default", None) };
        keys.add(&one).await.unwrap();
        assert_eq!(keys.get(&one.id).await.unwrap(), Some(one));
    }

    async fn several_servers_add_to_the_same_day(place: Place) {
        let store = open(&place).await;
        let more = Usage { executions: 1, failures: 0, cpu_ms: 7, wall_ms: 9, result_bytes: 1 << 40 };
        let adding = (0..20).map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.usage().add(&tenant("acme"), 20_000, more).await })
        });
        for added in adding.collect::<Vec<_>>() {
            added.await.unwrap().unwrap();
        }
        store.usage().add(&tenant("acme"), 20_001, more).await.unwrap();
        store.usage().add(&tenant("other"), 20_000, more).await.unwrap();
        let days = store.usage().days(&tenant("acme"), 20_000, 20_000).await.unwrap();
        let sum = Usage { executions: 20, failures: 0, cpu_ms: 140, wall_ms: 180, result_bytes: 20 << 40 };
        assert_eq!(days, [(20_000, sum)]);
        assert_eq!(store.usage().days(&tenant("acme"), 19_999, 20_002).await.unwrap().len(), 2);
        assert_eq!(store.usage().stored_bytes(&tenant("acme")).await.unwrap(), 0);
    }

    async fn the_audit_log_keeps_its_order_and_forgets_only_what_is_old(place: Place) {
        let store = open(&place).await;
        let log = store.audit();
        let entries: Vec<_> = (0..150).map(|at| entry("acme", at, "execution.ended")).collect();
        log.append(&entries).await.unwrap();
        log.append(&[entry("other", 1000, "key.created")]).await.unwrap();
        log.append(&[]).await.unwrap();
        let mut filter = AuditFilter { tenant: Some(tenant("acme")), limit: 100, ..AuditFilter::default() };
        let first = log.page(&filter).await.unwrap();
        assert!(first.iter().map(|entry| entry.at_ms).eq((50..150).rev()));
        assert_eq!(first[0].code.as_deref(), Some("print('?', '{id}', '\u{fffd}🧪')"));
        filter.before = first.last().map(|entry| entry.id);
        let rest = log.page(&filter).await.unwrap();
        assert!(rest.iter().map(|entry| entry.at_ms).eq((0..50).rev()));
        assert_eq!(rest[0].key.as_deref(), Some("key_1"));

        assert_eq!(log.forget(&tenant("acme"), 140).await.unwrap(), 140);
        let all = AuditFilter { limit: 1000, ..AuditFilter::default() };
        assert_eq!(log.page(&all).await.unwrap().len(), 11);
        for (filter, found) in [
            (AuditFilter { action: Some("key.created".to_owned()), ..all.clone() }, 1),
            (AuditFilter { since_ms: Some(145), tenant: Some(tenant("acme")), ..all.clone() }, 5),
            (AuditFilter { object: Some("exe_2".to_owned()), ..all.clone() }, 0),
            (AuditFilter { key: Some("key_1".to_owned()), object: Some("exe_1".to_owned()), ..all.clone() }, 11),
        ] {
            assert_eq!(log.page(&filter).await.unwrap().len(), found, "{filter:?}");
        }
    }
}
