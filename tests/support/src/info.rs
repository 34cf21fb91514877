//! INFO by field name.

use std::collections::HashMap;

pub struct Info(HashMap<String, String>);

impl Info {
    pub fn parse(text: &str) -> Info {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Info(fields.map(|(name, value)| (name.to_string(), value.to_string())).collect())
    }

    pub fn find(&self, field: &str) -> Option<&str> {
        self.0.get(field).map(String::as_str)
    }

    #[track_caller]
    pub fn text(&self, field: &str) -> &str {
        self.find(field).unwrap_or_else(|| panic!("INFO has no field {field}: {:?}", self.0))
    }

    #[track_caller]
    pub fn number(&self, field: &str) -> i64 {
        let text = self.text(field);
        text.parse().unwrap_or_else(|_| panic!("{field} is no number: {text}"))
    }

    /// For example `Redis 7.0.15` or `Valkey 9.1.2`; requires the section `server`.
    #[track_caller]
    pub fn version(&self) -> String {
        match self.find("valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", self.text("redis_version")),
        }
    }

    /// CPU time of the server process in microseconds, user and system; requires the section `cpu`.
    ///
    /// The server uses getrusage, which is exact to the microsecond, whereas /proc counts in ticks of 10 ms. Child
    /// processes that save in the background are not included.
    #[track_caller]
    pub fn cpu_us(&self) -> f64 {
        let seconds = |field| {
            let text = self.text(field);
            text.parse::<f64>().unwrap_or_else(|_| panic!("{field} is no number: {text}"))
        };
        (seconds("used_cpu_user") + seconds("used_cpu_sys")) * 1e6
    }
}
