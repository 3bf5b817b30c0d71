//! Values of a row by their column's name, the same on all three databases.

use sqlx::any::AnyRow;
use sqlx::{Row as _, ValueRef as _};

use super::StoreError;

/// What stands in a row.
///
/// Text may come as bytes: a database that compares byte by byte does not always say that a column is text.
pub trait Columns {
    /// Text; not `NULL`.
    ///
    /// # Errors
    /// When there is no such column, or it holds something else. The same for all of these.
    fn text(&self, column: &str) -> Result<String, StoreError> {
        self.text_or_null(column)?.ok_or_else(|| absent(column))
    }

    /// Text or `NULL`.
    ///
    /// # Errors
    /// As [`Self::text`].
    fn text_or_null(&self, column: &str) -> Result<Option<String>, StoreError>;

    /// Bytes; not `NULL`.
    ///
    /// # Errors
    /// As [`Self::text`].
    fn bytes(&self, column: &str) -> Result<Vec<u8>, StoreError> {
        self.bytes_or_null(column)?.ok_or_else(|| absent(column))
    }

    /// Bytes or `NULL`.
    ///
    /// # Errors
    /// As [`Self::text`].
    fn bytes_or_null(&self, column: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// A whole number of any width; not `NULL`. A sum has to be cast to `BIGINT` in the statement: databases make a decimal of it.
    ///
    /// # Errors
    /// As [`Self::text`].
    fn number(&self, column: &str) -> Result<i64, StoreError> {
        self.number_or_null(column)?.ok_or_else(|| absent(column))
    }

    /// A whole number or `NULL`.
    ///
    /// # Errors
    /// As [`Self::text`].
    fn number_or_null(&self, column: &str) -> Result<Option<i64>, StoreError>;
}

impl Columns for AnyRow {
    fn text_or_null(&self, column: &str) -> Result<Option<String>, StoreError> {
        if self.try_get_raw(column)?.is_null() {
            return Ok(None);
        }
        if let Ok(text) = self.try_get::<String, _>(column) {
            return Ok(Some(text));
        }
        let bytes: Vec<u8> = self.try_get(column)?;
        String::from_utf8(bytes).map(Some).map_err(|error| wrong(column, error.into()))
    }

    fn bytes_or_null(&self, column: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if self.try_get_raw(column)?.is_null() {
            return Ok(None);
        }
        // Empty bytes may come as empty text.
        if let Ok(text) = self.try_get::<String, _>(column) {
            return Ok(Some(text.into_bytes()));
        }
        Ok(Some(self.try_get(column)?))
    }

    fn number_or_null(&self, column: &str) -> Result<Option<i64>, StoreError> {
        if self.try_get_raw(column)?.is_null() {
            return Ok(None);
        }
        Ok(Some(self.try_get(column)?))
    }
}

fn absent(column: &str) -> StoreError {
    wrong(column, "is NULL".into())
}

fn wrong(column: &str, source: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    sqlx::Error::ColumnDecode { index: column.to_owned(), source }.into()
}
