//! Parses the format of /metrics, and PromQL queries, far enough to compare names and labels.

/// A condition on a label or, in exported samples, the label itself: `key="lock_waiters"`.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    pub name: String,
    /// `=`, `=~`, `!=`, `!~`
    pub operator: String,
    pub value: String,
}

/// `redis_script_values{key="lock_waiters"}`
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    pub metric: String,
    pub labels: Vec<Label>,
}

/// A line of /metrics.
#[derive(Clone, Debug)]
pub struct Sample {
    pub series: Selector,
    pub value: f64,
}

impl Selector {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|label| label.name == name).map(|label| label.value.as_str())
    }
}

/// PromQL operators, which look like metric names.
const WORDS: &[&str] = &["and", "or", "unless", "bool", "offset"];
/// Followed by a list of labels in parentheses.
const WORDS_WITH_LABELS: &[&str] = &["on", "ignoring", "by", "without", "group_left", "group_right"];

pub fn samples(text: &str) -> Vec<Sample> {
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(sample).collect()
}

fn sample(line: &str) -> Sample {
    let (metric, rest) = identifier(line);
    let (labels, rest) = labels(rest);
    let value = rest.trim().parse().unwrap_or_else(|_| panic!("no value: {line}"));
    Sample { series: Selector { metric: metric.into(), labels }, value }
}

/// The selectors that an expression reads. promtool detects invalid PromQL.
pub fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        if first.is_ascii_digit() {
            // A number or a duration: 0.05, 15m.
            rest = rest.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '.');
        } else if first == '[' {
            rest = after(rest, ']');
        } else if first.is_ascii_alphabetic() || first == '_' {
            let (word, next) = identifier(rest);
            rest = next;
            // An aggregation may name its labels before the aggregated expression.
            let is_called = ["(", "by ", "without "].iter().any(|next| rest.trim_start().starts_with(next));
            if WORDS_WITH_LABELS.contains(&word) {
                rest = if is_called { after(rest, ')') } else { rest };
            } else if !is_called && !WORDS.contains(&word) {
                let (labels, next) = labels(rest);
                rest = next;
                found.push(Selector { metric: word.into(), labels });
            }
        } else {
            rest = &rest[first.len_utf8()..];
        }
    }
    found
}

fn after(text: &str, end: char) -> &str {
    text.split_once(end).unwrap_or_else(|| panic!("no {end}: {text}")).1
}

fn identifier(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != ':');
    text.split_at(end.unwrap_or(text.len()))
}

/// The labels in braces at the beginning of a text, if any, and the rest.
fn labels(text: &str) -> (Vec<Label>, &str) {
    let mut labels = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else { return (labels, text) };
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return (labels, rest);
        }
        let (name, value) = rest.split_once('"').unwrap_or_else(|| panic!("no label: {text}"));
        let operator = name.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        let (value, next) = quoted(value);
        let name = name[..name.len() - operator.len()].into();
        labels.push(Label { name, operator: operator.trim().into(), value });
        rest = next;
    }
}

/// The text before the closing quote, and the rest after it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((position, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[position + 1..]),
            '\\' => match letters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped)) => value.push(escaped),
                None => break,
            },
            letter => value.push(letter),
        }
    }
    panic!("no closing quote: {text}");
}

#[test]
fn an_expression_reads_its_metrics_and_nothing_else() {
    let expression = r#"sum by (job) (rate(a{key=~"x|y", job="{\"}"}[5m] offset 15m)) > on (job, instance) 0.05 * b
        unless on (instance) c_total{} and max_over_time(d[$__rate_interval]) == bool 1e3"#;
    let found = selectors(expression);
    assert_eq!(found.iter().map(|selector| selector.metric.as_str()).collect::<Vec<_>>(), ["a", "b", "c_total", "d"]);
    assert_eq!((found[0].label("key"), found[0].label("job")), (Some("x|y"), Some("{\"}")));
    assert_eq!(found[0].labels[0].operator, "=~");
}
