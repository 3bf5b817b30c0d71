//! Jobs, their keys and their deliveries: each step is taken by one, and what belongs together is written together.

use std::sync::Arc;

use fumehood_engine::execution::{Execution, Status};
use fumehood_engine::ids::{ExecutionId, IdSource as _, TenantId, UlidSource};
use fumehood_engine::job::Priority;
use fumehood_server::jobs::state::JobState;
use fumehood_server::store::{Attempt, End, Job, KeptExecution, NewJob, Store};

use crate::executions::ended;
use crate::on_every_database;

const NOW: i64 = 1_767_225_600_000;
const CALLBACK: &str = "https://example.com/told";

fn key(number: u8) -> Attempt {
    Attempt { key: [number; 32], body: [7; 32] }
}

fn new(tenant: &str, change: impl FnOnce(&mut NewJob)) -> NewJob {
    let draft = KeptExecution::from(ended(tenant, 0, String::new()));
    let execution = Execution {
        status: Status::Queued,
        outcome: None,
        started_at: None,
        finished_at: None,
        ..Execution::clone(&draft.execution)
    };
    let mut new = NewJob {
        draft: KeptExecution { execution: Arc::new(execution), ..draft },
        priority: Priority::Normal,
        max_attempts: 2,
        request: Some("{}".to_owned()),
        callback: None,
        state: JobState::Waiting { attempt: 0 },
        key: None,
    };
    change(&mut new);
    new
}

fn begun(worker: &str, attempt: u32, lease_ms: i64) -> JobState {
    JobState::Begun { attempt, worker: worker.to_owned(), lease_ms }
}

async fn job(store: &Store, id: &ExecutionId) -> Option<Job> {
    store.jobs().get(std::slice::from_ref(id)).await.unwrap().pop()
}

async fn status(store: &Store, id: &ExecutionId) -> Status {
    store.executions().get(id).await.unwrap().expect("it is on record").execution.status
}

/// The end of a job, printed or not.
fn end(new: &NewJob, stdout: &str) -> End {
    let whole = ended(new.draft.owner.as_str(), 9, stdout.to_owned());
    let execution = Execution { id: new.draft.execution.id.clone(), ..Execution::clone(&whole.execution) };
    End { kept: KeptExecution { execution: Arc::new(execution), ..whole.into() }, reason: None, now_ms: NOW }
}

