//! JSON of strangers, held as text.
//!
//! A tree of small values takes more than thirty times its text: thirty megabytes of `[0,0,0,…]` become a gigabyte. So what guests and
//! callers send is read once as it streams by, checked, and written down compactly; whoever wants to see into it reads the text.
//!
//! What is read is plain data whatever its keys are: nothing here goes through the types of `serde_json` that give a meaning to
//! some names.

use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Deepest nesting of arrays and objects in one value.
pub const MOST_DEPTH: usize = 100;

/// Most members of one [`Members`].
pub const MOST_MEMBERS: usize = 10_000;

/// Longest text of one value, in bytes. Written compactly a value can be longer than it was: `1e15` is.
const MOST_TEXT: usize = 64 << 20;

/// What keeping a member costs besides its name and its text, in bytes.
const MEMBER_COST: usize = 160;

/// One JSON value as compact text. Cheap to clone.
///
/// Numbers are those of JSON that fit into 64 bits, as integers or floating point. Members of objects stay in order; a name that an
/// object has twice is kept twice, and what reads it decides, as JSON has it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonText(Arc<str>);

impl JsonText {
    /// Reads JSON.
    ///
    /// # Errors
    /// When it is none, is nested too deeply, or is too long.
    pub fn parse(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// A value as text.
    ///
    /// # Errors
    /// When it cannot be written as JSON, is nested too deeply, or is too long.
    pub fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        Self::parse(&serde_json::to_string(value)?)
    }

    /// The JSON.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is `null`.
    #[must_use]
    pub fn is_null(&self) -> bool {
        &*self.0 == "null"
    }

    /// The content, if it is a string.
    #[must_use]
    pub fn string(&self) -> Option<String> {
        // Anything else ends with its first byte.
        serde_json::from_str(&self.0).ok()
    }

    /// The members, if it is an object that has not too many.
    #[must_use]
    pub fn members(&self) -> Option<Members> {
        serde_json::from_str(&self.0).ok()
    }

    /// Bytes that keeping it costs.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.len()
    }
}

impl Default for JsonText {
    fn default() -> Self {
        Self(Arc::from("null"))
    }
}

impl fmt::Debug for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for JsonText {
    /// The string as a JSON string.
    fn from(text: &str) -> Self {
        Self(serde_json::Value::from(text).to_string().into())
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = Vec::new();
        Compact { text: &mut text, deeper: MOST_DEPTH }.deserialize(deserializer)?;
        String::from_utf8(text).map(|text| Self(text.into())).map_err(D::Error::custom)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_transcode::transcode(&mut serde_json::Deserializer::from_str(&self.0), serializer)
    }
}

/// Writes a value down as it is read.
struct Compact<'a> {
    text: &'a mut Vec<u8>,
    /// How much deeper it may go.
    deeper: usize,
}

