//! Tagged values of the guest runner as plain JSON, for clients that know no tags.
//!
//! The runner writes what JSON cannot hold as `{"$type": T, …}`. Here each becomes the nearest plain JSON:
//!
//! | `$type` | plain |
//! | --- | --- |
//! | `float` | `null` for NaN, `"inf"` and `"-inf"` for the infinities |
//! | `int`, `decimal`, `datetime`, `date`, `time`, `timedelta`, … | its `value`, text |
//! | `bytes` | its `base64` text |
//! | `set` | array |
//! | `ndarray`, `index` | its `data` |
//! | `dict` (keys that are no text) | object with the keys as text |
//! | `complex` | object of `real` and `imag` |
//! | anything else | its `value`, else its `repr`, else `null` |

//!
//! Text is made from text, without a tree in between: a value of many small parts would take many times its size.

use fumehood_engine::execution::{JsonText, Members};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

const TAG: &str = "$type";

/// Longest text of a key that is no text itself, in bytes. One that holds keys again would grow with each level.
const MOST_KEY: usize = 4096;

/// The nearest plain JSON of `value`. Recursion is bounded by the depth of a [`JsonText`].
pub(crate) fn flatten(value: &JsonText) -> JsonText {
    let mut plain = String::new();
    write(value.as_str(), &mut plain);
    JsonText::parse(&plain).unwrap_or_default()
}

/// The same for the fields of an object that is no tagged value itself.
pub(crate) fn flatten_fields(fields: &Members) -> Members {
    fields.iter().map(|(name, value)| (name.clone(), flatten(value))).collect()
}

fn write(json: &str, plain: &mut String) {
    match json.as_bytes().first() {
        Some(b'[') => {
            plain.push('[');
            let mut between = "";
            elements(json, &mut |element| {
                plain.push_str(between);
                between = ",";
                write(element, plain);
            });
            plain.push(']');
        }
        Some(b'{') => {
            let fields = fields(json);
            match field(&fields, TAG).and_then(text) {
                Some(tag) => untag(&tag, &fields, plain),
                None => object(fields.into_iter().map(|(name, value)| (name, Some(value))), plain),
            }
        }
        _ => plain.push_str(json),
    }
}

/// Writes an object of values that are still tagged; `null` for those that are not there.
fn object<'a>(fields: impl Iterator<Item = (String, Option<&'a str>)>, plain: &mut String) {
    plain.push('{');
    for (index, (name, value)) in fields.enumerate() {
        if index > 0 {
            plain.push(',');
        }
        plain.push_str(JsonText::from(name.as_str()).as_str());
        plain.push(':');
        write(value.unwrap_or("null"), plain);
    }
    plain.push('}');
}

fn untag(tag: &str, fields: &[(String, &str)], plain: &mut String) {
    let mut first = |names: &[&str]| {
        write(names.iter().find_map(|name| field(fields, name)).unwrap_or("null"), plain);
    };
    match tag {
        "float" => match field(fields, "value").and_then(text).map(|text| text.to_ascii_lowercase()).as_deref() {
            Some("inf" | "infinity" | "+inf") => plain.push_str("\"inf\""),
            Some("-inf" | "-infinity") => plain.push_str("\"-inf\""),
            Some(_) => plain.push_str("null"),
            None => first(&["value"]),
        },
        "bytes" => first(&["base64"]),
        "ndarray" | "index" => first(&["data"]),
        "complex" => object(["real", "imag"].map(|part| (part.to_owned(), field(fields, part))).into_iter(), plain),
        "dict" => match field(fields, "items") {
            Some(items) if items.starts_with('[') => dict(items, plain),
            _ => plain.push_str("null"),
        },
        _ => first(&["value", "repr"]),
    }
}

/// The items of a `dict`, each `[key, value]`.
fn dict(items: &str, plain: &mut String) {
    plain.push('{');
    let mut between = "";
    elements(items, &mut |item| {
        let (mut parts, mut count) = (["null"; 2], 0);
        elements(item, &mut |part| {
            if let Some(place) = parts.get_mut(count) {
                *place = part;
            }
            count += 1;
        });
        if count != parts.len() {
            return;
        }
        plain.push_str(between);
        between = ",";
        let [key, value] = parts;
        plain.push_str(JsonText::from(key_text(key).as_str()).as_str());
        plain.push(':');
        write(value, plain);
    });
    plain.push('}');
}

/// A key as Python's `str()` shows it, near enough.
fn key_text(key: &str) -> String {
    let mut plain = String::new();
    write(key, &mut plain);
    let mut shown = String::new();
    match text(&plain) {
        Some(text) => shown = text,
        None => show(&plain, &mut shown),
    }
    shown.truncate(shown.floor_char_boundary(MOST_KEY));
    shown
}

