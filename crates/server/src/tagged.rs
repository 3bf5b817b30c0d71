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

use serde_json::{Map, Value};

const TAG: &str = "$type";

/// The nearest plain JSON of `value`. Recursion is bounded by the JSON parser that made the value.
pub(crate) fn flatten(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(flatten).collect()),
        Value::Object(fields) => match fields.get(TAG).and_then(Value::as_str) {
            Some(tag) => untag(tag, fields),
            None => Value::Object(flatten_fields(fields)),
        },
        plain => plain.clone(),
    }
}

/// The same for the fields of an object that is no tagged value itself.
pub(crate) fn flatten_fields(fields: &Map<String, Value>) -> Map<String, Value> {
    fields.iter().map(|(name, value)| (name.clone(), flatten(value))).collect()
}

fn untag(tag: &str, fields: &Map<String, Value>) -> Value {
    let first = |names: &[&str]| names.iter().find_map(|name| fields.get(*name)).map_or(Value::Null, flatten);
    match tag {
        "float" => match fields.get("value").and_then(Value::as_str).map(str::to_ascii_lowercase).as_deref() {
            Some("inf" | "infinity" | "+inf") => Value::from("inf"),
            Some("-inf" | "-infinity") => Value::from("-inf"),
            Some(_) => Value::Null,
            None => first(&["value"]),
        },
        "bytes" => first(&["base64"]),
        "ndarray" | "index" => first(&["data"]),
        "complex" => ["real", "imag"].map(|part| (part, first(&[part]))).into_iter().collect(),
        "dict" => match fields.get("items") {
            Some(Value::Array(items)) => Value::Object(items.iter().filter_map(pair).collect()),
            _ => Value::Null,
        },
        _ => first(&["value", "repr"]),
    }
}

/// An item of a `dict`: `[key, value]`.
fn pair(item: &Value) -> Option<(String, Value)> {
    let [key, value] = item.as_array()?.as_slice() else { return None };
    Some((key_text(key), flatten(value)))
}

/// A key as Python's `str()` shows it, near enough.
fn key_text(key: &Value) -> String {
    match flatten(key) {
        Value::String(text) => text,
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Array(items) if items.len() == 1 => format!("({},)", key_repr(&items[0])),
        Value::Array(items) => format!("({})", items.iter().map(key_repr).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// A part of a tuple key, as Python's `repr()` shows it.
fn key_repr(key: &Value) -> String {
    match key {
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        other => key_text(other),
    }
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
            assert_eq!(flatten(&tagged), plain, "{tagged}");
        }
    }
}