impl Compact<'_> {
    fn write<E: serde::de::Error>(self, scalar: &(impl Serialize + ?Sized)) -> Result<(), E> {
        serde_json::to_writer(&mut *self.text, scalar).map_err(E::custom)
    }

    fn enter<E: serde::de::Error>(&mut self, bracket: u8) -> Result<usize, E> {
        self.text.push(bracket);
        self.deeper.checked_sub(1).ok_or_else(|| E::custom(format_args!("nested more than {MOST_DEPTH} levels deep")))
    }

    /// Before each element: what is between it and the one before, if there still is room.
    fn next<E: serde::de::Error>(&mut self, first: bool) -> Result<(), E> {
        if self.text.len() > MOST_TEXT {
            return Err(E::custom(format_args!("longer than {} MB", MOST_TEXT >> 20)));
        }
        if !first {
            self.text.push(b',');
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Compact<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Compact<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.write(&value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        // What is no number becomes `null`.
        self.write(&value)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.write(&())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<(), E> {
        self.write(&())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let deeper = self.enter(b'[')?;
        let mut first = true;
        loop {
            let before = self.text.len();
            self.next(first)?;
            if list.next_element_seed(Compact { text: &mut *self.text, deeper })?.is_none() {
                self.text.truncate(before);
                self.text.push(b']');
                return Ok(());
            }
            first = false;
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let deeper = self.enter(b'{')?;
        let mut first = true;
        loop {
            let before = self.text.len();
            self.next(first)?;
            if map.next_key_seed(Key(&mut *self.text))?.is_none() {
                self.text.truncate(before);
                self.text.push(b'}');
                return Ok(());
            }
            self.text.push(b':');
            map.next_value_seed(Compact { text: &mut *self.text, deeper })?;
            first = false;
        }
    }
}

/// Writes the name of a member down.
struct Key<'a>(&'a mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<(), E> {
        serde_json::to_writer(self.0, name).map_err(E::custom)
    }
}

/// The members of a JSON object, each a [`JsonText`], in their order. Of members with the same name the last counts, in the place of the
/// first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Members(IndexMap<String, JsonText>);

impl Members {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The member of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&JsonText> {
        self.0.get(name)
    }

    /// Whether there is one of this name.
    #[must_use]
    pub fn contains_key(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Adds a member.
    pub fn insert(&mut self, name: String, value: JsonText) {
        self.0.insert(name, value);
    }

    /// All, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&String, &JsonText)> {
        self.0.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that keeping them costs: names, texts and what each member costs besides.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| MEMBER_COST + name.len() + value.size()).sum()
    }

    /// What of [`Self::size`] a clone costs: the texts are shared.
    #[must_use]
    pub fn size_of_clone(&self) -> usize {
        self.0.keys().map(|name| MEMBER_COST + name.len()).sum()
    }
}

impl FromIterator<(String, JsonText)> for Members {
    fn from_iter<I: IntoIterator<Item = (String, JsonText)>>(members: I) -> Self {
        Self(members.into_iter().collect())
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.0)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = IndexMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    members.insert(name, value);
                    if members.len() > MOST_MEMBERS {
                        return Err(A::Error::custom(format_args!("an object has more than {MOST_MEMBERS} members")));
                    }
                }
                members.shrink_to_fit();
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// Names to which `serde_json` gives a meaning, with values that it could not read by it.
    const MAGIC: [&str; 4] = [
        r#"{"$serde_json::private::RawValue":"[1, 2"}"#,
        r#"{"$serde_json::private::RawValue":[1]}"#,
        r#"{"$serde_json::private::Number":"x"}"#,
        r#"[{"a":{"$serde_json::private::RawValue":"{\"b\":2}"}}]"#,
    ];

    #[test]
    fn names_with_a_meaning_elsewhere_are_plain_data() {
        for json in MAGIC {
            let text = JsonText::parse(json).unwrap();
            assert_eq!(text.as_str(), json);
            assert_eq!(serde_json::to_string(&text).unwrap(), json);
            // Also through a tree, and through what `flatten` and tags make of it.
            assert_eq!(serde_json::to_value(&text).unwrap().to_string(), json);
            #[derive(Serialize, Deserialize)]
            #[serde(tag = "type")]
            enum Tagged {
                One { value: JsonText },
            }
            let tagged = serde_json::to_string(&Tagged::One { value: text.clone() }).unwrap();
            let Tagged::One { value } = serde_json::from_str(&tagged).unwrap();
            assert_eq!(value, text);
        }
        let members: Members = serde_json::from_str(MAGIC[0]).unwrap();
        assert_eq!(serde_json::to_string(&members).unwrap(), MAGIC[0]);
    }

    #[test]
    fn text_is_compact_and_the_same_when_it_is_read_again() {
        let text = JsonText::parse(" { \"a\" : [ 1 , -2, 0.30000000000000004, 1e400 ] } ");
        assert!(text.is_err(), "no number of JSON that fits");
        let text =
            JsonText::parse(" { \"a\" : [ 1 , -2, 0.30000000000000004, 18446744073709551615 ], \"\\u00e9\": null } ")
                .unwrap();
        assert_eq!(text.as_str(), r#"{"a":[1,-2,0.30000000000000004,18446744073709551615],"é":null}"#);
        assert_eq!(JsonText::of(&text).unwrap(), text);
        assert_eq!(JsonText::of(&f64::NAN).unwrap(), JsonText::default());
        for empty in ["[]", "{}", "\"\""] {
            assert_eq!(JsonText::parse(empty).unwrap().as_str(), empty);
        }
    }

    #[test]
    fn depth_is_bounded_and_what_is_within_it_can_be_read_in_an_execution() {
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        let text = JsonText::parse(&deep(MOST_DEPTH)).unwrap();
        let within = serde_json::to_string(&json!({"seq": 1, "data": {"execution": {"variables": {"x": text}}}}));
        assert!(serde_json::from_str::<Value>(&within.unwrap()).is_ok());
        let error = JsonText::parse(&deep(MOST_DEPTH + 1)).unwrap_err().to_string();
        assert!(error.starts_with("nested more than 100 levels deep"), "{error}");
    }

    #[test]
    fn an_object_with_too_many_members_is_refused_and_twice_the_same_is_one() {
        let object = |count: usize| {
            let members: Vec<_> = (0..count).map(|n| format!("\"{n}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert_eq!(serde_json::from_str::<Members>(&object(MOST_MEMBERS)).unwrap().len(), MOST_MEMBERS);
        let error = serde_json::from_str::<Members>(&object(MOST_MEMBERS + 1)).unwrap_err().to_string();
        assert!(error.starts_with("an object has more than 10000 members"), "{error}");
        // Within a value there may be as many as there is room for.
        assert!(JsonText::parse(&object(MOST_MEMBERS + 1)).is_ok());
        let twice: Members = serde_json::from_str(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(serde_json::to_string(&twice).unwrap(), r#"{"a":3,"b":2}"#);
        assert_eq!(JsonText::parse(r#"{"a":1,"a":3}"#).unwrap().as_str(), r#"{"a":1,"a":3}"#);
    }

    #[test]
    fn only_a_string_has_a_content() {
        assert_eq!(JsonText::parse(r#""a\nb""#).unwrap().string().as_deref(), Some("a\nb"));
        assert_eq!(JsonText::from("a\"").string().as_deref(), Some("a\""));
        assert_eq!(JsonText::parse("[\"a\"]").unwrap().string(), None);
    }

    fn values() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("\\PC{0,4}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_is_what_it_was(value in values()) {
            let text = JsonText::of(&value).unwrap();
            prop_assert_eq!(text.as_str(), value.to_string());
            prop_assert_eq!(serde_json::to_value(&text).unwrap(), value);
        }
    }
}
