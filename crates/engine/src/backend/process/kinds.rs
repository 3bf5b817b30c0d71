//! Zygotes of every kind: the node's own, and those for templates with another image or other modules.
//!
//! The own one is always there. Another is started when it is first asked for, and ended when nobody has asked for long; until it is loaded, and when there
//! are too many kinds, sandboxes load their own interpreter. Each kind has a uid of its own on the host, so that none can enter the sandboxes of
//! another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::images::Images;
use super::zygote::Zygotes;
use super::{Shared, ZygoteConfig};
use crate::spec::ExecutionSpec;
use crate::template::SandboxKind;

/// Most kinds at once besides the own one: each is an interpreter with all its modules.
const MOST: usize = 4;
/// Most kinds that ever get a zygote in the life of a server; the jailer keeps a uid for each.
const MOST_EVER: usize = 200;
/// One that nobody asked for in so long ends.
const UNUSED: Duration = Duration::from_secs(3600);
/// One that was used a shorter time ago does not have to make room for another.
const BUSY: Duration = Duration::from_secs(60);

/// What tells zygotes apart: the image and the modules.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    image: Option<String>,
    preload: Option<Arc<[String]>>,
}

struct Kind {
    zygotes: Arc<Zygotes>,
    used: Instant,
    stop: CancellationToken,
}

#[derive(Default)]
struct Others {
    present: HashMap<Key, Kind>,
    /// Given once and for good.
    numbers: HashMap<Key, u32>,
}

/// All zygotes of a backend.
pub(super) struct Kinds {
    config: ZygoteConfig,
    ordinary: ExecutionSpec,
    own: Arc<Zygotes>,
    others: Mutex<Others>,
    shared: Arc<Shared>,
    images: Arc<Images>,
}

impl Kinds {
    /// Starts the own one. Must be called on the runtime.
    pub(super) fn start(
        config: ZygoteConfig,
        ordinary: ExecutionSpec,
        shared: Arc<Shared>,
        images: Arc<Images>,
    ) -> Arc<Self> {
        let own = Zygotes::new(config.clone(), ordinary.clone(), 0);
        tokio::spawn(Arc::clone(&own).keep(Arc::clone(&shared), Arc::clone(images.own())));
        Arc::new(Self { config, ordinary, own, others: Mutex::default(), shared, images })
    }

    /// The node's own.
    pub(super) fn own(&self) -> &Arc<Zygotes> {
        &self.own
    }

    /// Those for this kind of sandbox, whether or not one is loaded already. Must be called on the runtime.
    pub(super) fn of(&self, kind: &SandboxKind) -> Option<Arc<Zygotes>> {
        let key = Key { image: kind.image.clone(), preload: kind.preload.clone() };
        if key.image.is_none() && key.preload.is_none() {
            return Some(Arc::clone(&self.own));
        }
        let line = self.images.line(key.image.as_deref()).ok()?;
        let mut others = self.others.lock();
        if let Some(kind) = others.present.get_mut(&key) {
            kind.used = Instant::now();
            return Some(Arc::clone(&kind.zygotes));
        }
        if others.present.len() >= MOST && !others.make_room() {
            return None;
        }
        let next = u32::try_from(others.numbers.len() + 1).unwrap_or(u32::MAX);
        if !others.numbers.contains_key(&key) && others.numbers.len() >= MOST_EVER {
            return None;
        }
        let number = *others.numbers.entry(key.clone()).or_insert(next);
        let mut config = self.config.clone();
        if let Some(preload) = &key.preload {
            config.preload = preload.to_vec();
        }
        let zygotes = Zygotes::new(config, self.ordinary.clone(), number);
        let stop = CancellationToken::new();
        let (kept, shared, stopped) = (Arc::clone(&zygotes), Arc::clone(&self.shared), stop.clone());
        tokio::spawn(async move {
            stopped.run_until_cancelled(Arc::clone(&kept).keep(Arc::clone(&shared), line)).await;
            kept.end(&shared);
        });
        tracing::info!(image = key.image, preload = ?key.preload, "a kind of interpreter is preloaded for a template");
        let found = Arc::clone(&zygotes);
        others.present.insert(key, Kind { zygotes, used: Instant::now(), stop });
        Some(found)
    }

    /// Has those of an image (the node's own without a name) be started anew.
    pub(super) fn replace(&self, image: Option<&str>) {
        if image.is_none() {
            self.own.replace();
        }
        for (key, kind) in &self.others.lock().present {
            if key.image.as_deref() == image {
                kind.zygotes.replace();
            }
        }
    }

    /// Ends those that nobody asked for in a long time.
    pub(super) fn end_unused(&self) {
        self.others.lock().present.retain(|_, kind| {
            let stays = kind.used.elapsed() < UNUSED;
            if !stays {
                kind.stop.cancel();
            }
            stays
        });
    }
}

impl Others {
    /// Ends the one that was not used for longest, unless all are in use. Whether it did.
    fn make_room(&mut self) -> bool {
        let oldest = self
            .present
            .iter()
            .filter(|(_, kind)| kind.used.elapsed() >= BUSY)
            .max_by_key(|(_, kind)| kind.used.elapsed());
        let Some(key) = oldest.map(|(key, _)| key.clone()) else { return false };
        if let Some(kind) = self.present.remove(&key) {
            kind.stop.cancel();
        }
        true
    }
}