on_every_database! {
    async fn a_job_goes_its_way_and_its_execution_with_it(place: Place) {
        let store = place.store().await;
        let new = new("a", |new| new.callback = Some(CALLBACK.to_owned()));
        let id = &new.draft.execution.id;
        assert!(store.jobs().add(&new, NOW).await.unwrap());
        assert_eq!(status(&store, id).await, Status::Queued);
        let waiting = job(&store, id).await.unwrap();
        assert_eq!((&waiting.state, waiting.created_ms, waiting.owner.as_str()), (&JobState::Waiting { attempt: 0 }, NOW, "a"));

        assert!(store.jobs().step(&waiting, &begun("w1", 1, NOW + 30), None).await.unwrap());
        assert_eq!(status(&store, id).await, Status::Running);
        let running = job(&store, id).await.unwrap();
        assert_eq!(running.state, begun("w1", 1, NOW + 30));
        assert!(store.jobs().step(&running, &JobState::Ended, Some(&end(&new, "done"))).await.unwrap());
        assert!(job(&store, id).await.is_none());
        let kept = store.executions().get(id).await.unwrap().unwrap();
        assert_eq!((kept.execution.status, &*kept.execution.stdout), (Status::Completed, "done"));

        // The end is to be told, by one at a time.
        let due = store.webhooks().due(NOW).await.unwrap();
        assert_eq!((due.len(), &*due[0].url, &due[0].execution, due[0].attempts), (1, CALLBACK, id, 0));
        assert!(store.webhooks().claim(&due[0], NOW + 5).await.unwrap());
        assert!(!store.webhooks().claim(&due[0], NOW + 5).await.unwrap());
        assert_eq!(store.webhooks().due(NOW).await.unwrap().len(), 0);
        store.webhooks().later(&due[0].id, NOW + 9, "refused").await.unwrap();
        let again = store.webhooks().due(NOW + 9).await.unwrap();
        assert_eq!((again.len(), again[0].attempts), (1, 1));
        store.webhooks().delivered(&due[0].id).await.unwrap();
        assert_eq!(store.webhooks().due(NOW + 9).await.unwrap().len(), 0);
    }

    async fn of_many_who_take_a_step_at_once_one_succeeds(place: Place) {
        let store = place.store().await;
        let new = new("a", |_| {});
        store.jobs().add(&new, NOW).await.unwrap();
        let waiting = job(&store, &new.draft.execution.id).await.unwrap();
        let tasks: Vec<_> = (0..8).map(|number| {
            let (store, waiting) = (store.clone(), waiting.clone());
            tokio::spawn(async move { store.jobs().step(&waiting, &begun(&format!("w{number}"), 1, NOW), None).await.unwrap() })
        }).collect();
        let mut taken = 0;
        for task in tasks {
            taken += u32::from(task.await.unwrap());
        }
        assert_eq!(taken, 1);

        // Whoever did not begin it cannot end it, and what they say of it is not written.
        let running = job(&store, &new.draft.execution.id).await.unwrap();
        let other = Job { state: begun("nobody", 1, NOW), ..running.clone() };
        assert!(!store.jobs().step(&other, &JobState::Ended, Some(&end(&new, "forged"))).await.unwrap());
        let earlier = Job { state: JobState::Begun { attempt: 2, worker: worker(&running), lease_ms: NOW }, ..running.clone() };
        assert!(!store.jobs().step(&earlier, &JobState::Ended, Some(&end(&new, "forged"))).await.unwrap());
        assert_eq!(status(&store, &new.draft.execution.id).await, Status::Running);
        assert!(store.jobs().step(&running, &JobState::Ended, Some(&end(&new, "true"))).await.unwrap());
        assert!(!store.jobs().step(&running, &JobState::Ended, Some(&end(&new, "twice"))).await.unwrap());
        assert_eq!(store.executions().get(&new.draft.execution.id).await.unwrap().unwrap().execution.stdout, "true");
    }

    async fn a_key_is_taken_once_with_all_that_is_written_with_it(place: Place) {
        let store = place.store().await;
        let tasks: Vec<_> = (0..6).map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let new = new("a", |new| new.key = Some(key(1)));
                (store.jobs().add(&new, NOW).await.unwrap(), new.draft.execution.id.clone())
            })
        }).collect();
        let mut made = Vec::new();
        for task in tasks {
            let (added, id) = task.await.unwrap();
            if added {
                made.push(id);
            }
        }
        assert_eq!(made.len(), 1);
        let earlier = store.idempotency().find(&key(1)).await.unwrap().unwrap();
        assert_eq!((earlier.target.as_str(), earlier.same_body), (made[0].as_str(), true));
        let other_body = Attempt { body: [8; 32], ..key(1) };
        assert!(!store.idempotency().find(&other_body).await.unwrap().unwrap().same_body);
        assert_eq!(store.jobs().depth().await.unwrap()[0].waiting, 1);

        store.jobs().withdraw(&made[0]).await.unwrap();
        assert!(store.idempotency().find(&key(1)).await.unwrap().is_none());
        assert!(store.executions().get(&made[0]).await.unwrap().is_none());

        assert!(store.idempotency().take(&key(2), "ses_1", NOW).await.unwrap());
        assert!(!store.idempotency().take(&key(2), "ses_2", NOW).await.unwrap());
        assert_eq!(store.idempotency().expire(NOW).await.unwrap(), 0);
        assert_eq!(store.idempotency().expire(NOW + 1).await.unwrap(), 1);
        store.idempotency().take(&key(2), "ses_2", NOW).await.unwrap();
        store.idempotency().forget("ses_2").await.unwrap();
        assert!(store.idempotency().find(&key(2)).await.unwrap().is_none());
    }

    async fn a_worker_keeps_what_it_has_and_what_nobody_keeps_is_found(place: Place) {
        let store = place.store().await;
        let mut ids = Vec::new();
        for number in 0..3_i64 {
            let new = new("a", |new| new.state = begun(if number == 2 { "w2" } else { "w1" }, 1, NOW + number));
            store.jobs().add(&new, NOW).await.unwrap();
            ids.push(new.draft.execution.id.clone());
        }
        assert!(store.jobs().ask_to_end(&ids[1]).await.unwrap());
        assert!(!store.jobs().ask_to_end(&UlidSource.execution()).await.unwrap());
        let mut mine = store.jobs().renew("w1", NOW + 100).await.unwrap();
        mine.sort_by(|one, other| one.id.cmp(&other.id));
        assert_eq!(mine.iter().map(|mine| (mine.attempt, mine.cancel)).collect::<Vec<_>>(), [(1, false), (1, true)]);
        assert_eq!(store.jobs().of_worker("w1").await.unwrap().len(), 2);
        let overdue = store.jobs().overdue(NOW + 50).await.unwrap();
        assert_eq!(overdue.iter().map(|job| &job.id).collect::<Vec<_>>(), [&ids[2]]);

        // Dead, and still on record until its execution is removed.
        let dead = End { reason: Some("gone".to_owned()), ..end(&new("a", |_| {}), "") };
        let execution = Execution { id: ids[2].clone(), ..Execution::clone(&dead.kept.execution) };
        let dead = End { kept: KeptExecution { execution: Arc::new(execution), ..dead.kept }, ..dead };
        assert!(store.jobs().step(&overdue[0], &JobState::Dead { attempt: 1 }, Some(&dead)).await.unwrap());
        let listed = store.jobs().list(None, true, 10).await.unwrap();
        assert_eq!((listed.len(), listed[0].reason.as_deref()), (1, Some("gone")));
        assert!(store.executions().delete(&ids[2]).await.unwrap());
        assert_eq!(store.jobs().list(None, true, 10).await.unwrap().len(), 0);
        // What has not ended is not removed.
        assert!(!store.executions().delete(&ids[0]).await.unwrap());
    }

    async fn what_waits_is_counted_and_listed_in_the_order_of_its_acceptance(place: Place) {
        let store = place.store().await;
        let mut ids = Vec::new();
        for number in 0..5_u8 {
            let tenant = if number == 3 { "b" } else { "a" };
            let new = new(tenant, |new| new.priority = if number == 4 { Priority::High } else { Priority::Low });
            store.jobs().add(&new, NOW + i64::from(number)).await.unwrap();
            ids.push(new.draft.execution.id.clone());
        }
        ids.sort();
        let mut depth: Vec<_> = store.jobs().depth().await.unwrap().into_iter().map(|own| (own.owner.to_string(), own.waiting)).collect();
        depth.sort();
        assert_eq!(depth, [("a".to_owned(), 4), ("b".to_owned(), 1)]);
        let first = store.jobs().waiting(i64::MAX, "", 3).await.unwrap();
        let rest = store.jobs().waiting(i64::MAX, first[2].0.as_str(), 3).await.unwrap();
        assert_eq!(first.iter().chain(&rest).map(|row| row.0.clone()).collect::<Vec<_>>(), ids);
        assert_eq!(store.jobs().waiting(NOW, "", 9).await.unwrap().len(), 0);
        let of_b = store.jobs().list(TenantId::parse("b").as_ref(), false, 9).await.unwrap();
        assert_eq!(of_b.len(), 1);
    }
}

fn worker(job: &Job) -> String {
    match &job.state {
        JobState::Begun { worker, .. } => worker.clone(),
        other => panic!("{other:?}"),
    }
}
