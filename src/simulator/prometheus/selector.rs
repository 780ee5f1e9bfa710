//! The part of PromQL that is understood: one instant vector selector, such as `ALERTS{severity="critical"}`.

use std::{collections::BTreeMap, str::Chars};

use regex::Regex;

/// Label that holds the name of the metric.
pub const NAME: &str = "__name__";

/// What a query is.
#[derive(Debug)]
pub enum Query {
    /// One selector.
    Selector(Selector),
    /// An expression that is well-formed as far as we look: brackets and quotes match.
    Other,
}

/// An instant vector selector.
#[derive(Debug)]
pub struct Selector(Vec<Matcher>);

#[derive(Debug)]
struct Matcher {
    label: String,
    test: Test,
}

#[derive(Debug)]
enum Test {
    Equal(String),
    NotEqual(String),
    Matches(Regex),
    DoesNotMatch(Regex),
}

/// A text that is no PromQL; the message is like Prometheus' own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid parameter \"query\": 1:{column}: parse error: {problem}")]
pub struct ParseError {
    column: usize,
    problem: String,
}

impl Selector {
    /// Whether a series with these labels is selected; a label that is not there is empty.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|matcher| {
            let value = labels.get(&matcher.label).map_or("", String::as_str);
            match &matcher.test {
                Test::Equal(wanted) => value == wanted,
                Test::NotEqual(unwanted) => value != unwanted,
                Test::Matches(wanted) => wanted.is_match(value),
                Test::DoesNotMatch(unwanted) => !unwanted.is_match(value),
            }
        })
    }
}

/// Reads a query.
pub fn parse(query: &str) -> Result<Query, ParseError> {
    check_brackets(query)?;
    let mut reader = Reader::of(without_parentheses(query));
    let name = reader.name();
    reader.blanks();
    let mut matchers = Vec::new();
    if reader.next_is('{') {
        matchers = reader.matchers()?;
        reader.blanks();
    }
    // What follows a selector (a range, an operator) makes another expression of it.
    if !reader.is_at_end() || (name.is_empty() && matchers.is_empty()) {
        return Ok(Query::Other);
    }
    if !name.is_empty() {
        matchers.push(Matcher {
            label: NAME.to_owned(),
            test: Test::Equal(name),
        });
    }
    Ok(Query::Selector(Selector(matchers)))
}

/// The text inside parentheses that enclose all of it.
fn without_parentheses(query: &str) -> &str {
    let query = query.trim();
    match query.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        // In `(a) or (b)` the first one ends early.
        Some(inner) if check_brackets(inner).is_ok() => without_parentheses(inner),
        Some(_) | None => query,
    }
}

/// Brackets and quotes must match, and there must be something.
fn check_brackets(query: &str) -> Result<(), ParseError> {
    let error = |column: usize, problem: String| ParseError {
        column: column + 1,
        problem,
    };
    let mut open: Vec<char> = Vec::new();
    let mut quote: Option<(usize, char)> = None;
    let mut escaped = false;
    for (column, c) in query.chars().enumerate() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some((_, '"' | '\'')), '\\') => escaped = true,
            (Some((_, q)), _) if c == q => quote = None,
            (None, '"' | '\'' | '`') => quote = Some((column, c)),
            (None, '(') => open.push(')'),
            (None, '[') => open.push(']'),
            (None, '{') => open.push('}'),
            (None, ')' | ']' | '}') if open.pop() != Some(c) => {
                return Err(error(column, format!("unexpected {c:?}")));
            }
            (Some(_) | None, _) => {}
        }
    }
    let end = query.chars().count();
    if let Some((column, _)) = quote {
        return Err(error(column, "unterminated quoted string".to_owned()));
    }
    if let Some(missing) = open.pop() {
        return Err(error(
            end,
            format!("unexpected end of input, expected {missing:?}"),
        ));
    }
    let text = query.trim_end();
    if text.is_empty() {
        return Err(error(0, "no expression found in input".to_owned()));
    }
    if text.ends_with(['+', '-', '*', '/', '%', '^', '=', '>', '<', '!', '~', ',']) {
        return Err(error(end, "unexpected end of input".to_owned()));
    }
    Ok(())
}

struct Reader<'a> {
    rest: Chars<'a>,
    column: usize,
}