/// Plain JSON as a key, or a part of one, as Python's `repr()` shows it.
fn show(plain: &str, shown: &mut String) {
    if shown.len() > MOST_KEY {
        return;
    }
    match plain {
        "null" => shown.push_str("None"),
        "true" => shown.push_str("True"),
        "false" => shown.push_str("False"),
        list if list.starts_with('[') => {
            shown.push('(');
            let mut count = 0;
            elements(list, &mut |element| {
                if count > 0 {
                    shown.push_str(", ");
                }
                count += 1;
                show(element, shown);
            });
            shown.push_str(if count == 1 { ",)" } else { ")" });
        }
        other => match text(other) {
            Some(text) => {
                shown.push('\'');
                shown.push_str(&text.replace('\\', "\\\\").replace('\'', "\\'"));
                shown.push('\'');
            }
            None => shown.push_str(other),
        },
    }
}

/// The content of a string.
fn text(json: &str) -> Option<String> {
    serde_json::from_str(json).ok()
}

/// The field of this name; the last, if there are several.
fn field<'a>(fields: &[(String, &'a str)], name: &str) -> Option<&'a str> {
    fields.iter().rev().find(|(own, _)| own == name).map(|(_, value)| *value)
}

/// Sees the elements of an array one after the other; none of what is no array.
fn elements<'a>(json: &'a str, see: &mut dyn FnMut(&'a str)) {
    struct List<'s, 'a>(&'s mut dyn FnMut(&'a str));
    impl<'de> Visitor<'de> for List<'_, 'de> {
        type Value = ();
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an array")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
            while let Some(element) = list.next_element::<&RawValue>()? {
                (self.0)(element.get());
            }
            Ok(())
        }
    }
    // It is valid JSON: what fails is only something other than an array.
    serde_json::Deserializer::from_str(json).deserialize_seq(List(see)).ok();
}

/// The fields of an object.
fn fields(json: &str) -> Vec<(String, &str)> {
    struct Object;
    impl<'de> Visitor<'de> for Object {
        type Value = Vec<(String, &'de str)>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                fields.push((name, value.get()));
            }
            Ok(fields)
        }
    }
    serde_json::Deserializer::from_str(json).deserialize_map(Object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_tagged_value_has_a_plain_form() {
        let cases = [
            (json!({"$type": "float", "value": "nan"}), json!(null)),
            (json!({"$type": "float", "value": "inf"}), json!("inf")),
            (json!({"$type": "float", "value": "-inf"}), json!("-inf")),
            (json!({"$type": "int", "value": "1000000000000000000000"}), json!("1000000000000000000000")),
            (json!({"$type": "decimal", "value": "1.10"}), json!("1.10")),
            (json!({"$type": "datetime", "value": "2020-01-01T00:00:00"}), json!("2020-01-01T00:00:00")),
            (json!({"$type": "timedelta", "value": "PT1S", "seconds": 1.0}), json!("PT1S")),
            (json!({"$type": "bytes", "base64": "/w=="}), json!("/w==")),
            (json!({"$type": "set", "value": [1, {"$type": "float", "value": "nan"}]}), json!([1, null])),
            (json!({"$type": "ndarray", "shape": [2], "dtype": "int64", "data": [1, 2]}), json!([1, 2])),
            (
                json!({"$type": "dict", "items": [[1, "a"], [[2, "b"], {"$type": "object", "repr": "<o>"}], [null, 0], [true, 1]]}),
                json!({"1": "a", "(2, 'b')": "<o>", "None": 0, "True": 1}),
            ),
            (json!({"$type": "object", "class": "m.E", "repr": "<E>"}), json!("<E>")),
            (
                json!({"$type": "complex", "real": 1.0, "imag": {"$type": "float", "value": "inf"}}),
                json!({"real": 1.0, "imag": "inf"}),
            ),
            (json!({"$type": "truncated", "reason": "size", "value": "beg"}), json!("beg")),
            (json!({"$type": "novel", "repr": "x"}), json!("x")),
            (json!({"$type": "novel"}), json!(null)),
            (json!({"a": [{"$type": "int", "value": "9"}]}), json!({"a": ["9"]})),
            (json!({"markdown": "|a|", "data": [{"a": 1}]}), json!({"markdown": "|a|", "data": [{"a": 1}]})),
        ];
        for (tagged, plain) in cases {
            assert_eq!(flatten(&JsonText::of(&tagged).unwrap()), JsonText::of(&plain).unwrap(), "{tagged}");
        }
    }

    #[test]
    fn keys_within_keys_do_not_grow_without_bound() {
        // Each level of quotes doubles those within.
        let deep = (0..30).fold("\"\\\"\"".to_owned(), |key, _| format!(r#"{{"$type":"dict","items":[[{key},0]]}}"#));
        let plain = flatten(&JsonText::parse(&deep).unwrap());
        assert!(plain.size() < 20 * MOST_KEY, "{}", plain.size());
        let deep = (0..90).fold("0".to_owned(), |key, _| format!("[{key}]"));
        let plain = flatten(&JsonText::parse(&format!(r#"{{"$type":"dict","items":[[{deep},0]]}}"#)).unwrap());
        assert!(plain.as_str().starts_with("{\"((((") && plain.as_str().ends_with(",),),)\":0}"), "{plain}");
    }

    #[test]
    fn names_that_mean_something_elsewhere_are_plain_data() {
        let json = r#"{"$serde_json::private::RawValue":"[1","a":[{"$serde_json::private::Number":"x"}]}"#;
        assert_eq!(flatten(&JsonText::parse(json).unwrap()).as_str(), json);
    }
}
