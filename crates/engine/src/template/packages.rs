//! Packages that a template asks for.

use std::collections::BTreeMap;
use std::fmt;

/// A Python package, and its version if one is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// As it was written.
    pub name: String,
    /// Exactly this one.
    pub version: Option<String>,
}

/// The one form of a package's name: `Scikit_Learn` and `scikit-learn` are the same.
#[must_use]
pub fn normalized(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-")
}

impl Package {
    /// Reads `name` or `name==version`.
    ///
    /// # Errors
    /// A sentence on what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let (name, version) = match text.split_once("==") {
            Some((name, version)) => (name.trim(), Some(version.trim())),
            None => (text.trim(), None),
        };
        let named = !normalized(name).is_empty() && name.len() <= 200 && name.chars().all(plain);
        let numbered = version.is_none_or(|version| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '!');
            !version.is_empty() && version.len() <= 100 && version.chars().all(plain)
        });
        if !named || !numbered {
            return Err(format!("{text:?} must be the name of a package, or name==version"));
        }
        Ok(Self { name: name.to_owned(), version: version.map(str::to_owned) })
    }

    /// Why `installed` (by normalized name) does not have it; `None` when it does.
    #[must_use]
    pub fn lacking(&self, installed: &BTreeMap<String, String>) -> Option<String> {
        match (installed.get(&normalized(&self.name)), &self.version) {
            (None, _) => Some("is not there".to_owned()),
            (Some(found), Some(wanted)) if found != wanted => Some(format!("is there in version {found}")),
            (Some(_), _) => None,
        }
    }
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}=={version}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_found_however_its_name_is_written() {
        let installed = [("scikit-learn".to_owned(), "1.5.2".to_owned())].into();
        let lacking = |text: &str| Package::parse(text).unwrap().lacking(&installed);
        assert_eq!(lacking("Scikit_Learn"), None);
        assert_eq!(lacking("scikit.learn==1.5.2"), None);
        assert!(lacking("scikit-learn == 1.6").unwrap().contains("1.5.2"));
        assert!(lacking("numpy").is_some());
        for bad in ["", "==1", "a==", "a>=1", "a b", "a;b", "-", "a==1 || x"] {
            assert!(Package::parse(bad).is_err(), "{bad:?}");
        }
    }
}