impl<'a> Reader<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            rest: text.chars(),
            column: 0,
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn take(&mut self) -> Option<char> {
        self.column += 1;
        self.rest.next()
    }

    fn next_is(&mut self, c: char) -> bool {
        let is_next = self.peek() == Some(c);
        if is_next {
            self.take();
        }
        is_next
    }

    fn is_at_end(&self) -> bool {
        self.peek().is_none()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.take();
        }
    }

    /// A name of a metric or a label; empty if there is none here.
    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.peek() {
            let fits =
                c.is_ascii_alphabetic() || matches!(c, '_' | ':') || (c.is_ascii_digit() && !name.is_empty());
            if !fits {
                break;
            }
            name.extend(self.take());
        }
        name
    }

    fn error(&self, problem: String) -> ParseError {
        ParseError {
            column: self.column + 1,
            problem,
        }
    }

    fn unexpected(&self, expected: &str) -> ParseError {
        let found = self
            .peek()
            .map_or("end of input".to_owned(), |c| format!("{c:?}"));
        self.error(format!(
            "unexpected {found} in label matching, expected {expected}"
        ))
    }

    /// What follows `{`, and `}`.
    fn matchers(&mut self) -> Result<Vec<Matcher>, ParseError> {
        let mut all = Vec::new();
        loop {
            self.blanks();
            if self.next_is('}') {
                return Ok(all);
            }
            all.push(self.matcher()?);
            self.blanks();
            if !self.next_is(',') && self.peek() != Some('}') {
                return Err(self.unexpected("\",\" or \"}\""));
            }
        }
    }

    fn matcher(&mut self) -> Result<Matcher, ParseError> {
        let label = self.name();
        if label.is_empty() || label.contains(':') {
            return Err(self.unexpected("identifier or \"}\""));
        }
        self.blanks();
        let operator = match (self.take(), self.peek()) {
            (Some('='), Some('~')) => "=~",
            (Some('='), _) => "=",
            (Some('!'), Some('~')) => "!~",
            (Some('!'), Some('=')) => "!=",
            _ => return Err(self.error("expected one of =, !=, =~, !~".to_owned())),
        };
        if operator.len() == 2 {
            self.take();
        }
        self.blanks();
        let value = self.string()?;
        let regex = |value: &str| {
            // Prometheus anchors.
            Regex::new(&format!("^(?s:{value})$")).map_err(|e| {
                let last = e.to_string();
                let last = last.lines().last().unwrap_or_default();
                self.error(format!("error parsing regexp: {last}"))
            })
        };
        let test = match operator {
            "=" => Test::Equal(value),
            "!=" => Test::NotEqual(value),
            "=~" => Test::Matches(regex(&value)?),
            _ => Test::DoesNotMatch(regex(&value)?),
        };
        Ok(Matcher { label, test })
    }

    fn string(&mut self) -> Result<String, ParseError> {
        let Some(quote @ ('"' | '\'' | '`')) = self.peek() else {
            return Err(self.unexpected("string"));
        };
        self.take();
        let mut text = String::new();
        loop {
            match self.take() {
                Some(c) if c == quote => return Ok(text),
                Some('\\') if quote != '`' => match self.take() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some(c @ ('\\' | '"' | '\'')) => text.push(c),
                    _ => return Err(self.error("unknown escape sequence".to_owned())),
                },
                Some(c) => text.push(c),
                None => return Err(self.error("unterminated quoted string".to_owned())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn labels() -> BTreeMap<String, String> {
        [
            (NAME, "ALERTS"),
            ("alertname", "KubePodCrashLooping"),
            ("severity", "critical"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into()
    }

    #[rstest]
    #[case("ALERTS", true)]
    #[case(" ( ALERTS { } ) ", true)]
    #[case("UP", false)]
    #[case(r#"ALERTS{severity="critical"}"#, true)]
    #[case(r#"ALERTS{severity="critical",}"#, true)]
    #[case(r#"ALERTS{severity!="critical"}"#, false)]
    #[case(r#"ALERTS{severity=~"crit.*|warning", alertname!~"Watchdog"}"#, true)]
    #[case::regular_expressions_are_anchored(r#"ALERTS{severity=~"crit"}"#, false)]
    #[case("ALERTS{severity!~'crit.+'}", false)]
    #[case::an_absent_label_is_empty(r#"ALERTS{namespace=""}"#, true)]
    #[case::an_absent_label_is_empty(r#"ALERTS{namespace!=""}"#, false)]
    #[case(r#"{__name__="ALERTS"}"#, true)]
    #[case(r#"{__name__=~"A.+",alertname="KubePodCrashLooping"}"#, true)]
    #[case("ALERTS{severity=`critical`}", true)]
    #[case::escapes(r#"ALERTS{alertname!="a\"}\\"}"#, true)]
    fn a_selector_selects_as_prometheus_does(#[case] query: &str, #[case] expected: bool) {
        let Ok(Query::Selector(selector)) = parse(query) else {
            panic!("{query} is no selector");
        };
        assert_eq!(selector.selects(&labels()), expected);
    }

    #[rstest]
    #[case(r#"count(ALERTS{severity="critical"}) > 0"#)]
    #[case("rate(up[5m])")]
    #[case("up[5m]")]
    #[case("(up) or (down)")]
    #[case("ALERTS offset 5m")]
    #[case("1")]
    fn any_other_expression_is_told_apart(#[case] query: &str) {
        assert!(matches!(parse(query), Ok(Query::Other)));
    }

    #[rstest]
    #[case("", "1:1: parse error: no expression found in input")]
    #[case("up{", "1:4: parse error: unexpected end of input, expected '}'")]
    #[case("sum(up))", "1:8: parse error: unexpected ')'")]
    #[case("up{a=\"b}", "1:6: parse error: unterminated quoted string")]
    #[case("up ==", "unexpected end of input")]
    #[case("up{a}", "expected one of =, !=, =~, !~")]
    #[case("up{a=b}", "unexpected 'b' in label matching, expected string")]
    #[case("up{=\"b\"}", "expected identifier")]
    #[case(r#"up{a="b" c="d"}"#, "unexpected 'c' in label matching")]
    #[case(r#"up{a=~"("}"#, "error parsing regexp")]
    fn what_is_no_promql_is_refused_with_the_place(#[case] query: &str, #[case] expected: &str) {
        let error = parse(query).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.starts_with("invalid parameter \"query\": 1:"), "{error}");
    }
}
