//! The images of this backend: the node's own, and others that templates name, each opened when it is first asked for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::base::Base;
use super::kinds::Kinds;
use crate::image::Image;
use crate::spec::FieldError;

/// Finds images. Every call may block.
pub trait ImageSource: Send + Sync {
    /// The image of this name, with the folder of its runner.
    ///
    /// # Errors
    /// Why there is none.
    fn open(&self, name: &str) -> Result<(Image, String), String>;

    /// What has taken the place of this image; `None` when it is current.
    ///
    /// # Errors
    /// Why that cannot be told.
    fn newer(&self, image: &Image) -> Result<Option<(Image, String)>, String>;
}

/// The newest version of one image.
pub(super) type Line = Arc<Mutex<Arc<Base>>>;

/// Most images besides the node's own that are kept open; those that nobody uses go first.
const MOST_OTHERS: usize = 32;
/// How often is looked whether images have been built anew.
const LOOK: Duration = Duration::from_secs(2);

/// All images that are open.
pub(super) struct Images {
    own: Line,
    others: Mutex<HashMap<String, Line>>,
    source: Mutex<Option<Arc<dyn ImageSource>>>,
}

impl Images {
    pub(super) fn new(own: Base) -> Self {
        Self { own: Arc::new(Mutex::new(Arc::new(own))), others: Mutex::default(), source: Mutex::default() }
    }

    pub(super) fn set_source(&self, source: Arc<dyn ImageSource>) {
        *self.source.lock() = Some(source);
    }

    /// The node's own.
    pub(super) fn own(&self) -> &Line {
        &self.own
    }

    /// The image of this name; the node's own without. Blocks when it is asked for the first time.
    pub(super) fn line(&self, name: Option<&str>) -> Result<Line, FieldError> {
        let own = || self.own.lock().image.name.clone();
        let Some(name) = name.filter(|name| *name != own()) else { return Ok(Arc::clone(&self.own)) };
        if let Some(line) = self.others.lock().get(name) {
            return Ok(Arc::clone(line));
        }
        let Some(source) = self.source.lock().clone() else {
            return Err(FieldError::new(
                "image",
                format!("{name:?} cannot be used here: there is no folder of images"),
            ));
        };
        let (image, runner) = source.open(name).map_err(|why| FieldError::new("image", why))?;
        for note in &image.notes {
            tracing::warn!(image = image.name, "{note}");
        }
        let line = Arc::new(Mutex::new(Arc::new(self.own.lock().beside(image, runner))));
        let mut others = self.others.lock();
        if others.len() >= MOST_OTHERS {
            // Whoever still uses one has it.
            others.retain(|_, line| Arc::strong_count(line) > 1);
        }
        Ok(Arc::clone(others.entry(name.to_owned()).or_insert(line)))
    }

    /// What is installed in an image, by normalized name. Blocks.
    pub(super) fn packages(&self, name: Option<&str>) -> Result<BTreeMap<String, String>, FieldError> {
        let base = Arc::clone(&self.line(name)?.lock());
        Ok(base.image.packages())
    }

    /// Takes up new versions for as long as the runtime lives, and ends zygotes that nobody uses.
    pub(super) async fn renew(self: Arc<Self>, kinds: Option<Arc<Kinds>>) {
        let mut complaint = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            if let Some(kinds) = &kinds {
                kinds.end_unused();
            }
            let others: Vec<_> =
                self.others.lock().iter().map(|(name, line)| (name.clone(), Arc::clone(line))).collect();
            match self.look(&self.own).await {
                Ok(renewed) => {
                    complaint.clear();
                    if let (true, Some(kinds)) = (renewed, &kinds) {
                        kinds.replace(None);
                    }
                }
                Err(why) if why != complaint => {
                    // Sandboxes go on with what they have.
                    tracing::warn!(why, "the image cannot be read any more; what was read before stays in use");
                    complaint = why;
                }
                Err(_) => {}
            }
            for (name, line) in others {
                match self.look(&line).await {
                    Ok(false) => {}
                    Ok(true) => {
                        if let Some(kinds) = &kinds {
                            kinds.replace(Some(&name));
                        }
                    }
                    Err(why) => {
                        tracing::warn!(image = name, why, "the image is gone; what was made from it goes on");
                        self.others.lock().remove(&name);
                    }
                }
            }
        }
    }

    /// Whether a new version was taken up.
    async fn look(&self, line: &Line) -> Result<bool, String> {
        let Some(source) = self.source.lock().clone() else { return Ok(false) };
        let base = Arc::clone(&line.lock());
        let looked = tokio::task::spawn_blocking(move || source.newer(&base.image).map(|found| (found, base))).await;
        let (found, base) = looked.unwrap_or_else(|error| Err(error.to_string()))?;
        let Some((image, runner)) = found else { return Ok(false) };
        tracing::info!(
            image = image.name,
            version = image.fingerprint,
            "the image has been built anew; new sandboxes get it"
        );
        *line.lock() = Arc::new(base.next(image, runner));
        Ok(true)
    }
}
