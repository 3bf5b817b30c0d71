//! Versions of templates: numbered, never changed, each tenant's own.

use std::collections::BTreeSet;

use fumehood_engine::ids::TenantId;
use fumehood_engine::template::TemplateSpec;
use fumehood_server::store::{NewTemplate, TemplateStore};
use futures::future::join_all;

use crate::on_every_database;

fn spec(name: &str, timeout_ms: i64, extends: Option<&str>) -> TemplateSpec {
    TemplateSpec {
        name: name.to_owned(),
        timeout_ms: Some(timeout_ms),
        extends: extends.map(str::to_owned),
        description: Some("Größe, 表, \u{1f9ea}".to_owned()),
        ..TemplateSpec::default()
    }
}

async fn add(store: &impl TemplateStore, tenant: &TenantId, spec: &TemplateSpec, first: bool) -> Option<u32> {
    let new = NewTemplate { spec, created_ms: 1_700_000_000_123, created_by: "somebody", first };
    store.add(tenant, new).await.unwrap()
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

on_every_database! {
    async fn a_version_is_found_as_it_was_written(place: Place) {
        let store = place.open().await;
        let owner = tenant("a");
        assert_eq!(add(&*store, &owner, &spec("t", 1, None), true).await, Some(1));
        assert_eq!(add(&*store, &owner, &spec("t", 2, Some("base@1")), false).await, Some(2));
        // The name is taken, or is not.
        assert_eq!(add(&*store, &owner, &spec("t", 3, None), true).await, None);
        assert_eq!(add(&*store, &owner, &spec("u", 3, None), false).await, None);

        let newest = store.find(&owner, "t", None).await.unwrap().unwrap();
        assert_eq!((newest.version, &newest.spec), (2, &spec("t", 2, Some("base@1"))));
        assert_eq!((newest.created_ms, newest.created_by.as_str()), (1_700_000_000_123, "somebody"));
        assert_eq!(store.find(&owner, "t", Some(1)).await.unwrap().unwrap().spec, spec("t", 1, None));
        assert_eq!(store.find(&owner, "t", Some(3)).await.unwrap(), None);
        assert_eq!(store.children(&owner, "base").await.unwrap(), ["t"]);

        add(&*store, &owner, &spec("a", 9, None), true).await;
        let listed = |versions| async move {
            let found = store.list(&tenant("a"), versions, 100).await.unwrap();
            found.into_iter().map(|found| (found.spec.name, found.version)).collect::<Vec<_>>()
        };
        let pair = |name: &str, version| (name.to_owned(), version);
        assert_eq!(listed.clone()(false).await, [pair("a", 1), pair("t", 2)]);
        assert_eq!(listed(true).await, [pair("a", 1), pair("t", 1), pair("t", 2)]);
    }

    async fn a_tenant_sees_its_own_only(place: Place) {
        let store = place.open().await;
        add(&*store, &tenant("a"), &spec("t", 1, Some("base@1")), true).await;
        let other = tenant("b");
        assert_eq!(store.find(&other, "t", None).await.unwrap(), None);
        assert!(store.list(&other, true, 10).await.unwrap().is_empty());
        assert!(store.children(&other, "base").await.unwrap().is_empty());
        assert!(!store.delete(&other, "t", 5).await.unwrap());
        assert_eq!(add(&*store, &other, &spec("t", 2, None), true).await, Some(1));
    }

    async fn a_deleted_name_is_gone_and_its_numbers_are_not_given_again(place: Place) {
        let store = place.open().await;
        let owner = tenant("a");
        add(&*store, &owner, &spec("t", 1, Some("base@1")), true).await;
        add(&*store, &owner, &spec("t", 2, Some("base@1")), false).await;
        assert!(store.delete(&owner, "t", 5).await.unwrap());
        assert!(!store.delete(&owner, "t", 6).await.unwrap());
        assert_eq!(store.find(&owner, "t", None).await.unwrap(), None);
        assert_eq!(store.find(&owner, "t", Some(1)).await.unwrap(), None);
        assert!(store.children(&owner, "base").await.unwrap().is_empty());
        assert_eq!(add(&*store, &owner, &spec("t", 3, None), false).await, None);
        assert_eq!(add(&*store, &owner, &spec("t", 3, None), true).await, Some(3));
        assert_eq!(store.list(&owner, true, 10).await.unwrap().len(), 1);
    }

    async fn versions_made_at_once_on_several_servers_get_numbers_of_their_own(place: Place) {
        let (first, second) = (place.open().await, place.open().await);
        let owner = tenant("a");
        add(&*first, &owner, &spec("t", 0, None), true).await;
        let writers = (1..=12_i64).map(|number| {
            let store = if number % 2 == 0 { first.clone() } else { second.clone() };
            let owner = owner.clone();
            async move { add(&*store, &owner, &spec("t", number, None), false).await.unwrap() }
        });
        let numbers: BTreeSet<u32> = join_all(writers).await.into_iter().collect();
        assert_eq!(numbers, (2..=13).collect());
        // One of those who take a free name at once has it.
        let takers = [&first, &second].map(|store| add(&**store, &owner, &TAKEN, true));
        let taken = join_all(takers).await;
        assert_eq!(taken.iter().filter(|taken| **taken == Some(1)).count(), 1, "{taken:?}");
        assert_eq!(taken.iter().filter(|taken| taken.is_none()).count(), 1, "{taken:?}");
    }
}

static TAKEN: std::sync::LazyLock<TemplateSpec> = std::sync::LazyLock::new(|| spec("u", 1, None));
