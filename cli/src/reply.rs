//! Parses the replies of the module's commands: maps with documented field names, as RESP3 maps or RESP2 flat arrays.
//! Unknown fields are ignored, because a newer module may send more.

use std::collections::{BTreeMap, HashMap};

use redis::{from_redis_value, FromRedisValue, Value};

use crate::error::Error;
use crate::text::Text;

pub struct Fields(HashMap<String, Value>);

impl Fields {
    pub fn of(value: Value) -> Result<Fields, Error> {
        decode(value).map(Fields)
    }

    pub fn all_of(values: Value) -> Result<Vec<Fields>, Error> {
        let values: Vec<Value> = decode(values)?;
        values.into_iter().map(Fields::of).collect()
    }

    pub fn int(&mut self, name: &str) -> Result<i64, Error> {
        decode(self.take(name)?)
    }

    /// A field that only some replies have, or that an older module does not send.
    pub fn optional_int(&mut self, name: &str) -> Result<Option<i64>, Error> {
        self.0.remove(name).map(decode).transpose()
    }

    pub fn count(&mut self, name: &str) -> Result<u64, Error> {
        decode(self.take(name)?)
    }

    pub fn string(&mut self, name: &str) -> Result<String, Error> {
        decode(self.take(name)?)
    }

    /// A field with any bytes.
    pub fn text(&mut self, name: &str) -> Result<Text, Error> {
        decode(self.take(name)?).map(Text)
    }

    /// A field with any bytes, or nil.
    pub fn optional_text(&mut self, name: &str) -> Result<Option<Text>, Error> {
        let bytes: Option<Vec<u8>> = decode(self.take(name)?)?;
        Ok(bytes.map(Text))
    }

    /// A field with any bytes that only some replies have.
    pub fn text_if_given(&mut self, name: &str) -> Result<Option<Text>, Error> {
        Ok(self.0.remove(name).map(decode).transpose()?.map(Text))
    }

    /// A field with a map of counters.
    pub fn counts(&mut self, name: &str) -> Result<BTreeMap<String, u64>, Error> {
        decode(self.take(name)?)
    }

    /// A field with an array of strings.
    pub fn strings(&mut self, name: &str) -> Result<Vec<String>, Error> {
        decode(self.take(name)?)
    }

    /// A field with an array of maps.
    pub fn maps(&mut self, name: &str) -> Result<Vec<Fields>, Error> {
        Fields::all_of(self.take(name)?)
    }

    fn take(&mut self, name: &str) -> Result<Value, Error> {
        self.0.remove(name).ok_or_else(|| Error::Reply(format!("it has no field {name}")))
    }
}

pub fn decode<T: FromRedisValue>(value: Value) -> Result<T, Error> {
    from_redis_value(value).map_err(|error| Error::Reply(error.to_string()))
}
